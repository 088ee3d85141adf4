"""The decoder family: GPT's wiring and heads (Radford et al. 2018, 2019) around the shared block."""

from collections import OrderedDict

import torch
from torch import nn
from torch.nn import functional as F
from transformers import Cache, modeling_outputs
from transformers import initialization as init
from transformers.processing_utils import Unpack
from transformers.utils import TransformersKwargs, can_return_tuple
from transformers.utils.output_capturing import OutputRecorder

from .batch import CACHE, IGNORED, Tokens, is_pad_mask, labelled
from .cache import TfmGenerationMixin, take_cache
from .configuration_tfm_gpt import TfmGPTConfig
from .counted_alibi import CountedLayouts, TfmCountedAlibi
from .decoder_entrance import decoder_batch
from .experts import TfmExperts, TfmRouter, TfmSparseMLP, load_balancing_loss
from .heads import Inputs, QuestionAnswering, SequenceClassification, TfmPredictionHead, TokenClassification, WithHead
from .inputs import check_labels, given_in, one_of
from .layers import multiplier
from .losses import VOCABULARY, makes_logits, states_to_read, vocabulary_outputs
from .pretrained import TfmPreTrainedModel
from .stack import TfmStack


class TfmGPTPreTrainedModel(TfmPreTrainedModel):
    """Base of the family's models."""

    config_class = TfmGPTConfig
    _no_split_modules = ["TfmLayer"]
    _can_compile_fullgraph = True
    _can_record_outputs = TfmPreTrainedModel._can_record_outputs | {"router_logits": OutputRecorder(TfmRouter, index=0)}

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        super()._init_weights(module)
        if isinstance(module, TfmRouter | TfmExperts):
            for parameter in module.parameters():
                init.normal_(parameter, std=self.config.initializer_range)
        if getattr(module, "adds_to_residual", False):
            weight = module.down_proj if isinstance(module, TfmExperts) else module.weight
            init.normal_(weight, std=self.config.initializer_range * (2 * self.config.num_hidden_layers) ** -0.5)

    @classmethod
    def _can_set_experts_implementation(cls) -> bool:
        return True  # transformers would look for experts in this file


class TfmGPTModel(TfmStack, TfmGPTPreTrainedModel):
    """The decoder."""

    def __init__(self, config: TfmGPTConfig):
        super().__init__(config)
        self.add_stack(config.layer_types, config.vocab_size, is_causal=True)
        if config.position_embedding_type == "alibi" and config.position_ids_from_mask:
            self.position_bias, self.biased_layouts_class = TfmCountedAlibi(config), CountedLayouts
        for number, layer in enumerate(self.layers, start=1) if config.scale_attn_by_inverse_layer_idx else ():
            layer.self_attn.scaling /= number
        for name, module in self.layers.named_modules():
            module.adds_to_residual = config.scaled_residual_init and name.endswith(("o_proj", "down_proj", "experts"))
        self.post_init()

    def mlp_class(self, layer_idx: int) -> type[nn.Module]:
        return TfmSparseMLP if self.config.mlp_layer_types[layer_idx] == "sparse" else super().mlp_class(layer_idx)

    @classmethod
    def from_pretrained(cls, *args, **kwargs):
        """As in transformers. sentence-transformers pools the last token of what the configuration calls a
        `...ForCausalLM`. Official GPT and GPT-2 are not called so, and it pools the mean: here they get their class."""
        loaded = super().from_pretrained(*args, **kwargs)
        config = (loaded[0] if isinstance(loaded, tuple) else loaded).config
        if (config.official or {}).get("model_type") in ("openai-gpt", "gpt2"):
            config.architectures = [cls.__name__]
        return loaded

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
        read_positions: torch.Tensor | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> modeling_outputs.BaseModelOutputWithPastAndCrossAttentions:
        """
        Args:
            input_ids: `(batch, length)`, the tokens after those in the cache; or else `inputs_embeds`.
            attention_mask: `(batch, seen + length)`, 1 at real tokens and 0 at padding, those `seen` in the cache
                first; or `(batch, 1, length, seen + length)`; or a dict of those by type of layer.
            position_ids: `(batch or 1, length)`. `None`: counted from the cache's length over all tokens, padding
                included (but see `position_ids_from_mask`). Another document begins where positions of real tokens do
                not rise, and sees no other, unless a mask of 4 dimensions says so. A cache does not take such a row.
            past_key_values: any cache of transformers; it is written to.
            inputs_embeds: `(batch, length, embedding_size)`, in place of `input_ids`.
            token_type_ids: `(batch, length)`, read where the configuration gives them embeddings.
            use_cache: whether to return a cache. `None`: `config.use_cache`, but not while training.
            read_positions: `(batch, length)`, true where the caller reads the last hidden state. Padding, and what
                stands behind the last such position of a row, may then be zero. `None`: in training real
                tokens, else everywhere.
            kwargs: `output_hidden_states`, `output_attentions`, `return_dict`.

        Returns:
            `last_hidden_state` `(batch, length, output_size)`; `past_key_values`; `hidden_states` and `attentions`
            where asked for.

        Raises:
            ValueError: for inputs that do not fit each other, the cache or the model; the message names the value.
        """
        past_key_values = take_cache(past_key_values, kwargs)
        tokens = Tokens(one_of(input_ids, inputs_embeds), token_type_ids, position_ids)
        batch = decoder_batch(self, tokens, attention_mask, past_key_values, use_cache, kwargs, read_positions)
        return self.run(batch, position_ids=position_ids, **kwargs)


