"""The decoder family: GPT's wiring and heads (Radford et al. 2018, 2019) around the shared block."""

import torch
from torch import nn
from torch.nn import functional as F
from transformers import Cache
from transformers import initialization as init
from transformers.modeling_outputs import (
    BaseModelOutputWithPast,
    CausalLMOutputWithPast,
    QuestionAnsweringModelOutput,
    SequenceClassifierOutputWithPast,
    TokenClassifierOutput,
)

from .compat import TransformersKwargs, Unpack, can_return_tuple
from .configuration_tfm_gpt import TfmGPTConfig
from .decoder import TfmDecoder
from .generation import TfmGenerationMixin
from .inputs import IGNORED, check_label_ids, check_labels, one_of
from .losses import labelled_only, logits_loss, select_positions, vocabulary_loss
from .pretrained import TfmPreTrainedModel
from .unpadding import marks_padding


class TfmGPTPreTrainedModel(TfmPreTrainedModel):
    """Base of the family's models."""

    config_class = TfmGPTConfig
    _no_split_modules = ["TfmLayer"]
    _can_compile_fullgraph = True

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        super()._init_weights(module)
        if getattr(module, "adds_to_residual", False):
            init.normal_(module.weight, std=self.config.initializer_range * (2 * self.config.num_hidden_layers) ** -0.5)


class TfmGPTModel(TfmDecoder, TfmGPTPreTrainedModel):
    """The decoder."""

    def __init__(self, config: TfmGPTConfig):
        super().__init__(config)
        self.add_stack(is_causal=True)
        for layer in self.layers:
            layer.self_attn.o_proj.adds_to_residual = config.scaled_residual_init
            layer.mlp.down_proj.adds_to_residual = config.scaled_residual_init
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        input_ids: torch.LongTensor | None = None,
        attention_mask: torch.Tensor | dict[str, torch.Tensor] | None = None,
        position_ids: torch.LongTensor | None = None,
        past_key_values: Cache | None = None,
        inputs_embeds: torch.Tensor | None = None,
        token_type_ids: torch.LongTensor | None = None,
        use_cache: bool | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> BaseModelOutputWithPast:
        """
        Args:
            input_ids: `(batch, length)`, the tokens that the cache does not hold; or else `inputs_embeds`.
            attention_mask: `(batch, seen + length)`, 1 at real tokens and 0 at padding, those `seen` in the cache
                first; or `(batch, 1, length, seen + length)`; or a dict of those by type of layer.
            position_ids: `(batch or 1, length)`. `None`: counted from the cache's length over all tokens, padding
                included. Where they begin anew in a row, without a mask and a cache, it is read as several sequences
                packed into one, which do not see each other.
            past_key_values: any cache of transformers; it is written to.
            inputs_embeds: `(batch, length, hidden_size)`, in place of `input_ids`.
            token_type_ids: `(batch, length)`, read where the configuration gives them embeddings.
            use_cache: whether to return a cache. `None`: `config.use_cache`, but not while training.
            kwargs: `output_hidden_states`, `output_attentions`, `return_dict`.

        Returns:
            `last_hidden_state` `(batch, length, hidden_size)`; `past_key_values`; `hidden_states` and `attentions`
            where asked for.

        Raises:
            ValueError: for inputs that do not fit each other, the cache or the model; the message names the value.
        """
        return self.decode(
            input_ids,
            attention_mask,
            position_ids,
            past_key_values,
            inputs_embeds,
            token_type_ids,
            use_cache,
            **kwargs,
        )


