"""Translations by a model, and sacrebleu's scores of them."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from accelerate import Accelerator
from accelerate.utils import gather_object
from sacrebleu.metrics import BLEU, CHRF
from torch import nn
from tqdm.auto import tqdm
from transformers import DataCollatorWithPadding, PreTrainedTokenizerBase

NAMES = ("bleu", "chrf", "exact_match")


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


@torch.no_grad()
def translate(
    accelerator: Accelerator,
    model: nn.Module,
    tokenizer: PreTrainedTokenizerBase,
    sources: Sequence[list[int]],
    batch_size: int,
    max_length: int,
) -> list[str]:
    """Translations of token ids, in their order, on every process. All processes call it and share the work.

    The model's `generation_config` says how the beam search works; `max_length` counts the first token, too.
    """
    collate = DataCollatorWithPadding(tokenizer)
    order = sorted(range(len(sources)), key=lambda index: -len(sources[index]))  # the longest first: little padding
    mine = order[accelerator.process_index :: accelerator.num_processes]
    whole = accelerator.unwrap_model(model)
    training = whole.training
    whole.eval()
    translations: list[tuple[int, str]] = []
    is_hidden = None if accelerator.is_main_process else True  # None: only if the screen is no terminal
    for start in tqdm(range(0, len(mine), batch_size), desc="translating", leave=False, disable=is_hidden):
        rows = mine[start : start + batch_size]
        batch = collate([{"input_ids": sources[row]} for row in rows]).to(accelerator.device)
        ids = whole.generate(**batch, max_length=max_length)
        translations += zip(rows, tokenizer.batch_decode(ids, skip_special_tokens=True), strict=True)
    whole.train(training)
    return [text for _, text in sorted(gather_object(translations))]
