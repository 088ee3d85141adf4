"""Who attends to whom: a model's attention weights on one text, with the tokens that they are between."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch
from transformers import PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerBase

from ..models.targets import shift_right
from .tokens import token_labels


@dataclass(frozen=True)
class AttentionMap:
    """The attention weights of one text, of all layers and heads.

    Args:
        kind: "encoder" or "decoder", each to itself, or "cross": the decoder to the encoder.
        weights: `(layers, heads, queries, keys)`; each row of keys sums to 1.
        queries: the tokens that attend.
        keys: the tokens that are attended to.
        model: the model's name.
    """

    kind: str
    weights: torch.Tensor
    queries: list[str]
    keys: list[str]
    model: str

    def check(self, layer: int | None, head: int | None) -> None:
        """There are such a layer and such a head, where they are given.

        Raises:
            ValueError: where there are not.
        """
        for name, value, count in zip(("layer", "head"), (layer, head), self.weights.shape, strict=False):
            if value is not None and not 0 <= value < count:
                raise ValueError(f"{name} {value}: the {self.kind} attention of {self.model} has 0 to {count - 1}.")


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
        The maps by their kind: "encoder" or "decoder"; of an encoder-decoder "encoder", "decoder" and "cross".

    Raises:
        ValueError: for a text that is empty, or longer than the model takes, a target that is missing or has no use,
            and attention without weights.
    """
    check_has_weights(model.config)
    ids, name = read_text(model, tokenizer, text), title_of(model)
    inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    if target is not None and not reads_target(model):
        raise ValueError(f"target {target!r}: {name} reads no target, which is for encoder-decoders that write.")
    with observed(model):
        if has_decoder_beside(model):
            inputs["decoder_input_ids"] = read_target(model, tokenizer, inputs, target)
        outputs = model.base_model(**inputs, output_attentions=True, return_dict=True)
    source, target_ids = ids[0].tolist(), inputs.get("decoder_input_ids", ids)[0].tolist()
    keys, queries = token_labels(tokenizer, source), token_labels(tokenizer, target_ids)
    if not has_decoder_beside(model):
        weights = stacked(outputs.attentions, name)
        kind = "encoder" if weights.triu(1).any() else "decoder"  # nobody sees what comes after
        return {kind: AttentionMap(kind, weights, keys, keys, name)}
    return {
        "encoder": AttentionMap("encoder", stacked(outputs.encoder_attentions, name), keys, keys, name),
        "decoder": AttentionMap("decoder", stacked(outputs.decoder_attentions, name), queries, queries, name),
        "cross": AttentionMap("cross", stacked(outputs.cross_attentions, name), queries, keys, name),
    }


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
    most = getattr(config, "max_position_embeddings", None)
    if most is None or getattr(config, "position_embedding_type", "learned") in ("sinusoidal", "rotary", "none"):
        return sys.maxsize
    if getattr(config, "position_ids_from_padding", False):  # RoBERTa's positions begin after the padding's
        most -= config.pad_token_id + 1
    return most


def check_has_weights(config: PreTrainedConfig) -> None:
    """Every layer's attention has weights: linear attention has a sum over all positions in their place."""
    linear = {name: getattr(config, name, None) for name in ("attention_type", "layer_types")}
    for name, value in linear.items():
        if value == "linear" or (isinstance(value, list) and "linear_attention" in value):
            raise ValueError(
                f"{name}={value!r}: linear attention has no weights between positions to show, as softmax has."
            )


def stacked(attentions: tuple[torch.Tensor, ...] | None, name: str) -> torch.Tensor:
    """Of each layer `(1, heads, queries, keys)`, to `(layers, heads, queries, keys)`."""
    if not attentions or any(weights is None for weights in attentions):
        raise ValueError(f"{name} returns no attention weights, even with eager attention.")
    return torch.cat(attentions).float().cpu()


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
