"""The bill of a quantised model: what rounding its weights has cost, beside the same model before."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import torch
from torch import nn
from torch.nn.functional import normalize

#: sequences of drawn tokens that a bill is of where nobody gives texts, how many at once, and how long they are
DRAWN, ROWS, LENGTH = 32, 8, 32
#: outputs whose values are compared, not the similarity of rows: those of classifiers
FEW = 16
#: what a model's outputs are called, the first that it has is read
OUTPUTS = ("logits", "start_logits", "prediction_logits", "last_hidden_state")


@torch.no_grad()
def rows_of(model: nn.Module, batches: Iterable[dict[str, torch.Tensor]]) -> torch.Tensor:
    """A vector for each sequence, `(sequences, size)`: logits, those of the last real token where each token has some,
    or the mean of the last hidden states."""
    found = []
    for batch in batches:
        outputs, mask = model(**batch), batch.get("attention_mask")
        if "decoder_input_ids" in batch:
            mask = torch.ones_like(batch["decoder_input_ids"])
        name = next(name for name in OUTPUTS if outputs.get(name) is not None)
        values = outputs[name].float()
        mask = torch.ones(values.shape[:2]) if mask is None else mask
        if values.ndim == 3 and values.shape[:2] == mask.shape:
            if name == "last_hidden_state":
                values = (values * mask[..., None]).sum(1) / mask.sum(1, keepdim=True)
            else:
                values = values[torch.arange(len(values)), mask.shape[1] - 1 - mask.flip(1).argmax(1)]
        elif values.shape == mask.shape:  # a logit of each token
            values = values.masked_fill(mask == 0, 0)
        found.append(values.flatten(1))
    longest = max(rows.shape[1] for rows in found)
    return torch.cat([nn.functional.pad(rows, (0, longest - rows.shape[1])) for rows in found])


def drawn(model: nn.Module) -> Iterator[dict[str, torch.Tensor]]:
    """Sequences of drawn tokens, of several lengths, for a model of texts; for another one, its fixed inputs."""
    from .fingerprints import fixed_inputs, sequences

    config, inputs = model.config, next(fixed_inputs(model))
    if "attention_mask" not in inputs or inputs["attention_mask"].ndim != 2:
        yield {"attention_mask": torch.ones_like(next(iter(inputs.values())), dtype=torch.long)} | inputs
        return
    fixed = sequences(config, config.vocab_size, LENGTH)
    ordinary = fixed["input_ids"][fixed["attention_mask"] == 1][:-1]
    length, generator = fixed["input_ids"].shape[1], torch.Generator().manual_seed(0)
    padding, end = getattr(config, "pad_token_id", None) or 0, getattr(config, "eos_token_id", None)
    for _ in range(DRAWN // ROWS):
        lengths = torch.randint(max(2, length // 4), length + 1, (ROWS, 1), generator=generator)
        ids = ordinary[torch.randint(len(ordinary), (ROWS, length), generator=generator)]
        if isinstance(end, int) and end < config.vocab_size:
            ids = ids.scatter(1, lengths - 1, end)
        mask = (torch.arange(length) < lengths).long()
        batch = {"input_ids": ids.masked_fill(mask == 0, padding), "attention_mask": mask}
        if "decoder_input_ids" in inputs:
            batch["decoder_input_ids"] = inputs["decoder_input_ids"][:1].repeat(ROWS, 1)
        yield batch


def bill_of(before: torch.Tensor, after: torch.Tensor, measured_on: str) -> dict[str, Any]:
    """What has become of outputs, `(sequences, size)` each: their cosines, and whether they stay in the same order.

    Cosines are of each sequence's vector or, of a few logits, of each logit over all sequences. `rank_correlation`
    (Spearman's) is that of the similarities of all pairs of sequences or, of a few logits, of these.
    """
    are_few = before.shape[1] <= FEW
    of_logits = are_few and len(before) > 2
    one, other = (normalize((each.T if of_logits else each).double()) for each in (before, after))
    is_told = (one != 0).any(1) | (other != 0).any(1)  # logits that are always 0 tell nothing
    cosines = (one * other).sum(1)[is_told | ~is_told.any()]
    if not are_few and len(before) > 2:
        rows, columns = torch.triu_indices(len(one), len(one), offset=1)
        ranked = [(each @ each.T)[rows, columns] for each in (one, other)]
    else:
        ranked = [before.flatten(), after.flatten()]
    return {
        "cosine": round(cosines.mean().item(), 6),
        "least_cosine": round(cosines.min().item(), 6),
        "rank_correlation": round(rank_correlation(*ranked), 6),
        "measured_on": measured_on,
    }


def rank_correlation(one: torch.Tensor, other: torch.Tensor) -> float:
    """Spearman's correlation of two lists of numbers."""
    if len(one) < 2:
        return 1.0
    ranks = torch.stack([each.argsort().argsort().double() for each in (one, other)])
    return torch.corrcoef(ranks)[0, 1].item()


def bill_in(config: Any) -> dict[str, Any] | None:
    """The bill that a configuration carries: an object of transformers', or the fields of a file."""
    is_file = isinstance(config, dict)
    held = config.get("quantization_config") if is_file else getattr(config, "quantization_config", None)
    return held.get("bill") if isinstance(held, dict) else getattr(held, "bill", None)


def drop_of(bill: dict[str, Any]) -> tuple[float, str]:
    """How much was lost, as a share, and of what: of a task's metric, if that was measured, or else of the mean cosine
    or the rank correlation, whichever lost more."""
    if metric := bill.get("metric"):
        name, before, after = metric["name"], metric["float32"], metric["quantised"]
        return (before - after) / (abs(before) or 1), f"{name} was {before:.4f} and is {after:.4f}"
    name = min(("cosine", "rank_correlation"), key=bill.__getitem__)
    return 1 - bill[name], f"{name.replace('_', ' ')} {bill[name]:.4f} beside float32"


def sentence_of(bill: dict[str, Any] | None) -> str | None:
    """A bill, for a card."""
    if not bill:
        return None
    parts = []
    if metric := bill.get("metric"):
        now, before = metric["quantised"], metric["float32"]
        parts.append(f"{metric['name']} is {now:.4f}, and was {before:.4f} in float32")
    cosines = f"a cosine of {bill['cosine']:.4f} on average"
    cosines += "" if metric else f" and {bill['least_cosine']:.4f} at least"
    ranks = f"a rank correlation of {bill['rank_correlation']:.4f}"
    parts.append(f"outputs have {cosines} to those of float32, and {ranks}")
    return f"What rounding costs, measured on {bill['measured_on']}: {'; '.join(parts)}."


def allowed_drop(text: str) -> float:
    """A share as people write it: `0.5%` or `0.005`; a `ValueError` for anything else."""
    number, divisor = text.strip().removesuffix("%"), 100 if text.strip().endswith("%") else 1
    try:
        share = float(number) / divisor
    except ValueError:
        share = -1.0
    if not 0 <= share <= 1:
        raise ValueError(f"max_drop {text!r} should be a share, such as 0.5% or 0.005.")
    return share


def check_drop(config: dict[str, Any], source: str, most: float) -> None:
    """Refuses a quantised checkpoint that has lost more than `most`, or that does not say what it has lost.

    Args:
        config: the fields of its `config.json`.
        source: its folder, for messages.
        most: a share.
    """
    if not config.get("quantization_config"):
        return
    bill = bill_in(config)
    if not bill:
        raise ValueError(f"{source} does not say what rounding has cost it: quantise it anew with `tfm-zoo convert`.")
    drop, what = drop_of(bill)
    if drop > most:
        raise ValueError(f"{source} lost {drop:.2%} ({what}), and max_drop allows {most:.2%}: nothing was pushed.")


def batches_of(tokenizer: Any, texts: Sequence[str], longest: int) -> list[dict[str, torch.Tensor]]:
    """Texts as batches of inputs."""
    options = {"padding": True, "truncation": True, "max_length": longest, "return_tensors": "pt"}
    return [dict(tokenizer([*texts[start : start + ROWS]], **options)) for start in range(0, len(texts), ROWS)]
