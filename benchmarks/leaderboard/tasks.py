"""What is computed: models and batches, which every process makes for itself, and how near an output is to another."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from transformers import AutoTokenizer, BertModel, PreTrainedModel

from .. import batches
from ..batches import MINILM
from ..pairs import Settings, pair
from ..speed import CASES

PROMPT, NEW_TOKENS = 64, 32
SENTENCES, REVIEWS = 32, 16  # of a batch
CALIBRATION = 4  # batches that eight bits are calibrated on
ROUNDS = 2  # batches of prompts, and of sentences
#: the kinds of tasks: a function of a batch gives vectors, logits of classes, tokens
EMBED, CLASSIFY, DECODE, TRANSLATE = "embeddings", "classification", "decoding", "translation"


#: what a contender makes of a model: a function from a batch to outputs
Runner = Callable[[dict], np.ndarray]


class Given(NamedTuple):
    """What a contender loads: an official model, the kind of its task, its batches, a folder for converted files."""

    model: PreTrainedModel
    kind: str
    batches: list[dict]
    folder: Path


@dataclass(frozen=True)
class Task:
    """A model, and batches by what is measured.

    Args:
        kind: `EMBED`, ...
        make: gives the official model in float32.
        cases: gives the batches of each case. What a batch holds besides tensors are options.
    """

    kind: str
    make: Callable[[], PreTrainedModel]
    cases: Callable[[], dict[str, list[dict]]]


def minilm() -> PreTrainedModel:
    return BertModel.from_pretrained(MINILM, dtype=torch.float32).eval()


def official(name: str, head: str, **fields: int) -> PreTrainedModel:
    return pair(name, head, Settings(), **fields)[0]


def text_batches(name: str, count: int, size: int, longest: int) -> dict[str, list[dict]]:
    """Batches of texts in the order given, and sorted by their numbers of tokens, as sentence-transformers does."""
    if not MINILM.exists():
        raise SystemExit(f"This task reads {MINILM}, which is not here. --only GPT-2, LLaMA or Marian runs without.")
    found = batches.texts(name, count * size)
    ids = AutoTokenizer.from_pretrained(MINILM)(found, truncation=True, max_length=longest)["input_ids"]
    given = [*map(torch.tensor, ids)]
    orders = {"as given": given, "sorted": sorted(given, key=len, reverse=True)}
    return {
        f"{name}, {order}": [batches.padded(rows[start : start + size]) for start in range(0, len(rows), size)]
        for order, rows in orders.items()
    }


def minilm_cases() -> dict[str, list[dict]]:
    return text_batches("rotten_tomatoes", 8, SENTENCES, 256) | text_batches("imdb", 3, SENTENCES, 256)


def prompts() -> dict[str, list[dict]]:
    sizes = {"1 sequence": 1, "8 sequences": 8}
    return {
        name: [batch | {"steps": NEW_TOKENS} for batch in batches.random_ids(ROUNDS, rows, PROMPT)]
        for name, rows in sizes.items()
    }


def sentences() -> dict[str, list[dict]]:
    found = batches.translations(ROUNDS, REVIEWS)
    for batch in found:
        batch["steps"] = batch.pop("labels").shape[1]
    return {f"beam {beams}": [batch | {"beams": beams} for batch in found] for beams in (1, 4)}


TASKS = {
    "MiniLM": Task(EMBED, minilm, minilm_cases),
    "BERT-base": Task(
        EMBED, partial(official, "bert-base", "AutoModel"), partial(text_batches, "imdb", 2, REVIEWS, 128)
    ),
    "BERT-base classifier": Task(
        CLASSIFY,
        partial(official, "bert-base", "AutoModelForSequenceClassification", num_labels=4),
        partial(text_batches, "rotten_tomatoes", 3, SENTENCES, 128),
    ),
    "GPT-2": Task(DECODE, partial(official, "gpt2", "AutoModelForCausalLM"), prompts),
    "LLaMA of SmolLM-135M's shape": Task(DECODE, partial(official, "smollm-135m", "AutoModelForCausalLM"), prompts),
    "Marian of opus-mt's shape": Task(
        TRANSLATE, lambda: CASES["Marian, opus-mt, beam search"].pair(Settings())[0], sentences
    ),
}


def pooled(states: torch.Tensor, mask: torch.Tensor) -> np.ndarray:
    """The mean over real tokens, of length 1: what sentence-transformers makes of MiniLM's states."""
    states, mask = states.float(), mask.unsqueeze(-1)
    return torch.nn.functional.normalize((states * mask).sum(dim=1) / mask.sum(dim=1), dim=-1).numpy()


def fidelity(kind: str, wanted: list[np.ndarray], made: list[np.ndarray]) -> dict[str, float]:
    """How near the outputs of all batches are to the official ones, in float32."""
    if kind == TRANSLATE:
        import sacrebleu

        rows = [[" ".join(map(str, row)) for batch in side for row in batch] for side in (made, wanted)]
        same = np.mean([one == other for one, other in zip(*rows, strict=True)])
        bleu = sacrebleu.corpus_bleu(rows[0], [rows[1]], tokenize="none", force=True).score
        return {"BLEU to official": round(bleu, 1), "same sentences": round(float(same), 3)}
    first, second = (np.concatenate([batch.reshape(-1, batch.shape[-1]) for batch in side]) for side in (wanted, made))
    if kind == EMBED:
        figures = {"cosine": cosine(first, second), "least cosine": cosine(first, second, np.min)}
        return figures | {"rank correlation": rank_correlation(first, second)}
    first, second = (logits - logits.mean(axis=-1, keepdims=True) for logits in (first, second))
    same = (first.argmax(axis=-1) == second.argmax(axis=-1)).mean()
    return {"cosine": cosine(first, second), "same choice": round(float(same), 3)}


def cosine(first: np.ndarray, second: np.ndarray, of_rows: Callable = np.mean) -> float:
    """The mean over rows, or what else a function makes of them."""
    lengths = np.linalg.norm(first, axis=-1) * np.linalg.norm(second, axis=-1)
    return round(float(of_rows((first * second).sum(axis=-1) / lengths)), 5)


def calibration(batches: list[dict]) -> list[dict]:
    """What eight bits are calibrated on, for every contender that needs texts: batches from all cases."""
    return batches[:: -(-len(batches) // CALIBRATION)]


def rank_correlation(first: np.ndarray, second: np.ndarray) -> float:
    """Spearman's, of the similarities of all pairs of texts."""
    pairs = np.triu_indices(len(first), k=1)
    ranks = [(vectors @ vectors.T)[pairs].argsort().argsort() for vectors in (first, second)]
    return round(float(np.corrcoef(*ranks)[0, 1]), 5)
