"""Batches of random ids, as long as the texts that users have: times depend on nothing else. And texts.

A batch holds `input_ids` and `attention_mask`, each of shape `(batch, length)`, and the `labels` of its step.
"""

from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch
from torch.nn.utils.rnn import pad_sequence

SHARED = Path(__file__).parents[2] / "shared"
MINILM = SHARED / "checkpoints/all-MiniLM-L6-v2"
#: the logarithms of token counts, mean and deviation: of IMDB's reviews, and of Multi30k's sentences
REVIEWS, SENTENCES = (5.45, 0.65), (2.65, 0.3)
PIECES = 8000  # every vocabulary has as many
PADDING = 1  # of translations
drawn = partial(torch.randint, 200, PIECES)  # (the first ids are special)
#: rows of a batch of conversations, as parts of the longest, so that half of it is padding; the last part of each is an
#: answer
CONVERSATIONS, ANSWERED = (1.0, 0.6, 0.35, 0.1), 0.4


def texts(name: str, count: int) -> list[str]:
    """Of the test split of a data set in `SHARED`."""
    from datasets import load_dataset

    return load_dataset(str(SHARED / "datasets" / name), split="test").shuffle(seed=0)[:count]["text"]


def padded(rows: list[torch.Tensor], padding: int = 0) -> dict[str, torch.Tensor]:
    masks = [torch.ones_like(row) for row in rows]
    ids = pad_sequence(rows, batch_first=True, padding_value=padding)
    return {"input_ids": ids, "attention_mask": pad_sequence(masks, batch_first=True)}


def ragged(
    rounds: int,
    size: int = 16,
    longest: int = 512,
    lengths: tuple[float, float] = REVIEWS,
    padding: int = 0,
    seed: int = 0,
) -> list[dict]:
    """About half of the positions are padding."""
    generator = torch.Generator().manual_seed(seed)
    counts = torch.empty(rounds, size).log_normal_(*lengths, generator=generator).long().clamp(4, longest)
    return [padded([drawn((n,), generator=generator) for n in row], padding) for row in counts.tolist()]


def random_ids(rounds: int, rows: int, length: int) -> list[dict]:
    """Ids alone, in rows of one length."""
    generator = torch.Generator().manual_seed(0)
    return [{"input_ids": drawn((rows, length), generator=generator)} for _ in range(rounds)]


def full(rounds: int, size: int = 16, longest: int = 512) -> list[dict]:
    """Every position holds a real token."""
    return [one | {"attention_mask": torch.ones_like(one["input_ids"])} for one in random_ids(rounds, size, longest)]


def classified(rounds: int, make: Callable[[int], list[dict]]) -> list[dict]:
    return [batch | {"labels": torch.arange(len(batch["input_ids"])) % 2} for batch in make(rounds)]


def masked(rounds: int, make: Callable[[int], list[dict]]) -> list[dict]:
    """The batches with 15 % of the real tokens masked, and labels at those."""
    found = []
    for seed, batch in enumerate(make(rounds)):
        chance = torch.rand(batch["input_ids"].shape, generator=torch.Generator().manual_seed(seed))
        chosen = (chance < 0.15) & batch["attention_mask"].bool()
        labels = batch["input_ids"].masked_fill(~chosen, -100)
        found.append(batch | {"input_ids": batch["input_ids"].masked_fill(chosen, 103), "labels": labels})
    return found


def labelled(rounds: int, rows: int, length: int) -> list[dict]:
    """Full rows with a label everywhere."""
    return [batch | {"labels": batch["input_ids"]} for batch in random_ids(rounds, rows, length)]


def conversations(rounds: int, length: int) -> list[dict]:
    """Ragged rows, of which the answers alone have labels."""
    ends = torch.tensor([round(part * length) for part in CONVERSATIONS])[:, None]
    places = torch.arange(length)
    mask, answers = places < ends, (places >= (1 - ANSWERED) * ends) & (places < ends)
    rows = [batch["input_ids"] for batch in random_ids(rounds, len(ends), length)]
    return [
        {"input_ids": ids * mask, "attention_mask": mask.long(), "labels": ids.where(answers, -100)} for ids in rows
    ]


def translations(rounds: int, size: int = 64) -> list[dict]:
    """Sentences, and their translations as labels."""
    sides = (ragged(rounds, size, lengths=SENTENCES, padding=PADDING, seed=seed) for seed in (0, 1))
    return [
        source | {"labels": target["input_ids"].masked_fill(target["attention_mask"] == 0, -100)}
        for source, target in zip(*sides, strict=True)
    ]
