"""Tiny checkpoints and data that tiny models learn, and each recipe, run in this process or in its own."""

import gc
import io
import json
import os
import random
import runpy
import subprocess
import sys
from collections.abc import Callable
from contextlib import redirect_stderr
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType
from unittest.mock import patch

import datasets
import pytest
import torch
from datasets.fingerprint import generate_random_fingerprint
from pandas import DataFrame
from safetensors.torch import load_file
from transformers import BertConfig, BertModel, Trainer

from tfm_zoo.training import report
from tfm_zoo.training.checkpoints import starting_point
from tfm_zoo.training.loop import Loop
from tfm_zoo.training.options import TrainingOptions
from tfm_zoo.training.run import start_run
from tfm_zoo.training.task import Task
from tfm_zoo.training.tokenizers import word_piece_tokenizer
from tfm_zoo.visualization import plot_training

from ..forks import with_libraries
from .in_a_row import ROOT, forget_processes, imported, no_picture

WITHOUT_ZOO = imported(ROOT / "recipes" / "demo.py").WITHOUT_ZOO  # tests run as the demo does

# 60 lines, about 1,000 tokens of the small tokenizers here.
TEXT = "".join(
    f"{('cat', 'dog', 'old man')[i % 3]} number {i} sat on the {('mat', 'log')[i % 2]} .\n" for i in range(60)
)
TINY = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
TINY["max_position_embeddings"] = 64
#: of new models of the zoo
SIZES = "hidden_size=32,num_hidden_layers=1,num_attention_heads=2,intermediate_size=64"
SIDES = "encoder_layers=1,encoder_ffn_dim=32,encoder_attention_heads=2"
SIZES_OF_MARIAN = f"d_model=32,{SIDES},{SIDES.replace('encoder', 'decoder')},dropout=0,max_position_embeddings=24"
MARIAN = {"model_type": "marian", "config_overrides": SIZES_OF_MARIAN}
LORA = {"lora_rank": 4, "learning_rate": 5e-3}
#: what differs between the logs of two equal runs
CLOCK = {"eval_samples_per_second", "train_runtime"}

# A metric of a user's own.
OWN = '''
"""How many predictions are 1."""

import evaluate
import numpy as np
from datasets import Features, Value


class Ones(evaluate.Metric):
    def _info(self):
        return evaluate.MetricInfo(__doc__, "", Features(predictions=Value("int64"), references=Value("int64")))

    def _compute(self, predictions, references):
        return {RESULTS}
'''

#: how problems of classifiers are written: the columns of a row with these words, and the options that name them
KINDS = {
    "lists": (lambda words: {"labels": [*{"fine", "film"}.intersection(words)]}, {}),
    "marks": (
        lambda words: {"fine": int("fine" in words), "film": int("film" in words)},
        {"label_column_name": ["fine", "film"]},
    ),
    "number": (lambda words: {"label": 0.5 if "fine" in words else -0.5}, {"problem_type": "regression"}),
}


@pytest.fixture(scope="session", autouse=True)
def own_cache(tmp_path_factory):
    before = torch.get_num_threads(), datasets.config.HF_DATASETS_CACHE
    torch.set_num_threads(1)
    datasets.config.HF_DATASETS_CACHE = tmp_path_factory.mktemp("datasets")
    yield
    torch.set_num_threads(before[0])
    datasets.config.HF_DATASETS_CACHE = before[1]


