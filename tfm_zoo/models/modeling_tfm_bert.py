"""The encoder family: BERT's wiring and heads (Devlin et al. 2018) around the shared block."""

from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional as F
from transformers.modeling_outputs import (
    BaseModelOutputWithPooling,
    MaskedLMOutput,
    MultipleChoiceModelOutput,
    NextSentencePredictorOutput,
    QuestionAnsweringModelOutput,
    SequenceClassifierOutput,
    TokenClassifierOutput,
)
from transformers.utils import ModelOutput

from .compat import ACT2FN, TransformersKwargs, Unpack, can_return_tuple
from .configuration_tfm_bert import TfmBertConfig
from .encoder import TfmEncoder
from .inputs import IGNORED, check_label_ids, check_labels, one_of
from .losses import labelled_only, vocabulary_loss
from .norms import make_norm
from .pretrained import TfmPreTrainedModel
from .unpadding import find_padding, marks_padding


class TfmBertPreTrainedModel(TfmPreTrainedModel):
    """Base of the family's models."""

    config_class = TfmBertConfig


def labelled_positions(
    labels: torch.LongTensor | None, inputs: torch.Tensor, classes: int, of: str
) -> torch.BoolTensor | None:
    """Where a head whose `labels` are a class for each position reads hidden states."""
    check_labels(labels, inputs.shape[:2], classes, of)
    return None if labels is None else labels != IGNORED


class TfmBertPooler(nn.Module):
    """One vector a sequence: that of the first position or the mean of the real tokens, through a dense layer."""

    def __init__(self, config: TfmBertConfig):
        super().__init__()
        self.pooling = config.classifier_pooling
        self.dropout = nn.Dropout(config.pooler_dropout)
        self.dense = nn.Linear(config.hidden_size, config.hidden_size)
        self.act_fn = ACT2FN[config.pooler_act]

    def forward(self, hidden_states: torch.Tensor, attention_mask: torch.Tensor | None) -> torch.Tensor:
        """`(batch, length, hidden_size)` to `(batch, hidden_size)`."""
        if self.pooling == "cls":
            pooled = hidden_states[:, 0]
        elif attention_mask is None:
            pooled = hidden_states.mean(dim=1)
        else:
            real = attention_mask.to(hidden_states).unsqueeze(-1)
            pooled = (hidden_states * real).sum(dim=1) / real.sum(dim=1).clamp(min=1)
        return self.act_fn(self.dense(self.dropout(pooled)))


class TfmBertModel(TfmEncoder, TfmBertPreTrainedModel):
    """The encoder and a pooler.

    Args:
        config: the family's configuration.
        add_pooling_layer: whether there is a pooler. `None`: `config.add_pooling_layer`.
    """

    def __init__(self, config: TfmBertConfig, add_pooling_layer: bool | None = None):
        super().__init__(config)
        self.add_stack(is_causal=False)
        add_pooling_layer = config.add_pooling_layer if add_pooling_layer is None else add_pooling_layer
        self.pooler = TfmBertPooler(config) if add_pooling_layer else None
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        input_ids: torch.LongTensor | None = None,
        attention_mask: torch.Tensor | None = None,
        token_type_ids: torch.LongTensor | None = None,
        position_ids: torch.LongTensor | None = None,
        inputs_embeds: torch.Tensor | None = None,
        read_positions: torch.Tensor | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> BaseModelOutputWithPooling:
        """
        Args:
            input_ids: `(batch, length)`; or else `inputs_embeds`.
            attention_mask: `(batch, length)`, 1 at real tokens and 0 at padding, or `(batch, 1, length, length)`.
            token_type_ids: `(batch, length)`, each token's segment. `None`: the first.
            position_ids: `(batch or 1, length)`. `None`: counted from the left, padding included (BERT), or over
                real tokens (`config.position_ids_from_padding`).
            inputs_embeds: `(batch, length, hidden_size)`, in place of `input_ids`.
            read_positions: `(batch, length)`, true where the caller reads the last hidden state. Where it reads one
                of a padded position, padding is computed. `None`: it reads none of those.
            kwargs: `output_hidden_states`, `output_attentions`, `return_dict`.

        Returns:
            `last_hidden_state` `(batch, length, hidden_size)`, zero at padding where `config.skip_padding` took
            effect; `pooler_output` `(batch, hidden_size)`; `hidden_states` and `attentions` where asked for.

        Raises:
            ValueError: for inputs that do not fit each other, or the model; the message names the value.
        """
        inputs = (input_ids, attention_mask, token_type_ids, position_ids, inputs_embeds)
        pools_first = self.pooler is not None and self.config.classifier_pooling == "cls"
        pools_mean = self.pooler is not None and not pools_first
        if pools_mean and attention_mask is not None and not marks_padding(attention_mask):
            raise ValueError(
                f"attention_mask of shape {tuple(attention_mask.shape)} does not say which tokens are real, which "
                "classifier_pooling='mean' needs to know: it should be of shape (batch, length)."
            )
        outputs = self.encode(*inputs, read_positions=read_positions, reads_first=pools_first, **kwargs)
        pooled = None if self.pooler is None else self.pooler(outputs.last_hidden_state, attention_mask)
        return BaseModelOutputWithPooling(pooler_output=pooled, **outputs)


