"""Roundings of inputs that are found on texts: what a model's products read there, which rounding of it loses least,
and which products fall back to more exact ones, so that the model's vectors stay near enough."""

import copy
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.nn import functional as F
from transformers import AutoTokenizer, PreTrainedModel
from transformers.utils.logging import tqdm

from .roundings import Rounding, channel_scales, roundings
from .tensors import hold
from .weights import CalibratedWeight, Int8Weight, KeptWeight

logger = logging.getLogger(__name__)

TEXTS = 32  # of a batch
#: of 16 or more, every fourth is held out: it judges the scales that the others gave
ENOUGH, EVERY = 16, 4
LONGEST = 512  # tokens of a text
ROWS = 512  # inputs of a product by which its roundings are compared
#: How many times as much one scale may lose as scales of channels. These cost a pass over the inputs; of a feed-forward
#: whose first product would write bytes for the second, several over its widest states.
PASS, HANDED_OVER = 1.1, 100.0
#: a module of the zoo -> the layer whose inputs its other layer writes channel by channel: scales cost nothing there
WRITERS = {"TfmAttention": ("o_proj", "v_proj"), "TfmMLP": ("down_proj", "up_proj")}

Batch = Mapping[str, torch.Tensor]


class Given(NamedTuple):
    """What a user calibrates with: batches that give the scales, and others, or an empty list, that judge them."""

    batches: list[Batch]
    held_out: list[Batch]


class Seen(NamedTuple):
    """What layers with the same input read: the least and the largest number of each channel, `(in_features,)`, and
    some of the rows, `(rows, in_features)`."""

    low: torch.Tensor
    high: torch.Tensor
    rows: torch.Tensor


class Choice(NamedTuple):
    """How the layers of one input read it.

    Args:
        layers: their names.
        kind: as in the configuration of a checkpoint, or `"rows"`: each row has a scale of its own.
        loss: the error of their outputs, as a share of these, squared.
        rounding: of their inputs.
        shift: the mean error of each output, which biases take off. `None` if layers have no bias.
        writer: the name of a layer whose outputs are divided by `factors`, `(in_features,)`, before.
    """

    layers: tuple[str, ...]
    kind: str
    loss: float
    rounding: Rounding | None = None
    shift: torch.Tensor | None = None
    writer: str | None = None
    factors: torch.Tensor | None = None


def calibrate_layers(
    model: PreTrainedModel,
    given: Given,
    groups: list[tuple[str, ...]],
    least_cosine: float,
    pack: Callable[[nn.Module], object],
) -> dict[str, Any]:
    """Gives layers weights for [`CalibratedProduct`], and leaves alone those that read rows by scales of their own.

    Args:
        model: the model, which is not packed yet.
        given: what it reads.
        groups: names of layers that may be calibrated; those that share an input are one group.
        least_cosine: the bound for the vector of each text, the mean of the last hidden states of its tokens.
        pack: packs a model.

    Returns:
        What [`TfmQuantizationConfig`] says of it.
    """
    seen, wanted = watch(model, given.batches, groups)
    count, wanted = len(wanted), torch.cat([wanted, *run(model, given.held_out)])
    ladders = [ladder_of(model, group, seen[group]) for group in tqdm(groups, desc="Calibrating") if group in seen]
    if not ladders:
        logger.warning("Calibrated no product: no linear layer reads the texts.")
        return {"inputs": {}}

    def least(choices: list[Choice]) -> tuple[float, torch.Tensor]:
        trial = copy.deepcopy(model)
        apply(trial, choices)
        pack(trial)
        found = F.cosine_similarity(torch.cat([*run(trial, given.batches + given.held_out)]), wanted, dim=-1)
        return found.min().item(), found

    choices, (worst, cosines) = kept_to(ladders, least, least_cosine)
    apply(model, choices)
    fallen = [
        f"{', '.join(choice.layers)} to {choice.kind}"
        for choice, ladder in zip(choices, ladders, strict=True)
        if choice is not ladder[0]
    ]
    unseen = sum(map(len, groups)) - sum(len(choice.layers) for choice in choices)
    said = f" Fell back: {'; '.join(fallen)}." if fallen else " No layer fell back."
    said += f" {unseen} layers read no text, and stay by rows." if unseen else ""
    if worst < least_cosine:
        said += f" The least of all, {worst:.4f}, is below least_cosine={least_cosine}, with all layers in bfloat16."
    if not given.held_out:
        said += " They gave the scales, too: others may lose more. Of 16 or more (or batches), a fourth is held out."
    judged, texts = (cosines[count:], f"{len(wanted) - count} held-out texts") if given.held_out else (cosines, "them")
    logger.warning(
        f"Calibrated {sum(len(c.layers) for c in choices if c.rounding)} layers on {count} texts. On {texts}, the "
        f"cosine to the vectors before is {judged.mean():.4f} in the mean and {judged.min():.4f} at least.{said}"
    )
    inputs = {name: choice.kind for choice in choices for name in choice.layers if choice.kind != "rows"}
    return {"inputs": inputs, "least_cosine": round(worst, 4)}


