"""What a run leaves beside its model: its results, a picture of the training, and a card; and what it pushes."""

import inspect
import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

import accelerate
import datasets
import torch
import transformers
from huggingface_hub import EvalResult, HfApi, ModelCardData
from jinja2 import Template
from transformers import PreTrainedModel

from tfm_zoo.data.splits import pluralize
from tfm_zoo.hub.cards import facts_of_zoo_model, licence_of, write_card
from tfm_zoo.hub.model_card import tags_of
from tfm_zoo.hub.pushing import PushError, push, push_command, told_if_unreachable
from tfm_zoo.hub.uploading import open_repository
from tfm_zoo.training.checkpoints import RESULTS_FILE, TrainState
from tfm_zoo.training.options import TrainingOptions
from tfm_zoo.training.run import Run
from tfm_zoo.training.task import PREFIXES, Task
from tfm_zoo.utils.errors import in_one_line
from tfm_zoo.utils.locking import write_json
from tfm_zoo.utils.published import command_line, hub_id, shortened
from tfm_zoo.visualization import plot_training

logger = logging.getLogger(__name__)

PICTURE = "training_curves.png"
VERSIONED = (transformers, torch, accelerate, datasets)


def write_report(task: Task, model: PreTrainedModel, state: TrainState, results: dict[str, Any]) -> None:
    """Write results, picture and card beside the best model. `model` may lack its values."""
    args, output_dir = task.args, Path(task.args.output_dir)
    write_json(output_dir / RESULTS_FILE, results)
    state.write(output_dir)  # replaces that of the best step; `best_step` still names it
    values = values_of_card(task, model, state, results)
    plot_training(state.log_history, output_dir / PICTURE, *values["plotted"], best_step=state.best_step)
    values |= facts_of_zoo_model(model) if task.is_zoo else {"model": model}
    source = args.hub_model_id or shortened(args.output_dir)  # by which `from_pretrained` loads the model
    metadata = metadata_of_card(task, model, results, values["name"])
    if not write_card(output_dir, template_file(type(task)), metadata, source, **values):
        logger.warning(f"{output_dir}/README.md was not written by this recipe: it is left as it is")
    logger.info(", ".join(f"{name} {value:.4g}" for name, value in results.items()))
    logger.info(f"The best model (by {args.metric_for_best_model}) is in {output_dir}")


def results_of(state: TrainState) -> dict[str, float]:
    """Losses and times of training, and the metrics of the best model on the validation split."""
    best = next(e for e in state.log_history if e["step"] == state.best_step and "eval_loss" in e)
    return {
        "best_step": state.best_step,
        "train_steps": state.step,
        "train_loss": state.loss_sum / state.step,
        "train_runtime": state.train_seconds,
        "train_samples_per_second": state.train_examples / state.train_seconds,
        **{name: value for name, value in best.items() if name.startswith("eval_")},
    }


def open_hub_repository(run: Run) -> Run:
    """Open the repository to push to: a missing permission must show before training. Returns the run with its name."""
    args, api = run.args, HfApi(token=run.args.hub_token)
    with told_if_unreachable(api, "train without push_to_hub, and run `tfm-zoo push` when there is a connection"):
        repository = open_repository(api, repository_of(args), args.hub_private_repo, args.hub_revision)
    return replace(run, args=replace(args, hub_model_id=repository))


def push_model(task: Task) -> None:
    """Upload the best model, as it lies in its folder. Every error is a `PushError`, and says how to push again."""
    args = task.args
    what = {"folder": args.output_dir, "repo_id": args.hub_model_id, "native": not task.is_zoo}
    what |= {"private": args.hub_private_repo, "revision": args.hub_revision}
    try:
        commit = push(**what, token=args.hub_token)
    except (OSError, ValueError) as error:  # such as that of a repository that became public
        raise PushError(f"{in_one_line(error)}. Then push again: {push_command(**what)}") from error
    logger.info(f"Pushed to {commit.commit_url}")