class TfmBertPredictionHead(nn.Module):
    """What stands between the encoder and the vocabulary: dense, activation, norm."""

    def __init__(self, config: TfmBertConfig):
        super().__init__()
        self.dense = nn.Linear(config.hidden_size, config.hidden_size)
        self.act_fn = ACT2FN[config.lm_head_act or config.hidden_act]
        self.norm = make_norm(config)

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        """`(..., hidden_size)` in and out."""
        return self.norm(self.act_fn(self.dense(hidden_states)))


class TfmBertLMPreTrainedModel(TfmBertPreTrainedModel):
    """What the two models with a masked-language-modelling head share: the head, and when to make its logits."""

    _tied_weights_keys = {"lm_head.weight": "model.embeddings.embed_tokens.weight"}
    _tp_plan = {"lm_head": "colwise_gather_output"}

    def add_lm_head(self) -> None:
        self.head = TfmBertPredictionHead(self.config)
        self.lm_head = nn.Linear(self.config.hidden_size, self.config.vocab_size)

    def predict(
        self,
        hidden_states: torch.Tensor,
        labels: torch.LongTensor | None,
        return_logits: bool | None,
        num_items_in_batch: int | torch.Tensor | None,
        attention_mask: torch.Tensor | None,
    ) -> tuple[torch.Tensor | None, torch.Tensor | None]:
        """Loss over the labelled positions, and the logits of all, each `None` where nobody asks for it."""
        if labels is None:
            return None, self.all_logits(hidden_states, attention_mask)
        states, targets = labelled_only(hidden_states, labels)
        loss = vocabulary_loss(self.head(states), self.lm_head, targets, num_items_in_batch)
        return_logits = not self.training if return_logits is None else return_logits
        return loss, self.all_logits(hidden_states, attention_mask) if return_logits else None

    def all_logits(self, hidden_states: torch.Tensor, attention_mask: torch.Tensor | None) -> torch.Tensor:
        """`(batch, length, vocab_size)`, zero at padding that need not be computed."""
        padding = find_padding(attention_mask) if self.config.skip_padding else None
        if padding is None:
            return self.lm_head(self.head(hidden_states))
        return padding.restore(self.lm_head(self.head(padding.drop(hidden_states))))


@dataclass
class TfmBertForPreTrainingOutput(ModelOutput):
    """Outputs of [`TfmBertForPreTraining`].

    Args:
        loss: scalar, the sum of the losses whose labels were given.
        prediction_logits: `(batch, length, vocab_size)`.
        seq_relationship_logits: `(batch, 2)`.
    """

    loss: torch.Tensor | None = None
    prediction_logits: torch.Tensor | None = None
    seq_relationship_logits: torch.Tensor | None = None
    hidden_states: tuple[torch.Tensor, ...] | None = None
    attentions: tuple[torch.Tensor, ...] | None = None


