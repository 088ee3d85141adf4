"""How many tokens a model takes."""

from transformers import PreTrainedConfig

from .converters import ARCHITECTURES
from .converters.config_rules import Free

LIMIT, FROM_PADDING = "max_position_embeddings", "position_ids_from_padding"


def positions_of(config: PreTrainedConfig) -> int | None:
    """How many tokens a configuration, official or the zoo's, has positions for; `None` if it does not say.

    For an official one, the table of its architecture says which of its fields these are.
    """
    origin = (getattr(config, "official", None) or {}).get("model_type")
    table = ARCHITECTURES.get(origin or config.model_type)
    zoo, rules = {LIMIT: getattr(config, LIMIT, None), FROM_PADDING: getattr(config, FROM_PADDING, False)}, ()
    if table is not None:
        rules = [rule for rule in table.config if rule.zoo in zoo]
    if any(isinstance(rule, Free) and rule.zoo == LIMIT for rule in rules):
        return None
    if origin is None:
        official = config.to_dict()
        zoo |= {name: value for rule in rules for name, value in rule.to_zoo(official, {}).items()}
    return zoo[LIMIT] - config.pad_token_id - 1 if zoo[LIMIT] and zoo[FROM_PADDING] else zoo[LIMIT]
