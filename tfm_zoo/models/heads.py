"""Heads: how they take the arguments of their base model; and those for sequences, tokens and answers."""

from collections.abc import Callable
from functools import wraps
from inspect import Signature, signature
from typing import Any

import torch
from torch import nn
from transformers.activations import ACT2FN
from transformers.modeling_outputs import QuestionAnsweringModelOutput, SequenceClassifierOutput, TokenClassifierOutput
from transformers.utils import ModelOutput, can_return_tuple

from .batch import is_pad_mask, labelled
from .inputs import check_labels, check_tensor, check_values, given_in
from .layers import make_norm

Inputs = dict[str, Any]  # the arguments of a base model by name, `None` where a caller gives nothing


class WithHead:
    """A model made of a base model, `model`, and a subclass's head. Callers pass the base model's arguments, labels and
    options. The `forward(self, inputs, labels, *, options, **kwargs)` of a subclass is wrapped here: it gets the base
    model's arguments in one dict, `inputs`. (The `*` marks options. Callers may pass them by place, too.)"""

    model_class: type[nn.Module]
    model_options: dict[str, bool] = {}

    def __init_subclass__(cls, **kwargs):
        super().__init_subclass__(**kwargs)
        if "inputs" in signature(cls.forward).parameters:  # a `forward` not wrapped yet
            cls.forward = takes_inputs_of(cls.model_class, cls.forward)

    def __init__(self, config):
        super().__init__(config)
        self.num_labels = config.num_labels
        self.model = self.model_class(config, **self.model_options)

    @staticmethod
    def headed(output_class: type[ModelOutput], outputs: ModelOutput, **own: object) -> ModelOutput:
        """A head's outputs: its `own`, and those of its base model for which the class has a field."""
        fields = output_class.__dataclass_fields__.keys() - own.keys()
        return output_class(**own, **{name: value for name, value in outputs.items() if name in fields})


def takes_inputs_of(base_model: type, forward: Callable) -> Callable:
    """Wraps a head's `forward`: it is called with the arguments of its base model, which it gets as `inputs`."""
    shown, names = shown_signature(base_model, forward)
    by_place = [*shown.parameters][1:-1]

    @wraps(forward)
    def called(self, *args, **kwargs):
        given = dict(zip(by_place, args, strict=False))
        if len(args) > len(by_place) or given.keys() & kwargs.keys():
            shown.bind(self, *args, **kwargs)  # it says which, in a TypeError
        kwargs |= given
        inputs = {name: kwargs.pop(name, None) for name in names}
        return forward(self, inputs, **kwargs)

    called.__signature__ = shown
    return can_return_tuple(called)  # (it takes a caller's `return_dict` out of `kwargs`: heads pass their own)


def shown_signature(base_model: type, forward: Callable) -> tuple[Signature, list[str]]:
    """The signature that callers of a head see, and the names in it that are its base model's. As in official classes,
    labels follow `inputs_embeds`, and options come last. Left out are `read_positions`, which a head passes itself, and
    `batch`, which [`TfmEncoderDecoderModel`] passes to its stacks."""
    self_parameter, *base, kwargs = signature(base_model.forward).parameters.values()
    base = [each for each in base if each.name not in ("read_positions", "batch")]
    names = [each.name for each in base]
    place = max((index for index, name in enumerate(names, start=1) if name.endswith("inputs_embeds")), default=0)
    own = [*signature(forward).parameters.values()][2:-1]
    labels = [each for each in own if each.kind == each.POSITIONAL_OR_KEYWORD]
    options = [each.replace(kind=each.POSITIONAL_OR_KEYWORD) for each in own if each.kind == each.KEYWORD_ONLY]
    parameters = [self_parameter, *base[:place], *labels, *base[place:], *options, kwargs]
    return signature(forward).replace(parameters=parameters), names


class TfmPredictionHead(nn.Module):
    """The layers between a model and its projection onto the vocabulary (or labels): dense, activation, norm."""

    #: of the configuration, which say whether there is one, and what it is
    fields = ("lm_head_transform", "lm_head_act", "classifier_bias")

    def __init__(self, config, width: int):
        super().__init__()
        self.dense = nn.Linear(config.hidden_size, width, bias=config.classifier_bias)  # (whatever the head is)
        self.act_fn = ACT2FN[config.lm_head_act]
        self.norm = make_norm(config, width)

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        """`(..., hidden_size)` to `(..., width)`."""
        return self.norm(self.act_fn(self.dense(hidden_states)))


class SequenceClassification:
    """The `forward` of a classifier (or a regressor). A family gives `candidates`, and says how to `classify`."""

    output_class = SequenceClassifierOutput

    def candidates(self, inputs: Inputs) -> torch.BoolTensor | None:
        """`(batch, length)`: the last true position of a row is classified. `None`: `classify` gets all states."""

    def forward(self, inputs: Inputs, labels: torch.Tensor | None = None, **kwargs) -> SequenceClassifierOutput:
        """Gives `logits` `(batch, num_labels)`, and the loss of the labels: `(batch,)` classes or values, or
        `(batch, num_labels)`, as `config.problem_type` says, which is set from them if it is `None`. Inputs as for the
        base model."""
        config, candidates = self.config, self.candidates(inputs)
        read = None if candidates is None else only_last(candidates)
        if labels is not None:
            self.check_classes(given_in(inputs), labels)
            inputs |= {"use_cache": False} if config.is_encoder_decoder else {}
        outputs = self.model(**inputs, read_positions=read, return_dict=True, **kwargs)
        states, loss = outputs.last_hidden_state, None
        logits = self.classify(states if read is None else read_states(states, read), inputs)
        if labels is not None:
            problem = config.problem_type or ("regression" if config.num_labels == 1 else None)
            if problem in ("regression", "multi_label_classification"):  # values and marks
                labels = labels if labels.is_floating_point() else labels.float()
            loss = self.loss_function(labels=labels, pooled_logits=logits, config=config)
        return self.headed(self.output_class, outputs, loss=loss, logits=logits)

    def check_classes(self, given: torch.Tensor, labels: torch.Tensor) -> None:
        """Raises a `ValueError` unless `labels` are values or one class for each sequence, or a mark for each class."""
        check_tensor("labels", labels)
        batch, classes, is_float = given.shape[:1], self.config.num_labels, labels.is_floating_point()
        problem = self.config.problem_type or ("multi_label_classification" if is_float and classes > 1 else None)
        if problem == "multi_label_classification":
            others = "one class of each is an integer (labels.long()), and values need problem_type='regression'"
            check_labels(labels, (*batch, classes), inputs=f"(batch, num_labels) for marks of classes: {others}")
            check_values("labels", None if is_float else labels, 2, f"the two marks of {problem}")
        elif is_float or problem == "regression" or classes == 1:
            check_labels(labels, batch)
        else:
            several = "the inputs (for several classes of each, set problem_type='multi_label_classification')"
            check_labels(labels, batch, classes, inputs=several)


