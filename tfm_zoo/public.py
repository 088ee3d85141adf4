"""The public names of `tfm_zoo`, which takes them from here when the first of them is asked for."""

from .converters import ConversionError, from_official, to_official
from .corpus import CorpusReader
from .models import modeling_tfm_bert, modeling_tfm_encoder_decoder, modeling_tfm_gpt
from .models.modeling_tfm_bert import *  # noqa: F403
from .models.modeling_tfm_encoder_decoder import *  # noqa: F403
from .models.modeling_tfm_gpt import *  # noqa: F403
from .named_configs import NAMED_CONFIGS, named_config
from .packing import TfmQuantizationConfig, pack_weights, quantize_int8
from .pipelines import pipeline

__all__ = [
    "NAMED_CONFIGS",
    "ConversionError",
    "CorpusReader",
    "TfmQuantizationConfig",
    "from_official",
    "named_config",
    "pack_weights",
    "pipeline",
    "quantize_int8",
    "to_official",
    *modeling_tfm_bert.__all__,
    *modeling_tfm_encoder_decoder.__all__,
    *modeling_tfm_gpt.__all__,
]
