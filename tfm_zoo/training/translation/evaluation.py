"""How well a model translates: its loss, and sacrebleu's scores of its translations."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import torch
import torch.nn.functional as F
from accelerate import Accelerator
from accelerate.utils import gather_object
from datasets import Dataset
from sacrebleu.metrics import BLEU, CHRF
from torch import Tensor, nn
from tqdm.auto import tqdm
from transformers import DataCollatorWithPadding, PreTrainedTokenizerBase

from tfm_zoo.models.losses import IGNORED
from tfm_zoo.training.evaluation import evaluate_examples, loss_and_perplexity, sums_of_rows
from tfm_zoo.training.task import Batch
from tfm_zoo.training.translation.losses import labelled_logits

NAMES = ("bleu", "chrf", "exact_match")
TRANSLATIONS = "generated_predictions.txt"  # the file's name in transformers' run_translation.py


def translation_scores(translations: Sequence[str], references: Sequence[str]) -> dict[str, float]:
    """BLEU (Papineni et al. 2002), chrF (Popović 2015) and how many translations are the reference, in percent.

    White space at either end of a text is ignored.
    """
    translations, references = ([text.strip() for text in texts] for texts in (translations, references))
    equal = sum(text == reference for text, reference in zip(translations, references, strict=True))
    return {
        "bleu": BLEU().corpus_score(translations, [references]).score,
        "chrf": CHRF().corpus_score(translations, [references]).score,
        "exact_match": 100 * equal / len(references),
    }


def signatures() -> list[str]:
    """sacrebleu's signatures of the two scores: scores compare only where the signatures agree."""
    names = []
    for metric in (BLEU(), CHRF()):
        score = metric.corpus_score(["a"], [["a"]])  # a metric has a signature when it has been used
        names.append(f"{score.name}|{metric.get_signature()}")
    return names


class Sample(NamedTuple):
    """A pair, and a model's translation of its source."""

    source: str
    reference: str
    translation: str

    def __str__(self) -> str:
        return f"  source       {self.source}\n  reference    {self.reference}\n  translation  {self.translation}"


@dataclass
class Judge:
    """Evaluates a model on the pairs of a split, by its loss and by its translations."""

    accelerator: Accelerator
    tokenizer: PreTrainedTokenizerBase
    texts: Dataset  # columns "source" and "target"
    encoded: Dataset  # columns "input_ids" and "labels"
    loader: Iterable[Batch]  # of the encoded pairs, prepared by the accelerator
    batch_size: int
    max_length: int  # of a translation, in tokens, with the token it starts with
    is_zoo: bool
    num_samples: int

    @torch.no_grad()
    def __call__(self, model: nn.Module, scored: int | None = None) -> dict[str, float]:
        """Loss and perplexity; and BLEU, chrF and exact match of the first `scored` pairs, or with None of all."""
        figures = self.losses(model)
        scored = len(self.texts) if scored is None else min(scored, len(self.texts))
        count = max(scored, self.num_samples)
        self.translations = self.translate(model, self.encoded["input_ids"][:count]) if count else []
        if scored:
            figures |= translation_scores(self.translations[:scored], self.texts["target"][:scored])
        return figures

    def losses(self, model: nn.Module) -> dict[str, float]:
        """Loss per token, perplexity, pairs per second. Labels are not smoothed, so that perplexity is the text's."""

        def measure(batch: Batch) -> Tensor:
            logits, labels = labelled_logits(model, batch, self.is_zoo)
            losses = F.cross_entropy(logits, labels, reduction="none")
            labelled = batch["labels"] != IGNORED
            return torch.cat([sums_of_rows(losses[:, None], labelled), labelled.sum(dim=1, keepdim=True)], dim=1)

        sums, speed = evaluate_examples(self.accelerator, model, self.loader, measure)
        return loss_and_perplexity(*sums.sum(dim=1).tolist()) | speed

    def translate(self, model: nn.Module, sources: Sequence[list[int]]) -> list[str]:
        """Translations of token ids, in their order, on every process. All processes call it and share the work.

        The model's `generation_config` says how the beam search works.
        """
        accelerator, collate = self.accelerator, DataCollatorWithPadding(self.tokenizer)
        order = sorted(range(len(sources)), key=lambda index: -len(sources[index]))  # the longest first: little padding
        mine = order[accelerator.process_index :: accelerator.num_processes]
        whole = accelerator.unwrap_model(model)
        training = whole.training
        whole.eval()
        translations: list[tuple[int, str]] = []
        is_hidden = None if accelerator.is_main_process else True  # None: only if the screen is no terminal
        for start in tqdm(range(0, len(mine), self.batch_size), desc="translating", leave=False, disable=is_hidden):
            rows = mine[start : start + self.batch_size]
            batch = collate([{"input_ids": sources[row]} for row in rows]).to(accelerator.device)
            ids = whole.generate(**batch, max_length=self.max_length)
            translations += zip(rows, self.tokenizer.batch_decode(ids, skip_special_tokens=True), strict=True)
        whole.train(training)
        return [text for _, text in sorted(gather_object(translations))]

    def write_translations(self, folder: Path) -> None:
        """Write the last translations, a line each, in the order of the split."""
        lines = (" ".join(translation.split()) for translation in self.translations)
        (folder / TRANSLATIONS).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")

    @property
    def samples(self) -> list[Sample]:
        """The first pairs of the split with their last translations."""
        rows = self.texts[: self.num_samples]
        return [Sample(*texts) for texts in zip(rows["source"], rows["target"], self.translations, strict=False)]
