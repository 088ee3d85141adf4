"""Attention maps as a web page of one file: a browser shows any layer and head, without a network."""

import json
import logging
from base64 import b64encode
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path

import torch

from .attention_maps import AttentionMap
from .figures import IMAGES, check_suffix

TEMPLATE, DATA = "attention_page.html", "{{DATA}}"
PAGES = (".html", ".htm")
LARGE = 32 * 2**20  # bytes of a page, from which on a browser takes its time
logger = logging.getLogger(__name__)


def attention_page(
    maps: Mapping[str, AttentionMap],
    path: str | Path,
    kind: str | None = None,
    layer: int | None = None,
    head: int | None = None,
) -> None:
    """Write a page with the maps of a model, of which it shows one at a time. A large one is logged.

    Args:
        maps: what [`attention_maps`] returns.
        path: the file to write.
        kind: which it shows first. `None`: the last, which of an encoder-decoder is "cross".
        layer: likewise. `None`: 0.
        head: likewise. `None`: 0.

    Raises:
        ValueError: for a kind, a layer or a head that is not there, or another suffix than a page's.
    """
    path = check_suffix(path, PAGES)
    first = choose(maps, kind)
    first.check(layer, head)
    data = {
        "model": first.model,
        "start": [first.kind, first.layers.index(layer) if layer is not None else 0, head or 0],
        "maps": {
            name: {
                "queries": attention.queries,
                "keys": attention.keys,
                "layers": list(attention.layers),
                "weights": [[encoded(head) for head in heads] for heads in attention.weights],
            }
            for name, attention in maps.items()
        },
    }
    before, after = (files(__package__) / TEMPLATE).read_text(encoding="utf-8").split(DATA)
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", encoding="utf-8") as page:
        page.write(before)
        for part in json.JSONEncoder(separators=(",", ":")).iterencode(data):
            page.write(part.replace("<", "\\u003c"))  # in a script element no text may look like markup
        page.write(after)
    size = path.stat().st_size
    if size > LARGE:
        logger.warning(
            f"{path} has {size / 2**20:.0f} MiB, which a browser takes a while to open: {', '.join(IMAGES)} are small."
        )


def encoded(weights: torch.Tensor) -> str:
    """`(queries, keys)` as base64, row by row: a byte a weight, on the square-root scale that it is drawn by."""
    return b64encode(weights.float().sqrt().mul(255).round().byte().numpy().tobytes()).decode()


def choose(maps: Mapping[str, AttentionMap], kind: str | None = None) -> AttentionMap:
    """The map of a kind; by default the last, which of an encoder-decoder is the cross-attention's.

    Raises:
        ValueError: for a kind that the model does not have.
    """
    if kind is None:
        return list(maps.values())[-1]
    if kind not in maps:
        model = next(iter(maps.values())).model
        raise ValueError(f"kind {kind!r}: {model} has attention of the kind {' or '.join(maps)}.")
    return maps[kind]
