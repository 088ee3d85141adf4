"""Only what is complete passes for a checkpoint, and only the run that it belongs to goes on from it."""

import os
from argparse import Namespace
from contextlib import nullcontext, suppress
from pathlib import Path

import pytest
import torch

from tfm_zoo.training import checkpoints
from tfm_zoo.training.checkpoints import TrainState, find_checkpoint, holds_a_run, is_killed_run, save_checkpoint
from tfm_zoo.training.options import TrainingOptions
from tfm_zoo.utils.locking import atomic_files


@pytest.fixture
def accelerator(accelerator):
    """With a model and its optimizer."""
    model = torch.nn.Linear(3, 2)
    accelerator.prepare(model, torch.optim.AdamW(model.parameters()))
    return accelerator


@pytest.fixture
def saved(accelerator, tmp_path):
    """Checkpoints of steps 5, 10 and 100."""
    return [save_checkpoint(accelerator, TrainState(step=step), tmp_path) for step in (5, 10, 100)]


def test_newest_complete_checkpoint_is_found_and_the_oldest_deleted(accelerator, saved, tmp_path, monkeypatch):
    """One whose deletion was killed is passed over."""
    assert find_checkpoint("auto", tmp_path) == saved[-1]
    assert find_checkpoint(str(saved[0]), tmp_path) == find_checkpoint(saved[0].name, tmp_path) == saved[0]
    with pytest.raises(FileNotFoundError, match=r"'latest': no such folder; .* has checkpoint-"):
        find_checkpoint("latest", tmp_path)
    assert find_checkpoint(None, tmp_path) is find_checkpoint("auto", tmp_path / "empty") is None
    save_checkpoint(accelerator, TrainState(step=101), tmp_path, keep=2)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["checkpoint-100", "checkpoint-101"]
    monkeypatch.setattr("shutil.rmtree", lambda *_, **__: None)
    save_checkpoint(accelerator, TrainState(step=99), tmp_path, keep=2)
    assert (tmp_path / "checkpoint-99").exists() and find_checkpoint("auto", tmp_path).name == "checkpoint-101"
    with pytest.raises(FileNotFoundError, match="checkpoint-99': not a complete checkpoint"):
        find_checkpoint(str(tmp_path / "checkpoint-99"), tmp_path)


def holding(value: object) -> Namespace:
    """What a run registers for its checkpoints."""
    return Namespace(state_dict=lambda: {"held": value}, load_state_dict=None)


FILES = "model.safetensors optimizer.bin random_states_0.pkl custom_checkpoint_0.pkl trainer_state.json"


@pytest.mark.parametrize("name", FILES.split())
def test_a_file_that_was_cut_or_holds_code_is_refused_by_its_name(accelerator, tmp_path, name):
    accelerator.register_for_checkpointing(holding(1))
    folder = save_checkpoint(accelerator, TrainState(step=5), tmp_path)
    assert find_checkpoint("auto", tmp_path) == folder
    (folder / name).write_bytes((folder / name).read_bytes()[:-9])
    with pytest.raises(ValueError, match=f"{name} is cut, damaged or holds code: delete checkpoint-5 to go"):
        find_checkpoint("auto", tmp_path)
    accelerator.register_for_checkpointing(holding(print))
    save_checkpoint(accelerator, TrainState(step=6), tmp_path)
    with pytest.raises(ValueError, match=r"custom_checkpoint_1.pkl is cut, damaged or holds code"):
        find_checkpoint("auto", tmp_path)


def test_only_a_killed_run_may_begin_again(tmp_path):
    for sign in ("config.json", "trainer_state.json", ".unfinished", "checkpoint-3"):
        folder = tmp_path / sign
        assert not is_killed_run(folder)
        folder.mkdir()
        for name in ("model.safetensors", sign):
            (folder / name).touch()
        assert holds_a_run(folder) and is_killed_run(folder) == (sign != "config.json")  # whoever made that model
        (folder / "all_results.json").touch()
        assert not is_killed_run(folder)


def test_an_interrupted_save_leaves_the_older_ones_and_a_whole_one_all_that_it_was_given(accelerator, saved, tmp_path):
    entry = {"step": 1, "loss": 0.123456789012345}
    state = TrainState(step=200, window_loss=0.1, log_history=[entry], identity={"seed": 1})
    with pytest.MonkeyPatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(os, "fsync", lambda _: (_ for _ in ()).throw(KeyboardInterrupt))
        save_checkpoint(accelerator, state, tmp_path)
    assert find_checkpoint("auto", tmp_path) == saved[-1]
    folder = save_checkpoint(accelerator, state, tmp_path)
    assert find_checkpoint("auto", tmp_path) == folder and TrainState.read(folder) == state
    # Earlier versions recorded less, and the identity under another name.
    (folder / "trainer_state.json").write_text('{"step": 200, "run": {"seed": 1}}')
    assert TrainState.read(folder) == TrainState(step=200, identity={"seed": 1})


def test_a_failed_save_changes_nothing_and_no_manifest_stands_beside_what_it_does_not_describe(tmp_path, monkeypatch):
    """Killed after any of the moves that replace files; a failure before these has changed nothing."""
    names, replace = ("config.json", "model.safetensors", "trainer_state.json", "zoo_manifest.json"), os.replace

    def written(folder: Path, text: str) -> dict[str, str]:
        return {name: text for name in names if (folder / name).write_text(text)}

    for moves in range(len(names) + 1):
        old = written(tmp_path, "old")
        with suppress(OSError), atomic_files(tmp_path, checkpoints.WRITE_LAST) as folder:
            written(folder, "new")
            raise OSError
        assert {path.name: path.read_text() for path in tmp_path.iterdir()} == old
        left = [None] * moves
        monkeypatch.setattr(os, "replace", lambda *paths, left=left: (left.pop(), replace(*paths)))
        with suppress(IndexError), atomic_files(tmp_path, checkpoints.WRITE_LAST) as folder:
            new = written(folder, "new")
        monkeypatch.undo()
        assert (tmp_path / "zoo_manifest.json").exists() == (moves == len(names))
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == new


LAUNCHED = {"mixed_precision": "bf16", "engine": "DDP"}
STARS = {"label_column_name": "stars"}  # as version 0.2 recorded a column


@pytest.mark.parametrize(
    ("recorded", "now", "message"),
    [
        ({"seed": 1}, {"seed": 2}, "another run: seed was 1 and is 2"),
        ({"training texts": "a"}, {"training texts": "b"}, "texts was a and is b; .*; labels count as texts, too"),
        ({"freeze_epochs": 1}, {}, "its run has freeze_epochs, which this version does not have"),
        (STARS, {"label_column_name": ["stars"], "problem_type": None, "metrics": None}, None),
        (STARS | {"label_all_tokens": False}, STARS, None),  # of tags
        # Earlier versions did not record what the launcher decides.
        ({"mixed_precision": None}, LAUNCHED, None),
        ({"mixed_precision": "no"}, LAUNCHED, "another run"),
        ({"lora_target_modules": ["v", "q"]}, {"lora_target_modules": ["q", "v"]}, None),
        ({"freeze": ["v"]}, {"freeze": None}, "another run"),
        ({"lora_rank": 0, "lora_alpha": 16}, checkpoints.identity_of({}, TrainingOptions()), None),  # of no adapters
    ],
)
def test_another_run_is_not_continued(tmp_path, recorded, now, message):
    TrainState(identity=recorded).write(tmp_path)
    with pytest.raises(ValueError, match=message) if message else nullcontext():
        checkpoints.check_identity(TrainState.read(tmp_path), now)
