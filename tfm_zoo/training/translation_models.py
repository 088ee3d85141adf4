"""A model that translates, with its tokenizer, from any checkpoint or from nothing."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

from transformers import (
    MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING,
    AutoModelForSeq2SeqLM,
    PreTrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

import tfm_zoo
from tfm_zoo.training.arguments import option
from tfm_zoo.training.models import WEIGHTS, check_vocabulary, load_config, load_tokenizer
from tfm_zoo.training.new_models import NewModelArguments, check_has_head, new_config, tokens_to_learn
from tfm_zoo.training.tokenizers import joint_bpe

VOCAB_SIZE = 8000  # of a tokenizer made from the training texts


@dataclass
class TranslationModelArguments(NewModelArguments):
    """Which checkpoint to start from, or which new model to make."""

    small_type: ClassVar = "tfm_encoder_decoder"
    small_fields: ClassVar = {
        "hidden_size": 128,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "intermediate_size": 256,
        "hidden_dropout": 0.0,  # what is generated holds no noise
    }

    tokenizer_vocab_size: int | None = option(
        None,
        "Tokens, or fewer, of a tokenizer made from the training texts, a BPE of both sides; default: as many as the"
        f" configuration named has, or {VOCAB_SIZE}.",
    )


def load_translation_model(
    args: TranslationModelArguments, source_lang: str, target_lang: str
) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """The checkpoint that translates, as a zoo model unless `model_class` is "native"; and its tokenizer.

    A tokenizer of many languages is told which two it is to read, and generation which one it is to write.

    Raises:
        ValueError: for a language that such a tokenizer does not know by this code.
    """
    name = args.model_name_or_path
    config = load_config(args, name)
    _check_has_head(config)
    if args.stays_as_it_is(config):
        model = AutoModelForSeq2SeqLM.from_pretrained(name, **args.for_loading())
    else:
        model = tfm_zoo.from_official(name, tfm_zoo.TfmEncoderDecoderForConditionalGeneration, dtype=WEIGHTS)
    tokenizer = load_tokenizer(args, name)
    if hasattr(tokenizer, "tgt_lang"):
        set_languages(model, tokenizer, source_lang, target_lang)
    check_vocabulary(tokenizer, model.config)
    return model, tokenizer


def set_languages(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, source_lang: str, target_lang: str
) -> None:
    """Tells a tokenizer of many languages which two it reads, by their codes, and the model which one it writes.

    Where the tokenizer puts the code in front of a target, the model is made to begin with it (mBART-50); where it puts
    it at the end, to start from it (mBART).
    """
    for name, language in (("source_lang", source_lang), ("target_lang", target_lang)):
        if language not in tokenizer.all_special_tokens:
            codes = [token for token in tokenizer.all_special_tokens if token.isidentifier() and "_" in token]
            raise ValueError(f"{name} {language!r}: {tokenizer.name_or_path!r} knows {', '.join(codes)}")
    tokenizer.src_lang, tokenizer.tgt_lang = source_lang, target_lang
    code = tokenizer.convert_tokens_to_ids(target_lang)
    ids = tokenizer(text_target="")["input_ids"]
    if ids[0] == code and ids[-1] != code:
        model.generation_config.forced_bos_token_id = code
    elif ids[-1] == code:
        model.config.decoder_start_token_id = model.generation_config.decoder_start_token_id = code


def new_translation_model(
    args: TranslationModelArguments, texts: Iterable[str]
) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """A model with new weights, and the tokenizer asked for, or one made from the texts of both sides.

    A configuration of an official architecture makes a model of the native class, which is then converted, unless
    `model_class` is "native": with the same seed the two start with the same weights.

    Raises:
        ValueError: if the tokenizer lacks a token that padding, or the end of a sentence, needs.
    """
    tokenizer = load_tokenizer(args) if args.tokenizer_name else joint_bpe(texts, tokens_to_learn(args, VOCAB_SIZE))
    for token in ("pad_token", "eos_token"):
        if getattr(tokenizer, token) is None:
            raise ValueError(f"tokenizer {tokenizer.name_or_path!r} has no {token}, which a translation needs")
    start = tokenizer.pad_token_id if tokenizer.bos_token_id is None else tokenizer.bos_token_id
    fields = {
        "vocab_size": len(tokenizer),
        "pad_token_id": tokenizer.pad_token_id,
        "bos_token_id": tokenizer.bos_token_id,
        "eos_token_id": tokenizer.eos_token_id,
        "decoder_start_token_id": start,
    }
    config = new_config(args, fields)
    _check_has_head(config)
    check_vocabulary(tokenizer, config)
    if getattr(config, "forced_eos_token_id", None) is not None:  # of the architecture's own vocabulary
        config.forced_eos_token_id = tokenizer.eos_token_id
    model = AutoModelForSeq2SeqLM.from_config(config, dtype=WEIGHTS, trust_remote_code=args.trust_remote_code)
    if not args.stays_as_it_is(config):
        model = tfm_zoo.from_official(model, tfm_zoo.TfmEncoderDecoderForConditionalGeneration)
    return model, tokenizer


def _check_has_head(config: PreTrainedConfig) -> None:
    check_has_head(
        config, "AutoModelForSeq2SeqLM", MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING, "sequence-to-sequence language model"
    )
