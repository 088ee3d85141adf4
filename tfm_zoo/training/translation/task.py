"""Translation as a task: its options, its figures, its card."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Literal

import torch
import torch.nn.functional as F
from accelerate.utils import gather_object
from torch import Tensor, nn
from tqdm.auto import tqdm
from transformers import DataCollatorWithPadding, GenerationConfig
from typing_extensions import Self

from tfm_zoo.models.losses import IGNORED
from tfm_zoo.training.arguments import LoopArguments, option
from tfm_zoo.training.checkpoints import TrainState
from tfm_zoo.training.sharding import is_sharded, unwrapped
from tfm_zoo.training.task import Batch, Task, loss_and_perplexity, sums_of_rows
from tfm_zoo.training.translation import measures
from tfm_zoo.training.translation.data import ParallelTexts

TRANSLATIONS = "generated_predictions.txt"  # the file's name in transformers' run_translation.py


@dataclass(frozen=True)
class TranslationArguments(LoopArguments):
    """The options that a translation loop has beyond those of any other. Defaults are *Attention Is All You Need*'s."""

    per_device_train_batch_tokens: int = option(
        4096,
        "Tokens per process and forward pass, source and target, padding included; 0: batches of"
        " per_device_train_batch_size pairs.",
        "max_tokens",
        at_least=0,
    )
    label_smoothing_factor: float = option(
        0.1, "Mass that is spread over the vocabulary in the labels; 0: none.", at_least=0, below=1
    )
    label_smoothing_over: Literal["others", "all"] = option(
        "others",
        "Which classes share that mass: all but the label (Tensor2Tensor, and so the paper), or all (torch's own).",
    )
    adam_beta2: float = option(0.98, "AdamW's decay of the mean of gradients' squares.", at_least=0)
    adam_epsilon: float = option(1e-9, "AdamW's epsilon.", above=0)
    weight_decay: float = option(0.0, "AdamW's weight decay; 0: it is Adam.", at_least=0)

    num_beams: int | None = option(
        None, "Width of the beam search; default: the checkpoint's, or 4 for a new model.", at_least=1
    )
    length_penalty: float | None = option(
        None, "Above 0 favours long translations, below 0 short ones; default: the checkpoint's, or 1."
    )
    num_samples: int = option(4, "Sample translations printed at each evaluation, and put into the card.", at_least=0)
    num_eval_translations: int = option(
        0,
        "Validation pairs translated at each evaluation, for BLEU, chrF and exact match: the first ones; 0: none.",
        at_least=0,
    )

    @property
    def figures(self) -> tuple[str, ...]:
        return ("loss", "perplexity", *(measures.NAMES if self.num_eval_translations else ()))

    def resolved(self, is_new: bool) -> Self:
        """These options with the defaults that depend on the model filled in."""
        resolved = super().resolved(is_new)
        return replace(resolved, num_beams=4) if is_new and self.num_beams is None else resolved

    def set_generation(self, config: GenerationConfig) -> None:
        """Let the model translate as the options say, here and wherever it is loaded."""
        for name in ("num_beams", "length_penalty"):
            if getattr(self, name) is not None:
                setattr(config, name, getattr(self, name))