class TfmGPTForCausalLM(TfmGPTPreTrainedModel, TfmGenerationMixin):
    """The decoder with a language-modelling head, by default tied to the embeddings."""

    _tied_weights_keys = {"lm_head.weight": "model.embeddings.embed_tokens.weight"}
    _tp_plan = {"lm_head": "colwise_gather_output"}

    def __init__(self, config: TfmGPTConfig):
        super().__init__(config)
        self.model = TfmGPTModel(config)
        self.lm_head = nn.Linear(config.hidden_size, config.vocab_size, bias=False)
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        input_ids: torch.LongTensor | None = None,
        attention_mask: torch.Tensor | dict[str, torch.Tensor] | None = None,
        position_ids: torch.LongTensor | None = None,
        past_key_values: Cache | None = None,
        inputs_embeds: torch.Tensor | None = None,
        labels: torch.LongTensor | None = None,
        token_type_ids: torch.LongTensor | None = None,
        use_cache: bool | None = None,
        logits_to_keep: int | torch.Tensor = 0,
        num_items_in_batch: int | torch.Tensor | None = None,
        return_logits: bool | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> CausalLMOutputWithPast:
        """Inputs as for [`TfmGPTModel`], and:

        Args:
            labels: `(batch, length)`, token ids, -100 where there is nothing to predict: `labels[:, i + 1]` is what
                position `i` is to predict, so that `labels=input_ids` trains on all of a text.
            logits_to_keep: how many positions, counted from the end, to make logits for, 0 for all; or which, as
                indices `(positions,)` or `(batch, positions)`, or true in `(batch, length)`.
            num_items_in_batch: labelled tokens of the whole optimizer step, which the summed loss is divided by.
            return_logits: whether to make logits. `None`: unless training on labels, where the loss is computed
                without ever holding those of all positions.
            kwargs: also `shift_labels` `(batch, length)`, in place of `labels`: what each position is to predict.
        """
        inputs = one_of(input_ids, inputs_embeds)
        # No parameter of its own: the Trainer would take it for a second kind of labels, which no batch has.
        shift_labels = kwargs.pop("shift_labels", None)
        if shift_labels is None and labels is not None:
            check_labels(labels, inputs.shape[:2], None, "")
            shift_labels = F.pad(labels[:, 1:], (0, 1), value=IGNORED)
        vocabulary = (self.config.vocab_size, "the vocabulary (vocab_size)")
        check_labels(shift_labels, inputs.shape[:2], *vocabulary, name="shift_labels" if labels is None else "labels")
        outputs = self.model(
            input_ids,
            attention_mask,
            position_ids,
            past_key_values,
            inputs_embeds,
            token_type_ids,
            use_cache,
            **kwargs | {"return_dict": True},
        )
        hidden_states, loss, logits = outputs.last_hidden_state, None, None
        if return_logits or (return_logits is None and not (self.training and shift_labels is not None)):
            logits = self.lm_head(select_positions(hidden_states, logits_to_keep))
        if shift_labels is not None and logits is not None and logits.shape[:-1] == shift_labels.shape:
            loss = logits_loss(logits, shift_labels, num_items_in_batch)
        elif shift_labels is not None:
            states, targets = labelled_only(hidden_states, shift_labels)
            loss = vocabulary_loss(states, self.lm_head, targets, num_items_in_batch)
        return CausalLMOutputWithPast(
            loss=loss,
            logits=logits,
            past_key_values=outputs.past_key_values,
            hidden_states=outputs.hidden_states,
            attentions=outputs.attentions,
        )


class TfmGPTForSequenceClassification(TfmGPTPreTrainedModel):
    """The decoder with a classifier (or a regressor) on the last real token of each sequence."""

    accepts_loss_kwargs = False

    def __init__(self, config: TfmGPTConfig):
        super().__init__(config)
        self.num_labels = config.num_labels
        self.model = TfmGPTModel(config)
        self.score = nn.Linear(config.hidden_size, config.num_labels, bias=False)
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        input_ids: torch.LongTensor | None = None,
        attention_mask: torch.Tensor | None = None,
        position_ids: torch.LongTensor | None = None,
        past_key_values: Cache | None = None,
        inputs_embeds: torch.Tensor | None = None,
        labels: torch.Tensor | None = None,
        token_type_ids: torch.LongTensor | None = None,
        use_cache: bool | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> SequenceClassifierOutputWithPast:
        """Inputs as for [`TfmGPTModel`], and:

        Args:
            labels: `(batch,)` classes or values, or `(batch, num_labels)`; `config.problem_type` says which, and is
                set from the labels where it is `None`.
        """
        check_label_ids(labels, one_of(input_ids, inputs_embeds).shape[:1], self.num_labels)
        last = self.last_real(input_ids, inputs_embeds, attention_mask)
        outputs = self.model(
            input_ids,
            attention_mask,
            position_ids,
            past_key_values,
            inputs_embeds,
            token_type_ids,
            use_cache,
            **kwargs | {"return_dict": True},
        )
        hidden_states = outputs.last_hidden_state
        rows = torch.arange(len(hidden_states), device=hidden_states.device)
        logits = self.score(hidden_states[rows, last.to(hidden_states.device)])
        loss = None
        if labels is not None:
            loss = self.loss_function(labels=labels, pooled_logits=logits, config=self.config)
        return SequenceClassifierOutputWithPast(
            loss=loss,
            logits=logits,
            past_key_values=outputs.past_key_values,
            hidden_states=outputs.hidden_states,
            attentions=outputs.attentions,
        )

    def last_real(
        self,
        input_ids: torch.LongTensor | None,
        inputs_embeds: torch.Tensor | None,
        attention_mask: torch.Tensor | None,
    ) -> torch.LongTensor:
        """`(batch,)`, where the last token stands that is not padding.

        That is: not `pad_token_id`, as in the native classes, or, for embeddings and for a model without that id, not
        masked.
        """
        inputs, padding = one_of(input_ids, inputs_embeds), self.config.pad_token_id
        batch, length = inputs.shape[:2]
        if input_ids is not None and padding is not None:
            real = input_ids != padding
        elif marks_padding(attention_mask):
            real = attention_mask[:, -length:] != 0
        elif input_ids is None or batch == 1:
            return torch.full((batch,), length - 1, device=inputs.device)
        else:
            raise ValueError(
                f"Which of the tokens of {batch} sequences is the last that is not padding? Neither attention_mask "
                "nor config.pad_token_id says it: give one of them."
            )
        return (real * torch.arange(length, device=real.device)).argmax(dim=-1)


