"""Two processes take the steps of one and leave the folder that one would leave, whether each has the whole model or
they share it; a run goes on with another number of processes. Processes are started once for each launcher."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

import tfm_zoo
from tfm_zoo.proof import verify
from tfm_zoo.training.checkpoints import TrainState

from ..tiny import tiny_model
from . import in_a_row
from .conftest import Recipe, log_of, run_in_a_row, same_history

pytestmark = pytest.mark.slow

HEADS = {  # the last three with tied tables, the last with one for encoder, decoder and head
    "classifier": tfm_zoo.TfmBertForSequenceClassification,
    "encoder": tfm_zoo.TfmBertForPreTraining,
    "decoder": tfm_zoo.TfmGPTForCausalLM,
    "translator": tfm_zoo.TfmEncoderDecoderForConditionalGeneration,
}
#: what each engine trains. DeepSpeed is told of no layers, and its stage 2 leaves models whole.
NAMES = {
    "cpu": ("lengths", "downwards", "pairs", "answers", "documents"),
    "fsdp": (*HEADS, "bf16", "llama"),
    "zero2": ("classifier", "bf16"),
    "zero3": ("decoder", "translator", "bf16", "llama"),
}
EVERY_ENGINE = pytest.mark.parametrize("engine", ["fsdp", "zero2", "zero3"])
SIZES = "hidden_size={},num_hidden_layers={},num_attention_heads=2,intermediate_size=32"
DROPOUT = "hidden_dropout=0,attention_dropout=0"


@pytest.fixture(scope="module")
def jobs(recipes) -> dict[str, tuple[Recipe, dict, dict]]:
    """Each recipe, and the options with which one process and two have the same batches."""
    shallow = {"config_overrides": f"{SIZES.format(32, 1)},{DROPOUT}"}
    downwards = {"config_overrides": f"{SIZES.format(32, 2)},{DROPOUT}", "num_train_epochs": 2}
    downwards |= {"freeze": "embed_positions", "checkpointing_steps": 4, "save_total_limit": 9}
    few = {"max_train_steps": 6, "eval_steps": 3, "max_eval_samples": 13, "num_eval_translations": 7, "num_beams": 2}
    documents = {"streaming": True, "block_documents": 64, "max_train_steps": 18, "eval_steps": 6}  # four readers
    documents |= {"checkpointing_steps": 6, "save_total_limit": 9}
    # Of these the best classifier is not the last.
    small = {"config_overrides": f"{SIZES.format(16, 2)},{DROPOUT}"}
    steps = {"max_train_steps": 4, "eval_steps": 2, "mixed_precision": "no", "learning_rate": 3e-2}
    classifier = steps | {"metric_for_best_model": "loss", "max_eval_samples": 13}
    decoder = steps | {"sample_length": 3, "sync_each_batch": True}
    llama = {"model_type": "llama", "config_overrides": SIZES.format(16, 2), "model_class": "native"}
    short = {"max_eval_samples": 5, "test_file": None, "num_beams": 1}
    #: task, options, the batch of one process, that of each of two, its passes for a step, its batch of evaluations
    listed = {
        # of 61 examples the last batch holds 5, of which one process computes 3 and the other 2
        "lengths": ("classification", {"group_by_length": True}, 8, 2, 2, None),
        # a last batch of one block, which both compute; 3 blocks to evaluate on, in batches of 2 for each
        "downwards": ("causal_lm", downwards, 4, 2, 1, 2),
        # pairs to evaluate on, and to translate, and windows of a question, that two processes cannot share evenly
        "pairs": ("translation", shallow | few, 480, 240, 1, 4),
        "answers": ("questions", shallow | {"max_train_samples": 20}, 4, 2, 1, 3),
        "documents": ("pretraining", documents, 8, 2, 2, 7),
        "classifier": ("classification", classifier, 8, 2, 2, 5),
        "bf16": ("classification", classifier | {"mixed_precision": "bf16"}, 8, 2, 2, 5),
        "encoder": ("pretraining", steps | small, 8, 2, 2, 5),
        "decoder": ("causal_lm", decoder | small, 8, 2, 2, 5),
        "llama": ("causal_lm", decoder | llama | {"checkpointing_steps": 2}, 8, 2, 2, 5),
        "translator": ("translation", steps | small | short, 480, 120, 2, 5),
    }

    def job(task: str, options: dict, one: int, two: int, passes: int, evaluated: int | None) -> tuple:
        size = f"per_device_train_batch_{'tokens' if task == 'translation' else 'size'}"
        divided = {size: two, "gradient_accumulation_steps": passes, "per_device_eval_batch_size": evaluated}
        return replace(recipes[task], options=recipes[task].options | options), {size: one}, divided

    return {name: job(*told) for name, told in listed.items()}


@pytest.fixture(scope="module")
def one(jobs, tmp_path_factory) -> Path:
    """Each model, trained by one process."""
    folder = tmp_path_factory.mktemp("one")
    for name, (recipe, batches, _) in jobs.items():
        if name != "bf16":
            recipe(output_dir=folder / name, **batches)
    in_a_row.forget_processes()
    in_a_row.unequal(folder / "unequal.json")
    return folder


def launched(function: str, *arguments: object, layer: str = "TfmLayer") -> dict:
    """A job of `in_a_row.py`."""
    return {"function": function, "arguments": arguments, "environment": {"FSDP_TRANSFORMER_CLS_TO_WRAP": layer}}


@pytest.fixture(scope="module")
def two(jobs, one, tmp_path_factory) -> dict[str, Path]:
    """Each model, trained by two processes with each engine, as its launcher starts them."""
    folders = {engine: tmp_path_factory.mktemp(engine) for engine in NAMES}
    for engine, folder in folders.items():
        runs = [(name, name, {}) for name in NAMES[engine]]  # the name of its folder, whose it is, more options
        if engine == "cpu":
            kept = shutil.copytree(one / "downwards", folder / "goes on") / "checkpoint-4"
            runs += [("goes on", "downwards", {"resume_from_checkpoint": kept}), ("machine {RANK}", "classifier", {})]
        if "llama" in NAMES[engine]:  # resumed from the middle of its training
            runs.append(("llama", "llama", {"resume_from_checkpoint": folder / "llama" / "checkpoint-2"}))
        listed = []
        for name, of, options in runs:
            recipe, _, batches = jobs[of]
            argv = recipe.argv(output_dir=folder / name, **batches | options)
            layer = "LlamaDecoderLayer" if of == "llama" else "TfmLayer"  # an official model, and the zoo's
            listed.append(launched("run", str(recipe.script), argv, layer=layer))
        if engine != "cpu":
            listed += [launched("save", str(folder)), launched("unequal", str(folder / "unequal.json"))]
        (folder / "stderr.txt").write_text(run_in_a_row(listed, engine, folder))
    return folders


@pytest.mark.parametrize("engine", NAMES)
def test_the_losses_of_one_process(engine, one, two):
    """The last model's after it was resumed."""
    for name in {*NAMES[engine]} - {"bf16"}:
        assert [TrainState.read(folder / name).identity["num_processes"] for folder in (one, two[engine])] == [1, 2]
        logs = [log_of(folder / name) for folder in (two[engine], one)]  # a sharded model draws no samples
        same_history(*([entry for entry in log if "samples" not in entry] for log in logs))


