"""What a run leaves beside its model: its results, a picture of the training, and a card."""

import inspect
import json
import logging
import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import accelerate
import datasets
import torch
import transformers
from huggingface_hub import EvalResult, ModelCardData
from jinja2 import Template
from transformers import PreTrainedModel

from tfm_zoo.hub import push
from tfm_zoo.hub.cards import facts_of_zoo_model, licence_of, write_card
from tfm_zoo.hub.model_card import tags_of
from tfm_zoo.proof.origin import TESTED
from tfm_zoo.training.checkpoints import RESULTS_FILE, TrainState
from tfm_zoo.training.data import pluralize
from tfm_zoo.training.run import Run
from tfm_zoo.training.task import Task
from tfm_zoo.utils.locking import atomic_file
from tfm_zoo.visualization import plot_training

logger = logging.getLogger(__name__)

PICTURE = "training_curves.png"
SPLITS = {"eval": "validation", "test": "test"}  # by the prefix of their metrics in the results
SPEED = "eval_samples_per_second"
VERSIONED = (transformers, torch, accelerate, datasets)


@dataclass
class Report:
    """A finished run, and what is written about it."""

    run: Run
    task: Task
    model: PreTrainedModel  # the best
    state: TrainState
    results: dict[str, Any]

    def __post_init__(self) -> None:
        args = self.run.args
        self.name = (args.hub_model_id or Path(args.output_dir).resolve().name).split("/")[-1]
        self.base_model = args.model_name_or_path  # None: training started from new weights
        self.dataset = shortened(args.source)
        names = [name.removeprefix("eval_") for name in self.results if name.startswith("eval_") and name != SPEED]
        self.titles = {
            name: self.task.metric_titles.get(name, name)
            for name in (*self.task.metric_titles, *names)
            if name in names
        }
        #: the metrics that are drawn under the losses: that which picks the best model or, if the loss does, all others
        best, first = (
            args.metric_for_best_model,
            next(entry for entry in self.state.log_history if "eval_loss" in entry),
        )
        loss = first["eval_loss"]
        self.drawn = [n for n in self.titles if first.get(f"eval_{n}", loss) != loss and best in (n, "loss")]

    def finish(self) -> None:
        """Write everything beside the model, push it if `push_to_hub` says so, and log the result."""
        args, output_dir = self.run.args, Path(self.run.args.output_dir)
        with atomic_file(output_dir / RESULTS_FILE) as file:
            file.write_text(json.dumps(self.results, indent=2) + "\n", encoding="utf-8")
        self.state.write(output_dir)
        plot_training(self.state.log_history, output_dir / PICTURE, *self.drawn, best_step=self.state.best_step)
        values = self.values() | (facts_of_zoo_model(self.model) if self.task.is_zoo else {})
        repository = args.hub_model_id or shortened(args.output_dir)  # by which `from_pretrained` loads the model
        if not write_card(output_dir, card_beside(type(self.task)), self.metadata(), repository, **values):
            logger.warning(f"{output_dir}/README.md was not written by this recipe: it is left as it is")
        logger.info(", ".join(f"{name} {value:.4g}" for name, value in self.results.items()))
        logger.info(f"The best model (by {args.metric_for_best_model}) is in {output_dir}")
        if args.push_to_hub:
            options = {"private": args.hub_private_repo, "revision": args.hub_revision, "token": args.hub_token}
            commit = push(output_dir, args.hub_model_id, native=not self.task.is_zoo, **options)
            logger.info(f"Pushed to {commit.commit_url}")

    def metadata(self) -> ModelCardData:
        """The card's metadata, which the Hub reads."""
        task, args = self.task, self.run.args
        dataset_id = None if args.is_generated else hub_id(args.dataset_name)
        prefix = "test" if "test_loss" in self.results else "eval"
        names = [name.removeprefix(f"{prefix}_") for name in self.results if name.startswith(f"{prefix}_")]
        names = [name for name in names if name != "samples_per_second"]
        # losses say little to a reader, where there are other metrics
        headline = [name for name in names if not name.endswith(("loss", "perplexity"))] or names
        return ModelCardData(
            language=task.languages,
            library_name="transformers",
            pipeline_tag=task.pipeline_tag,
            license=licence_of(self.base_model) if self.base_model else None,
            tags=tags_of(self.model) if self.task.is_zoo else None,
            datasets=[dataset_id] if dataset_id else None,
            metrics=headline,
            base_model=hub_id(self.base_model),
            model_name=self.name,
            eval_results=[
                EvalResult(
                    task_type=task.pipeline_tag,
                    dataset_type=dataset_id or "local",
                    dataset_name=Path(self.dataset).resolve().name,
                    dataset_config=args.dataset_config_name,
                    dataset_split=SPLITS[prefix] if SPLITS[prefix] in task.data.own_splits else None,
                    metric_type=name,
                    metric_name=task.metric_titles.get(name, name),
                    metric_value=round(self.results[f"{prefix}_{name}"], 4),
                )
                for name in headline
            ],
        )

    def values(self) -> dict[str, Any]:
        """The variables of the templates: the task, and plain values."""
        task, args = self.task, self.run.args
        splits = {prefix: split for prefix, split in SPLITS.items() if f"{prefix}_loss" in self.results}
        return {
            "card": template(card_beside(Task)),  # what all cards share, whose blocks a task's template fills
            "parent_card": template(card_beside(type(task).__base__)),  # and what those of similar tasks share
            "name": self.name,
            "model": self.model,
            "is_zoo": self.task.is_zoo,
            "oldest": TESTED[0],
            "base_model": self.base_model and shortened(self.base_model),
            "dataset": self.dataset,
            "is_generated": args.is_generated,
            "args": args,
            "state": self.state,
            "results": self.results,
            "splits": splits,
            "titles": self.titles,
            "notes": task.data.notes,
            "drawn": self.drawn,
            "name_of_examples": task.name_of_examples,
            "remote_code": ", trust_remote_code=True" if self.task.is_zoo else "",
            "picture": PICTURE,
            "command": command_line(),
            "paths_are_cut": any(shortened(value) != value for _, value in map(name_and_value, sys.argv[1:])),
            "mixed_precision": self.run.accelerator.mixed_precision,
            "processes": pluralize(self.run.accelerator.num_processes, "process"),
            "device": device(),
            "versions": [f"{module.__name__} {module.__version__}" for module in VERSIONED],
            "task": task,
        }


