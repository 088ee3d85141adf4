"""Biases of positions: what is added to a score depends on how far the key is from the query, and on the head."""

import math

import torch
from torch import nn

from .batch import Batch, Layout
from .kernels import PLAIN
from .positions import TfmConstants

IMPLEMENTATIONS = (*PLAIN, "flex_attention")  # the attention implementations that take a bias


class TfmBiasTable(nn.Embedding):
    """The biases of distances, `(buckets, heads)`."""


class TfmRelativeBias(nn.ModuleList):
    """T5's learned bias (Raffel et al. 2020), one for each bucket of distances; far buckets hold more distances. One
    table serves all layers, or each has one. Every kind of bias has this `forward`, `is_causal` and `is_per_layer`."""

    def __init__(self, config, layers: int, is_causal: bool):
        buckets, heads = config.relative_attention_num_buckets, config.num_attention_heads
        tables = layers if config.relative_attention_per_layer else 1
        super().__init__(TfmBiasTable(buckets, heads) for _ in range(tables))
        self.num_buckets, self.max_distance = buckets, config.relative_attention_max_distance
        self.is_causal, self.is_per_layer = is_causal, config.relative_attention_per_layer

    def forward(self, distances: torch.LongTensor, layer: int) -> torch.Tensor:
        """Distances from a query to keys `(n,)`, below 0 for keys before it, to biases `(heads, n)`."""
        return self[layer if self.is_per_layer else 0](self.bucket_of(distances)).t().contiguous()

    def bucket_of(self, distances: torch.LongTensor) -> torch.LongTensor:
        """The number of each distance's bucket: the first half hold one distance each, later ones more and more."""
        buckets, first = self.num_buckets, 0
        if self.is_causal:
            far = (-distances).clamp(min=0)
        else:  # half of them are for keys after the query
            buckets = buckets // 2
            far, first = distances.abs(), (distances > 0) * buckets
        exact = buckets // 2
        # Computed in T5's order: any other rounds differently, which puts some distances into the next bucket.
        share = torch.log(far.float() / exact) / math.log(self.max_distance / exact)
        wide = (exact + (share * (buckets - exact)).to(torch.long)).clamp(max=buckets - 1)
        return first + torch.where(far < exact, far, wide)


class TfmAlibi(TfmConstants):
    """ALiBi (Press et al. 2022): scores fall with the distance, by a slope for each head. The slopes of `2 ** n` heads
    are powers of one number, down to `2 ** -8`; heads beyond these get every second slope of `2 ** (n + 1)` heads."""

    is_per_layer = False

    def __init__(self, config, is_causal: bool):
        super().__init__()
        self.heads, self.is_causal = config.num_attention_heads, is_causal
        self.scale = config.attention_scale if config.scale_alibi else 1.0
        self.add_constants()

    def make_constants(self) -> dict[str, torch.Tensor]:
        whole = 2 ** int(math.log2(self.heads))
        steps = torch.arange(1, 2 * whole + 1) * (8 / (2 * whole))
        return {"slopes": 2.0 ** -torch.cat((steps[1::2], steps[::2]))[: self.heads]}

    def forward(self, distances: torch.LongTensor, layer: int) -> torch.Tensor:
        """Distances `(n,)` to biases `(heads, n)`."""
        slopes = self.slopes.to(distances.device, torch.float)
        return (slopes[:, None] * -distances.abs() * self.scale).to(self.slopes.dtype)


def check_takes_bias(config, cause: str) -> str:
    """The attention implementation. Raises a `ValueError`, which names the `cause`, if it takes no bias of scores."""
    implementation = config._attn_implementation
    if implementation not in IMPLEMENTATIONS:
        raise ValueError(
            f"Attention {implementation!r} takes no bias of positions, and {cause}: set_attn_implementation() should "
            f"choose one of {', '.join(IMPLEMENTATIONS)}."
        )
    return implementation


