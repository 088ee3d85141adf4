"""Train variants of a decoder under one budget, on the same data and with the same seed: one table, one picture.

    accelerate launch recipes/compare_architectures.py                               # no network, no data
    accelerate launch recipes/compare_architectures.py --config recipes/configs/post_or_pre_norm.yaml
    accelerate launch recipes/compare_architectures.py --train_file book.txt --max_train_steps 1000 \\
        --variants '{softmax: {}, linear: {attention_type: linear, learning_rate: 2e-3}}'

A variant is a name and the fields that it changes in the configuration that all share (`config_overrides`). Without
`--config` the variants are those of recipes/configs/architectures.yaml, one for each axis. `--help` lists the options.

`output_dir` gets `comparison.md` (the table), `comparison.png` and `comparison.json`, written anew after each variant,
and for each variant a folder with its configuration and history. A variant whose result is there already, with the same
settings, is not trained again: the same command continues where it was stopped, and with more variants it trains only
the new ones. The table holds the variants that the command names; results of others stay in their folders.

Where a step is computed: `train_step` in tfm_zoo/training/loop.py.
"""

import json
import logging
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, make_dataclass, replace
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator
from accelerate.utils import DistributedType
from comparison import results
from comparison.costs import PeakMemory, Stopwatch
from comparison.results import Result
from huggingface_hub.errors import StrictDataclassError
from torch import Tensor
from transformers import PreTrainedConfig, PreTrainedTokenizerBase
from typing_extensions import Self

from tfm_zoo.data.options import option, parse_options, read_yaml
from tfm_zoo.data.row_files import read_text
from tfm_zoo.data.splits import digest
from tfm_zoo.hub.cards import table
from tfm_zoo.training.loop import Loop
from tfm_zoo.training.models import longest_input
from tfm_zoo.training.new_models import known_config, new_config, new_model, new_tokenizer
from tfm_zoo.training.report import device
from tfm_zoo.training.run import Run, end_training, errors_in_one_line, start_accelerator
from tfm_zoo.training.task import Task
from tfm_zoo.training.tasks.language_modeling import (
    HEAD,
    Blocks,
    LanguageModelingOptions,
    LanguageModelingTask,
    load_corpus,
)
from tfm_zoo.utils.published import shortened

logger = logging.getLogger(__name__)
DEFAULT = Path(__file__).parent / "configs" / "architectures.yaml"
EXPLODED = 2.0  # times the loss of a uniform guess: training ends there
#: how variants share the options of language modelling; all have the same value of those that are not named here
SHARING = {
    "each variant may have its own": "learning_rate warmup_steps",
    "results depend on the configuration and the tokens that they lead to, which are recorded, or not at all": """
        dataset_name dataset_config_name train_file validation_file validation_split_percentage text_column_name
        train_split_name document_separator block_size model_type config_name config_overrides variants tokenizer_name
        tokenizer_vocab_size trust_remote_code preprocessing_num_workers dataloader_num_workers output_dir
        overwrite_output_dir with_tracking report_to run_name bf16 fp16""",
    "not offered: they keep their defaults": """
        model_name_or_path model_revision model_class streaming optim optim_args num_train_epochs
        freeze lora_rank lora_alpha lora_dropout lora_target_modules metric_for_best_model
        greater_is_better early_stopping_patience checkpointing_steps save_total_limit resume_from_checkpoint
        sample_prompt sample_length push_to_hub hub_model_id hub_token hub_private_repo hub_revision""",
}
OWN, FREE, LEFT_OUT = map(str.split, SHARING.values())
OFFERED = make_dataclass(
    "OfferedOptions",
    [
        (n.name, n.type, field(default=n.default, init=False))
        for n in fields(LanguageModelingOptions)
        if n.name in LEFT_OUT
    ],
    bases=(LanguageModelingOptions,),
    frozen=True,
)


