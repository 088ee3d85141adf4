"""Modules of `torch.nn`: they have settings in place of a configuration, and blocks without embeddings.

The zoo's model of their weights is given `inputs_embeds`.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F
from transformers import PreTrainedConfig

from .architecture import Architecture, Head
from .checkpoint import Checkpoint
from .rules import ConversionError, Rename, Rule, Split, same

ACTIVATIONS = {"relu": (F.relu, nn.ReLU), "gelu": (F.gelu, nn.GELU), "silu": (F.silu, nn.SiLU)}
Layer = nn.TransformerEncoderLayer | nn.TransformerDecoderLayer
Stack = nn.TransformerEncoder | nn.TransformerDecoder


@dataclass(frozen=True, kw_only=True)
class TorchArchitecture(Architecture):
    """A module without a configuration: it is its own, and a native configuration is one without weights."""

    def native_config_of(self, checkpoint: Checkpoint) -> nn.Module:
        return checkpoint.model

    def skeleton(self, native: nn.Module, head: Head) -> nn.Module:
        return native

    def assemble(self, skeleton: nn.Module, weights: dict[str, torch.Tensor], *_) -> nn.Module:
        skeleton.load_state_dict(weights, assign=True)
        return skeleton.eval()


# from a module


def encoder_values(encoder: nn.TransformerEncoder) -> dict[str, Any]:
    """What an `nn.TransformerEncoder` was made with, under the names of its arguments where they have one."""
    return stack_values(encoder) | {
        "num_layers": encoder.num_layers,
        "enable_nested_tensor": encoder.enable_nested_tensor,
        "mask_check": encoder.mask_check,
    }


def stack_values(stack: Stack) -> dict[str, Any]:
    """What the layers of a stack were made with, all alike, and whether there is a norm after them."""
    title = f"nn.{type(stack).__name__}"
    values = layer_values(stack.layers[0])
    if any(layer_values(layer) != values for layer in stack.layers):
        raise ConversionError(f"The layers of the {title} differ in their settings; the zoo's do not.")
    norms = [module for layer in stack.layers for name, module in layer.named_children() if name.startswith("norm")]
    for norm in norms if stack.norm is None else [*norms, stack.norm]:
        if not is_plain_norm(norm, values["layer_norm_eps"]):
            raise ConversionError(
                f"norm={norm} of an {title} is not converted; every one is to be a LayerNorm with "
                f"bias, and with the first one's eps={values['layer_norm_eps']}."
            )
    return values | {"final_norm": stack.norm is not None}


def layer_values(layer: Layer) -> dict[str, Any]:
    """What one layer was made with, under the names of its arguments where they have one."""
    title = f"nn.{type(layer).__name__}"
    if layer.linear1.bias is None:
        raise ConversionError(f"bias=False of an {title} is not converted: the zoo's norms have biases.")
    *after_attention, after_feed_forward = [dropout.p for dropout in residual_dropouts(layer)]
    attentions = [(module.num_heads, module.dropout, module.batch_first) for module in attentions_of(layer)]
    if len({*after_attention}) > 1 or len({*attentions}) > 1:
        raise ConversionError(f"The attentions of an {title} differ in their settings; the zoo's do not.")
    heads, attention_dropout, batch_first = attentions[0]
    return {
        "d_model": layer.self_attn.embed_dim,
        "nhead": heads,
        "dim_feedforward": layer.linear1.out_features,
        "activation": activation_name(layer),
        "layer_norm_eps": layer.norm1.eps,
        "batch_first": batch_first,
        "norm_position": "pre" if layer.norm_first else "post",
        "attention_dropout": attention_dropout,
        "attention_output_dropout": None if after_attention[0] == after_feed_forward else after_attention[0],
        "dropout": layer.dropout.p,
        "hidden_dropout": after_feed_forward,
    }


def attentions_of(layer: Layer) -> list[nn.MultiheadAttention]:
    return [module for module in layer.children() if isinstance(module, nn.MultiheadAttention)]


def residual_dropouts(layer: Layer) -> list[nn.Dropout]:
    """Those of what is added to the residual stream, in their order; the one inside the feed-forward has no number."""
    return [module for name, module in layer.named_children() if name.startswith("dropout") and name != "dropout"]


def activation_name(layer: Layer) -> str:
    activation = layer.activation
    for name, (function, module) in ACTIVATIONS.items():
        exact = isinstance(activation, module) and getattr(activation, "approximate", "none") == "none"
        if exact or activation is function:
            return name
    known = ", ".join(ACTIVATIONS)
    raise ConversionError(f"activation={activation} of an nn.{type(layer).__name__} is not converted; only {known}.")


def is_plain_norm(norm: nn.Module, eps: float) -> bool:
    return isinstance(norm, nn.LayerNorm) and norm.eps == eps and norm.weight is not None and norm.bias is not None


# to a module, without memory


def make_encoder(config: PreTrainedConfig) -> nn.TransformerEncoder:
    official = config.official or {}
    return nn.TransformerEncoder(
        make_layer(nn.TransformerEncoderLayer, config),
        config.num_hidden_layers,
        make_final_norm(config),
        enable_nested_tensor=official.get("enable_nested_tensor", False),
        mask_check=official.get("mask_check", True),
    )


def make_decoder(config: PreTrainedConfig) -> nn.TransformerDecoder:
    layer = make_layer(nn.TransformerDecoderLayer, config)
    return nn.TransformerDecoder(layer, config.decoder_layers, make_final_norm(config))


def make_layer(layer_class: type[Layer], config: PreTrainedConfig) -> Layer:
    layer = layer_class(
        config.hidden_size,
        config.num_attention_heads,
        config.intermediate_size,
        config.hidden_dropout,
        ACTIVATIONS.get(config.hidden_act, ACTIVATIONS["relu"])[0],
        config.norm_eps,
        batch_first=is_batch_first(config),
        norm_first=config.norm_position == "pre",
        device="meta",
    )
    layer.dropout.p = config.activation_dropout
    for attention in attentions_of(layer):
        attention.dropout = config.attention_dropout
    *after_attention, _ = residual_dropouts(layer)
    for dropout in after_attention if config.attention_output_dropout is not None else ():
        dropout.p = config.attention_output_dropout
    return layer


def make_final_norm(config: PreTrainedConfig) -> nn.LayerNorm | None:
    return nn.LayerNorm(config.hidden_size, config.norm_eps, device="meta") if config.final_norm else None


def is_batch_first(config: PreTrainedConfig) -> bool:
    return (config.official or {}).get("batch_first", True)


# the tables' common part


def attention_rules(official: str, zoo: str) -> tuple[Rule, ...]:
    return (
        *(
            Split(f"{official}.in_proj_{leaf}", tuple(f"{zoo}.{part}_proj.{leaf}" for part in "qkv"))
            for leaf in ("weight", "bias")
        ),
        Rename(f"{official}.out_proj", f"{zoo}.o_proj"),
    )


FIELDS = {
    **same("norm_position", "final_norm", "hidden_dropout", "attention_dropout", "attention_output_dropout"),
    "d_model": "hidden_size",
    "nhead": "num_attention_heads",
    "dim_feedforward": "intermediate_size",
    "activation": "hidden_act",
    "layer_norm_eps": "norm_eps",
    "dropout": "activation_dropout",
}
CONSTANTS = {"vocab_size": 1, "pad_token_id": None, "position_embedding_type": "none"}
FREE = ("vocab_size", "pad_token_id", "bos_token_id", "eos_token_id", "max_position_embeddings", "tie_word_embeddings")
#: what the layers of encoders and decoders have alike, and the norm after them
BLOCK = (
    *attention_rules("layers.{i}.self_attn", "layers.{i}.self_attn"),
    Rename("layers.{i}.norm1", "layers.{i}.self_attn_norm"),
    Rename("layers.{i}.linear1", "layers.{i}.mlp.up_proj"),
    Rename("layers.{i}.linear2", "layers.{i}.mlp.down_proj"),
    Rename("norm", "norm"),
)
ENCODER_BLOCK = (*BLOCK, Rename("layers.{i}.norm2", "layers.{i}.mlp_norm"))
DECODER_BLOCK = (
    *BLOCK,
    *attention_rules("layers.{i}.multihead_attn", "layers.{i}.encoder_attn"),
    Rename("layers.{i}.norm2", "layers.{i}.encoder_attn_norm"),
    Rename("layers.{i}.norm3", "layers.{i}.mlp_norm"),
)
