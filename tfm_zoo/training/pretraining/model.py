"""An encoder to pre-train with its tokenizer, from any checkpoint or with new weights."""

import inspect
from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

from transformers import AutoModelForMaskedLM, AutoModelForPreTraining, PreTrainedConfig

from tfm_zoo.training.models import Head, ModelAndTokenizer, ModelArguments, new_tokenizer, vocabulary_option
from tfm_zoo.training.tokenizers import learned_word_piece


class PairsHead(Head):
    """The head that predicts next sentences besides masked tokens."""

    def check(self, config: PreTrainedConfig) -> None:
        """Refuse also a configuration whose model cannot learn from pairs of sentences."""
        super().check(config)
        model_class = self.official_class(config)
        has_head = model_class is None or "next_sentence_label" in inspect.signature(model_class.forward).parameters
        if not has_head or (getattr(config, "type_vocab_size", 2) or 0) < 2:
            raise ValueError(
                f"model_type {config.model_type!r} has no head, or no segments, for pairs of sentences: pre-train it"
                " with next_sentence_prediction false"
            )


MASKED = Head(AutoModelForMaskedLM, "masked language model")
PAIRS = PairsHead(AutoModelForPreTraining, "masked language model")


@dataclass(frozen=True)
class EncoderArguments(ModelArguments):
    """Which encoder to pre-train."""

    small_type: ClassVar = "tfm_bert"
    small_fields: ClassVar = {
        **ModelArguments.small_fields,
        **{"hidden_size": 128, "num_attention_heads": 4, "max_position_embeddings": 128},
        **{"hidden_dropout": 0.0, "attention_dropout": 0.0},  # the generated data have no noise
    }
    make_tokenizer: ClassVar = staticmethod(learned_word_piece)

    tokenizer_vocab_size: int | None = vocabulary_option("a WordPiece")


def new_encoder(args: EncoderArguments, head: Head, texts: Iterable[str], max_length: int) -> ModelAndTokenizer:
    """A model with new weights and a head, `MASKED` or `PAIRS`; and the tokenizer named, or one made from the texts."""
    tokenizer = new_tokenizer(args, texts)
    fields = {}
    if not args.is_named:  # the small model
        fields["max_position_embeddings"] = max(max_length, args.small_fields["max_position_embeddings"])
    config = head.new_config(args, tokenizer, **fields)
    if not args.tokenizer_name:
        tokenizer.model_max_length = config.max_position_embeddings
    return head.new(args, config), tokenizer
