"""What `finetune_embeddings.py` and `finetune_reranker.py` share: pairs of texts, small new models, a run's figures.

The trainers, losses and figures are those of sentence-transformers.
"""

import json
import logging
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, ClassVar

# first: it quietens what transformers imports
import tfm_zoo

# isort: split
import torch
from accelerate import PartialState
from accelerate.utils import broadcast_object_list
from datasets import Dataset, DatasetDict
from huggingface_hub import HfApi
from transformers import TrainingArguments, set_seed

from tfm_zoo.data import built_in_data, row_files, splits
from tfm_zoo.data.options import option, parse_several
from tfm_zoo.data.splits import DataOptions
from tfm_zoo.hub.cards import table
from tfm_zoo.hub.earlier_models import delete_earlier_model
from tfm_zoo.hub.model_card import MARK
from tfm_zoo.proof.manifest import complete_manifest
from tfm_zoo.training import checkpoints
from tfm_zoo.training.options import OF_NEW
from tfm_zoo.training.run import keep_few_kernels
from tfm_zoo.training.tokenizers import word_piece_tokenizer
from tfm_zoo.training.trainer import keep_identity
from tfm_zoo.utils.folder_kinds import MANIFEST
from tfm_zoo.utils.published import command_line
from tfm_zoo.utils.quiet import silence_downloads, silence_interrupt, silence_progress_bars, silence_tokenizers

logger = logging.getLogger("__main__")

#: the columns of pairs, under the names that the recipes give them; a third one is optional
ANCHOR, POSITIVE, NEGATIVE = COLUMNS = ("anchor", "positive", "negative")
USUAL_COLUMNS = [
    names.split()
    for names in (
        "anchor positive negative",
        "anchor positive",
        "query positive negative",
        "query answer",
        "question answer",
        "query document",
        "title text",
        "title description",
        "summary text",
        "sentence1 sentence2",
    )
]
#: options of the recipes with a loop of the zoo's
OF_THE_LOOP = [f"--{name}" for name in ("lora_rank", "freeze", "early_stopping_patience", "model_class", *OF_NEW)]
#: settings of the trainer that a resumed run must share with the run that it continues
KEPT = ("learning_rate", "lr_scheduler_type", "optim", "weight_decay", "per_device_train_batch_size", "seed")
TINY = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 128}


@dataclass(frozen=True)
class PairOptions(DataOptions):
    """The options of a model that learns from pairs. Those of the training itself are the trainer's own."""

    built_in: ClassVar = staticmethod(built_in_data.summarised_passages)
    built_in_note: ClassVar = "The pairs are generated, from templates: they test the machinery alone."
    needless: ClassVar = {
        "--max_train_steps": "--max_steps says how many",
        "--group_by_length": "give --train_sampling_strategy group_by_length",
        **dict.fromkeys(OF_THE_LOOP, "this recipe has sentence-transformers' trainer, which has no such option"),
    }

    model_name_or_path: str | None = option(None, "Official checkpoint or zoo folder; default: a small new model.")
    model_revision: str | None = option(None, "Branch, tag or commit of a checkpoint on the Hub.")
    trust_remote_code: bool = option(False, "Run the code of a checkpoint (Hub or folder).")
    text_column_name: list[str] | None = option(
        None,
        "Two text columns: what asks, and what answers; and perhaps a third, which does not. Default: the first of"
        f" {row_files.names_in(USUAL_COLUMNS)}.",
        "text_column_names",
    )
    max_seq_length: int | None = option(None, "Longer texts are truncated; default: as the model says.", at_least=2)
    overwrite_output_dir: bool = option(False, "Replace the run that `output_dir` holds.")
    speed_up: bool = option(True, "An official model skips padding, by `tfm_zoo.speed_up`; --no_speed_up: it does not.")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.text_column_name is not None and not 2 <= len(self.text_column_name) <= 3:
            raise ValueError(f"text_column_name takes two or three columns, not {self.text_column_name}")

    @property
    def is_new(self) -> bool:
        return self.model_name_or_path is None


