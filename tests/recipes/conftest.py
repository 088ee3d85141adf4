"""A tiny checkpoint, texts that a tiny model learns, and the recipe run in this process or in its own."""

import gc
import importlib.util
import json
import os
import random
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import datasets
import pytest
import torch
from accelerate.state import AcceleratorState, GradientState
from datasets.fingerprint import generate_random_fingerprint
from transformers import BertConfig, BertModel

from tfm_zoo.training import report
from tfm_zoo.training.loop import Loop
from tfm_zoo.training.run import run_script
from tfm_zoo.training.tokenizers import word_piece_tokenizer
from tfm_zoo.visualization import plot_training

from ..forks import Forks, with_libraries
from .in_a_row import no_picture

ROOT = Path(__file__).parents[2]
sys.path.append(str(ROOT / "recipes"))  # as for a script there, which Python is told to run
from demo import WITHOUT_ZOO  # noqa: E402, F401, which tests run as the demo does

RECIPE = ROOT / "recipes" / "finetune_classification.py"
LM_RECIPE = ROOT / "recipes" / "finetune_causal_lm.py"
TRANSLATION_RECIPE = ROOT / "recipes" / "train_translation.py"
PRETRAINING_RECIPE = ROOT / "recipes" / "pretrain_bert.py"
# 60 lines, about 1,000 tokens of the small tokenizers here.
TEXT = "".join(
    f"{('cat', 'dog', 'old man')[i % 3]} number {i} sat on the {('mat', 'log')[i % 2]} .\n" for i in range(60)
)
TINY = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 64,
    "max_position_embeddings": 64,
}

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


@pytest.fixture(scope="session", autouse=True)
def one_thread_and_own_cache(tmp_path_factory):
    before = torch.get_num_threads(), datasets.config.HF_DATASETS_CACHE
    torch.set_num_threads(1)
    datasets.config.HF_DATASETS_CACHE = tmp_path_factory.mktemp("datasets")
    yield
    torch.set_num_threads(before[0])
    datasets.config.HF_DATASETS_CACHE = before[1]


@pytest.fixture(scope="package", autouse=True)
def quick_runs():
    """What no test looks at is not made: pictures, whose files are there, and empty; and digests of data in memory, by
    which `datasets` would find in its cache what was made of them."""
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
def files(rows, tmp_path_factory) -> dict[str, str]:
    """The reviews as CSV files, 61 to train on and 29 to validate on: the arguments that name them."""
    folder = tmp_path_factory.mktemp("reviews")
    datasets.Dataset.from_list(rows[:61]).to_csv(folder / "train.csv")
    datasets.Dataset.from_list(rows[61:]).to_csv(folder / "validation.csv")
    return {
        "train_file": str(folder / "train.csv"),
        "validation_file": str(folder / "validation.csv"),
        "text_column_name": "review",
        "label_column_name": "stars",
    }


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