@pytest.fixture(scope="package", autouse=True)
def quick_runs():
    """Pictures are empty files, and data in memory get no digests, by which `datasets` would look into its cache."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(report, "plot_training", no_picture)
        patch.setattr("datasets.arrow_dataset.generate_fingerprint", lambda _: generate_random_fingerprint())
        yield


@pytest.fixture(scope="module", autouse=True)
def frozen():
    """The garbage collector, which every run calls, skips what the tests before have imported."""
    gc.freeze()


@pytest.fixture
def pictures(monkeypatch):
    """Runs draw all the same."""
    monkeypatch.setattr(report, "plot_training", plot_training)


def as_argv(options: dict) -> list[str]:
    """Options as the command line has them, a mapping as JSON; None leaves an option out."""
    argv = []
    for name, value in options.items():
        if value is not None:
            value = json.dumps(value) if isinstance(value, dict) else value
            argv += [f"--{name}", *map(str, value if isinstance(value, list) else [value])]
    return argv


@dataclass
class Recipe:
    """A script that is run in this process, with these options unless told otherwise."""

    name: str
    options: dict

    @property
    def script(self) -> Path:
        return ROOT / "recipes" / f"{self.name}.py"

    @property
    def module(self) -> ModuleType:
        return imported(self.script)

    def argv(self, **options) -> list[str]:
        return as_argv(self.options | options)

    def __call__(self, **options) -> dict[str, float]:
        forget_processes()
        return self.module.main(self.argv(**options))

    def task(self, **options) -> Task:
        """The task of a run, without its loop."""
        forget_processes()
        kinds = [each for each in vars(self.module).values() if isinstance(each, type)]
        (options_class,) = (each for each in kinds if issubclass(each, TrainingOptions))
        return self.module.load_task(start_run(self.name, options_class, self.argv(**options)))

    def prepare(self, **options) -> Loop:
        """All that the recipe does before the first step, but for its folder."""
        return Loop(self.task(**options))

    def resumed(self, **options) -> Loop:
        """The loop at its checkpoint."""
        loop = self.prepare(**options)
        loop.resume(starting_point(loop.accelerator, loop.args))
        return loop

    def trained(self, **options) -> Loop:
        """The loop after its last step: without final figures and card, which cost as much as a few steps."""
        loop = self.prepare(**options)
        loop.train()
        return loop

    def refusal(self, **options) -> str:
        """The one line with which the recipe, run as a program, refuses its options or data."""
        forget_processes()
        argv, shown = [str(self.script), *self.argv(**options)], io.StringIO()
        with patch.object(sys, "argv", argv), redirect_stderr(shown), pytest.raises(SystemExit) as stopped:
            runpy.run_path(str(self.script), run_name="__main__")
        assert stopped.value.code == 2 and "Traceback" not in shown.getvalue()
        line = shown.getvalue().splitlines()[-1]
        assert line.startswith(f"{self.script.name}: error: ")
        return line


@pytest.fixture(scope="session")
def rows() -> list[dict[str, str]]:
    """Reviews of 3 to 21 words, that one word makes good or bad."""
    rest = ["the", "film", "was", "seen", "by", "many", "people", "in", "a", "town", "near", "here"]
    return [
        {
            "review": " ".join([("fine", "poor")[i % 2], *(rest[i * k % 12] for k in range(2 + i % 19))]),
            "stars": ("good", "bad")[i % 2],
        }
        for i in range(90)
    ]


@pytest.fixture(scope="session")
def checkpoint(rows, tmp_path_factory) -> Path:
    """A native BERT without dropout, and its tokenizer."""
    folder = tmp_path_factory.mktemp("checkpoint")
    tokenizer = word_piece_tokenizer(row["review"] for row in rows)
    tokenizer.model_max_length = 64
    torch.manual_seed(0)
    config = BertConfig(vocab_size=len(tokenizer), hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, **TINY)
    BertModel(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def write(file: Path, rows: list[dict]) -> Path:
    """A JSON file, or a CSV file."""
    table = DataFrame(rows)
    if file.suffix == ".csv":
        table.to_csv(file, index=False, na_rep="nan")
    else:
        table.to_json(file, orient="records", lines=True)
    return file


def written(folder: Path, suffix: str, **splits: list[dict]) -> dict[str, Path]:
    """Rows in a file for each split: the arguments that name the files."""
    return {f"{split}_file": write(folder / f"{split}.{suffix}", rows) for split, rows in splits.items()}


@pytest.fixture(scope="session")
def pairs(tmp_path_factory) -> Path:
    """Sequences of 2 to 4 letters and their reverses, none twice: a folder of JSON files, one for each split."""
    rng = random.Random(0)
    sources: dict[str, None] = {}
    while len(sources) < 634:
        sources[" ".join(rng.choices("abcde", k=rng.randint(2, 4)))] = None
    # Shuffled, so that each split has sources of unlike length: those that are drawn last are the longest.
    rows = [{"en": source, "de": source[::-1]} for source in rng.sample([*sources], len(sources))]
    folder = tmp_path_factory.mktemp("pairs")
    written(folder, "json", train=rows[:600], validation=rows[600:620], test=rows[620:])
    return folder


@pytest.fixture(scope="session")
def documents(tmp_path_factory) -> Path:
    """Documents about one of four things each, a sentence a line: a folder with 72 in two files, and 20 to validate."""
    rng = random.Random(0)
    folder = tmp_path_factory.mktemp("documents")
    things = ("cat dog fox owl", "tea milk soup wine", "red blue green white", "one two three four")
    texts = []
    for _ in range(92):
        words = rng.choice(things).split()
        sentences = [" ".join(rng.choices(words, k=rng.randint(2, 6))) + " ." for _ in range(rng.randint(3, 7))]
        texts.append("\n".join(sentences) + "\n")
    for name, part in {"train-0": texts[:40], "train-1": texts[40:72], "validation": texts[72:]}.items():
        (folder / f"{name}.txt").write_text("\n".join(part))
    return folder


@pytest.fixture(scope="session")
def texts(tmp_path_factory) -> Path:
    """A folder with a text and the beginning of it."""
    folder = tmp_path_factory.mktemp("texts")
    (folder / "text.txt").write_text(TEXT)
    (folder / "held_out.txt").write_text(TEXT[:500])
    return folder


@pytest.fixture(scope="session")
def recipes(rows, checkpoint, pairs, documents, texts, tmp_path_factory) -> dict[str, Recipe]:
    """Each recipe by its task, with a tiny model and data that it learns."""
    few = {"logging_steps": 1, "num_train_epochs": 1}
    reviews = written(tmp_path_factory.mktemp("reviews"), "csv", train=rows[:61], validation=rows[61:])
    classification = few | {"model_name_or_path": checkpoint, "learning_rate": 1e-3, "num_train_epochs": 2}
    named = reviews | {"text_column_name": "review", "label_column_name": "stars"}
    found = {"classification": Recipe("finetune_classification", classification | named)}
    for kind, (columns, names) in KINDS.items():
        labelled = [{"text": row["review"]} | columns(row["review"].split()) for row in rows]
        splits = {"train": labelled[:50], "validation": labelled[50:70], "test": labelled[70:]}
        files = written(tmp_path_factory.mktemp(kind), "json" if kind == "lists" else "csv", **splits)
        found[kind] = Recipe("finetune_classification", classification | files | names)

    new = few | {"config_overrides": SIZES, "learning_rate": 3e-3}
    language = new | {"config_overrides": SIZES.replace("layers=1", "layers=2")}
    language |= {"block_size": 32, "tokenizer_vocab_size": 280, "sample_length": 8, "train_file": texts / "text.txt"}
    found["causal_lm"] = Recipe("finetune_causal_lm", language)
    steps = {"max_train_steps": 4, "eval_steps": 2, "warmup_steps": 0.5, "lr_scheduler_type": "linear"}
    steps |= {"sample_length": None, "num_train_epochs": None, "per_device_train_batch_size": 4}
    found["comparison"] = Recipe("compare_architectures", language | steps)
    wide = "hidden_size=64,num_hidden_layers=1,num_attention_heads=4,intermediate_size=128"
    translation = {"config_overrides": wide, "tokenizer_vocab_size": 270, "per_device_train_batch_tokens": 400}
    translation |= {f"{split}_file": pairs / f"{split}.json" for split in ("train", "validation", "test")}
    translation |= {"source_lang": "en", "target_lang": "de", "max_source_length": 16, "max_target_length": 16}
    found["translation"] = Recipe("train_translation", new | translation)
    unlabelled = {"train_file": documents / "train-*.txt", "validation_file": documents / "validation.txt"}
    unlabelled |= {"max_seq_length": 32, "block_documents": 16}
    unlabelled |= new
    found["pretraining"] = Recipe("pretrain_bert", unlabelled | {"tokenizer_vocab_size": 120, "learning_rate": None})
    found["denoising"] = Recipe("pretrain_t5", unlabelled | {"tokenizer_vocab_size": 420, "max_train_steps": 4})
    # On the built-in data.
    samples = new | {"max_train_samples": 40, "max_eval_samples": 7, "max_train_steps": 3}
    found["tagging"] = Recipe("finetune_token_classification", samples)
    found["questions"] = Recipe("finetune_question_answering", samples | {"max_seq_length": 24, "doc_stride": 4})
    lengths = {"max_source_length": 24, "max_target_length": 8, "per_device_train_batch_tokens": 400}
    lengths |= {"tokenizer_vocab_size": 290, "num_eval_summaries": 5}
    found["summaries"] = Recipe("finetune_summarization", samples | lengths)
    return found


@pytest.fixture
def recipe(recipes, tmp_path) -> Callable[[str], Recipe]:
    """Gives the recipe of a task, which saves its runs in this test's folder."""
    return lambda task: replace(recipes[task], options=recipes[task].options | {"output_dir": tmp_path / "run"})


