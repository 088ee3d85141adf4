"""What a command writes is there as a whole or not at all, whoever else writes there, and whenever it is killed."""

import shutil
from pathlib import Path

import pytest
from filelock import FileLock

from tfm_zoo.converters import ConversionError
from tfm_zoo.converters.new_folders import new_folder
from tfm_zoo.converters.sources import no_folder


def write(out: Path, text: str, overwrite: bool = False) -> None:
    with new_folder(out, overwrite) as folder:
        (folder / "file").write_text(text)


def test_an_interrupt_leaves_nothing(tmp_path):
    with pytest.raises(KeyboardInterrupt), new_folder(tmp_path / "deep" / "out") as folder:
        (folder / "half").write_text("")
        raise KeyboardInterrupt
    assert not list(tmp_path.iterdir())


def test_two_at_a_time(tmp_path):
    """The second is told of the first, and may write when that has ended."""
    (tmp_path / ".out.partial").mkdir()
    with FileLock(tmp_path / ".out.partial" / "lock") as lock:
        Path(lock.lock_file).write_text("process 123 of there")
        with pytest.raises(FileExistsError, match=r"/out: process 123 of there writes there now; wait"):
            write(tmp_path / "out", "second", overwrite=True)
    write(tmp_path / "out", "third")
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_what_came_in_between_stays(tmp_path):
    with pytest.raises(ConversionError, match="exists and is not empty"), new_folder(tmp_path / "out"):
        (tmp_path / "out").mkdir()
        (tmp_path / "out" / "mine").write_text("precious")
    assert (tmp_path / "out" / "mine").read_text() == "precious"
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_killed_while_it_replaces(tmp_path, monkeypatch):
    """What is on the disk before and after each renaming is what a kill would leave there."""
    place, rename = tmp_path / "place", Path.rename
    states = []

    def observed(path: Path, target: Path) -> None:
        for act in (lambda: None, lambda: rename(path, target)):
            act()
            states.append(shutil.copytree(place, tmp_path / str(len(states))))

    place.mkdir()
    write(place / "out", "old")
    with monkeypatch.context() as patched:
        patched.setattr(Path, "rename", observed)
        write(place / "out", "new", overwrite=True)
    assert len(states) == 4
    for state in states:
        out = state / "out"
        is_found = out.exists() or str(state / ".out.partial" / "old") in no_folder(out)
        with pytest.raises(ConversionError, match="give --overwrite"):  # there is one again
            write(out, "newer")
        assert is_found and (out / "file").read_text() in ("old", "new")
        assert [path.name for path in state.iterdir()] == ["out"]
