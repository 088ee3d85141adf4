"""Translation as a task: its options, its loss, evaluation by loss and by beam search, its card."""

import json
import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any, Literal

import torch
import torch.nn.functional as F
from accelerate import Accelerator
from accelerate.utils import gather_object
from datasets import Dataset
from torch import Tensor, nn
from tqdm.auto import tqdm
from transformers import DataCollatorWithPadding, GenerationConfig, PreTrainedTokenizerBase

from tfm_zoo.hub.cards import table
from tfm_zoo.models.inputs import IGNORED
from tfm_zoo.training.arguments import LoopArguments, check_at_least, option
from tfm_zoo.training.checkpoints import TrainState
from tfm_zoo.training.label_smoothing import label_smoothed_loss
from tfm_zoo.training.parallel_texts import ParallelTexts
from tfm_zoo.training.reports import Report, shortened
from tfm_zoo.training.translation_metrics import NAMES, signatures, translation_scores

TRANSLATIONS = "generated_predictions.txt"  # as transformers' run_translation.py calls them


@dataclass
class TranslationArguments(LoopArguments):
    """What a translation loop needs to know beyond any other. Smoothing and Adam are *Attention Is All You Need*'s."""

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
        least = {"num_beams": 1, "num_samples": 0, "num_eval_translations": 0, "per_device_train_batch_tokens": 0}
        check_at_least(self, least)
        if not 0 <= self.label_smoothing_factor < 1:
            raise ValueError(
                f"label_smoothing_factor must be at least 0 and below 1, not {self.label_smoothing_factor}"
            )

    def complete(self, is_new: bool) -> None:
        """Fill in the defaults that differ between a new model and a checkpoint."""
        if is_new and self.num_beams is None:
            self.num_beams = 4
        self.complete_learning_rate(is_new)

    def check_evaluation(self, sharded: bool) -> None:
        """Refuse a metric that no evaluation gives, and translations while no process holds the whole model."""
        self.check_metric(["loss", "perplexity", *(NAMES if self.num_eval_translations else ())])
        if sharded and self.num_eval_translations:
            raise ValueError(
                "num_eval_translations: a sharded model does not translate while it trains; it does with DDP"
            )

    def set_generation(self, config: GenerationConfig) -> None:
        """Let the model translate as it is asked to, here and wherever it is loaded."""
        for name in ("num_beams", "length_penalty"):
            if getattr(self, name) is not None:
                setattr(config, name, getattr(self, name))


def count_labelled(batch: dict[str, Tensor]) -> int:
    """What the loss is the mean over: the target's tokens."""
    return int((batch["labels"] != IGNORED).sum())


def labelled_logits(model: nn.Module, batch: dict[str, Tensor], is_zoo: bool) -> tuple[Tensor, Tensor]:
    """Logits `(tokens, vocab_size)` and labels `(tokens,)` of the target's tokens, padding left out.

    Args:
        is_zoo: whether it is a zoo model, which makes only the logits it is asked for. A native model makes those of
            all positions, of which the same are taken.
    """
    labelled = batch["labels"] != IGNORED
    inputs = {name: value for name, value in batch.items() if name != "labels"}
    if is_zoo:
        logits = model(**inputs, use_cache=False, logits_to_keep=labelled).logits
    else:
        logits = model(**inputs, use_cache=False).logits[labelled]
    return logits.float(), batch["labels"][labelled]


def smoothed_loss(
    model: nn.Module, batch: dict[str, Tensor], is_zoo: bool, epsilon: float, over: Literal["others", "all"]
) -> Tensor:
    """The mean loss over the target's tokens, with smoothed labels."""
    return label_smoothed_loss(*labelled_logits(model, batch, is_zoo), epsilon, over)


