"""How much code a step runs through, and how much there is (Markdown).

A step is traced, with sdpa attention, in the files of the model: of an official class, transformers' modeling files.
Counted are the files that run; the functions and their lines; and how often what runs stands in another file than what
ran before, calls and returns alike. The run of `imdb.yaml` is traced from the recipe's `main` to the first
`optimizer.step`: the files of `tfm_zoo/training` and `recipes` of which a function runs; their lines, whole, and those
of the functions; and the frames of these files from `main`, included, to `optimizer.step`.
"""

import ast
import inspect
import sys
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from pathlib import Path
from types import CodeType, FrameType

import torch
import transformers
from torch.optim.optimizer import register_optimizer_step_pre_hook

import tfm_zoo
from tests.recipes.in_a_row import imported
from tests.tiny import tiny_model

from .batches import padded
from .figures import command
from .pairs import decoding, tiny
from .timing import table

PACKAGE = Path(tfm_zoo.__file__).parent
RECIPES = PACKAGE.parent / "recipes"
OFFICIAL = Path(transformers.__file__).parent / "models"
LAYERS = 2


@dataclass
class Trace:
    """The functions under `folders` that ran, each time that one was called."""

    folders: tuple[Path, ...]
    calls: list[CodeType] = field(default_factory=list)
    way: list[str] = field(default_factory=list)  # the files, at every call and return

    def __call__(self, frame: FrameType, event: str, argument: object) -> None:
        if event == "call" and self.is_ours(frame):
            self.calls.append(frame.f_code)
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
        return [Path(file) for file in dict.fromkeys(code.co_filename for code in self.calls)]

    @property
    def switches(self) -> int:
        return sum(one != other for one, other in pairwise(self.way))

    def lines(self) -> int:
        """Those of the functions that ran; of a function within another, counted once."""
        found = set()
        for code in {code for code in self.calls if not code.co_name.startswith("<")}:
            lines, first = inspect.getsourcelines(code)
            found |= {(code.co_filename, first + index) for index in range(len(lines))}
        return len(found)


#: the official class, and whether it trains
STEPS = {
    "BERT, masked-LM training": ("BertForMaskedLM", True),
    "GPT-2, a decoding step": ("GPT2LMHeadModel", False),
    "Marian, a decoding step": ("MarianMTModel", False),
    "Marian, training": ("MarianMTModel", True),
}


def steps() -> Iterator[list]:
    """A row for each step and each side of the comparison."""
    batch = padded([torch.arange(3, 9), torch.arange(3, 7)])
    for title, (name, is_training) in STEPS.items():
        for whose, model, folder in zip(("official", "zoo"), tiny(name, LAYERS), (OFFICIAL, PACKAGE), strict=True):
            if is_training:
                step = partial(model.train(), **batch, labels=batch["input_ids"])
            else:
                step = partial(next, decoding(model, batch))
            found = Trace((folder,))
            with torch.set_grad_enabled(is_training):
                for _ in range(2):  # what is imported and made only once; of decoding, the prompt
                    step()
                sys.setprofile(found)
                step()
                sys.setprofile(None)
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
            tiny_model(getattr(tfm_zoo, family.auto_classes["AutoModel"])).save_pretrained(folder)
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


def training() -> Iterator[list]:
    """What a run goes through before its first step."""
    found, frames = Trace((PACKAGE / "training", RECIPES)), []

    def stop(*_: object) -> None:
        sys.setprofile(None)
        frames.extend(found.ours(sys._getframe()))
        raise Reached

    hook = register_optimizer_step_pre_hook(stop)
    with tempfile.TemporaryDirectory() as folder, suppress(Reached):
        recipe, *options = command("classification-imdb", Path(folder) / "run")
        main = imported(PACKAGE.parent / recipe).main
        sys.setprofile(found)
        main(options)
    hook.remove()
    yield ["imdb.yaml", len(found.files), count_lines(found.files), found.lines(), len(frames)]


def main() -> None:
    """Counts files, functions and lines of a step and of a training run; and lines and imports of every room."""
    transformers.logging.disable_progress_bar()
    table(["step", "class", "files", "functions", "lines", "switches of file"], steps())
    table(["code", "files", "lines", "imports between them"], sizes())
    columns = ["run, to its first step", "files", "their lines", "lines of functions", "frames to `optimizer.step`"]
    table(columns, training())
