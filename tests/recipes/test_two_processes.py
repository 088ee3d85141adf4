"""Two processes have the losses of one: a recipe as its users launch it, and all tasks in processes started once."""

import json
from pathlib import Path

import pytest
import torch

import tfm_zoo

from .conftest import (
    CLOCK,
    LM_RECIPE,
    OWN,
    PRETRAINING_RECIPE,
    RECIPE,
    ROOT,
    TEXT,
    TRANSLATION_RECIPE,
    as_argv,
    defaults,
    history,
    imported,
    lm_defaults,
    pretraining_defaults,
    run_here,
    run_in_a_row,
    run_python,
    translation_defaults,
    validated,
)

pytestmark = pytest.mark.slow
CONFIG = ROOT / "recipes" / "accelerate" / "cpu.yaml"
SIZES = "hidden_size=32,num_hidden_layers={},num_attention_heads=2,hidden_dropout=0,attention_dropout=0"
LM = {"config_overrides": SIZES.format(2), "num_train_epochs": 2, "freeze": "embed_positions"}
LM |= {"gradual_unfreezing": 5, "layerwise_lr_decay": 0.8}  # a layer in 5 steps
LM_BATCHES = ({"per_device_train_batch_size": 4}, {"per_device_train_batch_size": 2, "per_device_eval_batch_size": 2})


@pytest.fixture(scope="module")
def jobs(files, checkpoint, documents, pairs, tmp_path_factory) -> dict[str, tuple[Path, dict, dict, dict]]:
    """Each recipe, its options, and those with which one process and two have the same batches."""
    folder = tmp_path_factory.mktemp("texts")
    (folder / "text.txt").write_text(TEXT)
    classification = defaults(files, checkpoint) | {"group_by_length": True, "freeze_epochs": 1}
    (folder / "ones").mkdir()
    (folder / "ones" / "ones.py").write_text(OWN.replace("{RESULTS}", '{"ones": np.mean(predictions)}'))
    classification |= {"metrics": ["accuracy", "f1", folder / "ones"]}
    translation = {"config_overrides": f"{SIZES.format(1)},intermediate_size=32", "label_smoothing_over": "all"}
    # Pairs to evaluate on, and to translate, that two processes cannot share evenly.
    translation |= {"max_train_steps": 6, "eval_steps": 3, "max_eval_samples": 13, "num_eval_translations": 7}
    pretraining = {"streaming": True, "max_train_steps": 15, "eval_steps": 5}
    accumulated = {"per_device_train_batch_size": 2, "gradient_accumulation_steps": 2}
    questions = {"max_train_samples": 20, "max_eval_samples": 7, "max_seq_length": 24, "doc_stride": 4}
    questions |= {
        "config_overrides": f"{SIZES.format(1)},intermediate_size=32",
        "max_train_steps": 3,
        "logging_steps": 1,
    }
    streamed = validated(folder, {"streaming": True, "max_train_steps": 21})
    return {
        # Of 61 examples the last batch holds 5, of which one process computes 3 and the other 2.
        "classifier": (RECIPE, classification, {"per_device_train_batch_size": 8}, accumulated),
        # A last batch of one block, which both compute; and 3 blocks to evaluate on, in batches of 2 for each.
        "decoder": (LM_RECIPE, lm_defaults(folder) | LM, *LM_BATCHES),
        "stream": (LM_RECIPE, lm_defaults(folder) | LM | streamed, *LM_BATCHES),
        "translator": (
            TRANSLATION_RECIPE,
            translation_defaults(pairs) | translation,
            {"per_device_train_batch_tokens": 480},
            {"per_device_train_batch_tokens": 240, "per_device_eval_batch_size": 4},
        ),
        # Windows of a question, of which each process may compute some.
        "answerer": (
            ROOT / "recipes" / "finetune_question_answering.py",
            questions,
            {"per_device_train_batch_size": 4},
            {"per_device_train_batch_size": 2, "per_device_eval_batch_size": 3},
        ),
        # Either process masks another number of tokens; the examples to evaluate on cannot be shared evenly.
        "encoder": (
            PRETRAINING_RECIPE,
            pretraining_defaults(documents) | pretraining,
            {"per_device_train_batch_size": 8},
            accumulated | {"per_device_eval_batch_size": 7},
        ),
    }


@pytest.fixture(scope="module")
def one(jobs, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("one")
    for name, (recipe, options, batches, _) in jobs.items():
        run_here(imported(recipe), options | batches | {"output_dir": folder / name})
    return folder


@pytest.fixture(scope="module")
def two(jobs, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("two")
    listed = [
        {
            "function": "run",
            "arguments": [str(recipe), as_argv(options | batches | {"output_dir": folder / name})],
            "environment": {},
        }
        for name, (recipe, options, _, batches) in jobs.items()
    ]
    run_in_a_row(listed, "ddp", folder)
    return folder


def same_losses(one: Path, two: Path, count: int) -> None:
    """Two runs, of one process and of two, have the same history, with so many losses."""
    before, after = (json.loads((folder / "trainer_state.json").read_text()) for folder in (one, two))
    assert (before["run"]["num_processes"], after["run"]["num_processes"]) == (1, 2)
    assert len(before["log_history"]) == len(after["log_history"])
    for expected, found in zip(before["log_history"], after["log_history"], strict=True):
        assert expected.keys() == found.keys()
        for key in expected.keys() - {*CLOCK, "samples"}:
            assert found[key] == pytest.approx(expected[key], rel=1e-5, abs=1e-5), key
    assert len(history(two, "loss")) == count


@pytest.mark.parametrize(
    ("name", "count"),
    [("classifier", 16), ("decoder", 12), ("stream", 21), ("translator", 6), ("answerer", 3), ("encoder", 15)],
)
def test_the_losses_of_one(name, count, one, two):
    same_losses(one / name, two / name, count)


def test_what_else_one_process_leaves(one, two):
    for name in ("decoder", "stream"):
        assert history(two / name, "samples") == history(one / name, "samples")
    assert len(history(two / "translator", "eval_chrf")) == 2
    translations = [
        (folder / "translator" / "generated_predictions.txt").read_text().splitlines() for folder in (one, two)
    ]
    assert translations[0] == translations[1] and len(translations[1]) == 13
    models = [tfm_zoo.TfmBertForPreTraining.from_pretrained(folder / "encoder") for folder in (one, two)]
    torch.testing.assert_close(*(model.state_dict() for model in models), rtol=0, atol=1e-6)


def test_as_users_launch_a_recipe(finetune, files, checkpoint, tmp_path):
    """Of 61 examples the last batch holds 1, which both processes compute."""
    finetune(output_dir=tmp_path / "one", per_device_train_batch_size=12)
    batches = {"per_device_train_batch_size": 3, "gradient_accumulation_steps": 2, "output_dir": tmp_path / "two"}
    launched = ["--mixed_precision", "no", RECIPE, *as_argv(defaults(files, checkpoint) | batches)]
    run_python("-m", "accelerate.commands.launch", "--config_file", CONFIG, *launched)
    same_losses(tmp_path / "one", tmp_path / "two", count=12)