def test_what_else_one_process_leaves(one, two):
    translations = [(folder / "pairs" / "generated_predictions.txt").read_text() for folder in (one, two["cpu"])]
    assert translations[0] == translations[1] and translations[1].count("\n") == 13
    weights = [load_file(folder / "documents" / "model.safetensors") for folder in (one, two["cpu"])]
    torch.testing.assert_close(*weights, rtol=0, atol=1e-6)
    same_history(log_of(two["cpu"] / "machine 0"), log_of(one / "classifier"))
    assert not (two["cpu"] / "machine 1").exists()  # one of two machines has the results


def test_a_run_goes_on_with_another_number_of_processes(jobs, one, two, tmp_path, caplog):
    """A stream on one process instead of two, in a second pass; texts in memory on two instead of one."""
    copy, (recipe, batches, _) = shutil.copytree(two["cpu"] / "documents", tmp_path / "copy"), jobs["documents"]
    recipe.trained(output_dir=copy, resume_from_checkpoint=copy / "checkpoint-12", **batches)
    warned = (two["cpu"] / "stderr.txt").read_text()
    assert caplog.text.count("Continuing with num_processes 1, which was 2") == 1
    assert warned.count("Continuing with num_processes 2, which was 1") == 1
    for name, folder in {"documents": copy, "downwards": two["cpu"] / "goes on"}.items():
        same_history(log_of(folder), log_of(one / name))


@EVERY_ENGINE
def test_processes_with_unequal_numbers_of_labels(engine, one, two):
    """One makes so few logits that it makes them at once, another many, or none."""
    wanted, found = (json.loads((folder / "unequal.json").read_text()) for folder in (one, two[engine]))
    assert found == {kind: pytest.approx(numbers, rel=1e-5) for kind, numbers in wanted.items()}


@EVERY_ENGINE
def test_what_is_trained_in_bf16_is_saved_in_float32(engine, one, two):
    same_history(log_of(two[engine] / "bf16"), log_of(one / "classifier"), tolerance=5e-2)
    weights, config = (two[engine] / "bf16" / name for name in ("model.safetensors", "config.json"))
    assert json.loads(config.read_text())["dtype"] == "float32"
    for weight in load_file(weights).values():
        assert weight.dtype == torch.float32
        assert weight.ndim < 2 or not torch.equal(weight, weight.bfloat16().float())


@EVERY_ENGINE
def test_the_folder_that_one_process_leaves(engine, one, two):
    """Files, code and settings; the figures are those of the best model, which lies there."""
    for name in HEADS.keys() & NAMES[engine]:
        before, after = one / name, two[engine] / name
        assert {path.name for path in after.iterdir()} == {path.name for path in before.iterdir()}
        for file in [*before.glob("*.py"), before / "config.json"]:
            assert (after / file.name).read_bytes() == file.read_bytes()
        wanted, found = (json.loads((folder / "all_results.json").read_text()) for folder in (before, after))
        assert found["best_step"] == wanted["best_step"]
        figures = [key for key in wanted if key.endswith(("loss", "perplexity", "bleu"))]
        assert [found[key] for key in figures] == pytest.approx([wanted[key] for key in figures], rel=1e-5)


@pytest.mark.usefixtures("forked")
def test_verified(two):
    for source in (two["fsdp"] / "translator", two["zero3"] / "decoder", two["zero3"] / "bf16", two["zero2"] / "bf16"):
        verdict = verify(source)
        assert verdict.ok and max(verdict.figures["drift"].values()) < 1e-6, verdict


@EVERY_ENGINE
def test_saved_as_users_save(engine, two, tmp_path):
    """By Accelerate's way, the Trainer's and their own: byte for byte as if it were whole."""
    tiny_model(tfm_zoo.TfmGPTForCausalLM).save_pretrained(tmp_path)
    wanted = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    for way in ("accelerate", "trainer", *(["own"] if engine == "fsdp" else [])):
        found = {path.name: path.read_bytes() for path in (two[engine] / way).iterdir()}
        assert found.keys() == wanted.keys()
        assert not [name for name in wanted if found[name] != wanted[name]], way
