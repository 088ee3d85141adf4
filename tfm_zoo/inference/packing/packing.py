"""Replaces the linear layers of a model by packed ones."""

import logging
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import torch
from torch import nn
from transformers import PreTrainedModel

from ...models.pretrained import TfmPreTrainedModel
from .attention import CpuAttention
from .calibration import ENOUGH, Batch, Given, batches_of, calibrate_layers
from .compiling import compile_steps, is_generator
from .configuration import DTYPES, TfmQuantizationConfig, mark
from .linear import JoinedLinear, PackedLinear, is_packed
from .memory import return_memory
from .products import (
    HAS_AMX,
    CalibratedProduct,
    Int8Product,
    OneDNNProduct,
    Product,
    has_bfloat16,
    has_onednn,
    levels_of,
    product_of,
)
from .tensors import kind_of, names_of
from .weights import GROUP, AnyWeight, Int4Weight, Int8Weight, KeptWeight, joined

logger = logging.getLogger(__name__)

#: a module of the zoo -> its layers that read the same input. (By name: a checkpoint's own code defines other classes.)
JOINED = {
    "TfmAttention": ("q_proj", "k_proj", "v_proj"),
    "TfmCrossAttention": ("k_proj", "v_proj"),
    "TfmMLP": ("gate_proj", "up_proj"),
}
#: Layers whose output does not go to the residual stream, and can stay in bfloat16: an encoder's attention is then
#: faster. (That of a decoder, with few queries and many keys, is slower.)
INNER = ("q_proj", "k_proj", "v_proj", "pos_key_proj", "pos_query_proj", "gate_proj", "up_proj")
#: an activation that oneDNN computes as it writes a product -> its names for it. (By itself, in bfloat16, the form with
#: a tanh takes as long as the product.)
ACTIVATIONS = {"GELUActivation": ("gelu", "none"), "GELUTanh": ("gelu", "tanh")}


#: modules that multiply, and are not a linear layers
OTHERS = {"TfmExperts": "Experts", "Conv1D": "Official Conv1D layers (from_official makes linear ones of them)"}


def of_four_bits(weight: torch.Tensor) -> Int4Weight | Int8Weight:
    return Int8Weight.of(weight) if weight.shape[1] % GROUP else Int4Weight.of(weight)


#: the type of the weights -> how they are made
WEIGHTS: dict[str, Callable] = {
    "float32": torch.Tensor.float,
    "bfloat16": torch.Tensor.bfloat16,
    "int8": Int8Weight.of,
    "int4": of_four_bits,
}

#: what [`pack_weights`] says of a type that it has chosen
COSTS = {
    "float32": "outputs stay the same, up to rounding",
    "bfloat16": "vectors of MiniLM kept a cosine of 0.9999 to those of float32",
    "int8": "a small GPT's perplexity grew by 0.02 %, and vectors of MiniLM kept a cosine of 0.997 to those of float32",
}
#: what it adds where [`levels_of`] eight bits are 63
SEVEN_BITS = "; without VNNI, as here, inputs have seven bits, not eight, and that cosine was 0.993"


