"""A model zoo for Hugging Face transformers: one Transformer block, three families made from it.

Importing the package registers every class with transformers' `AutoConfig`, `AutoModel` and `AutoModelFor...`.
"""

from importlib.metadata import version

from .converters import ConversionError, from_official, to_official
from .models import modeling_tfm_bert, modeling_tfm_encoder_decoder, modeling_tfm_gpt
from .models.modeling_tfm_bert import *  # noqa: F403
from .models.modeling_tfm_encoder_decoder import *  # noqa: F403
from .models.modeling_tfm_gpt import *  # noqa: F403
from .named_configs import NAMED_CONFIGS, named_config
from .quantization import quantize_int8
from .registration import register

__version__ = version("tfm_zoo")
__all__ = [
    "NAMED_CONFIGS",
    "ConversionError",
    "from_official",
    "named_config",
    "quantize_int8",
    "to_official",
    *modeling_tfm_bert.__all__,
    *modeling_tfm_encoder_decoder.__all__,
    *modeling_tfm_gpt.__all__,
]

register()
