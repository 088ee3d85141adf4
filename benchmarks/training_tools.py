"""`python -m benchmarks training_tools ENCODER TOKENIZER --texts FILE`: a step in the tools where people train.

Each tool trains the official class and its zoo twin on the same ragged batches under one seed, some steps of the one,
then of the other. `ENCODER` is a folder of an official BERT (MiniLM), `TOKENIZER` one of GPT-2's tokenizer, for
decoders of LLaMA's kind with fresh weights; `FILE` is Parquet with columns `text` and `label` (0 or 1).
"""

import gc
import statistics
import tempfile
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Annotated

import torch
import typer
from datasets import Dataset
from rich.console import Console
from rich.table import Table
from transformers import (
    AutoModel,
    AutoModelForSequenceClassification,
    AutoTokenizer,
    DataCollatorWithPadding,
    GPT2Tokenizer,
    LlamaConfig,
    LlamaForCausalLM,
    LlamaForSequenceClassification,
    PreTrainedModel,
    PrinterCallback,
    Trainer,
    TrainerCallback,
    TrainingArguments,
)

from tfm_zoo import from_official

from .memory import with_peak

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
    from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer
    from sentence_transformers import SentenceTransformerTrainingArguments as Arguments
    from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss

    model = SentenceTransformer(folder)
    model.max_seq_length = LENGTH
    rows = rows.map(lambda row: {"anchor": row["text"], "positive": row["text"][::2]}, remove_columns=rows.column_names)
    return SentenceTransformerTrainer(model, Arguments(**options), rows, loss=MultipleNegativesRankingLoss(model))


def by_cross_encoder(folder: str, rows: Dataset, options: dict) -> Trainer:
    from sentence_transformers.cross_encoder import CrossEncoder, CrossEncoderTrainer, CrossEncoderTrainingArguments
    from sentence_transformers.cross_encoder.losses import BinaryCrossEntropyLoss

    model = CrossEncoder(folder, num_labels=1, max_length=LENGTH)
    rows = rows.map(
        lambda row: {"one": "good", "other": row["text"], "label": float(row["label"])}, remove_columns=["text"]
    ).select_columns(["one", "other", "label"])
    return CrossEncoderTrainer(
        model, CrossEncoderTrainingArguments(**options), rows, loss=BinaryCrossEntropyLoss(model)
    )


def by_sft(folder: str, rows: Dataset, options: dict, peft_config: object = None) -> Trainer:
    from trl import SFTConfig, SFTTrainer

    arguments, tokenizer = SFTConfig(**options, **TRL), AutoTokenizer.from_pretrained(folder)
    data = rows.select_columns(["text"])
    return SFTTrainer(folder, arguments, train_dataset=data, processing_class=tokenizer, peft_config=peft_config)


def by_lora(folder: str, rows: Dataset, options: dict) -> Trainer:
    from peft import LoraConfig

    return by_sft(folder, rows, options, LoraConfig(r=8, target_modules=["q_proj", "v_proj"]))


def pairs(rows: Dataset) -> Dataset:
    """Each text beside the next: one is preferred."""
    texts = rows["text"]
    return Dataset.from_dict({"prompt": ["review:"] * (len(texts) - 1), "chosen": texts[:-1], "rejected": texts[1:]})


def by_dpo(folder: str, rows: Dataset, options: dict) -> Trainer:
    from trl import DPOConfig, DPOTrainer

    arguments, tokenizer = DPOConfig(**options, **TRL), AutoTokenizer.from_pretrained(folder)
    return DPOTrainer(folder, args=arguments, train_dataset=pairs(rows), processing_class=tokenizer)


def by_reward(folder: str, rows: Dataset, options: dict) -> Trainer:
    from trl import RewardConfig, RewardTrainer

    arguments, tokenizer = RewardConfig(**options, **TRL), AutoTokenizer.from_pretrained(folder)
    model = AutoModelForSequenceClassification.from_pretrained(folder)
    data = pairs(rows).remove_columns("prompt")
    return RewardTrainer(model, args=arguments, train_dataset=data, processing_class=tokenizer)


