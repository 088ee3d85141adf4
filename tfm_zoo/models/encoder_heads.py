"""The heads that only encoders have: for masked tokens, for replaced tokens, and for choices."""

from collections import OrderedDict
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional as F
from transformers.modeling_outputs import MaskedLMOutput, MultipleChoiceModelOutput, TokenClassifierOutput
from transformers.utils import ModelOutput

from .compat import ACT2FN
from .entrance import find_kept, has_hooks, keep, restore
from .heads import Inputs, TfmHead, check_labels, passed_on, tokens_of
from .inputs import marks_padding
from .losses import IGNORED, labelled_only, logits_loss, vocabulary_loss
from .norms import make_norm


@dataclass
class TfmBertForPreTrainingOutput(ModelOutput):
    """`prediction_logits` `(batch, length, vocab_size)`, `seq_relationship_logits` `(batch, 2)`, and the sum of the
    two losses."""

    loss: torch.Tensor | None = None
    prediction_logits: torch.Tensor | None = None
    seq_relationship_logits: torch.Tensor | None = None
    hidden_states: tuple[torch.Tensor, ...] | None = None
    attentions: tuple[torch.Tensor, ...] | None = None


class TfmPredictionHead(nn.Module):
    """The layers between an encoder and its projection onto the vocabulary (or labels): dense, activation, norm."""

    def __init__(self, config, width: int):
        super().__init__()
        self.dense = nn.Linear(config.hidden_size, width, bias=config.classifier_bias)
        self.act_fn = ACT2FN[config.lm_head_act or config.hidden_act]
        self.norm = make_norm(config, width)

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        """`(..., hidden_size)` to `(..., width)`."""
        return self.norm(self.act_fn(self.dense(hidden_states)))


def classifier_head(config) -> nn.Module:
    """The layers of an encoder before its classifier of tokens."""
    return TfmPredictionHead(config, config.hidden_size) if config.classifier_transform else nn.Identity()


def classifier_dropout(config) -> nn.Dropout:
    return nn.Dropout(config.hidden_dropout if config.classifier_dropout is None else config.classifier_dropout)


class MaskedLanguageModeling(TfmHead):
    """Predicts masked tokens, by `self.head`, a [`TfmPredictionHead`] or an identity, and `self.lm_head`."""

    _tied_weights_keys = {"lm_head.weight": "model.embeddings.embed_tokens.weight"}
    _tp_plan = {"lm_head": "colwise_rep"}

    def prepare(self, inputs: Inputs, labels: torch.LongTensor | None = None, **options) -> Inputs:
        check_labels(labels, tokens_of(inputs).shape[:2], self.lm_head.out_features, "the vocabulary (vocab_size)")
        return self.reading(inputs, None if labels is None else labels != IGNORED)

    def predict(
        self,
        outputs: ModelOutput,
        inputs: Inputs,
        labels: torch.LongTensor | None = None,
        return_logits: bool | None = None,
        num_items_in_batch: int | torch.Tensor | None = None,
    ) -> MaskedLMOutput:
        """
        Args:
            labels: `(batch, length)`, token ids, -100 where there is nothing to predict.
            return_logits: whether to make the `(batch, length, vocab_size)` logits. `None`: unless training on labels.
                Where the head carries hooks, they are made in any case.
            num_items_in_batch: labelled tokens of the whole optimizer step, by which the summed loss is divided.
        """
        hidden_states, loss, logits = outputs.last_hidden_state, None, None
        is_hooked = has_hooks(self.head, self.lm_head)  # hooks see every position
        if return_logits is None:
            return_logits = not self.training
        if labels is None or return_logits or is_hooked:
            logits = self.all_logits(hidden_states, None if is_hooked else inputs["attention_mask"])
        if labels is not None and is_hooked:
            loss = logits_loss(logits, labels, num_items_in_batch)
        elif labels is not None:
            states, targets = labelled_only(hidden_states, labels)
            scored = (self.head(states), self.lm_head, targets, num_items_in_batch)
            loss = vocabulary_loss(*scored, in_chunks=logits is None)
        return MaskedLMOutput(loss=loss, logits=logits, **passed_on(outputs))

    def all_logits(self, hidden_states: torch.Tensor, attention_mask: torch.Tensor | None) -> torch.Tensor:
        """`(batch, length, vocab_size)`, zero at padding that was skipped."""
        kept = find_kept(attention_mask) if self.config.skip_padding else None
        if kept is None:
            return self.lm_head(self.head(hidden_states))
        return restore(self.lm_head(self.head(keep(hidden_states, kept))), kept)


