"""Who attends to whom: a model's attention weights on one text, with the tokens that they are between."""

import logging
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch
from transformers import PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerBase

from ..models.targets import shift_right
from ..training.models import positions_of
from .tokens import token_labels

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class AttentionMap:
    """The attention weights of one text, of all heads of all layers that have weights.

    Args:
        kind: "encoder" or "decoder", each to itself, or "cross": the decoder to the encoder.
        weights: `(layers, heads, queries, keys)`; each row of keys sums to 1.
        queries: the tokens that attend.
        keys: the tokens that are attended to.
        model: the model's name.
        layers: the numbers that those layers have in the model. `None`: 0, 1, 2, ...
    """

    kind: str
    weights: torch.Tensor
    queries: list[str]
    keys: list[str]
    model: str
    layers: Sequence[int] | None = None

    def __post_init__(self) -> None:
        if self.layers is None:
            object.__setattr__(self, "layers", range(len(self.weights)))

    def check(self, layer: int | None, head: int | None) -> None:
        """There are such a layer and such a head, where they are given.

        Raises:
            ValueError: where there are not.
        """
        for name, value, known in (("layer", layer, self.layers), ("head", head, range(self.weights.shape[1]))):
            if value is not None and value not in known:
                has = f"{known[0]} to {known[-1]}" if isinstance(known, range) else f"weights in {listed(known)} alone"
                raise ValueError(f"{name} {value}: the {self.kind} attention of {self.model} has {has}.")


def attention_maps(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, text: str, target: str | None = None
) -> dict[str, AttentionMap]:
    """What a model attends to while it reads a text.

    Args:
        model: a model of the zoo, or a native one. It is run in evaluation mode with eager attention, which alone has
            weights to show, and left as it was.
        text: what it reads; an encoder-decoder's source.
        target: what the decoder of an encoder-decoder reads, after its first token. `None`: what the model makes of
            the text, greedily; of a classifier, the text itself. (The row of a token is where the next is predicted.)

    Returns:
        The maps by their kind: "encoder" or "decoder"; of an encoder-decoder "encoder", "decoder" and "cross". Layers
        of linear attention, which has a sum over all positions in the place of weights, are left out and logged.

    Raises:
        ValueError: for a text that is empty, or longer than the model takes, a target that is missing or has no use,
            and attention without weights.
    """
    ids, name = read_text(model, tokenizer, text), title_of(model)
    inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    if target is not None and not reads_target(model):
        raise ValueError(f"target {target!r}: {name} reads no target, which is for encoder-decoders that write.")
    with observed(model):
        if has_decoder_beside(model):
            inputs["decoder_input_ids"] = read_target(model, tokenizer, inputs, target)
        outputs = model.base_model(**inputs, output_attentions=True, return_dict=True)
    keys = token_labels(tokenizer, ids[0].tolist(), is_source=True)
    if has_decoder_beside(model):
        queries = token_labels(tokenizer, inputs["decoder_input_ids"][0].tolist())
        given = {
            "encoder": (outputs.encoder_attentions, keys, keys),
            "decoder": (outputs.decoder_attentions, queries, queries),
            "cross": (outputs.cross_attentions, queries, keys),
        }
    else:
        kind = "decoder" if is_causal(model, outputs.attentions) else "encoder"
        given = {kind: (outputs.attentions, keys, keys)}
    linear = {kind: linear_layers(model.config, kind) for kind in given}
    maps = {}
    for kind, (attentions, *tokens) in given.items():
        weights, layers = stacked(attentions, linear[kind], name)
        if layers:
            maps[kind] = AttentionMap(kind, weights, *tokens, name, layers if linear[kind] else None)
    if not maps:
        raise ValueError(f"{name}: linear attention has no weights between positions to show, as softmax has.")
    for kind, left_out in linear.items():
        if left_out:
            logger.warning(f"{name}, {kind} attention: linear layers have no weights to show ({listed(left_out)})")
    return maps


def read_text(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, text: str) -> torch.LongTensor:
    """Ids `(1, length)` of a text that the model can read."""
    ids = tokenizer(text, padding=False, truncation=False, verbose=False, return_tensors="pt").input_ids
    check_length(model, ids, "text")
    return ids.long().to(model.device)


