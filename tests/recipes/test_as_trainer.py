"""A task in transformers' Trainer: the same losses and figures as in the recipes' own loop, of any task."""

import shutil

import pytest
import torch
from transformers import TrainerCallback, TrainingArguments

from tfm_zoo.training.checkpoints import TrainState
from tfm_zoo.training.trainer import as_trainer

from .conftest import SIZES, logged

NEW = {"config_overrides": f"{SIZES},hidden_dropout=0,attention_dropout=0"}
TASKS = {"classification": {}, "lists": {}, "tagging": NEW, "questions": NEW}
TASKS["causal_lm"] = NEW | {"sample_length": 0}
TASKS["summaries"] = NEW | {"per_device_train_batch_tokens": 0, "num_eval_texts": 0}
#: of the loop and of the Trainer alike; the Trainer rounds a share of steps up
PLAIN = {"gradient_accumulation_steps": 2, "max_train_steps": 3, "eval_steps": 3, "warmup_steps": 0, "logging_steps": 1}


@pytest.mark.parametrize("name", TASKS)
def test_losses_and_figures_are_those_of_the_loop(recipe, name, monkeypatch):
    monkeypatch.setattr(torch, "randperm", lambda size, **options: torch.arange(size))  # the loop's order of examples
    made, options = recipe(name), PLAIN | TASKS[name]
    loop = made.prepare(**options)
    loop.batch_sampler.lengths = None  # a translator's batches are of similar lengths
    loop.train()
    task = made.task(overwrite_output_dir=True, **options)
    trainer = as_trainer(task, {"optim": "adamw_torch", "disable_tqdm": True})
    trainer._get_train_sampler = lambda *args: torch.utils.data.SequentialSampler(trainer.train_dataset)
    trainer.train()
    assert logged(trainer, "loss") == pytest.approx(logged(loop, "loss"), rel=1e-4) and loop.state.step == 3
    both = [[entry for entry in each.state.log_history if "eval_loss" in entry] for each in (trainer, loop)]
    known = {key for key in both[0][0] if key.startswith("eval_") and "second" not in key and "runtime" not in key}
    assert len(known) > 1 and len(both[0]) == 1
    torch.testing.assert_close(*({key: log[0][key] for key in known} for log in both), rtol=1e-4, atol=2e-5)


def test_settings_callbacks_loss_and_splits_are_the_callers(recipe, tmp_path):
    """Evaluations have the task's loss."""
    options = {"lr_scheduler_type": "cosine_with_restarts", "lr_scheduler_kwargs": "num_cycles=2"}
    options |= {"gradient_checkpointing": True, "pad_to_max_length": True, "max_seq_length": 40}
    steps, task = [], recipe("lists").task(group_by_length=True, sync_each_batch=True, **options)
    counting = TrainerCallback()
    counting.on_step_end = lambda *args, **kwargs: steps.append(1)

    def own_loss(outputs, labels, num_items_in_batch):
        return (outputs.logits * 0).sum() + num_items_in_batch * 2

    changes = {"optim": "adafactor", "max_steps": 2, "logging_steps": 1, "eval_strategy": "no", "disable_tqdm": True}
    trainer = as_trainer(task, changes, callbacks=[counting], compute_loss_func=own_loss)
    assert (trainer.args.optim, trainer.args.learning_rate) == ("adafactor", task.args.learning_rate)
    assert trainer.args.accelerator_config.gradient_accumulation_kwargs["sync_each_batch"]
    assert trainer.args.train_sampling_strategy == "group_by_length"
    trainer.train()
    width = next(iter(trainer.get_train_dataloader()))["input_ids"].shape[1]
    assert trainer.model.is_gradient_checkpointing and width == 40
    assert len(steps) == 2 and logged(trainer, "loss") == [2 * 16 * 2] * 2
    test = trainer.evaluate(task.splits["test"], metric_key_prefix="test")
    assert 0.5 < test["test_loss"] < 1 and "test_f1" in test and trainer.split == "test"
    trainer.save_model()
    assert '"tokenizer.json":' in (tmp_path / "run" / "zoo_manifest.json").read_text()


def test_it_goes_on_by_an_option_alone_and_otherwise_deletes_nothing(recipe, tmp_path):
    """It ends with the best model, if an option names its metric."""
    made, kept, quiet = recipe("tagging"), tmp_path / "run" / "checkpoint-2", {"disable_tqdm": True}
    options = {"checkpointing_steps": 1, "eval_steps": 1, "metric_for_best_model": "loss", "learning_rate": 0.3}
    whole = as_trainer(made.task(**options), quiet | {"save_total_limit": 9})
    whole.train()
    losses = logged(whole, "eval_loss")
    assert min(losses) < losses[-1] and whole.evaluate()["eval_loss"] == pytest.approx(min(losses))
    shutil.rmtree(kept.with_name("checkpoint-3"))
    with pytest.raises(FileExistsError, match="--resume_from_checkpoint auto to go on"):
        as_trainer(made.task(output_dir=tmp_path / "other"), TrainingArguments(str(kept.parent))).train()
    with pytest.raises(ValueError, match="takes a task of a recipe; transformers' Trainer takes a TaskTrainer"):
        as_trainer(whole)
    (kept / "mark").touch()
    assert TrainState.read(kept).identity == {}  # as predict.py asks it
    with pytest.raises(ValueError, match=r"another run: learning_rate was 0.3 and is 0.1; give what it was"):
        as_trainer(made.task(resume_from_checkpoint="auto", **options | {"learning_rate": 0.1}), quiet).train()
    again = as_trainer(made.task(resume_from_checkpoint="auto", **options), quiet)
    again.train()
    again.train(resume_from_checkpoint=True)
    assert logged(again, "eval_loss")[:3] == losses and (kept / "mark").exists()
    with pytest.raises(ValueError, match="is of transformers' Trainer: go on with as_trainer"):
        made.resumed(resume_from_checkpoint="auto", **options)


@pytest.mark.parametrize(
    ("task", "options", "message"),
    [
        ("classification", {"freeze": ["embeddings"]}, "does not read freeze: leave it out"),
        ("classification", {"metric_for_best_model": "f1", "checkpointing_steps": 3}, "give checkpointing_steps epoch"),
        ("translation", {}, "does not read per_device_train_batch_tokens: give 0"),
        ("causal_lm", {"streaming": True, "sample_length": 0}, "this task reads a stream"),
    ],
)
def test_what_the_trainer_does_not_do_is_refused(recipe, texts, task, options, message):
    stream = {"max_train_steps": 2, "validation_file": texts / "held_out.txt"} if "streaming" in options else {}
    with pytest.raises(ValueError, match=message):
        as_trainer(recipe(task).task(**options, **stream))
