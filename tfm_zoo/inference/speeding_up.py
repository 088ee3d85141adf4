"""`speed_up` and `restore`."""

import logging
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TypeVar

import torch
from torch import nn
from transformers import PreTrainedModel

from ..converters.choosing import table_for
from ..converters.refused import REFUSED
from ..models.pretrained import TfmPreTrainedModel
from .finding import Found, find, is_official, modules_of
from .packing.calibration import batches_of
from .packing.packing import COSTS, name_of
from .standing_in import BaseStandIn, HeadStandIn, ProjectionStandIn, StandIn

logger = logging.getLogger(__name__)

Thing = TypeVar("Thing")
MOST_WRAPPERS = 100


def speed_up(model: Thing, dtype: str | torch.dtype | None = None, calibrate: Iterable | None = None) -> Thing:
    """Makes an official model skip padding, in place: the zoo computes it.

    The object keeps its class, configuration, parameters, state dict, checkpoints and hooks. Its `forward` runs the
    zoo's on the same tensors, in training too. Before each call it is checked for changes. What the zoo does not
    follow, the official forward computes, and a warning says so once. `torch.compile` and `torch.export` see the
    official forward.

    Args:
        model: a model of transformers, or an object that holds some: a SentenceTransformer, a CrossEncoder, a
            SparseEncoder, a pipeline, a Trainer, a model of PEFT.
        dtype: the type of packed weights (see [`pack_weights`]), for inference on a CPU. Training then raises an error.
            `None`: `"int8"` if there is something to calibrate with, or else the model's own tensors.
        calibrate: texts, or batches of inputs, by which `"int8"` finds its scales (see [`pack_weights`]). The tokenizer
            is that of the object, or of the folder that its model was loaded from.

    Returns:
        The same object.

    Raises:
        ValueError: if nothing is found that the zoo computes; and for another `dtype`, or one that is not calibrated.
    """
    dtype = "int8" if dtype is None and calibrate is not None else name_of(dtype)
    if calibrate is not None and dtype != "int8":
        raise ValueError(f"calibrate is for dtype='int8', not for {dtype!r}.")
    if isinstance(model, str | Path):
        raise ValueError(f"speed_up takes a model, not the name {str(model)!r}: load it first.")
    found = find(model)
    taken, left, batches = [], [], None
    if calibrate is not None and found:
        tokenizer = getattr(model, "tokenizer", None) or getattr(model, "processing_class", None)
        batches = batches_of(found[0].holder, calibrate, tokenizer)
    for each in found:
        stand_in = BaseStandIn(each.owner, each.holder, dtype, batches)
        reason = stand_in.prepare()
        if reason is None:
            install(each, stand_in)
            taken.append(each.title)
        else:
            left.append(f"{each.title} ({reason})")
    if not taken:
        reasons = "; ".join(left) or why_nothing(model)
        raise ValueError(f"speed_up changes nothing in this {type(model).__name__}: {reasons}.")
    rest = f"; left as it is: {'; '.join(left)}" if left else ""
    kind = "" if dtype is None else f", with weights packed in {dtype} ({COSTS.get(dtype, 'less exact than int8')})"
    parts = [part for module in modules_of(model) for part in module.modules()]
    if any(hasattr(part, "_orig_mod") or part._compiled_call_impl for part in parts):
        logger.warning(
            "speed_up: a compiled model computes the official forward, padding too: leave torch.compile out."
        )
    logger.log(logging.WARNING if left else logging.INFO, f"speed_up: the zoo computes {', '.join(taken)}{kind}{rest}.")
    return model


def why_nothing(model: object) -> str:
    """Why the zoo computes no part of an object."""
    parts = {part: name for module in modules_of(model) for name, part in module.named_modules()}
    for part in (each for each in parts if isinstance(each, PreTrainedModel)):
        model_type = part.config.model_type
        if isinstance(part, TfmPreTrainedModel) or str(model_type).startswith("tfm_"):
            it = f"its .get_submodule({parts[part]!r})" if parts[part] else "it"
            return f"it is a model of the zoo, which computes no padding anyway (pack_weights takes {it})"
        if model_type in REFUSED:
            return f"the zoo does not compute {model_type!r}: {REFUSED[model_type]}"
        if table_for(part.config.to_dict()) and not is_official(part):
            return f"{type(part).__name__} is not a class of transformers, and may compute something else"
    return "it holds no model of transformers that the zoo has a table for"


def install(found: Found, stand_in: BaseStandIn) -> None:
    """Puts what stands in for a base model's `forward` into its place, and into those of the heads around it."""
    found.owner.forward = stand_in
    heads = (*found.around, found.holder) if found.part else found.around
    for head in heads:
        if "forward" not in vars(head):
            head.forward = HeadStandIn(head, found.architecture.family)
        projection, scores = head.get_output_embeddings(), head._modules.get("qa_outputs")
        for layer, is_lowest in ((projection, False), (scores, True)):
            if type(layer) is nn.Linear and "forward" not in vars(layer):
                layer.forward = ProjectionStandIn(layer, is_lowest)


def restore(model: Thing) -> Thing:
    """Takes back what [`speed_up`] did, in place: the official classes compute again.

    Returns:
        The same object.

    Raises:
        ValueError: for a name.
    """
    if isinstance(model, str | Path):
        raise ValueError(f"restore takes the object that speed_up took, not the name {str(model)!r}.")
    for module in modules_of(model):
        for each in module.modules():
            stand_in = vars(each).get("forward")
            if isinstance(stand_in, StandIn):
                del each.forward
            for part in wrapped(stand_in):
                part.is_on = False
    return model


def wrapped(forward: object) -> Iterator[StandIn]:
    """What of the zoo's is inside a `forward`, around which another library may have put one of its own."""
    for _ in range(MOST_WRAPPERS):
        if isinstance(forward, StandIn):
            yield forward
        forward = getattr(forward, "__wrapped__", None)
        if forward is None:
            return
