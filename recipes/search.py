"""Search texts by meaning: those whose vectors, which `predict.py` wrote, are nearest to a question's.

python recipes/predict.py MODEL --data_files 'corpus/*.parquet' --keep_columns text --output_dir vectors
python recipes/search.py vectors "a heist that goes wrong" "two friends on a journey" --top 3
python recipes/search.py vectors vectors-of-may "a heist that goes wrong"

All vectors are held in memory, and each is compared. `results/search.md` shows the lines alone, and FAISS.
"""

import argparse
import os
import sys
from collections.abc import Callable
from difflib import get_close_matches
from os.path import exists, isfile, join
from pathlib import Path
from textwrap import shorten

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from trained import loading, open_config, parsed

from tfm_zoo import CorpusReader
from tfm_zoo.corpus.folder import ABOUT, ResultsFolder


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(allow_abbrev=False, description="Search texts by meaning.")
    parser.add_argument("output_dir", help="folder of vectors that predict.py wrote")
    parser.add_argument("questions", nargs="+", metavar="question", help="what to look for, or another such folder")
    parser.add_argument("--top", type=int, default=3, help="texts to print for each question (default: 3)")
    parser.add_argument("--model", help="where the model is now, if it was moved")
    parser.add_argument("--prompt_name", help="one of the prompts that the model names, for questions")
    parser.add_argument("--trust_remote_code", action="store_true", help="run a Hub model's code; a folder's is run")
    args = parsed(parser, argv)
    try:
        search(args, parser.error)
        sys.stdout.flush()
    except BrokenPipeError:  # as of `| head`, which has read enough; Python writes the rest when it ends
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (OSError, ValueError) as reason:
        parser.error(str(reason))


def search(args: argparse.Namespace, error: Callable[[str], None]) -> None:
    """Print for each question the nearest texts: the cosine, the row, and the columns that were kept beside it."""
    names = [args.output_dir, *(name for name in args.questions if isfile(join(name, ABOUT)))]
    args.questions = [text for text in args.questions if text not in names]
    for text in args.questions:
        check_question(text, error)
    if not args.questions:
        error(f"give a question, too: {' and '.join(names)} are folders of vectors")
    folders = {name: about_of(name, error) for name in names}
    questions = normalized(embedded(args, folders, error))
    tables = {name: pq.read_table(name).combine_chunks() for name in folders}
    vectors = {name: normalized(np.stack(table["embedding"].to_numpy())) for name, table in tables.items()}
    for question, vector in zip(args.questions, questions, strict=True):
        print(question)
        cosines = {name: vectors[name] @ vector for name in folders}
        found = [(near[row], name, row) for name, near in cosines.items() for row in np.argsort(-near)[: args.top]]
        for cosine, name, row in sorted(found, reverse=True)[: args.top]:
            line = shown(tables[name], row, folders[name]["keep_columns"])
            print(f"{cosine:8.3f}  {line if len(folders) == 1 else f'{name}  {line}'}")


def check_question(text: str, error: Callable[[str], None]) -> None:
    """Refuses the name of something else than a folder of vectors; warns of what may be a mistyped one."""
    if exists(text):
        error(f"{text}: not a folder that predict.py wrote (--output_dir)")
    if " " not in text:
        folders = [str(each) for each in Path(text).parent.glob("*") if (each / ABOUT).is_file()]
        if near := get_close_matches(text, folders, n=1, cutoff=0.8):
            print(f"({text} is searched for as a question; there is a folder {near[0]})", file=sys.stderr)


def about_of(name: str, error: Callable[[str], None]) -> dict:
    """What `predict.py` says of a folder that it wrote."""
    if not isfile(join(name, ABOUT)):
        error(f"{name}: not a folder that predict.py wrote (--output_dir)")
    about = ResultsFolder(name).about()
    if about["results"] != "embeddings":
        error(f"{name} holds {about['results']}, and a search needs vectors")
    if not about["keep_columns"]:
        print(f"({name}: numbers of rows alone; predict.py keeps texts with --keep_columns)", file=sys.stderr)
    return about


def embedded(args: argparse.Namespace, folders: dict[str, dict], error: Callable[[str], None]) -> np.ndarray:
    """The vectors of the questions, `(questions, size)`, made as those of the texts in all folders were."""
    about = folders[args.output_dir]
    advice = "" if args.model else "; if it was moved, give --model"
    args.model, args.revision = args.model or ResultsFolder(args.output_dir).source, None
    open_config(args, None, "gives no vectors", lambda reason: error(reason + advice))
    options = {name: about[name] for name in ("pooling", "max_length", "dtype")} | loading(args)
    reader = CorpusReader.from_pretrained(args.model, prompt_name=args.prompt_name, **options)
    for name, other in folders.items():
        ResultsFolder(name).check_model(reader)
        for field in ("pooling", "size", "prompt"):
            if other[field] != about[field]:
                error(f"{name} has {field} {other[field]!r}, and {args.output_dir} {about[field]!r}: search each alone")
    return np.stack([result["embedding"] for result in reader(args.questions)])


def shown(table: pa.Table, row: int, columns: list[str]) -> str:
    """A row's number, and what was kept of it."""
    kept = {name: shorten(str(table[name][row]), 100, placeholder=" ...") for name in columns}
    values = kept.values() if len(kept) < 2 else (f"{name}={value}" for name, value in kept.items())
    return f"{table['id'][row]}  {'  '.join(values)}"


def normalized(vectors: np.ndarray) -> np.ndarray:
    """The vectors, `(rows, size)`, at length 1."""
    return vectors.astype(np.float32) / np.linalg.norm(vectors, axis=1, keepdims=True)


if __name__ == "__main__":
    main()
