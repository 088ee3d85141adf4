"""The encoder family: BERT's wiring and heads (Devlin et al. 2018) around the shared block."""

from collections import OrderedDict

import torch
from torch import nn
from torch.nn import functional as F
from transformers import modeling_outputs
from transformers.activations import ACT2FN
from transformers.models.bert.modeling_bert import BertForPreTrainingOutput
from transformers.processing_utils import Unpack
from transformers.utils import ModelOutput, TransformersKwargs, can_return_tuple

from .batch import KeptTokens, Tokens, has_hooks, is_pad_mask, labelled
from .configuration_tfm import ENGINES
from .configuration_tfm_bert import TfmBertConfig
from .entrance import encoder_batch
from .heads import Inputs, QuestionAnswering, SequenceClassification, TfmPredictionHead, TokenClassification, WithHead
from .inputs import check_labels, check_tensor, given_in, one_of
from .layers import make_norm
from .losses import VOCABULARY, makes_logits, vocabulary_outputs
from .pretrained import TfmPreTrainedModel
from .stack import TfmStack

#: fields of the configuration that a pooler and its pooling read
POOLING = ("classifier_pooling", "pooler_act", "pooler_dropout", "classifier_norm")
#: a sequence classifier keeps its pooler in its head: names there -> names in the other models
POOLER = {rf"^classifier\.{name}\.": f"model.pooler.{name}." for name in ("dense", "norm")}


class TfmBertPreTrainedModel(TfmPreTrainedModel):
    """Base of the family's models."""

    config_class = TfmBertConfig