#: what the recipes do unless told otherwise, where transformers' Trainer does something else
DEFAULTS = {
    "output_dir": "output",
    "learning_rate": None,  # 5e-5, or 1e-3 for a new model
    "num_train_epochs": 1.0,
    "per_device_train_batch_size": 64,
    "per_device_eval_batch_size": 64,
    "warmup_steps": 0.1,
    "logging_steps": 10,
    "save_strategy": "no",
    "use_cpu": not torch.accelerator.is_available(),  # without a GPU, processes share the CPU
}


def start(
    options: type[PairOptions], training: type[TrainingArguments], argv: Sequence[str] | None = None, **defaults: Any
) -> tuple[PairOptions, TrainingArguments]:
    """Read the options, and refuse a folder that the run may not write to."""
    silence_tokenizers()
    keep_few_kernels()
    silence_progress_bars()
    silence_downloads()
    silence_interrupt()
    args, settings = parse_several([options, training], argv, **DEFAULTS, **defaults)
    logging.basicConfig(format="%(asctime)s  %(message)s", datefmt="%H:%M:%S")
    logger.setLevel(logging.INFO if PartialState().is_main_process else logging.ERROR)
    folder, resumes = Path(settings.output_dir), settings.resume_from_checkpoint
    if resumes in ("auto", "true", "True"):
        resumes = "auto"
    resumes = checkpoints.find_checkpoint(resumes, folder)
    if checkpoints.holds_a_run(folder) and not (resumes or args.overwrite_output_dir):
        raise FileExistsError(
            f"output_dir {settings.output_dir!r} holds a run: give another folder, --resume_from_checkpoint auto to go"
            " on from its last checkpoint, or --overwrite_output_dir to replace it"
        )
    checkpoints.check_writable(folder)
    settings.resume_from_checkpoint = resumes and str(resumes)
    settings.learning_rate = settings.learning_rate or (1e-3 if args.is_new else 5e-5)
    set_seed(settings.seed)
    return args, settings


def read_pairs(args: PairOptions, settings: TrainingArguments) -> tuple[DatasetDict, list[str]]:
    """The splits "train", "validation" and perhaps "test", with the columns of `COLUMNS`; and notes on them."""
    if args.source is None:
        logger.warning("No data set and no file was named: using the built-in GENERATED data")
        args = replace(args, dataset_name=built_in_data.NAME)
    raw, notes = splits.load_splits(args)
    columns = row_files.find_columns(raw["train"], args.text_column_name, USUAL_COLUMNS, "text_column_name")

    rows = {}
    for split, found in raw.items():
        table = splits.FoundSplit(args, split, found)
        if not len(found):
            raise ValueError(f"{table} has no row")
        texts = {name: table.texts(column) for name, column in zip(COLUMNS, columns, strict=False)}
        rows[split] = Dataset.from_dict(texts)
    rows = splits.without_empty(rows, COLUMNS[: len(columns)], notes)
    divided = splits.cut_splits(args, rows, notes, settings.seed)
    for name, split in divided.items():
        if not len(split):
            raise ValueError(f"there is no pair in the {name} split")
    for note in notes:
        logger.warning(note)
    return divided, notes


def answers_of(pairs: Dataset) -> dict[str, set[str]]:
    """What answers each text: several, if it is in several pairs."""
    answers: dict[str, set[str]] = {}
    for anchor, positive in zip(pairs[ANCHOR], pairs[POSITIVE], strict=True):
        answers.setdefault(anchor, set()).add(positive)
    return answers


def new_model(load: Callable[[str], Any], model_class: type, pairs: Dataset, **fields: Any) -> Any:
    """What `load` makes of the folder of a small model with new weights, whose tokens are the words of the pairs."""
    tokenizer = word_piece_tokenizer([*pairs[ANCHOR], *pairs[POSITIVE]])
    tokenizer.model_max_length = 128
    model = model_class(tfm_zoo.TfmBertConfig(vocab_size=len(tokenizer), max_position_embeddings=128, **TINY, **fields))
    processes = PartialState()
    with TemporaryDirectory() as own:
        (folder,) = broadcast_object_list([own])  # the main process alone saves
        model.save_pretrained(folder)
        if processes.is_main_process:
            tokenizer.save_pretrained(folder)
        processes.wait_for_everyone()
        made = load(folder)
        processes.wait_for_everyone()
    return made


