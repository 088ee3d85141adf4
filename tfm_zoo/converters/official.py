"""`from_official` and `to_official`: what the tables say, carried out."""

import copy
import logging
from collections.abc import Callable, Collection, Iterable
from pathlib import Path

import torch
from torch import nn
from transformers import PreTrainedConfig, PreTrainedModel

from ..models.positions import TfmSinusoidalPositions
from .architecture import IN_TRAINING, Architecture, Head
from .bart import BART, MBART
from .bert import BERT
from .checkpoint import Checkpoint, open_checkpoint
from .distilbert import DISTILBERT
from .fsmt import FSMT
from .gpt2 import GPT2
from .llama import LLAMA, MISTRAL, QWEN2
from .marian import MARIAN
from .matching import by_canonical_name, full_names, match
from .models import as_dtype, assemble, attention_of, common_dtype, skeleton_of
from .openai_gpt import OPENAI_GPT
from .roberta import CAMEMBERT, ROBERTA, XLM_ROBERTA
from .rules import ConversionError, Step, plan
from .torch_encoder import TORCH_ENCODER
from .torch_modules import TorchArchitecture
from .torch_transformer import TORCH_TRANSFORMER

logger = logging.getLogger(__name__)

#: every architecture the zoo converts, by `model_type`. A zoo model that never was official is exported to the first
#: that can express it.
ARCHITECTURES: dict[str, Architecture] = {
    architecture.model_type: architecture
    for architecture in (
        *(BERT, ROBERTA, XLM_ROBERTA, CAMEMBERT, DISTILBERT, TORCH_ENCODER),
        *(GPT2, OPENAI_GPT, LLAMA, MISTRAL, QWEN2),
        *(MARIAN, BART, MBART, FSMT, TORCH_TRANSFORMER),
    )
}


def from_official(
    source: str | Path | nn.Module, model_class: type[PreTrainedModel] | None = None, **config_overrides
) -> PreTrainedModel:
    """A zoo model that computes what an official checkpoint computes.

    Args:
        source: a Hub id, a local folder (safetensors or `.bin`, in one file or in shards), or a native model in memory
            (a transformers model, an `nn.TransformerEncoder` or an `nn.Transformer`), whose weights are copied.
        model_class: a class of the zoo. `None`: the one for the head that the checkpoint holds. With another head,
            what is missing is initialised anew and what it has no use for is left out, with warnings that list both.
        config_overrides: fields of the zoo's configuration; also `dtype` (default: the checkpoint's) and
            `attn_implementation`.

    Returns:
        The model, in evaluation mode.

    Raises:
        ConversionError: for what is no checkpoint, is truncated, is of an architecture that the zoo does not convert,
            or holds tensors that do not fit: the message names the file, the value or the tensors. Only names and
            shapes have been read by then.
    """
    return convert(open_checkpoint(source), model_class, **config_overrides)


def convert(
    checkpoint: Checkpoint,
    model_class: type[PreTrainedModel] | None = None,
    progress: Callable[[Collection[Step]], Iterable[Step]] = iter,
    dtype: torch.dtype | str | None = None,
    attn_implementation: str | None = None,
    **config_overrides,
) -> PreTrainedModel:
    """[`from_official`] of an open checkpoint; `progress` goes through the steps, and may show how far it is."""
    dtype = common_dtype(checkpoint.tensors.values()) if dtype is None else as_dtype(dtype)
    architecture = architecture_of(checkpoint)
    held = architecture.head_in(checkpoint.config.get("architectures"), checkpoint.tensors)
    model_class = model_class or held.zoo
    if model_class.config_class.model_type != architecture.family:
        raise ConversionError(
            f"{checkpoint.title} ({architecture.title}) becomes a model of the family {architecture.family}, "
            f"which {model_class.__name__} is not of."
        )
    config = architecture.zoo_config(architecture.native_config_of(checkpoint), model_class, config_overrides)
    skeleton = skeleton_of(model_class, config)
    steps, fresh, unused = match(architecture, held, checkpoint, skeleton)

    check_sinusoids(architecture, checkpoint, config)

    tensors, own_names = by_canonical_name(architecture, checkpoint), full_names(skeleton)
    weights = {}
    for step in progress(steps):
        made = step.run([tensors[name].read() for name in step.reads])
        weights.update(zip(map(own_names.get, step.writes), made, strict=True))

    original = checkpoint.model
    model = assemble(skeleton, weights, dtype, attn_implementation or attention_of(original))
    if original is not None:
        model.to(next(original.parameters()).device)
    if model.can_generate():
        model.generation_config = checkpoint.generation_config or model.generation_config
    model.name_or_path = model.config.name_or_path = checkpoint.source or getattr(original, "name_or_path", "")
    for what, names in (("initialised anew, to be trained first", fresh), ("left out, as of another head", unused)):
        if names:
            logger.warning(f"{model_class.__name__} from {checkpoint.title}: {what}: {', '.join(names)}.")
    return model


