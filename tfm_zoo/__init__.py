"""A model zoo for Hugging Face transformers: one Transformer block, three families made from it.

Importing the package registers every class with transformers' `AutoConfig`, `AutoModel` and `AutoModelFor...`.
"""

from .converters import ConversionError, from_official, to_official  # noqa: F401
from .models.modeling_tfm_bert import *  # noqa: F403
from .registration import register

register()