@dataclass(frozen=True)
class ComparisonOptions(OFFERED):
    """The options of training several new zoo models, the variants, each from its beginning to its end."""

    variants: str | None = option(
        None,
        "A mapping of names to the fields of the configuration that each variant changes (YAML or JSON), or a YAML file"
        " that has such a mapping under 'variants'. learning_rate and warmup_steps may stand among the fields.",
    )
    config_overrides: str | None = option(None, "Fields of the configuration that all variants share.", "base")
    output_dir: str = option("output", "Folder for the table, the picture, and a folder of each variant.")
    overwrite_output_dir: bool = option(False, "Train again the variants whose results `output_dir` holds.")
    max_train_steps: int = option(200, "Optimiser steps of each variant: the budget.", "max_steps", at_least=1)
    eval_steps: int | None = option(None, "Steps between two evaluations; default: a tenth of the budget.", at_least=1)
    metric_for_best_model: str | None = field(default="loss", init=False)
    save_models: bool = option(False, "Keep the best model of each variant, by its validation loss.")

    def __post_init__(self) -> None:
        super().__post_init__()
        self.changes()  # so that a mistake shows when the options are read

    def with_defaults(self) -> Self:
        """As for all tasks, with the steps between two evaluations."""
        return replace(super().with_defaults(), eval_steps=self.eval_steps or max(1, self.max_train_steps // 10))

    def changes(self) -> dict[str, dict[str, Any]]:
        """What each variant changes, by its name."""
        if not self.variants:
            raise ValueError("give variants: a name for each, and the fields that it changes")
        is_file = not self.variants.lstrip().startswith(("{", "["))
        if is_file and not Path(self.variants).is_file():
            raise ValueError(f"variants {self.variants!r}: no such file")
        changes = read_yaml(read_text(self.variants) if is_file else self.variants, "variants")
        if is_file and isinstance(changes, dict):
            changes = changes.get("variants")
        if not isinstance(changes, dict) or not changes:
            raise ValueError(f"variants: expected a mapping of names to fields, not {changes!r}")
        for name, changed in changes.items():
            if Path(str(name)).name != str(name) or name in ("", ".."):
                raise ValueError(f"variant {name!r}: its name should be one that a folder can have")
            if not isinstance(changed, dict | None):
                raise ValueError(f"variant {name!r}: expected a mapping of fields to values, not {changed!r}")
        return {str(name): changed or {} for name, changed in changes.items()}


@dataclass(frozen=True)
class Variant:
    """One of the models to compare, and the options that it is made and trained with."""

    name: str
    changes: Mapping[str, Any]
    config: PreTrainedConfig
    args: ComparisonOptions

    @property
    def folder(self) -> Path:
        return Path(self.args.output_dir)


def make_variants(args: ComparisonOptions, tokenizer: PreTrainedTokenizerBase) -> list[Variant]:
    """The variants, each with its folder in `output_dir` and a valid configuration, one that can read the blocks."""
    variants = []
    for name, changes in args.changes().items():
        try:
            options = {key: float(value) for key, value in changes.items() if key in OWN}
            changed = {key: value for key, value in changes.items() if key not in OWN}
            options["config_overrides"] = json.dumps(args.overrides() | changed)
            # What is in its folder without a result was stopped before its end.
            folder = str(Path(args.output_dir) / "variants" / name)
            variant_args = replace(args, output_dir=folder, overwrite_output_dir=True, **options)
            positions = {"max_position_embeddings": args.block_size} if args.block_size else {}
            config = new_config(HEAD, variant_args, tokenizer, **positions)
            room = longest_input(config, tokenizer)
            if args.block_size and room < args.block_size:
                raise ValueError(f"block_size {args.block_size} is more than the {room} tokens that the model takes")
        except (ValueError, TypeError, StrictDataclassError) as error:
            raise ValueError(f"variant {name!r}: {error}") from error
        variants.append(Variant(name, changes, config, variant_args))
    return variants


@dataclass
class Comparison:
    """Variants to train, and what they have in common: everything but their architecture."""

    run: Run  # the processes, and the options of all variants
    variants: Sequence[Variant]
    tokenizer: PreTrainedTokenizerBase
    tokens: dict[str, Tensor]  # of the splits "train" and "validation", each `(tokens,)`
    notes: Sequence[str]  # what a reader of the figures must know of the data

    def __post_init__(self) -> None:
        self.accelerator, self.args = self.run.accelerator, self.run.args
        if self.accelerator.distributed_type == DistributedType.DEEPSPEED:
            raise ValueError("DeepSpeed: a comparison measures the steps of torch's optimisers; use DDP or FSDP2")
        longest = (longest_input(variant.config, self.tokenizer) for variant in self.variants)
        self.block_size = self.args.block_size or min(1024, *longest)
        for note in self.notes:
            logger.warning(note)
        self.dataset = shortened(self.args.source)
        train, validation = (self.blocks(split).tokens for split in ("train", "validation"))
        frequencies = results.loss_of_frequencies(train, validation, len(self.tokenizer))
        self.levels = {results.UNIFORM: math.log(len(self.tokenizer)), results.FREQUENCIES: frequencies}
        self.done = {} if self.args.overwrite_output_dir else self.read_results()
        self.accelerator.wait_for_everyone()  # all processes have read the folder before one of them writes

    def compare(self) -> list[Result]:
        """Train the variants that have no result yet, and write the report after each. All processes call it."""
        done: list[Result] = []
        for number, variant in enumerate(self.variants, 1):
            logger.info(f"Variant {number} of {len(self.variants)}: {variant.name}")
            if variant.name in self.done:
                logger.info(f"Its result is in {variant.folder} already")
            else:
                # A new accelerator keeps nothing of other variants in memory, and is just seeded: all start alike.
                self.done[variant.name] = self.train(start_accelerator(variant.args), variant)
            done = [self.done[each.name] for each in self.variants if each.name in self.done]
            if self.accelerator.is_main_process:
                results.write_report(self, done)  # also of later variants that an earlier run trained
        if self.accelerator.is_main_process:
            print(table([results.row(result, self.levels) for result in done]))
            logger.info(f"Table and picture are in {self.args.output_dir}")
        end_training(self.accelerator)
        return done

    def blocks(self, split: str, multiple_of: int = 1) -> Blocks:
        limit = self.args.max_train_samples if split == "train" else self.args.max_eval_samples
        return Blocks(self.tokens[split], self.block_size, self.tokenizer.eos_token_id or 0, limit, multiple_of)

    def settings(self, variant: Variant) -> dict[str, Any]:
        """All that the result of a variant depends on."""
        facts = {
            "mixed_precision": self.accelerator.mixed_precision,  # as it was launched
            "text and tokenizer": digest(self.tokens.values()),
            "block_size": self.block_size,
            "number of processes": self.accelerator.num_processes,
            "device": device(),
        }
        names = [each.name for each in fields(variant.args) if each.init and each.name not in FREE]
        options = {name: getattr(variant.args, name) for name in names}
        return results.as_json(options | facts | results.settings_of(variant.config))

    def read_results(self) -> dict[str, Result]:
        """The results that `output_dir` holds, by the variants' names."""
        found = {}
        for variant in self.variants:
            if result := Result.read(variant.folder):
                found[variant.name] = result
                if changes := result.changes_to(self.settings(variant), type(variant.config)):
                    raise ValueError(
                        f"output_dir {self.args.output_dir!r} holds variant {variant.name!r} of other settings:"
                        f" {changes}. Give another folder, or --overwrite_output_dir to train all again"
                    )
        return found

    def train(self, accelerator: Accelerator, variant: Variant) -> Result:
        """Train a variant, and leave its history, configuration and result in its folder. All processes call it."""
        settings = self.settings(variant)  # now: a model changes its configuration when it is made
        rehearse(variant, accelerator.device)
        memory = PeakMemory(accelerator.device)
        batch_size, processes = variant.args.per_device_eval_batch_size, accelerator.num_processes
        task = LanguageModelingTask(
            run=Run(self.run.name, accelerator, variant.args),
            model=new_model(HEAD, variant.args, variant.config),
            tokenizer=self.tokenizer,
            splits={
                "train": self.blocks("train"),
                "validation": self.blocks("validation", multiple_of=batch_size * processes if processes > 1 else 1),
            },
        )
        loop = VariantLoop(task, memory)
        loop.begin()
        if accelerator.is_main_process:  # after all that refuses its folder
            (variant.folder / results.FILE).unlink(missing_ok=True)
        loop.train()
        for tracker in accelerator.trackers:
            tracker.finish()
        result = loop.result(variant, settings)
        if accelerator.is_main_process:
            variant.config.save_pretrained(variant.folder)
            loop.state.write(variant.folder)
            result.write(variant.folder)
        accelerator.wait_for_everyone()
        return result


def rehearse(variant: Variant, device: torch.device) -> None:
    """Take one small step, so that the cost of loading and setting up libraries does not count as the variant's."""
    with torch.random.fork_rng([] if device.type == "cpu" else [device], device_type=device.type):
        model = new_model(HEAD, variant.args, variant.config).to(device)
        ids = torch.zeros(1, 2, dtype=torch.long, device=device)
        model(input_ids=ids, labels=ids).loss.backward()
        torch.optim.AdamW(model.parameters()).step()


class VariantLoop(Loop):
    """A loop that measures what training costs, saves no model unless asked to, and ends if the loss explodes."""

    def __init__(self, task: Task, memory: PeakMemory):
        super().__init__(task)
        self.memory, self.stopwatch = memory, Stopwatch(task.accelerator.device)
        self.diverged_at: int | None = None  # the step at which the loss exploded
        self.limit = EXPLODED * math.log(task.model.config.vocab_size)
        self.optimizer.optimizer.register_step_post_hook(lambda *_: self.stopwatch.lap())

    def train(self) -> None:
        """Train to the end, or until the loss explodes."""
        self.start_measuring()
        try:
            super().train()
        except FloatingPointError as error:
            self.diverged_at = self.state.step
            logger.warning(f"It diverged: {error}")
        self.memory.stop()

    def result(self, variant: Variant, settings: dict[str, Any]) -> Result:
        """How training went; `settings` are all that the result depends on."""
        history, seconds = self.state.log_history, self.stopwatch.median
        losses = [entry["eval_loss"] for entry in history if "eval_loss" in entry]
        tokens = self.batch_sampler.division.global_batch_size * self.task.splits["train"].block_size
        return Result(
            variant.name,
            variant.changes,
            parameters=self.task.model.num_parameters(),
            steps=self.state.step,
            tokens_per_step=tokens,
            final_loss=losses[-1] if self.diverged_at is None else None,
            best_loss=min(losses, default=None),
            diverged_at=self.diverged_at,
            tokens_per_second=tokens / seconds if seconds else None,
            peak_memory=self.memory.bytes,
            settings=settings,
            log_history=history,
        )

    def start_measuring(self) -> None:
        self.memory.start()
        self.stopwatch.restart()

    def evaluate(self) -> None:
        self.memory.stop()
        super().evaluate()
        self.start_measuring()

    def save_best(self) -> None:
        if self.args.save_models:
            super().save_best()

    def log(self, values: dict[str, float]) -> None:
        loss = values.get("loss", values.get("eval_loss"))
        if math.isfinite(loss):
            super().log(values)
        if not loss <= self.limit:
            raise FloatingPointError(f"the loss is {loss} at step {self.state.step}")


def prepare(argv: list[str] | None = None) -> Comparison:
    """Read options and data, and check every variant: all that a user can get wrong."""
    args = parse_options(ComparisonOptions, argv, DEFAULT).with_defaults()
    accelerator = start_accelerator(args)
    with accelerator.main_process_first():  # it downloads; the others read what it left in the cache
        known = known_config(replace(args, config_overrides=None))
        if known.is_encoder_decoder:
            advice = "To compare translators, train each one, and draw their losses: tfm-zoo show training RUN RUN"
            raise ValueError(f"This recipe compares decoders, and {known.model_type} is an encoder-decoder. {advice}")
        corpus = load_corpus(args)
        tokenizer = new_tokenizer(args, corpus.texts())
        tokens = corpus.rows_of_tokens(tokenizer, args)
    run = Run("compare_architectures", accelerator, args)
    return Comparison(run, make_variants(args, tokenizer), tokenizer, tokens, corpus.notes)


def main(argv: list[str] | None = None) -> list[Result]:
    with errors_in_one_line(argv):
        comparison = prepare(argv)
    return comparison.compare()


if __name__ == "__main__":
    main()
