"""The encoder family: BERT's wiring and heads (Devlin et al. 2018) around the shared block."""

from collections import OrderedDict

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
from transformers.models.bert.modeling_bert import BertForPreTrainingOutput

from .batch import Tokens
from .compat import ACT2FN, TransformersKwargs, Unpack, can_return_tuple
from .configuration_tfm_bert import TfmBertConfig
from .encoder_heads import POOLING, TfmPredictionHead, make_classifier, make_pooler, masked_tokens, pool, pools_first
from .encoder_inputs import TfmTaskEmbedding, with_masks_dropped, with_tasks
from .entrance import encoder_batch
from .inputs import Inputs, check_tensor, given_in, marks_padding, one_of, takes_inputs_of
from .losses import VOCABULARY, answers, check_answers, check_classes, check_labels, labelled, sequence_loss, token_loss
from .padding import restore_outputs
from .pretrained import TfmPreTrainedModel
from .stack import TfmStack, passed_on

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
    - `token_type_ids` `(batch, length)`, the segment of each token. `None`: the first; and, with
      `config.task_type_vocab_size`, `task_type_ids` of this shape. `None`: the first;
    - `position_ids` `(batch or 1, length)`, from 0. `None`: counted from the left, padding included (BERT), or over
      real tokens, with -1 at padding (`config.position_ids_from_padding`). Where those of real tokens return to 0
      within a row, another document begins, and sees no other, unless a mask of pairs says so;
    - `read_positions` `(batch, length)`, true where the caller reads the last hidden state: padding is computed if some
      of it is read. `None`: the caller reads real tokens only;
    - `output_hidden_states`, `output_attentions` and `return_dict`.

    It returns `last_hidden_state` `(batch, length, hidden_size)`, zero at padding that was skipped (see
    `config.skip_padding`); `pooler_output` `(batch, hidden_size)`; and `hidden_states` and `attentions` if asked for.
    It raises a `ValueError` for inputs that do not fit each other or the model.
    """

    other_names = POOLER
    head_fields = ("add_pooling_layer", *POOLING)

    def __init__(self, config: TfmBertConfig, add_pooling_layer: bool | None = None):
        super().__init__(config)
        self.add_stack(config.layer_types, config.vocab_size)
        if config.task_type_vocab_size:
            self.embeddings.embed_token_types = TfmTaskEmbedding(config)
        # (It pools, too, where a classifier takes the pooler's place, and leaves `pooler_query` here.)
        self.pools = config.add_pooling_layer if add_pooling_layer is None else add_pooling_layer
        self.pooler = make_pooler(config) if self.pools else None
        is_weighted = self.pools and config.classifier_pooling == "attention"  # by a score of each state
        self.pooler_query = nn.Linear(config.hidden_size, 1, bias=False) if is_weighted else None
        self.post_init()

    def complete_tokens(self, tokens: Tokens, mask: object, documents: torch.Tensor | None, options: dict) -> Tokens:
        if self.config.task_type_vocab_size:
            tokens = with_tasks(self.config, tokens, options.pop("task_type_ids", None))
        return tokens if self.config.dropped_token_id is None else with_masks_dropped(self, tokens, mask, documents)

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
        batch = encoder_batch(self, tokens, attention_mask, kwargs, read_positions, reads_first)
        outputs = restore_outputs(self.run(batch, return_dict=True, **kwargs), batch.kept)
        pooled = self.pooler and pool(self.config, outputs[0], attention_mask, self.pooler, self.pooler_query)
        return BaseModelOutputWithPooling(pooler_output=pooled, **outputs)


class TfmBertHead(TfmBertPreTrainedModel):
    """The encoder, to which a subclass adds a head."""

    model_class = TfmBertModel
    has_pooler = True

    def __init__(self, config: TfmBertConfig):
        super().__init__(config)
        self.num_labels = config.num_labels
        self.model = self.model_class(config, add_pooling_layer=self.has_pooler)


class TfmBertForSequenceClassification(TfmBertHead):
    """The encoder with a classifier (or a regressor), which takes the place of the pooler."""

    other_names = {r"^(model\.)?pooler\.": "classifier.", r"^classifier\.(?=weight|bias)": "classifier.out_proj."}
    head_fields = ("classifier_dense", "classifier_dropout", *POOLING)

    def __init__(self, config: TfmBertConfig):
        super().__init__(config)
        self.classifier = make_classifier(config, self.model.pooler)
        self.model.pooler = None
        self.post_init()

    @takes_inputs_of(TfmBertModel)
    def forward(self, inputs: Inputs, labels: torch.Tensor | None = None, **kwargs) -> SequenceClassifierOutput:
        """Gives `logits` `(batch, num_labels)`, and the loss of the labels; inputs as for [`TfmBertModel`].

        Args:
            labels: `(batch,)` classes or values, or `(batch, num_labels)`; `config.problem_type` says which, and is set
                from the labels where it is `None`.
        """
        check_classes(self.config, given_in(inputs), labels)
        outputs, mask = self.model(**inputs, return_dict=True, **kwargs), inputs["attention_mask"]
        logits = pool(self.config, outputs[0], mask, self.classifier, self.model.pooler_query)
        loss = sequence_loss(self, logits, labels)
        return SequenceClassifierOutput(loss=loss, logits=logits, **passed_on(outputs))


class TfmBertForTokenClassification(TfmBertHead):
    """The encoder with a classifier on every position."""

    has_pooler = False
    head_fields = ("classifier_transform", "classifier_dropout")

    def __init__(self, config: TfmBertConfig):
        super().__init__(config)
        self.head = TfmPredictionHead(config, config.hidden_size) if config.classifier_transform else nn.Identity()
        self.dropout = nn.Dropout(config.classifier_dropout)
        self.classifier = nn.Linear(config.hidden_size, config.num_labels)
        self.post_init()

    @takes_inputs_of(TfmBertModel)
    def forward(
        self,
        inputs: Inputs,
        labels: torch.LongTensor | None = None,
        *,
        num_items_in_batch: int | torch.Tensor | None = None,
        **kwargs,
    ) -> TokenClassifierOutput:
        """Gives `logits` `(batch, length, num_labels)`, and the loss of the labels; inputs as for [`TfmBertModel`].

        Args:
            labels: `(batch, length)`, classes, -100 where there is no label.
            num_items_in_batch: labelled tokens of the whole optimizer step, by which the summed loss is divided.
        """
        check_labels(labels, given_in(inputs).shape[:2], self.config.num_labels)
        outputs = self.model(**inputs, read_positions=labelled(labels), return_dict=True, **kwargs)
        logits = self.classifier(self.dropout(self.head(outputs.last_hidden_state)))
        loss = token_loss(self, logits, labels, num_items_in_batch)
        return TokenClassifierOutput(loss=loss, logits=logits, **passed_on(outputs))


class TfmBertForQuestionAnswering(TfmBertHead):
    """The encoder with scores for the first and the last token of an answer."""

    has_pooler = False
    head_fields = ("classifier_transform", "qa_dropout")

    def __init__(self, config: TfmBertConfig):
        super().__init__(config)
        self.head = TfmPredictionHead(config, config.hidden_size) if config.classifier_transform else nn.Identity()
        self.dropout = nn.Dropout(config.qa_dropout)
        self.qa_outputs = nn.Linear(config.hidden_size, 2)
        self.post_init()

    @takes_inputs_of(TfmBertModel)
    def forward(
        self,
        inputs: Inputs,
        start_positions: torch.LongTensor | None = None,
        end_positions: torch.LongTensor | None = None,
        **kwargs,
    ) -> QuestionAnsweringModelOutput:
        """Gives `start_logits` and `end_logits` `(batch, length)`, the lowest number at padding (with `skip_padding`,
        without a loss), and the loss, a softmax over all positions, padded ones too; inputs as for [`TfmBertModel`].

        Args:
            start_positions: `(batch,)`, the first of the answer; one behind the sequence does not count in the loss.
            end_positions: `(batch,)`, its last.
        """
        everywhere, mask = check_answers(given_in(inputs), start_positions, end_positions), inputs["attention_mask"]
        has_answers = start_positions is not None and end_positions is not None
        read = everywhere if has_answers else None
        outputs = self.model(**inputs, read_positions=read, return_dict=True, **kwargs)
        scores = self.qa_outputs(self.dropout(self.head(outputs.last_hidden_state)))
        if not has_answers and self.config.skip_padding and marks_padding(mask):
            scores = scores.masked_fill(mask.to(scores.device)[..., None] == 0, torch.finfo(scores.dtype).min)
        found = answers(self, scores, start_positions, end_positions)
        return QuestionAnsweringModelOutput(**found, **passed_on(outputs))


class TfmBertForMultipleChoice(TfmBertHead):
    """The encoder with a score for each choice, from the pooler."""

    other_names = POOLER
    head_fields = ("classifier_dropout", *POOLING)

    def __init__(self, config: TfmBertConfig):
        super().__init__(config)
        self.dropout = nn.Dropout(config.classifier_dropout)
        self.classifier = nn.Linear(config.hidden_size, 1)
        self.post_init()

    @takes_inputs_of(TfmBertModel)
    def forward(self, inputs: Inputs, labels: torch.LongTensor | None = None, **kwargs) -> MultipleChoiceModelOutput:
        """Gives `logits` `(batch, choices)`, and the loss of `labels` `(batch,)`, the right choices; inputs as for
        [`TfmBertModel`], but of shape `(batch, choices, length)`."""
        given, ids = given_in(inputs), inputs["input_ids"]
        name, width = ("inputs_embeds", ", embedding_size") if ids is None else ("input_ids", "")
        if given.dim() != (4 if ids is None else 3):
            shape = f"(batch, choices, length{width})"
            raise ValueError(f"{name} of shape {tuple(given.shape)} should be of shape {shape}.")
        check_labels(labels, given.shape[:1], given.shape[1], "the choices")
        inputs |= {"task_type_ids": kwargs.pop("task_type_ids")} if "task_type_ids" in kwargs else {}
        for name, each in inputs.items():
            check_tensor(name, each)
        rows = {name: each if each is None else each.flatten(0, 1) for name, each in inputs.items()}
        outputs = self.model(**rows, return_dict=True, **kwargs)
        logits = self.classifier(self.dropout(outputs.pooler_output)).view(given.shape[:2])
        loss = None if labels is None else F.cross_entropy(logits, labels.view(-1))
        return MultipleChoiceModelOutput(loss=loss, logits=logits, **passed_on(outputs))


class TfmBertForNextSentencePrediction(TfmBertHead):
    """The encoder with BERT's next-sentence head on the pooler."""

    other_names = POOLER
    head_fields = POOLING

    def __init__(self, config: TfmBertConfig):
        super().__init__(config)
        self.seq_relationship = nn.Linear(config.hidden_size, 2)
        self.post_init()

    @takes_inputs_of(TfmBertModel)
    def forward(self, inputs: Inputs, labels: torch.LongTensor | None = None, **kwargs) -> NextSentencePredictorOutput:
        """Gives `logits` `(batch, 2)`, and the loss of `labels` `(batch,)`, 0 where the second segment continues the
        first, 1 where it does not; inputs as for [`TfmBertModel`]."""
        check_labels(labels, given_in(inputs).shape[:1], 2, "the two classes")
        outputs = self.model(**inputs, return_dict=True, **kwargs)
        logits = self.seq_relationship(outputs.pooler_output)
        loss = None if labels is None else F.cross_entropy(logits, labels.view(-1))
        return NextSentencePredictorOutput(loss=loss, logits=logits, **passed_on(outputs))