class TfmBertModel(TfmStack, TfmBertPreTrainedModel):
    """The encoder and a pooler, if `add_pooling_layer` (or else the configuration) says so. `forward` takes

    - `input_ids` `(batch, length)`, or `inputs_embeds` `(batch, length, embedding_size)` in their place;
    - `attention_mask` `(batch, length)`, 1 at real tokens and 0 at padding, or `(batch, 1, length, length)`;
    - `token_type_ids`, and `task_type_ids` if the model has tasks, `(batch, length)`. `None`: the first;
    - `position_ids` `(batch or 1, length)`, from 0. `None`: counted from the left, padding included (BERT), or over ids
      other than `pad_token_id`, which gets -1 (`config.position_ids_from_padding`). Where those of real tokens return
      to 0 within a row, another document begins, and sees no other, unless a mask of pairs says so;
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
        # (A classifier may take the pooler's place. `pooler_query` stays here.)
        self.has_pooling = config.add_pooling_layer if add_pooling_layer is None else add_pooling_layer
        self.pooler, self.pooler_query, width = None, None, config.hidden_size
        if self.has_pooling:
            dense, act_fn = nn.Linear(width, width, bias=config.classifier_bias), ACT2FN[config.pooler_act]
            layers = OrderedDict(dropout=nn.Dropout(config.pooler_dropout), dense=dense, act_fn=act_fn)
            self.pooler = nn.Sequential(layers | {"norm": make_norm(config)} if config.classifier_norm else layers)
            if config.classifier_pooling == "attention":  # by a score of each state
                self.pooler_query = nn.Linear(width, 1, bias=False)
        self.post_init()

    def pools_first(self, attention_mask: torch.Tensor | None) -> bool:
        """Whether the first position is pooled. Raises a `ValueError` if a mean needs another mask."""
        check_tensor("attention_mask", attention_mask)
        pooling = self.config.classifier_pooling
        if pooling != "cls" and not (attention_mask is None or is_pad_mask(attention_mask)):
            raise ValueError(
                f"attention_mask of shape {tuple(attention_mask.shape)} does not say which tokens are real, which "
                f"classifier_pooling={pooling!r} needs to know: it should be of shape (batch, length)."
            )
        return pooling == "cls"

    def pool(self, states: torch.Tensor, mask: torch.Tensor | None, layers: nn.Module) -> torch.Tensor:
        """Applies `layers`, a pooler or a classifier, `(batch, length, width)` to `(batch, outputs)`: they read the
        first position, or a mean over real tokens ([`mean_of`]); "late" averages their outputs for real tokens."""
        if self.config.classifier_pooling == "cls":
            return layers(states[:, 0])
        if self.config.classifier_pooling == "late":
            outputs = layers(states)
            return mean_of(outputs.view(*states.shape[:2], outputs.shape[-1]), mask)
        return layers(mean_of(states, mask, self.pooler_query))

    @can_return_tuple
    def forward(
        self,
        input_ids: torch.LongTensor | None = None,
        attention_mask: torch.Tensor | None = None,
        token_type_ids: torch.LongTensor | None = None,
        position_ids: torch.LongTensor | None = None,
        inputs_embeds: torch.Tensor | None = None,
        read_positions: torch.Tensor | None = None,
        task_type_ids: torch.LongTensor | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> modeling_outputs.BaseModelOutputWithPooling:
        """Inputs and outputs as the class documents them."""
        tokens = Tokens(one_of(input_ids, inputs_embeds), token_type_ids, position_ids, task_type_ids)
        reads_first = self.has_pooling and self.pools_first(attention_mask)
        batch = encoder_batch(self, tokens, attention_mask, kwargs, read_positions, reads_first)
        outputs = self.run(batch, **kwargs)
        pooled = self.pooler and self.pool(outputs[0], attention_mask, self.pooler)
        return modeling_outputs.BaseModelOutputWithPooling(pooler_output=pooled, **outputs)


def mean_of(states: torch.Tensor, mask: torch.Tensor | None, query: nn.Module | None = None) -> torch.Tensor:
    """`(batch, length, width)` to `(batch, width)`: the mean of the real tokens; if there is a `query`, weighted by the
    softmax of the scores `(batch, length, 1)` that it gives them."""
    if query is not None:
        scores = query(states).float()
        if mask is not None:
            scores = scores.masked_fill(mask.to(scores.device).unsqueeze(-1) == 0, torch.finfo(scores.dtype).min)
        return (states * scores.softmax(dim=1).to(states)).sum(dim=1)
    if mask is None:
        return states.mean(dim=1)
    real = mask.to(states).unsqueeze(-1)
    return (states * real).sum(dim=1) / real.sum(dim=1).clamp(min=1)


class TfmBertHead(WithHead, TfmBertPreTrainedModel):
    """The encoder, to which a subclass adds a head. `inputs` are arguments of [`TfmBertModel`]: see [`WithHead`]."""

    model_class = TfmBertModel
    model_options = {"add_pooling_layer": True}


class TfmBertForSequenceClassification(SequenceClassification, TfmBertHead):
    """The encoder with a classifier (or a regressor), which takes the place of the pooler."""

    other_names = {r"^(model\.)?pooler\.": "classifier.", r"^classifier\.(?=weight|bias)": "classifier.out_proj."}
    head_fields = ("classifier_dense", "classifier_dropout", *POOLING)

    def __init__(self, config: TfmBertConfig):
        super().__init__(config)
        if config._attn_implementation in ENGINES and config.classifier_pooling != "cls":
            mean = """--pooler-config '{"seq_pooling_type": "MEAN"}' --hf-overrides '{"classifier_pooling": "cls"}'"""
            cause = f"classifier_pooling={config.classifier_pooling!r}: no engine does so by itself"
            raise ValueError(f"{cause}. For 'mean', give it {mean}; for others, serve the model with transformers.")
        pooler = self.model.pooler if config.classifier_dense else self.model.pooler[:1]  # or its dropout alone
        layers = {"flatten": nn.Flatten(0, -2), **dict(pooler.named_children())}  # (engines give `(rows, 1, width)`)
        dropout, out_proj = nn.Dropout(config.classifier_dropout), nn.Linear(config.hidden_size, config.num_labels)
        self.classifier = nn.Sequential(OrderedDict(layers, out_dropout=dropout, out_proj=out_proj))
        self.model.pooler = None
        self.post_init()

    def classify(self, states: torch.Tensor, inputs: Inputs) -> torch.Tensor:
        return self.model.pool(states, inputs["attention_mask"], self.classifier)


class TfmBertForTokenClassification(TokenClassification, TfmBertHead):
    """The encoder with a classifier on every position."""

    model_options = {"add_pooling_layer": False}


class TfmBertForQuestionAnswering(QuestionAnswering, TfmBertHead):
    """The encoder with scores for the first and the last token of an answer."""

    model_options = {"add_pooling_layer": False}
    reads_padding = False


class TfmBertForMultipleChoice(TfmBertHead):
    """The encoder with a score for each choice, from the pooler."""

    other_names = POOLER
    head_fields = ("classifier_dropout", *POOLING)

    def __init__(self, config: TfmBertConfig):
        super().__init__(config)
        self.dropout = nn.Dropout(config.classifier_dropout)
        self.classifier = nn.Linear(config.hidden_size, 1)
        self.post_init()

    def forward(self, inputs: Inputs, labels: torch.LongTensor | None = None, **kwargs) -> ModelOutput:
        """Gives `logits` `(batch, choices)`, and the loss of `labels` `(batch,)`, the right choices; inputs as for
        [`TfmBertModel`], but of shape `(batch, choices, length)`."""
        given, ids = given_in(inputs), inputs["input_ids"]
        name, width = ("inputs_embeds", ", embedding_size") if ids is None else ("input_ids", "")
        if given.dim() != (4 if ids is None else 3):
            raise ValueError(f"{name} of shape {tuple(given.shape)} should be (batch, choices, length{width}).")
        check_labels(labels, given.shape[:1], given.shape[1], "the choices")
        for name, each in inputs.items():
            check_tensor(name, each)
        rows = {name: each if each is None else each.flatten(0, 1) for name, each in inputs.items()}
        outputs = self.model(**rows, return_dict=True, **kwargs)
        logits = self.classifier(self.dropout(outputs.pooler_output)).view(given.shape[:2])
        loss = None if labels is None else F.cross_entropy(logits, labels.view(-1))
        return self.headed(modeling_outputs.MultipleChoiceModelOutput, outputs, loss=loss, logits=logits)


class TfmBertForNextSentencePrediction(TfmBertHead):
    """The encoder with BERT's next-sentence head on the pooler."""

    other_names = POOLER
    head_fields = POOLING

    def __init__(self, config: TfmBertConfig):
        super().__init__(config)
        self.seq_relationship = nn.Linear(config.hidden_size, 2)
        self.post_init()

    def forward(self, inputs: Inputs, labels: torch.LongTensor | None = None, **kwargs) -> ModelOutput:
        """Gives `logits` `(batch, 2)`, and the loss of `labels` `(batch,)`, 0 where the second segment continues the
        first, 1 where it does not; inputs as for [`TfmBertModel`]."""
        check_labels(labels, given_in(inputs).shape[:1], 2, "the two classes")
        outputs = self.model(**inputs, return_dict=True, **kwargs)
        logits = self.seq_relationship(outputs.pooler_output)
        loss = None if labels is None else F.cross_entropy(logits, labels.view(-1))
        return self.headed(modeling_outputs.NextSentencePredictorOutput, outputs, loss=loss, logits=logits)


