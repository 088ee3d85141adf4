"""The two stacks of the encoder-decoder family, the block that reads the source, and the base of the models."""

import torch
from torch import nn
from transformers import Cache, EncoderDecoderCache
from transformers import initialization as init
from transformers.modeling_outputs import BaseModelOutput, BaseModelOutputWithPastAndCrossAttentions

from .batch import EVERYTHING, Batch, KeptTokens, Layout, Tokens
from .compat import ALL_ATTENTION_FUNCTIONS, OutputRecorder, TransformersKwargs, Unpack, can_return_tuple
from .configuration_tfm_encoder_decoder import TfmEncoderDecoderConfig
from .decoder_entrance import decoder_batch
from .entrance import encoder_batch
from .inputs import one_of
from .kernels import choose_kernel, dropout_rate, eager_attention_forward
from .layers import TfmAttention, TfmLayer
from .norms import norm_heads
from .padding import restore, restore_outputs
from .position_bias import TfmBiasTable
from .pretrained import TfmPreTrainedModel
from .source import check_encoder_states, check_source, default_mask, read_source, two_sided_cache
from .stack import TfmStack
from .vocabularies import TwoVocabularies


class TfmEncoderDecoderPreTrainedModel(TwoVocabularies, TfmPreTrainedModel):
    """Base of the family's models."""

    config_class = TfmEncoderDecoderConfig
    reads_target = False  # whether `forward` needs `decoder_input_ids`
    _no_split_modules = ["TfmLayer", "TfmCrossLayer"]  # not the embeddings, which the two stacks may share
    _can_compile_fullgraph = True

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        super()._init_weights(module)
        if self.config.weight_init == "xavier" and isinstance(module, nn.Linear):
            init.xavier_uniform_(module.weight)
        elif self.config.weight_init == "xavier" and isinstance(module, nn.Embedding):
            # (The rows of a bias are as wide as there are heads.)
            width = self.config.hidden_size if isinstance(module, TfmBiasTable) else module.embedding_dim
            init.normal_(module.weight, std=width**-0.5)
            if module.padding_idx is not None and not getattr(module.weight, "_is_hf_initialized", False):
                init.zeros_(module.weight[module.padding_idx])

    def get_expanded_tied_weights_keys(self, all_submodels: bool = False) -> dict[str, str]:
        """What is tied depends on `share_encoder_decoder_embeddings` too, not on `tie_word_embeddings` alone."""
        if all_submodels:
            return super().get_expanded_tied_weights_keys(all_submodels=True)
        return dict(self._tied_weights_keys or {})

    def init_parallel_plans(self) -> None:
        """Keeps the entries of the configuration's plans, which name both stacks, for modules that this model has."""
        super().init_parallel_plans()
        # Tensor parallelism cannot shard a bias that is a buffer: the head stays whole, with what it is tied to.
        whole = ("embed_tokens", "lm_head") if self.config.final_logits_bias else ()
        for name in ("_tp_plan", "_fsdp_plan"):
            plan = getattr(self, name).items()
            plan = {key: style for key, style in plan if hasattr(self, key.partition(".")[0])}
            setattr(self, name, {key: style for key, style in plan.items() if not key.endswith(whole)})


class TfmEncoderStack(TfmStack, TfmEncoderDecoderPreTrainedModel):
    """The encoder: its embeddings and its blocks."""

    def __init__(self, config: TfmEncoderDecoderConfig):
        super().__init__(config)
        self.add_stack([config.layer_type] * config.num_hidden_layers, config.vocab_size)
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        input_ids: torch.LongTensor | None = None,
        attention_mask: torch.Tensor | None = None,
        inputs_embeds: torch.Tensor | None = None,
        position_ids: torch.LongTensor | None = None,
        token_type_ids: torch.LongTensor | None = None,
        read_positions: torch.Tensor | None = None,
        batch: Batch | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> BaseModelOutput:
        """Inputs and outputs as documented at [`TfmEncoderDecoderEncoder`], and:

        Args:
            batch: made by [`encoder_batch`], in place of the inputs.
        """
        if batch is None:
            tokens = Tokens(one_of(input_ids, inputs_embeds), token_type_ids, position_ids)
            mask = default_mask(self.config, input_ids, attention_mask)
            batch = encoder_batch(self, tokens, mask, kwargs, read_positions)
        return BaseModelOutput(**restore_outputs(self.run(batch, return_dict=True, **kwargs), batch.kept))


class TfmCrossLayer(TfmLayer):
    """A [`TfmLayer`] with attention to the source, in slots of its own."""

    def add_attention(self, config, layer_idx: int, sizes, **options) -> None:
        super().add_attention(config, layer_idx, sizes=sizes, **options)
        cross_attention = TfmCrossAttention(config, layer_idx, layer_type="full_attention", sizes=sizes)
        self.add_sub_layer("encoder_attn", cross_attention, config)

    def forward(self, hidden_states: torch.Tensor, *source: object, **kwargs) -> torch.Tensor:
        """Hidden states `(batch, length, hidden_size)` in and out; `source` are the fields of a [`Source`]."""
        hidden_states, norm = self.attend(hidden_states, **kwargs), self.encoder_attn_norm
        attended = self.encoder_attn(hidden_states if self.is_post_norm else norm(hidden_states), *source)[0]
        slots = (norm, self.encoder_attn_output_norm, self.encoder_attn_dropout)
        return self.feed(self.add(hidden_states, attended, *slots))


