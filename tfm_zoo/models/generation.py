"""The zoo's caches and masks in transformers' `generate`."""

import torch
from transformers import Cache, EncoderDecoderCache, GenerationMixin

from .cache import TfmSourceCache, add_states, prepare_layers, takes_source
from .compat import create_masks_for_generate


class TfmGenerationMixin(GenerationMixin):
    """transformers' generation, with caches that copy less."""

    def prepare_inputs_for_generation(
        self,
        input_ids: torch.LongTensor,
        past_key_values: Cache | None = None,
        inputs_embeds: torch.Tensor | None = None,  # listed: transformers inspects the signature for it
        **kwargs,
    ) -> dict:
        if self.config.renew_longrope_cache and past_key_values is not None:
            last = self.config.rope_parameters["original_max_position_embeddings"]
            if past_key_values.get_seq_length() <= last < input_ids.shape[1]:
                # The model then makes a cache, and reads the whole text again.
                past_key_values = kwargs["next_sequence_length"] = None
        kwargs |= {"past_key_values": past_key_values, "inputs_embeds": inputs_embeds}
        return super().prepare_inputs_for_generation(input_ids, **kwargs)

    def _prepare_cache_for_generation(self, generation_config, model_kwargs: dict, *args, **kwargs):
        caller_has_cache = model_kwargs.get("past_key_values") is not None
        prepared = super()._prepare_cache_for_generation(generation_config, model_kwargs, *args, **kwargs)
        cache = model_kwargs.get("past_key_values")
        if cache is None:
            return prepared
        decoder_cache = cache.self_attention_cache if isinstance(cache, EncoderDecoderCache) else cache
        if caller_has_cache:
            add_states(decoder_cache, self.config)  # before transformers asks for its length
            return prepared
        prepare_layers(decoder_cache, self.config)
        if isinstance(cache, EncoderDecoderCache):
            model_kwargs["past_key_values"] = self.with_source_cache(cache, model_kwargs)
        return prepared

    @staticmethod
    def with_source_cache(cache: EncoderDecoderCache, model_kwargs: dict) -> EncoderDecoderCache:
        """The cache, with a source that beams share; a static source of the right length stays as it is."""
        sources: Cache = cache.cross_attention_cache
        length = model_kwargs["encoder_outputs"][0].shape[1]
        is_static = any(hasattr(layer, "max_cache_len") for layer in sources.layers)
        if is_static and takes_source(sources, length):
            return cache
        return EncoderDecoderCache(cache.self_attention_cache, TfmSourceCache(offloading=sources.offloading))

    @staticmethod
    def create_masks_for_generate(config, **kwargs) -> dict:
        """A mask for each kind of layer of the decoder, made before a step that may be compiled."""
        return create_masks_for_generate(config=config.get_text_config(decoder=True), **kwargs)

    def _supports_default_dynamic_cache(self) -> bool:
        # transformers would give the source a cache of states like the target's; the decoder makes its cache itself.
        return super()._supports_default_dynamic_cache() and not (self.config.is_encoder_decoder and self._is_stateful)
