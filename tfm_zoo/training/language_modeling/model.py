"""A causal language model with its tokenizer, from any checkpoint or with new weights."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

from transformers import AutoModelForCausalLM, PreTrainedConfig, PreTrainedTokenizerBase

from tfm_zoo.training.models import Head, ModelAndTokenizer, ModelArguments, new_tokenizer, vocabulary_option
from tfm_zoo.training.tokenizers import byte_level_bpe

HEAD = Head(AutoModelForCausalLM, "causal language model")


@dataclass(frozen=True)
class LanguageModelArguments(ModelArguments):
    """Which causal language model to train."""

    small_type: ClassVar = "tfm_gpt"
    small_fields: ClassVar = {**ModelArguments.small_fields, "max_position_embeddings": 128}
    small_vocab_size: ClassVar = 1024
    make_tokenizer: ClassVar = staticmethod(byte_level_bpe)

    tokenizer_vocab_size: int | None = vocabulary_option("a byte-level BPE (257: bytes alone)", small_vocab_size)


def new_language_model(args: LanguageModelArguments, texts: Iterable[str], block_size: int | None) -> ModelAndTokenizer:
    """A model with new weights for blocks of this size; and the tokenizer named, or one made from the texts."""
    tokenizer = new_tokenizer(args, texts)
    return HEAD.new(args, new_language_model_config(args, tokenizer, block_size)), tokenizer


def new_language_model_config(
    args: LanguageModelArguments, tokenizer: PreTrainedTokenizerBase, block_size: int | None
) -> PreTrainedConfig:
    """The configuration that the options name, for this tokenizer and, if a size is given, for such blocks."""
    positions = {"max_position_embeddings": block_size} if block_size else {}
    special = {"bos_token_id": tokenizer.bos_token_id, "eos_token_id": tokenizer.eos_token_id}
    return HEAD.new_config(args, tokenizer, **special, **positions)
