"""Fields that official configurations had before transformers 5, and that the converters of serving engines still read.

CTranslate2 (4.8) and llama.cpp read them from `config.json`. transformers 5 has no such fields: it keeps those of an
old checkpoint, but adds none itself. `tfm-zoo export --for-engines` adds them.
"""

from typing import Any

from transformers import PreTrainedConfig


def engine_fields(config: PreTrainedConfig) -> dict[str, Any]:
    """The fields that engines look for beside those of an official configuration, with their values."""
    match config.model_type:
        case "bert" | "roberta" | "xlm-roberta" | "camembert":
            return {"position_embedding_type": "absolute"}
        case "bart" | "mbart":
            return {"normalize_before": config.model_type == "mbart"}
        case "gpt2":
            return {"n_ctx": config.n_positions}
    return {}


def add_engine_fields(config: PreTrainedConfig) -> None:
    """Adds those fields that an official configuration lacks."""
    for name, value in engine_fields(config).items():
        if not hasattr(config, name):
            setattr(config, name, value)