@dataclass(kw_only=True)
class TranslationTask(Task):
    """An encoder-decoder learns to translate. The last translations and samples are kept for the card."""

    args: TranslationArguments
    data: ParallelTexts
    max_length: int  # of a translation, in tokens, with the token it starts with

    pipeline_tag = "translation"
    figure_names = {
        "bleu": "BLEU",
        "chrf": "chrF",
        "exact_match": "exact match",
        "loss": "loss per token",
        "perplexity": "perplexity",
    }
    headline = ("bleu", "chrf")
    picture_metrics = ("perplexity",)
    figures = staticmethod(loss_and_perplexity)
    signatures = staticmethod(measures.signatures)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.args.num_eval_translations and is_sharded(self.accelerator):
            raise ValueError(
                "num_eval_translations: a sharded model does not translate while it trains; it does with DDP"
            )
        lengths = [(len(pair["input_ids"]), len(pair["labels"])) for pair in self.splits["train"]]
        self.batch_tokens = self.args.per_device_train_batch_tokens
        self.languages = language_codes(self.data.languages)
        self.final_split = "test" if "test" in self.splits else "validation"  # which the best model translates
        self.lengths = lengths if self.batch_tokens else list(map(sum, lengths))

    def loss(self, model: nn.Module, batch: Batch) -> Tensor:
        """The mean loss over the target's tokens, with smoothed labels."""
        logits, labels = measures.labelled_logits(model, batch, self.is_zoo)
        smoothing = self.args.label_smoothing_factor, self.args.label_smoothing_over
        return measures.label_smoothed_loss(logits, labels, *smoothing)

    def count(self, batch: Batch) -> int:
        return int((batch["labels"] != IGNORED).sum())

    def measure(self, model: nn.Module, batch: Batch) -> Tensor:
        """Loss and number of tokens of each target. Labels are not smoothed, so that perplexity is the text's."""
        logits, labels = measures.labelled_logits(model, batch, self.is_zoo)
        losses = F.cross_entropy(logits, labels, reduction="none")
        return sums_of_rows(torch.stack([losses, torch.ones_like(losses)], dim=1), batch["labels"] != IGNORED)

    def evaluate(self, model: nn.Module, split: str = "validation") -> dict[str, float]:
        """Loss and perplexity of a split, and the scores of `num_eval_translations` of its translations."""
        shown = 0 if is_sharded(self.accelerator) else self.args.num_samples
        return super().evaluate(model, split) | self.score(model, split, self.args.num_eval_translations, shown)

    def score(self, model: nn.Module, split: str, scored: int, shown: int) -> dict[str, float]:
        """BLEU, chrF and exact match of the first `scored` pairs of a split; the first `shown` become samples."""
        pairs = self.data.splits[split][: max(scored, shown)]
        self.translations = self.translate(model, self.splits[split][: max(scored, shown)]["input_ids"])
        samples = map(measures.Sample, pairs["source"], pairs["target"], self.translations)
        self.samples = list(islice(samples, shown))
        return measures.translation_scores(self.translations[:scored], pairs["target"][:scored]) if scored else {}

    @torch.no_grad()
    def translate(self, model: nn.Module, sources: Sequence[list[int]]) -> list[str]:
        """Translations of token ids, in their order, on every process. All processes call it and share the work."""
        accelerator, collate = self.accelerator, DataCollatorWithPadding(self.tokenizer)
        order = sorted(range(len(sources)), key=lambda row: -len(sources[row]))  # the longest first: little padding
        mine = order[accelerator.process_index :: accelerator.num_processes]
        whole, sharded = unwrapped(accelerator, model), is_sharded(accelerator)
        training = whole.training
        whole.eval()
        translations: list[tuple[int, str]] = []
        batch_size = self.args.per_device_eval_batch_size
        is_hidden = None if accelerator.is_main_process else True  # None: only if the screen is no terminal
        # Of a sharded model all processes translate the same number of batches, some perhaps without rows of their own.
        starts = range(0, -(-len(order) // accelerator.num_processes), batch_size)
        for start in tqdm(starts, desc="translating", leave=False, disable=is_hidden):
            rows = mine[start : start + batch_size]
            batch = collate([{"input_ids": sources[row]} for row in rows or order[:1]]).to(accelerator.device)
            ids = whole.generate(**batch, max_length=self.max_length, synced_gpus=sharded)
            translations += zip(rows, self.tokenizer.batch_decode(ids, skip_special_tokens=True), strict=bool(rows))
        whole.train(training)
        return [text for _, text in sorted(gather_object(translations))]

    def after_evaluation(self, model: nn.Module, state: TrainState) -> None:
        """Print samples, and log their translations."""
        if self.samples and self.accelerator.is_main_process:
            state.log_history.append({"step": state.step, "samples": [sample.translation for sample in self.samples]})
            print(f"--- samples after step {state.step}", *self.samples, "---", sep="\n", flush=True)

    def final_figures(self, best: nn.Module, state: TrainState) -> dict[str, float]:
        """Loss and scores of the test split, or without one of the validation split; its translations are written."""
        split = self.final_split
        figures = super().evaluate(best, split)
        figures |= self.score(best, split, len(self.splits[split]), self.args.num_samples)
        if self.accelerator.is_main_process:
            lines = (" ".join(translation.split()) for translation in self.translations)
            text = "".join(f"{line}\n" for line in lines)
            (Path(self.args.output_dir) / TRANSLATIONS).write_text(text, encoding="utf-8")
        prefix = "test" if split == "test" else "eval"
        return {f"{prefix}_{name}": value for name, value in figures.items()}


def language_codes(names: Iterable[str]) -> list[str] | None:
    """`en` for `en` or `en_XX`; None if a name is no code of two or three letters, as the name of a column may be."""
    codes = [name.split("_")[0] for name in names]
    return codes if all(re.fullmatch("[a-z]{2,3}", code) for code in codes) else None
