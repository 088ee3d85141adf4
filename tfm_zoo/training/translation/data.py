"""Sentences and their translations, from any source."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from datasets import Dataset

from tfm_zoo.training import generated
from tfm_zoo.training.arguments import option
from tfm_zoo.training.sources import checked_texts, find_columns, listed, load_source
from tfm_zoo.training.splits import by_role, divide
from tfm_zoo.training.text_to_text.data import SIDES, PairArguments, TextPairs

NESTED = "translation"  # a column of mappings from language to text, as many data sets on the Hub have it


@dataclass(frozen=True)
class ParallelTextArguments(PairArguments):
    """Where the pairs are, and how much of them to use. Names are those of transformers' `run_translation.py`."""

    built_in: ClassVar = staticmethod(generated.reversed_sequences)
    built_in_note: ClassVar = "The data set is generated: letters, to be put in the reverse order."

    train_file: str | None = option(
        None,
        "Instead of dataset_name: a CSV, TSV, JSON (lines) or Parquet file with a column for each language, or one"
        f" {NESTED!r}; or 'corpus/train', for two text files of sentences, 'corpus/train.en' and 'corpus/train.de'.",
    )
    source_lang: str | None = option(
        None, "Language to translate from: the name of its column, or a tokenizer's code that begins with it (en_XX)."
    )
    target_lang: str | None = option(None, "The language to translate into, likewise.")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.source_lang is not None and self.source_lang == self.target_lang:
            raise ValueError(f"source_lang and target_lang are both {self.source_lang!r}")

    def load_file(self, split: str, file: str) -> Dataset:
        sides = {language: Path(f"{file}.{language}") for language in (self.source_lang, self.target_lang)}
        if Path(file).is_file() or not all(path.is_file() for path in sides.values()):
            return super().load_file(split, file)
        try:
            texts = {language: path.read_text("utf-8") for language, path in sides.items()}
        except UnicodeDecodeError as error:
            raise ValueError(f"{split}_file {file!r} cannot be read: {error}") from error
        # Not `splitlines`, which also cuts sentences at characters such as U+2028.
        lines = {language: text.removesuffix("\n").split("\n") for language, text in texts.items()}
        if len(set(map(len, lines.values()))) > 1:
            counts = " and ".join(f"{path} has {len(lines[language])}" for language, path in sides.items())
            raise ValueError(f"{split}_file {file!r}: as many lines are needed on both sides; {counts}")
        return Dataset.from_dict(lines)


@dataclass
class ParallelTexts(TextPairs):
    """Splits whose columns "source" and "target" hold texts."""

    languages: tuple[str, str]  # of source and target: names of columns, or codes that begin with them


def load_parallel_texts(args: ParallelTextArguments, seed: int) -> ParallelTexts:
    """Load and check the pairs; the seed decides which rows a missing split and `max_*_samples` take."""
    languages = args.source_lang, args.target_lang
    if args.is_generated:
        languages = tuple(given or usual for given, usual in zip(languages, SIDES, strict=True))
    splits = {name: _pairs(args, name, split, languages) for name, split in load_source(args).items()}
    rows, own_splits, notes = by_role(splits, args)
    return ParallelTexts(divide(rows, args, seed, notes), own_splits, notes, languages)


def _pairs(args: ParallelTextArguments, name: str, split: Dataset, languages: Sequence[str | None]) -> Dataset:
    """The texts of a split, in the columns "source" and "target"."""
    split = split.flatten()  # a column of mappings from language to text becomes a column for each language
    split = split.rename_columns({column: column.removeprefix(f"{NESTED}.") for column in split.column_names})
    texts = {}
    for side, option_name, language in zip(SIDES, ("source_lang", "target_lang"), languages, strict=True):
        if language is None:
            raise ValueError(f"give source_lang and target_lang: the columns are {listed(split.column_names)}")
        short = language.split("_")[0]
        asked = short if short in split.column_names and language not in split.column_names else language
        (column,) = find_columns(split, asked, [], option_name)
        texts[side] = checked_texts(args, name, split, column, "column")
        empty = next((row for row, text in enumerate(texts[side]) if not text.strip()), None)
        if empty is not None:
            raise args.row_error(name, empty, f"split {name!r} has an empty text in {{row}}", column)
    return Dataset.from_dict(texts)
