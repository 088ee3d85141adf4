"""The zoo's caches and masks in transformers' `generate`."""

from transformers import Cache, EncoderDecoderCache, GenerationMixin

from .cache import TfmSourceCache, add_states, prepare_layers, takes_source
from .compat import create_masks_for_generate


class TfmGenerationMixin(GenerationMixin):
    """transformers' generation, with caches that copy less."""

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
