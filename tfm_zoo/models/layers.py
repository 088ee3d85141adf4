"""One Transformer block: attention, through transformers' interface (eager, sdpa, flex, flash), and feed-forward.

vLLM searches the source of attention for `ALL_ATTENTION_FUNCTIONS.get_interface(`, and for one call of the function
that it returns: both have to stay in this form.
"""

from functools import partial

import torch
from torch import nn
from torch.nn import functional as F
from transformers import Cache, GradientCheckpointingLayer
from transformers.activations import ACT2FN
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from .batch import EVERYTHING, FROM_5_24, PAGED_CACHE, Layout
from .kernels import choose_kernel, eager_attention_forward
from .positions import rotate

#: activations that transformers computes in many steps -> the same function as one kernel
FASTER_ACTIVATIONS = {"gelu_new": "gelu_pytorch_tanh", "gelu_fast": "gelu_pytorch_tanh"}


class TfmLayer(GradientCheckpointingLayer):
    """One block. `norm_position` says where the norms of each sub-layer `f`, attention or feed-forward, stand:

        "post"      norm(x + f(x))            Vaswani et al. 2017, BERT
        "pre"       x + f(norm(x))            Xiong et al. 2020, GPT-2, LLaMA
        "output"    x + norm(f(x))            OLMo 2
        "both"      x + norm'(f(norm(x)))     Gemma 2

    With `use_parallel_residual`: `x + attention(norm(x)) + mlp(norm'(x))` (GPT-NeoX), or one norm for both (GPT-J).

    The arguments are those of [`TfmAttention`], and `mlp_class`.
    """

    def __init__(
        self, config, layer_idx: int, layer_type: str, is_causal: bool, stack_config, mlp_class: type[nn.Module]
    ):
        super().__init__()
        self.layer_type = layer_type
        self.is_post_norm, self.is_parallel = config.norm_position == "post", config.use_parallel_residual
        self.add_attention(config, layer_idx, layer_type=layer_type, is_causal=is_causal, stack_config=stack_config)
        if layer_idx == 0 and not config.first_norm:
            self.self_attn_norm = nn.Identity()
        self.add_sub_layer("mlp", mlp_class(stack_config), config, config.hidden_dropout)
        if self.is_parallel and config.num_ln_in_parallel_attn == 1:
            self.mlp_norm = None

    def add_attention(self, config, layer_idx: int, **options) -> None:
        attention = TfmAttention(config, layer_idx, **options)
        self.add_sub_layer("self_attn", attention, config, config.attention_output_dropout)

    def add_sub_layer(self, name: str, module: nn.Module, config, dropout: float) -> None:
        """Makes the modules of a sub-layer: itself, `..._norm` where [`TfmLayer`] says, and after it `..._output_norm`
        (a norm, a multiplier or `None`) and `..._dropout`."""
        has_output_norm = config.norm_position in ("output", "both")
        output_norm = make_norm(config) if has_output_norm else multiplier(config.residual_multiplier)
        self.add_module(name, module)
        self.add_module(f"{name}_norm", nn.Identity() if config.norm_position == "output" else make_norm(config))
        self.add_module(f"{name}_output_norm", output_norm)
        self.add_module(f"{name}_dropout", nn.Dropout(dropout))

    def forward(self, hidden_states: torch.Tensor, **kwargs) -> torch.Tensor:
        """Hidden states `(batch, length, hidden_size)` in and out; `kwargs` are those of [`TfmAttention`]."""
        if not self.is_parallel:
            hidden_states = self.sub_layer("self_attn", hidden_states, **kwargs)
            return self.sub_layer("mlp", hidden_states)
        normed = self.self_attn_norm(hidden_states)  # (no output norm: the configuration refuses one here)
        attended = self.self_attn_dropout(self.self_attn(normed, **kwargs)[0])
        fed = self.mlp(normed if self.mlp_norm is None else self.mlp_norm(hidden_states))
        return hidden_states + (attended + self.mlp_dropout(fed))  # summed as in the official classes

    def sub_layer(self, name: str, hidden_states: torch.Tensor, *args, **kwargs) -> torch.Tensor:
        """Adds the output of a sub-layer to the residual stream, through its norms and its dropout."""
        modules = self._modules  # found sooner here than as attributes
        norm, output_norm, dropout = modules[f"{name}_norm"], modules[f"{name}_output_norm"], modules[f"{name}_dropout"]
        output = modules[name](hidden_states if self.is_post_norm else norm(hidden_states), *args, **kwargs)
        output = output[0] if isinstance(output, tuple) else output  # (attention returns weights, too)
        output = output if output_norm is None else output_norm(output)
        # (To ask is cheaper than to call a dropout that does nothing.)
        hidden_states = hidden_states + (dropout(output) if dropout.training else output)
        return norm(hidden_states) if self.is_post_norm else hidden_states


