"""`python -m tests.benchmarks.structure [--list]`: how much code a step runs through, and how much there is (Markdown).

A step is traced with sdpa attention. For the files that define the models (of an official class, its modeling file) the
first table counts: the files that run; the lines of the functions that run; and the frames from the model's `forward`,
included, to the first query projection and to the attention kernel. Comprehensions and the wrappers of torch and
transformers are not counted as frames; transformers' `sdpa_attention_forward`, which calls the kernel, is.
The next tables count the lines of the package, of the block with its parts, and of each architecture's table.

The last two are about training. The run of `imdb.yaml`, with few rows, is traced from the recipe's `main` to the first
`optimizer.step`. Counted are the files of `tfm_zoo/training` and `recipes` of which a function runs; the lines of these
files, whole, and of those functions; and the frames of these files, from `main`, included, to `optimizer.step`. Of each
recipe: the options that it offers, beside `--config`; the classes that it parses, with those that they extend; how many
of these define an option that it offers, and in how many files they stand.
"""

import ast
import copy
import importlib.util
import inspect
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, fields
from importlib import import_module
from pathlib import Path
from types import FrameType, ModuleType
from typing import Annotated
from unittest import mock

import torch
import transformers
import typer
from torch import nn
from torch.optim.optimizer import register_optimizer_step_pre_hook
from transformers.pytorch_utils import Conv1D

import tfm_zoo
from tfm_zoo.converters.architecture import Architecture

from .batches import SHARED
from .recipe_runs import make_runs

