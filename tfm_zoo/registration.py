"""Registers the zoo's classes with transformers' Auto classes, and lets their checkpoints carry their code."""

import transformers

from . import packing  # noqa: F401, registers what loads quantised checkpoints
from .adapters import add_adapter
from .models import modeling_tfm_bert, modeling_tfm_encoder_decoder, modeling_tfm_gpt
from .models.configuration_tfm import TfmConfig
from .models.pretrained import TfmPreTrainedModel

FAMILIES = {
    modeling_tfm_bert: modeling_tfm_bert.TfmBertConfig,
    modeling_tfm_gpt: modeling_tfm_gpt.TfmGPTConfig,
    modeling_tfm_encoder_decoder: modeling_tfm_encoder_decoder.TfmEncoderDecoderConfig,
}


def register() -> None:
    """Registers every class of every family under the names in its configuration's `auto_classes`, and the others."""
    for module, config_class in FAMILIES.items():
        transformers.AutoConfig.register(config_class.model_type, config_class, exist_ok=True)
        others = config_class.other_auto_classes
        for auto_name in config_class.auto_classes.keys() - {"AutoConfig"}:
            names = [config_class.auto_classes[auto_name], *(name for name in others if others[name] == auto_name)]
            # Of several classes, the Auto class takes the one that `config.architectures` names, or else the first.
            classes = tuple(getattr(module, name) for name in names)
            registered = classes if len(classes) > 1 else classes[0]
            getattr(transformers, auto_name).register(config_class, registered, exist_ok=True)
            for name, model_class in zip(names, classes, strict=True):
                # From now on `save_pretrained` writes the code beside the weights.
                model_class.register_for_auto_class(auto_class_of(config_class, name))
    # Of a model that was converted in memory: no checkpoint's own code has to know of this.
    TfmPreTrainedModel.add_adapter = add_adapter


def auto_class_of(config_class: type[TfmConfig], name: str) -> str | None:
    """The Auto class that loads the class `name`; of several, the most general, which has the shortest name."""
    autos = [auto for auto, target in config_class.auto_classes.items() if target == name]
    return config_class.other_auto_classes.get(name) or min(autos, key=len, default=None)
