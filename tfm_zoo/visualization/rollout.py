"""Attention rollout (Abnar and Zuidema 2020): which tokens a state is made of, by following attention through the
layers."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import torch
from matplotlib import colormaps
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter
from transformers import PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerBase

from .attention_maps import (
    AttentionMap,
    attention_maps,
    classifies,
    linear_layers,
    listed,
    observed,
    read_text,
    title_of,
)
from .figures import AMOUNTS, check_suffix, save
from .tokens import shortened

FAR_ABOVE = 5  # times the median: where bars are cut off


@dataclass(frozen=True)
class Rollout:
    """What a classifier's decision is made of.

    Args:
        tokens: those of the text; of an encoder-decoder, after the one that its decoder begins with.
        shares: `(tokens,)`, which sum to 1.
        reads: the state that the classifier reads.
        decision: what it decides, and how surely.
        model: the model's name.
    """

    tokens: list[str]
    shares: torch.Tensor
    reads: str
    decision: str
    model: str


def attention_rollout(weights: torch.Tensor) -> torch.Tensor:
    """Which share of each last state comes from each token, through attention and the residual stream.

    In each layer the heads count alike, and so do what attention adds and what it is added to: `(mean + identity) / 2`.

    Args:
        weights: `(layers, heads, length, length)`, of one text.

    Returns:
        `(length, length)`, each row of which sums to 1.
    """
    rollout = torch.eye(weights.shape[-1])
    for mixed in weights.float().mean(dim=1):
        rollout = (mixed @ rollout + rollout) / 2
    return rollout


def encoder_decoder_rollout(maps: Mapping[str, AttentionMap]) -> tuple[torch.Tensor, torch.Tensor]:
    """The same for the decoder's states: shares of what the decoder reads, `(target, target)`, and of what the encoder
    does, `(target, source)`. Rows of both together sum to 1."""
    encoded = attention_rollout(maps["encoder"].weights)
    own, crossed = (maps[kind].weights.mean(dim=1) for kind in ("decoder", "cross"))
    target, source = torch.eye(own.shape[-1]), torch.zeros(crossed.shape[1:])
    for mixed, read in zip(own, crossed, strict=True):
        target, source = ((mixed @ states + states) / 2 for states in (target, source))
        target, source = target / 2, (read @ encoded + source) / 2
    return target, source


def decision_rollout(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, text: str) -> Rollout:
    """Attention rollout to the state that a classifier of texts decides by.

    That is, in the zoo: the first position's or the mean of all (encoder, by `classifier_pooling`), the last token's
    (decoder), or the decoder's at the last end-of-sequence token (encoder-decoder). An encoder-decoder reads the text
    twice: a token's share is that of both.

    Raises:
        ValueError: for a model that is no classifier of the zoo, or has layers without weights, and as
            [`attention_maps`].
    """
    if not classifies(model) or not model.config.model_type.startswith("tfm_"):
        raise ValueError(
            f"{title_of(model)} ({type(model).__name__}) is no classifier of the zoo, whose decision could be shown: "
            "that would be a Tfm...ForSequenceClassification."
        )
    linear = linear_layers(model.config, "decoder")  # an encoder beside it has the same
    if linear:
        raise ValueError(
            f"{title_of(model)} has linear attention (layers {listed(linear)}), without weights that a rollout could "
            "follow from layer to layer."
        )
    ids, maps = read_text(model, tokenizer, text), attention_maps(model, tokenizer, text)
    with observed(model):
        logits = model(input_ids=ids).logits[0].float().cpu()
    tokens, family = next(iter(maps.values())).keys, model.config.model_type
    if family == "tfm_encoder_decoder":
        row = int(model.last_end(ids))
        target, source = encoder_decoder_rollout(maps)
        # The decoder reads a token one position after the encoder, behind the one that it begins with.
        shares, start = torch.cat((target[row, :1], source[row])), maps["decoder"].queries[0]
        shares[1:-1] += target[row, 1:]
        tokens, reads = [start, *tokens], "the decoder's state where the text ends"
    elif family == "tfm_bert" and model.config.classifier_pooling == "mean":
        shares, reads = attention_rollout(maps["encoder"].weights).mean(dim=0), "the mean of all states"
    else:
        (attention,) = maps.values()
        row = 0 if family == "tfm_bert" else int(model.last_real(ids, None, None))
        shares, reads = attention_rollout(attention.weights)[row], f"the state of {tokens[row]!r}"
    return Rollout(tokens, shares, reads, decision_of(model.config, logits), title_of(model))


def decision_of(config: PreTrainedConfig, logits: torch.Tensor) -> str:
    """`(num_labels,)` logits in words: the likeliest label, or a regressor's value."""
    if config.num_labels == 1:
        return f"{logits.item():.3g}"
    several = config.problem_type == "multi_label_classification"
    shares = logits.sigmoid() if several else logits.softmax(dim=-1)
    return f"{config.id2label[int(shares.argmax())]} ({shares.max():.0%})"


def plot_rollout(rollout: Rollout, path: str | Path) -> None:
    """Draw a bar for each token, in the order of the text. A bar far above the others is cut off, and says its share.

    Raises:
        ValueError: for a suffix that is no picture's.
    """
    check_suffix(path)
    count, shares = len(rollout.tokens), rollout.shares.tolist()
    # Most of a state is often its own token's or a separator's, beside which the words would have no height.
    alike = [share for share in shares if share <= FAR_ABOVE * median(shares)]
    top = 1.15 * (max(alike) or max(shares))
    figure = Figure(figsize=(max(6.5, 1.2 + 0.22 * count), 4), layout="constrained")
    panel = figure.subplots()
    colours = colormaps[AMOUNTS]([0.2 + 0.6 * min(1, share / top) for share in shares])
    panel.bar(range(count), shares, color=colours, width=0.8)
    for place, share in enumerate(shares):
        if share > top:
            panel.text(place, top, f" {share:.0%}", rotation=90, ha="center", va="bottom", fontsize=9)
    panel.set_xticks(range(count), shortened(rollout.tokens), rotation=90, fontsize=9, parse_math=False)
    panel.set_xlim(-0.7, count - 0.3)
    panel.set_ylim(0, top)
    panel.yaxis.set_major_formatter(PercentFormatter(1))
    panel.set_xlabel("token")
    panel.set_ylabel("share, by attention rollout")
    panel.spines[["top", "right"]].set_visible(False)
    panel.grid(axis="y", alpha=0.25)
    panel.set_axisbelow(True)
    figure.suptitle(
        f"{rollout.model} decides: {rollout.decision}\nwhat {rollout.reads}, by which it decides, is made of",
        fontsize=10,
        parse_math=False,
    )
    save(figure, path)