class TfmBertForPreTraining(TfmBertLMPreTrainedModel):
    """The encoder with BERT's two pre-training heads: masked language modelling and next-sentence prediction."""

    accepts_loss_kwargs = False

    def __init__(self, config: TfmBertConfig):
        super().__init__(config)
        self.model = TfmBertModel(config, add_pooling_layer=True)
        self.add_lm_head()
        self.seq_relationship = nn.Linear(config.hidden_size, 2)
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        input_ids: torch.LongTensor | None = None,
        attention_mask: torch.Tensor | None = None,
        token_type_ids: torch.LongTensor | None = None,
        position_ids: torch.LongTensor | None = None,
        inputs_embeds: torch.Tensor | None = None,
        labels: torch.LongTensor | None = None,
        next_sentence_label: torch.LongTensor | None = None,
        return_logits: bool | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> TfmBertForPreTrainingOutput:
        """Inputs as for [`TfmBertModel`], and:

        Args:
            labels: `(batch, length)`, token ids, -100 where there is nothing to predict.
            next_sentence_label: `(batch,)`, 0 where the second segment continues the first, 1 where it does not.
            return_logits: whether to make the `(batch, length, vocab_size)` logits. `None`: unless training on labels.
        """
        inputs = one_of(input_ids, inputs_embeds)
        read_positions = labelled_positions(labels, inputs, self.lm_head.out_features, "the vocabulary (vocab_size)")
        check_labels(next_sentence_label, inputs.shape[:1], 2, "the two classes", name="next_sentence_label")
        outputs = self.model(
            input_ids,
            attention_mask,
            token_type_ids,
            position_ids,
            inputs_embeds,
            read_positions=read_positions,
            **kwargs | {"return_dict": True},
        )
        loss, logits = self.predict(outputs.last_hidden_state, labels, return_logits, None, attention_mask)
        sentence_logits = self.seq_relationship(outputs.pooler_output)
        if next_sentence_label is not None:
            sentence_loss = F.cross_entropy(sentence_logits, next_sentence_label.view(-1))
            loss = sentence_loss if loss is None else loss + sentence_loss
        return TfmBertForPreTrainingOutput(
            loss=loss,
            prediction_logits=logits,
            seq_relationship_logits=sentence_logits,
            hidden_states=outputs.hidden_states,
            attentions=outputs.attentions,
        )


class TfmBertForMaskedLM(TfmBertLMPreTrainedModel):
    """The encoder with a masked-language-modelling head."""

    def __init__(self, config: TfmBertConfig):
        super().__init__(config)
        self.model = TfmBertModel(config, add_pooling_layer=False)
        self.add_lm_head()
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        input_ids: torch.LongTensor | None = None,
        attention_mask: torch.Tensor | None = None,
        token_type_ids: torch.LongTensor | None = None,
        position_ids: torch.LongTensor | None = None,
        inputs_embeds: torch.Tensor | None = None,
        labels: torch.LongTensor | None = None,
        return_logits: bool | None = None,
        num_items_in_batch: int | torch.Tensor | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> MaskedLMOutput:
        """Inputs as for [`TfmBertModel`], and:

        Args:
            labels: `(batch, length)`, token ids, -100 where there is nothing to predict.
            return_logits: whether to make the `(batch, length, vocab_size)` logits. `None`: unless training on labels.
            num_items_in_batch: labelled tokens of the whole optimizer step, which the summed loss is divided by.
        """
        inputs = one_of(input_ids, inputs_embeds)
        read_positions = labelled_positions(labels, inputs, self.lm_head.out_features, "the vocabulary (vocab_size)")
        outputs = self.model(
            input_ids,
            attention_mask,
            token_type_ids,
            position_ids,
            inputs_embeds,
            read_positions=read_positions,
            **kwargs | {"return_dict": True},
        )
        loss, logits = self.predict(
            outputs.last_hidden_state, labels, return_logits, num_items_in_batch, attention_mask
        )
        return MaskedLMOutput(
            loss=loss, logits=logits, hidden_states=outputs.hidden_states, attentions=outputs.attentions
        )


class TfmBertForNextSentencePrediction(TfmBertPreTrainedModel):
    """The encoder with BERT's next-sentence head on the pooler."""

    accepts_loss_kwargs = False

    def __init__(self, config: TfmBertConfig):
        super().__init__(config)
        self.model = TfmBertModel(config, add_pooling_layer=True)
        self.seq_relationship = nn.Linear(config.hidden_size, 2)
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        input_ids: torch.LongTensor | None = None,
        attention_mask: torch.Tensor | None = None,
        token_type_ids: torch.LongTensor | None = None,
        position_ids: torch.LongTensor | None = None,
        inputs_embeds: torch.Tensor | None = None,
        labels: torch.LongTensor | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> NextSentencePredictorOutput:
        """Inputs as for [`TfmBertModel`], and:

        Args:
            labels: `(batch,)`, 0 where the second segment continues the first, 1 where it does not.
        """
        check_labels(labels, one_of(input_ids, inputs_embeds).shape[:1], 2, "the two classes")
        outputs = self.model(
            input_ids, attention_mask, token_type_ids, position_ids, inputs_embeds, **kwargs | {"return_dict": True}
        )
        logits = self.seq_relationship(outputs.pooler_output)
        return NextSentencePredictorOutput(
            loss=None if labels is None else F.cross_entropy(logits, labels.view(-1)),
            logits=logits,
            hidden_states=outputs.hidden_states,
            attentions=outputs.attentions,
        )


