"""The heads that families share: their `forward`, their labels and losses."""

import inspect
import math
from typing import Any, ClassVar

import torch
from transformers.modeling_outputs import (
    QuestionAnsweringModelOutput,
    SequenceClassifierOutput,
    TokenClassifierOutput,
)
from transformers.utils import ModelOutput

from .compat import TransformersKwargs, Unpack, can_return_tuple
from .inputs import check_values, one_of
from .losses import IGNORED

Inputs = dict[str, Any]  # the arguments of a base model
NOT_PASSED_ON = ("last_hidden_state", "pooler_output", "router_logits")


class TfmHead:
    """Writes the `forward` of a `PreTrainedModel` that has a base model, `self.model`, of `base_class`.

    `forward` calls `prepare`, which checks and may change the inputs, then the base model, then `predict`, which makes
    the output from the base model's outputs and those inputs. Its arguments are those of the base model, with the
    labels of `predict` after the embeddings and the options of `predict` at the end.

    Attributes:
        for_predict: names of inputs that `prepare` adds and the base model does not take.
    """

    base_class: ClassVar[type]
    for_predict: ClassVar[tuple[str, ...]] = ()

    def __init_subclass__(cls, **kwargs):
        super().__init_subclass__(**kwargs)
        if hasattr(cls, "base_class") and hasattr(cls, "predict"):
            cls.forward = forward_around(cls.base_class.forward, cls.predict)

    def prepare(self, inputs: Inputs, **options) -> Inputs:
        """The inputs of the base model. Raises a `ValueError` for labels that do not fit them."""
        return inputs

    def reading(self, inputs: Inputs, positions: torch.BoolTensor | None) -> Inputs:
        """Adds to the inputs the positions `(batch, length)` that the head reads, if the base model takes them."""
        return inputs

    def rule_out_padding(self, logits: torch.Tensor, inputs: Inputs) -> torch.Tensor:
        """Scores `(batch, length, 2)` in which padding that was not computed cannot be an answer."""
        return logits


def forward_around(base_forward, predict):
    """A `forward` with the parameters of both; see [`TfmHead`]."""
    self_parameter, *parameters = inspect.signature(base_forward).parameters.values()
    base = [parameter for parameter in parameters if parameter.name not in ("read_positions", "kwargs")]
    added = list(inspect.signature(predict).parameters.values())[3:]  # after self, outputs and inputs
    # Labels stand behind the embeddings, as in the official classes; other options come last.
    place = max(index for index, parameter in enumerate(base) if parameter.name.endswith("inputs_embeds")) + 1
    labels = [parameter for parameter in added if parameter.name.endswith(("label", "labels", "_positions"))]
    others = [parameter for parameter in added if parameter not in labels]
    ordered = [*base[:place], *labels, *base[place:], *others]
    names = [parameter.name for parameter in base]
    positional, options = [parameter.name for parameter in ordered], {parameter.name for parameter in added}

    def forward(self, *args, **kwargs: Unpack[TransformersKwargs]) -> ModelOutput:
        given = dict(zip(positional, args, strict=False))
        if len(args) > len(positional) or given.keys() & kwargs.keys():
            names_given = f"{len(args)} by place and {', '.join(kwargs)} by name"
            raise TypeError(f"forward takes {', '.join(positional)}, each once; given were {names_given}.")
        kwargs |= given
        chosen = {name: kwargs.pop(name) for name in options & kwargs.keys()}
        inputs = self.prepare(dict.fromkeys(names) | kwargs, **chosen)
        base_inputs = {name: inputs[name] for name in inputs if name not in self.for_predict}
        outputs = self.model(**base_inputs, return_dict=True)
        return self.predict(outputs, inputs, **chosen)

    rest = inspect.Parameter("kwargs", inspect.Parameter.VAR_KEYWORD, annotation=Unpack[TransformersKwargs])
    forward.__signature__ = inspect.Signature([self_parameter, *ordered, rest])
    forward.__doc__ = f"Inputs as for the base model; then:\n\n{predict.__doc__}"
    return can_return_tuple(forward)


class SequenceClassification(TfmHead):
    """A classifier, or a regressor, of whole sequences; `logits` makes `(batch, num_labels)` from the outputs."""

    accepts_loss_kwargs = False
    output_class = SequenceClassifierOutput

    def prepare(self, inputs: Inputs, labels: torch.Tensor | None = None) -> Inputs:
        is_one_each = labels is not None and labels.numel() == labels.shape[:1].numel()
        are_classes = is_one_each and not labels.is_floating_point()
        classes = self.config.num_labels if are_classes and self.config.num_labels > 1 else None
        check_labels(labels, tokens_of(inputs).shape[:1], classes, "the classes (num_labels)")
        return inputs

    def predict(self, outputs: ModelOutput, inputs: Inputs, labels: torch.Tensor | None = None) -> ModelOutput:
        """
        Args:
            labels: `(batch,)` classes or values, or `(batch, num_labels)`; `config.problem_type` says which, and is set
                from the labels where it is `None`.
        """
        logits, loss = self.logits(outputs, inputs), None
        if labels is not None:
            loss = self.loss_function(labels=labels, pooled_logits=logits, config=self.config)
        return self.output_class(loss=loss, logits=logits, **passed_on(outputs))


