"""Names of fields: two for one field, misspelt ones, and those of other families. [`register`] gives configurations the
last three functions as methods. Without `tfm_zoo`, a checkpoint's own configuration does not check names."""

from dataclasses import fields
from difflib import get_close_matches
from typing import Any

from transformers import PreTrainedConfig
from transformers.utils import logging

from ..models.configuration_tfm import TfmConfig, names_of

logger = logging.get_logger(__name__)
#: names of official configurations that stand for several fields here, or for a value of one -> what to write
OTHERS = {
    "alibi": "position_embedding_type='alibi'",
    "multi_query": "num_key_value_heads=1",
    **dict.fromkeys(("n_kv_head", "n_kv_heads", "n_head_kv", "kv_heads"), "num_key_value_heads"),
    # They count both sides.
    **{name: f"sliding_window, which is half of {name}" for name in ("local_attention", "attention_window")},
    **dict.fromkeys(("window_size", "window"), "sliding_window"),
    **dict.fromkeys(("rotary", "use_rope", "rope"), "position_embedding_type='rotary'"),
    **{"attn_dropout": "attention_dropout", "mlp": "mlp_type"},
    **dict.fromkeys(("block_size", "context_length"), "max_position_embeddings"),
    "nhead": "num_attention_heads",
    "dim_feedforward": "intermediate_size",
    **dict.fromkeys(("bias", "use_bias"), "attention_bias, mlp_bias or norm_bias"),
    **dict.fromkeys(("rotary_dim", "rotary_pct"), "partial_rotary_factor, in rope_parameters"),
    "use_qk_norm": "qk_norm",
    **dict.fromkeys(("norm", "normalization"), "norm_type"),
}
_post_init = TfmConfig.__post_init__  # before `register` replaces it


def by_field(kind: type[TfmConfig], given: dict[str, Any]) -> dict[str, Any]:
    """The given values by the names of their fields. Raises a `ValueError` for two names of one field, unless they
    are aliases with the same value. (An alias that is `None` says nothing.)"""
    names = {}
    for name, value in given.items():
        if value is not None or name not in kind.attribute_map:
            names.setdefault(kind.attribute_map.get(name, name), []).append(name)
    for meant, same in names.items():
        if len(same) > 1 and (meant in same or any(given[name] != given[same[0]] for name in same)):
            values = " and ".join(f"{name}={given[name]!r}" for name in same)
            raise ValueError(f"{values} are names of one field, {meant!r}: give one of them.")
    return {meant: given[same[0]] for meant, same in names.items()}


def misspelt_field(kind: type[TfmConfig], name: str) -> str | None:
    """The field that an unknown name resembles or means, if any."""
    if hasattr(kind, name) or name in kind.attribute_map.keys() | kind.lacks:
        return None
    if name in OTHERS:
        return OTHERS[name]
    return next(iter(get_close_matches(name, {each.name for each in fields(kind)}, n=1, cutoff=0.87)), None)


def merged(kind: type[TfmConfig], values: dict[str, Any], overrides: dict[str, Any]) -> dict[str, Any]:
    """Values of fields, with overrides in their place. The configuration's own rules (`rules.py`) say which values then
    have no effect: these are left out."""
    given = {each.name: each.default for each in fields(kind)} | values | overrides
    idle = {"is_decoder", "add_cross_attention"}.union(*(rule.idle_among(given) for rule in kind.rules))
    return {name: value for name, value in values.items() if name not in idle} | overrides


def new(cls, *args, **given) -> TfmConfig:
    """Refuses two names of one field. (`__init__` forgets which names were given.)"""
    by_field(cls, given)
    return super(TfmConfig, cls).__new__(cls)


def post_init(self, **kwargs: Any) -> None:
    """Refuses a name that looks misspelt. (Not in [`new`]: a class of somebody's own may have taken some.)"""
    for name in kwargs:
        if meant := misspelt_field(type(self), name):
            raise ValueError(f"{type(self).__name__} has no field {name!r}. Is it {meant!r}?")
    _post_init(self, **kwargs)


def from_dict(cls, config_dict: dict[str, Any], **kwargs):
    """Makes a configuration from saved fields and overrides (`kwargs`), checked together. Raises a `ValueError` for the
    fields of another type of model. Saved values without effect are left out: earlier versions took some. A field of
    another family gives a warning, and so does what looks misspelt, although a tool may have written it."""
    model_type = config_dict.get("model_type") or cls.model_type
    if model_type != cls.model_type:
        hint = "" if model_type.startswith("tfm_") else " (tfm_zoo.from_official converts official checkpoints)"
        raise ValueError(f"A model of type {model_type!r} is not one of {cls.model_type!r}{hint}.")
    known = names_of(cls) - names_of(PreTrainedConfig) | cls.lacks | {"rope_parameters"}
    overrides = by_field(cls, {name: kwargs.pop(name) for name in list(kwargs) if name in known})
    saved = by_field(cls, config_dict)
    foreign = {name: saved.pop(name) for name in list(saved) if name in cls.lacks or misspelt_field(cls, name)}
    loaded = super(TfmConfig, cls).from_dict(merged(cls, saved, overrides), **kwargs)
    config = loaded[0] if isinstance(loaded, tuple) else loaded
    for name, value in foreign.items():
        hint = f" Is it {meant!r}?" if (meant := misspelt_field(cls, name)) else ""
        if hint or value:
            logger.warning(f"{name}={value!r} has no effect: {cls.__name__} has no such field.{hint}")
        if hint:
            setattr(config, name, value)
    return loaded
