"""Documents to pre-train on, in memory or streamed, and documents to validate on."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import ClassVar

from datasets import Dataset

from tfm_zoo.training import generated
from tfm_zoo.training.arguments import option
from tfm_zoo.training.pretraining.sentences import split_sentences
from tfm_zoo.training.sources import StreamedArguments, checked_texts, load_source, text_column
from tfm_zoo.training.splits import by_role, divide
from tfm_zoo.training.text_sources import CHARACTERS, TextSource, hold_out
from tfm_zoo.training.tokenizers import TOKENIZER_TEXT

HELD_OUT = 1000  # documents of a stream to validate on, unless max_eval_samples says how many


@dataclass(frozen=True)
class DocumentArguments(StreamedArguments):
    """Where the documents are, and how much of them is used."""

    text_rows: ClassVar = "line"
    built_in: ClassVar = staticmethod(generated.generated_documents)
    built_in_note: ClassVar = "The documents are generated, from templates. They test the machinery alone."

    train_file: str | None = option(
        None,
        "Instead of dataset_name: CSV, TSV, JSON (lines) or Parquet, a document a row; or text, a sentence a line with"
        " an empty line between documents. A pattern ('shards/*.txt') means all files that fit.",
    )
    max_eval_samples: int | None = option(
        None, f"Likewise for validation documents; default: all, or of a stream the first {HELD_OUT:,}.", at_least=1
    )


@dataclass
class Documents:
    """Documents to train on, and documents to validate on, which are in memory."""

    train: TextSource
    validation: TextSource
    split: Callable[[str], list[str]]  # cuts a document into its sentences
    own_splits: list[str]  # those that the data set came with
    notes: list[str]  # what a reader of the figures must know of the data

    def texts(self) -> Iterator[str]:
        """Texts to make a tokenizer from: some of the training documents. Read when iterated."""
        yield from self.train.first_texts(TOKENIZER_TEXT)


def load_documents(args: DocumentArguments, seed: int) -> Documents:
    """Load and check the documents. Without a validation split, the seed picks it from the documents in memory."""
    raw = load_source(args)
    is_text = "text" in [rows.builder_name for rows in raw.values()]
    if is_text and not args.streaming:
        raw = load_source(replace(args, streaming=True))  # a stream tells where a file ends
    rows, own_splits, notes = by_role(raw, args)
    column = text_column(rows["train"], args.text_column_name)
    sources = {}
    for role, split in rows.items():
        if isinstance(split, Dataset):
            checked_texts(args, role, split, column)
        sources[role] = TextSource(split.select_columns(column), column)

    if args.streaming:
        train, held_out = hold_out(sources, notes, CHARACTERS, args.max_eval_samples or HELD_OUT)
        validation = TextSource(held_out)
    else:
        splits = {role: source.in_memory() for role, source in sources.items()}
        for role, split in splits.items():
            if not any(map(str.strip, split[column])):
                raise ValueError(f"there is no text in the {role} split")
        splits = divide(splits, args, seed, notes)
        train, validation = (TextSource(splits[role], column) for role in ("train", "validation"))
    return Documents(train, validation, str.splitlines if is_text else split_sentences, own_splits, notes)