def read_target(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, inputs: dict[str, torch.Tensor], target: str | None
) -> torch.LongTensor:
    """Ids `(1, length)` of what the decoder of an encoder-decoder reads."""
    shift = getattr(model, "prepare_decoder_input_ids_from_labels", None) or partial(shift_right, model.config)
    if target is not None:
        labels = tokenizer(text_target=target, padding=False, truncation=False, verbose=False, return_tensors="pt")
        check_length(model, labels.input_ids, "target")
        return shift(labels.input_ids.to(model.device))
    if classifies(model):
        return shift(inputs["input_ids"])
    if not model.can_generate():
        raise ValueError(f"{title_of(model)} ({type(model).__name__}) writes no target by itself: give it one.")
    length = 2 * inputs["input_ids"].shape[1]
    usual = model.generation_config
    own = {} if usual.max_length or usual.max_new_tokens else {"max_length": min(length, longest(model.config))}
    return model.generate(**inputs, num_beams=1, do_sample=False, **own)[:, :-1]  # the last was written, and not read


def check_length(model: PreTrainedModel, ids: torch.LongTensor, what: str) -> None:
    length, most = ids.shape[1], longest(model.config)
    if length == 0:
        raise ValueError(f"The {what} has no token.")
    if length > most:
        raise ValueError(f"The {what} has {length} tokens, and {title_of(model)} reads at most {most}.")


def longest(config: PreTrainedConfig) -> int:
    """How many tokens a model can tell the positions of."""
    if getattr(config, "position_embedding_type", "learned") in ("sinusoidal", "rotary", "none"):
        return sys.maxsize
    return positions_of(config) or sys.maxsize


def linear_layers(config: PreTrainedConfig, kind: str) -> list[int]:
    """The layers whose attention is linear, which compares no two positions."""
    types = getattr(config, "layer_types", None) or []
    if hasattr(config, "kind_of"):
        count = getattr(config, "decoder_layers", None) if kind == "decoder" else None
        types = map(config.kind_of, range(count or config.num_hidden_layers))
    return [layer for layer, name in enumerate(types) if name == "linear_attention" and kind != "cross"]


def stacked(
    attentions: Sequence[torch.Tensor | None] | None, linear: Sequence[int], name: str
) -> tuple[torch.Tensor, list[int]]:
    """Of each layer `(1, heads, queries, keys)`, to `(layers, heads, queries, keys)` and the numbers of the layers.

    Linear ones are `None`, or not there at all.
    """
    weights = [layer for layer in attentions or () if layer is not None]
    count = len(weights) + len(linear)
    if count < max(1, len(attentions or ())):
        raise ValueError(f"{name} returns no attention weights, even with eager attention.")
    layers = [layer for layer in range(count) if layer not in linear]
    return torch.cat(weights).float().cpu() if weights else torch.empty(0), layers


def is_causal(model: PreTrainedModel, attentions: Sequence[torch.Tensor]) -> bool:
    """Whether nobody sees what comes after: as the model's attention says or, of older classes, as its weights do."""
    said = [module.is_causal for module in model.modules() if hasattr(module, "is_causal")]
    return any(said) if said else not any(weights.triu(1).any() for weights in attentions)


def listed(numbers: Sequence[int]) -> str:
    return ", ".join(map(str, numbers))


def has_decoder_beside(model: PreTrainedModel) -> bool:
    """Whether it is an encoder with a decoder. (Its encoder alone has the same configuration.)"""
    return bool(model.config.is_encoder_decoder) and getattr(model.base_model, "decoder", None) is not None


def reads_target(model: PreTrainedModel) -> bool:
    return has_decoder_beside(model) and not classifies(model)


def classifies(model: PreTrainedModel) -> bool:
    return type(model).__name__.endswith("ForSequenceClassification")


def title_of(model: PreTrainedModel) -> str:
    """A Hub id, the name of a folder, or else that of the class."""
    name = str(model.name_or_path or type(model).__name__)
    return Path(name).resolve().name if Path(name).is_dir() else name


@contextmanager
def observed(model: PreTrainedModel) -> Iterator[None]:
    """The model in evaluation mode, with eager attention and without gradients."""
    training, implementation = model.training, model.config._attn_implementation
    model.eval()
    try:
        if implementation != "eager":
            model.set_attn_implementation("eager")
        with torch.no_grad():
            yield
    finally:
        model.train(training)
        if implementation != "eager":
            model.set_attn_implementation(implementation)
