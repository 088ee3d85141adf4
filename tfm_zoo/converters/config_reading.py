"""Configurations as files hold them. What cannot be is refused, with its name, before a model is made of it."""

from collections.abc import Callable, Mapping, Sized
from pathlib import Path
from typing import Any, TypeVar

from .errors import ConversionError

Made = TypeVar("Made")
#: what configurations call the numbers of layers
LAYERS = (
    *("num_hidden_layers", "num_layers", "n_layers", "n_layer"),
    *("encoder_layers", "decoder_layers", "num_decoder_layers"),
)


def check_names(file: Path, fields: Mapping[str, Any]) -> None:
    """Refuses a `config.json` whose names of the architecture, of its classes and of its type are no names."""
    for name in ("model_type", "dtype", "torch_dtype"):
        if not isinstance(fields.get(name), str | None):
            raise ConversionError(f"{file} has {name}={fields[name]!r}; it should be a name.")
    classes = fields.get("architectures")
    if not isinstance(classes, list | None) or not all(isinstance(name, str) for name in classes or ()):
        raise ConversionError(f"{file} has architectures={classes!r}; it should be a list of names of classes.")


def check_depth(source: str | Path, fields: Mapping[str, Any], tensors: Sized) -> None:
    """Refuses more layers than a checkpoint's tensors can be: building a model of them would take hours.

    Layers may share their tensors, as ALBERT's do. A hundred of them at most are taken for one.
    """
    sharing = 1 if fields.get("num_hidden_groups") in (None, fields.get("num_hidden_layers")) else 100
    for name in LAYERS:
        if isinstance(fields.get(name), int) and fields[name] > sharing * len(tensors):
            raise ConversionError(f"{source} has {name}={fields[name]}, and weights of {len(tensors)} tensors only.")


def made_of(make: Callable[[dict[str, Any]], Made], fields: Mapping[str, Any]) -> Made:
    """What `make` makes of a configuration's fields. If it fails, the error names a field without which it works."""
    try:
        return make(dict(fields))
    except Exception as error:
        culprits = () if any(name in str(error) for name in fields) else fields
        for name in culprits:
            try:
                make({other: value for other, value in fields.items() if other != name})
            except Exception:  # it is not this field, or not this one alone
                continue
            raise ConversionError(f"{name}={fields[name]!r} is no value for this field: {error}") from error
        raise
