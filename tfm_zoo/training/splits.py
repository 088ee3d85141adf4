"""Which split of a data set is which, and what is cut from the training rows where a split is missing."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, ClassVar, TypeVar

from datasets import Dataset, DatasetDict, IterableDataset

from tfm_zoo.training.sources import DataArguments, digest
from tfm_zoo.training.wording import counted

Rows = TypeVar("Rows", Dataset, IterableDataset)
VALIDATION = ("valid", "val", "dev", "development")  # other names of the validation split


@dataclass
class Data:
    """Splits "train", "validation" and perhaps "test", with notes on them."""

    splits: DatasetDict
    own_splits: list[str]  # those that the data set came with; the others were cut from its train split
    notes: list[str]  # what a reader of the figures must know of the data

    text_columns: ClassVar[Sequence[str]]

    def texts(self) -> Iterator[str]:
        """The training texts. Read when iterated."""
        return chain.from_iterable(self.splits["train"][column] for column in self.text_columns)

    @property
    def facts(self) -> dict[str, Any]:
        """Digests of the texts, by which a resumed run is known to have the same ones."""
        facts = {}
        for name, split in (("training texts", "train"), ("validation texts", "validation")):
            values = chain(*self.splits[split].to_dict().values())
            facts[name] = digest(value if isinstance(value, str) else json.dumps(value) for value in values)
        return facts


def by_role(splits: Mapping[str, Rows], args: DataArguments) -> tuple[dict[str, Rows], list[str], list[str]]:
    """The splits "train" and, if there are any, "validation" and "test"; which of them the data set came with; notes.

    Each is the first split whose name begins with that word; without one, "validation" is a split with a name of
    `VALIDATION`. The only split of a data set is trained on, whatever its name; so is the one that `train_split_name`
    names.
    """
    if name := args.train_split_name:
        if name not in splits:
            raise ValueError(f"train_split_name {name!r}: no such split among {list(splits)}")
        others = {other: rows for other, rows in splits.items() if other not in ("train", name)}
        splits = {"train": splits[name], **others}
    notes = [args.built_in_note] if args.is_generated else []
    names = {role: next((name for name in splits if name.startswith(role)), None) for role in args.roles}
    if names["train"] is not None:
        names["validation"] = names["validation"] or next((name for name in splits if name in VALIDATION), None)
        rows = {role: splits[name] for role, name in names.items() if name is not None}
        return rows, list(rows), notes
    if len(splits) > 1:
        raise ValueError(f"no split to train on among {list(splits)}: none has a name that begins with 'train'")
    ((name, train),) = splits.items()
    return {"train": train}, [], [*notes, f"The data set has only the split {name!r}; all others are cut from it."]


def without_empty(rows: Mapping[str, Dataset], columns: Sequence[str], notes: list[str]) -> dict[str, Dataset]:
    """The splits without the rows in which a text of these columns is blank, or a list empty; `notes` then say how
    many these were."""
    found = {}
    for name, split in rows.items():
        filled = split.filter(lambda *values: all(map(_is_filled, values)), input_columns=[*columns])
        left_out = len(split) - len(filled)
        found[name] = filled if left_out else split  # filtered rows are slower to read
        if left_out:
            what = " or ".join(map(repr, columns))
            notes.append(
                f"{left_out:,} of the {len(split):,} rows of the {name} split, whose {what} is empty, were left out."
            )
    return found


def _is_filled(value: str | list) -> bool:
    return bool(value.strip() if isinstance(value, str) else value)


def divide(rows: Mapping[str, Dataset], args: DataArguments, seed: int, notes: list[str]) -> DatasetDict:
    """The splits "train", "validation" and, if there is one or a share is asked for, "test".

    Those that are missing are cut from train, and a sentence about it is added to `notes`. Splits with more rows than
    `max_train_samples` or `max_eval_samples` keep that many, which the seed picks.
    """
    train = rows["train"]
    shares = {"validation": args.validation_split_percentage, "test": args.test_split_percentage}
    missing = {role: share for role, share in shares.items() if role not in rows and share > 0}
    sizes = {role: max(1, round(len(train) * share / 100)) for role, share in missing.items()}
    if "validation" not in rows and "validation" not in sizes:
        raise ValueError("there is no validation split: give a validation_split_percentage above 0")
    if sizes and sum(sizes.values()) >= len(train):
        roles = " and a ".join(sizes)
        raise ValueError(f"train has {counted(len(train), 'row')}: too few to cut a {roles} split from it")
    if sizes:
        train, rest = train.train_test_split(test_size=sum(sizes.values()), seed=seed).values()
    else:
        train = train.shuffle(seed=seed)
    splits, taken = {**rows, "train": train}, 0
    for role, size in sizes.items():
        were = "was" if size == 1 else "were"
        notes.append(f"There is no {role} split: {counted(size, 'row')} of train {were} taken for it (seed {seed}).")
        splits[role] = rest.select(range(taken, taken + size))
        taken += size
    for role in args.roles:
        limit = args.max_train_samples if role == "train" else args.max_eval_samples
        if role in splits and limit is not None and limit < len(splits[role]):
            splits[role] = splits[role].shuffle(seed=seed).take(limit)
    return DatasetDict({role: splits[role] for role in args.roles if role in splits})