class TfmBertForMaskedLM(TfmBertHead):
    """The encoder with a masked-language-modelling head."""

    has_pooler = False
    _tied_weights_keys = {"lm_head.weight": "model.embeddings.embed_tokens.weight"}
    _tp_plan = {"lm_head": "colwise_rep"}
    head_fields = ("lm_head_act", "lm_head_transform", "lm_head_bias")

    def __init__(self, config: TfmBertConfig):
        super().__init__(config)
        width = config.embedding_size if config.lm_head_transform else config.hidden_size
        self.head = TfmPredictionHead(config, width) if config.lm_head_transform else nn.Identity()
        self.lm_head = nn.Linear(width, config.vocab_size, bias=config.lm_head_bias)
        self.post_init()

    @takes_inputs_of(TfmBertModel)
    def forward(
        self,
        inputs: Inputs,
        labels: torch.LongTensor | None = None,
        *,
        return_logits: bool | None = None,
        num_items_in_batch: int | torch.Tensor | None = None,
        **kwargs,
    ) -> MaskedLMOutput:
        """Gives `logits` `(batch, length, vocab_size)`, zero at padding that was skipped (all of it, unless a label
        stands at some), and the loss of the labels; inputs as for [`TfmBertModel`].

        Args:
            labels: `(batch, length)`, token ids, -100 where there is nothing to predict.
            return_logits: whether to make logits. `None`: unless training on labels. Where the head carries hooks, they
                are made in any case.
            num_items_in_batch: labelled tokens of the whole optimizer step, by which the summed loss is divided.
        """
        check_labels(labels, given_in(inputs).shape[:2], self.config.vocab_size, VOCABULARY)
        outputs = self.model(**inputs, read_positions=labelled(labels), return_dict=True, **kwargs)
        options = (labels, return_logits, num_items_in_batch)
        loss, logits = masked_tokens(self, outputs[0], inputs["attention_mask"], *options)
        return MaskedLMOutput(loss=loss, logits=logits, **passed_on(outputs))


