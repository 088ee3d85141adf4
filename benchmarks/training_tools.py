"""A step in the tools where people train.

Each tool trains the official class and its zoo twin on the same ragged batches of Rotten Tomatoes under one seed, some
steps of the one, then of the other: models of random weights, of MiniLM's shape and of SmolLM-135M's.
"""

import gc
import statistics
import tempfile
import time
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Annotated

import torch
import typer
from datasets import Dataset
from transformers import (
    AutoModelForSequenceClassification,
    AutoTokenizer,
    DataCollatorWithPadding,
    PrinterCallback,
    Trainer,
    TrainerCallback,
    TrainingArguments,
)

from . import batches
from .memory import with_peak
from .pairs import MINILM, Settings, pair
from .timing import table

BATCH, LENGTH = 16, 256  # rows of a step, and the most tokens of one
ROUNDS, STEPS_OF_ROUND = 3, 4  # how often each side trains, and for how long; the first step does not count
STEPS = {"per_device_train_batch_size": BATCH, "seed": 0, "logging_steps": 1, "save_strategy": "no"}
QUIET = {"report_to": [], "disable_tqdm": True, "use_cpu": not torch.cuda.is_available()}
TRL = {"bf16": False, "activation_checkpointing": False, "max_length": LENGTH}


class Clock(TrainerCallback):
    """The time at the end of each step."""

    def __init__(self):
        self.times = []

    def on_step_end(self, *args, **kwargs) -> None:
        self.times.append(time.perf_counter())


def by_trainer(folder: str, rows: Dataset, options: dict) -> Trainer:
    tokenizer, model = AutoTokenizer.from_pretrained(folder), AutoModelForSequenceClassification.from_pretrained(folder)
    rows = rows.map(lambda row: tokenizer(row["text"], truncation=True, max_length=LENGTH), remove_columns=["text"])
    arguments = TrainingArguments(**options)
    return Trainer(model, arguments, data_collator=DataCollatorWithPadding(tokenizer), train_dataset=rows)


def by_sentence_transformers(folder: str, rows: Dataset, options: dict) -> Trainer:
    """Texts beside every second word of theirs."""
    import sentence_transformers as library
    from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss

    model = library.SentenceTransformer(folder)
    model.max_seq_length = LENGTH
    parts = [" ".join(text.split()[::2]) for text in rows["text"]]
    rows, arguments = rows.select_columns(["text"]).add_column("part", parts), "SentenceTransformerTrainingArguments"
    arguments = getattr(library, arguments)(**options)
    return library.SentenceTransformerTrainer(model, arguments, rows, loss=MultipleNegativesRankingLoss(model))


def by_cross_encoder(folder: str, rows: Dataset, options: dict) -> Trainer:
    from sentence_transformers import cross_encoder as library
    from sentence_transformers.cross_encoder.losses import BinaryCrossEntropyLoss

    model = library.CrossEncoder(folder, num_labels=1, max_length=LENGTH)
    pairs = {"one": ["good"] * len(rows), "other": rows["text"], "label": [float(label) for label in rows["label"]]}
    arguments, loss = library.CrossEncoderTrainingArguments(**options), BinaryCrossEntropyLoss(model)
    return library.CrossEncoderTrainer(model, arguments, Dataset.from_dict(pairs), loss=loss)


def by_trl(method: str, folder: str, rows: Dataset, options: dict, adapted: bool = False) -> Trainer:
    """Of the texts, or of pairs of each with the next, of which one is preferred."""
    import trl
    from peft import LoraConfig

    texts, model, more = rows["text"], folder, {}
    columns = {"prompt": ["review:"] * (len(texts) - 1), "chosen": texts[:-1], "rejected": texts[1:]}
    if method == "Reward":
        model = AutoModelForSequenceClassification.from_pretrained(folder)
        del columns["prompt"]
    if adapted:
        more = {"peft_config": LoraConfig(r=8, target_modules=["q_proj", "v_proj"])}
    data = Dataset.from_dict({"text": texts} if method == "SFT" else columns)
    arguments, tokenizer = getattr(trl, f"{method}Config")(**options, **TRL), AutoTokenizer.from_pretrained(folder)
    trainer = getattr(trl, f"{method}Trainer")
    return trainer(model, args=arguments, train_dataset=data, processing_class=tokenizer, **more)


