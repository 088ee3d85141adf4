"""What a classification run leaves beside its model: figures, picture, card."""

import json
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import accelerate
import datasets
import torch
import transformers
from huggingface_hub import EvalResult, ModelCardData
from transformers import PreTrainedModel

from tfm_zoo.hub.cards import licence_of, table, write_model_card
from tfm_zoo.training import generated
from tfm_zoo.training.arguments import LoopArguments
from tfm_zoo.training.checkpoints import TrainState
from tfm_zoo.training.classifiers import FRESH, ModelArguments
from tfm_zoo.training.text_data import TextClassificationData, TextDataArguments
from tfm_zoo.visualization import plot_training

PICTURE = "training_curves.png"


def write_reports(
    output_dir: Path,
    results: dict[str, Any],
    state: TrainState,
    model: PreTrainedModel,
    data: TextClassificationData,
    model_args: ModelArguments,
    data_args: TextDataArguments,
    args: LoopArguments,
    num_processes: int,
) -> bool:
    """Write `all_results.json`, `trainer_state.json`, the picture and the card; False if the card is the user's."""
    (output_dir / "all_results.json").write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")
    state.write(output_dir)
    plot_training(state.log_history, output_dir / PICTURE, args.metric_for_best_model)

    name = (args.hub_model_id or output_dir.resolve().name).split("/")[-1]
    split, prefix = ("test", "test") if "test" in data.splits else ("validation", "eval")
    figures = {figure: results[f"{prefix}_{figure}"] for figure in ("accuracy", "f1")}
    zoo = model.config.model_type.startswith("tfm_")
    dataset_id = _hub_id(data_args.dataset_name) if data_args.dataset_name != generated.NAME else None
    base_model = _hub_id(model_args.model_name_or_path) if model_args.model_name_or_path != FRESH else None
    dataset_name = _short(data_args.dataset_name or data_args.train_file)
    card_data = ModelCardData(
        library_name="transformers",
        pipeline_tag="text-classification",
        license=licence_of(model_args.model_name_or_path) if model_args.model_name_or_path != FRESH else None,
        tags=["tfm_zoo"] if zoo else None,
        datasets=[dataset_id] if dataset_id else None,
        metrics=list(figures),
        base_model=base_model,
        model_name=name,
        eval_results=[
            EvalResult(
                task_type="text-classification",
                dataset_type=dataset_id or dataset_name,
                dataset_name=dataset_name,
                dataset_config=data_args.dataset_config_name,
                dataset_split=split if split in data.own_splits else None,
                metric_type=figure,
                metric_name="F1 (macro)" if figure == "f1" else "Accuracy",
                metric_value=round(value, 4),
            )
            for figure, value in figures.items()
        ],
    )
    origin = (
        "A small new model" if model_args.model_name_or_path == FRESH else f"`{_short(model_args.model_name_or_path)}`"
    )
    remote_code = ", trust_remote_code=True" if zoo else ""
    text = f"""
# {name}

{origin}, fine-tuned on `{dataset_name}` to classify texts as {", ".join(f"*{label}*" for label in data.label_names)}.
{"It carries its own code: transformers runs it without `tfm_zoo` installed." if zoo else ""}

```python
from transformers import pipeline

classify = pipeline("text-classification", model="{args.hub_model_id or output_dir.name}"{remote_code})
classify("...")
```

## Figures

{_figures(results)}

{table({name: f"{len(split):,}" for name, split in data.splits.items()}, ("split", "examples"))}

{" ".join(data.notes)}

![Loss and {args.metric_for_best_model} against the optimiser step]({PICTURE})

## Training

```sh
{command_line()}
```

{table(_settings(args, data_args, model, num_processes, state), ("setting", "value"))}

Examples per second: {results["train_samples_per_second"]:.1f} in training,
{results["eval_samples_per_second"]:.1f} in evaluation, on {num_processes} process{"es" if num_processes > 1 else ""}
({_device()}).
Versions: transformers {transformers.__version__}, torch {torch.__version__}, accelerate {accelerate.__version__},
datasets {datasets.__version__}.
"""
    return write_model_card(output_dir, card_data, text)


def command_line(argv: Sequence[str] | None = None) -> str:
    """The command that was given, fit to be published: without the Hub token, and paths cut to their last part."""
    script, *options = sys.argv if argv is None else argv
    words = []
    for option in options:
        name, _, value = option.rpartition("=")
        if (words and words[-1] in ("--hub_token", "--hub-token")) or name in ("--hub_token", "--hub-token"):
            value = "..."
        words.append(f"{name}={_short(value)}" if name else _short(value))
    return shlex.join(["accelerate", "launch", f"recipes/{Path(script).name}", *words])


def _figures(results: dict[str, Any]) -> str:
    splits = {"eval": "validation", "test": "test"}
    splits = {prefix: name for prefix, name in splits.items() if f"{prefix}_loss" in results}
    rows = {"accuracy": "accuracy", "f1": "F1 (macro)", "loss": "loss"}
    lines = ["| | " + " | ".join(splits.values()) + " |", "|---" * (len(splits) + 1) + "|"]
    for key, title in rows.items():
        lines.append(f"| {title} | " + " | ".join(f"{results[f'{prefix}_{key}']:.4f}" for prefix in splits) + " |")
    return "\n".join(lines)


def _settings(
    args: LoopArguments, data_args: TextDataArguments, model: PreTrainedModel, num_processes: int, state: TrainState
) -> dict[str, Any]:
    return {
        "model": f"`{type(model).__name__}`, {model.num_parameters():,} parameters",
        "optimiser": f"AdamW, weight decay {args.weight_decay} (not on biases and norms)",
        "learning rate": f"{args.learning_rate}, {args.lr_scheduler_type} schedule, warm-up {args.warmup_steps:g}",
        "batch": f"{args.per_device_train_batch_size} x {args.gradient_accumulation_steps} accumulated x"
        f" {num_processes} process(es)" + (", grouped by length" if args.group_by_length else ""),
        "steps": f"{state.step} ({args.num_train_epochs:g} epoch(s) asked for); the best after {state.best_step}",
        "tokens per text": f"at most {data_args.max_seq_length}",
        "gradient clipping": args.max_grad_norm or "none",
        "epochs with the base model frozen": args.freeze_epochs,
        "mixed precision": args.mixed_precision or "as launched",
        "seed": args.seed,
    }


def _hub_id(name: str | None) -> str | None:
    return None if name is None or Path(name).exists() else name


def _short(name: str) -> str:
    """A path without the folders that mean nothing on another machine."""
    return Path(name).name if Path(name).is_absolute() or name.startswith("..") else name


def _device() -> str:
    return torch.cuda.get_device_name() if torch.cuda.is_available() else f"CPU, {torch.get_num_threads()} threads"
