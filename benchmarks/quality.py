"""`python -m benchmarks quality FOLDER ...`: what trained models lose in each type of `pack_weights`.

A folder is what a recipe has written: a language model of `tiny_shakespeare.yaml` (perplexity of the last tenth of the
text), a classifier of `imdb.yaml` (accuracy on reviews of the test split) or a translator of `multi30k.yaml` (BLEU of
the test split, four beams).
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated

import torch
import typer
from datasets import load_dataset
from torch.nn import functional as F
from transformers import (
    AutoModelForCausalLM,
    AutoModelForSeq2SeqLM,
    AutoModelForSequenceClassification,
    AutoTokenizer,
    PreTrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

import tfm_zoo
from tfm_zoo.training.metrics import load_metrics

from .batches import SHARED
from .timing import table

DTYPES = ("float32", "bfloat16", "int8", "int4")
BATCH_SIZE, BLOCK = 32, 128


def perplexity(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, count: int, _) -> float:
    """Of the first `count` blocks of the last tenth of Tiny Shakespeare."""
    text = (SHARED / "datasets/tiny_shakespeare/input.txt").read_text("utf-8")
    ids = torch.tensor(tokenizer(text[-len(text) // 10 :], verbose=False)["input_ids"])
    blocks = ids[: len(ids) // BLOCK * BLOCK].view(-1, BLOCK)[:count]
    losses = []
    for batch in blocks.split(BATCH_SIZE):
        logits = model(batch).logits[:, :-1].flatten(0, 1)
        losses.append(F.cross_entropy(logits, batch[:, 1:].flatten(), reduction="none"))
    return torch.cat(losses).mean().exp().item()


def accuracy(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, count: int, length: int) -> float:
    """Percent of `count` reviews, cut at `length` tokens, that are classified rightly."""
    reviews = load_dataset(str(SHARED / "datasets/imdb"), split="test").shuffle(seed=42)[:count]
    right = 0
    for start in range(0, len(reviews["text"]), BATCH_SIZE):
        part = {name: column[start : start + BATCH_SIZE] for name, column in reviews.items()}
        batch = tokenizer(part["text"], padding=True, truncation=True, max_length=length, return_tensors="pt")
        right += (model(**batch).logits.argmax(dim=-1) == torch.tensor(part["label"])).sum().item()
    return 100 * right / len(reviews["text"])


def bleu(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, count: int, _) -> float:
    """Of the first `count` pairs."""
    pairs = load_dataset(str(SHARED / "datasets/multi30k"), split="test")[:count]
    translations = []
    for start in range(0, len(pairs["en"]), BATCH_SIZE):
        batch = tokenizer(pairs["en"][start : start + BATCH_SIZE], padding=True, return_tensors="pt")
        ids = model.generate(**batch, num_beams=4, max_length=64)
        translations += tokenizer.batch_decode(ids, skip_special_tokens=True)
    return load_metrics(["sacrebleu"])(translations, pairs["de"]).figures["bleu"]


#: the end of a class's name -> how its models are loaded, what is measured, of how much, and how it is called
MEASURES: dict[str, tuple[type, Callable, int, str]] = {
    "ForCausalLM": (AutoModelForCausalLM, perplexity, 1000, "perplexity"),
    "ForSequenceClassification": (AutoModelForSequenceClassification, accuracy, 2000, "accuracy, %"),
    "ForConditionalGeneration": (AutoModelForSeq2SeqLM, bleu, 1000, "BLEU"),
}


def figures(folder: Path, measure: Callable, auto_class: type, count: int, max_length: int) -> Iterator[list[str]]:
    tokenizer, saved = AutoTokenizer.from_pretrained(folder, trust_remote_code=True), None
    for dtype in (None, *DTYPES):
        model = auto_class.from_pretrained(folder, trust_remote_code=True).eval()
        if dtype is not None:
            tfm_zoo.pack_weights(model, dtype)
        figure = measure(model, tokenizer, count, max_length)
        saved = saved or figure
        yield [dtype or "as saved", f"{figure:.2f}", f"{100 * (figure / saved - 1):+.2f} %"]


@torch.inference_mode()
def main(
    folders: list[Path],
    count: Annotated[int | None, typer.Option(help="Blocks, reviews or pairs; by default all, or 2,000.")] = None,
    max_length: Annotated[int, typer.Option(help="Tokens of a review, as in the training.")] = 256,
) -> None:
    """Prints a figure for the model as it was saved, and one for each type."""
    for folder in folders:
        architecture = PreTrainedConfig.get_config_dict(folder)[0]["architectures"][0]
        auto_class, measure, usual, title = MEASURES[architecture[architecture.index("For") :]]
        print(folder)
        table(["weights", title, "change"], figures(folder, measure, auto_class, count or usual, max_length))
