"""Read a corpus with Ray: `predict.py` on many machines, which see the same folders.

python recipes/ray_predict.py MODEL --data_files 'corpus/*.parquet' --output_dir vectors --workers 16

It writes the folder that `predict.py` writes, part by part, and either goes on with what the other has begun. Ray
starts the workers, and starts one that has died again. (`pip install -e '.[ray]'`)
"""

import argparse

import torch
from accelerate import PartialState
from corpus_options import add_corpus_arguments, corpus_run, is_corpus
from trained import add_model_arguments, open_config


class Encoder:
    """A worker: loads the model once, and computes parts."""

    def __init__(self, args: argparse.Namespace):
        self.run = corpus_run(args)

    def __call__(self, batch: dict) -> dict:
        for part in batch["part"]:
            self.run.write(int(part))
        return batch


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(allow_abbrev=False, description="Read a corpus with Ray.")
    add_model_arguments(parser)
    parser.add_argument("--text_column_name", nargs="+", help="column of the texts")
    parser.add_argument("--workers", type=int, default=2, help="workers, each with a model, and a GPU if there are any")
    add_corpus_arguments(parser)
    args = parser.parse_args(argv, argparse.Namespace(texts=[], file=None, question=None, metrics=None))
    if not is_corpus(args, parser):
        parser.error("give --dataset_name or --data_files")
    open_config(args, None, "has no corpus to read", parser.error)
    run = corpus_run(args)
    import ray.data

    with run.started(PartialState(cpu=not torch.cuda.is_available())) as left:
        resources = {"num_gpus": 1} if torch.cuda.is_available() else {"num_cpus": 1}
        workers = {"fn_constructor_args": [args], "concurrency": args.workers, "batch_size": 1, **resources}
        if left:
            parts = ray.data.from_items([{"part": part} for part in left], override_num_blocks=len(left))
            parts.map_batches(Encoder, **workers).materialize()
    print(f"{len(left):,} parts were written to {args.output_dir}")


if __name__ == "__main__":
    main()
