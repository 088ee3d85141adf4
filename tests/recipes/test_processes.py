"""The recipes in processes of their own, killed and resumed."""

import json
import shlex
import signal
from functools import partial
from pathlib import Path

import pytest
import torch

from ..forks import with_recipes
from .conftest import (
    CLOCK,
    LM_RECIPE,
    PRETRAINING_RECIPE,
    RECIPE,
    TEXT,
    TRANSLATION_RECIPE,
    as_argv,
    defaults,
    history,
    lm_defaults,
    pretraining_defaults,
    run_here,
    run_python,
    translation_defaults,
    validated,
)

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
STEPS = {"checkpointing_steps": 3, "save_total_limit": 10, "logging_steps": 5, "num_train_epochs": 3}
OPTIONS = STEPS | {
    "per_device_train_batch_size": 4,
    "gradient_accumulation_steps": 2,  # 8 steps an epoch
    "freeze_epochs": 1,
    "group_by_length": "true",
    "num_train_epochs": 2,
}
STREAMED = {"streaming": "true", "max_train_steps": 15}
TRANSLATION_SIZES = "hidden_size=32,num_hidden_layers=1,num_attention_heads=2,intermediate_size=32"
TRANSLATION_OPTIONS = STEPS | {
    "per_device_train_batch_tokens": 600,
    "gradient_accumulation_steps": 2,  # 5 steps an epoch
    "config_overrides": f"{TRANSLATION_SIZES},hidden_dropout=0.1",
}
DOWNWARDS = {"freeze": "embed_positions", "gradual_unfreezing": 5, "layerwise_lr_decay": 0.8}  # a layer in 5 steps
PRETRAINING_SIZES = "hidden_size=32,num_hidden_layers=1,num_attention_heads=2,intermediate_size=32"
PRETRAINING_OPTIONS = STEPS | {
    "per_device_train_batch_size": 8,  # 13 steps an epoch
    "num_train_epochs": 2,
    "config_overrides": f"{PRETRAINING_SIZES},hidden_dropout=0.1",
}
LM_OPTIONS = STEPS | DOWNWARDS | {"per_device_train_batch_size": 3}  # 7 steps an epoch: 21 blocks


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
        for name in CLOCK:
            entry.pop(name, None)
    return state


def steps(folder) -> list[int]:
    """The steps whose checkpoints are there."""
    return sorted(int(path.name.split("-")[1]) for path in folder.glob("checkpoint-*"))


def identical(one, two) -> None:
    """Two runs have left the same model, byte for byte, and the same state."""
    last = f"checkpoint-{steps(one)[-1]}"
    for file in ("model.safetensors", f"{last}/model.safetensors", f"{last}/random_states_0.pkl"):
        assert (one / file).read_bytes() == (two / file).read_bytes(), file
    assert without_clock(one) == without_clock(two)


def test_killed_and_resumed_is_as_never_killed(recipe, files, with_dropout, tmp_path):
    options = defaults(files, with_dropout) | OPTIONS
    resumed = options | {"output_dir": tmp_path / "killed", "resume_from_checkpoint": "auto"}

    def kill(place: int | str) -> None:
        killed = run("-c", STOPPED, int(signal.SIGKILL), place, RECIPE, *as_argv(resumed), check=False)
        assert killed.returncode == -signal.SIGKILL, killed.stderr

    run_here(recipe, options | {"output_dir": tmp_path / "whole"})
    kill(12)  # between two checkpoints in the second epoch, the first after freezing
    assert steps(tmp_path / "killed") == [3, 6, 9]
    kill("-checkpoint-15/trainer_state.json")  # while the checkpoint of step 15 is being written
    assert steps(tmp_path / "killed") == [3, 6, 9, 12]
    run_here(recipe, resumed)
    assert steps(tmp_path / "killed") == [3, 6, 9, 12, 15]
    identical(tmp_path / "killed", tmp_path / "whole")


def test_ctrl_c_and_the_command_that_it_names(files, checkpoint, tmp_path):
    """A run as a program, which somebody stops, and goes on with as it says."""
    options = {"output_dir": tmp_path / "run", "max_train_steps": 5, "checkpointing_steps": 2, "with_tracking": "false"}
    argv = as_argv(defaults(files, checkpoint) | options)
    stopped = run("-c", STOPPED, int(signal.SIGINT), 4, RECIPE, *argv, check=False)
    assert stopped.returncode == 128 + signal.SIGINT and "Traceback" not in stopped.stderr
    said, command = stopped.stderr.splitlines()[-1].split(": ", 1)
    assert said == "Stopped at step 3 of 5. This goes on from step 2"
    python, *words = shlex.split(command)
    assert (python, Path(words[0])) == ("python", RECIPE)
    assert "checkpoint-2, step 2 of 5" in run(*words).stderr
    assert json.loads((tmp_path / "run" / "all_results.json").read_text())["train_steps"] == 5


