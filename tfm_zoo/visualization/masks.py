"""Who attends to whom: the kinds of masks."""

from pathlib import Path

import torch
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure

from .figures import check_suffix, save

WINDOW = 4  # positions that the picture of a window sees
#: the kinds of masks, each with what is said of it, and what parts of its twelve tokens are, by their middles
MASKS = {
    "padding": ("an encoder sees all real tokens", {10.5: "padding"}),
    "causal": ("a decoder sees what came before", {}),
    "window": (f"a causal window of {WINDOW}", {}),
    "packed": ("two texts in one row", {3: "text 1", 9: "text 2"}),
}


def mask_of(kind: str, length: int = 12) -> torch.Tensor:
    """Who sees whom: `(length, length)`, true where a query sees a key. For "padding", the last quarter is padding."""
    query, key = torch.arange(length)[:, None], torch.arange(length)
    if kind == "padding":
        return (key < length * 3 // 4).expand(length, -1)
    sees = key <= query
    if kind == "window":
        sees &= query - key < WINDOW
    if kind == "packed":
        sees &= (query < length // 2) == (key < length // 2)
    return sees


def plot_masks(path: str | Path) -> None:
    """Draw the kinds of masks that the models know: padding, causal, window, packed."""
    check_suffix(path)
    figure = Figure(figsize=(12, 3.6), layout="constrained")
    for panel, (kind, (text, parts)) in zip(figure.subplots(1, len(MASKS)), MASKS.items(), strict=True):
        panel.pcolormesh(mask_of(kind).numpy(), cmap=ListedColormap(["#f2f2f2", "#3b5b92"]), edgecolors="white", lw=1)
        panel.invert_yaxis()
        panel.set(title=f"{kind}: {text}", xlabel="key", ylabel="query", aspect="equal")
        panel.set_xticks([*parts], parts.values())
        panel.set_yticks([*parts], parts.values(), rotation=90, va="center")
        panel.tick_params(length=0, labelsize=8)
        panel.title.set_fontsize(9)
    colours = "blue: the query (row) may attend to the key (column); grey: it may not"
    figure.suptitle(f"{colours}; outputs at padding are not used", fontsize=10)
    save(figure, path)