def card_beside(task_class: type[Task]) -> Path:
    """The template of a task's card, beside the file of its class."""
    return Path(inspect.getfile(task_class)).with_suffix(".md")


def template(path: Path) -> Template:
    """A template that others extend."""
    return Template(path.read_text(encoding="utf-8"), keep_trailing_newline=True)


def command_line(argv: Sequence[str] | None = None) -> str:
    """The command that was given, fit for publication: without the Hub token and the folders of absolute paths."""
    script, *options = sys.argv if argv is None else argv
    words = []
    for name, value in map(name_and_value, options):
        if (words and words[-1] in ("--hub_token", "--hub-token")) or name in ("--hub_token", "--hub-token"):
            value = "..."
        words.append(f"{name}={shortened(value)}" if name else shortened(value))
    return shlex.join(["accelerate", "launch", f"recipes/{Path(script).name}", *words])


def name_and_value(word: str) -> tuple[str, str]:
    """The parts of `--name=value`; an empty name and the word for any other word of a command line."""
    name, equals, value = word.partition("=")
    return (name, value) if equals and word.startswith("-") else ("", word)


def hub_id(name: str | None) -> str | None:
    """The name, unless it is a path on this machine."""
    return None if name is None or Path(name).exists() else name


def shortened(name: str) -> str:
    """The last part of an absolute path, whose folders mean nothing on another machine; other names as they are."""
    path = Path(name)
    return path.name if path.is_absolute() or name.startswith("~") else name


def device() -> str:
    """What the run computed on."""
    if torch.cuda.is_available():
        return torch.cuda.get_device_name()
    return f"CPU, {pluralize(torch.get_num_threads(), 'thread')}"
