"""A causal language model with its tokenizer, from any checkpoint or from nothing."""

import difflib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import yaml
from transformers import (
    CONFIG_MAPPING,
    MODEL_FOR_CAUSAL_LM_MAPPING,
    AutoConfig,
    AutoModelForCausalLM,
    PreTrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

import tfm_zoo
from tfm_zoo.training.arguments import option
from tfm_zoo.training.models import WEIGHTS, ModelArguments, check_vocabulary, load_config, load_tokenizer
from tfm_zoo.training.tokenizers import byte_level_bpe

SMALL = {
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 256,
    "max_position_embeddings": 128,
}
VOCAB_SIZE = 1024  # of a tokenizer made from the training text


@dataclass
class LanguageModelArguments(ModelArguments):
    """Which checkpoint to start from, or which new model to make."""

    model_name_or_path: str | None = option(
        None, "Zoo or official checkpoint, Hub id or folder. Without one a new model is trained."
    )
    model_type: str | None = option(
        None, "Type of a new model (tfm_gpt, gpt2, llama, ...), of that type's usual size; default: a small tfm_gpt."
    )
    config_name: str | None = option(
        None, f"Configuration of a new model: a Hub id, a folder, or one of {', '.join(tfm_zoo.NAMED_CONFIGS)}."
    )
    config_overrides: str | None = option(
        None, "Fields of a new model's configuration: 'hidden_size=256,mlp_type=gated', or a mapping (in YAML, JSON)."
    )
    tokenizer_name: str | None = option(
        None, "Tokenizer, if not the checkpoint's; default for a new model: one made from the training text."
    )
    tokenizer_vocab_size: int | None = option(
        None,
        f"Tokens (default: {VOCAB_SIZE}) of a tokenizer made from the training text, a byte-level BPE; 257: bytes.",
    )

    def __post_init__(self) -> None:
        new = {name: getattr(self, name) for name in ("model_type", "config_name", "config_overrides")}
        given = [name for name, value in new.items() if value is not None]
        if self.model_name_or_path and given:
            raise ValueError(f"{given[0]} makes a new model and cannot go with model_name_or_path")
        if self.model_type and self.config_name:
            raise ValueError("give either model_type or config_name, not both")
        if self.tokenizer_vocab_size and (self.tokenizer_name or self.model_name_or_path):
            raise ValueError("tokenizer_vocab_size is for a tokenizer made from the training text, of a new model")
        self.overrides()

    @property
    def is_new(self) -> bool:
        return self.model_name_or_path is None

    def overrides(self) -> dict[str, Any]:
        """`config_overrides` as fields and values.

        Raises:
            ValueError: for what is neither `field=value,field=value` nor a mapping.
        """
        text = (self.config_overrides or "").strip()
        if text.startswith("{"):
            try:
                values = yaml.safe_load(text)
            except yaml.YAMLError:
                raise ValueError(f"config_overrides {text!r}: not a mapping of fields to values") from None
        else:
            pairs = [pair.partition("=") for pair in text.split(",") if pair.strip()]
            if not all(equals for _, equals, _ in pairs):
                raise ValueError(f"config_overrides {text!r}: expected field=value,field=value")
            values = {name.strip(): yaml.safe_load(value) for name, _, value in pairs}
        return {name: _number(value) for name, value in values.items()}


def load_language_model(args: LanguageModelArguments) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """The checkpoint with a head that predicts the next token, as a zoo model unless `model_class` is "native"."""
    name = args.model_name_or_path
    config = load_config(args, name)
    if args.stays_as_it_is(config):
        _check_has_head(config)
        model = AutoModelForCausalLM.from_pretrained(name, **args.for_loading())
    else:
        model = tfm_zoo.from_official(name, tfm_zoo.TfmGPTForCausalLM, dtype=WEIGHTS)
    tokenizer = load_tokenizer(args, name)
    check_vocabulary(tokenizer, model.config)
    return model, tokenizer


def new_language_model(
    args: LanguageModelArguments, texts: Iterable[str], block_size: int | None
) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """A model with new weights, and the tokenizer asked for, or one made from the texts.

    A configuration of an official architecture makes a model of the native class, which is then converted, unless
    `model_class` is "native": with the same seed the two start with the same weights.

    Args:
        block_size: positions of a model that learns positions; `None`: as its configuration says.
    """
    if args.tokenizer_name:
        tokenizer = load_tokenizer(args)
    else:
        tokenizer = byte_level_bpe(texts, args.tokenizer_vocab_size or VOCAB_SIZE)
    fields = {
        "vocab_size": len(tokenizer),
        "bos_token_id": tokenizer.bos_token_id,
        "eos_token_id": tokenizer.eos_token_id,
        "pad_token_id": tokenizer.pad_token_id,
    }
    if block_size:
        fields["max_position_embeddings"] = block_size
    config = _new_config(args, fields)
    _check_has_head(config)
    check_vocabulary(tokenizer, config)
    model = AutoModelForCausalLM.from_config(config, dtype=WEIGHTS, trust_remote_code=args.trust_remote_code)
    if not args.stays_as_it_is(config):
        model = tfm_zoo.from_official(model, tfm_zoo.TfmGPTForCausalLM)
    return model, tokenizer


def _new_config(args: LanguageModelArguments, fields: dict[str, Any]) -> PreTrainedConfig:
    overrides = args.overrides()
    if args.config_name in tfm_zoo.NAMED_CONFIGS:
        known = tfm_zoo.named_config(args.config_name)
    elif args.config_name:
        known = load_config(args, args.config_name, "config_name")
    elif args.model_type is None or args.model_type in CONFIG_MAPPING:
        known = AutoConfig.for_model(args.model_type or "tfm_gpt")
    else:
        near = difflib.get_close_matches(args.model_type, CONFIG_MAPPING, n=3)
        raise ValueError(f"model_type {args.model_type!r} is not one of transformers' or the zoo's; near: {near}")
    names = {name: name for name in (*known.to_dict(), "rope_parameters")} | known.attribute_map
    for name in overrides:
        if name not in names:
            near = difflib.get_close_matches(name, names, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise ValueError(f"config_overrides: {known.model_type} has no field {name!r}{hint}")
    if args.model_type is None and args.config_name is None:
        fields = SMALL | fields
    changes = {names.get(name, name): value for part in (fields, overrides) for name, value in part.items()}
    saved = known.to_dict() if args.config_name else {}
    return type(known).from_dict(saved | changes)


def _check_has_head(config: PreTrainedConfig) -> None:
    own = getattr(config, "auto_map", {})
    if type(config) not in MODEL_FOR_CAUSAL_LM_MAPPING and "AutoModelForCausalLM" not in own:
        raise ValueError(f"model_type {config.model_type!r} is not a causal language model")


def _number(value: Any) -> Any:
    """YAML reads 1e-3 as a string."""
    try:
        return float(value) if isinstance(value, str) else value
    except ValueError:
        return value
