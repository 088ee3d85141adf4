"""A model to fine-tune on texts: a checkpoint, MiniLM by default, or for built-in data a small new model."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import ClassVar

from transformers import PreTrainedConfig, PreTrainedTokenizerBase
from typing_extensions import Self

from tfm_zoo.training.arguments import option
from tfm_zoo.training.models import Head, ModelArguments, new_tokenizer, vocabulary_option
from tfm_zoo.training.sources import DataArguments
from tfm_zoo.training.tokenizers import word_piece_tokenizer

DEFAULT_MODEL = "sentence-transformers/all-MiniLM-L6-v2"


@dataclass(frozen=True)
class FineTuningArguments(ModelArguments):
    """Which model to fine-tune."""

    default_model: ClassVar = DEFAULT_MODEL
    make_tokenizer: ClassVar = staticmethod(word_piece_tokenizer)

    model_name_or_path: str | None = option(
        None, f"Zoo or official checkpoint; default: {DEFAULT_MODEL}, with built-in data a small new model."
    )
    tokenizer_vocab_size: int | None = vocabulary_option("a WordPiece of their words")

    def resolved(self, data_args: DataArguments) -> Self:
        """These options with the default checkpoint, if they name no model and the data are not the built-in ones."""
        if self.model_name_or_path or self.new_model_options or data_args.is_generated:
            return self
        return replace(self, model_name_or_path=self.default_model)

    @property
    def small_type(self) -> str:
        return "bert" if self.model_class == "native" else "tfm_bert"


def with_padding(tokenizer: PreTrainedTokenizerBase) -> PreTrainedTokenizerBase:
    """The tokenizer, with a padding token. If it has none, as GPT-2's, its end-of-text token becomes it."""
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token
    if tokenizer.pad_token is None:
        raise ValueError(f"tokenizer {tokenizer.name_or_path!r} has no pad_token, which batches need, and no eos_token")
    return tokenizer


def new_config_and_tokenizer(
    head: Head, args: FineTuningArguments, texts: Iterable[str], max_length: int, **fields: object
) -> tuple[PreTrainedConfig, PreTrainedTokenizerBase]:
    """The configuration of a new model for texts of at most `max_length` tokens, with these fields; and the tokenizer
    named, or one made from the texts."""
    tokenizer = new_tokenizer(args, texts)
    if not args.tokenizer_name:
        tokenizer.model_max_length = max_length
    if not args.is_named:
        fields["max_position_embeddings"] = max_length
    return head.new_config(args, tokenizer, **fields), tokenizer
