"""Positions that a checkpoint stores, sinusoids or frequencies: the zoo computes its own, which must be the same."""

from collections.abc import Mapping

import torch
from transformers import PreTrainedConfig

from ..models.positions import TfmRotaryEmbedding, TfmSinusoidalPositions
from .checkpoint import LazyTensor
from .errors import ConversionError
from .tensor_rules import Frequencies, Sinusoids, TensorRule, of_kind


def check_stored_positions(
    rules: tuple[TensorRule, ...], tensors: Mapping[str, LazyTensor], config: PreTrainedConfig, title: str
) -> None:
    """Raises a `ConversionError` for a table of positions, among official `tensors`, that is not what the zoo computes
    with this configuration. `title`: what holds them, for the message."""
    if config.position_embedding_type == "sinusoidal":
        check_sinusoids(of_kind(Sinusoids, rules, tensors), config, title)
    if config.position_embedding_type == "rotary":
        check_frequencies(of_kind(Frequencies, rules, tensors), config, title)


def check_frequencies(tables: Mapping[str, LazyTensor], config: PreTrainedConfig, title: str) -> None:
    """Raises a `ConversionError` for rotary frequencies, `(channels / 2,)`, that are not those of the configuration."""
    for name, tensor in tables.items():
        expected, _ = TfmRotaryEmbedding.compute_default_rope_parameters(config)
        if not torch.allclose(tensor.read().float().cpu(), expected, rtol=1e-5):
            raise ConversionError(
                f"{name} of {title} holds other frequencies than those of rope_parameters={config.rope_parameters}, "
                "such as rounded ones: the zoo computes its own."
            )


def check_sinusoids(tables: Mapping[str, LazyTensor], config: PreTrainedConfig, title: str) -> None:
    """Raises a `ConversionError` for a table that differs from the zoo's, `(positions, width)`, as a trained one does.

    Args:
        tables: the tables by name; dimensions of 1 do not count.
        title: what holds them, for the message.
    """
    for name, tensor in tables.items():
        shape, width = tuple(tensor.meta.shape), config.position_size
        if tensor.meta.squeeze().shape[1:] != (width,):
            raise ConversionError(
                f"{name} of {title} is of shape {shape}, and not (positions, {width}) as the zoo's sinusoids are."
            )
        table = tensor.read().squeeze()
        expected = TfmSinusoidalPositions(config).sinusoids(torch.arange(len(table), device=table.device))
        difference = (table.float() - expected).abs().amax(dim=1).cpu()
        bound = max(1e-3, torch.finfo(table.dtype).eps)  # it may be in float16
        if (difference > bound + torch.arange(len(table)) * 2**-22).any():  # float32 rounds larger angles more
            raise ConversionError(
                f"{name} of {title} is not the table of sinusoids that sinusoid_type={config.sinusoid_type!r} has: it "
                f"differs by {difference.max():.2g}, as after training. The zoo's is not trained."
            )
