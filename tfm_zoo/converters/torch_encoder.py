"""`torch.nn.TransformerEncoder`: blocks without embeddings, so that the zoo's model is given `inputs_embeds`."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F
from transformers import PreTrainedConfig

from ..models.modeling_tfm_bert import TfmBertModel
from .architecture import Architecture, Head
from .bert import READ_BY
from .checkpoint import Checkpoint
from .rules import ConversionError, Rename, Split, same

ACTIVATIONS = {"relu": (F.relu, nn.ReLU), "gelu": (F.gelu, nn.GELU), "silu": (F.silu, nn.SiLU)}


@dataclass(frozen=True, kw_only=True)
class TorchEncoderArchitecture(Architecture):
    """A module without a configuration: it is its own, and a native configuration is one without weights."""

    def native_config_of(self, checkpoint: Checkpoint) -> nn.TransformerEncoder:
        return checkpoint.model

    def native_values(self, native: nn.TransformerEncoder) -> dict[str, Any]:
        values = layer_values(native.layers[0])
        if any(layer_values(layer) != values for layer in native.layers):
            raise ConversionError("The layers of the nn.TransformerEncoder differ in their settings; the zoo's do not.")
        norms = [norm for layer in native.layers for norm in (layer.norm1, layer.norm2)]
        for norm in norms if native.norm is None else [*norms, native.norm]:
            if not is_plain_norm(norm, values["layer_norm_eps"]):
                raise ConversionError(
                    f"norm={norm} of an nn.TransformerEncoder is not converted; every one is to be a LayerNorm with "
                    f"bias, and with the first one's eps={values['layer_norm_eps']}."
                )
        nested = {"enable_nested_tensor": native.enable_nested_tensor, "mask_check": native.mask_check}
        return values | nested | {"num_layers": native.num_layers, "final_norm": native.norm is not None}

    def native_config(self, config: PreTrainedConfig, head: Head) -> nn.TransformerEncoder:
        official, eps = config.official or {}, config.norm_eps
        with torch.device("meta"):
            layer = nn.TransformerEncoderLayer(
                config.hidden_size,
                config.num_attention_heads,
                config.intermediate_size,
                config.hidden_dropout,
                ACTIVATIONS.get(config.hidden_act, ACTIVATIONS["relu"])[0],
                eps,
                batch_first=official.get("batch_first", True),
                norm_first=config.norm_position == "pre",
            )
            layer.self_attn.dropout, layer.dropout.p = config.attention_dropout, config.activation_dropout
            if config.attention_output_dropout is not None:
                layer.dropout1.p = config.attention_output_dropout
            return nn.TransformerEncoder(
                layer,
                config.num_hidden_layers,
                nn.LayerNorm(config.hidden_size, eps) if config.final_norm else None,
                enable_nested_tensor=official.get("enable_nested_tensor", False),
                mask_check=official.get("mask_check", True),
            )

    def skeleton(self, native: nn.TransformerEncoder, head: Head) -> nn.TransformerEncoder:
        return native

    def assemble(self, skeleton: nn.TransformerEncoder, weights: dict[str, torch.Tensor], *_) -> nn.TransformerEncoder:
        skeleton.load_state_dict(weights, assign=True)
        return skeleton.eval()


def layer_values(layer: nn.TransformerEncoderLayer) -> dict[str, Any]:
    """What `nn.TransformerEncoderLayer` was made with, under the names of its arguments where they have one."""
    if layer.linear1.bias is None:
        raise ConversionError(
            "bias=False of an nn.TransformerEncoderLayer is not converted: the zoo's norms have biases."
        )
    attention, after_attention, after_feed_forward = layer.self_attn, layer.dropout1.p, layer.dropout2.p
    return {
        "d_model": attention.embed_dim,
        "nhead": attention.num_heads,
        "dim_feedforward": layer.linear1.out_features,
        "activation": activation_name(layer.activation),
        "layer_norm_eps": layer.norm1.eps,
        "batch_first": attention.batch_first,
        "norm_position": "pre" if layer.norm_first else "post",
        "attention_dropout": attention.dropout,
        "attention_output_dropout": None if after_attention == after_feed_forward else after_attention,
        "dropout": layer.dropout.p,
        "hidden_dropout": after_feed_forward,
    }


def activation_name(activation: Any) -> str:
    for name, (function, module) in ACTIVATIONS.items():
        exact = isinstance(activation, module) and getattr(activation, "approximate", "none") == "none"
        if exact or activation is function:
            return name
    known = ", ".join(ACTIVATIONS)
    raise ConversionError(f"activation={activation} of an nn.TransformerEncoderLayer is not converted; only {known}.")


def is_plain_norm(norm: nn.Module, eps: float) -> bool:
    return isinstance(norm, nn.LayerNorm) and norm.eps == eps and norm.weight is not None and norm.bias is not None


TORCH_ENCODER = TorchEncoderArchitecture(
    model_type="TransformerEncoder",
    title="nn.TransformerEncoder",
    prefix="encoder",
    fields={
        **same("norm_position", "final_norm", "hidden_dropout", "attention_dropout", "attention_output_dropout"),
        "d_model": "hidden_size",
        "nhead": "num_attention_heads",
        "num_layers": "num_hidden_layers",
        "dim_feedforward": "intermediate_size",
        "activation": "hidden_act",
        "layer_norm_eps": "norm_eps",
        "dropout": "activation_dropout",
    },
    constants={
        "vocab_size": 1,
        "pad_token_id": None,
        "type_vocab_size": 0,
        "position_embedding_type": "none",
        "embedding_norm": False,
        "add_pooling_layer": False,
    },
    read_by=READ_BY,
    free=(
        "vocab_size",
        "pad_token_id",
        "bos_token_id",
        "eos_token_id",
        "max_position_embeddings",
        "tie_word_embeddings",
    ),
    body=(
        Split(
            "layers.{i}.self_attn.in_proj_weight",
            tuple(f"layers.{{i}}.self_attn.{part}_proj.weight" for part in "qkv"),
        ),
        Split(
            "layers.{i}.self_attn.in_proj_bias",
            tuple(f"layers.{{i}}.self_attn.{part}_proj.bias" for part in "qkv"),
        ),
        Rename("layers.{i}.self_attn.out_proj", "layers.{i}.self_attn.o_proj"),
        Rename("layers.{i}.norm1", "layers.{i}.self_attn_norm"),
        Rename("layers.{i}.linear1", "layers.{i}.mlp.up_proj"),
        Rename("layers.{i}.linear2", "layers.{i}.mlp.down_proj"),
        Rename("layers.{i}.norm2", "layers.{i}.mlp_norm"),
        Rename("norm", "norm"),
    ),
    heads=(Head("TransformerEncoder", TfmBertModel),),
    fresh=("model.pooler.", "model.embeddings."),
)
