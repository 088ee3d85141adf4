"""Attention maps: which token a model attends to, in every head of every layer, while it reads a text."""

import logging
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial

import torch
from transformers import PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerBase

from ..converters.token_positions import positions_of
from ..models.modeling_tfm_encoder_decoder import TfmEncoderDecoderForConditionalGeneration
from .attention import AttentionMap, listed
from .figures import title_of_source
from .tokens import token_labels

logger = logging.getLogger(__name__)


def attention_maps(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase | None = None,
    text: str | None = None,
    target: str | None = None,
    *,
    input_ids: torch.LongTensor | None = None,
) -> dict[str, AttentionMap]:
    """What a model attends to while it reads a text.

    Args:
        model: a zoo model or an official one. It runs in evaluation mode with eager attention, the only kind that
            returns its weights; both settings are restored afterwards.
        tokenizer: without it, tokens are named by their ids, and `input_ids` are given.
        text: what the model reads; the source of an encoder-decoder.
        target: what the decoder of an encoder-decoder reads after its start token. `None`: the model's own greedy
            output, or for a classifier the text itself. (A token's row shows what predicts the token after it.)
        input_ids: `(1, length)`, instead of the text.

    Returns:
        The maps by kind: "encoder" or "decoder"; for an encoder-decoder "encoder", "decoder" and "cross". Layers with
        linear attention have no weights: they are left out, with a warning.

    Raises:
        ValueError: if the text is empty or longer than the model can read, if there is no text and no `input_ids`, if
            the target is missing or the model reads no target, or if no layer has weights.
    """
    name, ids = title_of(model), input_ids
    if ids is None and (tokenizer is None or text is None):
        raise ValueError("A text and its tokenizer are missing: attention_maps takes these, or input_ids.")
    if ids is None:
        ids = read_text(model, tokenizer, text)
    elif ids.dim() != 2 or len(ids) != 1:
        raise ValueError(f"input_ids of shape {tuple(ids.shape)} should be of shape (1, length): one text.")
    else:
        check_length(model, ids, "text")
        ids = ids.to(model.device)
    if target is not None and tokenizer is None:
        raise ValueError(f"target {target!r} needs a tokenizer.")
    inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    if target is not None and (reads_again(model) or not has_two_stacks(model)):
        raise ValueError(f"target {target!r}: {name} reads no target; only an encoder-decoder that generates does.")
    with observed(model):
        if has_two_stacks(model):
            inputs["decoder_input_ids"] = read_target(model, tokenizer, inputs, target)
        outputs = model.base_model(**inputs, output_attentions=True, return_dict=True)
    keys = token_labels(tokenizer, ids[0].tolist(), is_source=True)
    if has_two_stacks(model):
        queries = token_labels(tokenizer, inputs["decoder_input_ids"][0].tolist())
        parts = {
            "encoder": (outputs.encoder_attentions, keys, keys),
            "decoder": (outputs.decoder_attentions, queries, queries),
            "cross": (outputs.cross_attentions, queries, keys),
        }
    else:
        kind = "decoder" if is_causal(model, outputs.attentions) else "encoder"
        parts = {kind: (outputs.attentions, keys, keys)}

    maps, linear = {}, {kind: linear_layers(model.config, kind) for kind in parts}
    for kind, (attentions, *tokens) in parts.items():
        weights = [layer for layer in attentions or () if layer is not None]  # a linear layer's are `None` or absent
        count = len(weights) + len(linear[kind])
        if count < max(1, len(attentions or ())):
            raise ValueError(f"{name} returns no attention weights, even with eager attention.")
        if weights:
            layers = [layer for layer in range(count) if layer not in linear[kind]] if linear[kind] else None
            maps[kind] = AttentionMap(kind, torch.cat(weights).float().cpu(), *tokens, name, layers)
    if not maps:
        raise ValueError(f"{name}: linear attention has no weights between positions to show, as softmax has.")
    for kind, layers in linear.items():
        if layers:
            logger.warning(f"{name}, {kind} attention: linear layers have no weights to show ({listed(layers)})")
    return maps


def read_text(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, text: str) -> torch.LongTensor:
    """The ids `(1, length)` of a text, checked against what the model can read."""
    ids = tokenizer(text, padding=False, truncation=False, verbose=False, return_tensors="pt").input_ids
    check_length(model, ids, "text")
    return ids.long().to(model.device)