def metadata_of_card(task: Task, model: PreTrainedModel, results: dict[str, Any], name: str) -> ModelCardData:
    """The metadata of the card of a model of this name, which the Hub reads."""
    args = task.args
    dataset_id = None if args.is_generated else hub_id(args.dataset_name)
    prefix = PREFIXES[task.final_split]
    names = metric_names(results, prefix)
    # losses say little to a reader, where there are other metrics
    names = [name for name in names if not name.endswith(("loss", "perplexity"))] or names
    values = {name: round(results[f"{prefix}_{name}"], 4) for name in names}
    known = {
        "task_type": task.pipeline_tag,
        "dataset_type": dataset_id or "local",
        "dataset_name": Path(shortened(args.source)).resolve().name,
        "dataset_config": args.dataset_config_name,
    }
    return ModelCardData(
        language=task.languages,
        library_name="transformers",
        pipeline_tag=task.pipeline_tag,
        license=licence_of(args.model_name_or_path) if args.model_name_or_path else None,
        tags=tags_of(model) if task.is_zoo else None,
        datasets=[dataset_id] if dataset_id else None,
        metrics=names,
        base_model=hub_id(args.model_name_or_path),
        model_name=name,
        eval_results=[
            EvalResult(metric_type=name, metric_name=task.metric_titles.get(name, name), metric_value=value, **known)
            for name, value in values.items()
        ],
    )


def values_of_card(task: Task, model: PreTrainedModel, state: TrainState, results: dict[str, Any]) -> dict[str, Any]:
    """The variables of the templates. `write_report` adds those of `facts_of_zoo_model`, and `write_card` some more."""
    args, names = task.args, metric_names(results, "eval")
    titles = {name: task.metric_titles.get(name, name) for name in [*task.metric_titles, *names] if name in names}
    # Under the losses, the picture shows what picks the best model or, if the loss does, every other metric: those that
    # the first evaluation has, too, since a resumed run may have others.
    best, first = args.metric_for_best_model, next(entry for entry in state.log_history if "eval_loss" in entry)
    return {
        "base_card": template(Task),  # what all cards share, whose blocks a task's template fills
        "parent_card": template(type(task).__base__),  # and what those of similar tasks share
        "run": task.run,
        "task": task,
        "name": Path(repository_of(args)).name,
        "base_model": args.model_name_or_path and shortened(args.model_name_or_path),
        "dataset": shortened(args.source),
        "args": args,
        "state": state,
        "results": results,
        "splits": {prefix: split for split, prefix in PREFIXES.items() if f"{prefix}_loss" in results},
        "titles": titles,
        "plotted": [n for n in titles if n != "loss" and f"eval_{n}" in first and best in (n, "loss")],
        "remote_code": ", trust_remote_code=True" if task.is_zoo else "",
        "picture": PICTURE,
        "command": command_line(),
        "processes": pluralize(task.accelerator.num_processes, "process"),
        "device": device(),
        "versions": [f"{module.__name__} {module.__version__}" for module in VERSIONED],
    }


def metric_names(results: dict[str, Any], prefix: str) -> list[str]:
    """The metrics of a split, without its speed."""
    names = [name.removeprefix(f"{prefix}_") for name in results if name.startswith(f"{prefix}_")]
    return [name for name in names if name != "samples_per_second"]


def repository_of(args: TrainingOptions) -> str:
    """The repository to push to, perhaps without its owner."""
    return args.hub_model_id or Path(args.output_dir).resolve().name


def template_file(task_class: type[Task]) -> Path:
    """The file of the template of a task's card, beside that of its class."""
    return Path(inspect.getfile(task_class)).with_suffix(".md")


def template(task_class: type[Task]) -> Template:
    """The template of a task's card, which others extend."""
    return Template(template_file(task_class).read_text(encoding="utf-8"), keep_trailing_newline=True)


def device() -> str:
    """What the run computed on."""
    if not torch.accelerator.is_available():
        return f"CPU, {pluralize(torch.get_num_threads(), 'thread')}"
    kind = torch.accelerator.current_accelerator().type
    return getattr(torch.get_device_module(kind), "get_device_name", kind.upper)()  # MPS has no name