def losses_of(trainer: Trainer) -> list[float]:
    return [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]


#: tool -> what it trains, and how
TOOLS: dict[str, tuple[str, Callable]] = {
    "transformers' Trainer, classifier": ("classifier", by_trainer),
    "sentence-transformers, contrastive": ("encoder", by_sentence_transformers),
    "sentence-transformers, cross-encoder": ("scorer", by_cross_encoder),
    "trl's SFTTrainer": ("decoder", partial(by_trl, "SFT")),
    "... with PEFT's LoRA": ("decoder", partial(by_trl, "SFT", adapted=True)),
    "trl's DPOTrainer": ("decoder", partial(by_trl, "DPO")),
    "trl's RewardTrainer": ("reward", partial(by_trl, "Reward")),
}
UNDROPPED = MINILM | {"hidden_dropout": 0.0, "attention_dropout": 0.0}  # what is dropped follows shapes
LARGE = {"vocab_size": 50257, "pad_token_id": 0, "num_labels": 1}
#: what a tool trains -> a published shape, its head, and fields
MODELS: dict[str, tuple[str, str, dict]] = {
    "encoder": ("bert-base", "AutoModel", UNDROPPED),
    "classifier": ("bert-base", "AutoModelForSequenceClassification", UNDROPPED),
    "scorer": ("bert-base", "AutoModelForSequenceClassification", UNDROPPED | {"num_labels": 1}),
    "decoder": ("smollm-135m", "AutoModelForCausalLM", LARGE),
    "reward": ("smollm-135m", "AutoModelForSequenceClassification", LARGE),
}


def compared(name: str, layers: int, rows: Dataset, folder: Path) -> list[str]:
    kind, make = TOOLS[name]
    tokenizer = AutoTokenizer.from_pretrained(batches.MINILM, eos_token="[SEP]")
    shape, head, fields = MODELS[kind]
    settings = Settings(layers=layers if shape == "smollm-135m" else None)
    for side, model in zip(("official", "zoo"), pair(shape, head, settings, **fields), strict=True):
        model.save_pretrained(folder / side)
        tokenizer.save_pretrained(folder / side)
    times: dict[str, list[float]] = {"official": [], "zoo": []}
    peaks, losses = {}, {}
    for number in range(ROUNDS + 1):  # memory is looked at in the first
        for side in times:
            torch.manual_seed(0)
            options = {"output_dir": str(folder / "run"), "max_steps": STEPS_OF_ROUND, **STEPS, **QUIET}
            trainer, clock = make(str(folder / side), rows, options), Clock()
            trainer.add_callback(clock)
            trainer.remove_callback(PrinterCallback)
            gc.collect()  # what an earlier trainer held is not to be freed while this one is measured
            if number == 0:
                peaks[side], losses[side] = with_peak(trainer.train)[1], losses_of(trainer)
            else:
                trainer.train()
                times[side] += [after - before for before, after in pairwise(clock.times)]
    official, zoo = (statistics.median(each) for each in times.values())
    largest = max(abs(one - other) / abs(one) for one, other in zip(*losses.values(), strict=True))
    memory = f"{peaks['zoo'] / peaks['official']:.2f} ({peaks['zoo'] >> 20:,}, {peaks['official'] >> 20:,} MiB)"
    return [name, f"{official:.2f} s", f"{zoo:.2f} s", f"{official / zoo:.2f}", memory, f"{largest:.1e}"]


def main(
    only: Annotated[str, typer.Option(help="Run those whose name holds this.")] = "",
    layers: Annotated[int, typer.Option(help="Layers of the decoders.")] = 4,
) -> None:
    """Times a step of the official class and of the zoo's, and looks at memory and losses."""
    texts = batches.texts("rotten_tomatoes", BATCH * STEPS_OF_ROUND + 1)
    data = Dataset.from_dict({"text": texts, "label": [number % 2 for number in range(len(texts))]})
    names = [name for name in TOOLS if only.lower() in name.lower()]
    columns = ["tool", "official", "zoo", "official / zoo", "memory, zoo / official", "losses differ by at most"]
    with tempfile.TemporaryDirectory() as folder:
        table(columns, (compared(name, layers, data, Path(folder, name)) for name in names))