def make_detector(config) -> nn.Sequential:
    """The layers that score each token for having been replaced, `(..., hidden_size)` to `(..., 1)`."""
    dense, score = (nn.Linear(config.hidden_size, width) for width in (config.hidden_size, 1))
    return nn.Sequential(OrderedDict(dense=dense, act_fn=ACT2FN[config.hidden_act], out_proj=score))


class ReplacedTokenDetection(TfmHead):
    """Finds the tokens that a generator has replaced (Clark et al. 2020), by `self.detector`, of [`make_detector`]."""

    accepts_loss_kwargs = False

    def prepare(self, inputs: Inputs, labels: torch.LongTensor | None = None) -> Inputs:
        check_labels(labels, tokens_of(inputs).shape[:2], 2, "the two classes")
        return inputs

    def predict(
        self, outputs: ModelOutput, inputs: Inputs, labels: torch.LongTensor | None = None
    ) -> TokenClassifierOutput:
        """
        Args:
            labels: `(batch, length)`, 1 where the token was replaced, 0 where not; -100 and padding do not count.

        Returns:
            `logits` `(batch, length)`, above 0 where the token looks replaced.
        """
        logits, loss = self.detector(outputs.last_hidden_state).squeeze(-1), None
        if labels is not None:
            scores = logits.float()
            weights = (labels != IGNORED).to(scores)
            if marks_padding(inputs["attention_mask"]):
                weights = weights * inputs["attention_mask"].to(weights)
            targets = labels.to(scores).clamp(min=0)
            loss = F.binary_cross_entropy_with_logits(scores, targets, weights, reduction="sum") / weights.sum()
        return TokenClassifierOutput(loss=loss, logits=logits, **passed_on(outputs))


class MultipleChoice(TfmHead):
    """Scores each choice, by `self.classifier`, from the pooler.

    Inputs have a dimension of choices after the batch's: `(batch, choices, length)`.
    """

    accepts_loss_kwargs = False
    for_predict = ("choices",)

    def prepare(self, inputs: Inputs, labels: torch.LongTensor | None = None) -> Inputs:
        tokens, embeds = tokens_of(inputs), inputs["inputs_embeds"]
        if tokens.dim() != (3 if embeds is None else 4):
            name, width = ("input_ids", "") if embeds is None else ("inputs_embeds", ", embedding_size")
            shape = tuple(tokens.shape)
            raise ValueError(f"{name} of shape {shape} should be of shape (batch, choices, length{width}).")
        check_labels(labels, tokens.shape[:1], tokens.shape[1], "the choices")
        names = ("input_ids", "attention_mask", "token_type_ids", "position_ids", "inputs_embeds")
        passed = {name: inputs[name] for name in names if inputs[name] is not None}
        flat = {name: tensor.flatten(0, 1) for name, tensor in passed.items()}
        return inputs | flat | {"choices": tokens.shape[1]}

    def predict(
        self, outputs: ModelOutput, inputs: Inputs, labels: torch.LongTensor | None = None
    ) -> MultipleChoiceModelOutput:
        """
        Args:
            labels: `(batch,)`, the index of the right choice.

        Returns:
            `logits` `(batch, choices)`.
        """
        logits = self.classifier(self.dropout(outputs.pooler_output)).view(-1, inputs["choices"])
        loss = None if labels is None else F.cross_entropy(logits, labels.view(-1))
        return MultipleChoiceModelOutput(loss=loss, logits=logits, **passed_on(outputs))