def imported(script: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(script.stem, script)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def forget_processes() -> None:
    """Let the next run in this process begin as if it were the first."""
    AcceleratorState._reset_state(reset_partial_state=True)
    GradientState._reset_state()


def run_here(recipe, options: dict) -> dict[str, float]:
    """Run a recipe in this process."""
    forget_processes()
    return recipe.main(as_argv(options))


@dataclass
class Recipe:
    """A recipe that is run in this process, with these options unless told otherwise."""

    module: ModuleType
    options: dict

    def __call__(self, **options) -> dict[str, float]:
        return run_here(self.module, self.options | options)

    def trained(self, **options) -> Loop:
        """The loop after its last step: without final figures and card, which cost as much as a few steps."""
        loop = self.prepare(**options)
        loop.train()
        return loop

    def prepare(self, **options) -> Loop:
        """All that the recipe does before the first step."""
        forget_processes()
        return self.module.prepare(as_argv(self.options | options))


def shown_error(recipe, argv: list, monkeypatch, capsys) -> str:
    """What a recipe prints that is run as a program in this process, and refuses its options or data."""
    forget_processes()
    monkeypatch.setattr(sys, "argv", [recipe.__file__, *map(str, argv)])
    with pytest.raises(SystemExit) as stopped:
        run_script(recipe.prepare, recipe.train)
    assert stopped.value.code == 2
    return capsys.readouterr().err


@pytest.fixture(scope="session")
def recipe():
    return imported(RECIPE)


@pytest.fixture(scope="session")
def lm_recipe():
    return imported(LM_RECIPE)


@pytest.fixture(scope="session")
def translation_recipe():
    return imported(TRANSLATION_RECIPE)


@pytest.fixture(scope="session")
def pretraining_recipe():
    return imported(PRETRAINING_RECIPE)


@pytest.fixture(scope="session")
def pairs(tmp_path_factory) -> Path:
    """Sequences of 2 to 4 letters and their reverses, none twice: a folder of JSON files, one for each split."""
    rng = random.Random(0)
    sources: dict[str, None] = {}
    while len(sources) < 634:
        sources[" ".join(rng.choices("abcde", k=rng.randint(2, 4)))] = None
    rows = [{"en": source, "de": source[::-1]} for source in sources]
    folder = tmp_path_factory.mktemp("pairs")
    for split, part in {"train": rows[:600], "validation": rows[600:620], "test": rows[620:]}.items():
        (folder / f"{split}.json").write_text(json.dumps(part))
    return folder


@pytest.fixture
def finetune(recipe, files, checkpoint, tmp_path) -> Recipe:
    """The recipe of classification: on the reviews and from the tiny checkpoint, unless told otherwise."""
    return Recipe(recipe, defaults(files, checkpoint) | {"output_dir": tmp_path / "run"})


@pytest.fixture
def train_lm(lm_recipe, tmp_path) -> Recipe:
    """The recipe of language modelling: a tiny new model on a small text, unless told otherwise."""
    (tmp_path / "text.txt").write_text(TEXT)
    return Recipe(lm_recipe, lm_defaults(tmp_path))


@pytest.fixture
def train_translation(translation_recipe, pairs, tmp_path) -> Recipe:
    """The recipe of translation: a tiny new model that reverses a few letters, unless told otherwise."""
    return Recipe(translation_recipe, translation_defaults(pairs) | {"output_dir": tmp_path / "run"})


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


@pytest.fixture
def pretrain(pretraining_recipe, documents, tmp_path) -> Recipe:
    """The recipe of pre-training: a tiny new model on those documents, unless told otherwise."""
    return Recipe(pretraining_recipe, pretraining_defaults(documents) | {"output_dir": tmp_path / "run"})


def pretraining_defaults(documents: Path) -> dict:
    return {
        "train_file": documents / "train-*.txt",
        "validation_file": documents / "validation.txt",
        "config_overrides": "hidden_size=32,num_hidden_layers=1,num_attention_heads=2,intermediate_size=64",
        "tokenizer_vocab_size": 120,
        "max_seq_length": 32,
        "block_documents": 16,
        "logging_steps": 1,
        "num_train_epochs": 1,
    }


def translation_defaults(pairs: Path) -> dict:
    return {
        **{f"{split}_file": pairs / f"{split}.json" for split in ("train", "validation", "test")},
        "source_lang": "en",
        "target_lang": "de",
        "config_overrides": "hidden_size=64,num_hidden_layers=1,num_attention_heads=4,intermediate_size=128",
        "tokenizer_vocab_size": 270,
        "max_source_length": 16,
        "max_target_length": 16,
        "per_device_train_batch_tokens": 400,
        "learning_rate": 3e-3,
        "logging_steps": 1,
        "num_train_epochs": 1,
        "num_samples": 2,
    }


def lm_defaults(folder: Path) -> dict:
    return {
        "train_file": folder / "text.txt",
        "config_overrides": "hidden_size=32,num_hidden_layers=2,num_attention_heads=2,intermediate_size=64",
        "tokenizer_vocab_size": 280,
        "block_size": 32,
        "learning_rate": 3e-3,
        "logging_steps": 1,
        "num_train_epochs": 1,
        "sample_length": 8,
        "output_dir": folder / "run",
    }


@pytest.fixture
def own(tmp_path):
    """Makes a metric of a user's own, which gives these results; returns its folder."""

    def own(name: str, results: str = '{"ones": np.mean(predictions)}') -> str:
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / f"{tmp_path.joinpath(name).name}.py").write_text(OWN.replace("{RESULTS}", results))
        return str(tmp_path / name)

    return own


def logged(loop: Loop, key: str) -> list:
    """The entries of a loop's log that have a key."""
    return [entry[key] for entry in loop.state.log_history if key in entry]


#: what differs between the logs of two equal runs
CLOCK = {"eval_samples_per_second", "train_runtime"}


def history(folder: Path, key: str) -> list:
    """The entries of a run's log that have a key."""
    entries = json.loads((folder / "trainer_state.json").read_text())["log_history"]
    return [entry[key] for entry in entries if key in entry]


def defaults(files: dict[str, str], checkpoint: Path) -> dict:
    return files | {"model_name_or_path": checkpoint, "learning_rate": 1e-3, "logging_steps": 1, "num_train_epochs": 2}


def validated(folder: Path, options: dict) -> dict:
    """The options of a stream, with a text to validate on."""
    (folder / "held_out.txt").write_text(TEXT[:500])
    return options | {"validation_file": folder / "held_out.txt"}


def as_argv(options: dict) -> list[str]:
    """Options as the command line has them; None leaves an option out."""
    argv = []
    for name, value in options.items():
        if value is not None:
            argv += [f"--{name}", *map(str, value if isinstance(value, list) else [value])]
    return argv


def run_in_a_row(jobs: list[dict], launcher: str, folder: Path) -> str:
    """Run jobs of `in_a_row.py` in the processes that a shipped launcher starts, in float32 unless a job says more.
    Returns what they write to stderr."""
    (folder / "jobs.json").write_text(json.dumps(jobs))
    config = ROOT / "recipes" / "accelerate" / f"{launcher}.yaml"
    options = ["--config_file", config, "--mixed_precision", "no", "--module"]
    command = ["-m", "accelerate.commands.launch", *options, "tests.recipes.in_a_row", folder / "jobs.json"]
    return run_python(*command).stderr


def run_python(
    *command: object, check: bool = True, forks: Callable[[], Forks] = with_libraries
) -> subprocess.CompletedProcess:
    """Run Python in a fresh process that sees the repository, but no network."""
    run = subprocess.run if command[0] == "-m" else forks().run
    ended = run(
        [sys.executable, *map(str, command)],
        env=os.environ | {"PYTHONPATH": str(ROOT), "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert not check or ended.returncode == 0, ended.stderr
    return ended
