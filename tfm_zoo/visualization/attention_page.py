"""Attention maps as one HTML file, in which a reader looks through all layers and heads without a network."""

import json
import logging
from base64 import b64encode
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path

import torch

from .attention import AttentionMap, choose
from .figures import IMAGES, check_suffix

TEMPLATE, DATA = "attention_page.html", "{{DATA}}"
PAGES = (".html", ".htm")
LARGE = 32 * 2**20  # bytes; a browser takes a while to open a larger page
logger = logging.getLogger(__name__)


def attention_page(
    maps: Mapping[str, AttentionMap],
    path: str | Path,
    kind: str | None = None,
    layer: int | None = None,
    head: int | None = None,
) -> None:
    """Write a page that shows the maps of a model, one at a time. A very large page is logged.

    Args:
        maps: what [`attention_maps`] returns.
        path: the file to write.
        kind: the kind that it shows first. `None`: the last, which for an encoder-decoder is "cross".
        layer: the layer that it shows first. `None`: the first one.
        head: the head that it shows first. `None`: 0.
    """
    path = check_suffix(path, PAGES)
    first = choose(maps, kind)
    first.check(layer, head)
    data = {
        "model": first.model,
        "start": [first.kind, first.layers.index(layer) if layer is not None else 0, head or 0],
        "maps": {
            name: {
                "names": attention.names,
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
            page.write(part.replace("<", "\\u003c"))  # no text in a script element may look like markup
        page.write(after)
    size = path.stat().st_size
    if size > LARGE:
        logger.warning(
            f"{path} has {size / 2**20:.0f} MiB, which a browser takes a while to open: {', '.join(IMAGES)} are small."
        )


def encoded(weights: torch.Tensor) -> str:
    """`(queries, keys)` as base64, row by row: one byte for the square root of each weight, which is what is drawn."""
    return b64encode(weights.float().sqrt().mul(255).round().byte().numpy().tobytes()).decode()