class BiasedLayouts:
    """The layouts of a batch with the position bias of a [`TfmStack`] in their masks, made for each layer in turn."""

    def __init__(self, stack: nn.Module, batch: Batch):
        config, layer_types = stack.config, stack.layer_types
        kind, buckets = config.position_embedding_type, config.relative_attention_num_buckets
        cause = f"the model has one (position_embedding_type={kind!r}, relative_attention_num_buckets={buckets})"
        self.implementation = check_takes_bias(config, cause)
        if not config.has_position_bias:  # kernels ask the configuration, and would leave the bias out
            found = f"The model has a position_bias, and {type(config).__name__} has has_position_bias=False"
            raise ValueError(f"{found}: it should be True.")
        self.bias, self.layouts = stack.position_bias, batch.layouts
        # (Under re-entrant checkpointing, blocks must not share a tensor that has a graph.)
        self.is_shared = not (self.bias.is_per_layer or stack.is_checkpointing)
        self.current: dict[str, Layout] = {}
        self.rows, self.queries = batch.shape
        # By type of layer the number of keys, and the numbers of the first key and of the first query among all
        # positions. They are found before the layers run, which add to the cache.
        self.spans = dict.fromkeys(layer_types, (self.queries, 0, 0))
        for each in self.spans if batch.cache is not None else ():
            layer = layer_types.index(each)
            keys_and_first = batch.cache.get_mask_sizes(self.queries, layer)
            self.spans[each] = (*keys_and_first, batch.cache.get_seq_length(layer))
        self.device = batch.tokens.ids_or_embeddings.device

    def layouts_of(self, layer: int) -> dict[str, Layout]:
        """The layouts of layer number `layer`, by type of layer."""
        if self.is_shared and self.current:
            return self.current
        self.current = made = {each: self.biased(self.layouts[each], layer, *span) for each, span in self.spans.items()}
        return made  # (Not `self.current`: with flex attention, torch.compile would read the first layer's.)

    def biased(self, layout: Layout, layer: int, keys: int, first_key: int, first_query: int | torch.Tensor) -> Layout:
        """A layout with the bias of this layer; the last three arguments are the span of its type."""
        distances = torch.arange(1 - self.queries, keys, device=self.device) + (first_key - first_query)
        bias = self.of_pairs(distances, layer, keys, first_key, first_query)
        if layout.mask is None and self.bias.is_causal and self.queries > 1:
            is_later = by_pair(distances[None] > 0, self.queries, keys)
            bias = bias.masked_fill(is_later, torch.finfo(bias.dtype).min)
        if self.implementation == "flex_attention":
            return layout._replace(bias=bias.expand(self.rows, -1, self.queries, -1))
        return layout._replace(mask=masked(bias, layout.mask)).with_parts()

    def of_pairs(self, distances: torch.LongTensor, layer: int, keys: int, *starts: int | torch.Tensor) -> torch.Tensor:
        """The bias of each pair, `(1, heads, queries, keys)`, from all distances. `starts`: the rest of the span."""
        values = self.bias(distances, layer).to(self.device)  # the bias may lie on another one (`device_map`)
        return by_pair(values, self.queries, keys)


def masked(bias: torch.Tensor, mask: torch.Tensor | None) -> torch.Tensor:
    if mask is None:
        return bias
    return bias.where(mask, torch.finfo(bias.dtype).min) if mask.dtype == torch.bool else mask + bias


def by_pair(values: torch.Tensor, queries: int, keys: int) -> torch.Tensor:
    """Values by distance, `(heads, queries + keys - 1)`, to values by pair, `(1, heads, queries, keys)`. The last query
    reads the first `keys` values, which are of the lowest distances; each earlier one starts one place later."""
    starts = torch.arange(queries - 1, -1, -1, device=values.device)
    places = starts[:, None] + torch.arange(keys, device=values.device)
    return values.index_select(1, places.flatten()).view(1, -1, queries, keys)


def make_position_bias(config, layers: int, is_causal: bool) -> nn.Module | None:
    if config.position_embedding_type == "alibi":
        return TfmAlibi(config, is_causal)
    return TfmRelativeBias(config, layers, is_causal) if config.relative_attention_num_buckets else None
