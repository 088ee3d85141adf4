"""The encoder family: BERT's wiring and heads (Devlin et al. 2018) around the shared block."""

import torch
from torch import nn
from torch.nn import functional as F
from transformers.modeling_outputs import (
    BaseModelOutputWithPooling,
    NextSentencePredictorOutput,
)
from transformers.utils import ModelOutput

from .batch import Tokens, encoder_batch, one_of
from .compat import TransformersKwargs, Unpack, can_return_tuple
from .configuration_tfm_bert import TfmBertConfig
from .encoder_heads import (
    MaskedLanguageModeling,
    MultipleChoice,
    ReplacedTokenDetection,
    TfmBertForPreTrainingOutput,
    TfmPredictionHead,
    classifier_dropout,
    classifier_head,
    make_detector,
)
from .heads import (
    Inputs,
    QuestionAnswering,
    SequenceClassification,
    TfmHead,
    TokenClassification,
    check_labels,
    passed_on,
    tokens_of,
)
from .layout import marks_padding
from .pooling import check_engine_pools, make_classifier, make_pooler, make_pooler_query, pool, pools_first
from .pretrained import TfmPreTrainedModel
from .stack import TfmStack

#: a sequence classifier keeps its pooler in its head: names there -> names in the other models
POOLER = {rf"^classifier\.{name}\.": f"model.pooler.{name}." for name in ("dense", "norm")}


class TfmBertPreTrainedModel(TfmPreTrainedModel):
    """Base of the family's models."""

    config_class = TfmBertConfig


class TfmBertModel(TfmStack, TfmBertPreTrainedModel):
    """The encoder and a pooler.

    `add_pooling_layer`: whether there is a pooler. `None`: `config.add_pooling_layer`.

    `forward` takes

    - `input_ids` `(batch, length)`, or `inputs_embeds` `(batch, length, embedding_size)` in their place;
    - `attention_mask` `(batch, length)`, 1 at real tokens and 0 at padding, or `(batch, 1, length, length)`;
    - `token_type_ids` `(batch, length)`, the segment of each token. `None`: the first;
    - `position_ids` `(batch or 1, length)`, from 0. `None`: counted from the left, padding included (BERT), or over
      real tokens, with -1 at padding (`config.position_ids_from_padding`);
    - `read_positions` `(batch, length)`, true where the caller reads the last hidden state: padding is computed if some
      of it is read. `None`: the caller reads real tokens only;
    - `output_hidden_states`, `output_attentions` and `return_dict`.

    It returns `last_hidden_state` `(batch, length, hidden_size)`, zero at padding that was skipped (see
    `config.skip_padding`); `pooler_output` `(batch, hidden_size)`; and `hidden_states` and `attentions` if asked for.
    It raises a `ValueError` for inputs that do not fit each other or the model.
    """

    other_names = POOLER

    def __init__(self, config: TfmBertConfig, add_pooling_layer: bool | None = None):
        super().__init__(config)
        self.add_stack(config.layer_types, config.vocab_size)
        self.pools = config.add_pooling_layer if add_pooling_layer is None else add_pooling_layer
        options = (config.pooler_act, config.pooler_dropout, config.classifier_bias, config.classifier_norm)
        self.pooler = make_pooler(config, *options) if self.pools else None
        self.pooler_query = make_pooler_query(config) if self.pools else None
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
        """Inputs and outputs as the class documents them."""
        tokens = Tokens(one_of(input_ids, inputs_embeds), token_type_ids, position_ids)
        reads_first = self.pools and pools_first(self.config, attention_mask)
        batch = encoder_batch(self, tokens, attention_mask, read_positions, reads_first, **kwargs)
        outputs = batch.restore(self.run(batch, return_dict=True, **kwargs))
        pooled = self.pooler and pool(self.config, outputs[0], attention_mask, self.pooler, self.pooler_query)
        return BaseModelOutputWithPooling(pooler_output=pooled, **outputs)


class TfmBertHead(TfmHead, TfmBertPreTrainedModel):
    """The encoder, to which a subclass adds a head."""

    base_class = TfmBertModel
    has_pooler = True

    def __init__(self, config: TfmBertConfig):
        super().__init__(config)
        self.num_labels = config.num_labels
        self.model = TfmBertModel(config, add_pooling_layer=self.has_pooler)

    def reading(self, inputs: Inputs, positions: torch.BoolTensor | None) -> Inputs:
        return inputs | {"read_positions": positions}


class TfmBertForSequenceClassification(SequenceClassification, TfmBertHead):
    """The encoder with a classifier (or a regressor), which takes the place of the pooler."""

    other_names = {r"^(model\.)?pooler\.": "classifier.", r"^classifier\.(?=weight|bias)": "classifier.out_proj."}

    def __init__(self, config: TfmBertConfig):
        super().__init__(config)
        check_engine_pools(config)
        self.classifier = make_classifier(config, self.model.pooler, classifier_dropout(config).p)
        self.model.pooler = None
        self.post_init()

    def logits(self, outputs: ModelOutput, inputs: Inputs) -> torch.Tensor:
        return pool(self.config, outputs[0], inputs["attention_mask"], self.classifier, self.model.pooler_query)


class TfmBertForTokenClassification(TokenClassification, TfmBertHead):
    """The encoder with a classifier on every position."""

    has_pooler = False

    def __init__(self, config: TfmBertConfig):
        super().__init__(config)
        self.head = classifier_head(config)
        self.dropout = classifier_dropout(config)
        self.classifier = nn.Linear(config.hidden_size, config.num_labels)
        self.post_init()

    def logits(self, outputs: ModelOutput, inputs: Inputs) -> torch.Tensor:
        return self.classifier(self.dropout(self.head(outputs.last_hidden_state)))