class TfmGPTHead(WithHead, TfmGPTPreTrainedModel):
    """The decoder, to which a subclass adds a head. `inputs` are the arguments of [`TfmGPTModel`]: see [`WithHead`]."""

    model_class = TfmGPTModel


class TfmGPTForCausalLM(TfmGPTHead, TfmGenerationMixin):
    """The decoder with a language-modelling head, by default tied to the embeddings."""

    _tied_weights_keys = {"lm_head.weight": "model.embeddings.embed_tokens.weight"}
    _tp_plan = {"lm_head": "colwise_rep"}
    head_fields = (*TfmPredictionHead.fields, "lm_head_bias", "logit_scale", "final_logit_softcapping")

    def __init__(self, config: TfmGPTConfig):
        super().__init__(config)
        has_layers, multiply = config.lm_head_transform, multiplier(config.logit_scale)
        width = config.embedding_size if has_layers else config.output_size  # as `embed_tokens`: they may be tied
        self.head = TfmPredictionHead(config, width) if has_layers else multiply  # called before `lm_head`
        self.lm_head = nn.Linear(width, config.vocab_size, bias=config.lm_head_bias)
        self.post_init()

    def forward(
        self,
        inputs: Inputs,
        labels: torch.LongTensor | None = None,
        *,
        logits_to_keep: int | torch.Tensor = 0,
        num_items_in_batch: int | torch.Tensor | None = None,
        return_logits: bool | None = None,
        **kwargs,
    ) -> modeling_outputs.CausalLMOutputWithPast | modeling_outputs.MoeCausalLMOutputWithPast:
        """Called with the arguments of [`TfmGPTModel`], which [`WithHead`] gathers into `inputs`. Gives the loss of the
        labels, and `logits` `(batch, positions, vocab_size)`.

        Args:
            labels: `(batch, length)`, token ids, -100 where there is nothing to predict. `labels[:, i + 1]` is what
                position `i` is to predict; or else `shift_labels` `(batch, length)` say it without this shift.
            logits_to_keep: how many positions, counted from the end, to make logits for, 0 for all; or which, as
                indices `(positions,)` or `(batch, positions)`, or true in `(batch, length)`.
            num_items_in_batch: labelled tokens of the whole optimizer step, by which the summed loss is divided.
            return_logits: whether to make logits. `None`: unless training on labels, where the loss is computed
                without ever holding those of all positions.
        """
        # (Not a parameter: the Trainer would take it for a second kind of labels, which no batch has.)
        targets, read = kwargs.pop("shift_labels", None), None
        if labels is not None or targets is not None:
            shape, name = given_in(inputs).shape[:2], "labels" if targets is None else "shift_labels"
            check_labels(labels, shape)  # (values are checked behind the shift)
            targets = F.pad(labels[:, 1:], (0, 1), value=IGNORED) if targets is None else targets
            check_labels(targets, shape, self.config.vocab_size, VOCABULARY, name=name)
            # The position of a label itself counts as read. Else only the last token of a full row would be left out,
            # and for that the whole batch would be copied.
            read = labelled(targets) if labels is None else labelled(targets) | labelled(labels)
        with_logits = makes_logits(self, targets, return_logits)
        read = states_to_read(read, with_logits)
        outputs = self.model(**inputs, read_positions=read, return_dict=True, **kwargs)
        states = outputs.last_hidden_state
        loss, logits = vocabulary_outputs(self, states, targets, with_logits, num_items_in_batch, logits_to_keep)
        if not (router_logits := outputs.get("router_logits")):
            return self.headed(modeling_outputs.CausalLMOutputWithPast, outputs, loss=loss, logits=logits)
        balance = load_balancing_loss(router_logits, self.config, inputs["attention_mask"])
        loss = None if loss is None else loss + self.config.router_aux_loss_coef * balance.to(loss.device)
        own = {"loss": loss, "logits": logits, "aux_loss": balance}
        return self.headed(modeling_outputs.MoeCausalLMOutputWithPast, outputs, **own)

    def prepare_inputs_for_generation(self, input_ids, past_key_values=None, inputs_embeds=None, cache=None, **kwargs):
        """As in transformers, which cuts `input_ids` to the last `next_sequence_length`. Where LongRoPE changes, no
        cache and no cut are passed: the model reads all of the text. (transformers looks for `inputs_embeds` in the
        signature. From 5.24 on, it passes `cache` in place of `past_key_values`.)"""
        cache = past_key_values if cache is None else cache
        if self.config.renew_longrope_cache and cache is not None:
            last = self.config.rope_parameters["original_max_position_embeddings"]
            if cache.get_seq_length() <= last < input_ids.shape[1]:
                cache = kwargs["next_sequence_length"] = None
        return super().prepare_inputs_for_generation(input_ids, inputs_embeds=inputs_embeds, **kwargs | {CACHE: cache})


