"""Loops on tensors, texts on a disk, and what the recipes' tests have made."""

import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from tempfile import mkdtemp

import pytest
import torch
from accelerate import Accelerator
from datasets import Dataset, DatasetDict
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from transformers import PreTrainedModel

import tfm_zoo
from tfm_zoo.training.loop import Loop
from tfm_zoo.training.run import start_run
from tfm_zoo.training.streaming.documents import load_documents
from tfm_zoo.training.streaming.streams import Stream
from tfm_zoo.training.streaming.texts import TextSource
from tfm_zoo.training.tasks import classification
from tfm_zoo.training.tasks.language_modeling import LanguageModelingOptions, load_corpus
from tfm_zoo.training.tasks.pretraining import PretrainingOptions
from tfm_zoo.training.tasks.question_answering import AnsweringOptions, load_questions
from tfm_zoo.training.tasks.summarization import SummarizationOptions, load_summaries
from tfm_zoo.training.tasks.tagging import TaggingOptions, load_tagged_texts
from tfm_zoo.training.tasks.translation import TranslationOptions, load_parallel_texts
from tfm_zoo.training.tokenizers import word_piece_tokenizer

from ..recipes.conftest import as_argv, checkpoint, forget_processes, frozen, own, own_cache, quick_runs, rows
from ..tiny import NO_DROPOUT, SIZES, tiny_config

__all__ = ["checkpoint", "frozen", "own", "own_cache", "quick_runs", "rows"]

TEXTS = [f"text {i} " + "word " * (i % 7) for i in range(100)]
#: what writes a data set into a file, by the file's kind
WRITERS = {
    "csv": lambda data, path: data.to_csv(path),
    "tsv": lambda data, path: data.to_csv(path, sep="\t"),
    "json": lambda data, path: data.to_json(path, lines=False),
    "jsonl": lambda data, path: data.to_json(path),
    "parquet": lambda data, path: data.to_parquet(path),
}
STREAMED = {"streaming": True, "max_train_steps": 2}
#: by task: its options, what reads its data, and options that a case does not repeat
TASKS = {
    "texts": (classification.ClassificationOptions, classification.load_texts, {}),
    "pairs": (TranslationOptions, load_parallel_texts, {"source_lang": "en", "target_lang": "de"}),
    **{"summaries": (SummarizationOptions, load_summaries, {}), "questions": (AnsweringOptions, load_questions, {})},
    **{"tags": (TaggingOptions, load_tagged_texts, {}), "corpus": (LanguageModelingOptions, load_corpus, {})},
    "streamed corpus": (LanguageModelingOptions, load_corpus, STREAMED),
    "documents": (PretrainingOptions, load_documents, {}),
    "streamed documents": (PretrainingOptions, load_documents, STREAMED),
}
#: of a loop on tensors, unless a test says otherwise: 4 steps an epoch, the last of 13 rows
OPTIONS = {"dataset_name": "generated", "metrics": ["accuracy"], "learning_rate": 1e-3, "logging_steps": 1}
OPTIONS["num_train_epochs"] = 2


def load(task: str, **options):
    """What a task reads of its data."""
    options_class, reads, known = TASKS[task]
    return reads(options_class(**{"seed": 0} | known | options).with_defaults())


def read(source: TextSource) -> list[str]:
    """The texts of a pass, in order of the alphabet; a first line break is a blank, as shards of lines have one."""
    return sorted(text.replace("\n", " ", 1) for text in Stream(source, lambda texts, rng: texts, seed=0).first_pass())


def lines_of(*rows: object) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


def saved(folder: Path, **splits: Dataset) -> str:
    """A data set on disk: its name."""
    DatasetDict(splits).save_to_disk(folder)
    return str(folder)


def sizes(data) -> dict[str, int]:
    return {name: len(split) for name, split in data.splits.items()}


def classifier(**fields) -> PreTrainedModel:
    """A classifier of two labels, always with the same weights."""
    torch.manual_seed(0)
    return tfm_zoo.TfmBertForSequenceClassification(tiny_config(**NO_DROPOUT | fields))


@cache
def random_rows() -> dict[str, list[dict[str, Tensor]]]:
    """Texts of 2 to 10 random tokens, 61 to train on and 29 to validate on, whose first token says their label."""
    generator = torch.Generator().manual_seed(0)
    texts = [torch.randint(5, SIZES["vocab_size"], (2 + n % 9,), generator=generator) for n in range(90)]
    labelled = [{"input_ids": ids, "labels": ids[0] % 2} for ids in texts]
    return {"train": labelled[:61], "validation": labelled[61:]}


def padded(examples: list[dict[str, Tensor]]) -> dict[str, Tensor]:
    ids = pad_sequence([example["input_ids"] for example in examples], batch_first=True)
    labels = torch.stack([example["labels"] for example in examples])
    return {"input_ids": ids, "attention_mask": (ids > 0).long(), "labels": labels}


@pytest.fixture
def accelerator() -> Accelerator:
    """Of a run that begins as if it were the first in this process."""
    forget_processes()
    return Accelerator(cpu=True)


@pytest.fixture
def loop(tmp_path) -> Callable[..., Loop]:
    """Makes a loop on tensors as a recipe's `prepare` does, by default in a folder of its own, from no file."""

    def loop(model: PreTrainedModel | None = None, **options) -> Loop:
        forget_processes()
        argv = as_argv(OPTIONS | {"output_dir": mkdtemp(dir=tmp_path)} | options)
        run = start_run("tensors", classification.ClassificationOptions, argv)
        splits = random_rows()
        lengths = [len(row["input_ids"]) for row in splits["train"]] if run.args.group_by_length else None
        data = classification.LabelledTexts(DatasetDict(), [], [], ["even", "odd"], classification.ONE_LABEL)
        made = {"run": run, "model": model or classifier(), "data": data}
        made["tokenizer"] = word_piece_tokenizer(["a b"])
        return Loop(classification.ClassificationTask(**made, splits=splits, collate=padded, lengths=lengths))

    return loop


@pytest.fixture
def trained(loop) -> Callable[..., Loop]:
    """Makes a loop on tensors and trains it, in tenths of a second; figures, card and picture come of `train(loop)`."""

    def trained(*model, **options) -> Loop:
        made = loop(*model, **options)
        made.train()
        return made

    return trained


@pytest.fixture(scope="session")
def shards(tmp_path_factory) -> Path:
    """The texts in three files of each kind: two lines a document in text files, with an empty line behind each."""
    folder = tmp_path_factory.mktemp("shards")
    for shard, texts in enumerate([TEXTS[:50], TEXTS[50:85], TEXTS[85:]]):
        (folder / f"{shard}.txt").write_text("".join(text.replace(" ", "\n", 1) + "\n\n" for text in texts))
        (folder / f"{shard}.jsonl").write_text("".join(json.dumps({"n": 1, "text": text}) + "\n" for text in texts))
        Dataset.from_dict({"text": texts}).to_parquet(folder / f"{shard}.parquet")
    return folder