class TfmBertForMaskedLM(TfmBertHead):
    """The encoder with a masked-language-modelling head."""

    model_options = {"add_pooling_layer": False}
    _tied_weights_keys = {"lm_head.weight": "model.embeddings.embed_tokens.weight"}
    _tp_plan = {"lm_head": "colwise_rep"}
    head_fields = ("lm_head_act", "lm_head_transform", "lm_head_bias")

    def __init__(self, config: TfmBertConfig):
        super().__init__(config)
        width = config.embedding_size if config.lm_head_transform else config.hidden_size
        self.head = TfmPredictionHead(config, width) if config.lm_head_transform else None  # called before `lm_head`
        self.lm_head = nn.Linear(width, config.vocab_size, bias=config.lm_head_bias)
        self.post_init()

    def forward(
        self,
        inputs: Inputs,
        labels: torch.LongTensor | None = None,
        *,
        return_logits: bool | None = None,
        num_items_in_batch: int | torch.Tensor | None = None,
        **kwargs,
    ) -> modeling_outputs.MaskedLMOutput:
        """Called with the arguments of [`TfmBertModel`], which [`WithHead`] gathers into `inputs`. Gives the loss of
        the labels, and `logits` `(batch, length, vocab_size)`. At padding they are zero, unless `skip_padding=False`, a
        label stands there, the head has a hook, a row is empty, or a graph is made.

        Args:
            labels: `(batch, length)`, token ids, -100 where there is nothing to predict.
            return_logits: whether to make logits. `None`: unless training on labels. Where the head carries hooks, they
                are made in any case.
            num_items_in_batch: labelled tokens of the whole optimizer step, by which the summed loss is divided.
        """
        outputs, loss, logits = self.predict(inputs, labels, return_logits, num_items_in_batch, **kwargs)
        return self.headed(modeling_outputs.MaskedLMOutput, outputs, loss=loss, logits=logits)

    def predict(self, inputs: Inputs, labels, return_logits: bool | None, num_items=None, **kwargs) -> tuple:
        """The encoder's outputs, and the loss and the logits of the vocabulary, which [`forward`] describes."""
        check_labels(labels, given_in(inputs).shape[:2], self.config.vocab_size, VOCABULARY)
        # (An encoder computes all real tokens, whatever is read. A label at padding makes it compute padding, too.)
        read, mask, to_project = labelled(labels), inputs["attention_mask"], None
        outputs = self.model(**inputs, read_positions=read, return_dict=True, **kwargs)
        states, with_logits = outputs.last_hidden_state, makes_logits(self, labels, return_logits)
        if with_logits and self.config.skip_padding and is_pad_mask(mask) and not has_hooks(self.head, self.lm_head):
            to_project = KeptTokens.find(mask, read)  # (even if the encoder computed padding)
        if to_project is not None:
            states, labels = to_project.keep(states), labels if labels is None else to_project.keep(labels)
        loss, logits = vocabulary_outputs(self, states, labels, with_logits, num_items)
        return outputs, loss, (logits if to_project is None else to_project.restore(logits))


