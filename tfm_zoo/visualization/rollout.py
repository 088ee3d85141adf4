"""Attention rollout (Abnar and Zuidema 2020) follows attention back through the layers, from a state to its tokens."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from matplotlib import colormaps
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter
from transformers import PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerBase

from .attention import AttentionMap, listed
from .attention_maps import attention_maps, classifies, linear_layers, observed, read_text, title_of
from .figures import AMOUNTS, check_suffix, plain, save
from .tokens import shortened


@dataclass(frozen=True)
class Rollout:
    """What a classifier's decision is made of.

    Args:
        tokens: the text's; for an encoder-decoder, the decoder's start token and then the text's.
        shares: `(tokens,)`; they sum to 1.
        reads: what the classifier reads.
        decision: the label that it chooses, and its probability.
        model: the model's name.
        aside: places of special tokens and of the token whose own state is read. They often have most of the shares.
    """

    tokens: list[str]
    shares: torch.Tensor
    reads: str
    decision: str
    model: str
    aside: frozenset[int] = frozenset()

    def strongest(self, count: int = 3) -> list[tuple[str, float]]:
        """The tokens of the text with the largest shares, without those `aside`."""
        places = [place for place in self.shares.argsort(descending=True).tolist() if place not in self.aside]
        return [(self.tokens[place], self.shares[place].item()) for place in places[:count]]


def attention_rollout(weights: torch.Tensor) -> torch.Tensor:
    """The share of each token in each of the last states, through attention and the residual stream.

    A layer is `(mean + identity) / 2`: all heads count alike, and attention counts as much as the residual stream.

    Args:
        weights: `(layers, heads, length, length)`, of one text.

    Returns:
        `(length, length)`; each row sums to 1.
    """
    rollout = torch.eye(weights.shape[-1])
    for mean in weights.float().mean(dim=1):
        rollout = (mean @ rollout + rollout) / 2
    return rollout


def encoder_decoder_rollout(maps: Mapping[str, AttentionMap]) -> tuple[torch.Tensor, torch.Tensor]:
    """The shares of the decoder's tokens, `(target, target)`, and of the encoder's, `(target, source)`, in each of the
    decoder's last states. A row of both together sums to 1."""
    encoded = attention_rollout(maps["encoder"].weights)
    among_targets, to_source = (maps[kind].weights.mean(dim=1) for kind in ("decoder", "cross"))
    target, source = torch.eye(among_targets.shape[-1]), torch.zeros(to_source.shape[1:])
    for self_attention, cross_attention in zip(among_targets, to_source, strict=True):
        target, source = ((self_attention @ shares + shares) / 2 for shares in (target, source))
        target, source = target / 2, (cross_attention @ encoded + source) / 2
    return target, source


def decision_rollout(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, text: str) -> Rollout:
    """Attention rollout of the state that a text classifier of the zoo reads.

    An encoder's classifier reads the first state or a mean of all (`classifier_pooling`), a decoder's the state of the
    last token, an encoder-decoder's the decoder's state at the last end-of-sequence token. Both sides of an
    encoder-decoder read the text: a token's share is the sum of the two.

    Raises:
        ValueError: if the model is not a zoo classifier or has layers without weights, and as [`attention_maps`].
    """
    config, name = model.config, title_of(model)
    if not classifies(model) or not config.model_type.startswith("tfm_"):
        raise ValueError(
            f"{name} ({type(model).__name__}) is not a classifier of the zoo (Tfm...ForSequenceClassification): it "
            "makes no decision that could be shown."
        )
    linear = linear_layers(config, "decoder")  # the encoder of an encoder-decoder has the same attention
    if linear:
        raise ValueError(
            f"{name} has linear attention (layers {listed(linear)}), without weights that a rollout could follow from "
            "layer to layer."
        )
    ids, maps = read_text(model, tokenizer, text), attention_maps(model, tokenizer, text)
    with observed(model):
        logits = model(input_ids=ids).logits[0].float().cpu()
    tokens, row = next(iter(maps.values())).keys, position_read(config, ids[0].cpu())
    aside = {place for place, token in enumerate(ids[0].tolist()) if token in tokenizer.all_special_ids}
    if "cross" in maps:
        target, source = encoder_decoder_rollout(maps)
        # The decoder reads each token one position later than the encoder, after its start token.
        shares, start = torch.cat((target[row, :1], source[row])), maps["decoder"].queries[0]
        shares[1:-1] += target[row, 1:]
        tokens, reads = [start, *tokens], "the decoder's state where the text ends"
        aside = {0, *(place + 1 for place in aside)}
    else:
        (attention,) = maps.values()
        rollout = attention_rollout(attention.weights)
        pooling = getattr(config, "classifier_pooling", "cls")
        if pooling == "attention":
            shares, reads = pooling_weights(model, ids) @ rollout, "a mean of all states, weighted by a learned query"
        elif pooling != "cls":
            shares, reads = rollout.mean(dim=0), "the mean of all states"
        else:
            shares, reads, aside = rollout[row], f"the state of {tokens[row]!r}", {*aside, row}
    return Rollout(tokens, shares, reads, decision_of(config, logits), name, frozenset(aside))


