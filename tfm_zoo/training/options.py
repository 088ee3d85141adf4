"""Options of training that tasks share. A task's own options stand in its file, in a class derived from these."""

import logging
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

from transformers import PreTrainedConfig, PreTrainedTokenizerBase
from typing_extensions import Self

from tfm_zoo.data import built_in_data
from tfm_zoo.data.options import AnyOptions, as_mapping, option
from tfm_zoo.data.splits import DataOptions
from tfm_zoo.families.named_configs import NAMED_CONFIGS
from tfm_zoo.models.configuration_tfm import TfmConfig
from tfm_zoo.training.tokenizers import word_piece_tokenizer
from tfm_zoo.utils.schedules import SCHEDULES

logger = logging.getLogger(__name__)
#: options that a resumed run may change: where data lie, how work is shared, its length, what is logged and saved
MAY_CHANGE = """
    dataset_name metrics train_file validation_file test_file model_name_or_path tokenizer_name trust_remote_code
    preprocessing_num_workers dataloader_num_workers per_device_train_batch_size per_device_train_batch_tokens
    per_device_eval_batch_size gradient_accumulation_steps gradient_checkpointing sync_each_batch ddp_timeout bf16 fp16
    num_train_epochs max_train_steps early_stopping_patience logging_steps eval_steps sample_prompt sample_length
    output_dir overwrite_output_dir checkpointing_steps save_total_limit resume_from_checkpoint with_tracking report_to
    run_name push_to_hub hub_model_id hub_token hub_private_repo hub_revision
"""
#: options that need `lora_rank`
OF_ADAPTERS = ("lora_alpha", "lora_dropout", "lora_target_modules")
#: options of a new model, which a checkpoint cannot have
OF_NEW = ("model_type", "config_name", "config_overrides")