class TfmBertForReplacedTokenDetection(TfmBertHead):
    """The encoder with ELECTRA's head, which tells tokens that a generator has replaced (Clark et al. 2020)."""

    has_pooler = False

    def __init__(self, config: TfmBertConfig):
        super().__init__(config)
        dense, score = (nn.Linear(config.hidden_size, width) for width in (config.hidden_size, 1))
        self.detector = nn.Sequential(OrderedDict(dense=dense, act_fn=ACT2FN[config.hidden_act], out_proj=score))
        self.post_init()

    @takes_inputs_of(TfmBertModel)
    def forward(self, inputs: Inputs, labels: torch.LongTensor | None = None, **kwargs) -> TokenClassifierOutput:
        """Gives `logits` `(batch, length)`, above 0 where a token looks replaced, and the loss of `labels` of this
        shape (1 where it was, 0 where not; -100 and padding do not count); inputs as for [`TfmBertModel`]."""
        check_labels(labels, given_in(inputs).shape[:2], 2, "the two classes")
        outputs, mask = self.model(**inputs, return_dict=True, **kwargs), inputs["attention_mask"]
        logits = self.detector(outputs.last_hidden_state).squeeze(-1)
        loss = None
        if labels is not None:
            scores, targets = logits.float(), labels.float().clamp(min=0)
            weights = labelled(labels).to(scores)
            weights = weights * mask.to(weights) if marks_padding(mask) else weights
            loss = F.binary_cross_entropy_with_logits(scores, targets, weights, reduction="sum") / weights.sum()
        return TokenClassifierOutput(loss=loss, logits=logits, **passed_on(outputs))


