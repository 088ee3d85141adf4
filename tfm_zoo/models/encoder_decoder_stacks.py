"""The two stacks of the encoder-decoder family, the encoder by itself, and the base of the family's models."""

import torch
from torch import nn
from transformers import Cache, EncoderDecoderCache
from transformers import initialization as init
from transformers.modeling_outputs import BaseModelOutput, BaseModelOutputWithPastAndCrossAttentions

from .attention import TfmAttention
from .batch import Batch, Tokens, encoder_batch, has_hooks, one_of
from .cache import TfmSourceCache, source_cache, takes_source
from .compat import OutputRecorder, TransformersKwargs, Unpack, can_return_tuple, create_bidirectional_mask
from .configuration_tfm_encoder_decoder import TfmEncoderDecoderConfig
from .cross_attention import Source, TfmCrossAttention, TfmCrossLayer
from .decoder_batch import check_is_cache, decoder_batch
from .layout import (
    EVERYTHING,
    Layout,
    Padding,
    added_to_scores,
    are_few,
    find_padding,
    is_traced,
    marks_padding,
    together,
)
from .position_bias import TfmBiasTable
from .pretrained import TfmPreTrainedModel
from .stack import TfmStack
from .targets import check_encoder_states, check_source, real_tokens
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
            mask = real_tokens(self.config, input_ids, attention_mask)
            batch = encoder_batch(self, tokens, mask, read_positions, **kwargs)
        return BaseModelOutput(**batch.restore(self.run(batch, return_dict=True, **kwargs)))


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
        source_padding: Padding | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> BaseModelOutputWithPastAndCrossAttentions:
        """Inputs as the decoder's of [`TfmEncoderDecoderModel`], and:

        Args:
            encoder_hidden_states: `(batch, source length, hidden_size)`.
            encoder_attention_mask: `(batch, source length)`, 1 at real tokens and 0 at padding.
            batch: made by [`enter`], in place of the target's inputs.
            source_padding: the padding in `encoder_attention_mask`, if it is known.
        """
        if batch is None:
            check_encoder_states(self.config, encoder_hidden_states)
            batch = self.enter(
                Tokens(one_of(input_ids, inputs_embeds, self.argument_prefix), position_ids=position_ids),
                attention_mask,
                past_key_values,
                use_cache,
                source_shape=encoder_hidden_states.shape[:2],
                source_mask=encoder_attention_mask,
            )
        batch = self.with_source(batch, encoder_hidden_states, encoder_attention_mask, source_padding)
        # Flash attention sees packed sequences in the positions that a caller passes.
        return batch.restore(self.run(batch, position_ids=position_ids, return_dict=True, **kwargs))

    def enter(
        self,
        tokens: Tokens,
        attention_mask: torch.Tensor | dict[str, torch.Tensor] | None,
        past_key_values: Cache | None,
        use_cache: bool | None,
        source_shape: tuple[int, int],
        source_mask: torch.Tensor | None,
        read_positions: torch.Tensor | None = None,
        **kwargs,
    ) -> Batch:
        """Makes the decoder's batch, still without the source.

        Args:
            source_shape: (batch, source length).
            source_mask: of padding `(batch, source length)`, or 4-D, as cross-attention adds it to scores.
            read_positions: see [`decoder_batch`].

        Raises:
            ValueError: for inputs that do not fit each other, the source, the cache or the model.
        """
        check_is_cache(past_key_values)
        cache = past_key_values if isinstance(past_key_values, EncoderDecoderCache) else None
        target_cache = past_key_values if cache is None else cache.self_attention_cache
        batch = decoder_batch(self, tokens, attention_mask, target_cache, use_cache, read_positions, **kwargs)
        if batch.cache is None:  # as under gradient checkpointing
            cache = None
        check_source(self.config, source_shape, source_mask, tokens.inputs.shape[:2], cache)
        # An empty cache of the caller that does not fit the source is left alone.
        is_empty = cache is not None and not cache.is_updated.get(0)
        if is_empty and not takes_source(cache.cross_attention_cache, source_shape[1]):
            cache = None
        if cache is None and batch.cache is not None:
            cache = EncoderDecoderCache(batch.cache, TfmSourceCache())
        returned_cache = None if batch.returned_cache is None else cache
        return batch._replace(source=Source(cache=cache), returned_cache=returned_cache)

    def with_source(
        self,
        batch: Batch,
        encoder_hidden_states: torch.Tensor,
        attention_mask: torch.Tensor | None,
        padding: Padding | None = None,
    ) -> Batch:
        """Adds to the batch the states of the source, once for all beams of a sentence, and which of them are seen."""
        states, cache = encoder_hidden_states, batch.source.cache
        shared = source_cache(cache)
        is_first = cache is None or not cache.is_updated.get(0)
        if shared is not None and is_first:
            shared.share(states, attention_mask)
        beams = 1 if shared is None else shared.beams
        states = states[::beams] if beams > 1 else states
        source = Source(states, cache=cache, target_padding=batch.padding)
        if attention_mask is None:
            return batch._replace(source=source)
        if is_first and self.config.skip_padding:
            if padding is None or beams > 1:
                padding = find_padding(attention_mask[::beams])
            source = self.without_padding(source, padding)
        if source.layout is EVERYTHING:
            source = source._replace(layout=self.source_layout(batch, states, attention_mask))
        return batch._replace(source=source)

    def without_padding(self, source: Source, padding: Padding | None) -> Source:
        """The source without its padding; for few tokens with a layout, and nothing to restore."""
        target = source.target_padding
        # (Where the target's padding was dropped, hooks have been looked for.)
        if padding is None or (target is None and has_hooks(*self._modules.values())):
            return source
        states = padding.drop(source.states)
        if target is not None and target.mode == "together" and are_few(self.config, target, padding):
            return Source(states, layout=together(target, padding, states.dtype))
        return source._replace(states=states, padding=padding)

    def source_layout(self, batch: Batch, states: torch.Tensor, attention_mask: torch.Tensor) -> Layout:
        """Which of the states are seen. `generate` passes the same mask at every step: its layout is made once."""
        shared = source_cache(batch.source.cache)
        beams = 1 if shared is None else shared.beams
        # A mask made in inference mode has no version: nobody could tell that it was changed in place.
        is_kept = shared is not None and not is_traced(states) and not attention_mask.is_inference()
        made_for = (self.config._attn_implementation, attention_mask._version) if is_kept else None
        if is_kept and shared.masked_by is attention_mask and shared.made_for == made_for:
            return shared.layout
        # All positions of the target see the same keys; only flex attention needs to know how many there are.
        length = (batch.tokens.position_ids if batch.padding is None else batch.padding).shape[1]
        positions = beams * length if self.config._attn_implementation == "flex_attention" else 1
        mask = create_bidirectional_mask(
            config=self.config,
            inputs_embeds=states.new_empty(states.shape[0], positions, 0),
            attention_mask=attention_mask[::beams],
            encoder_hidden_states=states,
        )
        # With flash attention this is a mask of padding. transformers would apply it to queries too.
        keys = find_padding(mask, mode="cross") if marks_padding(mask) else None
        if is_kept and not self.training and keys is None and mask is not None and mask.dtype == torch.bool:
            mask = added_to_scores(mask, states.dtype)  # once, for all steps
        layout = Layout(mask) if keys is None else Layout(padding=keys)
        if is_kept and positions == 1:
            shared.masked_by, shared.made_for, shared.layout = attention_mask, made_for, layout
        return layout