def pack_weights(
    model: PreTrainedModel,
    dtype: str | torch.dtype | None = None,
    compile: bool = False,
    calibrate: Iterable | None = None,
    tokenizer: Any = None,
    least_cosine: float = 0.99,
) -> PreTrainedModel:
    """Lays out the weights of every linear layer, the vocabulary's too, for the kernels of this CPU, in place.

    Decoding spends its time reading weights, and becomes faster. Products of the same input (query, key and value; gate
    and up) are computed as one. So are a product of real numbers and the GELU behind it (`act_fn` becomes an identity).
    Norms, attention and embeddings stay as they are, even an embedding tied to the vocabulary's projection. Adapters of
    PEFT stay, too, and the layers that they adapt are packed.

    Args:
        model: a model in evaluation mode on a CPU. Packed, it cannot be trained, exported or resized, and can be saved
            in eight and four bits only.
        dtype: of the weights. `"float32"`: the same outputs, up to rounding. `"bfloat16"`: half the memory; the insides
            of feed-forwards and of an encoder's attention are computed in it, the rest in the model's type.
            `"int8"`: a quarter; inputs are rounded to eight bits, too. `"int4"`: an eighth; groups of 32 numbers share
            a scale. (Layers whose inputs do not divide into such groups get eight bits.) `None`: see [`fastest`]; the
            log says what was chosen, and what it costs. A model without plain linear layers then stays as it is.
        compile: whether `generate` compiles its steps, which needs a C++ compiler. The first step then takes about a
            minute, and so does the first with another number of sequences or with much longer ones. Beam search is not
            compiled.
        calibrate: for `"int8"` of encoders and classifiers, which it makes faster: about 128 texts like those that the
            model will read, or batches of its inputs. They decide once how inputs are rounded, instead of each row. Of
            16 or more, every fourth is held out: it gives no scale, and the log says how near its vector stays. Fewer
            judge themselves, with a warning. The log names the layers that fell back.
        tokenizer: for texts to calibrate with. `None`: that of the folder that the model was loaded from.
        least_cosine: the least cosine of a calibrated vector to that of the model as it was. Layers that lose most read
            each row by a scale of its own again, or stay in bfloat16, until every text keeps it, held out or not. (A
            vector is the mean of the last hidden states of a text's tokens.)

    **The same vector for the same text.** A calibrated `"int8"` encoder gives a text the same numbers, bit for bit,
    alone and in any batch, in any order, with any number of threads. So do its pooler and its classifier. (For layers
    in bfloat16, and for attention within a window, this was observed, but nothing guarantees it.) DeBERTa, which
    computes distances for the whole batch, does not. `"int8"` without calibration and `"bfloat16"` mostly do, and
    `"float32"` and `"int4"` do not.

    Returns:
        The same model.

    Raises:
        ValueError: for another type; for a model that is in training mode, not on a CPU, or quantised already; if steps
            cannot be compiled; and if there is nothing to calibrate with.
    """
    dtype = name_of(dtype)
    if not isinstance(model, nn.Module):
        raise ValueError(f"pack_weights takes a model, not the {type(model).__name__} {str(model)!r}: load it first.")
    if calibrate is not None and dtype not in (None, "int8"):
        raise ValueError(f"calibrate is for dtype='int8', not for {dtype!r}.")
    if not 0 <= least_cosine <= 1:
        raise ValueError(f"least_cosine={least_cosine} should be a number from 0 to 1, such as 0.99.")
    if calibrate is not None:
        dtype = "int8"
    if dtype is None and not any(map(is_plain, model.modules())):
        reason = "it is packed" if is_packed(model) else "it has no plain linear layers"
        logger.warning(f"pack_weights leaves this {type(model).__name__} as it is: {reason}.")
        return model
    dtype, is_chosen = dtype or fastest(model), dtype is None
    check(model)
    if is_chosen:
        cost = COSTS[dtype] + (SEVEN_BITS if dtype == "int8" and levels_of(Int8Product) < 127 else "")
        logger.warning(
            f"pack_weights chose {dtype!r} for this model on this machine ({machine()}). Of models that were measured, "
            f"{cost}."
        )
    if calibrate is not None and generates(model) and not model.config.is_encoder_decoder:
        why = "from calibrated products, which are for many rows, encoders gain"
        raise ValueError(f"This {type(model).__name__} writes text a row at a time; {why}. Leave calibrate out.")
    batches = None if calibrate is None else batches_of(model, calibrate, tokenizer)
    if compile:
        compile_steps(model)
    is_quantised = dtype in DTYPES and isinstance(model, PreTrainedModel)
    judges = None if batches is None else judges_of(model, batches)
    before = outputs_of(model, judges) if is_quantised else None
    chosen = pack_layers(model, dtype, batches, least_cosine)
    if is_quantised:
        mark(model, TfmQuantizationConfig(dtype, **chosen, bill=bill_beside(model, judges, before)))
    return model


