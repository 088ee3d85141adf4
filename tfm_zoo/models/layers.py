"""One Transformer block, with its feed-forward."""

import torch
from torch import nn
from transformers import GradientCheckpointingLayer

from .attention import TfmAttention
from .compat import ACT2FN
from .norms import make_norm, multiplier, norm_or_identity

#: activations that transformers computes in many steps -> the same function as one kernel
FUSED = {"gelu_new": "gelu_pytorch_tanh", "gelu_fast": "gelu_pytorch_tanh"}


class TfmLayer(GradientCheckpointingLayer):
    """One block. `norm_position` says where the norms of each sub-layer `f`, attention or feed-forward, stand:

        "post"      norm(x + f(x))            Vaswani et al. 2017, BERT
        "pre"       x + f(norm(x))            Xiong et al. 2020, GPT-2, LLaMA
        "output"    x + norm(f(x))            OLMo 2
        "both"      x + norm'(f(norm(x)))     Gemma 2

    With `use_parallel_residual`: `x + attention(norm(x)) + mlp(norm'(x))` (GPT-NeoX), or one norm for both (GPT-J).

    The arguments are those of [`TfmAttention`], and the class of the feed-forward, by default [`TfmMLP`].
    """

    def __init__(
        self,
        config,
        layer_idx: int,
        layer_type: str | None = None,
        is_causal: bool = False,
        mlp_class: type[nn.Module] | None = None,
    ):
        super().__init__()
        self.is_post_norm = config.norm_position == "post"
        self.is_parallel = config.use_parallel_residual
        sizes = config.get_text_config(decoder=is_causal)  # the two stacks of an encoder-decoder may differ
        self.add_attention(config, layer_idx, layer_type=layer_type, is_causal=is_causal, sizes=sizes)
        self.layer_type = self.self_attn.layer_type
        if layer_idx == 0 and not config.first_norm:
            self.self_attn_norm = nn.Identity()
        self.add_sub_layer("mlp", (mlp_class or TfmMLP)(sizes), config, config.hidden_dropout)
        if self.is_parallel and config.num_ln_in_parallel_attn == 1:
            self.mlp_norm = None

    def add_attention(self, config, layer_idx: int, **options) -> None:
        self.add_sub_layer("self_attn", TfmAttention(config, layer_idx, **options), config)

    def add_sub_layer(self, name: str, module: nn.Module, config, dropout: float | None = None) -> None:
        """Makes the modules of a sub-layer: itself, its norms, its dropout (by default that of attention's output)."""
        dropout = config.attention_output_dropout if dropout is None else dropout
        has_output_norm = config.norm_position in ("output", "both")
        output_norm = make_norm(config) if has_output_norm else multiplier(config.residual_multiplier)
        self.add_module(name, module)
        self.add_module(f"{name}_norm", norm_or_identity(config, config.norm_position != "output"))
        setattr(self, f"{name}_output_norm", output_norm)  # `None` as a plain attribute is found faster
        self.add_module(f"{name}_dropout", nn.Dropout(dropout))

    def forward(self, hidden_states: torch.Tensor, **kwargs) -> torch.Tensor:
        """Hidden states `(batch, length, hidden_size)` in and out; `kwargs` are those of [`TfmAttention`]."""
        if not self.is_parallel:
            return self.feed(self.attend(hidden_states, **kwargs))
        normed = self.self_attn_norm(hidden_states)
        attended = self.self_attn_dropout(self.self_attn(normed, **kwargs)[0])
        fed = self.mlp(normed if self.mlp_norm is None else self.mlp_norm(hidden_states))
        return hidden_states + (attended + self.mlp_dropout(fed))  # summed as in the official classes

    def attend(self, hidden_states: torch.Tensor, **kwargs) -> torch.Tensor:
        norm = self.self_attn_norm
        attended = self.self_attn(hidden_states if self.is_post_norm else norm(hidden_states), **kwargs)[0]
        return self.add(hidden_states, attended, norm, self.self_attn_output_norm, self.self_attn_dropout)

    def feed(self, hidden_states: torch.Tensor) -> torch.Tensor:
        norm = self.mlp_norm
        fed = self.mlp(hidden_states if self.is_post_norm else norm(hidden_states))
        return self.add(hidden_states, fed, norm, self.mlp_output_norm, self.mlp_dropout)

    def add(self, hidden_states: torch.Tensor, output: torch.Tensor, norm, output_norm, dropout) -> torch.Tensor:
        """Adds a sub-layer's output to the residual stream, through the norms and the dropout of this sub-layer."""
        output = output if output_norm is None else output_norm(output)
        hidden_states = hidden_states + (dropout(output) if dropout.training else output)
        return norm(hidden_states) if self.is_post_norm else hidden_states


class TfmMLP(nn.Module):
    """`down(act(up(x)))`, or gated (Shazeer 2020): `down(act(gate(x)) * up(x))`.

    Shapes: `(..., hidden_size)` in and out, `(..., intermediate_size)` inside.
    """

    def __init__(self, config):
        super().__init__()
        width, inner, bias = config.hidden_size, config.intermediate_size, config.mlp_bias
        self.is_gated = config.mlp_type == "gated"
        self.gate_proj = nn.Linear(width, inner, bias=bias) if self.is_gated else None
        self.up_proj = nn.Linear(width, inner, bias=bias)
        self.down_proj = nn.Linear(inner, width, bias=config.mlp_output_bias)
        self.act_fn = ACT2FN[FUSED.get(config.hidden_act, config.hidden_act)]
        self.dropout = nn.Dropout(config.activation_dropout)

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        inner = self.up_proj(hidden_states)
        inner = self.act_fn(self.gate_proj(hidden_states)) * inner if self.is_gated else self.act_fn(inner)
        return self.down_proj(self.dropout(inner) if self.dropout.training else inner)


def is_checkpointing(model) -> bool:
    """Whether gradient checkpointing runs each block a second time, and so would write to a cache twice."""
    return model.training and model.layers[0].gradient_checkpointing


def runs_backward_apart(model) -> bool:
    """Whether re-entrant gradient checkpointing runs the backward pass of each block by itself. Then blocks must not
    share a tensor that has a graph. (transformers checkpoints in this way if it is asked to.)"""
    if not is_checkpointing(model):
        return False
    options = getattr(model.layers[0]._gradient_checkpointing_func, "keywords", {})
    return options.get("use_reentrant", True)  # torch's default