@torch.no_grad()
def evaluate_loss(
    accelerator: Accelerator, model: nn.Module, loader: Iterable[dict[str, Tensor]], is_zoo: bool
) -> dict[str, float]:
    """Mean loss per token of the target, its exponential (perplexity) and pairs per second, the same on every process.

    Labels are not smoothed here: perplexity is that of the text.

    Args:
        loader: batches with "labels", prepared by the accelerator.
    """
    model.eval()
    losses: list[float] = []
    counts: list[int] = []
    start = perf_counter()
    for batch in loader:
        logits, labels = labelled_logits(model, batch, is_zoo)
        labelled = batch["labels"] != IGNORED
        of_pairs = logits.new_zeros(len(labelled))
        of_pairs.index_add_(0, labelled.nonzero()[:, 0], F.cross_entropy(logits, labels, reduction="none"))
        # Drops the pairs that filled up the last batch so that every process had one.
        summed, counted = accelerator.gather_for_metrics((of_pairs, labelled.sum(dim=1)))
        losses += summed.tolist()
        counts += counted.tolist()
    seconds = perf_counter() - start
    model.train()
    loss = sum(losses) / sum(counts)
    return {"loss": loss, "perplexity": math.exp(min(loss, 700)), "samples_per_second": len(losses) / seconds}


class Translator:
    """Translates with a model as it stands: by beam search, as its `generation_config` says.

    Args:
        max_length: tokens of a translation, with the one it starts with.
    """

    def __init__(self, accelerator: Accelerator, tokenizer: PreTrainedTokenizerBase, batch_size: int, max_length: int):
        self.accelerator, self.tokenizer, self.collate = accelerator, tokenizer, DataCollatorWithPadding(tokenizer)
        self.batch_size, self.max_length = batch_size, max_length

    @torch.no_grad()
    def __call__(self, model: nn.Module, sources: Sequence[list[int]]) -> list[str]:
        """Translations of token ids, in their order, on every process. All processes call it, and share the work."""
        accelerator = self.accelerator
        order = sorted(range(len(sources)), key=lambda index: -len(sources[index]))  # little padding, the longest first
        mine = order[accelerator.process_index :: accelerator.num_processes]
        whole = accelerator.unwrap_model(model)
        training = whole.training
        whole.eval()
        translations: list[tuple[int, str]] = []
        hidden = None if accelerator.is_main_process else True  # None: where there is no terminal
        for start in tqdm(range(0, len(mine), self.batch_size), desc="translating", leave=False, disable=hidden):
            rows = mine[start : start + self.batch_size]
            batch = self.collate([{"input_ids": sources[row]} for row in rows]).to(accelerator.device)
            ids = whole.generate(**batch, max_length=self.max_length)
            translations += zip(rows, self.tokenizer.batch_decode(ids, skip_special_tokens=True), strict=True)
        whole.train(training)
        return [text for _, text in sorted(gather_object(translations))]


@dataclass
class Sample:
    """A pair, and what a model made of it."""

    source: str
    reference: str
    translation: str

    def __str__(self) -> str:
        return f"  source       {self.source}\n  reference    {self.reference}\n  translation  {self.translation}"


@dataclass
class Judge:
    """Evaluates a model on the pairs of a split: by loss, and by its translations.

    `samples` are the first of those translated last.
    """

    accelerator: Accelerator
    texts: Dataset  # columns "source" and "target"
    encoded: Dataset  # columns "input_ids" and "labels"
    loader: Iterable[dict[str, Tensor]]  # of the encoded pairs, prepared by the accelerator
    translator: Translator
    is_zoo: bool
    num_samples: int

    def __call__(self, model: nn.Module, scored: int | None = None) -> dict[str, float]:
        """Loss and perplexity, and BLEU, chrF and exact match of the first `scored` pairs; `None`: of all."""
        figures = evaluate_loss(self.accelerator, model, self.loader, self.is_zoo)
        scored = len(self.texts) if scored is None else min(scored, len(self.texts))
        count = max(scored, self.num_samples)
        self.translations = self.translator(model, self.encoded["input_ids"][:count]) if count else []
        if scored:
            figures |= translation_scores(self.translations[:scored], self.texts["target"][:scored])
        return figures

    def write_translations(self, folder: Path) -> None:
        """Those made last, a line each, in the order of the split."""
        lines = (" ".join(translation.split()) for translation in self.translations)
        (folder / TRANSLATIONS).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")

    @property
    def samples(self) -> list[Sample]:
        rows = self.texts[: self.num_samples]
        return [Sample(*texts) for texts in zip(rows["source"], rows["target"], self.translations, strict=False)]

    def after_evaluation(self, model: nn.Module, state: TrainState) -> None:
        """Print the samples, and keep their translations in the history."""
        if self.samples and self.accelerator.is_main_process:
            state.log_history.append({"step": state.step, "samples": [sample.translation for sample in self.samples]})
            print(f"--- samples after step {state.step}", *self.samples, "---", sep="\n", flush=True)