def pack_layers(
    model: PreTrainedModel, dtype: str, batches: Given | None = None, least_cosine: float = 0.99
) -> dict[str, Any]:
    """Packs a model that [`check`] takes, as [`pack_weights`] does, and leaves its configuration as it is.

    Args:
        batches: inputs to calibrate with, if it is to be calibrated.

    Returns:
        What calibration has chosen, as [`TfmQuantizationConfig`] takes it.
    """

    def pack(model: nn.Module) -> None:
        packer_of(model, dtype, model.dtype).pack(model)
        place_kernel(model, dtype)

    warn_of_others(model)
    chosen = {}
    if batches is not None:
        chosen = calibrate_layers(model, batches, groups_of(model), least_cosine, pack)
    pack(model)
    return chosen


def judges_of(model: PreTrainedModel, given: Given) -> list[Batch] | None:
    """The batches by which rounding is judged: the held-out ones, or all; `None` (drawn tokens) for less than `ENOUGH`
    sequences, and for an encoder-decoder, which is calibrated without a target."""
    for batches in () if model.config.is_encoder_decoder else (given.held_out, given.held_out + given.batches):
        if sum(len(next(iter(batch.values()))) for batch in batches) >= ENOUGH:
            return batches
    return None


def outputs_of(model: PreTrainedModel, batches: list[Batch] | None) -> torch.Tensor | None:
    """What a model computes for these batches, or else for drawn tokens; `None` for one that reads something else."""
    from ...proof.bill import drawn, rows_of

    try:
        return rows_of(model, batches or drawn(model))
    except Exception as error:  # a model that cannot be tried so is still worth packing
        logger.info(f"What rounding costs this {type(model).__name__} was not measured: {error!r}")
        return None


def bill_beside(
    model: PreTrainedModel, batches: list[Batch] | None, before: torch.Tensor | None
) -> dict[str, Any] | None:
    """What rounding has cost, beside the outputs of before."""
    from ...proof.bill import DRAWN, LENGTH, bill_of

    after = None if before is None else outputs_of(model, batches)
    if after is None:
        return None
    drawn = f"{DRAWN} sequences of up to {LENGTH} drawn tokens"
    return bill_of(before, after, f"{len(after)} sequences given to calibrate" if batches else drawn)


def fastest(model: nn.Module) -> str:
    """The type in which a model is fastest on this machine, of those that cost little quality.

    A model that generates reads all weights for a few rows, and is faster the smaller they are, down to eight bits.
    (Four are faster for a single sequence only, and lose more.) Other models have many rows. For these bfloat16 is as
    fast and more exact, where the machine has instructions for it (AVX-512, AMX). Elsewhere eight bits are fastest: on
    two cores with AVX2, MiniLM read short texts 1.8 times as fast as the official class unpacked, 1.6 times in float32
    and 2.2 times in eight bits.
    """
    if has_bfloat16() and not generates(model):
        return "bfloat16"
    return "int8" if levels_of(Int8Product) else "float32"


def machine() -> str:
    """The instructions that products depend on, and whether they are used here."""
    found = {"VNNI": levels_of(Int8Product) == 127, "bfloat16": has_bfloat16(), "AMX": HAS_AMX}
    vectors = torch.backends.cpu.get_cpu_capability()
    return ", ".join((vectors, *(name if has else f"no {name}" for name, has in found.items())))


def generates(model: nn.Module) -> bool:
    return any(map(is_generator, model.modules()))


def quantize_int8(model: PreTrainedModel) -> PreTrainedModel:
    """[`pack_weights`] with `"int8"`."""
    return pack_weights(model, "int8")


def name_of(dtype: str | torch.dtype | None) -> str | None:
    """The name of a type of packed weights, which may be given as torch's own.

    Raises:
        ValueError: for a type in which weights are not packed.
    """
    name = None if dtype is None else str(dtype).removeprefix("torch.")
    if name is not None and name not in WEIGHTS:
        why = " (few CPUs compute float16 as fast; bfloat16 is as small)" if name == "float16" else ""
        raise ValueError(f"dtype={dtype!r} should be None, or one of {', '.join(map(repr, WEIGHTS))}{why}.")
    return name


