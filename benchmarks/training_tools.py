"""`python -m benchmarks training_tools ENCODER TOKENIZER --texts FILE`: a step in the tools where people train.

Each tool trains the official class and its zoo twin on the same ragged batches under one seed, some steps of the one,
then of the other. `ENCODER` is a folder of an official BERT (MiniLM), `TOKENIZER` one of GPT-2's tokenizer, for
decoders of LLaMA's kind with fresh weights; `FILE` is Parquet with columns `text` and `label` (0 or 1).
"""

import gc
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Annotated

import torch
import typer
from datasets import Dataset
from transformers import (
    AutoModel,
    AutoModelForSequenceClassification,
    AutoTokenizer,
    DataCollatorWithPadding,
    GPT2Tokenizer,
    PrinterCallback,
    Trainer,
    TrainerCallback,
    TrainingArguments,
)

from tfm_zoo import from_official

from .memory import with_peak
from .pairs import Settings, pair
from .timing import table

BATCH, LENGTH = 16, 256  # rows of a step, and the most tokens of one
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


#: tool -> the official class that it trains, and how
TOOLS: dict[str, tuple[str, Callable]] = {
    "transformers' Trainer, classifier": ("classifier", by_trainer),
    "sentence-transformers, contrastive": ("encoder", by_sentence_transformers),
    "sentence-transformers, cross-encoder": ("scorer", by_cross_encoder),
    "trl's SFTTrainer": ("decoder", partial(by_trl, "SFT")),
    "... with PEFT's LoRA": ("decoder", partial(by_trl, "SFT", adapted=True)),
    "trl's DPOTrainer": ("decoder", partial(by_trl, "DPO")),
    "trl's RewardTrainer": ("reward", partial(by_trl, "Reward")),
}


def save_twins(kind: str, encoder: Path, tokenizer_folder: Path, layers: int, folder: Path) -> dict[str, str]:
    """Folders of an official model and of its zoo twin, each with its tokenizer."""
    torch.manual_seed(0)
    if kind in ("decoder", "reward"):
        tokenizer = GPT2Tokenizer.from_pretrained(tokenizer_folder)
        tokenizer.pad_token = tokenizer.eos_token
        end, head = tokenizer.eos_token_id, "AutoModelForCausalLM"
        head = head if kind == "decoder" else "AutoModelForSequenceClassification"
        fields = {"vocab_size": len(tokenizer), "pad_token_id": end, "eos_token_id": end, "num_labels": 1}
        models = pair("smollm-135m", head, Settings(layers=layers), **fields)
    else:
        tokenizer = AutoTokenizer.from_pretrained(encoder)
        undropped = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}  # what is dropped follows shapes
        if kind == "encoder":
            official = AutoModel.from_pretrained(encoder, **undropped)
        else:
            labels = {"num_labels": 2 if kind == "classifier" else 1}
            official = AutoModelForSequenceClassification.from_pretrained(encoder, **labels, **undropped)
        models = official, from_official(official)
    for side, model in zip(("official", "zoo"), models, strict=True):
        model.save_pretrained(folder / side)
        tokenizer.save_pretrained(folder / side)
    return {side: str(folder / side) for side in ("official", "zoo")}


def compared(name: str, folders: dict[str, str], rows: Dataset, run: str, rounds: int, steps: int) -> list[str]:
    times: dict[str, list[float]] = {side: [] for side in folders}
    peaks, losses = {}, {}
    for number in range(rounds + 1):  # memory is looked at in the first
        for side, folder in folders.items():
            torch.manual_seed(0)
            options = {"output_dir": run, "max_steps": steps, **STEPS, **QUIET}
            trainer, clock = TOOLS[name][1](folder, rows, options), Clock()
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
    encoder: Path,
    tokenizer: Path,
    texts: Annotated[Path, typer.Option(help="Parquet with text and label.")],
    only: Annotated[str, typer.Option(help="Run those whose name holds this.")] = "",
    rounds: Annotated[int, typer.Option(help="How often each side trains.")] = 3,
    steps: Annotated[int, typer.Option(help="Steps of a round; the first does not count.")] = 4,
    layers: Annotated[int, typer.Option(help="Layers of the decoders.")] = 4,
) -> None:
    """Times a step of the official class and of the zoo's, and looks at memory and losses."""
    data = Dataset.from_parquet(str(texts)).shuffle(seed=0).select(range(BATCH * steps + 1))

    def rows() -> Iterator[list[str]]:
        for name, (kind, _) in TOOLS.items():
            if only.lower() in name.lower():
                with tempfile.TemporaryDirectory() as folder:
                    folders = save_twins(kind, encoder, tokenizer, layers, Path(folder))
                    yield compared(name, folders, data, f"{folder}/run", rounds, steps)

    columns = ["tool", "official", "zoo", "official / zoo", "memory, zoo / official", "losses differ by at most"]
    table(columns, rows())
