"""The heads for sequences, tokens and answers, as every family has them. They are parts of a [`Head`]."""

import torch
from torch import nn
from transformers.activations import ACT2FN
from transformers.modeling_outputs import QuestionAnsweringModelOutput, SequenceClassifierOutput, TokenClassifierOutput

from .batch import IGNORED, marks_padding
from .inputs import Inputs, check_tensor, check_values, given_in
from .norms import make_norm


class TfmPredictionHead(nn.Module):
    """The layers between a model and its projection onto the vocabulary (or labels): dense, activation, norm."""

    #: of the configuration, which say whether there is one, and what it is
    fields = ("lm_head_transform", "lm_head_act", "classifier_bias")

    def __init__(self, config, width: int):
        super().__init__()
        self.dense = nn.Linear(config.hidden_size, width, bias=config.classifier_bias)
        self.act_fn = ACT2FN[config.lm_head_act]
        self.norm = make_norm(config, width)

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        """`(..., hidden_size)` to `(..., width)`."""
        return self.norm(self.act_fn(self.dense(hidden_states)))


class SequenceClassification:
    """The `forward` of a classifier (or a regressor). A family says which position it reads, and how to `classify`."""

    output_class = SequenceClassifierOutput

    def read_by(self, inputs: Inputs) -> torch.BoolTensor | None:
        """`(batch, length)`, true at the positions that are classified. `None`: they are among the real tokens."""

    def forward(self, inputs: Inputs, labels: torch.Tensor | None = None, **kwargs) -> SequenceClassifierOutput:
        """Gives `logits` `(batch, num_labels)`, and the loss of the labels; inputs as for the base model.

        Args:
            labels: `(batch,)` classes or values, or `(batch, num_labels)`; `config.problem_type` says which, and is set
                from the labels where it is `None`.
        """
        config, read = self.config, self.read_by(inputs)
        self.check_classes(given_in(inputs), labels)
        if config.is_encoder_decoder and labels is not None:
            inputs["use_cache"] = False
        outputs = self.model(**inputs, read_positions=read, return_dict=True, **kwargs)
        logits, loss = self.classify(outputs.last_hidden_state, inputs, read), None
        if labels is not None:
            problem = config.problem_type or ("regression" if config.num_labels == 1 else None)
            if problem in ("regression", "multi_label_classification"):  # values and marks
                labels = labels if labels.is_floating_point() else labels.float()
            loss = self.loss_function(labels=labels, pooled_logits=logits, config=config)
        return self.headed(self.output_class, outputs, loss=loss, logits=logits)

    def check_classes(self, tokens: torch.Tensor, labels: torch.Tensor | None) -> None:
        """Raises a `ValueError` unless `labels` are values, or one class each, of the sequences `(batch, length, ...)`,
        or of several classes whether each applies."""
        check_tensor("labels", labels)
        if labels is None:
            return
        batch, classes, problem = tokens.shape[:1], self.config.num_labels, self.config.problem_type
        if problem == "multi_label_classification":
            self.check_labels(labels, (*batch, classes), inputs="(batch, num_labels)")
            check_values("labels", None if labels.is_floating_point() else labels, 2, f"the two marks of {problem}")
        elif labels.is_floating_point() or problem == "regression" or classes == 1:
            self.check_labels(labels, batch)
        else:
            several = "the inputs (for several classes of each, set problem_type='multi_label_classification')"
            self.check_labels(labels, batch, classes, inputs=several)


class TokenClassification:
    """The `forward` of a classifier on every position. A family says which layers `classify` states."""

    def read_by(self, labels: torch.LongTensor | None) -> torch.BoolTensor | None:
        """The `read_positions` of the base model."""
        return labelled(labels)

    def forward(
        self,
        inputs: Inputs,
        labels: torch.LongTensor | None = None,
        *,
        num_items_in_batch: int | torch.Tensor | None = None,
        **kwargs,
    ) -> TokenClassifierOutput:
        """Gives `logits` `(batch, length, num_labels)`, and the loss of the labels; inputs as for the base model.

        Args:
            labels: `(batch, length)`, classes, -100 where there is no label.
            num_items_in_batch: labelled tokens of the whole optimizer step, by which the summed loss is divided.
        """
        self.check_labels(labels, given_in(inputs).shape[:2], self.config.num_labels)
        outputs = self.model(**inputs, read_positions=self.read_by(labels), return_dict=True, **kwargs)
        logits, loss = self.classify(outputs.last_hidden_state), None
        if labels is not None:
            loss = self.loss_function(logits, labels, config=self.config, num_items_in_batch=num_items_in_batch)
        return self.headed(TokenClassifierOutput, outputs, loss=loss, logits=logits)


class QuestionAnswering:
    """The `forward` of scores for the first and the last token of an answer. A family may `score` states otherwise."""

    reads_padding = True
    output_class = QuestionAnsweringModelOutput

    def forward(
        self,
        inputs: Inputs,
        start_positions: torch.LongTensor | None = None,
        end_positions: torch.LongTensor | None = None,
        **kwargs,
    ) -> QuestionAnsweringModelOutput:
        """Gives `start_logits` and `end_logits` `(batch, length)`, and the loss, a softmax over all positions, padded
        ones too; inputs as for the base model. An encoder with `skip_padding` gives the lowest number at padding, if
        there is no loss.

        Args:
            start_positions: `(batch,)`, the first of the answer; one behind the sequence does not count in the loss.
            end_positions: `(batch,)`, its last.
        """
        given, mask = self.searched(inputs), inputs["attention_mask"]
        for name, each in (("start_positions", start_positions), ("end_positions", end_positions)):
            self.check_labels(each, given.shape[:1], name=name)
        is_whole = self.reads_padding or (start_positions is not None and end_positions is not None)
        read = given.new_ones(given.shape[:2], dtype=torch.bool) if is_whole else None
        outputs = self.model(**inputs, read_positions=read, return_dict=True, **kwargs)
        scores = self.score(outputs.last_hidden_state)
        if read is None and self.config.skip_padding and marks_padding(mask):
            scores = scores.masked_fill(mask.to(scores.device)[..., None] == 0, torch.finfo(scores.dtype).min)
        start_logits, end_logits = (each.squeeze(-1).contiguous() for each in scores.split(1, dim=-1))
        loss = self.loss_function(start_logits, end_logits, start_positions, end_positions)
        return self.headed(self.output_class, outputs, loss=loss, start_logits=start_logits, end_logits=end_logits)

    def score(self, states: torch.Tensor) -> torch.Tensor:
        return self.qa_outputs(states)

    def searched(self, inputs: Inputs) -> torch.Tensor:
        """The ids or the embeddings in which answers are looked for."""
        return given_in(inputs)


def labelled(labels: torch.LongTensor | None) -> torch.BoolTensor | None:
    """`(batch, length)`, true where there is a label; `None` without labels."""
    return None if labels is None else labels != IGNORED