class TfmBertForSequenceClassification(TfmBertPreTrainedModel):
    """The encoder with a classifier (or a regressor) on the pooler."""

    accepts_loss_kwargs = False

    def __init__(self, config: TfmBertConfig):
        super().__init__(config)
        self.num_labels = config.num_labels
        self.model = TfmBertModel(config, add_pooling_layer=True)
        self.dropout = classifier_dropout(config)
        self.classifier = nn.Linear(config.hidden_size, config.num_labels)
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        input_ids: torch.LongTensor | None = None,
        attention_mask: torch.Tensor | None = None,
        token_type_ids: torch.LongTensor | None = None,
        position_ids: torch.LongTensor | None = None,
        inputs_embeds: torch.Tensor | None = None,
        labels: torch.Tensor | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> SequenceClassifierOutput:
        """Inputs as for [`TfmBertModel`], and:

        Args:
            labels: `(batch,)` classes or values, or `(batch, num_labels)`; `config.problem_type` says which, and is
                set from the labels where it is `None`.
        """
        check_label_ids(labels, one_of(input_ids, inputs_embeds).shape[:1], self.num_labels)
        outputs = self.model(
            input_ids, attention_mask, token_type_ids, position_ids, inputs_embeds, **kwargs | {"return_dict": True}
        )
        logits = self.classifier(self.dropout(outputs.pooler_output))
        loss = None
        if labels is not None:
            loss = self.loss_function(labels=labels, pooled_logits=logits, config=self.config)
        return SequenceClassifierOutput(
            loss=loss, logits=logits, hidden_states=outputs.hidden_states, attentions=outputs.attentions
        )


