"""`tfm-zoo show`: pictures of what a model does, and of learning-rate schedules."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Annotated

import typer

from .options import Debug
from .screen import errors_in_one_line, notes, report

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from ..models.configuration_tfm import TfmConfig

COMPUTED = ("sinusoidal", "rotary")  # positions that need no model
Model = Annotated[str, typer.Argument(help="Folder or Hub id of a zoo model or an official one.")]
Text = Annotated[str, typer.Argument(help="The text that the model reads.")]
Picture = Annotated[Path, typer.Option("--out", "-o", help="The picture: .png, .svg or .pdf.")]
TrustRemoteCode = Annotated[
    bool, typer.Option("--trust-remote-code", help="Run the tokenizer code that the checkpoint brings along.")
]


def attention(
    model: Model,
    text: Text,
    target: Annotated[
        str | None,
        typer.Option(help="Text that an encoder-decoder writes; by default its own greedy output for the text."),
    ] = None,
    layer: Annotated[int | None, typer.Option(help="One layer, counted from 0; by default all.")] = None,
    head: Annotated[int | None, typer.Option(help="One head, counted from 0; by default all.")] = None,
    kind: Annotated[
        str | None, typer.Option(help="For an encoder-decoder: encoder, decoder or cross; by default cross.")
    ] = None,
    out: Annotated[
        Path, typer.Option("--out", "-o", help="A page to browse all maps (.html), or a picture: .png, .svg, .pdf.")
    ] = Path("attention.html"),
    trust_remote_code: TrustRemoteCode = False,
    debug: Debug = False,
) -> None:
    """Draw which tokens of a text attend to which, in each layer and head."""
    with drawing(out, debug, may_be_page=True) as (pictures, place):
        from .models import load_with_tokenizer

        maps = pictures.attention_maps(*load_with_tokenizer(model, trust_remote_code), text, target)
        if out.suffix.lower() in pictures.PAGES:
            pictures.attention_page(maps, out, kind, layer, head)
        else:
            pictures.plot_attention(pictures.choose(maps, kind), out, layer, head)
    report(f"Attention of {model} in {place}")


def rollout(
    model: Model,
    text: Text,
    out: Picture = Path("rollout.png"),
    trust_remote_code: TrustRemoteCode = False,
    debug: Debug = False,
) -> None:
    """Draw from which tokens attention reaches a classifier's decision (attention rollout).

    It follows attention alone. It does not say how the decision would change without a token.
    """
    with drawing(out, debug) as (pictures, place):
        from .models import load_with_tokenizer

        rollout = pictures.decision_rollout(*load_with_tokenizer(model, trust_remote_code), text)
        pictures.plot_rollout(rollout, out)
    strongest = ", ".join(f"{token!r} ({share:.0%})" for token, share in rollout.strongest())
    rests = f" Attention reaches it most from {strongest}." if strongest else ""
    largest = int(rollout.shares.argmax())
    if largest in rollout.aside:
        rests += f" ({rollout.tokens[largest]!r} has {rollout.shares[largest]:.0%}.)"
    report(f"Decision: {rollout.decision}.{rests} All tokens are drawn in {place}")


def heads(
    model: Model,
    texts: Annotated[list[str] | None, typer.Argument(help="Texts that the model reads.")] = None,
    file: Annotated[Path | None, typer.Option(help="More texts, one a line.", exists=True, dir_okay=False)] = None,
    out: Picture = Path("heads.png"),
    trust_remote_code: TrustRemoteCode = False,
    debug: Debug = False,
) -> None:
    """Draw what each head attends to: separators, itself, neighbours, the same word, punctuation."""
    with drawing(out, debug) as (pictures, place):
        from .models import load_with_tokenizer

        lines = file.read_text("utf-8-sig").splitlines() if file else []
        texts = [*(texts or []), *filter(None, lines)]
        if not texts:
            raise ValueError("Give texts, or a --file with one text per line.")
        found = pictures.head_shares(*load_with_tokenizer(model, trust_remote_code), texts)
        pictures.plot_heads(found, out)
    for target, layer, head, share, chance in found.strongest():
        if share < 0.005:  # such as the token after, which a decoder does not see
            continue
        share_of = f"{share:.0%} of its attention (evenly spread: {chance:.0%})"
        report(f"{target}: layer {layer}, head {head} attends to it most, with {share_of}")
    report("(Evenly spread: the share if a head attends to all tokens alike.)")
    report(f"What all heads of {model} attend to is drawn in {place}")


def positions(
    model: Annotated[
        str,
        typer.Argument(help='Folder or Hub id of a model, the name of a published size, "sinusoidal" or "rotary".'),
    ],
    length: Annotated[int | None, typer.Option(help="Number of positions; by default all, at most 512.")] = None,
    hidden_size: Annotated[int, typer.Option(help='The width of "sinusoidal" and "rotary".')] = 64,
    out: Picture = Path("positions.png"),
    debug: Debug = False,
) -> None:
    """Draw a model's positions: a heat map, and their similarity by distance."""
    with drawing(out, debug) as (pictures, place):
        is_alone = model in COMPUTED
        source = positions_alone(model, hidden_size) if is_alone else published_or_loaded(model)
        pictures.plot_positions(source, out, length, title=None if is_alone else pictures.title_of_source(model))
    report(f"Positions of {model} in {place}")


