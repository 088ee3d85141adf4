"""The model that training starts from, whatever its head: a checkpoint with its tokenizer, or new weights."""

import difflib
from typing import Any

from transformers import CONFIG_MAPPING, AutoConfig, PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerBase

import tfm_zoo
from tfm_zoo.training.arguments import nearest, option
from tfm_zoo.training.models import Head, ModelArguments, check_vocabulary, load_config, load_tokenizer

ModelAndTokenizer = tuple[PreTrainedModel, PreTrainedTokenizerBase]


def new_config(args: ModelArguments, fields: dict[str, Any]) -> PreTrainedConfig:
    """The configuration that the options name, with these fields changed, and then those of `config_overrides`."""
    overrides, known = args.overrides(), _known_config(args)
    names = {name: name for name in (*known.to_dict(), "rope_parameters")} | known.attribute_map
    for name in overrides:
        if name not in names:
            raise ValueError(f"config_overrides: {known.model_type} has no field {name!r}{nearest(name, names)}")
    if not args.is_named:
        fields = {**args.small_fields, **fields}
    changes = {names.get(name, name): value for part in (fields, overrides) for name, value in part.items()}
    saved = known.to_diff_dict() if args.config_name else {}  # as config.json has it
    return type(known).from_dict(saved | changes)


def tokens_to_learn(args: ModelArguments, default: int) -> int:
    """How many tokens a tokenizer gets that is made for a new model: as asked for, or as its configuration has."""
    if args.tokenizer_vocab_size is not None:
        return args.tokenizer_vocab_size
    usual = getattr(_known_config(args), "vocab_size", default) if args.is_named else default
    return args.overrides().get("vocab_size", usual)


def _known_config(args: ModelArguments) -> PreTrainedConfig:
    """The configuration that the options name, before any of its fields is changed."""
    if args.config_name in tfm_zoo.NAMED_CONFIGS:
        return tfm_zoo.named_config(args.config_name)
    if args.config_name:
        return load_config(args, args.config_name, "config_name")
    if args.model_type is None or args.model_type in CONFIG_MAPPING:
        return AutoConfig.for_model(args.model_type or args.small_type)
    near = difflib.get_close_matches(args.model_type, CONFIG_MAPPING, n=3)
    raise ValueError(f"model_type {args.model_type!r} is not one of transformers' or the zoo's; near: {near}")


def vocabulary_option(kind: str, default: int) -> Any:
    """The option `tokenizer_vocab_size` of a task that makes this kind of tokenizer."""
    return option(
        None,
        f"Tokens at most of a tokenizer made from the training texts, {kind}; default: as many as the configuration"
        f" named has, or {default}.",
    )


def load_initial_model(args: ModelArguments, head: Head) -> ModelAndTokenizer:
    """The checkpoint that the options name, as a zoo model unless `model_class` is "native"; and its tokenizer."""
    config = load_config(args, args.model_name_or_path)
    head.check(config)
    model, tokenizer = head.load(args, config), load_tokenizer(args)
    check_vocabulary(tokenizer, model.config)
    return model, tokenizer


def initial_config(
    args: ModelArguments, head: Head, tokenizer: PreTrainedTokenizerBase, **fields: Any
) -> PreTrainedConfig:
    """The configuration of a new model with this head, for this tokenizer. `config_overrides` win over `fields`."""
    config = new_config(args, {"vocab_size": len(tokenizer), "pad_token_id": tokenizer.pad_token_id, **fields})
    head.check(config)
    check_vocabulary(tokenizer, config)
    return config
