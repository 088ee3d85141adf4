"""`python -m tests.benchmarks.streaming [--gigabytes 2]`: the memory that pre-training on a stream needs.

A corpus is generated in a temporary folder, sharded, and streamed once through the whole pipeline of
`recipes/pretrain_bert.py`: read, split, tokenized, paired, masked, batched; the first batches are trained on, and one
of so many of the others. What counts is the peak of this process above what it held after a first step: weights,
gradients, Adam's state, libraries.
"""

import gc
import json
import random
import tempfile
from pathlib import Path
from time import perf_counter
from typing import Annotated

import torch
import typer
from torch.utils.data import DataLoader

from tfm_zoo.training.pretraining.data import DocumentArguments, load_documents
from tfm_zoo.training.pretraining.examples import Masking, Padding, PretrainingExamples
from tfm_zoo.training.pretraining.model import PAIRS, EncoderArguments, new_encoder
from tfm_zoo.training.pretraining.task import losses
from tfm_zoo.training.runs import keep_few_kernels
from tfm_zoo.training.streams import Stream, StreamBatches

from .peak_memory import resident

SHARDS = 8
SIZES = "hidden_size=256,num_hidden_layers=4,num_attention_heads=4,intermediate_size=1024"


def write_corpus(folder: Path, size: int, seed: int = 0) -> None:
    """Files of JSON lines, `size` bytes in all: documents of 3 to 60 sentences of random words."""
    rng = random.Random(seed)
    words = ["".join(rng.choices("etaoinshrdlucm", k=rng.randint(2, 9))) for _ in range(20_000)]
    weights = [1 / rank for rank in range(1, len(words) + 1)]
    sentences = [" ".join(rng.choices(words, weights, k=rng.randint(4, 24))).capitalize() + "." for _ in range(50_000)]
    for shard in range(SHARDS):
        with open(folder / f"{shard}.jsonl", "w") as file:
            while file.tell() < size // SHARDS:
                file.write(json.dumps({"text": " ".join(rng.choices(sentences, k=rng.randint(3, 60)))}) + "\n")


def main(
    gigabytes: Annotated[float, typer.Option(help="Size of the corpus.")] = 2.0,
    steps: Annotated[int, typer.Option(help="Train on so many batches at the begin,")] = 300,
    every: Annotated[int, typer.Option(help="and on one of so many thereafter.")] = 1000,
    batch_size: Annotated[int, typer.Option(help="Examples of a batch.")] = 32,
) -> None:
    """Streams a generated corpus and prints the peak of memory above the model."""
    keep_few_kernels()
    with tempfile.TemporaryDirectory() as name:
        write_corpus(Path(name), int(gigabytes * 1e9))
        documents = load_documents(DocumentArguments(train_file=f"{name}/*.jsonl", streaming=True), seed=0)
        texts = documents.train.first_texts(5_000_000)
        model, tokenizer = new_encoder(EncoderArguments(config_overrides=SIZES), PAIRS, texts, 128)
        optimizer = torch.optim.AdamW(model.train().parameters())

        def step(batch: dict[str, torch.Tensor]) -> None:
            losses(model, batch, is_zoo=True).sum().backward()
            optimizer.step()
            optimizer.zero_grad()

        ids = torch.full((2, 16), tokenizer.mask_token_id)
        step({"input_ids": ids, "labels": ids, "next_sentence_label": torch.zeros(2, dtype=torch.long)})
        gc.collect()
        Path("/proc/self/clear_refs").write_text("5")  # the peak starts anew
        before = resident("VmRSS")

        stream = Stream(
            documents.train, PretrainingExamples(tokenizer, documents.split, Masking(tokenizer), 128), seed=0
        )
        batches = StreamBatches(stream, batch_size, collate=Padding(tokenizer), max_steps=10**9)
        loader = DataLoader(stream, sampler=batches, batch_size=None, collate_fn=tuple)
        start, tokens = perf_counter(), 0
        for count, (batch,) in enumerate(batches.steps(loader)):
            if batches.place.epoch:
                break
            blocks, tokens = batches.place.chunk + 1, tokens + int(batch["attention_mask"].sum())
            if count < steps or count % every == 0:
                step(batch)
            if count % 10_000 == 0:
                print(f"{count:,} batches, {tokens:,} tokens: {(resident('VmHWM') - before) / 1e9:.2f} GB", flush=True)
        seconds = perf_counter() - start
        print(
            f"{gigabytes:g} GB in {blocks:,} blocks, {count:,} batches of {batch_size},"
            f" {tokens:,} tokens, {seconds:.0f} s: at most {(resident('VmHWM') - before) / 1e9:.2f} GB above"
            f" {before / 1e9:.2f} GB, {model.num_parameters():,} parameters"
        )


if __name__ == "__main__":
    typer.run(main)
