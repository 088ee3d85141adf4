"""Modules of `torch.nn`: the settings they were made with, which are their configuration, and back to a module."""

from collections.abc import Mapping
from typing import Any

from torch import nn
from torch.nn import functional as F

from .architectures import torch_nn
from .errors import ConversionError

#: the activations that both sides have, as a function and as a module
ACTIVATIONS = {name: (getattr(F, name), getattr(nn, module)) for name, module in torch_nn.ACTIVATIONS.items()}
#: the classes that are converted, without their subclasses
MODULES = (nn.TransformerEncoder, nn.TransformerDecoder, nn.Transformer)
Settings = Mapping[str, Any]
Layer = nn.TransformerEncoderLayer | nn.TransformerDecoderLayer
Stack = nn.TransformerEncoder | nn.TransformerDecoder


def settings_of(module: Stack | nn.Transformer) -> dict[str, Any]:
    """What a module was made with, under the names of its arguments where they have one.

    Raises:
        ConversionError: for settings that the zoo's models do not have.
    """
    if isinstance(module, nn.Transformer):
        return transformer_settings(module)
    if isinstance(module, nn.TransformerEncoder):
        return encoder_settings(module)
    return stack_settings(module) | {"num_layers": module.num_layers}


def transformer_settings(transformer: nn.Transformer) -> dict[str, Any]:
    for side, stack_class in (("encoder", nn.TransformerEncoder), ("decoder", nn.TransformerDecoder)):
        stack = getattr(transformer, side)
        if not isinstance(stack, stack_class):
            raise ConversionError(f"An nn.Transformer whose {side} is {type(stack).__name__}() is not converted.")
    settings, decoder = encoder_settings(transformer.encoder), stack_settings(transformer.decoder)
    pairs = [f"{name}={settings[name]!r} and {value!r}" for name, value in decoder.items() if settings[name] != value]
    if pairs:
        title = f"An nn.Transformer whose encoder and decoder have {', '.join(pairs)}"
        raise ConversionError(f"{title} is not converted: in the zoo both have the same.")
    return settings | {"num_decoder_layers": transformer.decoder.num_layers}


def encoder_settings(encoder: nn.TransformerEncoder) -> dict[str, Any]:
    names = ("num_layers", "enable_nested_tensor", "mask_check")
    return stack_settings(encoder) | {name: getattr(encoder, name) for name in names}


def stack_settings(stack: Stack) -> dict[str, Any]:
    """What the layers of a stack were made with, all alike, and whether there is a norm after them."""
    title = f"nn.{type(stack).__name__}"
    for layer in stack.layers:
        if type(layer) not in (nn.TransformerEncoderLayer, nn.TransformerDecoderLayer):
            name = f"{type(layer).__module__}.{type(layer).__qualname__}"
            raise ConversionError(f"A layer of the {title} is of class {name}, which may compute something else.")
    if not stack.layers:
        raise ConversionError(f"{title} of 0 layers is not converted: it should have 1 at least.")
    settings = layer_settings(stack.layers[0])
    if any(layer_settings(layer) != settings for layer in stack.layers):
        raise ConversionError(f"The layers of the {title} differ in their settings; in the zoo all have the same.")
    norms = [module for layer in stack.layers for name, module in layer.named_children() if name.startswith("norm")]
    for norm in norms if stack.norm is None else [*norms, stack.norm]:
        if not is_plain_norm(norm, settings["layer_norm_eps"]):
            raise ConversionError(
                f"norm={norm} of an {title} is not converted: each must be a LayerNorm with bias, and with "
                f"eps={settings['layer_norm_eps']} as the first one has."
            )
    return settings | {"final_norm": stack.norm is not None}


def layer_settings(layer: Layer) -> dict[str, Any]:
    """What one layer was made with, under the names of its arguments where they have one."""
    title = f"nn.{type(layer).__name__}"
    if layer.linear1.bias is None:
        raise ConversionError(f"bias=False of an {title} is not converted: it should be True.")
    *after_attention, after_feed_forward = [dropout.p for dropout in residual_dropouts(layer)]
    attentions = [(module.num_heads, module.dropout, module.batch_first) for module in attentions_of(layer)]
    if len({*after_attention}) > 1 or len({*attentions}) > 1:
        raise ConversionError(f"The attentions of an {title} differ in their settings; in the zoo all have the same.")
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
    """The dropouts of what is added to the residual stream, in their order. (The feed-forward's own has no number.)"""
    return [module for name, module in layer.named_children() if name.startswith("dropout") and name != "dropout"]


def activation_name(layer: Layer) -> str:
    activation = layer.activation
    for name, (function, module) in ACTIVATIONS.items():
        exact = isinstance(activation, module) and getattr(activation, "approximate", "none") == "none"
        if exact or activation is function:
            return name
    names, title = " or ".join(ACTIVATIONS), f"nn.{type(layer).__name__}"
    raise ConversionError(f"activation={activation} of an {title} is not converted: it must be {names}.")


def is_plain_norm(norm: nn.Module, eps: float) -> bool:
    return isinstance(norm, nn.LayerNorm) and norm.eps == eps and norm.weight is not None and norm.bias is not None


def make_module(name: str, settings: Settings) -> nn.Module:
    """The module `torch.nn.<name>` with these settings, on the meta device."""
    if name == "TransformerDecoder":
        return make_decoder(settings, settings["num_layers"])
    encoder = nn.TransformerEncoder(
        make_layer(nn.TransformerEncoderLayer, settings),
        settings["num_layers"],
        make_final_norm(settings),
        enable_nested_tensor=settings.get("enable_nested_tensor", False),
        mask_check=settings.get("mask_check", True),
    )
    if name == "TransformerEncoder":
        return encoder
    decoder = make_decoder(settings, settings["num_decoder_layers"])
    sizes, batch_first = (settings["d_model"], settings["nhead"]), settings.get("batch_first", True)
    return nn.Transformer(*sizes, custom_encoder=encoder, custom_decoder=decoder, batch_first=batch_first)


def make_decoder(settings: Settings, num_layers: int) -> nn.TransformerDecoder:
    return nn.TransformerDecoder(
        make_layer(nn.TransformerDecoderLayer, settings), num_layers, make_final_norm(settings)
    )


def make_layer(layer_class: type[Layer], settings: Settings) -> Layer:
    layer = layer_class(
        **{name: settings[name] for name in ("d_model", "nhead", "dim_feedforward", "layer_norm_eps")},
        dropout=settings["hidden_dropout"],
        activation=ACTIVATIONS[settings["activation"]][0],
        batch_first=settings.get("batch_first", True),
        norm_first=settings["norm_position"] == "pre",
        device="meta",
    )
    layer.dropout.p = settings["dropout"]
    for attention in attentions_of(layer):
        attention.dropout = settings["attention_dropout"]
    *after_attention, _ = residual_dropouts(layer)
    for dropout in after_attention if settings["attention_output_dropout"] is not None else ():
        dropout.p = settings["attention_output_dropout"]
    return layer


def make_final_norm(settings: Settings) -> nn.LayerNorm | None:
    has_norm, width, eps = settings["final_norm"], settings["d_model"], settings["layer_norm_eps"]
    return nn.LayerNorm(width, eps, device="meta") if has_norm else None
