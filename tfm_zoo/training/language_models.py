"""A causal language model with its tokenizer, from any checkpoint or from nothing."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

from transformers import (
    MODEL_FOR_CAUSAL_LM_MAPPING,
    AutoModelForCausalLM,
    PreTrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

import tfm_zoo
from tfm_zoo.training.arguments import option
from tfm_zoo.training.models import WEIGHTS, check_vocabulary, load_config, load_tokenizer
from tfm_zoo.training.new_models import NewModelArguments, check_has_head, new_config, tokens_to_learn
from tfm_zoo.training.tokenizers import byte_level_bpe

VOCAB_SIZE = 1024  # of a tokenizer made from the training text


@dataclass
class LanguageModelArguments(NewModelArguments):
    """Which checkpoint to start from, or which new model to make."""

    small_type: ClassVar = "tfm_gpt"
    small_fields: ClassVar = {
        "hidden_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "intermediate_size": 256,
        "max_position_embeddings": 128,
    }

    tokenizer_vocab_size: int | None = option(
        None,
        "Tokens of a tokenizer made from the training text, a byte-level BPE; default: as many as the configuration"
        f" named has, or {VOCAB_SIZE}; 257: bytes.",
    )


def load_language_model(args: LanguageModelArguments) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """The checkpoint with a head that predicts the next token, as a zoo model unless `model_class` is "native"."""
    name = args.model_name_or_path
    config = load_config(args, name)
    if args.stays_as_it_is(config):
        _check_has_head(config)
        model = AutoModelForCausalLM.from_pretrained(name, **args.for_loading())
    else:
        model = tfm_zoo.from_official(name, tfm_zoo.TfmGPTForCausalLM, dtype=WEIGHTS)
    tokenizer = load_tokenizer(args, name)
    check_vocabulary(tokenizer, model.config)
    return model, tokenizer


def new_language_model(
    args: LanguageModelArguments, texts: Iterable[str], block_size: int | None
) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """A model with new weights, and the tokenizer asked for, or one made from the texts.

    Args:
        block_size: positions of a model that learns positions; `None`: as its configuration says.
    """
    tokenizer = new_tokenizer(args, texts)
    return model_of(args, new_language_model_config(args, tokenizer, block_size)), tokenizer


def new_tokenizer(args: LanguageModelArguments, texts: Iterable[str]) -> PreTrainedTokenizerBase:
    """The tokenizer asked for, or one made from the texts."""
    if args.tokenizer_name:
        return load_tokenizer(args)
    return byte_level_bpe(texts, tokens_to_learn(args, VOCAB_SIZE))


def new_language_model_config(
    args: LanguageModelArguments, tokenizer: PreTrainedTokenizerBase, block_size: int | None
) -> PreTrainedConfig:
    """The configuration that the arguments name, for this tokenizer, and blocks of this size."""
    fields = {
        "vocab_size": len(tokenizer),
        "bos_token_id": tokenizer.bos_token_id,
        "eos_token_id": tokenizer.eos_token_id,
        "pad_token_id": tokenizer.pad_token_id,
    }
    if block_size:
        fields["max_position_embeddings"] = block_size
    config = new_config(args, fields)
    _check_has_head(config)
    check_vocabulary(tokenizer, config)
    return config


def model_of(args: LanguageModelArguments, config: PreTrainedConfig) -> PreTrainedModel:
    """A model with new weights.

    A configuration of an official architecture makes a model of the native class, which is then converted, unless
    `model_class` is "native": with the same seed the two start with the same weights.
    """
    model = AutoModelForCausalLM.from_config(config, dtype=WEIGHTS, trust_remote_code=args.trust_remote_code)
    return model if args.stays_as_it_is(config) else tfm_zoo.from_official(model, tfm_zoo.TfmGPTForCausalLM)


def _check_has_head(config: PreTrainedConfig) -> None:
    check_has_head(config, "AutoModelForCausalLM", MODEL_FOR_CAUSAL_LM_MAPPING, "causal language model")
