"""Documents to pre-train on, in memory or streamed, and those to validate on."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import count, islice
from typing import ClassVar

from datasets import Dataset, DatasetDict, IterableDataset

from tfm_zoo.training import generated
from tfm_zoo.training.arguments import option
from tfm_zoo.training.sentences import split_sentences
from tfm_zoo.training.sources import (
    StreamedArguments,
    check_texts,
    complete_splits,
    find_columns,
    limit_splits,
    load_source,
)
from tfm_zoo.training.text_sources import TextSource

Rows = Dataset | IterableDataset

HELD_OUT = 1000  # documents of a stream to validate on, if nobody says how many


@dataclass
class DocumentArguments(StreamedArguments):
    """Where the documents are, and how much of them is used."""

    file_types: ClassVar[Mapping[str, str]] = {".txt": "text", **StreamedArguments.file_types}
    text_rows: ClassVar[str] = "line"
    test_split_percentage: ClassVar[float] = 0

    train_file: str | None = option(
        None,
        "Instead of dataset_name: CSV, TSV, JSON (lines) or Parquet, a document a row; or text, a sentence a line with"
        " an empty line between documents. A pattern ('shards/*.txt') means all files that fit.",
    )
    train_split_name: str | None = option(None, "Split to train on; default: the one that begins with 'train'.")
    text_column_name: str | None = option(None, "Column of the texts; default: 'text', or the only one.")
    max_train_samples: int | None = option(None, "Use this many training documents.")
    max_eval_samples: int | None = option(
        None, f"Likewise of those to validate on; default: all, or {HELD_OUT:,} of a stream."
    )

    def built_in(self) -> DatasetDict:
        return generated.generated_documents()


@dataclass
class Documents:
    """Those to train on, and those to validate on, which are in memory."""

    train: TextSource
    validation: TextSource
    split: Callable[[str], list[str]]  # a document's sentences
    has_own_validation: bool
    notes: list[str]  # what was done to the data that a reader of the figures must know

    @property
    def is_stream(self) -> bool:
        return isinstance(self.train.rows, IterableDataset)


def load_documents(args: DocumentArguments, seed: int) -> Documents:
    """Load and check the documents; the seed decides which of those in memory validate where no split does.

    Raises:
        FileNotFoundError, ValueError: naming the file, column, split or row that is missing or wrong.
    """
    notes: list[str] = []
    if args.dataset_name == generated.NAME:
        notes.append("The documents are generated, from templates. They test the machinery alone.")
    splits = _roles(load_source(args), args)
    own = "validation" in splits
    some = splits["train"]
    is_stream, by_line = isinstance(some, IterableDataset), some.builder_name == "text"
    asked = args.text_column_name and [args.text_column_name]
    usual = [some.column_names] if len(some.column_names or ()) == 1 else [["text"]]
    (column,) = find_columns(some, asked, usual, "text_column_name")
    for role, rows in splits.items():
        if not is_stream:
            check_texts(role, rows, column)
    sources = {role: TextSource(rows.select_columns(column), column, by_line) for role, rows in splits.items()}

    if is_stream:
        sources = _with_validation(sources, args, notes)
    else:
        if by_line:  # which are made into documents here
            splits = {role: Dataset.from_dict({column: list(s.texts(s.rows))}) for role, s in sources.items()}
        for role, rows in splits.items():
            if not any(map(str.strip, rows[column])):
                raise ValueError(f"there is no text in the {role} split")
        splits, _ = complete_splits(splits, args, seed, notes)
        splits = limit_splits(splits, args, seed)
        sources = {role: TextSource(rows, column) for role, rows in splits.items()}
    split = str.splitlines if by_line else split_sentences
    return Documents(sources["train"], sources["validation"], split, own, notes)


def _roles(raw: Mapping[str, Rows], args: DocumentArguments) -> dict[str, Rows]:
    """The split to train on and, if there is one, that to validate on."""
    name = args.train_split_name or next((name for name in raw if name.startswith("train")), None)
    if name is None and len(raw) == 1:
        (name,) = raw
    if name not in raw:
        missing = f"train_split_name {name!r}: no such split" if name else "give train_split_name: no split to train on"
        raise ValueError(f"{missing} among {list(raw)}")
    validation = next((other for other in raw if other.startswith("validation") and other != name), None)
    return {"train": raw[name], **({"validation": raw[validation]} if validation else {})}


def _with_validation(
    sources: dict[str, TextSource], args: DocumentArguments, notes: list[str]
) -> dict[str, TextSource]:
    """Streams, of which the documents to validate on are in memory: the first of their split, or of the first shard."""
    train, validation = sources["train"], sources.get("validation")
    limit = args.max_eval_samples or HELD_OUT
    rows_read = count()
    shard = validation.rows if validation else train.rows.shard(num_shards=train.rows.num_shards, index=0)
    texts = train.texts(row for row, _ in zip(shard, rows_read))  # noqa: B905, the count has no end
    held_out = list(islice(filter(str.strip, texts), limit))
    if not validation:
        train = train.without(next(rows_read))
        notes.append(f"There is no validation split: the first {len(held_out):,} documents were taken for it.")
    if not held_out:
        raise ValueError(f"there is no text in the {'validation' if validation else 'train'} split")
    return {"train": train, "validation": TextSource(Dataset.from_dict({train.column: held_out}), train.column)}