class TfmBertForPreTraining(TfmBertForMaskedLM):
    """The encoder with two pre-training heads: masked language modelling, and next sentences (ALBERT: their order)."""

    has_pooler = True
    other_names = POOLER
    head_fields = (*TfmBertForMaskedLM.head_fields, "sentence_dropout", *POOLING)

    def __init__(self, config: TfmBertConfig):
        super().__init__(config)
        self.dropout = nn.Dropout(config.sentence_dropout)
        self.seq_relationship = nn.Linear(config.hidden_size, 2)
        self.post_init()

    @takes_inputs_of(TfmBertModel)
    def forward(
        self,
        inputs: Inputs,
        labels: torch.LongTensor | None = None,
        next_sentence_label: torch.LongTensor | None = None,
        *,
        return_logits: bool | None = None,
        **kwargs,
    ) -> BertForPreTrainingOutput:
        """Gives `prediction_logits` `(batch, length, vocab_size)`, `seq_relationship_logits` `(batch, 2)`, and the sum
        of the two losses; inputs as for [`TfmBertModel`].

        Args:
            labels, return_logits: as for [`TfmBertForMaskedLM`].
            next_sentence_label: as the labels of [`TfmBertForNextSentencePrediction`].
        """
        shape = given_in(inputs).shape
        check_labels(labels, shape[:2], self.config.vocab_size, VOCABULARY)
        check_labels(next_sentence_label, shape[:1], 2, "the two classes", name="next_sentence_label")
        outputs = self.model(**inputs, read_positions=labelled(labels), return_dict=True, **kwargs)
        loss, prediction_logits = masked_tokens(self, outputs[0], inputs["attention_mask"], labels, return_logits)
        logits = self.seq_relationship(self.dropout(outputs.pooler_output))
        if next_sentence_label is not None:
            sentence_loss = F.cross_entropy(logits, next_sentence_label.view(-1))
            loss = sentence_loss if loss is None else loss + sentence_loss
        made = {"prediction_logits": prediction_logits, "seq_relationship_logits": logits}
        return BertForPreTrainingOutput(loss=loss, **made, **passed_on(outputs))
