"""A comparison of architectures: variants trained under one budget, on the same data and with the same seed."""

import logging
import math
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import torch
from accelerate import Accelerator
from accelerate.utils import DistributedType
from torch import Tensor
from transformers import PreTrainedTokenizerBase
from typing_extensions import Self

from tfm_zoo.hub.cards import table
from tfm_zoo.training.arguments import LoopArguments, option
from tfm_zoo.training.comparison import report
from tfm_zoo.training.comparison.measuring import PeakMemory, VariantLoop
from tfm_zoo.training.comparison.model import Variant, without
from tfm_zoo.training.language_modeling.data import Blocks
from tfm_zoo.training.language_modeling.model import HEAD
from tfm_zoo.training.language_modeling.task import LanguageModelingTask
from tfm_zoo.training.models import longest_input
from tfm_zoo.training.reports import device, shortened
from tfm_zoo.training.runs import Run, end_training, start_accelerator, tracker_values
from tfm_zoo.training.sources import digest

logger = logging.getLogger(__name__)

#: options that change neither a variant's figures nor the files that it leaves
WITHOUT_EFFECT = ("output_dir", "overwrite_output_dir", "with_tracking", "report_to", "dataloader_num_workers")
#: options that would make budgets unequal, continue a run, or concern a single model
NOT_OFFERED = (
    *("num_train_epochs", "metric_for_best_model", "greater_is_better", "early_stopping_patience"),
    *("freeze", "gradual_unfreezing", "checkpointing_steps", "save_total_limit", "resume_from_checkpoint"),
    *("push_to_hub", "hub_model_id", "hub_token", "hub_private_repo", "hub_revision"),
)


