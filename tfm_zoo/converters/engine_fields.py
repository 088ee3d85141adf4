"""Fields that official configurations had before transformers 5, and that the converters of serving engines still read.

CTranslate2 (4.8) and llama.cpp read them from `config.json`. transformers 5 has no such fields: it keeps those of an
old checkpoint, but adds no field itself. `tfm-zoo export --for-engines` adds them.
"""

from transformers import PreTrainedConfig


def add_engine_fields(config: PreTrainedConfig) -> None:
    """Adds the field that engines look for to an official configuration that lacks it."""
    match config.model_type:
        case "bert" | "roberta" | "xlm-roberta" | "camembert":
            name, value = "position_embedding_type", "absolute"
        case "bart" | "mbart":
            name, value = "normalize_before", config.model_type == "mbart"
        case "gpt2":
            name, value = "n_ctx", config.n_positions
        case _:
            return
    if not hasattr(config, name):
        setattr(config, name, value)