#: tool -> the official class that it trains, and how
TOOLS: dict[str, tuple[str, Callable]] = {
    "transformers' Trainer, classifier": ("classifier", by_trainer),
    "sentence-transformers, contrastive": ("encoder", by_sentence_transformers),
    "sentence-transformers, cross-encoder": ("scorer", by_cross_encoder),
    "trl's SFTTrainer": ("decoder", by_sft),
    "... with PEFT's LoRA": ("decoder", by_lora),
    "trl's DPOTrainer": ("decoder", by_dpo),
    "trl's RewardTrainer": ("reward", by_reward),
}


def official_model(kind: str, encoder: Path, tokenizer, layers: int) -> PreTrainedModel:
    torch.manual_seed(0)
    undropped = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}  # what is dropped depends on shapes
    if kind == "encoder":
        return AutoModel.from_pretrained(encoder, **undropped)
    if kind in ("classifier", "scorer"):
        labels = 2 if kind == "classifier" else 1
        return AutoModelForSequenceClassification.from_pretrained(encoder, num_labels=labels, **undropped)
    sizes = {"hidden_size": 576, "intermediate_size": 1536, "num_attention_heads": 9, "num_key_value_heads": 3}
    ends = {"pad_token_id": tokenizer.eos_token_id, "eos_token_id": tokenizer.eos_token_id, "num_labels": 1}
    config = LlamaConfig(**sizes, **ends, num_hidden_layers=layers, vocab_size=len(tokenizer))
    return (LlamaForCausalLM if kind == "decoder" else LlamaForSequenceClassification)(config)


def save_twins(kind: str, encoder: Path, tokenizer_folder: Path, layers: int, folder: Path) -> dict[str, str]:
    """Folders of an official model and of its zoo twin, each with its tokenizer."""
    if kind in ("decoder", "reward"):
        tokenizer = GPT2Tokenizer.from_pretrained(tokenizer_folder)
        tokenizer.pad_token = tokenizer.eos_token
    else:
        tokenizer = AutoTokenizer.from_pretrained(encoder)
    official = official_model(kind, encoder, tokenizer, layers)
    for side, model in (("official", official), ("zoo", from_official(official))):
        model.save_pretrained(folder / side)
        tokenizer.save_pretrained(folder / side)
    return {side: str(folder / side) for side in ("official", "zoo")}


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
    rows = Dataset.from_parquet(str(texts)).shuffle(seed=0).select(range(BATCH * steps + 1))
    table = Table("tool", "official", "zoo", "official / zoo", "memory, zoo / official", "losses differ by at most")
    for name, (kind, make) in TOOLS.items():
        if only.lower() not in name.lower():
            continue
        with tempfile.TemporaryDirectory() as folder:
            folders = save_twins(kind, encoder, tokenizer, layers, Path(folder))
            times: dict[str, list[float]] = {"official": [], "zoo": []}
            peaks, losses = {}, {}
            for number in range(rounds + 1):  # memory is looked at in the first
                for side in times:
                    torch.manual_seed(0)
                    options = {"output_dir": f"{folder}/run", "max_steps": steps, **STEPS, **QUIET}
                    trainer, clock = make(folders[side], rows, options), Clock()
                    trainer.add_callback(clock)
                    trainer.remove_callback(PrinterCallback)
                    gc.collect()  # what an earlier trainer held is not to be freed while this one is measured
                    if number == 0:
                        peaks[side] = with_peak(trainer.train)[1]
                        losses[side] = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
                    else:
                        trainer.train()
                        times[side] += [after - before for before, after in pairwise(clock.times)]
        official, zoo = (statistics.median(times[side]) for side in ("official", "zoo"))
        largest = max(abs(one - other) / abs(one) for one, other in zip(*losses.values(), strict=True))
        memory = f"{peaks['zoo'] / peaks['official']:.2f} ({peaks['zoo'] >> 20:,}, {peaks['official'] >> 20:,} MiB)"
        figures = (f"{official:.2f} s", f"{zoo:.2f} s", f"{official / zoo:.2f}", memory, f"{largest:.1e}")
        print(name, *figures, sep=" | ", flush=True)
        table.add_row(name, *figures)
    Console().print(table)
