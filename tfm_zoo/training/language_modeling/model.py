"""A causal language model with its tokenizer, from any checkpoint or with new weights."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

from transformers import MODEL_FOR_CAUSAL_LM_MAPPING, AutoModelForCausalLM, PreTrainedConfig, PreTrainedTokenizerBase

import tfm_zoo
from tfm_zoo.training.initial_models import (
    ModelAndTokenizer,
    initial_config,
    load_initial_model,
    tokens_to_learn,
    vocabulary_option,
)
from tfm_zoo.training.models import Head, ModelArguments, load_tokenizer
from tfm_zoo.training.tokenizers import byte_level_bpe

VOCAB_SIZE = 1024  # of a tokenizer made from the training text
HEAD = Head(AutoModelForCausalLM, MODEL_FOR_CAUSAL_LM_MAPPING, tfm_zoo.TfmGPTForCausalLM, "causal language model")


@dataclass(frozen=True)
class LanguageModelArguments(ModelArguments):
    """Which checkpoint to start from, or which new model to make."""

    small_type: ClassVar = "tfm_gpt"
    small_fields: ClassVar = {
        "hidden_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "intermediate_size": 256,
        "max_position_embeddings": 128,
    }

    tokenizer_vocab_size: int | None = vocabulary_option("a byte-level BPE (257: each byte is a token)", VOCAB_SIZE)


def load_language_model(args: LanguageModelArguments) -> ModelAndTokenizer:
    """The checkpoint with a head that predicts the next token, and its tokenizer."""
    return load_initial_model(args, HEAD)


def new_language_model(args: LanguageModelArguments, texts: Iterable[str], block_size: int | None) -> ModelAndTokenizer:
    """A model with new weights for blocks of this size; and the tokenizer named, or one made from the texts."""
    tokenizer = new_tokenizer(args, texts)
    return HEAD.new(args, new_language_model_config(args, tokenizer, block_size)), tokenizer


def new_tokenizer(args: LanguageModelArguments, texts: Iterable[str]) -> PreTrainedTokenizerBase:
    """The tokenizer named, or one made from the texts."""
    if args.tokenizer_name:
        return load_tokenizer(args)
    return byte_level_bpe(texts, tokens_to_learn(args, VOCAB_SIZE))


def new_language_model_config(
    args: LanguageModelArguments, tokenizer: PreTrainedTokenizerBase, block_size: int | None
) -> PreTrainedConfig:
    """The configuration that the options name, for this tokenizer and, if a size is given, for such blocks."""
    positions = {"max_position_embeddings": block_size} if block_size else {}
    special = {"bos_token_id": tokenizer.bos_token_id, "eos_token_id": tokenizer.eos_token_id}
    return initial_config(args, HEAD, tokenizer, **special, **positions)