PACKAGE = Path(tfm_zoo.__file__).parent
RECIPES = PACKAGE.parent / "recipes"
OFFICIAL = Path(transformers.__file__).parent / "models"
CORE = ("layers", "norms", "positions", "position_bias", "experts")
CORE += ("stack", "encoder_decoder_stacks", "batch", "entrance", "padding", "masks", "kernels")
KERNEL = "sdpa_attention_forward"
COMPREHENSIONS = ("<genexpr>", "<listcomp>", "<setcomp>", "<dictcomp>")
SIZES = {"vocab_size": 64, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}
LAYERS = {"encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 2, "decoder_attention_heads": 2}
SEQ2SEQ = {**LAYERS, "encoder_ffn_dim": 32, "decoder_ffn_dim": 32, "decoder_start_token_id": 0}
TOKENS = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
NAMES = {"BertModel": {}, "GPT2LMHeadModel": TOKENS, "LlamaForCausalLM": TOKENS, "MarianMTModel": TOKENS | SEQ2SEQ}


@dataclass
class Trace:
    """What ran under `folders`: the first line of every function of every file; and frames to the two landmarks."""

    folders: tuple[Path, ...]
    functions: dict[str, set[int]] = field(default_factory=dict)
    to_query: int = 0
    to_kernel: int = 0

    def __call__(self, frame: FrameType, event: str, argument: object) -> None:
        code = frame.f_code
        if event == "call" and self.is_ours(frame):
            self.functions.setdefault(code.co_filename, set()).add(code.co_firstlineno)
        if event == "call" and code.co_name == "forward" and not self.to_query:
            if isinstance(frame.f_locals.get("self"), nn.Linear | Conv1D):
                self.to_query = self.frames(frame)
        elif event == "c_call" and "scaled_dot_product" in argument.__name__ and not self.to_kernel:
            self.to_kernel = self.frames(frame)

    def is_ours(self, frame: FrameType) -> bool:
        file, name = frame.f_code.co_filename, frame.f_code.co_name
        return name not in COMPREHENSIONS and any(file.startswith(f"{folder}/") for folder in self.folders)

    def frames(self, frame: FrameType | None) -> int:
        """How many frames of ours there are from the outermost to this one."""
        count = 0
        while frame is not None:
            count += self.is_ours(frame) or frame.f_code.co_name == KERNEL
            frame = frame.f_back
        return count

    def each(self) -> Iterator[tuple[Path, ast.FunctionDef]]:
        """Every function that ran, with its file."""
        for file, firsts in self.functions.items():
            for function in ast.walk(ast.parse(Path(file).read_text())):
                if isinstance(function, ast.FunctionDef) and lines_of(function)[0] in firsts:
                    yield Path(file), function

    def lines(self, docstrings: bool = True) -> int:
        """Those of a function within another are counted once."""
        return len({(file, line) for file, function in self.each() for line in lines_of(function, docstrings)})

    def print(self) -> None:
        for file, function in self.each():
            print(f"  {len(lines_of(function)):4} lines: {file.name}, {function.name}")


def lines_of(function: ast.FunctionDef, docstring: bool = True) -> list[int]:
    """Its decorators' lines and its own, by number."""
    first = min(node.lineno for node in (function, *function.decorator_list))
    lines = range(first, function.end_lineno + 1)
    if docstring or ast.get_docstring(function) is None:
        return list(lines)
    text = function.body[0]
    return [line for line in lines if not text.lineno <= line <= text.end_lineno]


def trace(folder: Path, step: Callable[[], object]) -> Trace:
    step()  # what is imported and made only once
    found = Trace((folder,))
    sys.setprofile(found)
    try:
        step()
    finally:
        sys.setprofile(None)
    return found


def forward(model: nn.Module, batch: dict) -> Callable:
    return lambda: model(**batch)


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


def train(model: nn.Module, batch: dict) -> Callable:
    return lambda: model.train()(**batch, labels=batch["input_ids"])


STEPS = {
    "BERT, forward": ("BertModel", forward, False),
    "BERT, forward, ragged": ("BertModel", forward, True),
    "GPT-2, decoding step": ("GPT2LMHeadModel", decode, False),
    "LLaMA, decoding step": ("LlamaForCausalLM", decode, False),
    "Marian, decoding step": ("MarianMTModel", decode, True),
    "Marian, training step": ("MarianMTModel", train, True),
}


def steps(list_functions: bool) -> Iterator[list]:
    """A row for each step and each side of the comparison."""
    for title, (name, make_step, ragged) in STEPS.items():
        torch.manual_seed(0)
        model_class = getattr(transformers, name)
        official = model_class(model_class.config_class(**SIZES | NAMES[name])).eval()
        ids = torch.arange(3, 15).view(2, 6)
        mask = (torch.arange(6) < torch.tensor([[6], [4 if ragged else 6]])).long()
        batch = {"input_ids": ids * mask, "attention_mask": mask}
        for whose, model, folder in (
            ("official", official, OFFICIAL),
            ("zoo", tfm_zoo.from_official(official).eval(), PACKAGE),
        ):
            with torch.set_grad_enabled(make_step is train):
                found = trace(folder, make_step(model, batch))
            lines = found.lines(), found.lines(docstrings=False)
            if list_functions:
                found.print()
            yield [title, whose, len(found.functions), *lines, found.to_query, found.to_kernel]


def count_lines(files: list[Path]) -> int:
    return sum(len(file.read_text().splitlines()) for file in files)


def sizes() -> Iterator[list]:
    """What there is: of a modeling file, of what travels, of a part."""
    for family in (tfm_zoo.TfmBertConfig, tfm_zoo.TfmGPTConfig, tfm_zoo.TfmEncoderDecoderConfig):
        with tempfile.TemporaryDirectory() as folder:
            getattr(tfm_zoo, family.auto_classes["AutoModel"])(family(**SIZES | TOKENS)).save_pretrained(folder)
            files = sorted(Path(folder).glob("*.py"))
            modeling = Path(folder, f"{family.modeling_file}.py")
            yield [modeling.name, 1, count_lines([modeling])]
            yield [f"travels with {family.model_type}", len(files), count_lines(files)]
    for part in ("models", "converters", "training", ""):
        files = sorted((PACKAGE / part).rglob("*.py"))
        yield [f"`tfm_zoo/{part}`", len(files), count_lines(files)]


def core() -> Iterator[list]:
    """The block, its parts, and stacks of blocks."""
    for name in CORE:
        yield [f"`{name}.py`", count_lines([PACKAGE / "models" / f"{name}.py"])]


def architectures() -> Iterator[list]:
    """What each file of tables converts, its lines, and how many these are for each architecture."""
    for file in sorted((PACKAGE / "converters/architectures").glob("*.py")):
        module = import_module(f"{tfm_zoo.__name__}.converters.architectures.{file.stem}")
        names = [node for node in ast.walk(ast.parse(file.read_text())) if isinstance(node, ast.Name)]
        made = {node.id for node in names if isinstance(node.ctx, ast.Store)}  # and not imported
        titles = [each.title for name, each in vars(module).items() if name in made and isinstance(each, Architecture)]
        if titles:
            yield [f"`{file.name}`", ", ".join(titles), count_lines([file]), count_lines([file]) // len(titles)]


class Reached(BaseException):
    """Ends a recipe where it has come to what is looked at."""


def recipe_module(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, RECIPES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    with mock.patch.object(sys, "path", [str(RECIPES), *sys.path]):  # as for a script that is started
        sys.modules[name] = module  # which `inspect` asks for the files of its classes
        spec.loader.exec_module(module)
    return module


def training(shared: Path, list_functions: bool) -> Iterator[list]:
    """What a run goes through before its first step."""
    run = make_runs(shared, texts=shared)["classification-imdb"]
    if run.missing:
        yield [f"left out: there is no {run.missing[0]}", "", "", "", ""]
        return
    main, found, frames = recipe_module(run.recipe).main, Trace((PACKAGE / "training", RECIPES)), []

    def stop(*_: object) -> None:
        sys.setprofile(None)
        frames.append(found.frames(sys._getframe()))
        raise Reached

    hook = register_optimizer_step_pre_hook(stop)
    with tempfile.TemporaryDirectory() as folder, suppress(Reached):
        _, *argv = run.command(Path(folder) / "run", config=RECIPES / "configs/imdb.yaml")
        sys.setprofile(found)
        main(argv)
    hook.remove()
    if list_functions:
        found.print()
    files = [*map(Path, found.functions)]
    yield ["imdb.yaml", len(files), count_lines(files), found.lines(), *frames]


def options(name: str) -> list:
    """How many options a recipe offers; the classes that they come from; those that define one, and their files."""

    def stop(parser: transformers.HfArgumentParser, dataclass_types: type | Iterable[type], **_: object) -> None:
        raise Reached(dataclass_types)

    with mock.patch.object(transformers.HfArgumentParser, "__init__", stop):
        try:
            recipe_module(name).main([])
        except Reached as reached:
            (found,) = reached.args
    found = [*found] if isinstance(found, Iterable) else [found]
    offered = [(each, f.name) for each in found for f in fields(each) if f.init]
    classes = {base for each in found for base in each.__mro__[:-1]}
    defining = {base for each, name in offered for base in each.__mro__ if name in inspect.get_annotations(base)}
    return [f"`{name}.py`", len(offered), len(classes), len(defining), len({*map(inspect.getfile, defining)})]


def table(header: list[str], rows: Iterable[list]) -> None:
    print(f"| {' | '.join(header)} |\n|{' --- |' * len(header)}")
    for row in rows:
        print(f"| {' | '.join(map(str, row))} |", flush=True)
    print()


def main(
    list_functions: Annotated[bool, typer.Option("--list", help="Also list the functions that run.")] = False,
    shared: Annotated[Path, typer.Option(help="Folder of data sets and checkpoints.")] = SHARED,
) -> None:
    """Counts files, lines and frames of a step; lines of the package, its core and its tables; and what a run reads."""
    transformers.logging.disable_progress_bar()
    columns = ["step", "class", "files", "lines", "without docstrings", "frames to the query", "to the kernel"]
    table(columns, steps(list_functions))
    table(["code", "files", "lines"], sizes())
    table(["the core", "lines"], core())
    table(["tables", "architectures", "lines", "lines for each"], architectures())
    columns = ["run, to its first step", "files", "their lines", "lines of functions", "frames to `optimizer.step`"]
    table(columns, training(shared, list_functions))
    recipes = dict.fromkeys(run.recipe for run in make_runs(shared, texts=shared).values())
    table(["recipe", "options", "their classes", "that define one", "in files"], map(options, recipes))


if __name__ == "__main__":
    typer.run(main)