def sped_up(model: Any, args: PairOptions) -> Any:
    """The model, whose forward skips padding if `speed_up` says so. (A model of the zoo does so anyway.)"""
    configs = [getattr(module, "config", None) for module in model.modules()]
    if not args.speed_up or any(getattr(config, "model_type", "").startswith("tfm_") for config in configs):
        return model
    try:
        return tfm_zoo.speed_up(model)
    except ValueError as error:  # one that the zoo has no table for learns as it is
        logger.warning(str(error))
        return model


def with_own_code(card: str, name: str) -> str:
    """The card of a zoo model, whose lines load it by `name`, with its own code. A push puts the Hub id there."""
    lines = re.sub(
        r'(= (?:SentenceTransformer|CrossEncoder)\()"[^"]+"\)', rf'\1"{name}", trust_remote_code=True)', card
    )
    return f"{lines}\n{MARK.format(name)}\n"


@dataclass
class Comparison:
    """A training, and the figures of a split before and after it."""

    trainer: Any
    args: PairOptions
    evaluator: Any  # of sentence-transformers: a model -> its figures
    split: str
    names: dict[str, str]  # key of a figure -> its name in the table
    notes: list[str]

    def begin(self) -> None:
        """Refuse to go on with another run; delete what a run leaves that this one replaces."""
        settings, examples = self.trainer.args, self.trainer.train_dataset
        folder, resumes = Path(settings.output_dir), settings.resume_from_checkpoint is not None
        facts = {name: str(getattr(settings, name)) for name in KEPT}
        facts["training texts"] = splits.digest(str(each) for name in examples.column_names for each in examples[name])
        if self.trainer.is_world_process_zero() and not resumes:
            checkpoints.clear(folder, goes_on=False)
        keep_identity(folder, checkpoints.identity_of(facts, self.args), goes_on=resumes)

    def run(self) -> dict[str, float]:
        """Train, save the model with its card and `all_results.json`, push it if the options say so."""
        trainer, settings, folder = self.trainer, self.trainer.args, Path(self.trainer.args.output_dir)
        before = self.evaluator(trainer.model)
        trained = trainer.train(resume_from_checkpoint=settings.resume_from_checkpoint).metrics
        after = self.evaluator(trainer.model)
        results = {name: trained[name] for name in ("train_loss", "train_runtime", "train_samples_per_second")}
        results |= {f"before_{key}": float(before[key]) for key in self.names if key in before}
        results |= {key: float(after[key]) for key in self.names}
        if trainer.is_world_process_zero():
            if self.args.overwrite_output_dir:
                delete_earlier_model(folder)
            trainer.model.save_pretrained(str(folder))
            is_zoo = (folder / MANIFEST).exists()  # of a zoo model, which is one of several modules
            if is_zoo:
                complete_manifest(folder)
            card = folder / "README.md"
            text = card.read_text(encoding="utf-8")
            text = text.replace("## Model Details", f"{self.section(results)}\n## Model Details", 1)
            name = settings.hub_model_id or folder.resolve().name
            card.write_text(with_own_code(text, name) if is_zoo else text, encoding="utf-8")
            (folder / checkpoints.RESULTS_FILE).write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")
            logger.info(f"figures of the {self.split} split\n{self.table(results)}")
            logger.info(f"The model is in {folder}")
            if settings.push_to_hub:
                files = {"folder_path": folder, "ignore_patterns": ["checkpoint-*", "runs/*"]}
                HfApi(token=settings.hub_token).upload_folder(repo_id=trainer.hub_model_id, **files)
        trainer.accelerator.wait_for_everyone()
        return results

    def table(self, results: dict[str, float]) -> str:
        """The figures in Markdown, a row each."""

        def shown(key: str) -> str:
            return f"{results[key]:.4f}" if key in results else ""

        return table([{"": self.names[k], "before": shown(f"before_{k}"), "after": shown(k)} for k in self.names])

    def section(self, results: dict[str, float]) -> str:
        """The part of the card that says what the training changed, and how it was run."""
        speed = f"{results['train_samples_per_second']:.1f} examples per second in training."
        figures = f"## Before and after\n\nFigures of the {self.split} split.\n\n{self.table(results)}"
        return "\n\n".join([figures, " ".join([*self.notes, speed]), f"```sh\n{command_line()}\n```"]) + "\n"