class TfmGPTForSequenceClassification(SequenceClassification, TfmGPTHead):
    """The decoder with a classifier (or a regressor) on the last real token of each sequence."""

    output_class = modeling_outputs.SequenceClassifierOutputWithPast
    head_fields = TfmPredictionHead.fields

    def __init__(self, config: TfmGPTConfig):
        super().__init__(config)
        self.score = nn.Linear(config.output_size, config.num_labels, bias=False)
        if config.lm_head_transform:
            head, dropout = TfmPredictionHead(config, config.hidden_size), nn.Dropout(config.classifier_dropout)
            out_proj = nn.Linear(config.hidden_size, config.num_labels, bias=config.classifier_bias)
            self.score = nn.Sequential(OrderedDict(head=head, dropout=dropout, out_proj=out_proj))
        self.post_init()

    def candidates(self, inputs: Inputs) -> torch.BoolTensor:
        """Tokens that are not `pad_token_id` or, for embeddings and models without that id, not masked."""
        given, padding = given_in(inputs), self.config.pad_token_id
        ids, mask = inputs["input_ids"], inputs["attention_mask"]
        rows, length = given.shape[:2]
        if ids is not None and padding is not None:
            return ids != padding
        if is_pad_mask(mask):
            return mask[:, -length:] != 0
        if ids is None or rows == 1:
            return torch.ones((rows, length), dtype=torch.bool, device=given.device)
        raise ValueError(f"Neither attention_mask nor config.pad_token_id tells padding in {rows} sequences: give one.")

    def classify(self, states: torch.Tensor, inputs: Inputs) -> torch.Tensor:
        return self.score(states)


class TfmGPTForTokenClassification(TokenClassification, TfmGPTHead):
    """The decoder with a classifier on every position."""

    projection = "score"
    reads_behind_labels = True


class TfmGPTForQuestionAnswering(QuestionAnswering, TfmGPTHead):
    """The decoder with scores for the first and the last token of an answer."""
