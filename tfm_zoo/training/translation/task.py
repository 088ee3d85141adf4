"""Translation as a task: its options, its figures, its card."""

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from datasets import Dataset
from torch import Tensor, nn
from transformers import GenerationConfig, PreTrainedModel
from typing_extensions import Self

from tfm_zoo.hub.cards import table
from tfm_zoo.models.losses import IGNORED
from tfm_zoo.training.arguments import LoopArguments, check_at_least, option
from tfm_zoo.training.checkpoints import TrainState
from tfm_zoo.training.models import is_zoo
from tfm_zoo.training.reports import Report
from tfm_zoo.training.runs import is_sharded
from tfm_zoo.training.task import Batch, Task
from tfm_zoo.training.translation.data import ParallelTexts
from tfm_zoo.training.translation.evaluation import NAMES, Judge, signatures
from tfm_zoo.training.translation.losses import label_smoothed_loss, labelled_logits

#: the classes that share the mass of label smoothing, by the values of `label_smoothing_over`
SPREAD = {"others": "all classes but the label", "all": "all classes, the label's own included"}


@dataclass(frozen=True)
class TranslationArguments(LoopArguments):
    """The options that a translation loop has beyond those of any other. Defaults are *Attention Is All You Need*'s."""

    per_device_train_batch_tokens: int = option(
        4096,
        "Tokens per process and forward pass, source and target, padding included; 0: batches of"
        " per_device_train_batch_size pairs.",
        "max_tokens",
    )
    label_smoothing_factor: float = option(0.1, "Mass that is spread over the vocabulary in the labels; 0: none.")
    label_smoothing_over: Literal["others", "all"] = option(
        "others",
        "Which classes share that mass: all but the label (Tensor2Tensor, and so the paper), or all (torch's own).",
    )
    adam_beta2: float = option(0.98, "AdamW's decay of the mean of gradients' squares.")
    adam_epsilon: float = option(1e-9, "AdamW's epsilon.")
    weight_decay: float = option(0.0, "AdamW's weight decay; 0: it is Adam.")

    num_beams: int | None = option(None, "Width of the beam search; default: the checkpoint's, or 4 for a new model.")
    length_penalty: float | None = option(
        None, "Above 0 favours long translations, below 0 short ones; default: the checkpoint's, or 1."
    )
    num_samples: int = option(4, "Sample translations printed at each evaluation, and put into the card.")
    num_eval_translations: int = option(
        0, "Validation pairs translated at each evaluation, for BLEU, chrF and exact match: the first ones; 0: none."
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        check_at_least(self, num_beams=1, num_samples=0, num_eval_translations=0, per_device_train_batch_tokens=0)
        if not 0 <= self.label_smoothing_factor < 1:
            raise ValueError(
                f"label_smoothing_factor must be at least 0 and below 1, not {self.label_smoothing_factor}"
            )

    @property
    def figures(self) -> tuple[str, ...]:
        return ("loss", "perplexity", *(NAMES if self.num_eval_translations else ()))

    def resolved(self, is_new: bool) -> Self:
        """These options with the defaults that depend on the model filled in."""
        resolved = super().resolved(is_new)
        return replace(resolved, num_beams=4) if is_new and self.num_beams is None else resolved

    def set_generation(self, config: GenerationConfig) -> None:
        """Let the model translate as the options say, here and wherever it is loaded."""
        for name in ("num_beams", "length_penalty"):
            if getattr(self, name) is not None:
                setattr(config, name, getattr(self, name))


@dataclass
class TranslationReport(Report):
    """How the training of a translator ended, and its card."""

    task: "TranslationTask"

    pipeline_tag = "translation"
    picture_metrics = ("perplexity",)
    scores = {"bleu": "BLEU", "chrf": "chrF", "exact_match": "exact match"}
    figure_names = {**scores, "loss": "loss per token", "perplexity": "perplexity"}
    headline = ("bleu", "chrf")

    @property
    def languages(self) -> list[str] | None:
        return language_codes(self.task.texts.languages)

    def own_splits(self) -> list[str]:
        return self.task.texts.own_splits

    def task_values(self) -> dict[str, Any]:
        task, judge = self.task, self.task.final_judge
        tokens = {name: sum(map(len, split["labels"])) for name, split in task.encoded.items()}
        sizes = {name: f"{len(split):,} ({tokens[name]:,})" for name, split in task.texts.splits.items()}
        translated = self.run.args.num_eval_translations if "test" in task.encoded else 0
        return {
            "languages": task.texts.languages,
            "example": repr(judge.texts["source"][0]),
            "num_beams": self.model.generation_config.num_beams or 1,
            "signatures": signatures(),
            "split_sizes": table(sizes, ("split", "pairs (tokens of the targets)")),
            "notes": task.texts.notes,
            # how many pairs of the validation split were translated, if not all
            "translated": translated if translated < len(task.texts.splits["validation"]) else 0,
            "samples": judge.samples,
        }

    def task_settings(self) -> dict[str, Any]:
        args, data_args = self.run.args, self.run.data_args
        settings = {
            "label smoothing": f"{args.label_smoothing_factor}, over {SPREAD[args.label_smoothing_over]}",
            "tokens per text": f"at most {data_args.max_source_length} of the source and"
            f" {data_args.max_target_length} of the target",
        }
        if args.per_device_train_batch_tokens:
            batch = f"{args.per_device_train_batch_tokens:,} tokens of source and target, padding included"
            settings["batch"] = self.batch(batch)
        return settings


@dataclass(kw_only=True)
class TranslationTask(Task):
    """An encoder-decoder learns to translate."""

    args: TranslationArguments
    texts: ParallelTexts
    encoded: dict[str, Dataset]  # the texts as token ids
    max_length: int  # of a translation, in tokens, with the token it starts with

    report = TranslationReport

    def __post_init__(self) -> None:
        is_whole = not is_sharded(self.accelerator)
        if self.args.num_eval_translations and not is_whole:
            raise ValueError(
                "num_eval_translations: a sharded model does not translate while it trains; it does with DDP"
            )
        self.is_zoo = is_zoo(self.model.config)
        lengths = [(len(pair["input_ids"]), len(pair["labels"])) for pair in self.examples]
        self.batch_tokens = self.args.per_device_train_batch_tokens
        self.lengths = lengths if self.batch_tokens else list(map(sum, lengths))
        self.judge = self.make_judge("validation", self.args.num_samples if is_whole else 0)

    def make_judge(self, split: str, num_samples: int) -> Judge:
        """A judge of the pairs of a split."""
        batch_size = self.args.per_device_eval_batch_size
        return Judge(
            self.accelerator,
            self.tokenizer,
            self.texts.splits[split],
            self.encoded[split],
            self.eval_loader(self.encoded[split], batch_size),
            batch_size=batch_size,
            max_length=self.max_length,
            is_zoo=self.is_zoo,
            num_samples=num_samples,
        )

    def loss(self, model: nn.Module, batch: Batch) -> Tensor:
        """The mean loss over the target's tokens, with smoothed labels."""
        logits, labels = labelled_logits(model, batch, self.is_zoo)
        return label_smoothed_loss(logits, labels, self.args.label_smoothing_factor, self.args.label_smoothing_over)

    def count(self, batch: Batch) -> int:
        return int((batch["labels"] != IGNORED).sum())

    def evaluate(self, model: nn.Module) -> dict[str, float]:
        return self.judge(model, scored=self.args.num_eval_translations)

    def after_evaluation(self, model: nn.Module, state: TrainState) -> None:
        """Print samples, and log their translations."""
        samples = self.judge.samples
        if samples and self.accelerator.is_main_process:
            state.log_history.append({"step": state.step, "samples": [sample.translation for sample in samples]})
            print(f"--- samples after step {state.step}", *samples, "---", sep="\n", flush=True)

    def final_figures(self, best: PreTrainedModel) -> dict[str, float]:
        """Loss and scores of the test split, or without one of the validation split; its translations are written."""
        split, prefix = ("test", "test") if "test" in self.encoded else ("validation", "eval")
        self.final_judge = self.make_judge(split, self.args.num_samples)
        figures = self.final_judge(best)
        if self.accelerator.is_main_process:
            self.final_judge.write_translations(Path(self.args.output_dir))
        return {f"{prefix}_{name}": value for name, value in figures.items()}


def language_codes(names: Iterable[str]) -> list[str] | None:
    """`en` for `en` or `en_XX`; None if a name is no code of two or three letters, as the name of a column may be."""
    codes = [name.split("_")[0] for name in names]
    return codes if all(re.fullmatch("[a-z]{2,3}", code) for code in codes) else None
