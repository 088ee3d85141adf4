"""A recipe in a process of its own may be killed at any time: resumed, it ends as if it never had been."""

import json
import shutil
import signal
from functools import partial
from pathlib import Path

import pytest
import torch

from ..forks import with_recipes
from .conftest import CLOCK, SIZES, history, run_python

pytestmark = pytest.mark.slow
run = partial(run_python, forks=with_recipes)

# Runs a recipe, which gets a signal before an optimiser step, or when it opens a file with such a name.
STOPPED = """
import os, runpy, signal, sys
from torch.optim.optimizer import register_optimizer_step_pre_hook

number, place, script, *sys.argv[1:] = sys.argv[1:]
steps = []
signal.signal(signal.SIGINT, signal.default_int_handler)  # in the background a shell has it ignored

def before_step(*_):
    steps.append(None)
    if len(steps) == int(place):
        os.kill(os.getpid(), int(number))

def at_file(event, args):
    if event == "open" and str(args[0]).endswith(place):
        os.kill(os.getpid(), int(number))

sys.argv[0] = script
if place.isdecimal():
    register_optimizer_step_pre_hook(before_step)
else:
    sys.addaudithook(at_file)
runpy.run_path(script, run_name="__main__")
"""
# Runs a recipe that may have few files open at a time.
FEW_FILES = """
import resource, runpy, sys

resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))
script, *sys.argv[1:] = sys.argv[1:]
runpy.run_path(script, run_name="__main__")
"""
STREAMED = {"streaming": True, "dataloader_num_workers": 1}
DROPPED = {"config_overrides": f"{SIZES},hidden_dropout=0.1"}
TWO_PASSES = {"gradient_accumulation_steps": 2}
DOWNWARDS = {"freeze": "embed_positions", "layerwise_lr_decay": 0.8}
#: of each recipe: options, where it is killed (once more at the second place), and the number of steps
KILLED = {
    # between two checkpoints in the second epoch, the first after freezing; and while a checkpoint is written
    "classification": (
        TWO_PASSES | {"per_device_train_batch_size": 4, "freeze_epochs": 1, "group_by_length": True},
        (12, "-checkpoint-15/trainer_state.json"),
        16,
    ),
    "causal_lm": (STREAMED | DOWNWARDS | {"per_device_train_batch_size": 3}, (8,), 12),
    "translation": (TWO_PASSES | DROPPED | {"per_device_train_batch_tokens": 600}, (8,), 12),
    # in the midst of a block, in a second pass over the documents
    "pretraining": (STREAMED | DROPPED | {"per_device_train_batch_size": 8}, (17,), 18),
    "denoising": (STREAMED | DROPPED | {"per_device_train_batch_size": 8}, (5,), 9),
}


def without_clock(folder: Path) -> dict:
    state = json.loads((folder / "trainer_state.json").read_text())
    state.pop("train_seconds")
    for entry in state["log_history"]:
        for name in CLOCK:
            entry.pop(name, None)
    return state


def steps(folder: Path) -> list[int]:
    """The steps whose checkpoints are there."""
    return sorted(int(path.name.split("-")[1]) for path in folder.glob("checkpoint-*"))


@pytest.mark.parametrize("task", KILLED)
def test_killed_and_resumed_is_as_never_killed(recipe, task, texts, checkpoint, tmp_path):
    """With dropout: the same model, byte for byte, and the same state."""
    options, places, number = KILLED[task]
    train, killed, whole = recipe(task), tmp_path / "killed", tmp_path / "whole"
    options |= {"max_train_steps": number, "checkpointing_steps": 3, "save_total_limit": 10, "logging_steps": 5}
    if task == "causal_lm":
        options |= {"validation_file": texts / "held_out.txt"}
    if task == "classification":
        options |= {"model_name_or_path": shutil.copytree(checkpoint, tmp_path / "dropout")}
        file = tmp_path / "dropout" / "config.json"
        dropout = {"hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.1}
        file.write_text(json.dumps(json.loads(file.read_text()) | dropout))
    resumed = options | {"output_dir": killed, "resume_from_checkpoint": "auto"}
    for place in places:
        ended = run("-c", STOPPED, int(signal.SIGKILL), place, train.script, *train.argv(**resumed), check=False)
        assert ended.returncode == -signal.SIGKILL, ended.stderr
        last = place - 1 if isinstance(place, int) else 14
        assert steps(killed) == [*range(3, last + 1, 3)]
    if task == "pretraining":
        place = torch.load(killed / "checkpoint-15" / "custom_checkpoint_0.pkl")
        ((_, start, before),) = place["starts"]
        assert start["epoch"] >= 1 and place["used"] > before
    train.trained(**resumed)
    train.trained(output_dir=whole, **options)
    assert steps(killed) == [*range(3, number + 1, 3)]
    last = f"checkpoint-{steps(killed)[-1]}"
    for file in ("model.safetensors", f"{last}/model.safetensors", f"{last}/random_states_0.pkl"):
        assert (killed / file).read_bytes() == (whole / file).read_bytes(), file
    assert without_clock(killed) == without_clock(whole)


def test_ctrl_c_ends_in_a_line_and_the_run_goes_on(recipe, tmp_path):
    """A run as a program, which somebody stops, and goes on with as it says."""
    train = recipe("classification")
    argv = train.argv(max_train_steps=5, checkpointing_steps=2, with_tracking=False)
    stopped = run("-c", STOPPED, int(signal.SIGINT), 4, train.script, *argv, check=False)
    assert stopped.returncode == 128 + signal.SIGINT and "Traceback" not in stopped.stderr
    said, option = stopped.stderr.splitlines()[-1].split(": ", 1)
    assert said == "Stopped at step 3 of 5"
    assert "checkpoint-2, step 2 of 5" in run(train.script, *argv, *option.split()[:2]).stderr
    assert json.loads((tmp_path / "run" / "all_results.json").read_text())["train_steps"] == 5
    # While the command imports: it needs the package of subcommands alone, which imports quickly.
    stopped = run("-c", "import tfm_zoo.commands; raise KeyboardInterrupt", check=False)
    assert (stopped.returncode, stopped.stdout, stopped.stderr) == (128 + signal.SIGINT, "", "")


def test_a_stream_with_workers_needs_few_open_files(recipe, texts, tmp_path):
    """A chunk of texts became hundreds of tensors, each an open file, and training waited for ever."""
    train, options = recipe("causal_lm"), {"block_size": 4, "sample_length": 0, "max_train_steps": 12}
    argv = train.argv(validation_file=texts / "held_out.txt", **options | STREAMED)
    run("-c", FEW_FILES, train.script, *argv)
    assert len(history(tmp_path / "run", "loss")) == 12
