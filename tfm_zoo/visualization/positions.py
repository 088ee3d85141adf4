"""What a model adds, or turns, to tell positions apart; and how alike it makes them."""

from pathlib import Path

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch.nn import functional as F
from transformers import PreTrainedModel

from ..models.configuration_tfm import TfmConfig
from ..models.positions import TfmRotaryEmbedding, TfmSinusoidalPositions
from .attention_maps import title_of
from .figures import LINES, SIGNED, check_suffix, save

LONGEST = 512  # positions, where nobody says how many
CHANNELS = {
    "learned": "channel",
    "sinusoidal": "channel",
    "rotary": "pair of channels: the cosine of its angle, then likewise the sine",
}
SIMILARITY = {
    "learned": "cosine similarity",
    "sinusoidal": "cosine similarity",
    "rotary": "dot product of queries and keys of ones,\nas a share of that at distance 0",
}


def position_vectors(source: PreTrainedModel | TfmConfig, length: int | None = None) -> dict[str, torch.Tensor]:
    """The vector of each position, from the first on.

    Learned positions: rows of the table. Sinusoidal: the sinusoids (Vaswani et al. 2017). Rotary (Su et al. 2021): for
    each pair of channels the cosine of the angle that it is turned by, and then for each its sine.

    Args:
        source: a model of the zoo; or, for positions that are not learned, its configuration.
        length: how many positions. `None`: the model's `max_position_embeddings`, but at most 512.

    Returns:
        `(length, channels)`, under the name "" or, where they have tables of their own, "encoder" and "decoder".

    Raises:
        ValueError: for a model without positions, or with fewer.
    """
    config = getattr(source, "config", source)
    if not str(getattr(config, "model_type", None)).startswith("tfm_"):
        raise ValueError(f"{type(source).__name__} is none of the zoo: tfm_zoo.from_official makes it one.")
    kind = config.position_embedding_type
    if kind == "none":
        raise ValueError("position_embedding_type='none': the model has no positions to show.")
    first = config.pad_token_id + 1 if config.position_ids_from_padding else 0
    most = config.max_position_embeddings - (first if kind == "learned" else 0)
    length = min(most, LONGEST) if length is None else length
    if length < 2 or (kind == "learned" and length > most):
        raise ValueError(f"length {length} should be at least 2" + f", and at most {most}." * (kind == "learned"))
    positions = torch.arange(first, first + length)
    if kind == "sinusoidal":
        return {"": TfmSinusoidalPositions(config).sinusoids(positions)}
    if kind == "rotary":
        waves = TfmRotaryEmbedding(config)(torch.zeros(1), positions[None])  # the second half repeats the first
        return {"": torch.cat([wave[0].chunk(2, dim=-1)[0] for wave in waves], dim=-1)}
    if source is config:
        raise ValueError("position_embedding_type='learned': the table is the model's; a configuration has none.")
    base = source.base_model
    stacks = {name: getattr(base, name) for name in ("encoder", "decoder") if hasattr(base, name)} or {"": base}
    rows = positions + config.position_offset
    return {
        name: stack.embeddings.embed_positions.weight.detach()[rows.to(stack.device)].float().cpu()
        for name, stack in stacks.items()
    }


def similarity_by_distance(vectors: torch.Tensor) -> torch.Tensor:
    """Cosine similarity of any two positions, by how far they are apart.

    Args:
        vectors: `(length, channels)`.

    Returns:
        `(3, length)`, for the distances from 0 on: the mean of all pairs, and the bounds of the middle 80 % of them.
    """
    vectors = F.normalize(vectors.double(), dim=-1)
    similarity = vectors @ vectors.T
    shares = torch.tensor([0.1, 0.9], dtype=torch.double)
    found = []
    for distance in range(len(vectors)):
        pairs = similarity.diagonal(distance)
        found.append(torch.cat((pairs.mean()[None], pairs.quantile(shares))))
    return torch.stack(found, dim=1)


def plot_positions(source: PreTrainedModel | TfmConfig, path: str | Path, length: int | None = None) -> None:
    """Draw [`position_vectors`] as a heat map, and beside it [`similarity_by_distance`].

    Raises:
        ValueError: as [`position_vectors`], and for a suffix that is no picture's.
    """
    check_suffix(path)
    tables = position_vectors(source, length)
    config = getattr(source, "config", source)
    figure = Figure(figsize=(12, 0.6 + 4.4 * len(tables)), layout="constrained")
    rows = figure.subplots(len(tables), 2, squeeze=False, width_ratios=(1.25, 1))
    for (name, vectors), (left, right) in zip(tables.items(), rows, strict=True):
        draw_vectors(figure, left, vectors)
        left.set_xlabel(CHANNELS[config.position_embedding_type])
        draw_similarity(right, vectors)
        right.set_ylabel(SIMILARITY[config.position_embedding_type])
        left.set_title(name)
        right.set_title(name)
    title = title_of(source) if source is not config else type(config).__name__
    kind = config.position_embedding_type
    figure.suptitle(f"{title}: {kind} positions", fontsize=12, parse_math=False)
    save(figure, path)


def draw_vectors(figure: Figure, panel: Axes, vectors: torch.Tensor) -> None:
    largest = np.quantile(vectors.abs(), 0.998)  # a few channels of a trained table stand out far
    image = panel.imshow(vectors, cmap=SIGNED, vmin=-largest, vmax=largest, aspect="auto", interpolation="nearest")
    panel.set_ylabel("position")
    figure.colorbar(image, ax=panel, label="value", aspect=30, pad=0.01)


def draw_similarity(panel: Axes, vectors: torch.Tensor) -> None:
    mean, low, high = similarity_by_distance(vectors)
    panel.fill_between(range(len(mean)), low, high, color=LINES[0], alpha=0.2, lw=0, label="middle 80 % of the pairs")
    panel.plot(mean, color=LINES[0], label="mean")
    panel.axhline(0, color="#888888", lw=0.8)
    panel.set_xlim(0, len(mean) - 1)
    panel.set_xlabel("distance between two positions")
    panel.grid(alpha=0.25)
    panel.spines[["top", "right"]].set_visible(False)
    panel.legend(frameon=False)
