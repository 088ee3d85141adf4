"""The choice of a kernel for attention, and the kernels that transformers does not have, in its interface.

They take a [`TfmAttention`], `query` `(batch, heads, length, head_dim)`, `key` and `value`, which may have fewer heads,
and a mask; they return the output `(batch, length, heads, head_dim)`, and weights or `None`.
"""

from collections.abc import Callable
from functools import partial
from inspect import signature
from itertools import groupby

import torch
from torch import nn
from torch.nn import functional as F
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS
from transformers.utils.import_utils import is_torch_greater_or_equal

from .batch import PAGED_CACHE, Layout, Window, is_traced
from .linear_attention import linear_attention_forward

#: names of torch's attention. "varlen" is sdpa, but torch's varlen kernel where it `takes_bounds`
OF_TORCH = ("sdpa", "varlen")
PLAIN = ("eager", *OF_TORCH)  # those that read masks of pairs

varlen_attn = None
if is_torch_greater_or_equal("2.11"):  # the first whose kernel takes a scale and windows
    from torch.nn.attention.varlen import varlen_attn
#: torch 2.11 shares key-value heads among query heads unasked
ASKS_FOR_GROUPS = varlen_attn is not None and "enable_gqa" in signature(varlen_attn).parameters

ALL_ATTENTION_FUNCTIONS.register("varlen", ALL_ATTENTION_FUNCTIONS["sdpa"])
ALL_MASK_ATTENTION_FUNCTIONS.register("varlen", ALL_MASK_ATTENTION_FUNCTIONS["sdpa"])


def choose_kernel(attend: Callable, module: nn.Module, layout: Layout, query: torch.Tensor, dropout: float) -> Callable:
    """The function that a layer's attention calls: `attend`, which transformers has for this implementation, or one
    that is faster there; and around it, what the layout asks for. `query` is `(batch, heads, length, head_dim)`."""
    if layout.mode == "by_bounds":
        is_varlen = module.config._attn_implementation == "varlen"
        return partial(attend_by_bounds, varlen_attention_forward if is_varlen else attend, layout)
    if module.softcap is not None and (name := module.config._attn_implementation) in OF_TORCH:
        raise ValueError(f"attn_logit_softcapping={module.softcap}: {name!r} has no soft cap; choose 'eager'.")
    # (A function that a user registered as "sdpa" stays.)
    is_cpu_sdpa = attend is sdpa_attention_forward and query.device.type == "cpu"
    if is_cpu_sdpa and module.choose_packed_kernel is not None and not is_traced(query):  # set by `inference/packing`
        packed = module.choose_packed_kernel(module, layout, query)
        if packed is not None:
            return packed
    if module.layer_type == "linear_attention":
        attend = linear_attention_forward
    elif is_cpu_sdpa:
        attend = cpu_kernel(module, query, dropout)
    # What the layout and DeBERTa ask for goes around it.
    if layout.bias is not None:
        attend = partial(attend, position_bias=layout.bias)
    if module.attend_biased is not None:
        attend = partial(module.attend_biased, attend)
    if layout.window is not None:
        attend = partial(attend_in_blocks, attend, layout.window)
    if layout.mode == "apart":
        return partial(attend_apart, attend, layout)
    return partial(attend_restored, attend, layout) if layout.mode == "restored" else attend


def cpu_kernel(module: nn.Module, query: torch.Tensor, dropout: float) -> Callable:
    """What a CPU runs for `"sdpa"`: one of the zoo's functions. What is compiled or exported takes the one of
    transformers, except where that would repeat keys: for a single query with grouped heads, without dropout."""
    if torch.compiler.is_compiling() or torch.jit.is_tracing():
        is_grouped_step = module.num_key_value_groups > 1 and query.shape[2] <= 1 and not dropout
        return cpu_attention_forward if is_grouped_step else sdpa_attention_forward
    return dropped_attention_forward if dropout else cpu_attention_forward


