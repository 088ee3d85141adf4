"""The checkpoint that a recipe trains, perhaps with a new head, and its tokenizer. `new_models.py` makes new ones."""

import logging
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import transformers
from transformers import AutoConfig, AutoTokenizer, PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerBase
from transformers.models.auto.auto_factory import _get_model_class

import tfm_zoo
from tfm_zoo.converters.choosing import table_for
from tfm_zoo.converters.sources import check_folder, download
from tfm_zoo.converters.token_positions import positions_of
from tfm_zoo.inference.packing.configuration import METHOD
from tfm_zoo.training.checkpoints import find_checkpoint
from tfm_zoo.training.options import TrainingOptions
from tfm_zoo.utils.quiet import silenced

logger = logging.getLogger(__name__)
# Weights are float32 in training, also those of half-precision checkpoints: half precision would round AdamW's small
# steps away. With `mixed_precision`, the model computes in half precision where that does no harm.
WEIGHTS = torch.float32
ModelAndTokenizer = tuple[PreTrainedModel, PreTrainedTokenizerBase]
#: the files of a checkpoint
FILES = ("*.json", "*.txt", "*.model", "*.jinja", "*.py", "*.safetensors", "*.bin")


@dataclass(frozen=True)
class Head:
    """The head that a task needs: loads checkpoints that have it, or gives them one."""

    auto_class: type  # makes models with it
    title: str  # what a model with it is called

    def check(self, config: PreTrainedConfig) -> None:
        """Refuse a configuration if neither transformers nor the checkpoint's own code has a class with the head."""
        own, name = [each for each in getattr(config, "auto_map", {}) if "Model" in each], self.auto_class.__name__
        if not (self.official_class(config) or name in own):
            is_own = own and not config.model_type.startswith("tfm_")
            own = f"; its code has {own}: first save it with code for {name} (docs/change_the_block.md)" * bool(is_own)
            raise ValueError(f"{named(config)}: transformers has no {self.title} of type {config.model_type!r}{own}")

    def official_class(self, config: PreTrainedConfig) -> type[PreTrainedModel] | None:
        """transformers' class with this head for this configuration, if there is one."""
        classes = self.auto_class._model_mapping  # may list several classes for a configuration
        return _get_model_class(config, classes) if type(config) in classes else None

    def zoo_class(self, config: PreTrainedConfig) -> type[PreTrainedModel] | None:
        """The zoo's class with this head for an official configuration; `None` for what `from_official` refuses."""
        if (architecture := table_for(config.to_dict())) is None:
            return None
        name = transformers.CONFIG_MAPPING[architecture.family].auto_classes.get(self.auto_class.__name__)
        if name is None:
            raise ValueError(f"{named(config)} becomes a {architecture.family!r}, not a {self.title}")
        return getattr(tfm_zoo, name)

    def config_of_checkpoint(self, args: TrainingOptions) -> PreTrainedConfig:
        """The configuration of the checkpoint that the options name."""
        config = load_named(args, "model_name_or_path", AutoConfig)
        self.check(config)
        if (getattr(config, "quantization_config", None) or {}).get("quant_method") == METHOD:
            name = args.model_name_or_path
            raise ValueError(f"model_name_or_path {name!r} is quantised, for inference: train what it was made of")
        return config

    def load(
        self, args: TrainingOptions, drop_head: bool = False, config: PreTrainedConfig | None = None, **fields: Any
    ) -> ModelAndTokenizer:
        """The checkpoint that the options name, with these fields, and with new weights for what it lacks. `drop_head`:
        its head counts as lacking. `config`: its own, if known."""
        name, revision, config = args.model_name_or_path, args.model_revision, config or self.config_of_checkpoint(args)
        # `from_official` takes no revision.
        place = str(download(name, FILES, revision)) if revision and not Path(name).exists() else name
        if args.becomes_zoo(config):
            source = transformers.AutoModel.from_pretrained(place) if drop_head else place
            # New weights are worth no warning where the run goes on: `resume` will replace them.
            with silenced("tfm_zoo") if find_checkpoint(args.resume_from, Path(args.output_dir)) else nullcontext():
                model = tfm_zoo.from_official(source, self.zoo_class(config), dtype=WEIGHTS, **fields)
        else:
            options = {"trust_remote_code": args.trust_remote_code, "ignore_mismatched_sizes": drop_head}
            model = self.auto_class.from_pretrained(place, dtype=WEIGHTS, **options, **fields)
        tokenizer = load_tokenizer(args)
        check_vocabulary(tokenizer, model.config)
        return model, tokenizer

    def load_with_labels(self, args: TrainingOptions, labels: Sequence[str], **fields: Any) -> ModelAndTokenizer:
        """The checkpoint with a head for these labels, and its tokenizer. A checkpoint without a head gets a new one. A
        head with as many labels is kept. A head with another number of labels is refused, or replaced if
        `ignore_mismatched_sizes`."""
        name, config = args.model_name_or_path, self.config_of_checkpoint(args)
        suffix = self.auto_class.__name__.removeprefix("AutoModel")  # such as "ForSequenceClassification"
        names_head = any(suffix in architecture for architecture in config.architectures or [])
        known = [*config.id2label.values()]  # (the config may have no label2id)
        is_misfit = names_head and config.num_labels != len(labels)
        if is_misfit and not args.ignore_mismatched_sizes:
            both = f"{config.num_labels} labels {known} and the data have {len(labels)}: {labels}"
            raise ValueError(f"{name!r} classifies into {both}; ignore_mismatched_sizes replaces its head")
        if names_head and set(known) == set(labels):
            labels = [config.id2label[index] for index in range(len(labels))]  # in the order of its head
        elif names_head and not is_misfit and not all(label.startswith("LABEL_") for label in known):
            logger.warning(f"{name!r} classifies into {known}: its head now learns {labels}")
        # A checkpoint may have a head that no field names: it is dropped, too.
        drop_head = args.ignore_mismatched_sizes and (is_misfit or not names_head)
        return self.load(args, drop_head, config, **label_fields(labels), **fields)