class TfmBertForQuestionAnswering(QuestionAnswering, TfmBertHead):
    """The encoder with scores for the first and the last token of an answer."""

    has_pooler = False

    def __init__(self, config: TfmBertConfig):
        super().__init__(config)
        self.head = classifier_head(config)
        self.dropout = nn.Dropout(config.qa_dropout)
        self.qa_outputs = nn.Linear(config.hidden_size, 2)
        self.post_init()

    def logits(self, outputs: ModelOutput, inputs: Inputs) -> torch.Tensor:
        return self.qa_outputs(self.dropout(self.head(outputs.last_hidden_state)))

    def rule_out_padding(self, logits: torch.Tensor, inputs: Inputs) -> torch.Tensor:
        mask = inputs["attention_mask"]
        if not self.config.skip_padding or not marks_padding(mask):
            return logits
        return logits.masked_fill(mask.to(logits.device)[..., None] == 0, torch.finfo(logits.dtype).min)


class TfmBertForMultipleChoice(MultipleChoice, TfmBertHead):
    """The encoder with a score for each choice, from the pooler."""

    other_names = POOLER

    def __init__(self, config: TfmBertConfig):
        super().__init__(config)
        self.dropout = classifier_dropout(config)
        self.classifier = nn.Linear(config.hidden_size, 1)
        self.post_init()


class TfmBertForNextSentencePrediction(TfmBertHead):
    """The encoder with BERT's next-sentence head on the pooler."""

    accepts_loss_kwargs = False
    other_names = POOLER

    def __init__(self, config: TfmBertConfig):
        super().__init__(config)
        self.seq_relationship = nn.Linear(config.hidden_size, 2)
        self.post_init()

    def prepare(self, inputs: Inputs, labels: torch.LongTensor | None = None) -> Inputs:
        check_labels(labels, tokens_of(inputs).shape[:1], 2, "the two classes")
        return inputs

    def predict(
        self, outputs: ModelOutput, inputs: Inputs, labels: torch.LongTensor | None = None
    ) -> NextSentencePredictorOutput:
        """
        Args:
            labels: `(batch,)`, 0 where the second segment continues the first, 1 where it does not.
        """
        logits = self.seq_relationship(outputs.pooler_output)
        loss = None if labels is None else F.cross_entropy(logits, labels.view(-1))
        return NextSentencePredictorOutput(loss=loss, logits=logits, **passed_on(outputs))


class TfmBertForMaskedLM(MaskedLanguageModeling, TfmBertHead):
    """The encoder with a masked-language-modelling head."""

    has_pooler = False

    def __init__(self, config: TfmBertConfig):
        super().__init__(config)
        width = config.embedding_size if config.lm_head_transform else config.hidden_size
        self.head = TfmPredictionHead(config, width) if config.lm_head_transform else nn.Identity()
        self.lm_head = nn.Linear(width, config.vocab_size, bias=config.lm_head_bias)
        self.post_init()


class TfmBertForReplacedTokenDetection(ReplacedTokenDetection, TfmBertHead):
    """The encoder with ELECTRA's head, which tells tokens that were replaced from those that were not."""

    has_pooler = False

    def __init__(self, config: TfmBertConfig):
        super().__init__(config)
        self.detector = make_detector(config)
        self.post_init()


class TfmBertForPreTraining(TfmBertForMaskedLM):
    """The encoder with two pre-training heads: masked language modelling, and next sentences (ALBERT: their order)."""

    accepts_loss_kwargs = False
    has_pooler = True
    other_names = POOLER

    def __init__(self, config: TfmBertConfig):
        super().__init__(config)
        self.dropout = nn.Dropout(config.sentence_dropout)
        self.seq_relationship = nn.Linear(config.hidden_size, 2)
        self.post_init()

    def prepare(
        self,
        inputs: Inputs,
        labels: torch.LongTensor | None = None,
        next_sentence_label: torch.LongTensor | None = None,
        **options,
    ) -> Inputs:
        sequences = tokens_of(inputs).shape[:1]
        check_labels(next_sentence_label, sequences, 2, "the two classes", name="next_sentence_label")
        return super().prepare(inputs, labels)

    def predict(
        self,
        outputs: ModelOutput,
        inputs: Inputs,
        labels: torch.LongTensor | None = None,
        next_sentence_label: torch.LongTensor | None = None,
        return_logits: bool | None = None,
    ) -> TfmBertForPreTrainingOutput:
        """
        Args:
            labels, return_logits: as for [`TfmBertForMaskedLM`].
            next_sentence_label: as for [`TfmBertForNextSentencePrediction`].
        """
        masked_lm = super().predict(outputs, inputs, labels, return_logits)
        logits, loss = self.seq_relationship(self.dropout(outputs.pooler_output)), masked_lm.loss
        if next_sentence_label is not None:
            sentence_loss = F.cross_entropy(logits, next_sentence_label.view(-1))
            loss = sentence_loss if loss is None else loss + sentence_loss
        return TfmBertForPreTrainingOutput(
            loss=loss, prediction_logits=masked_lm.logits, seq_relationship_logits=logits, **passed_on(outputs)
        )


__all__ = [
    *TfmBertConfig.auto_classes.values(),
    *TfmBertConfig.other_auto_classes,
    "TfmBertPreTrainedModel",
]
