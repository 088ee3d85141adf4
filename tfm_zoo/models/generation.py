"""What `generate` is told of models whose cache holds a state in the place of keys and values."""

from transformers import EncoderDecoderCache, GenerationMixin

from .cache import count_positions
from .compat import create_masks_for_generate


class TfmGenerationMixin(GenerationMixin):
    """transformers' generation, for every kind of attention."""

    def _prepare_cache_for_generation(self, generation_config, model_kwargs: dict, *args, **kwargs):
        prepared = super()._prepare_cache_for_generation(generation_config, model_kwargs, *args, **kwargs)
        cache = model_kwargs.get("past_key_values")
        own = cache.self_attention_cache if isinstance(cache, EncoderDecoderCache) else cache
        count_positions(own, self.config.get_text_config(decoder=True))  # before anybody asks it how long it is
        return prepared

    @staticmethod
    def create_masks_for_generate(config, **kwargs) -> dict:
        """A mask for each kind of layer that the decoder has, before a step that may be compiled."""
        return create_masks_for_generate(config=config.get_text_config(decoder=True), **kwargs)

    def _supports_default_dynamic_cache(self) -> bool:
        # For a source, transformers would make states as for the target, and ask them how many positions they hold: the
        # decoder makes its cache itself.
        return super()._supports_default_dynamic_cache() and not (self.config.is_encoder_decoder and self._is_stateful)
