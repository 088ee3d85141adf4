"""Search texts by meaning: those whose vectors, which `predict.py` wrote, are nearest to a question's.

python recipes/predict.py MODEL --data_files 'corpus/*.parquet' --keep_columns text --output_dir vectors
python recipes/search.py vectors "a heist that goes wrong" "two friends on a journey" --top 3

All vectors are held in memory, and each is compared. `results/search.md` shows the lines alone, and FAISS.
"""

import argparse
import json
import sys
from collections.abc import Callable
from pathlib import Path
from textwrap import shorten

import numpy as np
import pyarrow.parquet as pq
from trained import loading, open_config


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(allow_abbrev=False, description="Search texts by meaning.")
    parser.add_argument("output_dir", type=Path, help="folder of vectors that predict.py wrote")
    parser.add_argument("questions", nargs="+", metavar="question", help="what to look for")
    parser.add_argument("--top", type=int, default=3, help="texts to print for each question (default: 3)")
    parser.add_argument("--prompt_name", help="one of the prompts that the model names, for questions")
    parser.add_argument("--trust_remote_code", action="store_true", help="run a Hub model's code; a folder's is run")
    args = parser.parse_args(argv)
    try:
        search(args, parser.error)
    except (OSError, ValueError) as reason:
        parser.error(str(reason))


def search(args: argparse.Namespace, error: Callable[[str], None]) -> None:
    """Print for each question the nearest texts: the cosine, the row, and the columns that were kept beside it."""
    if not (args.output_dir / "_corpus.json").is_file():
        error(f"{args.output_dir}: not a folder that predict.py wrote (--output_dir)")
    about = json.loads((args.output_dir / "_corpus.json").read_text("utf-8"))
    if about["results"] != "embeddings":
        error(f"{args.output_dir} holds {about['results']}, and a search needs vectors")
    args.model, args.revision = about["source"], None
    open_config(args, None, "gives no vectors", error)
    questions = normalized(embedded(args, about))
    table = pq.read_table(args.output_dir).combine_chunks()
    if not about["keep_columns"]:
        print("(numbers of rows alone: predict.py keeps texts beside vectors with --keep_columns)", file=sys.stderr)
    vectors = normalized(np.stack(table["embedding"].to_numpy()))
    for question, vector in zip(args.questions, questions, strict=True):
        print(question)
        cosines = vectors @ vector
        for row in np.argsort(-cosines)[: args.top].tolist():
            kept = {name: shorten(str(table[name][row]), 100, placeholder=" ...") for name in about["keep_columns"]}
            shown = kept.values() if len(kept) < 2 else (f"{name}={value}" for name, value in kept.items())
            print(f"{cosines[row]:8.3f}  {table['id'][row]}  {'  '.join(shown)}")


def embedded(args: argparse.Namespace, about: dict) -> np.ndarray:
    """The vectors of the questions, `(questions, size)`, made as those of the texts were."""
    import tfm_zoo

    options = {name: about[name] for name in ("pooling", "max_length", "dtype")} | loading(args)
    reader = tfm_zoo.CorpusReader.from_pretrained(args.model, prompt_name=args.prompt_name, **options)
    if reader.digest != about["model"]:
        raise ValueError(f"{args.output_dir} holds vectors of another model than {args.model} is now")
    return np.stack([result["embedding"] for result in reader(args.questions)])


def normalized(vectors: np.ndarray) -> np.ndarray:
    """The vectors, `(rows, size)`, at length 1."""
    return vectors.astype(np.float32) / np.linalg.norm(vectors, axis=1, keepdims=True)


if __name__ == "__main__":
    main()
