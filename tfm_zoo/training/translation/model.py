"""A checkpoint that translates, with its tokenizer. If these know many languages, they are set to one pair."""

from dataclasses import dataclass
from typing import ClassVar

from transformers import PreTrainedModel, PreTrainedTokenizerBase

from tfm_zoo.training.models import ModelAndTokenizer
from tfm_zoo.training.text_to_text.model import TextToTextModelArguments, load_text_to_text


@dataclass(frozen=True)
class TranslationModelArguments(TextToTextModelArguments):
    """Which translator to train."""

    writes: ClassVar = "a translation"


def load_translation_model(args: TranslationModelArguments, source_lang: str, target_lang: str) -> ModelAndTokenizer:
    """The checkpoint that translates, and its tokenizer, set to these languages if it knows many."""
    model, tokenizer = load_text_to_text(args)
    if hasattr(tokenizer, "tgt_lang"):
        set_languages(model, tokenizer, source_lang, target_lang)
    return model, tokenizer


def set_languages(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, source_lang: str, target_lang: str
) -> None:
    """Tell a tokenizer of many languages which two it reads, by their codes, and the model which one it writes."""
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