class TfmCrossAttention(TfmAttention):
    """Attention of the decoder to the encoder's last hidden state, without positions and windows."""

    def forward(
        self,
        hidden_states: torch.Tensor,
        encoder_hidden_states: torch.Tensor,
        restored: KeptTokens | None = None,
        layout: Layout = EVERYTHING,
        past_key_values: EncoderDecoderCache | None = None,
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Returns what [`TfmAttention`] returns.

        Args:
            hidden_states: `(rows, length, hidden_size)`, the decoder's. Consecutive rows may read the same source, as
                the beams of a sentence do.
            encoder_hidden_states, restored, layout, past_key_values: the fields of a [`Source`], in their order and
                shapes; the states are not read once the cache holds their keys and values.
        """
        cache = None if past_key_values is None else past_key_values.cross_attention_cache
        if cache is not None and past_key_values.is_updated.get(self.layer_idx):
            key, value = cache.layers[self.layer_idx].keys, cache.layers[self.layer_idx].values
        else:
            key, value = self.k_proj(encoder_hidden_states), self.v_proj(encoder_hidden_states)
            if restored is not None:
                key, value = restore(key, restored), restore(value, restored)
            key, value = (each.unflatten(-1, (-1, self.head_dim)).transpose(1, 2) for each in (key, value))
            if self.k_norm is not None:
                key = norm_heads(self, self.k_norm, key)
            if cache is not None:
                key, value = cache.update(key, value, self.layer_idx)
                past_key_values.is_updated[self.layer_idx] = True

        rows, length, _ = hidden_states.shape
        # The rows that read one source are laid end to end, as if they were one row. (Where the layout names tokens of
        # the target, the whole batch is one row, which a kernel reads by bounds, or which is restored.)
        sources = key.shape[0] if layout.mode == "whole" else 1
        query = self.q_proj(hidden_states)  # tensor parallelism leaves some of the heads to other processes
        width, beams = query.shape[-1], max(rows, 1) // max(sources, 1)
        query = query.view(sources, beams * length, width // self.head_dim, self.head_dim).transpose(1, 2)
        if self.q_norm is not None:
            query = norm_heads(self, self.q_norm, query)
        implementation = self.config._attn_implementation
        attend = ALL_ATTENTION_FUNCTIONS.get_interface(implementation, eager_attention_forward)
        dropout = dropout_rate(self)
        attend = choose_kernel(attend, implementation, self, layout, query, dropout)
        options = {"dropout": dropout, "softcap": self.softcap}
        output, weights = attend(self, query, key, value, layout.mask, scaling=self.scaling, **options)
        if weights is not None and rows != sources:
            weights = weights.unflatten(2, (-1, length)).transpose(1, 2).flatten(0, 1)
        return self.o_proj(output.reshape(rows, length, width)), weights


class TfmDecoderStack(TfmStack, TfmEncoderDecoderPreTrainedModel):
    """The decoder: its embeddings and its blocks."""

    argument_prefix = "decoder_"
    layer_class = TfmCrossLayer
    _can_record_outputs = {
        "hidden_states": TfmCrossLayer,
        "attentions": OutputRecorder(TfmAttention, index=1, layer_name="self_attn"),
        "cross_attentions": OutputRecorder(TfmCrossAttention, index=1, layer_name="encoder_attn"),
    }

    def __init__(self, config: TfmEncoderDecoderConfig):
        super().__init__(config)
        self.add_stack(config.decoder_layer_types, config.decoder_vocab_size, is_causal=True)
        if config.norm_target_tokens:
            self.embeddings.token_projection, self.embeddings.norm = self.embeddings.norm, None
            self.embeddings.embed_tokens.embed_scale = 1.0
        self.post_init()

    @property
    def depth(self) -> int:
        return self.config.decoder_layers

    @can_return_tuple
    def forward(
        self,
        input_ids: torch.LongTensor | None = None,
        attention_mask: torch.Tensor | dict[str, torch.Tensor] | None = None,
        encoder_hidden_states: torch.Tensor | None = None,
        encoder_attention_mask: torch.Tensor | None = None,
        past_key_values: Cache | None = None,
        inputs_embeds: torch.Tensor | None = None,
        position_ids: torch.LongTensor | None = None,
        use_cache: bool | None = None,
        batch: Batch | None = None,
        source_kept: KeptTokens | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> BaseModelOutputWithPastAndCrossAttentions:
        """Inputs as the decoder's of [`TfmEncoderDecoderModel`], and:

        Args:
            encoder_hidden_states: `(batch, source length, hidden_size)`.
            encoder_attention_mask: the source's, as [`read_source`] takes it.
            batch: made by [`decoder_batch`], in place of the target's inputs but `past_key_values` and `position_ids`.
            source_kept: the real tokens in `encoder_attention_mask`, if they are known.
        """
        states, mask = encoder_hidden_states, encoder_attention_mask
        if batch is None:
            check_encoder_states(self.config, states)
            tokens = Tokens(one_of(input_ids, inputs_embeds, "decoder_"), position_ids=position_ids)
            batch = decoder_batch(self, tokens, attention_mask, past_key_values, use_cache, kwargs)
            check_source(self.config, states.shape[:2], mask, tokens, past_key_values)
        cache = two_sided_cache(past_key_values, batch, states.shape[1])
        source = read_source(self, states, mask, batch, cache, source_kept)
        # Flash attention recognises packed sequences by the positions that a caller passes.
        outputs = self.run(batch, source, position_ids=position_ids, return_dict=True, **kwargs)
        outputs.past_key_values = cache if batch.returns_cache else None  # of both sides: `run` knows the target's
        return restore_outputs(outputs, batch.kept)
