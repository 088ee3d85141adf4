"""Attention maps as a web page of one file: a browser shows any layer and head, without a network."""

import json
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path

from .attention_maps import AttentionMap
from .figures import check_suffix

TEMPLATE, DATA = "attention_page.html", "{{DATA}}"
PAGES = (".html", ".htm")
STEPS = 1000  # weights are written as whole thousandths


def attention_page(
    maps: Mapping[str, AttentionMap],
    path: str | Path,
    kind: str | None = None,
    layer: int | None = None,
    head: int | None = None,
) -> None:
    """Write a page with the maps of a model, of which it shows one at a time.

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
        "steps": STEPS,
        "start": [first.kind, layer or 0, head or 0],
        "maps": {
            name: {
                "queries": attention.queries,
                "keys": attention.keys,
                # of each layer, of each head: all rows, end to end
                "weights": (attention.weights * STEPS).round().int().flatten(2).tolist(),
            }
            for name, attention in maps.items()
        },
    }
    # In a script element no text may look like markup.
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c")
    template = (files(__package__) / TEMPLATE).read_text(encoding="utf-8")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(template.replace(DATA, text), encoding="utf-8")


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
