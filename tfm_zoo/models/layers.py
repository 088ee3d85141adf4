"""One Transformer block: attention, through transformers' interface (eager, sdpa, flex, flash), and feed-forward.

vLLM searches the source of attention for `ALL_ATTENTION_FUNCTIONS.get_interface(`, and for one call of the function
that it returns: both have to stay in this form.
"""

import torch
from torch import nn
from transformers import Cache, GradientCheckpointingLayer
from transformers.activations import ACT2FN
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from .batch import CACHE, EVERYTHING, Layout
from .kernels import choose_kernel, dropout_rate, eager_attention_forward
from .norms import make_head_norm, make_norm, multiplier, norm_heads
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

    The arguments are those of [`TfmAttention`] but `sizes`, and the class of the feed-forward, by default [`TfmMLP`].
    """

    def __init__(self, config, layer_idx: int, layer_type: str | None = None, is_causal: bool = False, mlp_class=None):
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
        self.add_module(f"{name}_norm", nn.Identity() if config.norm_position == "output" else make_norm(config))
        setattr(self, f"{name}_output_norm", output_norm)  # `None` as a plain attribute is found faster
        self.add_module(f"{name}_dropout", nn.Dropout(dropout))

    def forward(self, hidden_states: torch.Tensor, **kwargs) -> torch.Tensor:
        """Hidden states `(batch, length, hidden_size)` in and out; `kwargs` are those of [`TfmAttention`]."""
        if not self.is_parallel:
            return self.sub_layer("mlp", self.sub_layer("self_attn", hidden_states, **kwargs))
        normed = self.self_attn_norm(hidden_states)
        attended = self.self_attn_dropout(self.self_attn(normed, **kwargs)[0])
        fed = self.mlp(normed if self.mlp_norm is None else self.mlp_norm(hidden_states))
        return hidden_states + (attended + self.mlp_dropout(fed))  # summed as in the official classes

    def sub_layer(self, name: str, hidden_states: torch.Tensor, *args, **kwargs) -> torch.Tensor:
        """Adds the output of a sub-layer to the residual stream, through its norms and its dropout."""
        norm, output_norm = getattr(self, f"{name}_norm"), getattr(self, f"{name}_output_norm")
        output = getattr(self, name)(hidden_states if self.is_post_norm else norm(hidden_states), *args, **kwargs)
        output = output[0] if isinstance(output, tuple) else output  # (attention returns weights, too)
        output = output if output_norm is None else output_norm(output)
        dropout = getattr(self, f"{name}_dropout")
        hidden_states = hidden_states + (dropout(output) if dropout.training else output)
        return norm(hidden_states) if self.is_post_norm else hidden_states


class TfmAttention(nn.Module):
    """Multi-head (Vaswani et al. 2017) or grouped-query (Ainslie et al. 2023) self-attention.

    Args:
        config: a configuration of the zoo.
        layer_idx: the layer's number, by which it finds its part of a cache.
        layer_type: `"full_attention"`, `"sliding_attention"` or `"linear_attention"`. `None`: `config.layer_type`.
        is_causal: whether a position sees only itself and those before it.
        sizes: the configuration that says how many heads there are. `None`: `config`.
    """

    #: a method of a subclass: it calls a kernel with a bias of scores that follows from queries and keys
    attend_biased = None
    #: what chooses the kernel of a packed model on a CPU: from layer, layout and queries a kernel, or `None`
    kernel = None

    def __init__(self, config, layer_idx: int, layer_type: str | None = None, is_causal: bool = False, sizes=None):
        super().__init__()
        self.config = config
        self.layer_idx = layer_idx
        self.layer_type = config.layer_type if layer_type is None else layer_type
        self.is_causal = is_causal
        sizes = config if sizes is None else sizes
        heads, key_heads = sizes.num_attention_heads, sizes.num_key_value_heads
        self.head_dim = sizes.head_dim
        self.num_key_value_groups = heads // key_heads
        self.scaling = sizes.attention_scale
        self.softcap = config.attn_logit_softcapping
        self.attention_dropout = nn.Dropout(config.attention_dropout)  # read by `dropout_rate`
        query_width, key_width = heads * self.head_dim, key_heads * self.head_dim
        self.q_proj = nn.Linear(config.hidden_size, query_width, bias=config.attention_bias)
        self.k_proj = nn.Linear(config.hidden_size, key_width, bias=config.attention_bias)
        self.v_proj = nn.Linear(config.hidden_size, key_width, bias=config.attention_bias)
        self.o_proj = nn.Linear(query_width, config.hidden_size, bias=config.attention_output_bias)
        self.q_norm = make_head_norm(sizes, heads)
        self.k_norm = make_head_norm(sizes, key_heads)
        #: methods that queries, keys and values pass in this order
        order = ("turned", "normed", "grown") if config.qk_norm == "turned_head" else ("normed", "turned", "grown")
        is_turned = config.position_embedding_type == "rotary" and config.no_rope_layers[layer_idx]
        taken = {"normed": config.qk_norm, "turned": is_turned, "grown": config.scales_queries}
        self.steps = [step for step in order if taken[step]]
        self.sliding_window = None
        if self.layer_type == "sliding_attention":
            # Kernels that take bounds read this width, the position itself included; the others read the layout.
            self.sliding_window = config.sliding_window if is_causal else config.sliding_window + 1

    def forward(
        self,
        hidden_states: torch.Tensor,
        layout: Layout = EVERYTHING,
        position_embeddings: tuple[torch.Tensor, torch.Tensor] | None = None,
        past_key_values: Cache | None = None,
        **kwargs,
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """`(batch, length, hidden_size)` in and out, and attention weights `(batch, heads, length, keys)` or `None`.

        `position_embeddings`: what `rotary_emb` of the model gives for the positions, such as cosines and sines.
        `past_key_values`: keys and values (linear attention: a state) of earlier positions, to which it adds these.
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
            key, value = past_key_values.update(key, value, self.layer_idx)
        elif kwargs.get(CACHE) is not None:  # a paged one, in transformers since 5.24, which completes the arguments
            key, value = kwargs.pop(CACHE).update(key, value, self.layer_idx, kwargs=kwargs)

        implementation = self.config._attn_implementation
        attend = ALL_ATTENTION_FUNCTIONS.get_interface(implementation, eager_attention_forward)
        dropout = dropout_rate(self)
        attend = choose_kernel(attend, implementation, self, layout, query, dropout)
        kwargs |= {"dropout": dropout, "sliding_window": self.sliding_window, "softcap": self.softcap}
        output, weights = attend(self, query, key, value, layout.mask, scaling=self.scaling, **kwargs)
        width = query.shape[1] * self.head_dim  # not -1, which an empty batch leaves open
        return self.o_proj(output.reshape(*hidden_states.shape[:-1], width)), weights

    def normed(self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, _: tuple) -> tuple:
        return norm_heads(self, self.q_norm, query), norm_heads(self, self.k_norm, key), value

    def turned(self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, rotary: tuple) -> tuple:
        counts, both = (query.shape[1], key.shape[1]), torch.cat((query, key), dim=1)
        query, key = rotate(both, *rotary[:2]).split_with_sizes(counts, dim=1)
        return query, key, rotate(value, *rotary[:2]) if self.config.rotary_value else value

    def grown(self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, rotary: tuple) -> tuple:
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
        # (One with weights of its own, xIELU, would have them in bfloat16.)
        self.act_fn = ACT2FN[FASTER_ACTIVATIONS.get(config.hidden_act, config.hidden_act)].to(self.up_proj.weight.dtype)
        self.dropout = nn.Dropout(config.activation_dropout)

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        inner = self.up_proj(hidden_states)
        inner = self.act_fn(self.gate_proj(hidden_states)) * inner if self.is_gated else self.act_fn(inner)
        return self.down_proj(self.dropout(inner) if self.dropout.training else inner)


def is_checkpointing(model) -> bool:
    """Whether gradient checkpointing runs each block a second time, and so would write to a cache twice."""
    return model.training and model.layers[0].gradient_checkpointing