def kept_to(
    ladders: list[list[Choice]], least: Callable[[list[Choice]], tuple[float, Any]], bound: float
) -> tuple[list[Choice], tuple[float, Any]]:
    """A choice from each ladder, so that as few as possible fall back and the least cosine keeps to a bound; and what
    `least` gives for it: this cosine, and more. What loses most goes up its ladder first."""
    rungs = [[0] * len(ladders)]
    while True:
        losses = [ladder[rung].loss for ladder, rung in zip(ladders, rungs[-1], strict=True)]
        if max(losses) == 0:
            break
        worst = losses.index(max(losses))
        rungs.append([rung + (index == worst) for index, rung in enumerate(rungs[-1])])

    def after(count: int) -> list[Choice]:
        return [ladder[rung] for ladder, rung in zip(ladders, rungs[count], strict=True)]

    cosines, low, high = {0: least(after(0))}, -1, 0  # too few steps, and perhaps enough
    while cosines[high][0] < bound and high < len(rungs) - 1:
        low, high = high, min(len(rungs) - 1, 2 * high or 1)
        cosines[high] = least(after(high))
    while high - low > 1:
        middle = (low + high) // 2
        cosines[middle] = least(after(middle))
        low, high = (low, middle) if cosines[middle][0] >= bound else (middle, high)
    return after(high), cosines[high]


def ladder_of(model: nn.Module, group: tuple[str, ...], seen: Seen) -> list[Choice]:
    """The choices for layers with one input, from the fastest to the most exact, by what they lose of the rows that
    were seen."""
    weight = torch.cat([model.get_submodule(name).weight.detach().float() for name in group])
    outputs = seen.rows @ weight.t()
    power, plain = outputs.square().sum().clamp(min=1e-12), Int8Weight.of(weight).real()
    has_bias = all(model.get_submodule(name).bias is not None for name in group)

    def tried(kind: str, rounding: Rounding, rounded: torch.Tensor) -> Choice:
        errors = rounding.real(seen.rows) @ rounded.t() - outputs
        shift = errors.mean(0) if has_bias else None
        errors = errors if shift is None else errors - shift
        return Choice(group, kind, (errors.square().sum() / power).item(), rounding, shift)

    one, writer = roundings(seen.low, seen.high), writer_of(model, group)
    ladder = [min((tried("tensor", each, plain) for each in one), key=lambda choice: choice.loss)]
    scales = channel_scales(seen.low, seen.high, weight, is_centred=writer is not None)
    best = min(
        (tried("channels", each, CalibratedWeight.of(weight, each).real()) for each in scales),
        key=lambda choice: choice.loss,
    )
    if writer is None:
        ladder.append(best)
    elif best.loss < ladder[0].loss:  # channels are divided by factors when they are written, and read by one scale
        top = best.rounding.scales.amax()
        rounding, factors = Rounding(top[None], best.rounding.zeros[:1]), best.rounding.scales / top
        ladder = [best._replace(kind="tensor", rounding=rounding, writer=writer, factors=factors)]
    heights = seen.rows.abs().amax(1, keepdim=True).clamp(min=1e-12) / 127
    errors = ((seen.rows / heights).round() * heights) @ plain.t() - outputs
    ladder.append(Choice(group, "rows", (errors.square().sum() / power).item()))
    ladder.append(Choice(group, "bfloat16", 0.0))
    gain = HANDED_OVER if is_handed_over(model, group) else PASS
    while ladder[1].loss * gain < ladder[0].loss and ladder[1].kind == "channels":
        ladder = ladder[1:]
    return [each for i, each in enumerate(ladder) if all(each.loss < before.loss for before in ladder[:i])]


