"""Documents to pre-train on, in memory or streamed, and documents to validate on."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

from datasets import Dataset, DatasetDict, IterableDataset

from tfm_zoo.training import generated
from tfm_zoo.training.arguments import option
from tfm_zoo.training.pretraining.sentences import split_sentences
from tfm_zoo.training.sources import (
    StreamedArguments,
    check_texts,
    complete_splits,
    limit_splits,
    load_source,
    text_column,
)
from tfm_zoo.training.text_sources import CHARACTERS, TextSource, hold_out
from tfm_zoo.training.tokenizers import TOKENIZER_TEXT

Rows = Dataset | IterableDataset

HELD_OUT = 1000  # documents of a stream to validate on, unless max_eval_samples says how many


@dataclass(frozen=True)
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
        None,
        f"Likewise of those to validate on; default: all. Of a stream they have {CHARACTERS:,} characters at most, and"
        f" are {HELD_OUT:,} by default.",
    )

    def built_in(self) -> DatasetDict:
        return generated.generated_documents()


@dataclass
class Documents:
    """Documents to train on, and documents to validate on, which are in memory."""

    train: TextSource
    validation: TextSource
    split: Callable[[str], list[str]]  # cuts a document into its sentences
    has_own_validation: bool
    notes: list[str]  # what a reader of the figures must know of the data

    @property
    def is_stream(self) -> bool:
        return isinstance(self.train.rows, IterableDataset)

    def texts(self) -> Iterator[str]:
        """Texts to make a tokenizer from, the first ones. Read when iterated."""
        yield from self.train.first_texts(TOKENIZER_TEXT)


def load_documents(args: DocumentArguments, seed: int) -> Documents:
    """Load and check the documents; the seed decides which of those in memory validate where no split does."""
    notes: list[str] = []
    if args.is_generated:
        notes.append("The documents are generated, from templates. They test the machinery alone.")
    raw = _roles(load_source(args), args)
    if "text" in [rows.builder_name for rows in raw.values()] and not args.streaming:
        raw = _roles(load_source(replace(args, streaming=True)), args)  # a stream tells where a file ends
    column = text_column(raw["train"], args.text_column_name)
    sources = {}
    for role, rows in raw.items():
        if isinstance(rows, Dataset):
            check_texts(role, rows, column)
        sources[role] = TextSource(rows.select_columns(column), column, by_line=rows.builder_name == "text")

    if args.streaming:
        train, held_out = hold_out(sources, notes, CHARACTERS, args.max_eval_samples or HELD_OUT)
        validation = TextSource(held_out)
    else:
        splits = {role: source.in_memory() for role, source in sources.items()}
        for role, rows in splits.items():
            if not any(map(str.strip, rows[column])):
                raise ValueError(f"there is no text in the {role} split")
        splits = limit_splits(complete_splits(splits, args, seed, notes)[0], args, seed)
        train, validation = (TextSource(splits[role], column) for role in ("train", "validation"))
    split = str.splitlines if sources["train"].by_line else split_sentences
    return Documents(train, validation, split, "validation" in sources, notes)


def _roles(raw: Mapping[str, Rows], args: DocumentArguments) -> dict[str, Rows]:
    """The split to train on and, if there is one, the split to validate on."""
    name = args.train_split_name or next((name for name in raw if name.startswith("train")), None)
    if name is None and len(raw) == 1:
        (name,) = raw
    if name not in raw:
        missing = f"train_split_name {name!r}: no such split" if name else "give train_split_name: no split to train on"
        raise ValueError(f"{missing} among {list(raw)}")
    validation = next((other for other in raw if other.startswith("validation") and other != name), None)
    return {"train": raw[name], **({"validation": raw[validation]} if validation else {})}
