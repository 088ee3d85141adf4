"""How much code a step runs through, and how much there is (Markdown).

A step is traced, with sdpa attention, in the files of the model: of an official class, transformers' modeling files.
Counted are the files that run; the functions and their lines; and how often what runs stands in another file than what
ran before, calls and returns alike. The run of `imdb.yaml` is traced from the recipe's `main` to the first
`optimizer.step`: the files of `tfm_zoo/training` and `recipes` of which a function runs; their lines, whole, and those
of the functions; and the frames of these files from `main`, included, to `optimizer.step`.
"""

import ast
import copy
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Annotated

import torch
import transformers
import typer
from torch import nn
from torch.optim.optimizer import register_optimizer_step_pre_hook

import tfm_zoo
from tests.recipes.in_a_row import imported

from .batches import SHARED
from .figures import make_runs
from .timing import table

PACKAGE = Path(tfm_zoo.__file__).parent
RECIPES = PACKAGE.parent / "recipes"
OFFICIAL = Path(transformers.__file__).parent / "models"
SIZES = {"vocab_size": 64, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}
LAYERS = {"encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 2, "decoder_attention_heads": 2}
SEQ2SEQ = {**LAYERS, "encoder_ffn_dim": 32, "decoder_ffn_dim": 32, "decoder_start_token_id": 0}
TOKENS = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
FIELDS = {"BertForMaskedLM": {}, "GPT2LMHeadModel": TOKENS, "MarianMTModel": TOKENS | SEQ2SEQ}


@dataclass
class Trace:
    """The functions under `folders` that ran, as files and first lines, each time that one was called."""

    folders: tuple[Path, ...]
    calls: list[tuple[str, int]] = field(default_factory=list)
    way: list[str] = field(default_factory=list)  # the files, at every call and return

    def __call__(self, frame: FrameType, event: str, argument: object) -> None:
        if event == "call" and self.is_ours(frame):
            self.calls.append((frame.f_code.co_filename, frame.f_code.co_firstlineno))
            self.way.append(frame.f_code.co_filename)
        elif event == "return" and self.is_ours(frame) and (callers := [*self.ours(frame.f_back)]):
            self.way.append(callers[0].f_code.co_filename)

    def is_ours(self, frame: FrameType) -> bool:
        code = frame.f_code
        return code.co_name != "<module>" and any(code.co_filename.startswith(f"{each}/") for each in self.folders)

    def ours(self, frame: FrameType | None) -> Iterator[FrameType]:
        """The frames of ours from this one outwards."""
        while frame is not None:
            if self.is_ours(frame):
                yield frame
            frame = frame.f_back

    @property
    def files(self) -> list[Path]:
        return [Path(file) for file in dict.fromkeys(file for file, _ in self.calls)]

    @property
    def switches(self) -> int:
        return sum(one != other for one, other in zip(self.way, self.way[1:], strict=False))

    def lines(self) -> int:
        """Those of the functions that ran; of a function within another, counted once."""
        firsts, found = set(self.calls), set()
        for file in self.files:
            for function in ast.walk(ast.parse(file.read_text())):
                if isinstance(function, ast.FunctionDef):
                    first = min(node.lineno for node in (function, *function.decorator_list))
                    if (str(file), first) in firsts:
                        found |= {(file, line) for line in range(first, function.end_lineno + 1)}
        return len(found)


def trace(folders: tuple[Path, ...], run: Callable[[], object]) -> Trace:
    found = Trace(folders)
    sys.setprofile(found)
    try:
        run()
    finally:
        sys.setprofile(None)
    return found


def train(model: nn.Module, batch: dict) -> Callable:
    return lambda: model.train()(**batch, labels=batch["input_ids"])


def decode(model: nn.Module, batch: dict) -> Callable:
    """One token more; of an encoder-decoder, for a source that has been read."""
    mask, length = batch["attention_mask"], batch["input_ids"].shape[1]
    if not model.config.is_encoder_decoder:
        past = model(**batch, use_cache=True).past_key_values
        inputs = {"input_ids": batch["input_ids"][:, -1:], "attention_mask": torch.ones(len(mask), length + 1).long()}
    else:
        states, start = model.get_encoder()(**batch), torch.zeros(len(mask), 1).long()
        source = {"encoder_outputs": states, "attention_mask": mask}
        past = model(**source, decoder_input_ids=start, use_cache=True).past_key_values
        inputs = source | {"decoder_input_ids": start + 5}
    return lambda: model(**inputs, past_key_values=copy.deepcopy(past), use_cache=True)


STEPS = {
    "BERT, masked-LM training": ("BertForMaskedLM", train, True),
    "GPT-2, a decoding step": ("GPT2LMHeadModel", decode, False),
    "Marian, a decoding step": ("MarianMTModel", decode, True),
    "Marian, training": ("MarianMTModel", train, True),
}


def steps() -> Iterator[list]:
    """A row for each step and each side of the comparison."""
    for title, (name, make_step, is_ragged) in STEPS.items():
        torch.manual_seed(0)
        model_class = getattr(transformers, name)
        official = model_class(model_class.config_class(**SIZES | FIELDS[name])).eval()
        ids = torch.arange(3, 15).view(2, 6)
        mask = (torch.arange(6) < torch.tensor([[6], [4 if is_ragged else 6]])).long()
        batch = {"input_ids": ids * mask, "attention_mask": mask}
        zoo = tfm_zoo.from_official(official).eval()
        for whose, model, folder in (("official", official, OFFICIAL), ("zoo", zoo, PACKAGE)):
            with torch.set_grad_enabled(make_step is train):
                step = make_step(model, batch)
                step()  # what is imported and made only once
                found = trace((folder,), step)
            yield [title, whose, len(found.files), len(set(found.calls)), found.lines(), found.switches]


def count_lines(files: Iterable[Path]) -> int:
    return sum(len(file.read_text().splitlines()) for file in files)


def arrows(files: list[Path]) -> int:
    """How many imports there are from one of these files to another."""
    names = {file.stem for file in files}
    trees = (ast.walk(ast.parse(file.read_text())) for file in files)
    return sum(len({n.module for n in tree if isinstance(n, ast.ImportFrom) and n.level} & names) for tree in trees)


def sizes() -> Iterator[list]:
    """What there is: of what travels with a checkpoint, and of each room."""
    for family in (tfm_zoo.TfmBertConfig, tfm_zoo.TfmGPTConfig, tfm_zoo.TfmEncoderDecoderConfig):
        with tempfile.TemporaryDirectory() as folder:
            getattr(tfm_zoo, family.auto_classes["AutoModel"])(family(**SIZES | TOKENS)).save_pretrained(folder)
            files = sorted(Path(folder).glob("*.py"))
            yield [f"travels with {family.model_type}", len(files), count_lines(files), arrows(files)]
    rooms = [PACKAGE, *sorted(path for path in PACKAGE.iterdir() if path.is_dir()), RECIPES]
    rooms += [PACKAGE.parent / name for name in ("tests", "benchmarks")]
    for room in rooms:
        files = sorted(room.rglob("*.py"))
        if files:
            yield [f"`{room.relative_to(PACKAGE.parent)}/`", len(files), count_lines(files), arrows(files)]


class Reached(BaseException):
    """Ends a recipe where it has come to what is looked at."""


def training(shared: Path) -> Iterator[list]:
    """What a run goes through before its first step."""
    run = make_runs(shared)["classification-imdb"]
    if run.missing:
        yield [f"left out: there is no {run.missing[0]}", "", "", "", ""]
        return
    main, found, frames = imported(RECIPES / f"{run.recipe}.py").main, Trace((PACKAGE / "training", RECIPES)), []

    def stop(*_: object) -> None:
        sys.setprofile(None)
        frames.extend(found.ours(sys._getframe()))
        raise Reached

    hook = register_optimizer_step_pre_hook(stop)
    with tempfile.TemporaryDirectory() as folder, suppress(Reached):
        _, *argv = run.command(Path(folder) / "run", config=RECIPES / "configs/imdb.yaml")
        sys.setprofile(found)
        main(argv)
    hook.remove()
    yield ["imdb.yaml", len(found.files), count_lines(found.files), found.lines(), len(frames)]


def main(
    shared: Annotated[Path, typer.Option(help="Folder of data sets and checkpoints.")] = SHARED,
) -> None:
    """Counts files, functions and lines of a step and of a training run; and lines and imports of every room."""
    transformers.logging.disable_progress_bar()
    table(["step", "class", "files", "functions", "lines", "switches of file"], steps())
    table(["code", "files", "lines", "imports between them"], sizes())
    columns = ["run, to its first step", "files", "their lines", "lines of functions", "frames to `optimizer.step`"]
    table(columns, training(shared))
