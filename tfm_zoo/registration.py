"""Registers the zoo's classes with transformers' Auto classes, and lets their checkpoints carry their code."""

import transformers

from . import packing  # noqa: F401, registers what loads quantised checkpoints
from .models import modeling_tfm_bert, modeling_tfm_encoder_decoder, modeling_tfm_gpt

FAMILIES = {
    modeling_tfm_bert: modeling_tfm_bert.TfmBertConfig,
    modeling_tfm_gpt: modeling_tfm_gpt.TfmGPTConfig,
    modeling_tfm_encoder_decoder: modeling_tfm_encoder_decoder.TfmEncoderDecoderConfig,
}


def register() -> None:
    """Register every class of every family under the names in its configuration's `auto_classes`, and the others."""
    for module, config_class in FAMILIES.items():
        transformers.AutoConfig.register(config_class.model_type, config_class, exist_ok=True)
        for auto_name, name in config_class.auto_classes.items():
            if auto_name == "AutoConfig":
                continue
            others = [other for other, auto in config_class.other_auto_classes.items() if auto == auto_name]
            classes = tuple(getattr(module, each) for each in (name, *others))
            # Of several classes, the Auto class takes the one that `config.architectures` names, or else the first.
            registered = classes if others else classes[0]
            getattr(transformers, auto_name).register(config_class, registered, exist_ok=True)
            # From now on `save_pretrained` writes the code beside the weights. (Of several Auto classes it names one.)
            for model_class in classes:
                if model_class._auto_class is None:
                    model_class.register_for_auto_class(auto_name)