@pytest.fixture
def own(tmp_path):
    """Makes a metric of a user's own, which gives these results; returns its folder."""

    def own(name: str, results: str = '{"ones": np.mean(predictions)}') -> str:
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / f"{tmp_path.joinpath(name).name}.py").write_text(OWN.replace("{RESULTS}", results))
        return str(tmp_path / name)

    return own


def interrupted(made: Loop, after: int) -> Loop:
    """The loop, in which somebody presses Ctrl-C after so many steps."""

    def interrupt(*_: object) -> None:
        if made.state.step == after:
            raise KeyboardInterrupt

    made.optimizer.optimizer.register_step_pre_hook(interrupt)
    return made


def logged(loop: Loop | Trainer, key: str) -> list:
    """The entries that have a key, in the log of a loop or a Trainer."""
    return [entry[key] for entry in loop.state.log_history if key in entry]


def log_of(folder: Path) -> list[dict]:
    return json.loads((folder / "trainer_state.json").read_text())["log_history"]


def history(folder: Path, key: str) -> list:
    """The entries of a run's log that have a key."""
    return [entry[key] for entry in log_of(folder) if key in entry]


def same_weights(folder: Path, other: Path) -> bool:
    kept, wanted = (load_file(each / "model.safetensors") for each in (folder, other))
    return kept.keys() == wanted.keys() and all(torch.equal(kept[name], wanted[name]) for name in wanted)


