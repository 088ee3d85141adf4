"""Registers the zoo's classes with transformers' Auto classes, and lets models be saved with code and manifest."""

import transformers

from ..configurations.names import from_dict, new, post_init
from ..configurations.of_families import RULES_OF, fields_of_others
from ..families.auto_classes import FAMILIES, auto_class_of
from ..hub.adapters import add_adapter
from ..hub.saving import push_to_hub, save_pretrained
from ..inference import packing  # noqa: F401, registers what loads quantised checkpoints
from ..models.configuration_tfm import TfmConfig
from ..models.pretrained import TfmPreTrainedModel
from .methods import init_subclass, load_from_state_dict


def register() -> None:
    """Registers every class of every family under the names in its configuration's `auto_classes`, and the others."""
    for module, config_class in FAMILIES.items():
        transformers.AutoConfig.register(config_class.model_type, config_class, exist_ok=True)
        others = config_class.other_auto_classes
        for auto_name, first in config_class.auto_classes.items():
            if auto_name == "AutoConfig":
                continue
            names = [first, *(name for name in others if others[name] == auto_name)]
            # Of several classes, the Auto class takes the one that `config.architectures` names, or else the first.
            classes = tuple(getattr(module, name) for name in names)
            registered = classes if len(classes) > 1 else classes[0]
            getattr(transformers, auto_name).register(config_class, registered, exist_ok=True)
            for name, model_class in zip(names, classes, strict=True):
                # From now on `save_pretrained` writes the code beside the weights.
                model_class.register_for_auto_class(auto_class_of(config_class, name))
    for config_class, rules in RULES_OF.items():
        config_class.rules, config_class.lacks = rules, fields_of_others(config_class)
    # Not in the classes themselves, whose code travels with checkpoints: it computes, and leaves files to transformers.
    TfmConfig.__new__, TfmConfig.__post_init__ = staticmethod(new), post_init
    TfmConfig.from_dict = classmethod(from_dict)
    for method in (save_pretrained, push_to_hub, add_adapter):
        setattr(TfmPreTrainedModel, method.__name__, method)
    TfmPreTrainedModel._load_from_state_dict = load_from_state_dict
    TfmPreTrainedModel.__init_subclass__ = classmethod(init_subclass)
