"""A model zoo for Hugging Face transformers: one Transformer block, three families made from it.

Importing the package registers every class with transformers' `AutoConfig`, `AutoModel` and `AutoModelFor...`.
"""

from importlib.metadata import version

from .converters import ConversionError, from_official, to_official
from .models import modeling_tfm_bert
from .models.modeling_tfm_bert import *  # noqa: F403
from .registration import register

__version__ = version("tfm_zoo")
__all__ = ["ConversionError", "from_official", "to_official", *modeling_tfm_bert.__all__]

register()
