"""What a user did wrong is told in one line; anything that goes wrong while training shows where."""

import weakref

import pytest
import torch
from accelerate import Accelerator

from tfm_zoo.hub import PushError
from tfm_zoo.training.runs import end_training, run_script


def fail(error: Exception) -> None:
    raise error


@pytest.mark.parametrize("error", [ValueError("no such column"), FileNotFoundError("no such file")])
def test_errors_before_training_are_one_line(error, capsys):
    with pytest.raises(SystemExit) as stopped:
        run_script(lambda: fail(error), lambda prepared: pytest.fail("training was begun"))
    assert stopped.value.code == 2
    assert capsys.readouterr().err.endswith(f": error: {error}\n")


@pytest.mark.parametrize("error", [ValueError("a shape"), OSError("disk full"), FloatingPointError("the loss is nan")])
def test_errors_of_training_keep_their_traceback(error):
    with pytest.raises(type(error), match=str(error)):
        run_script(lambda: error, fail)


def test_an_upload_that_fails_is_one_line(capsys):
    with pytest.raises(SystemExit):
        run_script(lambda: PushError("push again"), fail)
    assert capsys.readouterr().err.endswith("error: push again\n")


def test_a_traceback_is_shown_on_request(monkeypatch):
    monkeypatch.setenv("TFM_ZOO_TRACEBACK", "1")
    with pytest.raises(ValueError, match="no such column"):
        run_script(lambda: fail(ValueError("no such column")), fail)


def test_models_are_freed_before_the_processes_end(monkeypatch):
    """With DDP a model that is freed later can keep its process from ever exiting."""
    accelerator = Accelerator(cpu=True)
    model = accelerator.prepare(torch.nn.Linear(2, 2))
    model.__dict__["itself"] = model
    reference, were_freed = weakref.ref(model), []
    monkeypatch.setattr(Accelerator, "end_training", lambda _: were_freed.append(reference() is None))
    del model
    end_training(accelerator)
    assert were_freed == [True]
