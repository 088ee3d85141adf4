"""Batches as users have them: real IMDB reviews in random order, cut at a longest length."""

from pathlib import Path

import torch

SHARED = Path(__file__).parents[3] / "shared"
# Where the reviews are not at hand: IMDB's token counts are close to this log-normal distribution.
LOG_MEAN, LOG_STD = 5.45, 0.65


def review_lengths(count: int, seed: int) -> list[int]:
    generator = torch.Generator().manual_seed(seed)
    lengths = torch.empty(count).log_normal_(LOG_MEAN, LOG_STD, generator=generator)
    return lengths.long().clamp(min=10).tolist()


def review_batches(count: int, batch_size: int, max_length: int, seed: int = 0) -> tuple[list[dict], str]:
    """`count` batches of `input_ids` and `attention_mask`, and a line on where they come from."""
    rows = count * batch_size
    reviews, vocabulary = SHARED / "datasets/imdb", SHARED / "checkpoints/all-MiniLM-L6-v2"
    if reviews.exists() and vocabulary.exists():
        from datasets import load_dataset
        from transformers import AutoTokenizer

        tokenizer = AutoTokenizer.from_pretrained(vocabulary)
        texts = load_dataset(str(reviews), split="test").shuffle(seed=seed)[:rows]["text"]
        encoded = [
            tokenizer(
                texts[start : start + batch_size],
                truncation=True,
                max_length=max_length,
                padding="longest",
                return_tensors="pt",
            )
            for start in range(0, rows, batch_size)
        ]
        return [{name: one[name] for name in ("input_ids", "attention_mask")} for one in encoded], "IMDB reviews"
    batches = []
    for start in range(count):
        lengths = torch.tensor(review_lengths(batch_size, seed + start)).clamp(max=max_length)
        mask = (torch.arange(int(lengths.max()))[None] < lengths[:, None]).long()
        ids = torch.randint(1000, 30000, mask.shape, generator=torch.Generator().manual_seed(seed + start))
        batches.append({"input_ids": ids * mask, "attention_mask": mask})
    return batches, "random ids with the lengths of IMDB reviews"


def without_padding(batches: list[dict], max_length: int) -> list[dict]:
    """Batches of the same size in which every position holds a real token."""
    full = []
    for seed, batch in enumerate(batches):
        shape = (len(batch["input_ids"]), max_length)
        ids = torch.randint(1000, 30000, shape, generator=torch.Generator().manual_seed(seed))
        full.append({"input_ids": ids, "attention_mask": torch.ones_like(ids)})
    return full


def masked(batches: list[dict], share: float = 0.15, mask_token_id: int = 103) -> list[dict]:
    """The batches with a share of the real tokens masked, and labels at those."""
    out = []
    for seed, batch in enumerate(batches):
        chance = torch.rand(batch["input_ids"].shape, generator=torch.Generator().manual_seed(seed))
        chosen = (chance < share) & batch["attention_mask"].bool()
        labels = batch["input_ids"].masked_fill(~chosen, -100)
        out.append(batch | {"input_ids": batch["input_ids"].masked_fill(chosen, mask_token_id), "labels": labels})
    return out


def translation_batches(split: str, size: int, count: int, vocabulary: int) -> tuple[list[dict], str]:
    """`count` batches of `input_ids`, `attention_mask` and `labels`, of tokens 0 to `vocabulary` - 1 of which 0 ends a
    sentence, padded with `vocabulary`; and a line on where they come from."""
    folder = SHARED / "datasets/multi30k"
    if folder.exists():
        from datasets import load_dataset

        from tfm_zoo.training.tokenizers import byte_level_bpe

        data = load_dataset(str(folder))
        tokenizer = byte_level_bpe([*data["train"]["en"], *data["train"]["de"]], vocabulary)
        pairs = data[split].shuffle(seed=0)[: size * count]
        rows = [[[*ids, 0] for ids in tokenizer(pairs[language])["input_ids"]] for language in ("en", "de")]
        origin = "Multi30k, English to German"
    else:
        generator = torch.Generator().manual_seed(0)
        lengths = torch.empty(2, size * count).log_normal_(2.65, 0.3, generator=generator).long().clamp(min=4)
        rows = [[torch.randint(1, vocabulary, (length,)).tolist() for length in side] for side in lengths.tolist()]
        origin = "random ids with the lengths of Multi30k"
    out = []
    for start in range(0, size * count, size):
        source, target = (
            torch.nn.utils.rnn.pad_sequence(
                [torch.tensor(ids) for ids in side[start : start + size]], batch_first=True, padding_value=vocabulary
            )
            for side in rows
        )
        mask = (source != vocabulary).long()
        out.append(
            {"input_ids": source, "attention_mask": mask, "labels": target.masked_fill(target == vocabulary, -100)}
        )
    return out, origin