class TfmAttention(nn.Module):
    """Multi-head (Vaswani et al. 2017) or grouped-query (Ainslie et al. 2023) self-attention.

    Args:
        config: a configuration of the zoo.
        layer_idx: the layer's number, by which it finds its part of a cache.
        layer_type: `"full_attention"`, `"sliding_attention"` or `"linear_attention"`.
        is_causal: whether a position sees only itself and those before it.
        stack_config: gives sizes, in an encoder-decoder those of the stack. (Not stored: see `add_stack`.)
    """

    attend_biased = None  # DeBERTa's: calls a kernel with a bias of scores that follows from queries and keys
    #: set by `inference/packing`: a function of layer, layout and queries, which gives a kernel of a CPU or `None`
    choose_packed_kernel = None

    def __init__(self, config, layer_idx: int, layer_type: str, is_causal: bool, stack_config):
        super().__init__()
        self.config, self.layer_idx, self.layer_type, self.is_causal = config, layer_idx, layer_type, is_causal
        heads, key_heads = stack_config.num_attention_heads, stack_config.num_key_value_heads
        self.head_dim = stack_config.head_dim
        self.num_key_value_groups = heads // key_heads
        self.scaling = stack_config.attention_scale
        self.softcap = config.attn_logit_softcapping
        self.attention_dropout = nn.Dropout(config.attention_dropout)
        query_width, key_width = heads * self.head_dim, key_heads * self.head_dim
        self.q_proj = nn.Linear(config.hidden_size, query_width, bias=config.attention_bias)
        self.k_proj = nn.Linear(config.hidden_size, key_width, bias=config.attention_bias)
        self.v_proj = nn.Linear(config.hidden_size, key_width, bias=config.attention_bias)
        self.o_proj = nn.Linear(query_width, config.hidden_size, bias=config.attention_output_bias)
        self.q_norm = make_head_norm(stack_config, heads)
        self.k_norm = make_head_norm(stack_config, key_heads)
        rotates = config.position_embedding_type == "rotary" and config.no_rope_layers[layer_idx]
        norms_last = config.qk_norm == "turned_head"  # after the rotation
        steps = [("norm_step", config.qk_norm and not norms_last), ("rotate_step", rotates), ("norm_step", norms_last)]
        steps += [("rotate_value_step", rotates and config.rotary_value), ("scale_step", config.scales_queries)]
        self.steps = [step for step, is_taken in steps if is_taken]  # methods that queries, keys and values pass
        self.sliding_window = None
        if layer_type == "sliding_attention":
            # Kernels that take bounds read this width, others the layout. It includes the position itself.
            self.sliding_window = config.sliding_window if is_causal else config.sliding_window + 1

    def forward(
        self,
        hidden_states: torch.Tensor,
        layout: Layout = EVERYTHING,
        position_embeddings: tuple[torch.Tensor, ...] | None = None,
        past_key_values: Cache | None = None,
        **kwargs,
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """`(batch, length, hidden_size)` in and out, and attention weights `(batch, heads, length, keys)` or `None`.

        `position_embeddings`: what the `prepare` of `rotary_emb` gives for the positions, such as cosines and sines.
        `past_key_values`: keys and values (linear attention: a state) of earlier positions. The present ones are added.
        """
        shape = (-1, self.head_dim)
        query = self.q_proj(hidden_states).unflatten(-1, shape).transpose(1, 2)  # (batch, heads, length, head_dim)
        key = self.k_proj(hidden_states).unflatten(-1, shape).transpose(1, 2)
        value = self.v_proj(hidden_states).unflatten(-1, shape).transpose(1, 2)
        for step in self.steps:
            query, key, value = getattr(self, step)(query, key, value, position_embeddings)
        if past_key_values is not None and self.layer_type == "linear_attention":
            kwargs["state"] = past_key_values.layers[self.layer_idx]
        elif past_key_values is not None:
            key, value = past_key_values.update(key, value, self.layer_idx)  # (such as `TfmGrowingLayer.update`)
        elif FROM_5_24 and kwargs.get(PAGED_CACHE) is not None:  # (in earlier releases, kernels write to it)
            key, value = kwargs.pop(PAGED_CACHE).update(key, value, self.layer_idx, kwargs=kwargs)

        attend = ALL_ATTENTION_FUNCTIONS.get_interface(self.config._attn_implementation, eager_attention_forward)
        dropout = self.attention_dropout.p if self.attention_dropout.training else 0.0
        attend = choose_kernel(attend, self, layout, query, dropout)
        kwargs |= {"dropout": dropout, "sliding_window": self.sliding_window, "softcap": self.softcap}
        output, weights = attend(self, query, key, value, layout.mask, scaling=self.scaling, **kwargs)
        width = query.shape[1] * self.head_dim  # not -1, which an empty batch leaves open
        return self.o_proj(output.reshape(*hidden_states.shape[:-1], width)), weights

    def norm_step(self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, _: tuple) -> tuple:
        return norm_heads(self, self.q_norm, query), norm_heads(self, self.k_norm, key), value

    def rotate_step(self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, rotary: tuple) -> tuple:
        counts, both = (query.shape[1], key.shape[1]), torch.cat((query, key), dim=1)
        return *rotate(both, *rotary[:2]).split_with_sizes(counts, dim=1), value

    def rotate_value_step(self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, rotary: tuple) -> tuple:
        return query, key, rotate(value, *rotary[:2])

    def scale_step(self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, rotary: tuple) -> tuple:
        """Queries grow with their position (Ministral 3)."""
        return query * rotary[2], key, value


class TfmMLP(nn.Module):
    """`down(act(up(x)))`, or gated (Shazeer 2020): `down(act(gate(x)) * up(x))`; `(..., hidden_size)` in and out,
    `(..., inner)` inside, by default `intermediate_size`."""

    def __init__(self, config, inner: int | None = None):
        super().__init__()
        width, inner, bias = config.hidden_size, inner or config.intermediate_size, config.mlp_bias
        self.is_gated = config.mlp_type == "gated"
        self.gate_proj = nn.Linear(width, inner, bias=bias) if self.is_gated else None
        self.up_proj = nn.Linear(width, inner, bias=bias)
        self.down_proj = nn.Linear(inner, width, bias=config.mlp_output_bias)
        # (xIELU, an activation with weights, would have them in bfloat16.)
        self.act_fn = ACT2FN[FASTER_ACTIVATIONS.get(config.hidden_act, config.hidden_act)].to(self.up_proj.weight.dtype)
        self.dropout = nn.Dropout(config.activation_dropout)

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        inner = self.up_proj(hidden_states)
        inner = self.act_fn(self.gate_proj(hidden_states)) * inner if self.is_gated else self.act_fn(inner)
        return self.down_proj(self.dropout(inner) if self.dropout.training and self.dropout.p else inner)


class TfmRMSNorm(nn.Module):
    """Root mean square norm (Zhang and Sennrich 2019) over the last dimension."""

    def __init__(self, hidden_size: int, eps: float = 1e-6):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(hidden_size))
        self.eps = eps

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        weight = self.weight
        if hidden_states.dtype == weight.dtype == torch.float32:
            return torch.rms_norm(hidden_states, weight.shape, weight, self.eps)
        # As in LLaMA, the mean is computed in float32, and the weight applied in the input's precision.
        wide = hidden_states.float()
        wide = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + self.eps)
        return weight * wide.to(hidden_states.dtype)