def block(
    config: Annotated[
        str,
        typer.Argument(help="A published size's name, or folder or Hub id of a zoo or official model with weights."),
    ],
    out: Picture = Path("block.png"),
    debug: Debug = False,
) -> None:
    """Draw the block that a configuration describes, box by box, as papers do."""
    with drawing(out, debug) as (pictures, place):
        source = published_or_loaded(config)
        pictures.plot_block(getattr(source, "config", source), out, title=pictures.title_of_source(config))
    report(f"The block of {config} in {place}")


def masks(out: Picture = Path("masks.png"), debug: Debug = False) -> None:
    """Draw the kinds of attention masks: padding, causal, window, packed."""
    with drawing(out, debug) as (pictures, place):
        pictures.plot_masks(out)
    report(f"Masks in {place}")


def schedule(
    names: Annotated[list[str], typer.Argument(help="Schedules of transformers, such as linear or cosine; or noam.")],
    steps: Annotated[int, typer.Option(help="Number of optimiser steps.")] = 10_000,
    warmup_steps: Annotated[int, typer.Option(help="Number of steps in which the rate rises.")] = 1_000,
    learning_rate: Annotated[
        float | None, typer.Option(help="The highest rate, by default 5e-5; for noam a factor, by default 1.")
    ] = None,
    hidden_size: Annotated[int, typer.Option(help="The model's width; noam alone uses it.")] = 512,
    out: Picture = Path("schedule.png"),
    debug: Debug = False,
) -> None:
    """Draw the learning rate of schedules by optimiser step."""
    with drawing(out, debug) as (pictures, place):
        pictures.plot_schedules(names, out, steps, warmup_steps, learning_rate, hidden_size)
    report(f"{', '.join(names)} in {place}")


def training(
    runs: Annotated[list[Path], typer.Argument(help="Folders that recipes, or transformers' Trainer, trained in.")],
    out: Picture = Path("training.png"),
    debug: Debug = False,
) -> None:
    """Draw the validation losses of several runs side by side, by the step and by the time."""
    with drawing(out, debug) as (pictures, place):
        pictures.plot_runs({str(run): history_of(run) for run in runs}, out)
    report(f"Losses of {', '.join(map(str, runs))} in {place}")


@contextmanager
def drawing(out: Path, debug: bool, may_be_page: bool = False) -> Iterator[tuple[ModuleType, str]]:
    """`tfm_zoo.visualization`, which draws a picture, or a page, into `out`; and what a user is told of its place."""
    with errors_in_one_line(debug), notes.status("Drawing"):
        pictures = visualization()
        pictures.check_suffix(out, pictures.PAGES + pictures.IMAGES if may_be_page else pictures.IMAGES)
        yield pictures, f"{out}, in place of the one that was there" if out.exists() else str(out)


def history_of(run: Path) -> list[dict]:
    """What was logged while a model was trained, as `trainer_state.json` has it."""
    from ..converters.sources import no_folder

    path = run / "trainer_state.json"
    if not path.exists():  # the Trainer leaves it in its checkpoints
        path = max(run.glob("checkpoint-*/trainer_state.json"), key=lambda each: each.stat().st_mtime, default=path)
    if not path.exists():
        lacks = f"{run} has no trainer_state.json: it is not the output_dir of a training."
        raise FileNotFoundError(lacks if run.is_dir() else no_folder(run))
    return json.loads(path.read_text())["log_history"]


def published_or_loaded(name: str) -> "TfmConfig | PreTrainedModel":
    """The configuration of a published size, or the model in a folder or on the Hub."""
    from ..converters import ConversionError
    from ..families.named_configs import NAMED_CONFIGS, named_config, suggestion
    from .models import load_any

    if name in NAMED_CONFIGS:
        return named_config(name)
    try:
        return load_any(name)
    except ConversionError as error:
        if Path(name).exists():
            raise
        raise ConversionError(f"{error}{suggestion(name)}") from error


def positions_alone(kind: str, hidden_size: int) -> "TfmConfig":
    """A configuration with computed positions of this width."""
    from ..models.configuration_tfm_gpt import TfmGPTConfig

    return TfmGPTConfig(position_embedding_type=kind, hidden_size=hidden_size, num_attention_heads=1)


def visualization() -> ModuleType:
    """`tfm_zoo.visualization`. It needs matplotlib, which only the extra 'recipes' installs."""
    try:
        from .. import visualization
    except ModuleNotFoundError as error:
        package = str(error.name).partition(".")[0]
        message = f"`tfm-zoo show` needs {package}, which is not installed: it comes with tfm_zoo's extra 'recipes'."
        raise ModuleNotFoundError(message, name=package) from error
    return visualization