def check(model: nn.Module) -> None:
    """Raises a `ValueError` for what [`pack_weights`] does not take."""
    if not isinstance(model, PreTrainedModel) and hasattr(model, "encode"):
        own = next((name for name, part in model.named_modules() if isinstance(part, TfmPreTrainedModel)), None)
        instead = f"give it .get_submodule({own!r}) of" if own else "speed_up takes"
        raise ValueError(f"pack_weights takes a model of transformers; {instead} this {type(model).__name__}.")
    devices = {parameter.device for parameter in model.parameters() if parameter.device.type != "cpu"}
    if model.training or devices:
        state = "in training mode" if model.training else f"on {', '.join(map(str, devices))}"
        wanted = "pack_weights takes a model in evaluation mode (model.eval()) on a CPU"
        raise ValueError(f"{wanted}; this one is {state}.")
    packed = is_packed(model)
    if packed or getattr(model, "hf_quantizer", None) is not None or not any(map(is_plain, model.modules())):
        state = "packed" if packed else "quantised, or has no linear layers"
        raise ValueError(f"pack_weights takes a model with plain linear layers; this one is {state}.")


def warn_of_others(model: nn.Module) -> None:
    """Warns of products that stay as they are, and says how much of the model is packed."""
    names = {type(module).__name__ for module in model.modules()}
    for name in sorted(names & OTHERS.keys()):
        layers = [module.weight for module in model.modules() if is_plain(module)]
        share = sum(weight.numel() for weight in layers) / sum(weight.numel() for weight in model.parameters())
        logger.warning(f"{OTHERS[name]} stay as they are: {share:.0%} of the weights are packed.")


def is_plain(module: nn.Module | None) -> bool:
    """Whether a module computes what `nn.Linear` does, from a plain tensor."""
    is_linear = isinstance(module, nn.Linear) and type(module).forward is nn.Linear.forward
    return is_linear and type(module.weight) in (nn.Parameter, torch.Tensor)


class Packer(NamedTuple):
    """Replaces linear layers.

    Args:
        weights: a key of `WEIGHTS`, for layers whose weights are real numbers.
        dtype: of the outputs.
        inner_dtype: of the outputs of `INNER` layers: those of an encoder, and of every feed-forward.
        many_rows: whether products have hundreds of rows.
        takes: whether a module is packed.
    """

    weights: str
    dtype: torch.dtype
    inner_dtype: torch.dtype
    many_rows: bool = False
    takes: Callable[[nn.Module | None], bool] = is_plain

    def pack(self, model: nn.Module) -> None:
        """Packs every layer of a model."""
        self.pack_within(model)
        return_memory()
        model.requires_grad_(False)

    def pack_within(self, module: nn.Module) -> None:
        places = [place_of(module, name) for name in JOINED.get(type(module).__name__, ())]
        if places and self.can_join([getattr(*place) for place in places]):
            self.join(places, self.inner(module))
        # From the end: the vocabulary's weight, the largest, is copied while few packed weights lie beside it.
        for name, child in reversed(list(module.named_children())):
            owner, attribute = place_of(module, name)
            if self.takes(layer := getattr(owner, attribute)):
                dtype = self.inner(module) if name in INNER else self.dtype
                product = self.product([layer])
                if owner is module and type(module).__name__ == "TfmMLP" and name == "up_proj":
                    dtype = fuse_activation(module, product, dtype)
                setattr(owner, attribute, PackedLinear(product, layer.in_features, layer.out_features, dtype))
            elif owner is module:
                self.pack_within(child)

    def inner(self, module: nn.Module) -> torch.dtype:
        """The type of the outputs of the `INNER` layers of a module."""
        is_decoder = getattr(module, "is_causal", False) or type(module).__name__ == "TfmCrossAttention"
        return self.dtype if is_decoder else self.inner_dtype

    def join(self, places: list[tuple[nn.Module, str]], dtype: torch.dtype) -> None:
        """Packs layers with one input as one."""
        layers = [getattr(*place) for place in places]
        sizes = [layer.out_features for layer in layers]
        product = JoinedLinear(self.product(layers), layers[0].in_features, sizes, dtype)
        for place, part in zip(places, product.parts(), strict=True):
            setattr(*place, part)

    def can_join(self, layers: list[nn.Module | None]) -> bool:
        """Whether all are packed, and either all have a bias or no one has."""
        return all(map(self.takes, layers)) and len({layer.bias is None for layer in layers}) == 1

    def product(self, layers: list[nn.Linear]) -> Product:
        weight = joined([weight_of(layer, self.weights) for layer in layers])
        return_memory()  # that of earlier layers and intermediate results
        return product_of(weight, bias_of(layers), self.many_rows)