@dataclass(frozen=True)
class ComparisonArguments(without(LoopArguments, *NOT_OFFERED)):
    """The options of training several variants, each from its beginning to its end."""

    output_dir: str = option("output", "Folder for the table, the picture, and a folder of each variant.")
    overwrite_output_dir: bool = option(False, "Train again the variants whose results `output_dir` holds.")
    max_train_steps: int = option(200, "Optimiser steps of each variant: the budget.", "max_steps", at_least=1)
    eval_steps: int | None = option(None, "Steps between two evaluations; default: a tenth of the budget.", at_least=1)
    save_models: bool = option(False, "Keep the best model of each variant, by its validation loss.")

    def resolved(self, is_new: bool) -> Self:
        return replace(super().resolved(is_new), eval_steps=self.eval_steps or max(1, self.max_train_steps // 10))


@dataclass
class Comparison:
    """Variants to train, and what they have in common: everything but their architecture."""

    run: Run  # the processes, and the options of all variants
    variants: Sequence[Variant]
    tokenizer: PreTrainedTokenizerBase
    tokens: dict[str, Tensor]  # of the splits "train" and "validation", each `(tokens,)`
    notes: Sequence[str]  # what a reader of the figures must know of the data

    def __post_init__(self) -> None:
        self.accelerator, self.data_args, self.args = self.run.accelerator, self.run.data_args, self.run.args
        if self.accelerator.distributed_type == DistributedType.DEEPSPEED:
            raise ValueError("DeepSpeed: a comparison measures the steps of torch's optimisers; use DDP or FSDP2")
        longest = (longest_input(variant.config, self.tokenizer) for variant in self.variants)
        self.block_size = self.data_args.block_size or min(1024, *longest)
        for note in self.notes:
            logger.warning(note)
        self.dataset = shortened(self.data_args.source)
        train, validation = (self.blocks(split).tokens for split in ("train", "validation"))
        frequencies = report.loss_of_frequencies(train, validation, len(self.tokenizer))
        self.levels = {report.UNIFORM: math.log(len(self.tokenizer)), report.FREQUENCIES: frequencies}
        self.results = {} if self.args.overwrite_output_dir else self.read_results()
        self.accelerator.wait_for_everyone()  # all processes have read the folder before one of them writes

    def compare(self) -> list[report.Result]:
        """Train the variants that have no result yet, and write the report after each. All processes call it."""
        done: list[report.Result] = []
        for number, variant in enumerate(self.variants, 1):
            logger.info(f"Variant {number} of {len(self.variants)}: {variant.name}")
            if variant.name in self.results:
                logger.info(f"Its result is in {variant.folder} already")
            else:
                # A new accelerator keeps nothing of other variants in memory, and is just seeded: all start alike.
                self.results[variant.name] = self.train(start_accelerator(variant.args), variant)
            done = [self.results[each.name] for each in self.variants if each.name in self.results]
            if self.accelerator.is_main_process:
                report.write_report(self, done)  # also of later variants that an earlier run trained
        if self.accelerator.is_main_process:
            print(table([report.row(result, self.levels) for result in done]))
            logger.info(f"Table and picture are in {self.args.output_dir}")
        end_training(self.accelerator)
        return done

    def blocks(self, split: str, multiple_of: int = 1) -> Blocks:
        limit = self.data_args.max_train_samples if split == "train" else self.data_args.max_eval_samples
        return Blocks(self.tokens[split], self.block_size, self.tokenizer.eos_token_id or 0, limit, multiple_of)

    def settings(self, variant: Variant) -> dict[str, Any]:
        """All that the result of a variant depends on."""
        options = {f.name: getattr(variant.args, f.name) for f in fields(variant.args) if f.init}
        facts = {
            "mixed_precision": self.accelerator.mixed_precision,  # as it was launched
            "text and tokenizer": digest(self.tokens.values()),
            "block_size": self.block_size,
            "max_train_samples": self.data_args.max_train_samples,
            "max_eval_samples": self.data_args.max_eval_samples,
            "number of processes": self.accelerator.num_processes,
            "device": device(),
        }
        settings = options | facts | report.settings_of(variant.config)
        return report.as_json({name: value for name, value in settings.items() if name not in WITHOUT_EFFECT})

    def read_results(self) -> dict[str, report.Result]:
        """The results that `output_dir` holds, by the variants' names."""
        results = {}
        for variant in self.variants:
            if result := report.Result.read(variant.folder):
                results[variant.name] = result
                if changes := result.changes_to(self.settings(variant), type(variant.config)):
                    raise ValueError(
                        f"output_dir {self.args.output_dir!r} holds variant {variant.name!r} of other settings:"
                        f" {changes}. Give another folder, or --overwrite_output_dir to train all again"
                    )
        return results

    def train(self, accelerator: Accelerator, variant: Variant) -> report.Result:
        """Train a variant, and leave its history, configuration and result in its folder. All processes call it."""
        if accelerator.is_main_process:
            (variant.folder / report.FILE).unlink(missing_ok=True)
        settings = self.settings(variant)  # now: a model changes its configuration when it is made
        rehearse(variant, accelerator.device)
        memory = PeakMemory(accelerator.device)
        batch_size, processes = variant.args.per_device_eval_batch_size, accelerator.num_processes
        task = LanguageModelingTask(
            accelerator=accelerator,
            model=HEAD.new(variant.model_args, variant.config),
            tokenizer=self.tokenizer,
            args=variant.args,
            splits={
                "train": self.blocks("train"),
                "validation": self.blocks("validation", multiple_of=batch_size * processes if processes > 1 else 1),
            },
        )
        run = replace(self.run, accelerator=accelerator, model_args=variant.model_args, args=variant.args)
        loop = VariantLoop(run, task, memory)
        accelerator.init_trackers(run.name, tracker_values(variant.args))
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
        model = HEAD.new(variant.model_args, variant.config).to(device)
        ids = torch.zeros(1, 2, dtype=torch.long, device=device)
        model(input_ids=ids, labels=ids).loss.backward()
        torch.optim.AdamW(model.parameters()).step()
