"""How a model tells positions apart: the vectors or the angles of its positions, and how similar these are."""

from pathlib import Path

import numpy as np
import torch
from matplotlib.figure import Figure
from torch.nn import functional as F
from transformers import PreTrainedModel

from ..converters.token_positions import first_position
from ..models.configuration_tfm import TfmConfig
from ..models.positions import TfmRotaryEmbedding, TfmSinusoidalPositions
from .attention_maps import title_of
from .figures import LINES, SIGNED, check_suffix, plain, save

VISIBLE = 0.005  # the least difference in similarity that a picture shows
LONGEST = 512  # positions, if the caller does not say how many
#: positions that fit into a picture, where each is compared with each, and numbers of all of them together
MOST, NUMBERS = 8192, 1 << 26
#: what the channels and the similarities of positions are; for rotary positions and for all others
ROTARY_LABELS = (
    "pair of channels: the cosine of its angle, then likewise the sine",
    "dot product of queries and keys of ones,\nas a share of that at distance 0",
)
LABELS = ("channel", "cosine similarity")


def position_vectors(source: PreTrainedModel | TfmConfig, length: int | None = None) -> dict[str, torch.Tensor]:
    """The vector of each position, from the first one on.

    Learned positions: the rows of the table. Sinusoidal: the sinusoids (Vaswani et al. 2017). Rotary (Su et al. 2021):
    the cosines of the angles by which the pairs of channels turn, then their sines.

    Args:
        source: a zoo model, or its configuration if the positions are not learned.
        length: the number of positions. `None`: the model's `max_position_embeddings`, but at most 512.

    Returns:
        `(length, channels)` under the name ""; under "encoder" and "decoder" if these have tables of their own.

    Raises:
        ValueError: if the model has no positions, or fewer than `length`.
    """
    config = getattr(source, "config", source)
    if not str(getattr(config, "model_type", None)).startswith("tfm_"):
        raise ValueError(f"{type(source).__name__} is not a model of the zoo: tfm_zoo.from_official makes it one.")
    kind = config.position_embedding_type
    if kind == "none":
        raise ValueError("position_embedding_type='none': the model has no positions to show.")
    first = first_position(config)
    most = config.max_position_embeddings - (first if kind == "learned" else 0)
    length = min(most, LONGEST) if length is None else length
    most = min(most, MOST) if kind == "learned" else MOST
    if not 2 <= length <= most:
        raise ValueError(f"length {length} should be at least 2, and at most {most}.")
    if (width := config.position_size) * max(length, LONGEST) > NUMBERS and source is config:
        raise ValueError(f"hidden_size {width} should be at most {NUMBERS // max(length, LONGEST)} for this length.")
    positions = torch.arange(first, first + length)
    if kind == "sinusoidal":
        return {"": TfmSinusoidalPositions(config)(positions[None])[0]}
    if kind == "rotary":
        waves = TfmRotaryEmbedding(config)(torch.zeros(1), positions[None])  # the second half repeats the first
        return {"": torch.cat([wave[0].chunk(2, dim=-1)[0] for wave in waves], dim=-1)}
    if source is config:
        raise ValueError(
            "position_embedding_type='learned': positions are among the weights, which a configuration lacks; name a"
            " checkpoint instead, such as openai-community/gpt2."
        )
    base = source.base_model
    stacks = {name: getattr(base, name) for name in ("encoder", "decoder") if hasattr(base, name)} or {"": base}
    rows = positions + config.position_offset
    return {
        name: stack.embeddings.embed_positions.weight.detach().cpu()[rows].float() for name, stack in stacks.items()
    }


def similarity_by_distance(vectors: torch.Tensor) -> torch.Tensor:
    """The cosine similarity of two positions, by the distance between them.

    Args:
        vectors: `(length, channels)`.

    Returns:
        `(3, length)`, for the distances 0, 1, 2, ...: the mean over all pairs, and the 10 % and 90 % quantiles.
    """
    vectors = F.normalize(vectors.double(), dim=-1)
    similarity = vectors @ vectors.T
    quantiles = torch.tensor([0.1, 0.9], dtype=torch.double)
    pairs = [similarity.diagonal(distance) for distance in range(len(vectors))]
    return torch.stack([torch.cat((values.mean()[None], values.quantile(quantiles))) for values in pairs], dim=1)


def plot_positions(
    source: PreTrainedModel | TfmConfig, path: str | Path, length: int | None = None, title: str | None = None
) -> None:
    """Draw [`position_vectors`] as a heat map, and beside it [`similarity_by_distance`].

    Args:
        source, length: as for [`position_vectors`].
        path: the image file to write.
        title: the model's name. `None`: a model's own; a configuration lacks one.
    """
    check_suffix(path)
    tables = position_vectors(source, length)
    config = getattr(source, "config", source)
    kind = config.position_embedding_type
    channels, similarity = ROTARY_LABELS if kind == "rotary" else LABELS
    figure = Figure(figsize=(12, 0.6 + 4.4 * len(tables)), layout="constrained")
    rows = figure.subplots(len(tables), 2, squeeze=False, width_ratios=(1.25, 1))
    for (name, vectors), (left, right) in zip(tables.items(), rows, strict=True):
        table = vectors.numpy()
        largest = np.quantile(np.abs(table), 0.998)  # in a trained table a few channels are far larger
        image = left.imshow(table, cmap=SIGNED, vmin=-largest, vmax=largest, aspect="auto", interpolation="nearest")
        left.set(title=name, xlabel=channels, ylabel="position")
        if kind == "rotary":  # the sines, on the right, are of the same pairs
            pairs = table.shape[1] // 2
            numbers = range(0, pairs, max(1, pairs // 6))
            left.set_xticks([*numbers, *(pairs + number for number in numbers)], [*numbers, *numbers])
            left.axvline(pairs - 0.5, color="#888888", lw=0.8)
        figure.colorbar(image, ax=left, label="value", aspect=30, pad=0.01)

        mean, low, high = similarity_by_distance(vectors).numpy()
        distances, colour = range(len(mean)), LINES[0]
        is_band = (high - low).max() > VISIBLE
        if is_band:
            right.fill_between(distances, low, high, color=colour, alpha=0.2, lw=0, label="middle 80 % of the pairs")
        right.plot(mean, color=colour, label="mean" if is_band else "the same for all pairs")
        right.axhline(0, color="#888888", lw=0.8)
        right.set(title=name, xlabel="distance between two positions", ylabel=similarity, xlim=(0, len(mean) - 1))
        plain(right)
        right.legend(frameon=False)
    title = title or (title_of(source) if source is not config else None)
    name = f"{kind} positions, {vectors.shape[1]} channels"
    figure.suptitle(f"{title}: {name}" if title else name, fontsize=12, parse_math=False)
    save(figure, path)