class TokenClassification:
    """A classifier on every position."""

    projection = "classifier"  # the name of its last layer
    reads_behind_labels = False  # in evaluation: whether logits behind the last label are wanted, too
    head_fields = ("classifier_transform", "classifier_dropout")

    def __init__(self, config):
        super().__init__(config)
        self.head = TfmPredictionHead(config, config.hidden_size) if config.classifier_transform else nn.Identity()
        self.dropout = nn.Dropout(config.classifier_dropout)
        self.add_module(self.projection, nn.Linear(config.output_size, config.num_labels))
        self.post_init()

    def forward(
        self,
        inputs: Inputs,
        labels: torch.LongTensor | None = None,
        *,
        num_items_in_batch: int | torch.Tensor | None = None,
        **kwargs,
    ) -> TokenClassifierOutput:
        """Gives `logits` `(batch, length, num_labels)`, and the loss of labels `(batch, length)`, -100 where there is
        nothing to predict; inputs as for the base model. `num_items_in_batch`: labelled tokens of the whole optimizer
        step, which divide the summed loss."""
        check_labels(labels, given_in(inputs).shape[:2], self.config.num_labels)
        read = None if self.reads_behind_labels and not self.training else labelled(labels)
        outputs = self.model(**inputs, read_positions=read, return_dict=True, **kwargs)
        states, loss = self.dropout(self.head(outputs.last_hidden_state)), None
        logits = getattr(self, self.projection)(states)
        if labels is not None:
            loss = self.loss_function(logits, labels, config=self.config, num_items_in_batch=num_items_in_batch)
        return self.headed(TokenClassifierOutput, outputs, loss=loss, logits=logits)


class QuestionAnswering:
    """Scores for the first and the last token of an answer."""

    reads_padding = True
    output_class = QuestionAnsweringModelOutput
    head_fields = ("classifier_transform", "qa_dropout")

    def __init__(self, config):
        super().__init__(config)
        self.head = TfmPredictionHead(config, config.hidden_size) if config.classifier_transform else nn.Identity()
        self.dropout = nn.Dropout(config.qa_dropout)
        self.qa_outputs = nn.Linear(config.output_size, 2)
        self.post_init()

    def forward(
        self,
        inputs: Inputs,
        start_positions: torch.LongTensor | None = None,
        end_positions: torch.LongTensor | None = None,
        **kwargs,
    ) -> QuestionAnsweringModelOutput:
        """Gives `start_logits` and `end_logits` `(batch, length)`, and the loss of the answer's first and last position
        `(batch,)`, a softmax over all, padded ones too. (One behind the sequence does not count.) Inputs as for the
        base model. Without a loss, an encoder with `skip_padding` gives the lowest number at padding."""
        given, mask = self.searched(inputs), inputs["attention_mask"]
        for name, each in (("start_positions", start_positions), ("end_positions", end_positions)):
            check_labels(each, given.shape[:1], name=name)
        is_whole = self.reads_padding or (start_positions is not None and end_positions is not None)
        read = given.new_ones(given.shape[:2], dtype=torch.bool) if is_whole else None
        outputs = self.model(**inputs, read_positions=read, return_dict=True, **kwargs)
        scores = self.qa_outputs(self.dropout(self.head(outputs.last_hidden_state)))
        if read is None and self.config.skip_padding and is_pad_mask(mask):
            scores = scores.masked_fill(mask.to(scores.device)[..., None] == 0, torch.finfo(scores.dtype).min)
        start_logits, end_logits = (each.squeeze(-1).contiguous() for each in scores.split(1, dim=-1))
        loss = self.loss_function(start_logits, end_logits, start_positions, end_positions)
        return self.headed(self.output_class, outputs, loss=loss, start_logits=start_logits, end_logits=end_logits)

    def searched(self, inputs: Inputs) -> torch.Tensor:
        """The ids or the embeddings in which answers are looked for."""
        return given_in(inputs)


def read_states(hidden_states: torch.Tensor, read: torch.BoolTensor) -> torch.Tensor:
    """`(batch, hidden_size)`, the state of each row that is `read`: `(batch, length)`, true at one position of it."""
    index = read.to(hidden_states.device).int().argmax(dim=1)
    return hidden_states[torch.arange(index.shape[0], device=index.device), index]  # `len` would fix it in a graph


def only_last(marks: torch.BoolTensor) -> torch.BoolTensor:
    """`(batch, length)`: true at the last true one of each row alone; at its first position without one."""
    places = torch.arange(marks.shape[1], device=marks.device)
    return places == (marks * places).argmax(dim=1, keepdim=True)
