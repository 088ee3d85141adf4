"""An encoder to pre-train with its tokenizer, from any checkpoint or with new weights."""

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar

from transformers import (
    MODEL_FOR_MASKED_LM_MAPPING,
    MODEL_FOR_PRETRAINING_MAPPING,
    AutoModelForMaskedLM,
    AutoModelForPreTraining,
    PreTrainedConfig,
)

import tfm_zoo
from tfm_zoo.training.initial_models import (
    ModelAndTokenizer,
    initial_config,
    load_initial_model,
    tokens_to_learn,
    vocabulary_option,
)
from tfm_zoo.training.models import Head, ModelArguments, load_tokenizer
from tfm_zoo.training.tokenizers import learned_word_piece

VOCAB_SIZE = 8000  # of a tokenizer made from the training documents
TITLE = "masked language model"
MASKED = Head(AutoModelForMaskedLM, MODEL_FOR_MASKED_LM_MAPPING, tfm_zoo.TfmBertForMaskedLM, TITLE)
#: predicts masked tokens and next sentences
PAIRS = Head(AutoModelForPreTraining, MODEL_FOR_PRETRAINING_MAPPING, tfm_zoo.TfmBertForPreTraining, TITLE)


@dataclass(frozen=True)
class EncoderArguments(ModelArguments):
    """Which checkpoint to start from, or which new model to make."""

    small_type: ClassVar = "tfm_bert"
    small_fields: ClassVar = {
        "hidden_size": 128,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "intermediate_size": 256,
        "hidden_dropout": 0.0,  # the generated data have no noise
        "attention_dropout": 0.0,
        "max_position_embeddings": 128,
    }

    tokenizer_vocab_size: int | None = vocabulary_option("a WordPiece", VOCAB_SIZE)


def load_encoder(args: EncoderArguments, head: Head) -> ModelAndTokenizer:
    """The checkpoint with this head, `MASKED` or `PAIRS`, and its tokenizer."""
    model, tokenizer = load_initial_model(args, head)
    check_pairs(head, model.config)
    return model, tokenizer


def new_encoder(
    args: EncoderArguments, head: Head, texts: Callable[[], Sequence[str]], max_length: int
) -> ModelAndTokenizer:
    """A model with new weights and this head, `MASKED` or `PAIRS`; and the tokenizer named, or one made from texts.

    Args:
        texts: gives the texts for a tokenizer; called only if one is made.
        max_length: positions that the small model has at least.
    """
    if args.tokenizer_name:
        tokenizer = load_tokenizer(args)
    else:
        tokenizer = learned_word_piece(texts(), tokens_to_learn(args, VOCAB_SIZE))
    fields = {}
    if not args.is_named:
        fields["max_position_embeddings"] = max(max_length, args.small_fields["max_position_embeddings"])
    config = initial_config(args, head, tokenizer, **fields)
    check_pairs(head, config)
    if not args.tokenizer_name:
        tokenizer.model_max_length = config.max_position_embeddings
    return head.new(args, config), tokenizer


def check_pairs(head: Head, config: PreTrainedConfig) -> None:
    """Refuse a configuration whose model cannot learn from pairs of sentences, if the head is `PAIRS`."""
    if head is not PAIRS:
        return
    model_class = head.mapping.get(type(config), None)
    has_head = model_class is None or "next_sentence_label" in inspect.signature(model_class.forward).parameters
    if not has_head or (getattr(config, "type_vocab_size", 2) or 0) < 2:
        raise ValueError(
            f"model_type {config.model_type!r} has no head, or no segments, for pairs of sentences: pre-train it with"
            " next_sentence_prediction false"
        )
