"""The recipe in processes of its own: killed and resumed, and two instead of one."""

import json
import signal

import pytest

from .conftest import RECIPE, ROOT, as_argv, defaults, run_python

# Runs the recipe until its n-th call of a function, which kills it.
KILLED = """
import os, runpy, signal, sys
from tfm_zoo.training import checkpoints, classification

module, name, n, script, *sys.argv[1:] = sys.argv[1:]
module = {"checkpoints": checkpoints.TrainState, "classification": classification}[module]
original, calls = getattr(module, name), []

def kill(*args):
    calls.append(None)
    if len(calls) == int(n):
        os.kill(os.getpid(), signal.SIGKILL)
    return original(*args)

setattr(module, name, kill)
runpy.run_path(script, run_name="__main__")
"""
LAUNCHERS = {
    "cpu": ["--num_processes", "2", "--cpu"],
    "yaml": ["--config_file", ROOT / "recipes" / "accelerate" / "cpu.yaml"],
}
OPTIONS = {
    "per_device_train_batch_size": 4,
    "gradient_accumulation_steps": 2,  # 8 steps an epoch
    "num_train_epochs": 3,
    "freeze_epochs": 1,
    "group_by_length": "true",
    "checkpointing_steps": 3,
    "save_total_limit": 10,
    "logging_steps": 5,
}


@pytest.fixture(scope="module")
def with_dropout(checkpoint, tmp_path_factory):
    folder = tmp_path_factory.mktemp("dropout")
    for file in checkpoint.iterdir():
        (folder / file.name).write_bytes(file.read_bytes())
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(
        json.dumps(config | {"hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.1})
    )
    return folder


def without_clock(folder) -> dict:
    state = json.loads((folder / "trainer_state.json").read_text())
    state.pop("train_seconds")
    for entry in state["log_history"]:
        entry.pop("eval_samples_per_second", None)
    return state


def test_killed_and_resumed_is_as_never_killed(files, with_dropout, tmp_path):
    resume = ["--resume_from_checkpoint", "auto"]

    def argv(folder):
        return as_argv(defaults(files, with_dropout) | OPTIONS | {"output_dir": tmp_path / folder})

    def kill(*when):
        killed = run_python("-c", KILLED, *when, RECIPE, *argv("killed"), *resume, check=False)
        assert killed.returncode == -signal.SIGKILL, killed.stderr

    def steps():
        return sorted(int(path.name.split("-")[1]) for path in (tmp_path / "killed").glob("checkpoint-*"))

    run_python(RECIPE, *argv("whole"))
    kill("classification", "train_step", 12)  # between two checkpoints in the second epoch, the first after freezing
    assert steps() == [3, 6, 9]
    kill("checkpoints", "write", 2)  # while the checkpoint of step 15 is being written
    assert steps() == [3, 6, 9, 12]
    run_python(RECIPE, *argv("killed"), *resume)
    assert steps() == [3, 6, 9, 12, 15, 18, 21, 24]
    for file in ("model.safetensors", "checkpoint-24/model.safetensors", "checkpoint-24/random_states_0.pkl"):
        assert (tmp_path / "killed" / file).read_bytes() == (tmp_path / "whole" / file).read_bytes(), file
    assert without_clock(tmp_path / "killed") == without_clock(tmp_path / "whole")


# Of 61 examples the last batch holds 1, which both processes compute, or 5, of which one computes 3 and the other 2.
@pytest.mark.parametrize(("launcher", "per_device", "steps"), [("cpu", 3, 6), ("yaml", 2, 8)])
def test_two_processes_have_the_losses_of_one(finetune, files, checkpoint, tmp_path, launcher, per_device, steps):
    options = {"group_by_length": launcher == "yaml", "num_train_epochs": 2, "freeze_epochs": 1}
    finetune(output_dir=tmp_path / "one", per_device_train_batch_size=4 * per_device, **options)
    options |= {
        "per_device_train_batch_size": per_device,
        "gradient_accumulation_steps": 2,
        "output_dir": tmp_path / "two",
    }
    argv = as_argv(defaults(files, checkpoint) | options)
    run_python("-m", "accelerate.commands.launch", *LAUNCHERS[launcher], RECIPE, *argv)
    one, two = (json.loads((tmp_path / name / "trainer_state.json").read_text()) for name in ("one", "two"))
    assert (one["run"]["num_processes"], two["run"]["num_processes"]) == (1, 2)
    assert len(one["log_history"]) == len(two["log_history"]) == 2 * steps + 2
    for expected, found in zip(one["log_history"], two["log_history"], strict=True):
        assert expected.keys() == found.keys()
        for key in expected.keys() - {"eval_samples_per_second"}:
            assert found[key] == pytest.approx(expected[key], abs=1e-5), key