def apply(model: nn.Module, choices: list[Choice]) -> None:
    """Gives layers their weights."""
    for choice in choices:
        if choice.shift is not None:
            layers = [model.get_submodule(name) for name in choice.layers]
            shifts = choice.shift.split([layer.out_features for layer in layers])
            for layer, shift in zip(layers, shifts, strict=True):
                layer.bias.data = (layer.bias.data - shift).to(layer.bias.dtype)
    for choice in choices:  # biases of writers have been shifted
        if choice.writer is not None:
            writer = model.get_submodule(choice.writer)
            for tensor in (writer.weight, writer.bias):
                if tensor is not None:
                    tensor.data = tensor.data / choice.factors.view(-1, *[1] * (tensor.dim() - 1))
            reader = model.get_submodule(choice.layers[0])
            reader.weight.data = reader.weight.data * choice.factors
    for choice in choices:  # writers are rounded when they have been divided
        for layer in (model.get_submodule(name) for name in choice.layers):
            if choice.rounding is not None:
                hold(layer, CalibratedWeight.of(layer.weight, choice.rounding))
            elif choice.kind == "bfloat16":
                hold(layer, KeptWeight(layer.weight.detach().bfloat16()))


def writer_of(model: nn.Module, group: tuple[str, ...]) -> str | None:
    """The name of the layer whose outputs can be divided channel by channel, and reach these layers so."""
    owner, _, name = group[0].rpartition(".")
    module = model.get_submodule(owner)
    reader, writer = WRITERS.get(type(module).__name__, (None, None))
    if name != reader or type(getattr(module, writer, None)) is not nn.Linear:
        return None
    if getattr(module, "num_key_value_groups", 1) > 1 or not getattr(module, "is_gated", True):
        return None
    if reader == "o_proj" and (module.config.rotary_value or module.layer_type == "linear_attention"):
        return None
    return f"{owner}.{writer}"


def is_handed_over(model: nn.Module, group: tuple[str, ...]) -> bool:
    """Whether a product may write the bytes that these layers read, if one scale serves all channels."""
    owner, _, name = group[0].rpartition(".")
    return name == "down_proj" and not getattr(model.get_submodule(owner), "is_gated", True)


def encoder_of(model: PreTrainedModel) -> PreTrainedModel:
    """The part whose last hidden states make a text's vector."""
    return model.get_encoder() if model.config.is_encoder_decoder else model.base_model


def run(model: PreTrainedModel, batches: list[Batch]) -> Iterator[torch.Tensor]:
    """Computes batches, of an encoder-decoder the encoder alone; gives the vectors of each, `(texts, width)`, the means
    of the last hidden states of tokens."""
    encoder, outputs = encoder_of(model), []
    forward = encoder.forward

    def kept(*arguments, **options):
        outputs[:] = [forward(*arguments, **options)]
        return outputs[0]

    encoder.forward = kept
    try:
        for batch in batches:
            with torch.inference_mode():
                (encoder if model.config.is_encoder_decoder else model)(**batch)
                states, mask = outputs[0][0].float(), batch.get("attention_mask")
                mask = torch.ones(states.shape[:2]) if mask is None else mask
                mask = mask[..., None].to(states.dtype)
                yield (states * mask).sum(1) / mask.sum(1)
    finally:
        del encoder.forward