def named(config: PreTrainedConfig) -> str:
    """A model as errors call it: by its checkpoint, or else by its type."""
    return repr(config.name_or_path) if config.name_or_path else f"model_type {config.model_type!r}"


def load_named(args: TrainingOptions, option_name: str, auto_class: type) -> Any:
    """What an option names, a configuration or a tokenizer: loaded from a folder or from the Hub."""
    name = getattr(args, option_name)
    revision = args.model_revision if option_name == "model_name_or_path" else None
    try:
        check_folder(name)
        if not Path(name).exists():  # a download fails at once without a connection, and says why
            download(name, ["config.json" if auto_class is AutoConfig else "tokenizer_config.json"], revision)
        return auto_class.from_pretrained(name, revision=revision, trust_remote_code=args.trust_remote_code)
    except OSError as error:
        default = " (the default; --config_overrides hidden_size=128 makes a small new model)"
        raise OSError(f"{option_name}{default if name == args.default_model else ''}: {error}") from error


def load_tokenizer(args: TrainingOptions) -> PreTrainedTokenizerBase:
    """The tokenizer that the options name, else that of the checkpoint."""
    return load_named(args, "tokenizer_name" if args.tokenizer_name else "model_name_or_path", AutoTokenizer)


def check_vocabulary(tokenizer: PreTrainedTokenizerBase, config: PreTrainedConfig) -> None:
    """Refuse a tokenizer with ids for which a model has no embeddings."""
    if (tokens := len(tokenizer)) > (size := config.vocab_size):
        model = repr(config.name_or_path) if config.name_or_path else "the new model (vocab_size)"
        raise ValueError(f"tokenizer {tokenizer.name_or_path!r} has {tokens} tokens, more than the {size} of {model}")


def longest_input(config: PreTrainedConfig, tokenizer: PreTrainedTokenizerBase) -> int:
    """The most tokens that both model and tokenizer take."""
    return min(positions_of(config) or tokenizer.model_max_length, tokenizer.model_max_length)


def with_padding(tokenizer: PreTrainedTokenizerBase) -> PreTrainedTokenizerBase:
    """The tokenizer, with a padding token. If it lacks one, as GPT-2's, its end-of-text token becomes it."""
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token
    if tokenizer.pad_token is None:
        raise ValueError(f"tokenizer {tokenizer.name_or_path!r} has no pad_token, which batches need, and no eos_token")
    return tokenizer


def label_fields(names: Sequence[str]) -> dict[str, Any]:
    """The fields of a configuration that name the labels."""
    ids = {name: index for index, name in enumerate(names)}
    return {"num_labels": len(names), "id2label": dict(enumerate(names)), "label2id": ids}