@dataclass
class TranslationReport(Report):
    """The card of a model that translates."""

    texts: ParallelTexts
    judge: Judge  # of the split that was translated
    tokens: dict[str, int]  # of each split's targets

    pipeline_tag = "translation"
    picture_metrics = ("perplexity",)
    figure_names = {
        "bleu": "BLEU",
        "chrf": "chrF",
        "exact_match": "exact match",
        "loss": "loss per token",
        "perplexity": "perplexity",
    }
    headline = ("bleu", "chrf")

    @property
    def languages(self) -> list[str] | None:
        return language_codes(self.texts.languages)

    def introduction(self) -> str:
        origin = f"`{shortened(self.base_model)}`, fine-tuned" if self.base_model else "A new model, trained"
        source, target = self.texts.languages
        example = self.judge.texts["source"][0]
        return f"""
{origin} on `{self.dataset}` to translate from `{source}` to `{target}`.
{self.carries_its_code}

```python
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained({json.dumps(self.repository)}{self.remote_code})
model = AutoModelForSeq2SeqLM.from_pretrained({json.dumps(self.repository)}{self.remote_code})
inputs = tokenizer([{example!r}], return_tensors="pt")
tokenizer.batch_decode(model.generate(**inputs), skip_special_tokens=True)
```
""".strip()

    def data(self) -> str:
        sizes = {name: f"{len(split):,} ({self.tokens[name]:,})" for name, split in self.texts.splits.items()}
        notes = list(self.texts.notes)
        if self.figures_prefix == "test" and 0 < self.args.num_eval_translations < len(self.texts.splits["validation"]):
            notes.append(f"Of the validation split {self.args.num_eval_translations} pairs were translated.")
        sacrebleu = "\n".join(f"- `{signature}`" for signature in signatures())
        return f"""
BLEU, chrF and exact matches in percent, of translations by beam search, {self.model.generation_config.num_beams or 1}
wide. Loss in nats per token of the target, of labels that are not smoothed, and perplexity, its exponential, depend on
the tokenizer (here {self.model.config.vocab_size:,} tokens). sacrebleu's names for the two scores:

{sacrebleu}

{table(sizes, ("split", "pairs (tokens of the targets)"))}

{" ".join(notes)}
""".strip()

    def split_of_the_figures(self) -> str | None:
        split = {"eval": "validation", "test": "test"}[self.figures_prefix]
        return split if split in self.texts.own_splits else None

    def task_settings(self) -> dict[str, Any]:
        args, data_args = self.args, self.data_args
        longest = data_args.max_source_length, data_args.max_target_length
        settings = {
            "label smoothing": f"{args.label_smoothing_factor}, over {SPREAD[args.label_smoothing_over]}",
            "tokens per text": f"at most {longest[0]} of the source and {longest[1]} of the target",
        }
        if args.per_device_train_batch_tokens:
            batch = f"{args.per_device_train_batch_tokens:,} tokens of source and target, padding included"
            settings["batch"] = self.batch(batch)
        return settings

    def appendix(self) -> str:
        """Samples: the first pairs of the split, and what the best model makes of them."""
        if not self.judge.samples:
            return ""
        return "\n\n".join(["## Samples", *(f"```text\n{sample}\n```" for sample in self.judge.samples)])


def language_codes(names: Iterable[str]) -> list[str] | None:
    """`en` of `en` or `en_XX`; None where a name is no code of two or three letters, as a column's need not be."""
    codes = [name.split("_")[0] for name in names]
    return codes if all(re.fullmatch("[a-z]{2,3}", code) for code in codes) else None


SPREAD = {"others": "all classes but the label", "all": "all classes, the label's own included"}