class TfmZeroCenteredRMSNorm(TfmRMSNorm):
    """The same with `1 + weight` in place of the weight (Gemma), in float32; models start it at zero."""

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        # Serving engines recognise this norm by its operations: they would read `torch.rms_norm` without the `1 +`.
        wide = hidden_states.float()
        wide = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + self.eps)
        return (wide * (1.0 + self.weight.float())).to(hidden_states.dtype)


class TfmZeroCenteredLayerNorm(nn.LayerNorm):
    """LayerNorm with `1 + weight` in place of the weight (Nemotron); models start it at zero."""

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        return F.layer_norm(hidden_states, self.normalized_shape, self.weight + 1.0, self.bias, self.eps)


NORMS = {
    "layernorm": nn.LayerNorm,
    "zero_centered_layernorm": TfmZeroCenteredLayerNorm,
    "plain_layernorm": partial(nn.LayerNorm, elementwise_affine=False),
    "rmsnorm": TfmRMSNorm,
    "plain_rmsnorm": partial(nn.RMSNorm, elementwise_affine=False),
    "zero_centered_rmsnorm": TfmZeroCenteredRMSNorm,
}


def make_norm(config, width: int | None = None) -> nn.Module:
    options = {"bias": config.norm_bias} if "layernorm" in config.norm_type else {}
    return NORMS[config.norm_type](width or config.hidden_size, eps=config.norm_eps, **options)


class TfmMultiplier(nn.Module):
    """Multiplies its input by a number. It takes the place of a norm (Granite), or precedes a projection."""

    def __init__(self, factor: float):
        super().__init__()
        self.factor = factor

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        return hidden_states * self.factor


def multiplier(factor: float) -> nn.Module | None:
    return None if factor == 1 else TfmMultiplier(factor)


def make_head_norm(config, heads: int) -> nn.Module | None:
    """The norm of this many heads of queries or keys, if the model has one."""
    widths = {"whole": heads * config.head_dim}
    return make_norm(config, widths.get(config.qk_norm, config.head_dim)) if config.qk_norm else None


def norm_heads(attention, norm: nn.Module, heads: torch.Tensor) -> torch.Tensor:
    """Norms `(batch, heads, length, head_dim)`: each head, or all heads of a position as one."""
    states = heads.transpose(1, 2)  # as they were projected: nothing is copied
    whole = states.flatten(2) if attention.config.qk_norm == "whole" else states
    return norm(whole).view(states.shape).transpose(1, 2)
