"""Methods of zoo models that only matter where `tfm_zoo` is: beside it, somebody derives classes, and resumes runs."""

import re

import torch

from ..models.pretrained import TfmPreTrainedModel


def init_subclass(cls, **kwargs) -> None:
    """Forgets the registration of the class above: the code of somebody's own class is saved once that is registered.
    (FSDP2 makes a subclass of the model's class.)"""
    super(TfmPreTrainedModel, cls).__init_subclass__(**kwargs)
    if not cls.__module__.startswith("torch."):
        cls._auto_class = vars(cls).get("_auto_class")


def load_from_state_dict(self, state_dict: dict[str, torch.Tensor], prefix: str, *args) -> None:
    """Lets `load_state_dict`, with which runs are resumed, find tensors under their `other_names` too."""
    expected = {name for name, _ in self.named_parameters()}
    for pattern, name in vars(type(self)).get("other_names", {}).items():
        for other in [key.removeprefix(prefix) for key in state_dict if key.startswith(prefix)]:
            if other not in expected and (renamed := re.sub(pattern, name, other)) in expected:
                state_dict[prefix + renamed] = state_dict.pop(prefix + other)
    super(TfmPreTrainedModel, self)._load_from_state_dict(state_dict, prefix, *args)