def same_history(found: list[dict], expected: list[dict], tolerance: float = 1e-5) -> None:
    """Two runs have logged the same figures, and the same samples."""
    assert len(found) == len(expected) > 1
    for entry, other in zip(found, expected, strict=True):
        assert entry.keys() == other.keys()
        for key in entry.keys() - CLOCK:
            wanted = other[key] if key == "samples" else pytest.approx(other[key], rel=tolerance, abs=tolerance)
            assert entry[key] == wanted, (entry["step"], key)


def run_in_a_row(jobs: list[dict], launcher: str, folder: Path) -> str:
    """Run jobs of `in_a_row.py` in the processes of a shipped launcher, by default in float32; return their stderr."""
    (folder / "jobs.json").write_text(json.dumps(jobs))
    config = ROOT / "recipes" / "accelerate" / f"{launcher}.yaml"
    options = ["--config_file", config, "--mixed_precision", "no", "--module"]
    command = ["-m", "accelerate.commands.launch", *options, "tests.recipes.in_a_row", folder / "jobs.json"]
    return run_python(*command).stderr


def run_python(*command: object, check: bool = True) -> subprocess.CompletedProcess:
    """Run Python in a fresh process that sees the repository, but no network."""
    run = subprocess.run if command[0] == "-m" else with_libraries().run
    ended = run(
        [sys.executable, *map(str, command)],
        env=os.environ | {"PYTHONPATH": str(ROOT), "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert not check or ended.returncode == 0, ended.stderr
    return ended
