"""`python -m benchmarks corpus MODEL --texts FILE`: rows a second of `CorpusReader`, beside what people use.

That is `encode` of sentence-transformers, which sorts the texts by length, at its best batch size; and `datasets.map`
around the official class. All read the same texts, in turn, in one process. Cosines are with the vectors of
sentence-transformers in the first type. On a CPU without instructions for bfloat16, compare `--dtypes float32` alone.
"""

import operator
import statistics
from collections.abc import Callable, Iterator
from typing import Annotated

import numpy as np
import torch
import typer
from datasets import Dataset, disable_progress_bars
from sentence_transformers import SentenceTransformer
from transformers import AutoModel, AutoTokenizer

from tfm_zoo import CorpusReader
from tfm_zoo.corpus.results import POOLINGS
from tfm_zoo.corpus.source import Corpus
from tfm_zoo.training.run import keep_few_kernels

from .timing import in_turn, seconds, table

Encode = Callable[[list[str]], np.ndarray]
BATCH_SIZES, TYPES = (16, 32, 64, 128), ["float32", "bfloat16"]


def zoo(model: str, **options) -> Encode:
    reader = CorpusReader.from_pretrained(model, **options)
    return lambda texts: np.stack([result["embedding"] for result in reader(texts)])


def sentence_transformers(model: str, dtype: torch.dtype, texts: list[str]) -> Encode:
    """`encode` with the batch size that is best for these texts."""
    encoder = SentenceTransformer(model, device=device(), model_kwargs={"dtype": dtype})
    times = {size: seconds(lambda n=size: encoder.encode(texts, batch_size=n)) for size in BATCH_SIZES}
    best = min(times, key=times.get)
    return lambda texts: encoder.encode(texts, batch_size=best)


def mapped(model: str, dtype: torch.dtype) -> Encode:
    """`datasets.map` around the official class, in batches of 32 as the texts come."""
    tokenizer, encoder = AutoTokenizer.from_pretrained(model), AutoModel.from_pretrained(model, dtype=dtype)
    encoder.to(device())
    longest = CorpusReader.from_pretrained(model).max_length

    @torch.inference_mode()
    def embed(batch: dict[str, list]) -> dict[str, np.ndarray]:
        options = {"padding": True, "truncation": True, "max_length": longest, "return_tensors": "pt"}
        inputs = tokenizer(batch["text"], **options).to(encoder.device)
        states, real = encoder(**inputs).last_hidden_state.float(), inputs["attention_mask"].unsqueeze(2)
        return {"embedding": torch.nn.functional.normalize(POOLINGS["mean"](states, real)).cpu().numpy()}

    def encode(texts: list[str]) -> np.ndarray:
        rows = Dataset.from_dict({"text": texts})
        return np.asarray(rows.map(embed, batched=True, batch_size=32).with_format("numpy")["embedding"][:])

    return encode


def device() -> str:
    return "cuda" if torch.cuda.is_available() else "cpu"


def timed(model: str, texts: list[str], dtypes: list[str], rounds: int) -> Iterator[list[str]]:
    few, ways = texts[: max(128, len(texts) // 8)], {}
    for dtype in dtypes:
        ways[f"sentence-transformers, {dtype}"] = sentence_transformers(model, getattr(torch, dtype), few)
        ways[f"datasets.map, official, {dtype}"] = mapped(model, getattr(torch, dtype))
        ways[f"zoo, {dtype}"] = zoo(model, dtype=dtype)
        if device() == "cpu":
            ways[f"zoo, packed {dtype}"] = zoo(model, pack=dtype)
    vectors: dict[str, np.ndarray] = {}
    runs = {name: lambda name=name, way=way: vectors.update({name: way(texts)}) for name, way in ways.items()}
    times = in_turn(runs, rounds)
    for name, took in times.items():
        rival = f"sentence-transformers, {name.split()[-1]}"
        ratio = statistics.median(map(operator.truediv, times[rival], took))
        cosine = (vectors[f"sentence-transformers, {dtypes[0]}"] * vectors[name]).sum(1).min()
        yield [name, f"{len(texts) / statistics.median(took):.1f}", f"{ratio:.2f} of {rival}", f"{cosine:.7f}"]


def main(
    model: Annotated[str, typer.Argument(help="folder or Hub id of a model of sentence-transformers that takes means")],
    texts: Annotated[list[str], typer.Option(help="a file of texts; may be given several times")],
    rows: Annotated[int, typer.Option(help="texts of each file, evenly spaced")] = 2048,
    rounds: Annotated[int, typer.Option(help="how often each reads them")] = 3,
    dtypes: Annotated[list[str], typer.Option(help="a type of the models; may be given several times")] = TYPES,
) -> None:
    """Times every way to embed texts, in turn, and prints rows a second."""
    keep_few_kernels()
    disable_progress_bars()
    for file in texts:
        corpus = [text for each in Corpus.open(data_files=[file]).tables(0) for text in each["text"].to_pylist()]
        corpus = corpus[:: max(1, len(corpus) // rows)][:rows]
        print(f"{file}: {len(corpus):,} texts, {device()}, {torch.get_num_threads()} threads")
        table(["way", "rows a second", "ratio", "least cosine"], timed(model, corpus, dtypes, rounds))
