"""A run takes the steps that it was told, keeps its best model, logs what it does, and goes on as if never stopped."""

from argparse import Namespace
from dataclasses import asdict
from math import nan
from unittest.mock import Mock

import pytest
import torch
from accelerate import Accelerator
from safetensors.torch import load_file

import tfm_zoo
from tfm_zoo.hub import PushError
from tfm_zoo.training import report, run
from tfm_zoo.training.loop import Loop, train, train_step
from tfm_zoo.training.tasks import classification
from tfm_zoo.training.tasks.language_modeling import LanguageModelingTask
from tfm_zoo.training.tasks.pretraining import PretrainingTask

from ..recipes.conftest import CLOCK, interrupted, logged, same_weights
from ..tiny import NO_DROPOUT, ragged_batch, tiny_model
from .conftest import classifier

TASKS = {
    tfm_zoo.TfmBertForSequenceClassification: classification.ClassificationTask,
    tfm_zoo.TfmBertForPreTraining: PretrainingTask,
    tfm_zoo.TfmGPTForCausalLM: LanguageModelingTask,
}


@pytest.mark.parametrize(("head", "task_class"), TASKS.items())
def test_what_has_no_label_changes_nothing(head, task_class, accelerator):
    """A forward pass without a label adds nothing to its step; a step without one neither moves nor decays a weight."""
    batch = ragged_batch(head, labels=True)
    labels = {*task_class.label_of_loss.values(), "end_positions"} & batch.keys()
    empty = batch | {name: torch.full_like(batch[name], -100) for name in labels}
    needed = {"run": run.Run("", accelerator, classification.ClassificationOptions()), "is_zoo": True}

    def trained(*steps):
        task, model = task_class.__new__(task_class), tiny_model(head, **NO_DROPOUT).train()
        vars(task).update(needed, data=classification.LabelledTexts({}, [], [], [], classification.ONE_LABEL))
        optimizer = task.accelerator.prepare(torch.optim.AdamW(model.parameters(), weight_decay=0.1))
        schedule = torch.optim.lr_scheduler.ConstantLR(optimizer.optimizer)
        return [train_step(task, model, optimizer, schedule, step) for step in steps], model.state_dict()

    (first, second), wanted = trained([batch], [batch])
    taken, weights = trained([batch, empty], [empty, empty], [empty, batch])
    assert taken == [first, (0, 0), second]
    torch.testing.assert_close(weights, wanted, rtol=0, atol=0)


def test_dropout_is_on_in_training_and_off_in_evaluations(loop):
    """From the first step on, and after evaluations."""
    made, modes = loop(max_train_steps=3, eval_steps=1), []
    made.model.register_forward_pre_hook(lambda model, _: modes.append((torch.is_grad_enabled(), model.training)))
    made.train()
    assert [training for learns, training in modes if learns] == [True] * 3
    assert [training for learns, training in modes if not learns].count(False) == len(modes) - 3 >= 3


def evaluating(made: Loop, *figures: tuple[float, float]) -> Loop:
    """The loop, whose evaluations give these accuracies and losses."""
    given = iter(figures)
    made.task.compute_metrics = lambda computed, split: dict(zip(("accuracy", "loss"), next(given), strict=True))
    return made


BY_LOSS = {"metric_for_best_model": "eval_loss"}  # as in the log


@pytest.mark.parametrize(
    ("options", "figures", "best", "steps"),
    [
        ({}, [(0.5, 0.9), (0.7, 0.8), (0.6, 0.7)], 2, 3),
        ({"greater_is_better": False}, [(0.5, 0.9), (0.7, 0.8), (0.4, 0.7)], 3, 3),
        (BY_LOSS, [(0.7, 0.9), (0.5, 0.7), (0.6, 0.8)], 2, 3),
        (BY_LOSS, [(0.5, nan), (0.5, nan), (0.5, 0.7), (0.5, nan), (0.5, 0.8)], 3, 5),
        # Of equal metrics the lower loss is the best; for early stopping that is not a gain.
        ({"early_stopping_patience": 3}, [(0.5, 0.9), (0.5, 0.8), (0.5, 0.85), (0.4, 0.1)], 2, 4),
    ],
)
def test_the_best_is_what_the_metric_says_and_is_kept(loop, options, figures, best, steps):
    options = {"max_train_steps": 9 if "early_stopping_patience" in options else steps} | options
    made = evaluating(loop(eval_steps=1, checkpointing_steps=1, save_total_limit=9, **options), *figures)
    made.train()
    results = report.results_of(made.state)
    assert (made.state.step, results["best_step"]) == (steps, best)
    assert (results["eval_accuracy"], results["eval_loss"]) == figures[best - 1]
    assert same_weights(made.output_dir, made.output_dir / f"checkpoint-{best}")


