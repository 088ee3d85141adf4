"""A sequence classifier with its tokenizer, from any checkpoint or with new weights."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from transformers import AutoModelForSequenceClassification, PreTrainedConfig

from tfm_zoo.training.arguments import option
from tfm_zoo.training.finetuning import new_config_and_tokenizer, with_padding
from tfm_zoo.training.labels import LabellingArguments, label_fields, load_with_labels
from tfm_zoo.training.models import Head, ModelAndTokenizer, family_of

HEAD = Head(AutoModelForSequenceClassification, "sequence classifier")


@dataclass(frozen=True)
class ClassifierArguments(LabellingArguments):
    """Which model to train as a classifier, and what its head reads."""

    classifier_pooling: Literal["cls", "mean", "attention"] | None = option(
        None,
        "What the head of a zoo encoder reads: 'cls', the first position; 'mean', the mean of all tokens, which is"
        " better after a short pre-training; 'attention', a mean weighted by a learned query; default: as the"
        " configuration has it.",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.classifier_pooling and self.model_class == "native":
            raise ValueError("classifier_pooling is for encoders of the zoo, not for model_class 'native'")
        if self.classifier_pooling and "classifier_pooling" in self.overrides():
            raise ValueError("give classifier_pooling either by itself or in config_overrides, not both")

    def pooling(self, config: PreTrainedConfig) -> dict[str, str]:
        """`classifier_pooling` as a field of the model's configuration; empty if it is not given."""
        if self.classifier_pooling is None:
            return {}
        if (family_of(config) if self.becomes_zoo(config) else config.model_type) != "tfm_bert":
            raise ValueError(f"classifier_pooling is for encoders, and {config.model_type!r} is not one")
        return {"classifier_pooling": self.classifier_pooling}


def build_classifier(
    args: ClassifierArguments, label_names: list[str], texts: Iterable[str] = (), max_length: int | None = None
) -> ModelAndTokenizer:
    """The checkpoint with a head for these labels, and its tokenizer; or a new model for texts of at most `max_length`
    tokens, and the tokenizer named, or one made from the texts."""
    if args.is_new:
        config, tokenizer = new_config_and_tokenizer(HEAD, args, texts, max_length, **label_fields(label_names))
        pooling = args.pooling(config)
        if not args.becomes_zoo(config):
            config.update(pooling)
        model = HEAD.new(args, config, **pooling)
    else:
        config = HEAD.config_of_checkpoint(args)
        model, tokenizer = load_with_labels(HEAD, args, config, label_names, **args.pooling(config))
    tokenizer = with_padding(tokenizer)
    if model.config.pad_token_id is None:  # by which the classifier of a decoder finds a text's last token
        model.config.pad_token_id = tokenizer.pad_token_id
    return model, tokenizer