def fuse_activation(mlp: nn.Module, up: Product, dtype: torch.dtype) -> torch.dtype:
    """Has a feed-forward's first product apply the activation, if its kernel can and nothing stands between them; the
    type of its outputs then: bytes, where the second product was packed before and reads them by one scale."""
    name = type(mlp.act_fn).__name__
    if not isinstance(up, OneDNNProduct | CalibratedProduct) or mlp.gate_proj is not None or name not in ACTIVATIONS:
        return dtype
    up.activation, mlp.act_fn = ACTIVATIONS[name], nn.Identity()
    down = getattr(mlp.down_proj, "product", None)
    if not (isinstance(up, CalibratedProduct) and isinstance(down, CalibratedProduct) and down.reads_one_scale):
        return dtype
    up.out = down.weight.rounding
    return torch.uint8


def packer_of(model: nn.Module, weights: str, dtype: torch.dtype, takes: Callable = is_plain) -> Packer:
    """What packs a model on this machine; see [`Packer`]. A model that does not generate has many rows at a time."""
    many_rows = not generates(model)
    rounds = weights == "bfloat16" or (weights == "int8" and many_rows and has_bfloat16())
    inner = torch.bfloat16 if rounds and has_onednn(torch.bfloat16) else dtype
    return Packer(weights, dtype, inner, many_rows, takes)


def groups_of(model: nn.Module) -> list[tuple[str, ...]]:
    """The names of layers that can be calibrated; those that share an input are one group. (A tied projection is made
    from the embedding whenever the model is loaded, and has no tensors of its own.)"""
    tied, groups = getattr(model, "all_tied_weights_keys", None) or {}, {}
    names = {layer: name for name, layer in model.named_modules() if is_plain(layer) and f"{name}.weight" not in tied}
    for module in model.modules():
        layers = [getattr(*place_of(module, name)) for name in JOINED.get(type(module).__name__, ())]
        if layers and all(layer in names for layer in layers) and len({layer.bias is None for layer in layers}) == 1:
            groups |= dict.fromkeys(layers, tuple(names[layer] for layer in layers))
    return [*dict.fromkeys(groups.get(layer, (name,)) for layer, name in names.items())]


def place_kernel(model: nn.Module, weights: str) -> None:
    """Has an encoder's attention run in the way that is fastest here (see [`CpuAttention`]), unless that is a
    float32 model's own way, whose outputs stay the same."""
    attention = CpuAttention()
    for module in model.modules():
        if weights in ("bfloat16", "int8") and type(module).__name__ == "TfmAttention" and not module.is_causal:
            module.choose_packed_kernel = attention


def place_of(module: nn.Module, name: str) -> tuple[nn.Module, str]:
    """The module and the attribute that hold a layer: an adapter of PEFT holds the layer that it adapts."""
    child = getattr(module, name)
    return (child, "base_layer") if hasattr(child, "base_layer") else (module, name)


def weight_of(layer: nn.Linear, dtype: str) -> AnyWeight:
    """The weight of a layer in this type, or as the layer was loaded or calibrated."""
    kind = kind_of(layer)
    if kind is None:
        return WEIGHTS[dtype](layer.weight.detach())
    weight = kind(*(getattr(layer, name).detach() for name in names_of(kind)))
    return KeptWeight(weight.values.bfloat16()) if kind is KeptWeight else weight


def bias_of(layers: list[nn.Linear]) -> torch.Tensor | None:
    """The biases of the layers, float32."""
    return None if layers[0].bias is None else torch.cat([layer.bias.detach().float() for layer in layers])