def test_rate_clipping_and_decay_reach_the_optimiser(trained):
    """The schedule warms up and decays."""
    rates = logged(trained(max_train_steps=6, warmup_steps=2, learning_rate=6e-3), "learning_rate")
    assert rates == pytest.approx([3e-3, 6e-3, 4.5e-3, 3e-3, 1.5e-3, 0.0])
    options = {"num_train_epochs": 1, "learning_rate": 1e-2}
    plain = trained(**options)
    for option in ({"max_grad_norm": 1e-9}, {"weight_decay": 1.0}):
        changed = trained(**options, **option)
        assert logged(changed, "loss")[-1] != pytest.approx(logged(plain, "loss")[-1], abs=1e-6)
        assert logged(changed, "grad_norm")[0] == logged(plain, "grad_norm")[0]


def test_bf16_and_gradient_checkpointing_run(trained, loop):
    plain = trained(num_train_epochs=1)
    rounded = loop(num_train_epochs=1, mixed_precision="bf16", gradient_checkpointing=True)
    train(rounded)
    assert "| mixed precision | bf16 |" in (rounded.output_dir / "README.md").read_text()
    assert logged(rounded, "loss") == pytest.approx(logged(plain, "loss"), abs=0.02)
    assert logged(rounded, "loss") != logged(plain, "loss")
    assert load_file(rounded.output_dir / "model.safetensors")["classifier.out_proj.weight"].dtype == torch.float32


def test_a_loss_that_is_no_number_stops_the_run_and_so_does_a_best_metric_that_nothing_computes(loop):
    with pytest.raises(ValueError, match=r"'f1': expected one of \['loss', 'accuracy', 'samples_per_second'\]"):
        loop(metric_for_best_model="f1", eval_steps=1).train()
    (made := loop(greater_is_better=True)).task.check_best({"loss": 1.0})  # accuracy is missing
    assert made.args.metric_for_best_model == "loss" and not made.args.is_higher_better
    torch.nn.init.constant_(made.task.model.classifier.out_proj.weight, float("nan"))
    with pytest.raises(FloatingPointError, match="the loss is nan at step 1: try a lower learning_rate"):
        made.train()


def test_losses_are_means_of_the_steps_since_the_last_entry(trained):
    """The last entry is of the steps that are left."""
    each = logged(trained(max_train_steps=7), "loss")
    means = trained(max_train_steps=7, logging_steps=3)
    assert logged(means, "loss") == pytest.approx([sum(part) / len(part) for part in (each[:3], each[3:6], each[6:])])
    assert report.results_of(means.state)["train_loss"] == pytest.approx(sum(each) / 7)