@torch.no_grad()
def pooling_weights(model: PreTrainedModel, ids: torch.LongTensor) -> torch.Tensor:
    """How much of each state an encoder's classifier reads where attention pools. `ids`: `(1, length)`."""
    encoder = model.base_model
    return encoder.pooler_query(encoder(ids).last_hidden_state)[0, :, 0].float().softmax(dim=0).cpu()


def position_read(config: PreTrainedConfig, ids: torch.LongTensor) -> int:
    """Which position's state a classifier reads, unless it reads the mean of all. `ids` are of shape `(length,)`."""
    if config.model_type == "tfm_bert":
        return 0
    if config.is_encoder_decoder:
        candidates = torch.isin(ids, torch.tensor(config.eos_token_id))
    else:
        candidates = ids != (-1 if config.pad_token_id is None else config.pad_token_id)
    return int((candidates * torch.arange(len(ids))).argmax())


def decision_of(config: PreTrainedConfig, logits: torch.Tensor) -> str:
    """`(num_labels,)` logits in words: the label with the highest probability, or the value of a regression."""
    if config.num_labels == 1:
        return f"{logits.item():.3g}"
    is_multi_label = config.problem_type == "multi_label_classification"
    probabilities = logits.sigmoid() if is_multi_label else logits.softmax(dim=-1)
    return f"{config.id2label[int(probabilities.argmax())]} ({probabilities.max():.0%})"


def plot_rollout(rollout: Rollout, path: str | Path) -> None:
    """Draw a bar for each token, in the order of the text. A bar `aside` that is above all others is cut off and
    labelled: in full, it would dwarf them."""
    check_suffix(path)
    count, shares = len(rollout.tokens), rollout.shares.tolist()
    top = 1.15 * (max((share for _, share in rollout.strongest(1)), default=0) or max(shares))
    figure = Figure(figsize=(max(6.5, 1.2 + 0.22 * count), 4), layout="constrained")
    panel = figure.subplots()
    colours = colormaps[AMOUNTS]([0.2 + 0.6 * min(1, share / top) for share in shares])
    panel.bar(range(count), shares, color=colours, width=0.8)
    for place, share in enumerate(shares):
        if share > top:
            panel.text(place, top, f" {share:.0%} (cut off)", rotation=90, ha="center", va="bottom", fontsize=9)
    panel.set_xticks(range(count), shortened(rollout.tokens), rotation=90, fontsize=9, parse_math=False)
    panel.set_xlim(-0.7, count - 0.3)
    panel.set_ylim(0, top)
    panel.yaxis.set_major_formatter(PercentFormatter(1))
    panel.set_xlabel("token")
    panel.set_ylabel("share, by attention rollout")
    plain(panel, grid="y")
    panel.set_axisbelow(True)
    title = f"{rollout.model} decides: {rollout.decision}\nit reads {rollout.reads}, which is made of these tokens"
    if beside := sum(shares[place] for place in rollout.aside):
        title += f" ({beside:.0%} special tokens and its own)"
    figure.suptitle(title, fontsize=10, parse_math=False)
    save(figure, path)