class TfmBertForReplacedTokenDetection(TfmBertHead):
    """The encoder with ELECTRA's head, which tells tokens that a generator has replaced (Clark et al. 2020)."""

    model_options = {"add_pooling_layer": False}

    def __init__(self, config: TfmBertConfig):
        super().__init__(config)
        dense, score = (nn.Linear(config.hidden_size, width) for width in (config.hidden_size, 1))
        self.detector = nn.Sequential(OrderedDict(dense=dense, act_fn=ACT2FN[config.hidden_act], out_proj=score))
        self.post_init()

    def forward(self, inputs: Inputs, labels: torch.LongTensor | None = None, **kwargs) -> ModelOutput:
        """Gives `logits` `(batch, length)`, above 0 where a token looks replaced, and the loss of `labels` of this
        shape (1 where it was, 0 where not; -100 and padding do not count); inputs as for [`TfmBertModel`]."""
        check_labels(labels, given_in(inputs).shape[:2], 2, "the two classes")
        outputs, mask = self.model(**inputs, return_dict=True, **kwargs), inputs["attention_mask"]
        logits = self.detector(outputs.last_hidden_state).squeeze(-1)
        loss = None
        if labels is not None:
            scores, targets = logits.float(), labels.float().clamp(min=0)
            weights = labelled(labels).to(scores)
            weights = weights * mask.to(weights) if is_pad_mask(mask) else weights
            loss = F.binary_cross_entropy_with_logits(scores, targets, weights, reduction="sum") / weights.sum()
        return self.headed(modeling_outputs.TokenClassifierOutput, outputs, loss=loss, logits=logits)


class TfmBertForPreTraining(TfmBertForMaskedLM):
    """The encoder with two pre-training heads: masked language modelling, and next sentences (ALBERT: their order)."""

    model_options = {"add_pooling_layer": True}
    other_names = POOLER
    head_fields = (*TfmBertForMaskedLM.head_fields, "sentence_dropout", *POOLING)

    def __init__(self, config: TfmBertConfig):
        super().__init__(config)
        self.dropout = nn.Dropout(config.sentence_dropout)
        self.seq_relationship = nn.Linear(config.hidden_size, 2)
        self.post_init()

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
        of the two losses: of `labels`, as for [`TfmBertForMaskedLM`], and of `next_sentence_label`, as the labels of
        [`TfmBertForNextSentencePrediction`]; inputs as for [`TfmBertModel`]."""
        rows = given_in(inputs).shape[:1]
        check_labels(next_sentence_label, rows, 2, "the two classes", name="next_sentence_label")
        outputs, loss, prediction_logits = self.predict(inputs, labels, return_logits, **kwargs)
        logits = self.seq_relationship(self.dropout(outputs.pooler_output))
        if next_sentence_label is not None:
            sentence_loss = F.cross_entropy(logits, next_sentence_label.view(-1))
            loss = sentence_loss if loss is None else loss + sentence_loss
        made = {"prediction_logits": prediction_logits, "seq_relationship_logits": logits}
        return self.headed(BertForPreTrainingOutput, outputs, loss=loss, **made)
