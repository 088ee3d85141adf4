"""Batches as users have them: real IMDB reviews in random order, cut at a longest length; sentences of Multi30k."""

from collections.abc import Callable
from functools import cache
from pathlib import Path

import torch
from torch.nn.utils.rnn import pad_sequence

SHARED = Path(__file__).parents[2] / "shared"
# Where the texts are not at hand: the logarithms of token counts of IMDB and of Multi30k, mean and deviation.
REVIEWS, SENTENCES = (5.45, 0.65), (2.65, 0.3)
PIECES = 8000  # the vocabulary of translations, in which 0 ends a sentence; the next number is padding
#: rows of a batch of conversations, as parts of the longest, so that half of it is padding; the last part of each is an
#: answer
CONVERSATIONS, ANSWERED = (1.0, 0.6, 0.35, 0.1), 0.4


def padded(rows: list[list[int]], padding: int = 0) -> dict[str, torch.Tensor]:
    """`input_ids` and `attention_mask`, each of shape `(batch, length)`."""
    ids = pad_sequence([torch.tensor(row) for row in rows], batch_first=True, padding_value=-1)
    return {"input_ids": ids.where(ids >= 0, torch.tensor(padding)), "attention_mask": (ids >= 0).long()}


def drawn(count: int, shape: tuple[float, float], low: int, high: int, seed: int = 0) -> list[list[int]]:
    """Rows of random ids, whose lengths are those of reviews or sentences."""
    generator = torch.Generator().manual_seed(seed)
    lengths = torch.empty(count).log_normal_(*shape, generator=generator).long().clamp(min=4)
    return [torch.randint(low, high, (length,), generator=generator).tolist() for length in lengths.tolist()]


@cache
def ragged(rounds: int, size: int = 16, longest: int = 512) -> list[dict]:
    """Batches of reviews; the screen says where they come from, and how much of them is padding."""
    count, vocabulary = rounds * size, SHARED / "checkpoints/all-MiniLM-L6-v2"
    if (SHARED / "datasets/imdb").exists() and vocabulary.exists():
        from datasets import load_dataset
        from transformers import AutoTokenizer

        texts = load_dataset(str(SHARED / "datasets/imdb"), split="test").shuffle(seed=0)[:count]["text"]
        rows = AutoTokenizer.from_pretrained(vocabulary)(texts, truncation=True, max_length=longest)["input_ids"]
        origin = "IMDB reviews"
    else:
        rows, origin = drawn(count, REVIEWS, 1000, 30000), "random ids with the lengths of IMDB reviews"
    found = [padded([row[:longest] for row in rows[start : start + size]]) for start in range(0, count, size)]
    report(f"{rounds} batches of {size}, at most {longest} tokens: {origin}", found)
    return found


def full(rounds: int, size: int = 16, longest: int = 512) -> list[dict]:
    """Batches of the same size in which every position holds a real token."""
    return [
        batch | {"attention_mask": torch.ones_like(batch["input_ids"])} for batch in random_ids(rounds, size, longest)
    ]


def random_ids(rounds: int, rows: int, length: int, low: int = 1000, high: int = 30000) -> list[dict]:
    generator = torch.Generator().manual_seed(0)
    return [{"input_ids": torch.randint(low, high, (rows, length), generator=generator)} for _ in range(rounds)]


def classified(rounds: int, make: Callable[[int], list[dict]]) -> list[dict]:
    return [batch | {"labels": torch.arange(len(batch["input_ids"])) % 2} for batch in make(rounds)]


def masked(rounds: int, make: Callable[[int], list[dict]], share: float = 0.15, mask_token_id: int = 103) -> list[dict]:
    """The batches with a share of the real tokens masked, and labels at those."""
    found = []
    for seed, batch in enumerate(make(rounds)):
        chance = torch.rand(batch["input_ids"].shape, generator=torch.Generator().manual_seed(seed))
        chosen = (chance < share) & batch["attention_mask"].bool()
        labels = batch["input_ids"].masked_fill(~chosen, -100)
        found.append(batch | {"input_ids": batch["input_ids"].masked_fill(chosen, mask_token_id), "labels": labels})
    return found


def conversations(rounds: int, length: int, high: int, is_ragged: bool) -> list[dict]:
    """Two full rows with a label everywhere; or ragged rows, of which the answers alone have labels."""
    if not is_ragged:
        return [batch | {"labels": batch["input_ids"]} for batch in random_ids(rounds, 2, length, high=high)]
    ends = torch.tensor([round(part * length) for part in CONVERSATIONS])[:, None]
    places = torch.arange(length)
    mask, answers = places < ends, (places >= (1 - ANSWERED) * ends) & (places < ends)
    batches = random_ids(rounds, len(ends), length, high=high)
    rows = [(batch["input_ids"] * mask, batch["input_ids"].where(answers, -100)) for batch in batches]
    return [{"input_ids": ids, "attention_mask": mask.long(), "labels": labels} for ids, labels in rows]


@cache
def translations(rounds: int, split: str, size: int = 64) -> list[dict]:
    """Batches of `input_ids`, `attention_mask` and `labels`, padded with `PIECES`."""
    count, folder = rounds * size, SHARED / "datasets/multi30k"
    if folder.exists():
        from datasets import load_dataset

        from tfm_zoo.training.tokenizers import byte_level_bpe

        data = load_dataset(str(folder))
        tokenizer = byte_level_bpe([*data["train"]["en"], *data["train"]["de"]], PIECES)
        pairs = data[split].shuffle(seed=0)[:count]
        rows = [[[*ids, 0] for ids in tokenizer(pairs[language])["input_ids"]] for language in ("en", "de")]
        origin = "Multi30k, English to German"
    else:
        rows = [drawn(count, SENTENCES, 1, PIECES, seed) for seed in (0, 1)]
        origin = "random ids with the lengths of Multi30k"
    found = []
    for start in range(0, min(count, len(rows[0])), size):
        source, target = (padded(side[start : start + size], PIECES) for side in rows)
        labels = target["input_ids"].masked_fill(target["attention_mask"] == 0, -100)
        found.append(source | {"labels": labels})
    report(f"{len(found)} batches of {size}: {origin}", found)
    return found


def report(what: str, batches: list[dict]) -> None:
    real = sum(batch["attention_mask"].sum() for batch in batches) / sum(one["input_ids"].numel() for one in batches)
    print(f"{what}; {real:.0%} of the positions hold real tokens")
