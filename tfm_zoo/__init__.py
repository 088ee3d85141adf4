"""A model zoo for Hugging Face transformers: one Transformer block, three families made from it.

Importing the package registers every class with transformers' `AutoConfig`, `AutoModel` and `AutoModelFor...`.
"""

import sys
from pathlib import Path

from .quiet import quiet_imports

__version__ = "0.3.0.dev0"


def _runs_the_command() -> bool:
    """Whether this process is `tfm-zoo` or `python -m tfm_zoo`, and not a program that imports the package."""
    match sys.orig_argv[1:]:
        case ["-m", "tfm_zoo", *_]:
            return True
        case [script, *_]:
            return Path(script).name in ("tfm-zoo", "tfm-zoo.exe")
    return False


# torch and transformers take seconds to import. The command, which imports this package before anything else, leaves
# them to its subcommands, so that `tfm-zoo --help` and `tfm-zoo list` answer at once. Everybody else gets it all here.
# (Lazy attributes would not do: registration has to come before the first `AutoModel`, not the first `tfm_zoo.name`.)
if not _runs_the_command():
    with quiet_imports():
        from .converters import ConversionError, from_official, to_official
        from .models import modeling_tfm_bert, modeling_tfm_encoder_decoder, modeling_tfm_gpt
        from .models.modeling_tfm_bert import *  # noqa: F403
        from .models.modeling_tfm_encoder_decoder import *  # noqa: F403
        from .models.modeling_tfm_gpt import *  # noqa: F403
        from .named_configs import NAMED_CONFIGS, named_config
        from .packing import TfmQuantizationConfig, pack_weights, quantize_int8
        from .patches import add_names_to_transformers, add_types_to_peft, ask_for_bases
        from .pipelines import pipeline
        from .registration import register

    __all__ = [
        "NAMED_CONFIGS",
        "ConversionError",
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

    register()
    add_names_to_transformers()
    add_types_to_peft()
    ask_for_bases()
