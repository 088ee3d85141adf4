"""Translation, of pairs of sentences in two languages. text_to_text.py has what it shares with summarization."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

from datasets import Dataset
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from tfm_zoo.data import built_in_data, row_files, splits
from tfm_zoo.data.options import option
from tfm_zoo.training.run import Run
from tfm_zoo.training.task import load_task_of_rows
from tfm_zoo.training.tasks.text_to_text import SIDES, TextPairs, TextToTextOptions, TextToTextTask, build_seq2seq

NESTED = "translation"  # a column of mappings from language to text, as many data sets on the Hub have it


@dataclass(frozen=True)
class TranslationOptions(TextToTextOptions):
    """The options of a translator, named as in transformers' `run_translation.py`; defaults are Vaswani et al.'s."""

    built_in: ClassVar = staticmethod(built_in_data.reversed_sequences)
    built_in_note: ClassVar = "The data set is generated: letters, to be put in the reverse order."
    writes: ClassVar = "translation"

    # The data
    train_file: str | None = option(
        None, f"A table with a column for each language, or {NESTED!r} of both; or 'a/train': a/train.en, a/train.de."
    )
    source_lang: str | None = option(None, "Language to translate from: a column, or a tokenizer's code (en_XX).")
    target_lang: str | None = option(None, "The language to translate into, likewise.")

    # The run
    per_device_train_batch_tokens: int = option(
        4096, "Tokens a pass and process, with padding; 0: batches by examples.", "max_tokens", at_least=0
    )
    label_smoothing_factor: float = option(0.1, "Label smoothing: what labels give to others.", at_least=0, below=1)
    adam_beta2: float = option(0.98, "AdamW's decay of the mean of squared gradients.", at_least=0, below=1)
    adam_epsilon: float = option(1e-9, "AdamW's epsilon.", above=0)
    weight_decay: float = option(0.0, "AdamW's weight decay; 0: it is Adam.", at_least=0)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.source_lang is not None and self.source_lang == self.target_lang:
            raise ValueError(f"source_lang and target_lang are both {self.source_lang!r}")


def load_parallel_texts(args: TranslationOptions) -> TextPairs:
    """Load and check the pairs; the seed decides which rows a missing split and `max_*_samples` take."""
    languages = args.source_lang, args.target_lang
    if args.is_generated:
        languages = tuple(given or usual for given, usual in zip(languages, SIDES, strict=True))
    raw, notes = splits.load_splits(args, load_pairs)
    rows = {name: _pairs(languages, splits.FoundSplit(args, name, split)) for name, split in raw.items()}
    return TextPairs(splits.cut_splits(args, rows, notes, args.seed), notes, languages)


def load_pairs(args: TranslationOptions, role: str, file: str) -> Dataset:
    """The rows of a split's file, or of two text files, one for each language."""
    sides = {language: Path(f"{file}.{language}") for language in (args.source_lang, args.target_lang)}
    if Path(file).is_file() or not all(path.is_file() for path in sides.values()):
        return splits.load_file(args, role, file)
    # Not `splitlines`, which also cuts sentences at characters such as U+2028.
    lines = {lang: row_files.read_text(path).removesuffix("\n").split("\n") for lang, path in sides.items()}
    if len(set(map(len, lines.values()))) > 1:
        counts = " and ".join(str(len(side)) for side in lines.values())
        raise ValueError(f"{role}_file {file!r}: its sides have {counts} lines")
    return Dataset.from_dict(lines)


def _pairs(languages: Sequence[str | None], table: splits.FoundSplit) -> Dataset:
    """The texts of a split, in the columns "source" and "target"."""
    split = table.rows.flatten()  # a column of mappings from language to text becomes a column for each language
    split = split.rename_columns({column: column.removeprefix(f"{NESTED}.") for column in split.column_names})
    table, texts = replace(table, rows=split), {}
    for side, option_name, language in zip(SIDES, ("source_lang", "target_lang"), languages, strict=True):
        if language is None:
            raise ValueError(f"give source_lang and target_lang: the columns are {split.column_names}")
        short = language.split("_")[0]
        asked = short if short in split.column_names and language not in split.column_names else language
        (column,) = row_files.find_columns(split, asked, [], option_name)
        texts[side] = table.texts(column, "column")
        empty = next((row for row, text in enumerate(texts[side]) if not text.strip()), None)
        if empty is not None:
            raise table.error(empty, "the text is empty", column)
    return Dataset.from_dict(texts)


def set_languages(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, source: str, target: str) -> None:
    """If a checkpoint knows many languages, set its tokenizer to these two, and its model to write the second."""
    if not hasattr(tokenizer, "tgt_lang"):
        return
    for name, language in (("source_lang", source), ("target_lang", target)):
        if language not in tokenizer.all_special_tokens:
            codes = [token for token in tokenizer.all_special_tokens if token.isidentifier() and "_" in token]
            raise ValueError(f"{name} {language!r}: {tokenizer.name_or_path!r} knows {', '.join(codes)}")
    tokenizer.src_lang, tokenizer.tgt_lang = source, target
    code = tokenizer.convert_tokens_to_ids(target)
    ids = tokenizer(text_target="")["input_ids"]
    if ids[0] == code and ids[-1] != code:  # as in mBART-50: the model writes the code first
        model.generation_config.forced_bos_token_id = code
    elif ids[-1] == code:  # as in mBART: the model starts from the code
        model.config.decoder_start_token_id = model.generation_config.decoder_start_token_id = code


@dataclass(kw_only=True)
class TranslationTask(TextToTextTask):
    """An encoder-decoder learns to translate."""

    pipeline_tag = "translation"
    metric_titles = {"bleu": "BLEU", "chrf": "chrF", "exact_match": "exact match", **TextToTextTask.metric_titles}

    def __post_init__(self) -> None:
        super().__post_init__()
        codes = [name.split("_")[0] for name in self.data.languages]  # "en" of "en_XX"; a column may have another name
        self.languages = codes if all(re.fullmatch("[a-z]{2,3}", code) for code in codes) else None


def build_translator(args: TranslationOptions, pairs: TextPairs) -> tuple[Any, ...]:
    """As [`build_seq2seq`], set to the languages of the pairs."""
    model, *tokenizers = build_seq2seq(args, pairs)
    if not args.is_new:
        set_languages(model, tokenizers[0], *pairs.languages)
    return model, *tokenizers


def load_task(run: Run) -> TranslationTask:
    return load_task_of_rows(TranslationTask, run, load_parallel_texts, build_translator)