def test_ctrl_c_while_the_command_imports():
    """It needs the package of subcommands alone, which imports quickly."""
    stopped = run("-c", "import tfm_zoo.commands; raise KeyboardInterrupt", check=False)
    assert (stopped.returncode, stopped.stdout, stopped.stderr) == (128 + signal.SIGINT, "", "")


def test_killed_and_resumed_language_model_is_as_never_killed(train_lm, tmp_path):
    options = LM_OPTIONS | validated(tmp_path, STREAMED | {"dataloader_num_workers": 1})
    argv = as_argv(lm_defaults(tmp_path) | options | {"output_dir": tmp_path / "killed"})
    killed = run("-c", STOPPED, int(signal.SIGKILL), 12, LM_RECIPE, *argv, check=False)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert steps(tmp_path / "killed") == [3, 6, 9]
    train_lm(output_dir=tmp_path / "killed", resume_from_checkpoint="auto", **options)
    train_lm(output_dir=tmp_path / "whole", **options)
    assert steps(tmp_path / "killed") == [3, 6, 9, 12, 15]
    identical(tmp_path / "killed", tmp_path / "whole")


def test_killed_and_resumed_translation_is_as_never_killed(train_translation, pairs, tmp_path):
    argv = as_argv(translation_defaults(pairs) | TRANSLATION_OPTIONS | {"output_dir": tmp_path / "killed"})
    killed = run("-c", STOPPED, int(signal.SIGKILL), 11, TRANSLATION_RECIPE, *argv, check=False)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert steps(tmp_path / "killed") == [3, 6, 9]
    train_translation(output_dir=tmp_path / "killed", resume_from_checkpoint="auto", **TRANSLATION_OPTIONS)
    train_translation(output_dir=tmp_path / "whole", **TRANSLATION_OPTIONS)
    assert steps(tmp_path / "killed") == [3, 6, 9, 12, 15]
    identical(tmp_path / "killed", tmp_path / "whole")
    with pytest.raises(ValueError, match="another run: global_batch_size was 1200 and is 1000"):
        other = {"per_device_train_batch_tokens": 500, "max_train_steps": 15}
        train_translation(output_dir=tmp_path / "killed", resume_from_checkpoint="auto", **TRANSLATION_OPTIONS | other)


def test_killed_and_resumed_pretraining_is_as_never_killed(pretrain, documents, tmp_path):
    """In the midst of a block, in a second pass over the documents, with dropout."""
    options = PRETRAINING_OPTIONS | {"streaming": "true", "max_train_steps": 18, "dataloader_num_workers": 1}
    argv = as_argv(pretraining_defaults(documents) | options | {"output_dir": tmp_path / "killed"})
    killed = run("-c", STOPPED, int(signal.SIGKILL), 17, PRETRAINING_RECIPE, *argv, check=False)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert steps(tmp_path / "killed") == [3, 6, 9, 12, 15]
    pretrain(output_dir=tmp_path / "killed", resume_from_checkpoint="auto", **options)
    pretrain(output_dir=tmp_path / "whole", **options)
    identical(tmp_path / "killed", tmp_path / "whole")
    place = torch.load(tmp_path / "killed" / "checkpoint-15" / "custom_checkpoint_0.pkl")
    ((_, start, before),) = place["starts"]
    assert start["epoch"] >= 1 and place["used"] > before
    with pytest.raises(ValueError, match=r"another run: .*mlm_probability was 0.15 and is 0.2"):
        pretrain(output_dir=tmp_path / "killed", resume_from_checkpoint="auto", **options | {"mlm_probability": 0.2})


def test_a_stream_with_workers_needs_few_open_files(tmp_path):
    """A chunk of texts became hundreds of tensors, each an open file, and training waited for ever."""
    (tmp_path / "text.txt").write_text(TEXT)
    options = {"block_size": 4, "dataloader_num_workers": 1, "sample_length": 0, "max_train_steps": 12}
    options |= validated(tmp_path, {"streaming": True})
    run("-c", FEW_FILES, LM_RECIPE, *as_argv(lm_defaults(tmp_path) | options))
    assert len(history(tmp_path / "run", "loss")) == 12