def watch(
    model: PreTrainedModel, batches: list[Batch], groups: list[tuple[str, ...]]
) -> tuple[dict[tuple[str, ...], Seen], torch.Tensor]:
    """What the layers of each group read, where they read anything, and the vectors of all texts."""
    parts: dict[tuple[str, ...], list[Seen]] = {group: [] for group in groups}
    share, layers = max(1, ROWS // len(batches)), {group: model.get_submodule(group[0]) for group in groups}

    def note(found: list[Seen], layer: nn.Linear) -> Callable:
        def forward(inputs: torch.Tensor) -> torch.Tensor:
            rows = inputs.detach().reshape(-1, inputs.shape[-1]).float()
            some = torch.linspace(0, len(rows) - 1, min(share, len(rows))).long()
            found.append(Seen(rows.amin(0), rows.amax(0), rows[some]))
            return nn.Linear.forward(layer, inputs)

        return forward

    for group, layer in layers.items():
        layer.forward = note(parts[group], layer)
    try:
        wanted = torch.cat([*tqdm(run(model, batches), total=len(batches), desc="Reading texts")])
    finally:
        for layer in layers.values():
            del layer.forward
    seen = {}
    for group, found in parts.items():
        if found:
            low, high, rows = zip(*found, strict=True)
            seen[group] = Seen(torch.stack(low).amin(0), torch.stack(high).amax(0), torch.cat(rows))
    return seen, wanted


def batches_of(model: PreTrainedModel, given: Iterable, tokenizer: Any = None) -> Given:
    """Batches of inputs from what a user calibrates with: batches, or texts and a tokenizer. Of 16 or more, every
    fourth is held out.

    Raises:
        ValueError: for anything else, which it names, or nothing; and for texts whose tokenizer is not known.
    """
    if isinstance(given, (str, bytes, Mapping)) or hasattr(given, "columns") or not isinstance(given, Iterable):
        raise ValueError(
            f"calibrate takes a list of texts or of batches of inputs, not the {type(given).__name__} given."
        )
    given = [*given]
    if not given:
        raise ValueError("calibrate is empty: give about 128 texts like those that the model will read.")
    kinds = [kind_of(each) for each in given]
    if any(kinds) and len({*kinds}) > 1:
        number = next(number for number, kind in enumerate(kinds) if kind != kinds[0] or not kind)
        found = f"item {number}, from 0, is {str(given[number])[:40]!r}"
        raise ValueError(f"calibrate takes texts alone, pairs of texts alone or batches alone; {found}.")
    if any(kinds):
        tokenizer = tokenizer or tokenizer_of(model)
        given = [*dict.fromkeys(given if kinds[0] == "text" else map(tuple, given))]
        if not any("".join(each).strip() for each in given):
            raise ValueError("calibrate holds empty texts alone: give texts like those that the model will read.")
    held_out = given[EVERY - 1 :: EVERY] if len(given) >= ENOUGH else []
    if held_out:
        del given[EVERY - 1 :: EVERY]
    if any(kinds):
        given, held_out = (tokenized(part, model, tokenizer) for part in (given, held_out))
    return Given([inputs_of(batch) for batch in given], [inputs_of(batch) for batch in held_out])


def tokenized(texts: list[Any], model: PreTrainedModel, tokenizer: Any) -> list[Batch]:
    """Batches of texts, or of pairs of texts."""
    longest = min(LONGEST, tokenizer.model_max_length, getattr(model.config, "max_position_embeddings", LONGEST))
    options = {"truncation": True, "max_length": longest, "padding": True, "return_tensors": "pt"}
    portions = [texts[start : start + TEXTS] for start in range(0, len(texts), TEXTS)]
    sides = ([portion] if isinstance(portion[0], str) else zip(*portion, strict=True) for portion in portions)
    return [tokenizer(*map(list, each), **options) for each in sides]


def inputs_of(batch: Any) -> Batch:
    """What an encoder reads of a batch."""
    if not isinstance(batch, Mapping):
        found = f"{type(batch).__name__} {str(batch)[:40]!r}"
        raise ValueError(f"calibrate takes texts alone or batches alone, dicts of tensors; it holds the {found}.")
    tensors = {name: each for name, each in batch.items() if isinstance(each, torch.Tensor) and name != "labels"}
    if not tensors:
        found = f"a dict of {', '.join(map(str, batch)) or 'nothing'} without tensors"
        raise ValueError(f"calibrate takes texts alone or batches alone, dicts of tensors; it holds {found}.")
    return {name: each for name, each in tensors.items() if not name.startswith("decoder_")}


def kind_of(item: Any) -> str:
    """What a user calibrates with: a "text", a "pair" of texts such as a CrossEncoder reads, or something else: ""."""
    if isinstance(item, str):
        return "text"
    is_pair = isinstance(item, list | tuple) and len(item) == 2 and all(isinstance(text, str) for text in item)
    return "pair" if is_pair else ""


def tokenizer_of(model: PreTrainedModel) -> Any:
    """The tokenizer in the folder that a model was loaded from."""
    source = getattr(model, "name_or_path", None) or model.config.name_or_path  # of a converted one, the latter alone
    try:
        if source:
            return AutoTokenizer.from_pretrained(source)
        reason = "it was not loaded from a folder"
    except (OSError, ValueError, KeyError) as error:
        reason = f"{source} lacks one: {str(error).splitlines()[0]}"
    raise ValueError(
        f"Texts to calibrate with need this {type(model).__name__}'s tokenizer, and {reason}. Pass tokenizer=."
    )