@dataclass(frozen=True)
class TrainingOptions(DataOptions):
    """The options of every recipe that trains: of its model, its data and its loop, named as in transformers' examples.

    A task's class sets the class attributes below, and adds options. A class attribute removes the option of its name.
    """

    either_or: ClassVar = (
        *DataOptions.either_or,
        *(
            ("model_name_or_path", new, f"{new} is for new models; a checkpoint has its own config.json")
            for new in OF_NEW
        ),
        *(("model_name_or_path", "tokenizer_vocab_size"), ("tokenizer_name", "tokenizer_vocab_size")),
        *(("model_type", "config_name"), ("streaming", "max_train_samples")),
        *(("mixed_precision", "bf16"), ("mixed_precision", "fp16"), ("bf16", "fp16")),
    )
    replaces: ClassVar = DataOptions.replaces | {
        "model_name_or_path": "model_revision model_type config_name config_overrides tokenizer_vocab_size",
        "model_type": "model_name_or_path model_revision config_name",
        "config_name": "model_name_or_path model_revision model_type",
    }
    joins: ClassVar = {
        "config_overrides": "model_type config_name",
        "lr_scheduler_kwargs": "lr_scheduler_type",
        "optim_args": "optim",
    }
    #: the checkpoint to start from if no option says so; without one, a new model
    default_model: ClassVar[str | None] = "sentence-transformers/all-MiniLM-L6-v2"
    #: type of the small new model that is made if no option names another, by `model_class`; and its fields
    small_type: ClassVar[Mapping[str, str]] = {"zoo": "tfm_bert", "native": "bert"}
    small_fields: ClassVar[Mapping[str, Any]] = {
        "hidden_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "intermediate_size": 256,
    }
    #: makes a tokenizer from texts, with at most this many tokens; `small_vocab_size` is the default number
    make_tokenizer: ClassVar[Callable[..., PreTrainedTokenizerBase]] = staticmethod(word_piece_tokenizer)
    small_vocab_size: ClassVar[int] = 8000
    #: option that limits the tokens of a row -> the tokenizer that it counts for
    length_options: ClassVar[Mapping[str, str]] = {"max_seq_length": "tokenizer"}
    # Options of some tasks only. These values count for the others; a task that has the option makes it a field.
    ignore_mismatched_sizes: ClassVar[bool] = False

    # The model
    model_name_or_path: str | None = option(
        None, f"Folder or Hub id; default: a small new model; to classify, tag or answer on your data {default_model}."
    )
    model_revision: str | None = option(None, "Branch, tag or commit of a checkpoint on the Hub; default: main.")
    model_type: str | None = option(None, "Type of a new model in its default size (llama); default: a small model.")
    config_name: str | None = option(None, f"Of a new model: Hub id, folder or {', '.join(NAMED_CONFIGS)}.")
    config_overrides: str | None = option(None, "Fields of a new model: 'hidden_size=256,mlp_type=gated' or a mapping.")
    tokenizer_name: str | None = option(None, "Default: the checkpoint's, or one made from the texts.")
    tokenizer_vocab_size: int | None = option(None, "The most tokens of a new tokenizer; default: as the model has.")
    model_class: Literal["zoo", "native"] = option("zoo", "'native' keeps an official checkpoint's own class.")
    trust_remote_code: bool = option(False, "Run the code of a checkpoint (Hub or folder), or of a metric of the Hub.")

    # The data
    preprocessing_num_workers: int | None = option(None, "Processes that tokenize.", at_least=1)
    max_seq_length: int = option(256, "Longer texts are truncated to this many tokens.", "max_length", at_least=1)
    pad_to_max_length: bool = option(False, "Pad to max_seq_length instead of the batch's longest text.")
    group_by_length: bool = option(False, "Put examples of similar length into the same batch.")

    # The run
    output_dir: str = option("output", "Folder for the best model, its card, the figures and the checkpoints.")
    overwrite_output_dir: bool = option(False, "Replace the run in `output_dir`; its model stays until a new one.")
    seed: int = option(42, "Seed of splits, shuffling, new weights and dropout.")

    per_device_train_batch_size: int = option(16, "Training examples per process and forward pass.", at_least=1)
    per_device_eval_batch_size: int = option(32, "Evaluation examples per process and forward pass.", at_least=1)
    gradient_accumulation_steps: int = option(1, "Forward passes per optimiser step.", at_least=1)
    dataloader_num_workers: int | None = option(None, "Workers a process; default: 0, of a stream up to 4.", at_least=0)

    learning_rate: float | None = option(
        None, "Highest rate; default: 5e-5, of adapters 5e-4, of a new model 1e-3. For 'noam' a factor: 1.", above=0
    )
    weight_decay: float = option(0.01, "AdamW's weight decay; biases and norms are left out.", at_least=0)
    optim: str = option("adamw_torch", "Optimiser, by transformers' name (adafactor, ...) or torch's (SGD, ...).")
    optim_args: str | None = option(None, "More arguments of the optimiser: 'momentum=0.9,nesterov=True'.")
    adam_beta1: float = option(0.9, "AdamW's decay of the mean of gradients.", at_least=0, below=1)
    adam_beta2: float = option(0.999, "AdamW's decay of the mean of squared gradients.", at_least=0, below=1)
    adam_epsilon: float = option(1e-8, "AdamW's epsilon.", above=0)
    max_grad_norm: float = option(1.0, "Gradients are clipped to this norm; 0: no clipping.", at_least=0)
    num_train_epochs: float = option(3.0, "Passes over the training data; may be a fraction.", above=0)
    max_train_steps: int | None = option(None, "Steps; overrides num_train_epochs.", "max_steps", at_least=1)
    lr_scheduler_type: Literal[SCHEDULES] = option("linear", "Schedule of transformers, or 'noam' (Vaswani et al.).")
    lr_scheduler_kwargs: str | None = option(None, "More arguments of the schedule: '{num_cycles: 2}'.")
    warmup_steps: float = option(0.1, "Below 1: a share of all steps.", "num_warmup_steps", "warmup_ratio", at_least=0)
    freeze: list[str] | None = option(None, "Parameters that do not learn, by parts of names: 'layers.[0-3]'.")
    lora_rank: int | None = option(None, "Rank of adapters (LoRA), which learn, with the head; default: 0.", at_least=0)
    lora_alpha: float | None = option(None, "Adapters count alpha / rank times; default: 16.", above=0)
    lora_dropout: float | None = option(None, "Dropout of what adapters read; default: 0.", at_least=0, below=1)
    lora_target_modules: list[str] | None = option(None, "Layers with adapters: q_proj v_proj; default: all linear.")
    gradient_checkpointing: bool = option(False, "Recompute activations in the backward pass: less memory.")
    sync_each_batch: bool = option(False, "Sum gradients over processes after each pass: less memory, more traffic.")
    mixed_precision: Literal["no", "fp16", "bf16"] | None = option(None, "Of the forward pass; default: as launched.")
    bf16: bool = option(False, "The same as mixed_precision bf16.")
    fp16: bool = option(False, "The same as mixed_precision fp16.")
    torch_compile: bool = option(False, "Compile the model: takes minutes, and pays off with few different lengths.")
    torch_compile_backend: str = option("inductor", "torch's name for the compiler.")
    ddp_timeout: int = option(1800, "Seconds that a process waits for others, as while one tokenizes.", at_least=1)

    logging_steps: int = option(10, "Steps between two entries of the loss in the log.", at_least=1)
    eval_steps: int | None = option(None, "Steps between evaluations; default: after each epoch.", at_least=1)
    metrics: list[str] | None = option(None, "Names, folders, Hub ids (with trust_remote_code); default: the task's.")
    metric_for_best_model: str | None = option(None, "What picks the best model; default: the task's, or the loss.")
    greater_is_better: bool | None = option(None, "Default: false for loss, mse, mae and perplexity, else true.")
    early_stopping_patience: int | None = option(None, "Stop after this many evaluations without a gain.", at_least=1)

    checkpointing_steps: str | None = option(None, "Save a checkpoint after so many steps, or 'epoch'.", "save_steps")
    save_total_limit: int | None = option(2, "How many checkpoints to keep; null in YAML: all.", at_least=1)
    resume_from_checkpoint: str | None = option(None, "A checkpoint; 'auto', or without a value: the newest, if any.")

    with_tracking: bool = option(False, "Log to all trackers of Accelerate that are installed.")
    report_to: list[str] | None = option(None, "Trackers (wandb, ...), 'all' or 'none'; default: all if with_tracking.")
    run_name: str | None = option(None, "Name of the run in wandb, mlflow, trackio, swanlab; default: the recipe's.")

    push_to_hub: bool = option(False, "Upload the best model to the Hub.")
    hub_model_id: str | None = option(None, "Repository to push to; default: the name of output_dir.")
    hub_token: str | None = option(None, "Token for the Hub; default: the one of `hf auth login`.")
    hub_private_repo: bool | None = option(None, "Make the Hub repository private.")
    hub_revision: str | None = option(None, "Branch to push to, created if it does not exist; default: the main one.")

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in self.joins:
            as_mapping(name, getattr(self, name))  # refuses what it cannot read
        if self.lora_rank is None and (unread := [name for name in OF_ADAPTERS if getattr(self, name) is not None]):
            raise ValueError(f"{unread[0]} is of adapters, which lora_rank asks for: add --lora_rank 8")
        if (steps := self.checkpointing_steps) not in (None, "epoch") and not (steps.isdecimal() and int(steps) > 0):
            raise ValueError(f"checkpointing_steps must be a number of steps or 'epoch', not {steps!r}")

    def with_defaults(self) -> Self:
        """These options with defaults that depend on others and on `accelerate launch`; bf16 as mixed_precision."""
        if self.model_revision and self.is_new:
            raise ValueError("model_revision is of a checkpoint: give model_name_or_path")
        args = self if self.source else replace(self, dataset_name=built_in_data.NAME)
        describes_new = args.has_own_sizes or args.config_overrides or args.tokenizer_vocab_size
        if args.default_model and args.is_new and not (describes_new or args.is_generated):
            args = replace(args, model_name_or_path=args.default_model)
        usual_rate = 1e-3 if args.is_new else 5e-4 if args.lora_rank else 5e-5
        accumulation = args.gradient_accumulation_steps
        of_launcher = os.environ.get("ACCELERATE_GRADIENT_ACCUMULATION_STEPS", "1")
        if accumulation > 1 and of_launcher not in ("auto", "1", str(accumulation)):
            asked = f"gradient_accumulation_steps {accumulation}: the launcher asks for {of_launcher}"
            raise ValueError(f"{asked}; give one number")
        if args.lora_rank:
            args = replace(args, lora_alpha=args.lora_alpha or 16, lora_dropout=args.lora_dropout or 0.0)
        return replace(
            args,
            learning_rate=args.learning_rate or (1.0 if args.lr_scheduler_type == "noam" else usual_rate),
            gradient_accumulation_steps=max(accumulation, int(of_launcher) if of_launcher.isdecimal() else 1),
            mixed_precision="bf16" if args.bf16 else "fp16" if args.fp16 else args.mixed_precision,
            bf16=False,
            fp16=False,
        )

    @property
    def resume_from(self) -> str | None:
        """`resume_from_checkpoint`, where true means "auto", and false nothing."""
        asked = self.resume_from_checkpoint
        return {"true": "auto", "false": None}.get(str(asked).lower(), asked)

    @property
    def is_higher_better(self) -> bool:
        """Whether a higher `metric_for_best_model` is better. The task has settled which metric that is."""
        falling = self.metric_for_best_model.endswith(("loss", "perplexity", "mse", "mae"))
        return not falling if self.greater_is_better is None else self.greater_is_better

    @property
    def has_own_sizes(self) -> bool:
        """Whether the options name a new model with sizes of its own, and not the small one."""
        return bool(self.model_type or self.config_name)

    @property
    def is_new(self) -> bool:
        """Whether training starts from new weights, and not from a checkpoint."""
        return self.model_name_or_path is None

    def becomes_zoo(self, config: PreTrainedConfig) -> bool:
        """Whether a model of this configuration is official and will be converted to a zoo model."""
        return self.model_class == "zoo" and not is_zoo(config)

    def overrides(self) -> dict[str, Any]:
        """`config_overrides` as fields and values."""
        return as_mapping("config_overrides", self.config_overrides)

    def warmup_of(self, steps: int) -> int:
        """How many of these steps warm up."""
        return int(self.warmup_steps if self.warmup_steps >= 1 else self.warmup_steps * steps)


def is_zoo(config: PreTrainedConfig) -> bool:
    """Whether a configuration is of the zoo's own models, or of somebody's class that is derived from one of them."""
    return config.model_type.startswith("tfm_") or isinstance(config, TfmConfig)


def cap_lengths(options: AnyOptions, longest: int, *names: str) -> AnyOptions:
    """The options, with each named length above `longest`, the most tokens that the model takes, set to `longest`."""
    for name in names:
        length = getattr(options, name)
        if length > longest:
            logger.warning(f"{name} {length} is more than the model takes: using {longest}")
            options = replace(options, **{name: longest})
    return options
