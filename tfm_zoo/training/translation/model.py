"""A checkpoint that knows many languages is set to one pair of them."""

from transformers import PreTrainedModel, PreTrainedTokenizerBase


def set_languages(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, source_lang: str, target_lang: str
) -> None:
    """If a checkpoint knows many languages, set its tokenizer to the codes of these two, and its model to write the
    second."""
    if not hasattr(tokenizer, "tgt_lang"):
        return
    for name, language in (("source_lang", source_lang), ("target_lang", target_lang)):
        if language not in tokenizer.all_special_tokens:
            codes = [token for token in tokenizer.all_special_tokens if token.isidentifier() and "_" in token]
            raise ValueError(f"{name} {language!r}: {tokenizer.name_or_path!r} knows {', '.join(codes)}")
    tokenizer.src_lang, tokenizer.tgt_lang = source_lang, target_lang
    code = tokenizer.convert_tokens_to_ids(target_lang)
    ids = tokenizer(text_target="")["input_ids"]
    if ids[0] == code and ids[-1] != code:  # as in mBART-50: the model writes the code first
        model.generation_config.forced_bos_token_id = code
    elif ids[-1] == code:  # as in mBART: the model starts from the code
        model.config.decoder_start_token_id = model.generation_config.decoder_start_token_id = code