class TfmEncoderAlone(TfmEncoderDecoderPreTrainedModel):
    """An encoder without a decoder; its tensors are named as in the whole model. `auto_map` names its subclass."""

    _keys_to_ignore_on_load_unexpected = [
        r"^(model\.)?decoder\.",
        r"^lm_head\.",
        r"^(classification_head|classifier|qa_outputs)\.",
    ]

    def __init__(self, config: TfmEncoderDecoderConfig):
        super().__init__(config)
        self.encoder = TfmEncoderStack(config)
        self.post_init()

    def get_input_embeddings(self) -> nn.Module:
        return self.encoder.get_input_embeddings()

    def set_input_embeddings(self, value: nn.Module) -> None:
        self.encoder.set_input_embeddings(value)

    @can_return_tuple
    def forward(
        self,
        input_ids: torch.LongTensor | None = None,
        attention_mask: torch.Tensor | None = None,
        inputs_embeds: torch.Tensor | None = None,
        position_ids: torch.LongTensor | None = None,
        token_type_ids: torch.LongTensor | None = None,
        read_positions: torch.Tensor | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> BaseModelOutput:
        """Inputs and outputs as for [`TfmBertModel`]; without a mask, `pad_token_id` says what is padding."""
        return self.encoder(
            input_ids=input_ids,
            attention_mask=attention_mask,
            inputs_embeds=inputs_embeds,
            position_ids=position_ids,
            token_type_ids=token_type_ids,
            read_positions=read_positions,
            return_dict=True,
            **kwargs,
        )
