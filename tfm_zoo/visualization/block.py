"""A model's block as its configuration has it, in the boxes that papers draw."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from textwrap import fill

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch

from ..models.configuration_tfm import TfmConfig
from .figures import check_suffix, save

COLOURS = {"embedding": "#f6d9c6", "norm": "#eef0c4", "attention": "#f7c9a8", "feed-forward": "#bfe0ee"}
NORM_NAMES = {
    f"{prefix}{norm.lower()}": f"{norm}{text}"
    for norm in ("LayerNorm", "RMSNorm")
    for prefix, text in {"": "", "plain_": " without weights", "zero_centered_": " (1 + weight)"}.items()
}
WIDTH, HEIGHT, GAP = 4.2, 0.72, 0.42  # of a box, and between two
COLUMNS = 32  # of letters in a box
RADIUS = 6.5  # points, of the circle of a sum
SIDE = 2.75  # from the middle of a column to the line of a residual sum


@dataclass
class SubLayer:
    """Attention or a feed-forward: what stands in a box, and where its norms are."""

    kind: str
    text: str
    before: bool
    inside: bool  # a norm of its output, before the sum
    after: bool
    source: bool = False  # whether it reads the encoder


@dataclass
class Stack:
    """An encoder or a decoder: what the boxes say, from the bottom to the top."""

    title: str
    depth: int
    embeddings: list[tuple[str, str]]
    sub_layers: list[SubLayer]
    parallel_norms: int  # of attention and feed-forward side by side: one for both, or two; 0: one after the other
    final_norm: bool
    projection: str  # of the last hidden states, if there is one
    norm: str


def stacks_of(config: TfmConfig) -> list[Stack]:
    """The stacks of a model of this configuration: one, or encoder and decoder."""
    if not config.is_encoder_decoder:
        is_causal = config.model_type == "tfm_gpt"
        return [stack_of(config, "decoder" if is_causal else "encoder", config.num_hidden_layers, is_causal)]
    encoder = stack_of(config, "encoder", config.num_hidden_layers, is_causal=False)
    config = config.get_text_config(decoder=True)
    decoder = stack_of(config, "decoder", config.num_hidden_layers, is_causal=True)
    attention, *rest = decoder.sub_layers
    text = f"cross-attention\n{in_lines(heads_of(config))}"
    cross = SubLayer("attention", text, attention.before, attention.inside, attention.after, source=True)
    decoder.sub_layers = [attention, cross, *rest]
    return [encoder, decoder]


def heads_of(config: TfmConfig) -> str:
    heads, keys = config.num_attention_heads, config.num_key_value_heads
    return f"{heads} heads of {config.head_dim}" + (f", {keys} for keys and values" if keys < heads else "")


def in_lines(text: str) -> str:
    """The text in lines that a box has room for, broken after a comma or a colon where that is possible."""
    parts = [part if len(part) > COLUMNS else part.replace(" ", "\xa0") for part in re.split("(?<=[,:]) ", text)]
    return fill(" ".join(parts), COLUMNS).replace("\xa0", " ")


def stack_of(config: TfmConfig, title: str, depth: int, is_causal: bool) -> Stack:
    kinds = {
        "full_attention": "full",
        "sliding_attention": f"window of {config.sliding_window}",
        "linear_attention": "linear",
    }
    types = dict.fromkeys(getattr(config, "layer_types", None) or [config.layer_type])
    counts = [f" in {config.layer_types.count(kind)}" for kind in types] if len(types) > 1 else [""]
    seen = " and ".join(kinds[kind] + count for kind, count in zip(types, counts, strict=True))
    seen = seen.replace(" and ", " layers and ", 1) if len(types) > 1 else seen
    details = [
        "causal" * is_causal,
        seen * (seen != "full"),
        "rotary" * (config.position_embedding_type == "rotary"),
        "queries and keys normed" * bool(config.qk_norm),
        "biased by distance" * config.has_position_bias,
    ]
    lines = ["self-attention", in_lines(heads_of(config)), in_lines(", ".join(filter(None, details)))]
    width, inner = config.hidden_size, config.intermediate_size
    gate = "gated, " if config.mlp_type == "gated" else ""
    if "sparse" in getattr(config, "mlp_layer_types", ()):
        gate = f"{config.num_experts_per_tok} of {config.num_local_experts} experts, {gate}"
        inner = config.moe_intermediate_size
    feed = "feed-forward\n" + in_lines(f"{gate}{config.hidden_act}: {width:,} to {inner:,} to {width:,}")
    place = config.norm_position
    norms = {"before": place in ("pre", "both"), "inside": place in ("output", "both"), "after": place == "post"}
    vocabulary = config.decoder_vocab_size if title == "decoder" and config.is_encoder_decoder else config.vocab_size
    factors = [f"the square root of {config.embedding_size:,}"] if config.scale_embedding else []
    factors += [f"{config.embedding_multiplier:g}"] if config.embedding_multiplier != 1 else []
    scale = "".join(f"\ntimes {factor}" for factor in factors)
    embeddings = [("embedding", f"tokens: {vocabulary:,} x {config.embedding_size:,}{scale}")]
    projection = ("embedding", f"projection: {config.embedding_size:,} to {width:,}")
    if config.project_tokens:
        embeddings.append(projection)
    if config.position_embedding_type in ("learned", "sinusoidal"):
        count = f": {config.max_position_embeddings:,}" if config.position_embedding_type == "learned" else ""
        embeddings.append(("embedding", f"+ {config.position_embedding_type} positions{count}"))
    if config.type_vocab_size:
        embeddings.append(("embedding", f"+ segments: {config.type_vocab_size}"))
    if config.embedding_norm:
        embeddings.append(("norm", NORM_NAMES[config.norm_type]))
    if config.position_size != width:
        embeddings.append(projection)
    return Stack(
        title=title,
        depth=depth,
        embeddings=embeddings,
        sub_layers=[
            SubLayer("attention", "\n".join(filter(None, lines)), **norms),
            SubLayer("feed-forward", feed, **norms),
        ],
        parallel_norms=config.num_ln_in_parallel_attn if config.use_parallel_residual else 0,
        final_norm=config.final_norm,
        projection=f"projection: {width:,} to {config.output_size:,}" * config.project_tokens,
        norm=NORM_NAMES[config.norm_type],
    )


class Column:
    """Boxes one above the other, with a line between them."""

    def __init__(self, panel: Axes, middle: float):
        self.panel, self.middle, self.top = panel, middle, 0.0

    def box(self, kind: str, text: str, offset: float = 0.0, rise: bool = True, lines: int = 0) -> float:
        """Draws a box on top of the others, beside the middle if it has an offset; returns the height of its middle.

        `rise`: whether the next box stands on it. `lines`: how many lines it has room for, by default the text's.
        """
        height, x = HEIGHT * (0.45 + 0.5 * (lines or 1 + text.count("\n"))), self.middle + offset
        bottom = self.top + GAP
        self.point((x, bottom), (x, self.top))
        corner, style = (x - WIDTH / 2, bottom), "round,pad=0,rounding_size=0.12"
        self.panel.add_patch(FancyBboxPatch(corner, WIDTH, height, style, fc=COLOURS[kind], ec="#555555", zorder=2))
        self.panel.text(x, bottom + height / 2, text, ha="center", va="center", fontsize=9, zorder=3)
        if rise:
            self.top = bottom + height
        return bottom + height / 2

    def line(self, x: float, bottom: float, top: float) -> None:
        self.path([x, x], [bottom, top])

    def path(self, xs: Sequence[float], ys: Sequence[float]) -> None:
        self.panel.plot(xs, ys, color="#555555", lw=1, zorder=1)

    def point(self, to: tuple[float, float], start: tuple[float, float], short: float = 0.0) -> None:
        """An arrow from `start` to `to`, which ends `short` points before it."""
        style = {"arrowstyle": "-|>", "color": "#555555", "lw": 1, "shrinkA": 0, "shrinkB": short}
        self.panel.annotate("", to, start, arrowprops=style | {"mutation_scale": 8}, annotation_clip=False, zorder=1)

    def fork(self, half: float, joins: bool = False) -> None:
        """A line across, from which two boxes go up or, if it `joins` them, on which they meet."""
        self.top += 0.15
        self.path([self.middle - half, self.middle + half], [self.top] * 2)
        if not joins:
            self.line(self.middle, self.top - 0.15, self.top)

    def sum(self, start: float, side: float = SIDE) -> None:
        """A residual sum on top: a line from the height `start` goes around the boxes in between and joins it."""
        top = self.top + GAP + 0.1
        self.point((self.middle, top), (self.middle, self.top), short=RADIUS)
        x = self.middle + side
        self.path([self.middle, x, x], [start, start, top])
        self.point((self.middle, top), (x, top), short=RADIUS)
        self.panel.plot(self.middle, top, "o", ms=2 * RADIUS, mfc="white", mec="#555555", zorder=3)
        self.panel.text(self.middle, top, "+", ha="center", va="center", fontsize=12, zorder=4)
        self.top = top + 0.15


def draw_stack(panel: Axes, stack: Stack, middle: float) -> tuple[Column, list[float]]:
    """Draws a stack; returns its column, and the heights of the boxes that read the encoder."""
    column, reading = Column(panel, middle), []
    for kind, text in stack.embeddings:
        column.box(kind, text)
    begin = column.top + 0.1  # below the line that goes around the first sub-layer
    if stack.parallel_norms:
        draw_side_by_side(column, stack)
    for sub_layer in () if stack.parallel_norms else stack.sub_layers:
        column.top += GAP / 2
        column.line(middle, column.top - GAP / 2, column.top)
        start = column.top
        if sub_layer.before:
            column.box("norm", stack.norm)
        height = column.box(sub_layer.kind, sub_layer.text)
        if sub_layer.source:
            reading.append(height)
        if sub_layer.inside:
            column.box("norm", stack.norm)
        column.sum(start)
        if sub_layer.after:
            column.box("norm", stack.norm)
    left, right = (4.7, 5.2) if stack.parallel_norms else (2.45, 2.95)
    size, style = (left + right, column.top + 0.2 - begin), "round,pad=0,rounding_size=0.2"
    panel.add_patch(FancyBboxPatch((middle - left, begin), *size, style, fill=False, ec="#999999", ls="--"))
    panel.text(middle - left - 0.1, (begin + column.top) / 2, f"{stack.depth} x", ha="right", va="center", fontsize=11)
    if stack.final_norm:
        column.top += 0.2
        column.box("norm", stack.norm)
    if stack.projection:
        column.top += 0.0 if stack.final_norm else 0.2
        column.box("embedding", stack.projection)
    panel.text(middle, -0.15, stack.title, ha="center", va="top", fontsize=11)
    return column, reading


def draw_side_by_side(column: Column, stack: Stack) -> None:
    """Attention and feed-forward that read the same state and are added to it together."""
    middle, half = column.middle, WIDTH / 2 + 0.15
    column.top += GAP
    start = column.top
    if stack.parallel_norms == 1:
        column.box("norm", stack.norm)
    column.fork(half)
    if stack.parallel_norms == 2:
        column.box("norm", stack.norm, -half, rise=False)
        column.box("norm", stack.norm, half)
    lines = max(1 + sub_layer.text.count("\n") for sub_layer in stack.sub_layers)
    for offset, sub_layer in zip((-half, half), stack.sub_layers, strict=True):
        column.box(sub_layer.kind, sub_layer.text, offset, rise=offset > 0, lines=lines)
    column.line(middle - half, column.top, column.top + 0.15)
    column.line(middle + half, column.top, column.top + 0.15)
    column.fork(half, joins=True)
    column.sum(start, side=2 * half + 0.4)


def plot_block(config: TfmConfig, path: str | Path, title: str | None = None) -> None:
    """Draw the stacks that a configuration describes, box by box, in the order in which they compute.

    Args:
        config: of a model of the zoo.
        path: the image file to write.
        title: the model's name. `None`: that of the configuration's family.
    """
    check_suffix(path)
    stacks = stacks_of(config)
    figure = Figure(figsize=(6.5 * len(stacks) + 1, 9), layout="constrained")  # trimmed when it is saved
    panel = figure.subplots()
    drawn = [draw_stack(panel, stack, 8.0 * index) for index, stack in enumerate(stacks)]
    if len(drawn) == 2:  # the encoder's states go to each cross-attention
        (encoder, _), (decoder, heights) = drawn
        corner, left = encoder.top + GAP, decoder.middle - WIDTH / 2
        for height in heights:
            encoder.path([encoder.middle, encoder.middle, 4.2, 4.2], [encoder.top, corner, corner, height])
            decoder.point((left, height), (4.2, height))
    last = drawn[-1][0]
    last.point((last.middle, last.top + 1.5 * GAP), (last.middle, last.top))
    panel.text(last.middle, last.top + 1.6 * GAP, "hidden states, for a head", ha="center", va="bottom", fontsize=9)
    middle, top = sum(column.middle for column, _ in drawn) / len(drawn), max(column.top for column, _ in drawn)
    name = title or type(config).__name__.removesuffix("Config")
    panel.text(middle, top + 4 * GAP, name, ha="center", va="bottom", fontsize=12, parse_math=False)
    panel.set_aspect("equal")
    panel.margins(0.04)
    panel.axis("off")
    save(figure, path)