def to_official(model: PreTrainedModel) -> nn.Module:
    """The native model that computes what a zoo model computes, with copies of its weights.

    Its architecture is the one that the zoo model was converted from, or else the first that can express it.

    Returns:
        The model, in evaluation mode.

    Raises:
        ConversionError: where no native class can express the zoo model; the message names the configuration's fields.
    """
    architecture, head = native_for(model)
    for name, (value, other) in architecture.differences(model.config, head).items():
        logger.warning(f"{head.native} has no {name}={value}: it computes the same, but trains with {other}.")
    skeleton = architecture.skeleton(architecture.native_config(model.config, head), head)
    held = model.state_dict()
    tensors = {full: held[name] for full, name in full_names(model).items()}
    canonical = {name: architecture.canonical(name) for name in skeleton.state_dict()}
    wanted = [name for name in canonical.values() if not architecture.is_ignored(name)]
    steps, unknown = plan(architecture.rules(head), wanted, to="official")
    lacking, made = unknown, {}
    for step in steps:
        absent = [name for name in step.reads if name not in tensors]
        lacking = lacking + [name for name in absent if name not in architecture.optional]
        if not absent:
            made.update(zip(step.writes, step.run([tensors[name].clone() for name in step.reads]), strict=True))
    if lacking:
        raise ConversionError(f"{type(model).__name__} lacks tensors that {head.native} has: {', '.join(lacking)}.")
    # Two names of one tensor: should the native model not tie them, each has memory of its own.
    first = {full: name for name, full in reversed(canonical.items())}
    weights = {
        name: made[full] if name == first[full] else made[full].clone()
        for name, full in canonical.items()
        if full in made
    }
    official = architecture.assemble(skeleton, weights, model.dtype, attention_of(model))
    if isinstance(official, PreTrainedModel):
        if official.can_generate():
            official.generation_config = copy.deepcopy(model.generation_config)
        official.name_or_path = official.config.name_or_path = model.name_or_path
    return official.to(model.device)


def check_sinusoids(architecture: Architecture, checkpoint: Checkpoint, config: PreTrainedConfig) -> None:
    """Some native classes keep their table of sinusoids among the weights: it has to be the one that the zoo makes."""
    if config.position_embedding_type != "sinusoidal":
        return
    positions = TfmSinusoidalPositions(config)
    for name, tensor in checkpoint.tensors.items():
        if name.endswith(architecture.sinusoids):
            table = tensor.read()
            made = positions.sinusoids(torch.arange(len(table), device=table.device))
            difference = (table.float() - made).abs().max().item()
            if difference > max(1e-3, torch.finfo(table.dtype).eps):  # of which half precision rounds off the last
                raise ConversionError(
                    f"{name} of {checkpoint.title} is not the table of sinusoids that {architecture.title} begins "
                    f"with: it differs by {difference:.2g}, as after training. The zoo's is not trained."
                )


def architecture_of(checkpoint: Checkpoint) -> Architecture:
    """The table for a checkpoint; the error for one there is no table for lists those there are."""
    model_type, classes = checkpoint.config.get("model_type"), checkpoint.config.get("architectures") or ()
    if model_type is None:  # a configuration from before transformers 2.3
        model_type = next((a.model_type for a in ARCHITECTURES.values() for h in a.heads if h.native in classes), None)
    if model_type in ARCHITECTURES:
        return ARCHITECTURES[model_type]
    if str(model_type).startswith("tfm_"):
        raise ConversionError(f"{checkpoint.title} is a model of the zoo already: load it with from_pretrained.")
    raise ConversionError(
        f"{checkpoint.title} is of architecture {model_type!r}, which the zoo does not convert; it converts "
        f"{', '.join(ARCHITECTURES)}."
    )


def native_for(model: PreTrainedModel) -> tuple[Architecture, Head]:
    """The architecture and the head that a zoo model is exported to.

    Raises:
        ConversionError: where no native class can express the zoo model.
    """
    origin = (getattr(model.config, "official", None) or {}).get("model_type")
    # Modules of `torch.nn` have no embeddings: nothing is exported to them but what came from them.
    embedded = [known for known in ARCHITECTURES.values() if not isinstance(known, TorchArchitecture)]
    candidates = [ARCHITECTURES[origin]] if origin in ARCHITECTURES else embedded
    with_head = [(architecture, head) for architecture in candidates if (head := architecture.head(type(model)))]
    if not with_head:
        titles = ", ".join(architecture.title for architecture in candidates)
        raise ConversionError(f"{type(model).__name__} has no counterpart among the classes of {titles}.")
    fits, errors = [], []
    for architecture, head in with_head:
        try:
            fits.append((architecture, head, architecture.differences(model.config, head)))
        except ConversionError as error:
            errors.append(error)
    if not fits:
        raise errors[0]

    def decisive(fit: tuple) -> list[str]:
        return [name for name in fit[2] if not name.endswith(IN_TRAINING)]

    nearest = min(fits, key=lambda fit: len(decisive(fit)))
    architecture, head, differences = nearest
    if decisive(nearest):
        values = ", ".join(
            f"{name}={differences[name][0]!r} (it has {differences[name][1]!r})" for name in decisive(nearest)
        )
        raise ConversionError(f"No native class can express this model: {head.native}, the nearest, lacks {values}.")
    return architecture, head
