"""A user's mistake ends a run with one line; what its processes cannot do is refused. What others see of a run holds no
token: its command, its pictures, what trackers get."""

import os
import weakref
from dataclasses import asdict

import pytest
import torch
from accelerate import Accelerator
from accelerate.commands.launch import _validate_launch_command, launch_command_parser
from accelerate.state import AcceleratorState
from accelerate.utils import DeepSpeedPlugin, DistributedType
from accelerate.utils.launch import prepare_simple_launcher_cmd_env

from tfm_zoo.hub import PushError
from tfm_zoo.training import run
from tfm_zoo.training.checkpoints import facts_of_launch
from tfm_zoo.training.options import TrainingOptions
from tfm_zoo.training.report import command_line
from tfm_zoo.training.run import end_training, errors_in_one_line, start_accelerator, tracker_values
from tfm_zoo.training.sharding import set_engine
from tfm_zoo.training.tasks.classification import ClassificationOptions
from tfm_zoo.visualization import plot_runs, plot_training

from ..recipes.conftest import forget_processes


@pytest.fixture
def accelerator() -> Accelerator:
    forget_processes()
    return Accelerator(cpu=True)


@pytest.mark.parametrize("error", [ValueError("no such column"), FileNotFoundError("no such file"), PushError("again")])
def test_errors_of_a_user_are_one_line(error, capsys, monkeypatch):
    with pytest.raises(SystemExit) as stopped, errors_in_one_line():
        raise error
    said = capsys.readouterr().err
    assert stopped.value.code == 2 and said.endswith(f": error: {error}\n") and said.count("\n") == 1
    monkeypatch.setenv("TFM_ZOO_TRACEBACK", "1")
    with pytest.raises(type(error), match=str(error)), errors_in_one_line():
        raise error


def test_the_engine_is_part_of_a_run(accelerator, monkeypatch):
    monkeypatch.setattr(AcceleratorState, "deepspeed_plugin", DeepSpeedPlugin(zero_stage=2))
    assert facts_of_launch(accelerator, TrainingOptions())["engine"] == "ZeRO-2"
    monkeypatch.setattr(AcceleratorState, "deepspeed_plugin", None)
    for engine in (DistributedType.FSDP, DistributedType.MULTI_GPU, DistributedType.NO):
        monkeypatch.setattr(Accelerator, "distributed_type", engine)
        assert facts_of_launch(accelerator, TrainingOptions())["engine"] == ("FSDP" if "FSDP" in engine else "DDP")


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
    [(None, True, ["tensorboard"]), (["none"], True, []), ("none", True, []), (["all"], False, ["tensorboard"])],
)
def test_trackers_are_named_as_in_transformers(monkeypatch, report_to, with_tracking, found):
    monkeypatch.setattr(run, "get_available_trackers", lambda: ["tensorboard", "clearml"])
    monkeypatch.setattr("accelerate.accelerator.filter_trackers", lambda names, _: names or [])
    forget_processes()
    trackers = start_accelerator(TrainingOptions(report_to=report_to, with_tracking=with_tracking)).log_with
    assert [name.replace("all", "tensorboard") for name in trackers] == found


def launched(*options: str) -> dict[str, str]:
    """What Accelerate's launcher tells the single process that it starts."""
    args, *_ = _validate_launch_command(launch_command_parser().parse_args([*options, "recipe.py"]))
    _, environment = prepare_simple_launcher_cmd_env(args)
    return {name: environment[name] for name in environment.keys() - os.environ.keys()}


FP16 = "mixed_precision 'fp16' is for GPUs: on a CPU it would change nothing; give 'bf16' or 'no'"
ON_A_CPU = [
    (lambda: {"ACCELERATE_USE_FSDP": "true"}, {}, "FSDP: Accelerate has it for GPUs"),  # it would train with DDP
    # Accelerate reads no other word. If 1 were taken for DeepSpeed, several processes would each train alone.
    *((lambda e=e, v=v: {f"ACCELERATE_USE_{e}": v}, {}, None) for e in ("FSDP", "DEEPSPEED") for v in ("", "1")),
    (lambda: {"ACCELERATE_MIXED_PRECISION": "fp16"}, {}, FP16),
    (lambda: launched("--cpu", "--num_processes", "2"), {}, "several CPU processes: launch them with .*/cpu"),
]


@pytest.mark.parametrize(
    ("environment", "options", "message"),
    [
        *([] if torch.accelerator.is_available() else ON_A_CPU),
        (dict, {"report_to": ["tensorboard", "wandbb"]}, r"report_to 'wandbb' is not installed; choose from \['none'"),
    ],
)
def test_what_the_processes_cannot_do_is_refused(monkeypatch, environment, options, message):
    """Whether an option or the launcher asks for it."""
    for name, value in environment().items():
        monkeypatch.setenv(name, value)
    forget_processes()
    if message:
        with pytest.raises(ValueError, match=message):
            start_accelerator(ClassificationOptions(**options))
    else:
        assert start_accelerator(ClassificationOptions(**options)).state._cpu


def test_a_published_command_has_no_token_and_no_paths_and_trackers_have_no_token():
    for token in ("--hub_token hf_secret", "--hub_token=hf_secret=secret", "--hub-token hf_secret"):
        relative = ["--validation_file", "../data/b.csv"]  # which is told as it is
        words = ["/home/me/recipes/finetune.py", *token.split(), *relative, "--train_file=/home/me/a b.csv"]
        command = command_line(words)
        assert "secret" not in command and command.startswith("accelerate launch recipes/finetune.py --hub")
        assert command.endswith("--validation_file ../data/b.csv '--train_file=a b.csv'")
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
    with pytest.raises(ValueError, match="freeze works on one process and with DDP"):
        set_engine(accelerator, TrainingOptions(freeze=["embeddings"]))


def test_pictures_show_what_was_logged(tmp_path, monkeypatch):
    """Losses and metrics of a run; several runs side by side, by steps and by time."""
    panels, path = [], tmp_path / "a.png"
    monkeypatch.setattr("matplotlib.figure.Figure.savefig", lambda figure, *_, **__: panels.append(figure.axes))

    def points() -> list:
        """What the panels of the last picture show."""
        return [[line.get_xydata().tolist() for line in panel.lines] for panel in panels[-1]]

    history = [{"step": 1, "loss": 0.9}, {"step": 2, "loss": 0.7}, {"step": 2, "eval_loss": 0.8, "eval_f1": 0.5}]
    plot_training(history, path, "f1", best_step=2)
    assert [shown[:-1] for shown in points()] == [[[[1, 0.9], [2, 0.7]], [[2, 0.8]]], [[[2, 0.5]]]]
    assert [panel.lines[-1].get_xdata() for panel in panels[-1]] == [[2, 2]] * 2

    one = [{"step": 5, "loss": 9.0}, {"step": 5, "eval_loss": 3.0, "train_runtime": 60.0}]
    two = [{"step": 4, "eval_loss": 2.5, "train_runtime": 30.0}, {"step": 8, "eval_loss": 2.0, "train_runtime": 90.0}]
    plot_runs({"one": one, "two": two}, path)
    assert points() == [[[[5, 3.0]], [[4, 2.5], [8, 2.0]]], [[[1, 3.0]], [[0.5, 2.5], [1.5, 2.0]]]]
    plot_runs({"one": [{"step": 5, "eval_loss": 3.0}], "two": two}, path)  # a time is not known
    assert len(points()) == 1
    with pytest.raises(ValueError, match="one: no validation loss"):
        plot_runs({"one": one[:1]}, path)