def takes_bounds(stack, states: torch.Tensor) -> bool:
    """Whether attention (not linear attention) takes tokens laid end to end, and their bounds: flash attention, and
    `"varlen"` if torch's kernel (from 2.11 on) takes `states` of this dtype and device (else it is sdpa)."""
    config, head_dim = stack.config, stack.key_heads_and_dim[1]
    if config._attn_implementation != "varlen":
        return "flash" in config._attn_implementation
    has_kernel = varlen_attn is not None and states.is_cuda and has_flash()
    if not has_kernel or torch.cuda.get_device_capability(states.device) < (8, 0):
        return False
    has_bias_or_cap = config.has_position_bias or config.attn_logit_softcapping is not None
    fits = kernel_dtype(states) in (torch.float16, torch.bfloat16) and head_dim % 8 == 0 and head_dim <= 256
    drops = any(part.training and part.p for name, part in stack.named_modules() if name.endswith("attention_dropout"))
    return fits and not (has_bias_or_cap or drops)


def has_flash() -> bool:
    """Whether torch was built with flash attention, and nobody has switched it off for sdpa."""
    backends = torch.backends.cuda
    return backends.is_flash_attention_available() and backends.flash_sdp_enabled()


def kernel_dtype(states: torch.Tensor) -> torch.dtype:
    """The dtype in which products of these states are computed: that of autocast, where it is on."""
    device = states.device.type
    return torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else states.dtype


def varlen_attention_forward(module, query, key, value, attention_mask: None, scaling: float, **kwargs):
    """Attention over sequences that are laid end to end, by their bounds, with torch's own kernel."""
    before = -1 if module.sliding_window is None else module.sliding_window - 1
    dtype = kernel_dtype(value)
    output = varlen_attn(
        *(heads[0].transpose(0, 1).to(dtype) for heads in (query, key, value)),  # (tokens, heads, head_dim)
        kwargs["cu_seq_lens_q"],
        kwargs["cu_seq_lens_k"],
        kwargs["max_length_q"],
        kwargs["max_length_k"],
        scale=scaling,
        window_size=(before, 0 if module.is_causal else before),
        **({"enable_gqa": module.num_key_value_groups > 1} if ASKS_FOR_GROUPS else {}),
    )
    return output.unsqueeze(0), None


def eager_attention_forward(module, query, key, value, attention_mask, scaling, dropout=0.0, softcap=None, **kwargs):
    """Scaled dot-product attention written out (Vaswani et al. 2017, equation 1); returns its weights."""
    key, value = repeat_heads(module, key, value)
    weights = attention_weights(query, key, attention_mask, scaling, softcap).to(value.dtype)
    # (Not by `DroppedSum`: gradients reach the weights that are returned.)
    weights = F.dropout(weights, dropout) if dropout else weights
    return (weights @ value).transpose(1, 2).contiguous(), weights


def attention_weights(query, key, attention_mask, scaling: float, softcap: float | None = None) -> torch.Tensor:
    """How much each query attends to each key, `(batch, heads, queries, keys)`, in float32 or more."""
    scores = soft_capped((query * scaling) @ key.transpose(2, 3), softcap)
    if attention_mask is not None:
        scores = scores + attention_mask
    return scores.softmax(dim=-1, dtype=torch.promote_types(scores.dtype, torch.float))


class DroppedSum(torch.autograd.Function):
    """`dropout(weights) @ value`, and which weights survive. torch would keep the dropped weights, too, for the
    backward pass. This keeps the weights, as softmax does, and a byte for each: whether it survives."""

    generate_vmap_rule = True  # for `torch.func`

    @staticmethod
    def forward(weights: torch.Tensor, value: torch.Tensor, dropout: float) -> tuple[torch.Tensor, ...]:
        dropped, survives = torch.native_dropout(weights, dropout, train=True)
        return dropped @ value, survives

    @staticmethod
    def setup_context(ctx, inputs: tuple, output: tuple) -> None:
        (weights, value, dropout), (_, survives) = inputs, output
        ctx.save_for_backward(weights, value, survives)
        ctx.scale = 1 / (1 - dropout) if dropout < 1 else 0.0
        ctx.mark_non_differentiable(survives)
        ctx.set_materialize_grads(False)  # (of `survives`)

    @staticmethod
    def backward(ctx, of_output: torch.Tensor | None, _: None) -> tuple:
        if of_output is None:
            return None, None, None
        weights, value, survives = ctx.saved_tensors
        of_output = of_output.to(value.dtype) * ctx.scale  # (from the type that autocast chose for the product)
        of_weights = (of_output @ value.transpose(-2, -1)).mul_(survives)
        return of_weights, (weights * survives).transpose(-2, -1) @ of_output, None


