"""A user's mistake ends a run with one line; what its processes cannot do is refused. What others see of a run holds no
token: its command, and what trackers get."""

import weakref
from dataclasses import asdict

import pytest
import torch
from accelerate import Accelerator
from accelerate.state import AcceleratorState
from accelerate.utils import DeepSpeedPlugin

from tfm_zoo.hub import PushError
from tfm_zoo.training import report, run
from tfm_zoo.training.options import TrainingOptions
from tfm_zoo.training.run import end_training, errors_in_one_line, start_accelerator, tracker_values
from tfm_zoo.training.sharding import set_engine
from tfm_zoo.training.tasks.classification import ClassificationOptions
from tfm_zoo.utils.published import command_line

from ..recipes.conftest import forget_processes


@pytest.mark.parametrize("error", [ValueError("no such column"), FileNotFoundError("no such file"), PushError("again")])
def test_errors_of_a_user_are_one_line(error, capsys, monkeypatch):
    with pytest.raises(SystemExit) as stopped, errors_in_one_line():
        raise error
    said = capsys.readouterr().err
    assert stopped.value.code == 2 and said.endswith(f": error: {error}\n") and said.count("\n") == 1
    monkeypatch.setenv("TFM_ZOO_TRACEBACK", "1")
    with pytest.raises(type(error), match=str(error)), errors_in_one_line():
        raise error


def test_models_are_freed_before_the_processes_end(accelerator, monkeypatch):
    """With DDP a model that is freed later can keep its process from ever exiting."""
    model = accelerator.prepare(torch.nn.Linear(2, 2))
    model.__dict__["itself"] = model
    reference, were_freed = weakref.ref(model), []
    monkeypatch.setattr(Accelerator, "end_training", lambda _: were_freed.append(reference() is None))
    del model
    end_training(accelerator)
    assert were_freed == [True]


@pytest.mark.parametrize(
    ("report_to", "with_tracking", "found"),
    [(None, True, ["tensorboard"]), (["none"], True, []), (["all"], False, ["tensorboard"])],
)
def test_trackers_are_named_as_in_transformers(monkeypatch, report_to, with_tracking, found):
    monkeypatch.setattr(run, "get_available_trackers", lambda: ["tensorboard", "clearml"])
    monkeypatch.setattr("accelerate.accelerator.filter_trackers", lambda names, _: names or [])
    forget_processes()
    trackers = start_accelerator(TrainingOptions(report_to=report_to, with_tracking=with_tracking)).log_with
    assert [name.replace("all", "tensorboard") for name in trackers] == found
    with pytest.raises(ValueError, match=r"report_to 'wandbb' is not installed; choose from \['none'"):
        start_accelerator(TrainingOptions(report_to=["wandbb"]))


@pytest.mark.parametrize(("kind", "said"), [("mps", "MPS"), ("xpu", "Arc")])
def test_a_card_names_the_device(monkeypatch, kind, said):
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: True)
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda: torch.device(kind))
    monkeypatch.setattr(torch.xpu, "get_device_name", lambda: "Arc")
    assert report.device() == said


ON_A_CPU = [
    ("ACCELERATE_USE_FSDP", "true", "FSDP: Accelerate has it for GPUs"),  # it would train with DDP
    ("ACCELERATE_MIXED_PRECISION", "fp16", "mixed_precision 'fp16' is for GPUs: .*; give 'bf16' or 'no'"),
    ("MASTER_ADDR", "127.0.0.1", "several CPU processes: launch them with .* recipes/accelerate/cpu.yaml"),
]


@pytest.mark.skipif(torch.accelerator.is_available(), reason="is for a CPU")
@pytest.mark.parametrize(("name", "value", "message"), ON_A_CPU)
def test_what_the_processes_cannot_do_is_refused(monkeypatch, name, value, message):
    """Whether an option or the launcher asks for it."""
    monkeypatch.setenv(name, value)
    monkeypatch.setenv("ACCELERATE_USE_CPU", str(name == "MASTER_ADDR"))
    forget_processes()
    with pytest.raises(ValueError, match=message):
        start_accelerator(ClassificationOptions())


def test_a_published_command_has_no_token_and_no_paths_and_trackers_have_no_token():
    for token in ("--hub_token hf_secret", "--hub_token=hf_secret=secret", "--hub-token hf_secret"):
        relative = ["--validation_file", "../data/b.csv", "--resume_from_checkpoint", "checkpoint-2"]
        words = ["/home/me/recipes/finetune.py", *token.split(), *relative, "--train_file=/home/me/a b.csv"]
        command = command_line(words)
        assert "secret" not in command and command.startswith("accelerate launch recipes/finetune.py --hub")
        assert command.endswith("--validation_file ../data/b.csv '--train_file=a b.csv'  # local: a b.csv")
    values = tracker_values(TrainingOptions(hub_token="hf_secret"))
    assert "hf_secret" not in str(values) and values["eval_steps"] == "None"
    assert values.keys() | {"hub_token"} == asdict(TrainingOptions()).keys()


def test_deepspeed_is_told_what_it_has_to_know(accelerator, monkeypatch):
    plugin = DeepSpeedPlugin(zero_stage=2)
    settings = dict(plugin.deepspeed_config)
    monkeypatch.setattr(AcceleratorState, "deepspeed_plugin", plugin)
    set_engine(accelerator, TrainingOptions(gradient_accumulation_steps=2, per_device_train_batch_size=3))
    told = {"train_micro_batch_size_per_gpu": 3, "gradient_accumulation_steps": 1, "gradient_clipping": 1.0}
    assert plugin.deepspeed_config == settings | told
    plugin.deepspeed_config["gradient_accumulation_steps"] = 3
    with pytest.raises(ValueError, match="gradient_accumulation_steps 3: give it as an option of the recipe"):
        set_engine(accelerator, TrainingOptions(gradient_accumulation_steps=2))
    with pytest.raises(ValueError, match="freeze works on one process and with DDP"):
        set_engine(accelerator, TrainingOptions(freeze=["embeddings"]))
