"""New models: a configuration as the options name it, new weights, and a tokenizer, named or made from the texts.

`model_with_labels` goes on to `models.py` where the options name a checkpoint.
"""

import difflib
import logging
from collections.abc import Iterable, Sequence
from typing import Any

import transformers
from huggingface_hub.errors import StrictDataclassFieldValidationError
from transformers import AutoConfig, AutoTokenizer, PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerBase

import tfm_zoo
from tfm_zoo.training.models import WEIGHTS, Head, ModelAndTokenizer, check_vocabulary, label_fields, load_named
from tfm_zoo.training.options import TrainingOptions, is_zoo

logger = logging.getLogger(__name__)


def model_with_labels(
    head: Head, args: TrainingOptions, texts: Iterable[str], labels: Sequence[str], **fields: Any
) -> ModelAndTokenizer:
    """A checkpoint or new model, with a head for these labels and `fields` in its configuration; and its tokenizer."""
    if not args.is_new:
        return head.load_with_labels(args, labels, **fields)
    tokenizer = new_tokenizer(args, texts)
    if not args.tokenizer_name:
        tokenizer.model_max_length = args.max_seq_length
    # Labels and positions decide shapes of weights. `new_model` sets `fields` last: an official model may lack them.
    positions = {} if args.has_own_sizes else {"max_position_embeddings": args.max_seq_length}
    config = new_config(head, args, tokenizer, **label_fields(labels), **positions)
    return new_model(head, args, config, **fields), tokenizer


def new_model(head: Head, args: TrainingOptions, config: PreTrainedConfig, **fields: Any) -> PreTrainedModel:
    """A model of this configuration with new weights and this head. `fields` are set in its final configuration."""
    becomes_zoo = args.becomes_zoo(config)
    if not becomes_zoo:
        config.update(fields)
    # With the same seed the official model and the converted one start with the same weights.
    model = head.auto_class.from_config(config, dtype=WEIGHTS, trust_remote_code=args.trust_remote_code)
    return tfm_zoo.from_official(model, head.zoo_class(config), **fields) if becomes_zoo else model


def new_config(
    head: Head, args: TrainingOptions, tokenizer: PreTrainedTokenizerBase, **fields: Any
) -> PreTrainedConfig:
    """The configuration that the options name, for this tokenizer. `fields` change it; `config_overrides` win."""
    special = {name: getattr(tokenizer, name) for name in ("pad_token_id", "bos_token_id", "eos_token_id")}
    small = {} if args.has_own_sizes else args.small_fields
    fields = {**small, "vocab_size": len(tokenizer), **special, **fields}
    known = known_config(args)
    saved = known.to_diff_dict() if args.config_name else {}  # of a type, `known` has only defaults
    changes = {known.attribute_map.get(name, name): value for name, value in (fields | args.overrides()).items()}
    try:
        config = type(known).from_dict(saved | changes)  # anew: some fields follow from others, as head_dim does
    except StrictDataclassFieldValidationError as error:
        raise ValueError(f"config_overrides: {error.__cause__}") from error
    head.check(config)
    check_vocabulary(tokenizer, config)
    return config


def new_tokenizer(args: TrainingOptions, texts: Iterable[str]) -> PreTrainedTokenizerBase:
    """The tokenizer that the options name, else one made from the texts, which are read only then."""
    if args.tokenizer_name:
        return load_named(args, "tokenizer_name", AutoTokenizer)
    known = known_config(args)  # which refuses a wrong field before the work
    usual = getattr(known, "vocab_size", args.small_vocab_size) if args.has_own_sizes else args.small_vocab_size
    size = args.tokenizer_vocab_size or args.overrides().get("vocab_size") or usual
    tokenizer = args.make_tokenizer(texts, size)
    has_tokenizer = args.config_name not in (None, *tfm_zoo.NAMED_CONFIGS)
    other = f"; --tokenizer_name {args.config_name} takes the one of --config_name" if has_tokenizer else ""
    logger.info(f"A new tokenizer of {len(tokenizer):,} tokens is made from the texts{other}")
    return tokenizer


def known_config(args: TrainingOptions) -> PreTrainedConfig:
    """The configuration that the options name, before `config_overrides` change it. Refuses fields that it lacks."""
    if args.config_name in tfm_zoo.NAMED_CONFIGS:
        known = tfm_zoo.named_config(args.config_name)
    elif args.config_name:
        known = load_named(args, "config_name", AutoConfig)
    elif args.model_type in (None, *transformers.CONFIG_MAPPING):
        known = AutoConfig.for_model(args.model_type or args.small_type[args.model_class])
    else:
        near = difflib.get_close_matches(args.model_type, transformers.CONFIG_MAPPING)
        raise ValueError(f"model_type {args.model_type!r} is not one of transformers' or the zoo's; near: {near}")
    names = {*known.to_dict(), "rope_parameters", *known.attribute_map}
    if unknown := [name for name in args.overrides() if name not in names]:
        near = difflib.get_close_matches(unknown[0], names)
        said = f"config_overrides: {known.model_type} has no field {unknown[0]!r}{f'; near: {near}' if near else ''}"
        advice = f". For fields of the zoo, give model_type {args.small_type['zoo']}, or a model that you convert"
        raise ValueError(said + advice * (not is_zoo(known)))
    return known