class TfmGPTForTokenClassification(TfmGPTPreTrainedModel):
    """The decoder with a classifier on every position."""

    def __init__(self, config: TfmGPTConfig):
        super().__init__(config)
        self.num_labels = config.num_labels
        self.model = TfmGPTModel(config)
        self.dropout = nn.Dropout(config.classifier_dropout)
        self.score = nn.Linear(config.hidden_size, config.num_labels)
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        input_ids: torch.LongTensor | None = None,
        attention_mask: torch.Tensor | None = None,
        position_ids: torch.LongTensor | None = None,
        past_key_values: Cache | None = None,
        inputs_embeds: torch.Tensor | None = None,
        labels: torch.LongTensor | None = None,
        token_type_ids: torch.LongTensor | None = None,
        use_cache: bool | None = None,
        num_items_in_batch: int | torch.Tensor | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> TokenClassifierOutput:
        """Inputs as for [`TfmGPTModel`], and:

        Args:
            labels: `(batch, length)`, classes, -100 where there is none.
            num_items_in_batch: labelled tokens of the whole optimizer step, which the summed loss is divided by.
        """
        inputs = one_of(input_ids, inputs_embeds)
        check_labels(labels, inputs.shape[:2], self.num_labels, "the classes (num_labels)")
        outputs = self.model(
            input_ids,
            attention_mask,
            position_ids,
            past_key_values,
            inputs_embeds,
            token_type_ids,
            use_cache,
            **kwargs | {"return_dict": True},
        )
        logits = self.score(self.dropout(outputs.last_hidden_state))
        loss = None
        if labels is not None:
            loss = self.loss_function(logits, labels, config=self.config, num_items_in_batch=num_items_in_batch)
        return TokenClassifierOutput(
            loss=loss, logits=logits, hidden_states=outputs.hidden_states, attentions=outputs.attentions
        )


class TfmGPTForQuestionAnswering(TfmGPTPreTrainedModel):
    """The decoder with scores for the first and the last token of an answer."""

    accepts_loss_kwargs = False

    def __init__(self, config: TfmGPTConfig):
        super().__init__(config)
        self.model = TfmGPTModel(config)
        self.qa_outputs = nn.Linear(config.hidden_size, 2)
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        input_ids: torch.LongTensor | None = None,
        attention_mask: torch.Tensor | None = None,
        position_ids: torch.LongTensor | None = None,
        past_key_values: Cache | None = None,
        inputs_embeds: torch.Tensor | None = None,
        start_positions: torch.LongTensor | None = None,
        end_positions: torch.LongTensor | None = None,
        token_type_ids: torch.LongTensor | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> QuestionAnsweringModelOutput:
        """Inputs as for [`TfmGPTModel`], and:

        Args:
            start_positions: `(batch,)`, the answer's first position; one outside the sequence is left out of the loss.
            end_positions: `(batch,)`, its last.

        Returns:
            `start_logits` and `end_logits`, each `(batch, length)`.
        """
        inputs = one_of(input_ids, inputs_embeds)
        for name, labels in (("start_positions", start_positions), ("end_positions", end_positions)):
            check_labels(labels, inputs.shape[:1], None, "", name=name)
        outputs = self.model(
            input_ids,
            attention_mask,
            position_ids,
            past_key_values,
            inputs_embeds,
            token_type_ids,
            **kwargs | {"return_dict": True},
        )
        logits = self.qa_outputs(outputs.last_hidden_state)
        start_logits, end_logits = (scores.squeeze(-1).contiguous() for scores in logits.split(1, dim=-1))
        loss = None
        if start_positions is not None and end_positions is not None:
            loss = self.loss_function(start_logits, end_logits, start_positions, end_positions)
        return QuestionAnsweringModelOutput(
            loss=loss,
            start_logits=start_logits,
            end_logits=end_logits,
            hidden_states=outputs.hidden_states,
            attentions=outputs.attentions,
        )


__all__ = ["TfmGPTConfig", *TfmGPTConfig.auto_classes.values(), "TfmGPTPreTrainedModel"]