class TokenClassification(TfmHead):
    """A classifier of every position; `logits` makes `(batch, length, num_labels)` from the outputs."""

    def prepare(self, inputs: Inputs, labels: torch.Tensor | None = None, **options) -> Inputs:
        check_labels(labels, tokens_of(inputs).shape[:2], self.config.num_labels, "the classes (num_labels)")
        return self.reading(inputs, None if labels is None else labels != IGNORED)

    def predict(
        self,
        outputs: ModelOutput,
        inputs: Inputs,
        labels: torch.LongTensor | None = None,
        num_items_in_batch: int | torch.Tensor | None = None,
    ) -> TokenClassifierOutput:
        """
        Args:
            labels: `(batch, length)`, classes, -100 where there is none.
            num_items_in_batch: labelled tokens of the whole optimizer step, by which the summed loss is divided.
        """
        logits, loss = self.logits(outputs, inputs), None
        if labels is not None:
            loss = self.loss_function(logits, labels, config=self.config, num_items_in_batch=num_items_in_batch)
        return TokenClassifierOutput(
            loss=loss, logits=logits, hidden_states=outputs.hidden_states, attentions=outputs.attentions
        )


class QuestionAnswering(TfmHead):
    """Scores for the first and the last token of an answer; `logits` makes `(batch, length, 2)` from the outputs."""

    accepts_loss_kwargs = False
    output_class = QuestionAnsweringModelOutput

    def prepare(
        self,
        inputs: Inputs,
        start_positions: torch.LongTensor | None = None,
        end_positions: torch.LongTensor | None = None,
    ) -> Inputs:
        encoded = inputs.get("encoder_outputs")
        tokens = tokens_of(inputs) if encoded is None else encoded[0]
        check_labels(start_positions, tokens.shape[:1], name="start_positions")
        check_labels(end_positions, tokens.shape[:1], name="end_positions")
        if start_positions is None or end_positions is None:
            return self.reading(inputs, None)
        # The loss is a softmax over all positions, padded ones included.
        return self.reading(inputs, tokens.new_ones(tokens.shape[:2], dtype=torch.bool))

    def predict(
        self,
        outputs: ModelOutput,
        inputs: Inputs,
        start_positions: torch.LongTensor | None = None,
        end_positions: torch.LongTensor | None = None,
    ) -> ModelOutput:
        """
        Args:
            start_positions: `(batch,)`, the first of the answer; one outside the sequence does not count in the loss.
            end_positions: `(batch,)`, its last.

        Returns:
            `start_logits` and `end_logits`, each `(batch, length)`; the lowest number at padding that an encoder did
            not compute.
        """
        logits, has_answers = self.logits(outputs, inputs), start_positions is not None and end_positions is not None
        if not has_answers:
            logits = self.rule_out_padding(logits, inputs)
        start_logits, end_logits = (scores.squeeze(-1).contiguous() for scores in logits.split(1, dim=-1))
        loss = self.loss_function(start_logits, end_logits, start_positions, end_positions) if has_answers else None
        fields = self.output_class.__dataclass_fields__
        rest = {name: value for name, value in passed_on(outputs).items() if name in fields}
        return self.output_class(loss=loss, start_logits=start_logits, end_logits=end_logits, **rest)


def tokens_of(inputs: Inputs) -> torch.Tensor:
    """The ids or the embeddings in the inputs of a base model."""
    return one_of(inputs["input_ids"], inputs["inputs_embeds"])


def passed_on(outputs: ModelOutput) -> Inputs:
    """The outputs of a base model that a head returns as they are."""
    return {name: value for name, value in outputs.items() if name not in NOT_PASSED_ON}


def check_labels(
    labels: torch.Tensor | None,
    shape: tuple[int, ...],
    classes: int | None = None,
    table: str = "",
    name: str = "labels",
    inputs: str = "the inputs",
) -> None:
    """Raises a `ValueError` unless labels are of `shape`, each -100 or less than `classes`. With `classes=None` they
    may have any value, and more dimensions.

    `table`, `name` and `inputs` name the classes, the labels and what has that `shape` in the message.
    """
    if labels is None:
        return
    is_one_each = classes is None or labels.numel() == math.prod(shape)
    if labels.shape[: len(shape)] != shape or not is_one_each:
        raise ValueError(f"{name} of shape {tuple(labels.shape)} should be of shape {tuple(shape)}, as {inputs}.")
    if classes is not None:
        check_values(name, labels, classes, table, ignored=IGNORED)
