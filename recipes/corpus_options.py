"""The options with which `predict.py` and `ray_predict.py` read a corpus. `tfm_zoo` is imported when one is read."""

import argparse
from typing import TYPE_CHECKING

from trained import loading

if TYPE_CHECKING:
    from tfm_zoo.corpus.run import CorpusRun

#: options of the corpus, of the model that reads it, and of the folder, with the arguments of argparse
CORPUS = {
    "dataset_name": {"help": "corpus: a data set, by its Hub id or folder"},
    "dataset_config_name": {"help": "configuration of the data set"},
    "split": {"nargs": "+", "default": (), "help": "splits of the data set, one after the other"},
    "data_files": {"nargs": "+", "default": (), "help": "corpus: files or patterns (parquet, csv, tsv, jsonl, txt)"},
    "keep_columns": {"nargs": "+", "default": (), "help": "columns to write beside the results"},
}
READER = {
    "pooling": {"help": "vectors of texts: mean, cls, last, max, ... (joined by +); default: what the folder says"},
    "prompt_name": {"help": "one of the prompts that the folder names"},
    "max_length": {
        "type": int,
        "help": "tokens to which texts are cut, also without a corpus; default: what the folder says, or all that fit",
    },
    "dtype": {"default": "float32", "help": "the model computes in float32 (default), bfloat16 or float16"},
    "embedding_dtype": {"default": "float32", "help": "vectors are written as float32 (default) or float16"},
    "pack": {"nargs": "?", "const": True, "help": "pack weights for this CPU: float32, bfloat16, int8, int4"},
    "compile": {"action": "store_true", "help": "compile the model with torch.compile"},
    "tokens_per_batch": {"type": int, "default": 4096, "help": "tokens of a batch, padding included"},
    "window": {"type": int, "default": 8192, "help": "texts that are sorted by length together"},
}
FOLDER = {
    "output_dir": {"help": "folder for the results of a corpus, in Parquet; the same command goes on with it"},
    "rows_per_part": {"type": int, "default": 8192, "help": "rows of a part of the results"},
    "keep_texts": {"action": "store_true", "help": "keep the texts of the 64 rows by which vectors are verified later"},
}


def add_corpus_arguments(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("a corpus")
    for name, options in (CORPUS | READER | FOLDER).items():
        group.add_argument(f"--{name}", **options)


def is_corpus(args: argparse.Namespace, parser: argparse.ArgumentParser) -> bool:
    """Whether the arguments name a corpus; the program ends where they do not go together."""
    named, error = bool(args.dataset_name or args.data_files), parser.error
    if named != bool(args.output_dir):
        error("a corpus is --dataset_name or --data_files, with an --output_dir")
    given = [name for name in CORPUS | READER | FOLDER if getattr(args, name) != parser.get_default(name)]
    if not named and (others := [f"--{name}" for name in given if name != "max_length"]):
        error(f"{', '.join(others)} would change nothing without a corpus: give --data_files or --dataset_name, too")
    if named and (args.texts or args.file or args.question or args.metrics):
        error("a corpus is read alone: without texts, --file, --question or --metrics")
    if named and len(args.text_column_name or ()) > 1:
        error("text_column_name: the texts of a corpus are in one column")
    return named


def corpus_run(args: argparse.Namespace) -> "CorpusRun":
    """The run that the arguments ask for. Raises a `ValueError` or an `OSError` that names what cannot be."""
    from tfm_zoo.corpus import CorpusReader
    from tfm_zoo.corpus.run import CorpusRun
    from tfm_zoo.corpus.source import Corpus
    from tfm_zoo.training.run import keep_few_kernels

    keep_few_kernels()
    columns = {"text_column": (args.text_column_name or [None])[0], "keep": args.keep_columns}
    source = {name: getattr(args, name) for name in CORPUS if name != "keep_columns"}
    corpus = Corpus.open(**source, **columns)
    reader = CorpusReader.from_pretrained(args.model, **{name: getattr(args, name) for name in READER}, **loading(args))
    return CorpusRun(corpus, reader, args.output_dir, args.rows_per_part, args.keep_texts)