def read_target(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, inputs: dict[str, torch.Tensor], target: str | None
) -> torch.LongTensor:
    """The ids `(1, length)` that the decoder of an encoder-decoder reads."""
    # Only models that generate have the method. The zoo's other encoder-decoders shift in the same way.
    shift = getattr(model, "prepare_decoder_input_ids_from_labels", None)
    if shift is None and not hasattr(model.config, "start_with_last_token"):
        raise ValueError(f"{type(model).__name__} has no head: load the class of {title_of(model)} that generates.")
    shift = shift or partial(TfmEncoderDecoderForConditionalGeneration.prepare_decoder_input_ids_from_labels, model)
    if target is not None:
        labels = tokenizer(text_target=target, padding=False, truncation=False, verbose=False, return_tensors="pt")
        check_length(model, labels.input_ids, "target")
        return shift(labels.input_ids.to(model.device))
    if reads_again(model):
        return shift(inputs["input_ids"])
    if not model.can_generate():
        raise ValueError(f"{title_of(model)} ({type(model).__name__}) writes no target by itself: give it one.")
    limits, length = model.generation_config, 2 * inputs["input_ids"].shape[1]
    has_limit = limits.max_length or limits.max_new_tokens
    limit = {} if has_limit else {"max_length": min(length, longest(model.config))}
    return model.generate(**inputs, num_beams=1, do_sample=False, **limit)[:, :-1]  # nothing reads the last token


def check_length(model: PreTrainedModel, ids: torch.LongTensor, what: str) -> None:
    length, most = ids.shape[1], longest(model.config)
    if length == 0:
        raise ValueError(f"The {what} has no token.")
    if length > most:
        raise ValueError(f"The {what} has {length} tokens, and {title_of(model)} reads at most {most}.")


def longest(config: PreTrainedConfig) -> int:
    """How many tokens a model can read: only a table of learned positions sets a limit."""
    if getattr(config, "position_embedding_type", "learned") in ("sinusoidal", "rotary", "none"):
        return sys.maxsize
    return positions_of(config) or sys.maxsize


def linear_layers(config: PreTrainedConfig, kind: str) -> list[int]:
    """The numbers of the layers with linear attention. Cross-attention is never linear."""
    if kind == "cross":
        return []
    if getattr(config, "attention_type", None) == "linear":
        count = getattr(config, "decoder_layers", None) if kind == "decoder" else None
        return list(range(count or config.num_hidden_layers))
    types = getattr(config, "layer_types", None) or []
    return [layer for layer, layer_type in enumerate(types) if layer_type == "linear_attention"]


def is_causal(model: PreTrainedModel, attentions: Sequence[torch.Tensor]) -> bool:
    """Whether no token sees a later one. Where an older class does not say so, the weights show it."""
    flags = [module.is_causal for module in model.modules() if hasattr(module, "is_causal")]
    return any(flags) if flags else not any(weights.triu(1).any() for weights in attentions)


def has_two_stacks(model: PreTrainedModel) -> bool:
    """Whether this is an encoder with a decoder. (The encoder alone has the same configuration.)"""
    return bool(model.config.is_encoder_decoder) and getattr(model.base_model, "decoder", None) is not None


def classifies(model: PreTrainedModel) -> bool:
    return type(model).__name__.endswith("ForSequenceClassification")


def reads_again(model: PreTrainedModel) -> bool:
    """Whether the decoder, if there is one, reads the source, shifted to the right."""
    return classifies(model) or type(model).__name__.endswith("ForQuestionAnswering")


def title_of(model: PreTrainedModel) -> str:
    """The Hub id or the folder that the model or its configuration names; without these, the model's class."""
    name = model.name_or_path or model.config.name_or_path
    return title_of_source(name) if name else type(model).__name__


@contextmanager
def observed(model: PreTrainedModel) -> Iterator[None]:
    """Put the model into evaluation mode, with eager attention and without gradients; restore it at the end."""
    training, implementation = model.training, model.config._attn_implementation
    model.eval()
    try:
        if implementation != "eager":
            choose_attention(model, "eager")
        with torch.no_grad():
            yield
    finally:
        model.train(training)
        if implementation != "eager":
            choose_attention(model, implementation)


def choose_attention(model: PreTrainedModel, implementation: str) -> None:
    """Sets the attention implementation of a model and of the models in it: before transformers 5.20, official T5 does
    not pass it on to its stacks."""
    for part in model.modules():
        if isinstance(part, PreTrainedModel):
            part.set_attn_implementation(implementation)