def added_to_scores(sees: torch.BoolTensor, dtype: torch.dtype, unseen: float = -torch.inf) -> torch.Tensor:
    """A mask of numbers, from one that is true where a query sees a key."""
    return torch.zeros(sees.shape, dtype=dtype, device=sees.device).masked_fill_(~sees, unseen)


def soft_capped(scores: torch.Tensor, cap: float | None) -> torch.Tensor:
    """Scores, or logits, under a soft cap: they stay between `-cap` and `cap` (Gemma 2)."""
    return scores if cap is None else torch.tanh(scores / cap) * cap


def repeat_heads(module: nn.Module, *states: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Repeats each key-value head for the query heads that share it."""
    groups = module.num_key_value_groups
    return states if groups == 1 else tuple(heads.repeat_interleave(groups, dim=1) for heads in states)


def cpu_attention_forward(module, query, key, value, attention_mask, scaling: float, **kwargs):
    """transformers' `"sdpa"`, without its questions about other devices. That halves the time of short calls."""
    if kwargs.get(PAGED_CACHE) is not None:  # transformers' function writes to it
        return sdpa_attention_forward(module, query, key, value, attention_mask, scaling=scaling, **kwargs)
    options = {"scale": scaling, "enable_gqa": module.num_key_value_groups > 1}
    options["is_causal"] = attention_mask is None and module.is_causal and query.shape[2] > 1
    return F.scaled_dot_product_attention(query, key, value, attention_mask, **options).transpose(1, 2), None


def dropped_attention_forward(module, query, key, value, attention_mask, scaling: float, dropout: float, **kwargs):
    """Attention with dropout on a CPU, which has no fused kernel for it. Takes the masks of `"eager"` and `"sdpa"`."""
    if attention_mask is None and module.is_causal and query.shape[2] > 1:
        # transformers makes no mask for the first pass, although a static cache has more keys than queries.
        attention_mask = torch.ones(query.shape[2], key.shape[2], dtype=torch.bool).tril()
    if attention_mask is not None and attention_mask.dtype == torch.bool:
        attention_mask = added_to_scores(attention_mask, query.dtype, torch.finfo(query.dtype).min)
    key, value = repeat_heads(module, key, value)
    weights = attention_weights(query, key, attention_mask, scaling).to(value.dtype)
    output, _ = DroppedSum.apply(weights, value, dropout)
    return output.transpose(1, 2).contiguous(), None


def attend_apart(attend: Callable, layout: Layout, module, query, key, value, attention_mask, **kwargs):
    """Calls a kernel sequence by sequence, and once for neighbours of one length where nothing forbids it.
    `attention_mask`, of the padded batch, is not read: `layout.masks` are its parts."""
    kept, masks = layout.queries, layout.masks
    if layout.window is not None:  # [`attend_in_blocks`] takes places instead of a mask
        masks = (kept.indices % kept.shape[1])[None].split(kept.lengths, dim=1)
    # A sequence runs alone if it has a mask, if weights are dropped (random numbers have an order), and in a graph.
    alone = masks or kwargs.get("dropout") or torch.compiler.is_compiling()
    runs = [(n, 1) for n in kept.lengths] if alone else [(n, len([*alike])) for n, alike in groupby(kept.lengths)]
    sizes, outputs = [length * count for length, count in runs], []
    states = (each.split_with_sizes(sizes, dim=2) for each in (query, key, value))
    for (_, count), mask, *heads in zip(runs, masks or [None] * len(runs), *states, strict=True):
        if count > 1:  # `(1, heads, tokens, head_dim)` to `(count, heads, length, head_dim)`
            heads = [each[0].unflatten(1, (count, -1)).transpose(0, 1) for each in heads]
        output, _ = attend(module, *heads, mask, **kwargs)
        outputs.append(output if count == 1 else output.flatten(0, 1).unsqueeze(0))
    return torch.cat(outputs, dim=1), None


def attend_by_bounds(attend: Callable, layout: Layout, module, query, key, value, attention_mask, **kwargs):
    """Calls a kernel once for all sequences, laid end to end, with the bounds of each."""
    for side, kept in (("q", layout.queries), ("k", layout.keys)):
        kwargs[f"cu_seq_lens_{side}"], kwargs[f"max_length_{side}"] = kept.bounds, max(kept.lengths)
    if layout.keys_are_padded:
        key, value = (layout.keys.keep(heads.transpose(1, 2)).transpose(1, 2) for heads in (key, value))
    return attend(module, query, key, value, None, **kwargs)


def attend_restored(attend: Callable, layout: Layout, module, query, key, value, attention_mask, **kwargs):
    """Calls a kernel on the padded batch, restored for this call only."""
    kept = layout.queries
    padded = (kept.restore(heads.transpose(1, 2)).transpose(1, 2) for heads in (query, key, value))
    output, weights = attend(module, *padded, attention_mask, **kwargs)
    return kept.keep(output), weights


def attend_one_by_one(attend: Callable, module, query, key, value, mask: torch.Tensor | None, **kwargs):
    """Calls a kernel for one row after the other, which fits into a CPU's caches. `mask` is `(batch or 1, ...)`."""
    masks = [None] * len(query) if mask is None else mask.expand(len(query), *mask.shape[1:]).split(1)
    rows = zip(query.split(1), key.split(1), value.split(1), masks, strict=True)
    return torch.cat([attend(module, *row, **kwargs)[0] for row in rows]), None


def attend_in_blocks(attend: Callable, window: Window, module, query, key, value, places=None, **kwargs):
    """Attention within a window: each block of positions attends to itself and the blocks beside it.

    The work grows with length times window; a mask over all pairs would cost the square of the length. `attend`, a
    function of the same interface, is called once for all blocks (on a CPU once for each sequence). `places`, in the
    argument of a mask, are those of these rows. `None`: those of the window.
    """
    places = window.places if places is None else places
    if len(query) > 1 and query.device.type == "cpu":
        return attend_one_by_one(partial(attend_in_blocks, attend, window), module, query, key, value, places, **kwargs)
    batch, _, length, _ = query.shape
    block = max(window.left, window.right, 1)
    blocks = -(-length // block)
    gap = blocks * block - length
    sides = (block if window.left else 0, gap + (block if window.right else 0))
    span = block + sides[0] + sides[1] - gap

    def in_blocks(states: torch.Tensor) -> torch.Tensor:
        """`(batch, heads, length, head_dim)` to `(batch * blocks, heads, block, head_dim)`."""
        return F.pad(states, (0, 0, 0, gap)).unflatten(2, (blocks, block)).transpose(1, 2).flatten(0, 1)

    def beside(states: torch.Tensor) -> torch.Tensor:
        """Each block with those beside it: `(batch * blocks, heads, span, head_dim)`."""
        parts = F.pad(states, (0, 0, *sides)).unfold(2, span, block)  # (batch, heads, blocks, head_dim, span)
        return parts.permute(0, 2, 1, 4, 3).flatten(0, 1)

    places = places.expand(batch, -1)
    queries = F.pad(places, (0, gap), value=window.far).unflatten(1, (blocks, block))
    keys = F.pad(places, sides, value=window.far).unfold(1, span, block)
    distances = queries.unsqueeze(-1) - keys.unsqueeze(-2)
    mask = ((distances <= window.left) & (distances >= -window.right)).flatten(0, 1).unsqueeze(1)
    output, _ = attend(module, in_blocks(query), beside(key), beside(value), mask, **kwargs)
    return output.unflatten(0, (batch, blocks)).flatten(1, 2)[:, :length], None