def test_a_run_is_not_overwritten_unasked(loop):
    first = loop(max_train_steps=2, checkpointing_steps=1)
    folder = first.output_dir
    (folder / "README.md").write_text("# Mine\n")
    train(first)
    assert (folder / "README.md").read_text() == "# Mine\n"  # a person's card is kept
    with pytest.raises(FileExistsError, match=r"holds a run: give another folder, --resume_from_checkpoint auto"):
        loop(output_dir=folder)
    for name in ("checkpoint-notes/a", "adapter/adapter_config.json", "merges.txt", "own.txt"):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).touch()
    before, new = {*folder.rglob("*")}, {"model": tiny_model(tfm_zoo.TfmGPTForSequenceClassification)}
    with pytest.raises(ConnectionError), pytest.MonkeyPatch.context() as patch:  # a tracker's: nothing is deleted yet
        patch.setattr(Accelerator, "init_trackers", Mock(side_effect=ConnectionError))
        loop(output_dir=folder, max_train_steps=1, overwrite_output_dir=True).begin()
    assert {*folder.rglob("*")} == before
    train(fresh := loop(**new, max_train_steps=1))
    train(loop(**new, output_dir=folder, max_train_steps=1, overwrite_output_dir=True))
    # Nothing of the old run is left to be resumed, loaded or pushed. What somebody else has put there stays.
    left = {path.name for path in folder.iterdir()} - {path.name for path in fresh.output_dir.iterdir()}
    assert left == {"checkpoint-notes", "own.txt"}
    for auto, message in [(None, "a run: give another folder, or --o"), ("auto", "a run and no checkpoint to go on f")]:
        with pytest.raises(FileExistsError, match=f"holds {message}"):  # a finished one
            loop(output_dir=folder, max_train_steps=1, resume_from_checkpoint=auto)
    # Another run may begin and end while this one reads its data.
    with pytest.raises(FileExistsError, match="holds a run: give another folder"):
        first.has_begun = False
        first.begin()
    # Killed before its first checkpoint, it begins again, as where a cluster restarts it.
    (folder / "all_results.json").unlink()
    again = {"output_dir": folder, "max_train_steps": 1, "resume_from_checkpoint": "auto", "checkpointing_steps": 1}
    results = train(loop(**again))
    assert results["train_steps"] == 1
    assert train(loop(**again))["eval_loss"] == results["eval_loss"]  # evaluates its best model again


def test_what_is_only_prepared_or_refused_leaves_everything_as_it_was(loop, trained, tmp_path, monkeypatch):
    """Here, and on the Hub, which nobody asks before training."""

    def refuse(*_: object) -> None:
        raise PermissionError("403: you may not write there")

    monkeypatch.setattr(report, "open_repository", refuse)
    trained(output_dir=tmp_path / "runs" / "old", max_train_steps=2, checkpointing_steps=1)
    before = {*(tmp_path / "runs").rglob("*")}
    for name in ("old", "new/run"):
        made = loop(output_dir=tmp_path / "runs" / name, overwrite_output_dir=True, push_to_hub=True)
        assert {*(tmp_path / "runs").rglob("*")} == before
        with pytest.raises(PermissionError, match="403"):
            made.train()
        assert {*(tmp_path / "runs").rglob("*")} == before and made.state.step == 0


def test_a_model_is_pushed_by_the_name_that_it_is_given_or_else_that_of_its_folder(loop, monkeypatch):
    """Last of all, so that an error of the Hub loses nothing."""
    names = []
    monkeypatch.setattr(report, "open_repository", lambda api, name, *_: names.append(name) or f"user/{name}")
    monkeypatch.setattr(report, "push", lambda repo_id, **_: names.append(repo_id) or Namespace(commit_url=""))
    for given in (None, "fine"):
        made = loop(push_to_hub=True, hub_model_id=given, max_train_steps=1)
        train(made)
        name = given or made.output_dir.name
        assert names[-2:] == [name, f"user/{name}"] and f"user/{name}" in (made.output_dir / "README.md").read_text()
    monkeypatch.setattr(report, "push", Mock(side_effect=ValueError("user/fine is public.")))
    made = loop(push_to_hub=True, hub_private_repo=True, max_train_steps=1)
    with pytest.raises(PushError, match=r"is public. Then push again: tfm-zoo push .* user/.* --private$"):
        train(made)
    assert (made.output_dir / "all_results.json").exists() and made.model is None  # the processes have ended


def test_what_a_launcher_decides_is_part_of_a_run(loop, trained, monkeypatch):
    """A run goes on with the same precision, whoever names it."""
    options = {"max_train_steps": 2, "checkpointing_steps": 1}
    monkeypatch.setenv("ACCELERATE_MIXED_PRECISION", "bf16")
    first = trained(**options)
    monkeypatch.delenv("ACCELERATE_MIXED_PRECISION")
    again = {"output_dir": first.output_dir, "resume_from_checkpoint": first.output_dir / "checkpoint-1"}
    with pytest.raises(ValueError, match="another run: mixed_precision was bf16 and is no"):
        trained(**options, **again)
    assert trained(**options, **again, mixed_precision="bf16").state.step == 2
    monkeypatch.setenv("ACCELERATE_GRADIENT_ACCUMULATION_STEPS", "2")
    assert trained(per_device_train_batch_size=4, max_train_steps=1).batch_sampler.division.global_batch_size == 8
    with pytest.raises(ValueError, match="gradient_accumulation_steps 3: the launcher asks for 2; give one number"):
        loop(gradient_accumulation_steps=3)