class TfmBertForMultipleChoice(TfmBertPreTrainedModel):
    """The encoder with a score for each choice, from the pooler."""

    accepts_loss_kwargs = False

    def __init__(self, config: TfmBertConfig):
        super().__init__(config)
        self.model = TfmBertModel(config, add_pooling_layer=True)
        self.dropout = classifier_dropout(config)
        self.classifier = nn.Linear(config.hidden_size, 1)
        self.post_init()

    def fingerprint_inputs(self) -> dict[str, torch.LongTensor]:
        """One question of two choices, where others are given two sequences."""
        return {name: ids.unsqueeze(0) for name, ids in super().fingerprint_inputs().items()}

    @can_return_tuple
    def forward(
        self,
        input_ids: torch.LongTensor | None = None,
        attention_mask: torch.Tensor | None = None,
        token_type_ids: torch.LongTensor | None = None,
        position_ids: torch.LongTensor | None = None,
        inputs_embeds: torch.Tensor | None = None,
        labels: torch.LongTensor | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> MultipleChoiceModelOutput:
        """Inputs as for [`TfmBertModel`], each with a dimension of choices after the batch's, and:

        Args:
            labels: `(batch,)`, the index of the right choice.

        Returns:
            `logits` `(batch, choices)`.
        """
        given, dims = one_of(input_ids, inputs_embeds), 3 if inputs_embeds is None else 4
        if given.dim() != dims:
            name, width = ("input_ids", "") if inputs_embeds is None else ("inputs_embeds", ", hidden_size")
            shape = tuple(given.shape)
            raise ValueError(f"{name} of shape {shape} should be of shape (batch, choices, length{width}).")
        choices = given.shape[1]
        check_labels(labels, given.shape[:1], choices, "the choices")
        ids = (input_ids, attention_mask, token_type_ids, position_ids)
        flat = [None if states is None else states.reshape(-1, states.shape[-1]) for states in ids]
        flat.append(None if inputs_embeds is None else inputs_embeds.flatten(0, 1))
        outputs = self.model(*flat, **kwargs | {"return_dict": True})
        logits = self.classifier(self.dropout(outputs.pooler_output)).view(-1, choices)
        return MultipleChoiceModelOutput(
            loss=None if labels is None else F.cross_entropy(logits, labels),
            logits=logits,
            hidden_states=outputs.hidden_states,
            attentions=outputs.attentions,
        )


class TfmBertForTokenClassification(TfmBertPreTrainedModel):
    """The encoder with a classifier on every position."""

    def __init__(self, config: TfmBertConfig):
        super().__init__(config)
        self.num_labels = config.num_labels
        self.model = TfmBertModel(config, add_pooling_layer=False)
        self.dropout = classifier_dropout(config)
        self.classifier = nn.Linear(config.hidden_size, config.num_labels)
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        input_ids: torch.LongTensor | None = None,
        attention_mask: torch.Tensor | None = None,
        token_type_ids: torch.LongTensor | None = None,
        position_ids: torch.LongTensor | None = None,
        inputs_embeds: torch.Tensor | None = None,
        labels: torch.LongTensor | None = None,
        num_items_in_batch: int | torch.Tensor | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> TokenClassifierOutput:
        """Inputs as for [`TfmBertModel`], and:

        Args:
            labels: `(batch, length)`, classes, -100 where there is none.
            num_items_in_batch: labelled tokens of the whole optimizer step, which the summed loss is divided by.
        """
        inputs = one_of(input_ids, inputs_embeds)
        read_positions = labelled_positions(labels, inputs, self.num_labels, "the classes (num_labels)")
        outputs = self.model(
            input_ids,
            attention_mask,
            token_type_ids,
            position_ids,
            inputs_embeds,
            read_positions=read_positions,
            **kwargs | {"return_dict": True},
        )
        logits = self.classifier(self.dropout(outputs.last_hidden_state))
        loss = None
        if labels is not None:
            loss = self.loss_function(logits, labels, config=self.config, num_items_in_batch=num_items_in_batch)
        return TokenClassifierOutput(
            loss=loss, logits=logits, hidden_states=outputs.hidden_states, attentions=outputs.attentions
        )


class TfmBertForQuestionAnswering(TfmBertPreTrainedModel):
    """The encoder with scores for the first and the last token of an answer."""

    accepts_loss_kwargs = False

    def __init__(self, config: TfmBertConfig):
        super().__init__(config)
        self.model = TfmBertModel(config, add_pooling_layer=False)
        self.dropout = nn.Dropout(config.qa_dropout)
        self.qa_outputs = nn.Linear(config.hidden_size, 2)
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        input_ids: torch.LongTensor | None = None,
        attention_mask: torch.Tensor | None = None,
        token_type_ids: torch.LongTensor | None = None,
        position_ids: torch.LongTensor | None = None,
        inputs_embeds: torch.Tensor | None = None,
        start_positions: torch.LongTensor | None = None,
        end_positions: torch.LongTensor | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> QuestionAnsweringModelOutput:
        """Inputs as for [`TfmBertModel`], and:

        Args:
            start_positions: `(batch,)`, the answer's first position; one outside the sequence is left out of the loss.
            end_positions: `(batch,)`, its last.

        Returns:
            `start_logits` and `end_logits`, each `(batch, length)`; the lowest number at padding that was skipped.
        """
        answered = start_positions is not None and end_positions is not None
        inputs = one_of(input_ids, inputs_embeds)
        for name, labels in (("start_positions", start_positions), ("end_positions", end_positions)):
            check_labels(labels, inputs.shape[:1], None, "", name=name)
        outputs = self.model(
            input_ids,
            attention_mask,
            token_type_ids,
            position_ids,
            inputs_embeds,
            # The loss is a softmax over all positions, padded ones included.
            read_positions=inputs.new_ones(inputs.shape[:2], dtype=torch.bool) if answered else None,
            **kwargs | {"return_dict": True},
        )
        logits = self.qa_outputs(self.dropout(outputs.last_hidden_state))
        if not answered and self.config.skip_padding and marks_padding(attention_mask):
            padded = attention_mask.to(logits.device)[..., None] == 0
            logits = logits.masked_fill(padded, torch.finfo(logits.dtype).min)  # nothing was computed: no answer
        start_logits, end_logits = (scores.squeeze(-1).contiguous() for scores in logits.split(1, dim=-1))
        loss = None
        if answered:
            loss = self.loss_function(start_logits, end_logits, start_positions, end_positions)
        return QuestionAnsweringModelOutput(
            loss=loss,
            start_logits=start_logits,
            end_logits=end_logits,
            hidden_states=outputs.hidden_states,
            attentions=outputs.attentions,
        )


def classifier_dropout(config: TfmBertConfig) -> nn.Dropout:
    return nn.Dropout(config.hidden_dropout if config.classifier_dropout is None else config.classifier_dropout)


__all__ = ["TfmBertConfig", *TfmBertConfig.auto_classes.values(), "TfmBertPreTrainedModel"]
