"""A loop on tensors: a tiny classifier of random tokens. Nothing is read, tokenized or downloaded."""

from collections.abc import Mapping
from functools import cache
from typing import Any

import torch
from datasets import DatasetDict
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from transformers import PreTrainedModel, PreTrainedTokenizerBase

import tfm_zoo
from tfm_zoo.training.loop import Loop
from tfm_zoo.training.metrics import Metrics, load_metrics
from tfm_zoo.training.run import start_run
from tfm_zoo.training.tasks.classification import ONE_LABEL, ClassificationOptions, ClassificationTask, LabelledTexts
from tfm_zoo.training.tokenizers import word_piece_tokenizer

from ..recipes.conftest import as_argv, forget_processes, logged
from ..tiny import NO_DROPOUT, SIZES, tiny_config

__all__ = ["classifier", "logged", "loop_on_tensors"]

METRICS = ["loss", "accuracy"]
#: unless a test says otherwise: 4 steps an epoch, the last of 13 rows
OPTIONS = {"dataset_name": "generated", "learning_rate": 1e-3, "logging_steps": 1, "num_train_epochs": 2}


def classifier(**fields: Any) -> PreTrainedModel:
    """A classifier of two labels, always with the same weights."""
    torch.manual_seed(0)
    return tfm_zoo.TfmBertForSequenceClassification(tiny_config(**NO_DROPOUT | fields))


@cache
def rows() -> dict[str, list[dict[str, Tensor]]]:
    """Texts of 2 to 10 random tokens, 61 to train on and 29 to validate on, whose first token says their label."""
    generator = torch.Generator().manual_seed(0)
    texts = [torch.randint(5, SIZES["vocab_size"], (2 + n % 9,), generator=generator) for n in range(90)]
    labelled = [{"input_ids": ids, "labels": ids[0] % 2} for ids in texts]
    return {"train": labelled[:61], "validation": labelled[61:]}


def padded(examples: list[Mapping[str, Tensor]]) -> dict[str, Tensor]:
    """A batch of rows."""
    ids = pad_sequence([example["input_ids"] for example in examples], batch_first=True)
    labels = torch.stack([example["labels"] for example in examples])
    return {"input_ids": ids, "attention_mask": (ids > 0).long(), "labels": labels}


@cache
def tools() -> tuple[PreTrainedTokenizerBase, Metrics]:
    """What is saved beside a model, and what measures it."""
    return word_piece_tokenizer(["a b"]), load_metrics(METRICS[1:])


def loop_on_tensors(model: PreTrainedModel | None = None, **options: Any) -> Loop:
    """A loop in this process, as a recipe's `prepare` makes it."""
    forget_processes()
    run = start_run("tensors", ClassificationOptions, as_argv(OPTIONS | options))
    args = run.args.with_best_metric(METRICS, "accuracy")
    tokenizer, metrics = tools()
    splits = rows()
    lengths = [len(row["input_ids"]) for row in splits["train"]]
    task = ClassificationTask(
        accelerator=run.accelerator,
        model=classifier() if model is None else model,
        tokenizer=tokenizer,
        args=args,
        data=LabelledTexts(DatasetDict(), ["validation"], [], [], ["even", "odd"], ONE_LABEL),
        metrics=metrics,
        splits=splits,
        collate=padded,
        lengths=lengths if args.group_by_length else None,
    )
    return Loop(run, task)
