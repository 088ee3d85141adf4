"""The zoo's caches and masks in transformers' `generate`."""

from transformers import EncoderDecoderCache, GenerationMixin

from .cache import add_states, prepare_layers
from .compat import create_masks_for_generate


class TfmGenerationMixin(GenerationMixin):
    """transformers' generation, with caches that copy less."""

    def _prepare_cache_for_generation(self, generation_config, model_kwargs: dict, *args, **kwargs):
        is_callers = model_kwargs.get("past_key_values") is not None
        prepared = super()._prepare_cache_for_generation(generation_config, model_kwargs, *args, **kwargs)
        cache = model_kwargs.get("past_key_values")
        cache = cache.self_attention_cache if isinstance(cache, EncoderDecoderCache) else cache
        if is_callers:
            add_states(cache, self.config)  # before transformers asks for its length
        elif cache is not None:
            prepare_layers(cache, self.config)
        return prepared

    @staticmethod
    def create_masks_for_generate(config, **kwargs) -> dict:
        """A mask for each kind of layer of the decoder, made before a step that may be compiled."""
        return create_masks_for_generate(config=config.get_text_config(decoder=True), **kwargs)
