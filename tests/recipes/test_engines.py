"""Two processes that shard a model take the steps of one, and leave the folder that one would leave."""

import json
import os
from pathlib import Path

import pytest
import torch
from transformers import AutoTokenizer, BertForSequenceClassification, LlamaForCausalLM

import tfm_zoo
from tfm_zoo.hub import verify

from ..hub import plain
from ..hub.conftest import make_environment, run_jobs
from .conftest import (
    LM_RECIPE,
    PRETRAINING_RECIPE,
    RECIPE,
    ROOT,
    TEXT,
    TRANSLATION_RECIPE,
    as_argv,
    defaults,
    imported,
    lm_defaults,
    pretraining_defaults,
    run_here,
    run_python,
    translation_defaults,
)

LAUNCHERS = ROOT / "recipes" / "accelerate"
ENGINES = {"fsdp": "fsdp.yaml", "zero2": "zero2.yaml", "zero3": "zero3.yaml"}
SMALL = "hidden_size=16,num_hidden_layers=2,num_attention_heads=2,intermediate_size=24"
NO_DROPOUT = "hidden_dropout=0,attention_dropout=0"
#: what wraps the layers of official models under FSDP
LAYERS = {"bert": "BertLayer", "llama": "LlamaDecoderLayer"}
CLASSES = {
    "classifier": tfm_zoo.TfmBertForSequenceClassification,
    "encoder": tfm_zoo.TfmBertForPreTraining,
    "decoder": tfm_zoo.TfmGPTForCausalLM,
    "translator": tfm_zoo.TfmEncoderDecoderForConditionalGeneration,
    "bert": BertForSequenceClassification,
    "llama": LlamaForCausalLM,
}


@pytest.fixture(scope="module")
def jobs(files, checkpoint, documents, pairs, tmp_path_factory) -> dict[str, tuple[Path, dict]]:
    """Recipe and options of each model. A step has two forward passes; the best model is not the last."""
    folder = tmp_path_factory.mktemp("texts")
    (folder / "text.txt").write_text(TEXT)
    steps = {"max_train_steps": 6, "eval_steps": 2, "mixed_precision": "no", "learning_rate": 3e-2}
    steps["metric_for_best_model"] = "loss"
    classifier = defaults(files, checkpoint) | {"max_train_samples": 60}
    decoder = lm_defaults(folder) | {"sample_length": 3}
    return {
        "classifier": (RECIPE, classifier | steps),
        "encoder": (
            PRETRAINING_RECIPE,
            pretraining_defaults(documents) | steps | {"config_overrides": f"{SMALL},{NO_DROPOUT}"},
        ),
        "decoder": (LM_RECIPE, decoder | steps | {"config_overrides": f"{SMALL},{NO_DROPOUT}"}),
        "translator": (
            TRANSLATION_RECIPE,
            translation_defaults(pairs) | steps | {"config_overrides": f"{SMALL},{NO_DROPOUT}", "max_eval_samples": 13},
        ),
        "bert": (RECIPE, classifier | steps | {"model_class": "native"}),
        "llama": (
            LM_RECIPE,
            decoder | steps | {"model_type": "llama", "config_overrides": SMALL, "model_class": "native"},
        ),
    }


def divided(options: dict, processes: int) -> dict:
    """The options with the same global batches, of one process or of more."""
    size = 480 if "source_lang" in options else 8
    name = "per_device_train_batch_" + ("tokens" if "source_lang" in options else "size")
    accumulation = {} if processes == 1 else {"gradient_accumulation_steps": 2}
    return (
        options | accumulation | {name: size // processes // len([1, *accumulation]), "per_device_eval_batch_size": 5}
    )


@pytest.fixture(scope="module")
def one(jobs, tmp_path_factory) -> Path:
    """Each model trained by one process."""
    folder = tmp_path_factory.mktemp("one")
    for name, (recipe, options) in jobs.items():
        run_here(imported(recipe), divided(options, 1) | {"output_dir": folder / name})
    return folder


@pytest.fixture(scope="module", params=ENGINES)
def two(request, jobs, tmp_path_factory) -> Path:
    """Each model trained by two processes that an engine shards it over."""
    folder = tmp_path_factory.mktemp(request.param)
    listed = [
        {
            "recipe": str(recipe),
            "argv": as_argv(divided(options, 2) | {"output_dir": folder / name}),
            "environment": {"FSDP_TRANSFORMER_CLS_TO_WRAP": LAYERS.get(name, "TfmLayer")},
        }
        for name, (recipe, options) in jobs.items()
    ]
    (folder / "jobs.json").write_text(json.dumps(listed))
    launcher = ["-m", "accelerate.commands.launch", "--config_file", LAUNCHERS / ENGINES[request.param]]
    precision = ["--mixed_precision", "no"]
    run_python(*launcher, *precision, Path(__file__).with_name("in_a_row.py"), folder / "jobs.json")
    return folder


def test_the_losses_of_one_process(one, two):
    for name in CLASSES:
        wanted, found = (json.loads((folder / name / "trainer_state.json").read_text()) for folder in (one, two))
        assert found["run"]["num_processes"] == 2 and found["best_step"] == wanted["best_step"]
        for before, after in zip(wanted["log_history"], found["log_history"], strict=True):
            for key in before.keys() - {"eval_samples_per_second", "samples"}:
                assert after[key] == pytest.approx(before[key], rel=1e-5, abs=1e-5), (name, key, before["step"])
