"""An encoder to pre-train with its tokenizer, from any checkpoint or from nothing."""

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
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

import tfm_zoo
from tfm_zoo.training.arguments import option
from tfm_zoo.training.models import WEIGHTS, check_vocabulary, load_config, load_tokenizer
from tfm_zoo.training.new_models import NewModelArguments, check_has_head, new_config, tokens_to_learn
from tfm_zoo.training.tokenizers import learned_word_piece

VOCAB_SIZE = 8000  # of a tokenizer made from the training documents


@dataclass
class EncoderArguments(NewModelArguments):
    """Which checkpoint to start from, or which new model to make."""

    small_type: ClassVar = "tfm_bert"
    small_fields: ClassVar = {
        "hidden_size": 128,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "intermediate_size": 256,
        "hidden_dropout": 0.0,  # what is generated holds no noise
        "attention_dropout": 0.0,
        "max_position_embeddings": 128,
    }

    tokenizer_vocab_size: int | None = option(
        None,
        "Tokens, or fewer, of a tokenizer made from the training documents, a WordPiece; default: as many as the"
        f" configuration named has, or {VOCAB_SIZE}.",
    )


@dataclass(frozen=True)
class Heads:
    """The heads that pre-training needs: that of masked language modelling, and with `pairs` that of next sentences."""

    pairs: bool

    @property
    def auto_class(self) -> type:
        return AutoModelForPreTraining if self.pairs else AutoModelForMaskedLM

    @property
    def zoo_class(self) -> type[PreTrainedModel]:
        return tfm_zoo.TfmBertForPreTraining if self.pairs else tfm_zoo.TfmBertForMaskedLM

    def check(self, config: PreTrainedConfig) -> None:
        """Refuse a configuration that makes no model with these heads."""
        mapping = MODEL_FOR_PRETRAINING_MAPPING if self.pairs else MODEL_FOR_MASKED_LM_MAPPING
        check_has_head(config, self.auto_class.__name__, mapping, "masked language model")
        known = mapping.get(type(config), None)
        has_head = known is None or "next_sentence_label" in inspect.signature(known.forward).parameters
        if self.pairs and not (has_head and (getattr(config, "type_vocab_size", 2) or 0) >= 2):
            raise ValueError(
                f"model_type {config.model_type!r} has no head, or no segments, for pairs of sentences: pre-train it"
                " with next_sentence_prediction false"
            )


def load_encoder(args: EncoderArguments, heads: Heads) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """The checkpoint with these heads, as a zoo model unless `model_class` is "native"; and its tokenizer."""
    name = args.model_name_or_path
    config = load_config(args, name)
    if args.stays_as_it_is(config):
        heads.check(config)
        model = heads.auto_class.from_pretrained(name, **args.for_loading())
    else:
        model = tfm_zoo.from_official(name, heads.zoo_class, dtype=WEIGHTS)
        heads.check(model.config)
    tokenizer = load_tokenizer(args, name)
    check_vocabulary(tokenizer, model.config)
    return model, tokenizer


def new_encoder(
    args: EncoderArguments, heads: Heads, texts: Callable[[], Sequence[str]], max_length: int
) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """A model with new weights, and the tokenizer asked for, or one made from the texts.

    A configuration of an official architecture makes a model of the native class, which is then converted, unless
    `model_class` is "native": with the same seed the two start with the same weights.

    Args:
        texts: gives the texts to make a tokenizer from, if one is made.
        max_length: positions that a small model has at least.
    """
    if args.tokenizer_name:
        tokenizer = load_tokenizer(args)
    else:
        tokenizer = learned_word_piece(texts(), tokens_to_learn(args, VOCAB_SIZE))
    fields = {"vocab_size": len(tokenizer), "pad_token_id": tokenizer.pad_token_id}
    if not args.is_named:
        fields["max_position_embeddings"] = max(max_length, args.small_fields["max_position_embeddings"])
    config = new_config(args, fields)
    heads.check(config)
    check_vocabulary(tokenizer, config)
    if not args.tokenizer_name:
        tokenizer.model_max_length = config.max_position_embeddings
    model = heads.auto_class.from_config(config, dtype=WEIGHTS, trust_remote_code=args.trust_remote_code)
    if not args.stays_as_it_is(config):
        model = tfm_zoo.from_official(model, heads.zoo_class)
    return model, tokenizer
