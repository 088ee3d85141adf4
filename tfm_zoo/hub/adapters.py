"""Adapters of zoo models: each has a base that is found again."""

from typing import Any

from torch import nn

from ..models.pretrained import TfmPreTrainedModel


def check_base(model: nn.Module) -> None:
    """Refuses a converted model that lies in no folder as the base of an adapter, which would note no base.

    Raises:
        ValueError: with the way to a base.
    """
    if isinstance(model, TfmPreTrainedModel) and model.config.name_or_path and not model.name_or_path:
        name = type(model).__name__
        raise ValueError(
            f"This {name} was converted from {model.config.name_or_path!r} and is not in a folder yet. An "
            "adapter records where its base lives, so save the model and load it before you add one: "
            f"model.save_pretrained('my-zoo-model'); model = {name}.from_pretrained('my-zoo-model')."
        )


def add_adapter(self: TfmPreTrainedModel, adapter_config: Any, adapter_name: str | None = None) -> None:
    """As in transformers, for a model that is found again (see [`check_base`])."""
    check_base(self)
    super(TfmPreTrainedModel, self).add_adapter(adapter_config, adapter_name)
