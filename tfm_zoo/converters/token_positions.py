"""Where the positions of a model's tokens begin, how many it has, and how many a text needs."""

from typing import Any

from transformers import PreTrainedConfig, PreTrainedTokenizerBase

from . import ARCHITECTURES
from .choosing import table_for
from .config_rules import Free

POSITIONS, FROM_PADDING = "max_position_embeddings", "position_ids_from_padding"


def positions_of(config: PreTrainedConfig) -> int | None:
    """How many positions a configuration, official or the zoo's, has for tokens; `None` if it does not say."""
    positions = in_zoo_terms(config)[POSITIONS]
    return positions and positions - first_position(config)


def first_position(config: PreTrainedConfig) -> int:
    """The position of a sequence's first token: in RoBERTa the one after the padding's."""
    return config.pad_token_id + 1 if in_zoo_terms(config)[FROM_PADDING] else 0


def in_zoo_terms(config: PreTrainedConfig) -> dict[str, Any]:
    """The zoo's fields of positions: those of a zoo configuration, or what the tables make of an official one."""
    origin = (getattr(config, "official", None) or {}).get("model_type")
    zoo = {POSITIONS: getattr(config, POSITIONS, None), FROM_PADDING: getattr(config, FROM_PADDING, False)}
    table = ARCHITECTURES[origin] if origin in ARCHITECTURES else table_for(config.to_dict())
    rules = [rule for rule in table.config if rule.zoo in zoo] if table else []
    if origin is None and rules:  # an official configuration (a zoo one has an origin, or no table)
        official = config.to_dict()
        zoo |= {name: value for rule in rules for name, value in rule.to_zoo(official, {}).items()}
    # Where any number serves the official class, neither it nor the zoo model made of it has a limit.
    return zoo | {rule.zoo: None for rule in rules if isinstance(rule, Free)}


def check_room(length: int, tokenizer: PreTrainedTokenizerBase, name: str, pair: bool = False) -> None:
    """Refuses a length that special tokens fill: a tokenizer in Rust would then not truncate at all. `name`: of the
    length, for the error."""
    special = tokenizer.num_special_tokens_to_add(pair)
    if length <= special:
        texts = "a pair of texts" if pair else "a text"
        raise ValueError(f"{name} must be at least {special + 1}, not {length}: {texts} has {special} special tokens")
