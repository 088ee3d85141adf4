"""How many tokens a model takes."""

from transformers import PreTrainedConfig

#: official models that count positions from `pad_token_id + 1`
COUNT_FROM_PADDING = ("roberta", "xlm-roberta", "camembert", "mpnet")


def positions_of(config: PreTrainedConfig) -> int | None:
    """How many positions a configuration has for tokens; `None` if it does not say."""
    positions = getattr(config, "max_position_embeddings", None)
    from_padding = config.model_type in COUNT_FROM_PADDING or getattr(config, "position_ids_from_padding", False)
    return positions - config.pad_token_id - 1 if positions and from_padding else positions