def without_clock(made: Loop) -> dict:
    log = [{name: entry[name] for name in entry.keys() - CLOCK} for entry in made.state.log_history]
    return asdict(made.state) | {"train_seconds": 0, "log_history": log}


def test_resumed_is_as_never_stopped_in_its_folder_and_with_its_own_options_alone(trained, loop, tmp_path, capfd):
    """With dropout and batches of similar length; from the midst of an epoch, between two entries of the log."""
    options = {"max_train_steps": 7, "checkpointing_steps": 3, "logging_steps": 2, "group_by_length": True}
    dropout = {"hidden_dropout": 0.1, "attention_dropout": 0.1}
    whole = trained(classifier(**dropout), **options)
    stopped = interrupted(loop(classifier(**dropout), **options), after=5)
    with pytest.raises(KeyboardInterrupt):
        train(stopped)
    assert "Stopped at step 5 of 7: --resume_from_checkpoint goes on from checkpoint-3" in capfd.readouterr().err
    again = options | {"output_dir": stopped.output_dir, "resume_from_checkpoint": stopped.output_dir / "checkpoint-3"}
    for other, message in [
        ({"freeze": "classifier"}, r"another run: freeze was None and is \['classifier'\]"),
        ({"per_device_train_batch_size": 3}, "another run: global_batch_size was 16 and is 3"),
        ({"output_dir": tmp_path / "other"}, r"checkpoint-3' is not in output_dir '.*other'"),
    ]:
        with pytest.raises(ValueError, match=message):
            trained(**again | other)
    auto = again | {"resume_from_checkpoint": "auto"}
    late = loop(classifier(**dropout), **auto)  # while another restart of the run trains
    resumed = trained(classifier(**dropout), **auto)
    late.begin()
    assert late.state.step == 6 and without_clock(resumed) == without_clock(whole)
    for folder in (".", "checkpoint-6"):
        assert same_weights(resumed.output_dir / folder, whole.output_dir / folder)


def test_a_run_becomes_longer_and_logs_less_often(trained, caplog):
    """From there on it is the longer run, whose warm-up is longer, too. It cannot become shorter than it is."""
    options = {"checkpointing_steps": 3, "num_train_epochs": 1, "warmup_steps": 0.25}
    first, longer = trained(**options), options | {"num_train_epochs": 2}
    whole = trained(**longer)
    again = {"output_dir": first.output_dir, "resume_from_checkpoint": "auto", "logging_steps": 2}
    resumed = trained(**longer | again)
    assert "Continuing with total_steps 8, which was 4" in caplog.text
    assert resumed.state.changes == ["total_steps was 4 up to step 3, then 8"]
    assert logged(resumed, "learning_rate")[3:] == logged(whole, "learning_rate")[3::2][:3]
    last = trained(**options | again | {"output_dir": whole.output_dir, "max_train_steps": 6})  # without a step
    assert any(entry["step"] == 6 and "eval_loss" in entry for entry in last.state.log_history)
    with pytest.raises(ValueError, match="checkpoint-6 is of step 6, of 4 now"):
        trained(**longer | again | {"num_train_epochs": 1})


def test_the_model_of_a_dead_run_is_not_the_best(loop, caplog):
    """A run is resumed from before its best evaluation, and does not come to it again."""
    options = BY_LOSS | {"max_train_steps": 4, "eval_steps": 1, "checkpointing_steps": 1, "save_total_limit": 9}
    dead = evaluating(loop(**options), *((0, loss) for loss in (4.0, 3.0, 2.0, 1.0)))
    dead.train()
    folder = dead.output_dir
    resumed = loop(output_dir=folder, resume_from_checkpoint=folder / "checkpoint-2", **options)
    evaluating(resumed, (0, 8.0), (0, 9.0)).train()
    assert "has another model than the best at checkpoint-2" in caplog.text
    results = report.results_of(resumed.state)
    assert (results["best_step"], results["eval_loss"]) == (3, 8.0) and same_weights(folder, folder / "checkpoint-3")
