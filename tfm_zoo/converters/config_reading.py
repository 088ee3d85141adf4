"""Configurations as files hold them. What cannot be is refused, with its name, before a model is made of it."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from ..utils.errors import in_one_line
from .errors import ConversionError

Made = TypeVar("Made")
#: what configurations call the numbers of layers, those of experts, and the rows and columns of weights
LAYERS = {
    *("num_hidden_layers", "num_layers", "n_layers", "n_layer", "depth", "depths", "num_blocks", "num_hidden_groups"),
    "attention_types",  # of GPT-Neo: kinds of layers, each with how often it is repeated
    *("encoder_layers", "decoder_layers", "num_encoder_layers", "num_decoder_layers", "inner_group_num"),
}
EXPERTS = {"num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts", "n_shared_experts"}
WIDTHS = {
    *("hidden_size", "hidden_sizes", "hidden_dim", "n_embd", "d_model", "dim", "embedding_size", "embed_dim"),
    *("word_embed_proj_dim", "vocab_size", "decoder_vocab_size", "src_vocab_size", "tgt_vocab_size", "type_vocab_size"),
    *("intermediate_size", "moe_intermediate_size", "shared_expert_intermediate_size", "ffn_hidden_size", "n_inner"),
    *("d_ff", "ffn_dim", "encoder_ffn_dim", "decoder_ffn_dim", "head_dim", "d_kv", "projection_dim"),
    *("num_attention_heads", "num_key_value_heads", "n_head", "n_heads", "num_heads"),
    *("attention_heads", "encoder_attention_heads", "decoder_attention_heads"),
}


def check_names(file: Path, fields: Mapping[str, Any]) -> None:
    """Refuses a `config.json` in which an architecture, a class or a dtype is not a name."""
    for name in ("model_type", "dtype", "torch_dtype"):
        if not isinstance(fields.get(name), str | None):
            raise ConversionError(f"{file} has {name}={fields[name]!r}; it should be a name.")
    classes = fields.get("architectures")
    if not isinstance(classes, list | None) or not all(isinstance(name, str) for name in classes or ()):
        raise ConversionError(f"{file} has architectures={classes!r}; it should be a list of names of classes.")


def check_sizes(
    source: str | Path, fields: Mapping[str, Any], shapes: Collection[Sequence[int]], within: str = ""
) -> None:
    """Refuses sizes, in parts of a configuration too, that a checkpoint's weights cannot have: making a model of them
    would take hours, or more memory than there is.

    Layers may share their tensors, as ALBERT's do, packed weights have fewer rows, and a part of a configuration may be
    of a tower that the checkpoint leaves out. So what is made in a moment always passes, such as 100 layers.
    """
    widest = max((max(shape) for shape in shapes if shape), default=0)
    stacked = [max(shape) for shape in shapes if len(shape) >= 3]  # where experts lie in one tensor
    for names, limit in (
        (LAYERS, max(len(shapes), 100)),
        (EXPERTS, max(len(shapes), *stacked, 1000)),
        (WIDTHS, max(8 * widest, 1 << 20)),  # packed weights have an eighth of the rows
    ):
        for name in names & fields.keys():
            sizes = list(numbers_in(fields[name]))
            if min(sizes, default=0) < 0:
                raise ConversionError(f"{source} has {within}{name}={fields[name]!r}; it should not be negative.")
            if max(sizes, default=0) > limit:
                have = f"weights of {len(shapes)} tensors only, of at most {widest} rows or columns"
                raise ConversionError(f"{source} has {within}{name}={fields[name]!r}, and {have}.")
    for name, value in fields.items():
        if isinstance(value, dict) and name != "quantization_config":
            check_sizes(source, value, shapes, f"{within}{name}.")


def numbers_in(value: Any) -> Iterator[float]:
    """A number, or those in lists of lists: some architectures have a size for each stage."""
    if isinstance(value, list):
        for one in value:
            yield from numbers_in(one)
    elif isinstance(value, int | float):
        yield value


def made_of(
    make: Callable[[dict[str, Any]], Made], fields: Mapping[str, Any], source: str | Path = "a configuration"
) -> Made:
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
            raise ConversionError(
                f"{source}: {name}={fields[name]!r} is not a value for this field: {error}"
            ) from error
        raise ConversionError(f"{source} has values that do not fit: {in_one_line(error)}") from error
