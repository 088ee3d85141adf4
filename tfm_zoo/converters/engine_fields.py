"""Fields that official configurations had before transformers 5, and that the converters of serving engines still read.

CTranslate2 (4.8) and llama.cpp read them from `config.json`. transformers 5 has no such fields: it keeps those of an
old checkpoint, but adds no field itself. `tfm-zoo export --for-engines` adds them. It also says when CTranslate2 cannot
compute what a Marian computes.
"""

from transformers import PreTrainedConfig, PreTrainedModel


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


def misread_by_ctranslate2(official: PreTrainedModel) -> str:
    """Why CTranslate2 fails to convert a translator, or would write other text; empty if it does neither.

    Its converter for Marian drops the last row of the embeddings as padding. Its decoder starts from a row of zeros,
    whatever row the model has there.
    """
    if official.config.model_type != "marian" or not official.can_generate():
        return ""
    config, decoder = official.config, official.get_decoder()
    last, start = config.vocab_size - 1, config.decoder_start_token_id
    if config.pad_token_id != last:
        return (
            f"CTranslate2 does not convert this Marian. It drops the last row of the embeddings ({last}) as padding, "
            f"and here padding is row {config.pad_token_id}."
        )
    if norm := decoder.embed_tokens.weight[start].float().norm().item():
        return (
            "CTranslate2 writes other text than this Marian. It starts the decoder from a row of zeros, "
            f"and here row {start} (decoder_start_token_id) is not zero: its norm is {norm:.2g}."
        )
    return ""
