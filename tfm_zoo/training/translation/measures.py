"""What translations are measured by: the loss, with smoothed labels or without, and sacrebleu's scores."""

from collections.abc import Sequence
from typing import Literal, NamedTuple

import torch.nn.functional as F
from sacrebleu.metrics import BLEU, CHRF
from torch import Tensor, nn

from tfm_zoo.models.losses import IGNORED
from tfm_zoo.training.task import Batch, inputs_of

NAMES = ("bleu", "chrf", "exact_match")


def translation_scores(translations: Sequence[str], references: Sequence[str]) -> dict[str, float]:
    """BLEU (Papineni et al. 2002), chrF (Popović 2015) and how many translations are the reference, in percent."""
    translations, references = ([text.strip() for text in texts] for texts in (translations, references))
    equal = sum(text == reference for text, reference in zip(translations, references, strict=True))
    return {
        "bleu": BLEU().corpus_score(translations, [references]).score,
        "chrf": CHRF().corpus_score(translations, [references]).score,
        "exact_match": 100 * equal / len(references),
    }


def signatures() -> list[str]:
    """sacrebleu's signatures of the two scores: scores compare only where the signatures agree."""
    scores = {metric: metric.corpus_score(["a"], [["a"]]) for metric in (BLEU(), CHRF())}  # to have signatures
    return [f"{score.name}|{metric.get_signature()}" for metric, score in scores.items()]


class Sample(NamedTuple):
    """A pair, and a model's translation of its source."""

    source: str
    reference: str
    translation: str

    def __str__(self) -> str:
        return f"  source       {self.source}\n  reference    {self.reference}\n  translation  {self.translation}"


def labelled_logits(model: nn.Module, batch: Batch, is_zoo: bool) -> tuple[Tensor, Tensor]:
    """Logits `(tokens, vocab_size)` and labels `(tokens,)` of the target's tokens, without padding."""
    labelled = batch["labels"] != IGNORED
    if is_zoo:  # which makes no other logits; an official model makes those of all positions
        logits = model(**inputs_of(batch), use_cache=False, logits_to_keep=labelled).logits
    else:
        logits = model(**inputs_of(batch), use_cache=False).logits[labelled]
    return logits.float(), batch["labels"][labelled]


def label_smoothed_loss(
    logits: Tensor,
    labels: Tensor,
    epsilon: float,
    over: Literal["others", "all"] = "others",
    reduction: Literal["mean", "sum", "none"] = "mean",
) -> Tensor:
    """Cross-entropy against labels that give the mass `epsilon` to other classes, evenly.

    `"others"`: the label keeps `1 - epsilon`, and every other class gets `epsilon / (vocab_size - 1)`. This is
    Tensor2Tensor's definition, with which *Attention Is All You Need* was trained.

    `"all"`: every class gets `epsilon / vocab_size`, and the label `1 - epsilon` more. This is the definition of
    Szegedy et al. (2016), whom the paper cites, and of torch's `cross_entropy(label_smoothing=...)`.

    Args:
        logits: `(tokens, vocab_size)`.
        labels: `(tokens,)`; -100 marks positions that do not count.
        epsilon: 0 (no smoothing) or more; at most 1, and of `"others"` at most `1 - 1 / vocab_size`.

    Returns:
        A scalar: the mean over labelled positions, or the sum; or `(tokens,)`, 0 where there is no label.
    """
    if over not in ("others", "all"):
        raise ValueError(f"over must be 'others' or 'all', not {over!r}")
    classes = logits.shape[-1]
    # Spread over all classes, this mass gives epsilon / (classes - 1) to each and leaves 1 - epsilon to the label.
    spread = epsilon * classes / (classes - 1) if over == "others" else epsilon
    if not 0 <= spread <= 1:
        raise ValueError(f"epsilon={epsilon} cannot be spread over {classes} classes ({over!r}): 0.1 is usual")
    return F.cross_entropy(logits.float(), labels, reduction=reduction, label_smoothing=spread)
