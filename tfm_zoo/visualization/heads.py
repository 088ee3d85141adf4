"""What attention heads attend to: how much of each head's attention goes to separators, neighbours, punctuation, ...
(Clark et al. 2019)."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil
from pathlib import Path

import torch
from matplotlib.figure import Figure
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from .attention_maps import attention_maps, read_text, title_of
from .figures import AMOUNTS, check_suffix, save
from .tokens import token_labels

#: what a token may attend to, besides special tokens
PLACES = (
    *("itself", "the token before", "the token after", "the first token", "the same token elsewhere", "punctuation"),
    "any other token",
)
COLUMNS = 4


@dataclass(frozen=True)
class HeadShares:
    """What heads attend to, on average over the tokens of some texts.

    Args:
        targets: what tokens may attend to: special tokens by their names, then `PLACES`, without what no token of the
            texts sees, such as the token after in a decoder.
        shares: `(targets, layers, heads)`; a head's shares sum to 1.
        chance: `(targets,)`, the shares of a head that attends to all tokens alike.
        layers: the numbers of these layers in the model.
        model: the model's name.
    """

    targets: list[str]
    shares: torch.Tensor
    chance: torch.Tensor
    layers: Sequence[int]
    model: str

    def strongest(self) -> list[tuple[str, int, int, float, float]]:
        """For each target the head that attends to it most: target, layer, head, its share, and what chance gives."""
        found = []
        for target, shares, chance in zip(self.targets, self.shares, self.chance.tolist(), strict=True):
            layer, head = divmod(int(shares.argmax()), shares.shape[1])
            found.append((target, self.layers[layer], head, shares.max().item(), chance))
        return found


def head_shares(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, texts: Sequence[str]) -> HeadShares:
    """What each head attends to, in self-attention, while a model reads texts; of an encoder-decoder, in the encoder.

    Each pair of tokens counts once, for the first target that fits: a special token, then `PLACES` in their order. The
    special tokens themselves are not asked what they attend to.

    Args:
        texts: at least one; each counts by its number of tokens.

    Raises:
        ValueError: as [`attention_maps`], or if there is no text with a token that is not special.
    """
    ids_of_texts = [read_text(model, tokenizer, text)[0].cpu() for text in texts]
    special = sorted(set(torch.cat(ids_of_texts).tolist()) & set(tokenizer.all_special_ids))
    sums, chances, count = 0.0, 0.0, 0
    for text, ids in zip(texts, ids_of_texts, strict=True):
        attention = next(iter(attention_maps(model, tokenizer, text).values()))
        rows = ~torch.isin(ids, torch.tensor(special))
        pairs = pairs_of(tokenizer, ids, special).float()[:, rows]
        weights = attention.weights[:, :, rows]
        visible = (weights.amax(dim=(0, 1)) > 0).float()
        sums = sums + torch.einsum("lhqk,tqk->tlh", weights, pairs)
        chances = chances + torch.einsum("qk,tqk->t", visible / visible.sum(-1, keepdim=True), pairs)
        count += int(rows.sum())
    if not count:
        raise ValueError("The texts have no token, other than special ones.")
    targets, is_seen = [*token_labels(tokenizer, special, is_source=True), *PLACES], chances > 0
    targets = [target for target, seen in zip(targets, is_seen.tolist(), strict=True) if seen]
    return HeadShares(targets, sums[is_seen] / count, chances[is_seen] / count, attention.layers, title_of(model))


def pairs_of(tokenizer: PreTrainedTokenizerBase, ids: torch.LongTensor, special: Sequence[int]) -> torch.BoolTensor:
    """For each target, which pairs of a token that attends and a token attended to count for it: `(targets, length,
    length)`. Each pair counts for exactly one target. `ids`: `(length,)`."""
    length = len(ids)
    ones, place = torch.ones(length, length, dtype=torch.bool), torch.arange(length)
    distance = place - place[:, None]  # of the key from the query
    # A part of a character, as tokenizers of bytes have them, reads as the replacement character.
    tokens = [tokenizer.decode([index]).strip() for index in ids.tolist()]
    is_punctuation = torch.tensor(
        [bool(token) and not any(sign.isalnum() or sign == "\ufffd" for sign in token) for token in tokens]
    )
    candidates = [
        *(ones & (ids == index) for index in special),
        distance == 0,
        distance == -1,
        distance == 1,
        ones & (place == 0),
        ids == ids[:, None],
        ones & is_punctuation,
        ones,
    ]
    free, pairs = ones, []
    for candidate in candidates:
        pairs.append(candidate & free)
        free = free & ~candidate
    return torch.stack(pairs)


def plot_heads(found: HeadShares, path: str | Path) -> None:
    """Draw a map of layers and heads for each target; the darker, the more of a head's attention goes there."""
    check_suffix(path)
    count, layers, heads = found.shares.shape
    rows = ceil(count / COLUMNS)
    columns = ceil(count / rows)
    size = (columns * max(1.8, 0.24 * heads) + 1.2, rows * (max(1.3, 0.24 * layers) + 0.9) + 0.5)
    figure = Figure(figsize=size, layout="constrained")
    grid = figure.subplots(rows, columns, squeeze=False, sharex=True, sharey=True).flatten()
    for panel in grid[count:]:
        panel.set_visible(False)
    largest = float(found.shares.max())
    for panel, target, shares, chance in zip(grid, found.targets, found.shares, found.chance.tolist(), strict=False):
        image = panel.imshow(shares.numpy(), cmap=AMOUNTS, vmin=0, vmax=largest, aspect="auto")
        panel.set_title(f"{target}\n(evenly spread: {chance:.0%})", fontsize=9, parse_math=False)
        panel.set_yticks(range(layers), found.layers, fontsize=8)
        panel.set_xticks(range(0, heads, max(1, heads // 6)))
        panel.tick_params(labelsize=8, labelbottom=True)
    figure.colorbar(image, ax=list(grid), label="share of the head's attention", shrink=0.8)
    figure.supxlabel("head\n(evenly spread: what a head gives that attends to all tokens alike)", fontsize=10)
    figure.supylabel("layer", fontsize=10)
    figure.suptitle(f"{found.model}: what each head attends to", fontsize=11, parse_math=False)
    save(figure, path)
