"""Vectors and rerankers, trained on pairs with sentence-transformers: they learn, go on, and are saved with a card."""

import json
import re
import shutil
from argparse import Namespace

import pytest
import torch
from datasets import Dataset
from sentence_transformers import CrossEncoder, SentenceTransformer

from .conftest import ROOT, Recipe, imported, written

BOTH = pytest.mark.parametrize("kind", ["embeddings", "reranker"])
THINGS = ["film", "many", "people", "town", "near", "here", "fine", "poor"]
PAIRS = [{"ask": f"the {thing[::-1]}", "say": f"a {thing} .", "other": "nobody knows"} for thing in THINGS]
#: figures of the validation split, the best of them 1
FIGURE = {"embeddings": "validation_cosine_mrr@10", "reranker": "validation_mrr@10"}


@pytest.fixture
def recipe(tmp_path, checkpoint):
    """Gives the recipe of a kind, with an official checkpoint and pairs that it learns in some steps."""
    known = written(tmp_path, "csv", train=PAIRS, validation=PAIRS)
    known |= {"model_name_or_path": checkpoint, "text_column_name": ["ask", "say"], "output_dir": tmp_path / "run"}
    known |= {"max_steps": 2, "per_device_train_batch_size": 8, "learning_rate": 3e-3, "disable_tqdm": True}
    return lambda kind, **options: Recipe(f"finetune_{kind}", known | options)


@BOTH
def test_it_learns_and_the_card_says_what_it_learnt(kind, recipe, tmp_path):
    columns = ["ask", "say"] + ["other"] * (kind == "reranker")  # wrong ones are random otherwise
    results = recipe(kind, max_steps=20, text_column_name=columns)()
    before, after = results[f"before_{FIGURE[kind]}"], results[FIGURE[kind]]
    assert json.loads((tmp_path / "run" / "all_results.json").read_text()) == results
    assert re.search(rf"\| MRR@10 +\| {before:.4f} +\| {after:.4f} +\|", (tmp_path / "run" / "README.md").read_text())
    if kind == "embeddings":
        assert after > max(0.6, before + 0.2)
        model = SentenceTransformer(str(tmp_path / "run"))
        found = model.similarity(*(model.encode([row[name] for row in PAIRS]) for name in columns)).argmax(1)
        assert (found == torch.arange(len(PAIRS))).float().mean() > 0.5
    else:
        model = CrossEncoder(str(tmp_path / "run"))
        right, wrong = (model.predict([(row["ask"], row[name]) for row in PAIRS]) for name in columns[1:])
        assert right.min() > 0.5 > wrong.max()


@BOTH
def test_without_options_a_small_zoo_model_learns_generated_pairs(kind, tmp_path):
    options = {"max_train_samples": 16, "max_eval_samples": 8, "max_steps": 1, "output_dir": tmp_path / "run"}
    Recipe(f"finetune_{kind}", options)()
    found = {"config.json": '"tfm_bert"', "README.md": "generated", "zoo_manifest.json": "tokenizer.json"}
    assert '("run", trust_remote_code=True)' in (tmp_path / "run" / "README.md").read_text()
    assert all(text in (tmp_path / "run" / name).read_text() for name, text in found.items())


@BOTH
def test_a_run_goes_on_and_its_folder_is_not_overwritten(kind, recipe, tmp_path):
    options = {"save_strategy": "steps", "save_steps": 1}
    whole = recipe(kind, output_dir=tmp_path / "whole", **options)()
    shutil.copytree(tmp_path / "whole" / "checkpoint-1", tmp_path / "run" / "checkpoint-1")  # as if killed at step 1
    assert recipe(kind, resume_from_checkpoint="auto", **options)()[FIGURE[kind]] == whole[FIGURE[kind]]
    weights = [(tmp_path / name / "model.safetensors").read_bytes() for name in ("whole", "run")]
    assert weights[0] == weights[1] and "holds a run: give another folder" in recipe(kind).refusal()
    (tmp_path / "run" / "merges.txt").touch()  # of an earlier tokenizer
    recipe(kind, overwrite_output_dir=True)()
    left = [path.name for path in (tmp_path / "run").iterdir()]  # a later run might go on from a checkpoint
    assert not any(name.startswith(("checkpoint-", "merges")) for name in left)


def test_vectors_are_measured_at_each_length_and_large_batches_take_the_same_step(recipe, tmp_path):
    options = {"matryoshka_dims": [32, 8], "max_steps": 1}
    results = [recipe("embeddings", output_dir=tmp_path / str(n), mini_batch_size=n, **options)() for n in (None, 3)]
    assert results[0]["train_loss"] == pytest.approx(results[1]["train_loss"], rel=1e-2)
    assert {"validation_32_cosine_mrr@10", "before_validation_8_cosine_mrr@10"} <= results[0].keys()
    assert "first 8 numbers" in (tmp_path / "None" / "README.md").read_text()


def test_wrong_answers_are_those_of_others():
    """Drawn, or found by a retriever; those that the data have come first."""
    reranker = imported(ROOT / "recipes" / "finetune_reranker.py")
    pairs = [{"anchor": row["ask"], "positive": row["say"]} for row in PAIRS]
    pairs = Dataset.from_list([*pairs, pairs[0] | {"positive": pairs[1]["positive"]}])
    for each in (None, Namespace(encode=lambda texts, **_: torch.randn(len(texts), 26))):
        wrong = reranker.wrong_answers(pairs, 3, each, seed=0)
        assert {len(answers) for answers in wrong.values()} <= {2, 3}
        assert not {PAIRS[0]["say"], PAIRS[1]["say"]} & {*wrong[PAIRS[0]["ask"]]}
    rows = reranker.labelled(pairs, wrong, 2, seed=0)
    assert rows["label"].count(1.0) == len(pairs) and rows["label"].count(0.0) == 2 * len(pairs)
    own = pairs.add_column("negative", ["nobody knows"] * len(pairs))
    assert reranker.labelled(own, wrong, 2, seed=0)["answer"][1] == "nobody knows"


@pytest.mark.parametrize(
    ("kind", "options", "wrong"),
    [
        ("embeddings", {"text_column_name": ["ask", "sya"]}, "text_column_name 'sya': no such column"),
        ("embeddings", {"text_column_name": None}, "give text_column_name"),
        ("embeddings", {"matryoshka_dims": [64, 8]}, "matryoshka_dims 64: vectors of this model have 32 numbers"),
        ("embeddings", {"leraning_rate": 1}, "unknown option --leraning_rate; did you mean --learning_rate?"),
        ("embeddings", {"train_file": "{}/empty.csv"}, "empty.csv"),
        ("reranker", {"train_file": "none.csv"}, "no such file"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(kind, options, wrong, recipe, tmp_path):
    (tmp_path / "empty.csv").write_text("ask,say\n")
    found = {name: value.format(tmp_path) if isinstance(value, str) else value for name, value in options.items()}
    assert wrong in recipe(kind, **found).refusal() and not (tmp_path / "run").exists()
