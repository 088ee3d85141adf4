"""A model that translates, with its tokenizer, from any checkpoint or with new weights."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

from transformers import AutoModelForSeq2SeqLM, PreTrainedModel, PreTrainedTokenizerBase

import tfm_zoo
from tfm_zoo.training.models import Head, ModelAndTokenizer, ModelArguments, new_tokenizer, vocabulary_option
from tfm_zoo.training.tokenizers import joint_bpe

HEAD = Head(
    AutoModelForSeq2SeqLM, tfm_zoo.TfmEncoderDecoderForConditionalGeneration, "sequence-to-sequence language model"
)


@dataclass(frozen=True)
class TranslationModelArguments(ModelArguments):
    """Which checkpoint to start from, or which new model to make."""

    small_type: ClassVar = "tfm_encoder_decoder"
    small_fields: ClassVar = {
        **ModelArguments.small_fields,
        "hidden_size": 128,
        "num_attention_heads": 4,
        "hidden_dropout": 0.0,  # the generated data have no noise
    }
    make_tokenizer: ClassVar = staticmethod(joint_bpe)

    tokenizer_vocab_size: int | None = vocabulary_option("a BPE of both sides")


def load_translation_model(args: TranslationModelArguments, source_lang: str, target_lang: str) -> ModelAndTokenizer:
    """The checkpoint that translates, and its tokenizer. One of many languages is told which two these are."""
    model, tokenizer = HEAD.load(args)
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


def new_translation_model(args: TranslationModelArguments, texts: Iterable[str]) -> ModelAndTokenizer:
    """A model with new weights; and the tokenizer named, or one made from the texts, those of both languages."""
    tokenizer = new_tokenizer(args, texts)
    for token in ("pad_token", "eos_token"):
        if getattr(tokenizer, token) is None:
            raise ValueError(f"tokenizer {tokenizer.name_or_path!r} has no {token}, which a translation needs")
    bos, eos = tokenizer.bos_token_id, tokenizer.eos_token_id
    start = tokenizer.pad_token_id if bos is None else bos
    config = HEAD.new_config(args, tokenizer, bos_token_id=bos, eos_token_id=eos, decoder_start_token_id=start)
    if getattr(config, "forced_eos_token_id", None) is not None:  # of the architecture's own vocabulary
        config.forced_eos_token_id = eos
    return HEAD.new(args, config), tokenizer
