"""DeBERTa's disentangled attention (He et al. 2020), and the convolution of its second version.

The score of a query `q` and a key `k` at the distance `r` is `q k + q K(r) + Q(r) k`: distances have keys and queries
of their own. Rows of products with all distances are read as rows of pairs by a shift: nothing is gathered.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import nn

from .batch import KeptTokens
from .compat import ACT2FN
from .inputs import is_traced, marks_padding
from .layers import TfmAttention, TfmLayer
from .norms import make_norm
from .padding import keep, restore
from .position_bias import masked

PLACES = 128  # whose products with distances are made at a time: those of all would not fit into the CPU's caches


class Distances(NamedTuple):
    """The buckets of all distances in a batch of `length` positions.

    Args:
        first, last: the numbers of the first bucket that is read, and of the one behind the last.
        to_keys: `(2 * length,)`, from `first` on, by the place of the key seen from the query: `-length` and on.
        to_queries: the same by the place of the query seen from the key.
    """

    first: int
    last: int
    to_keys: torch.LongTensor
    to_queries: torch.LongTensor


class TfmDistanceEmbeddings(nn.Embedding):
    """An embedding of each bucket of distances, which all layers share, and their norm.

    The buckets of keys after the query come first, then that of the query itself and those of keys before it.
    """

    def __init__(self, config):
        super().__init__(2 * config.bucket_span, config.hidden_size)
        self.span, self.buckets, self.most = config.bucket_span, config.position_buckets, config.max_relative_positions
        self.norm = make_norm(config) if config.norm_rel_ebd == "layer_norm" else nn.Identity()

    def forward(self) -> torch.Tensor:
        """`(buckets, hidden_size)`."""
        return self.norm(self.weight)

    def of_length(self, length: int, device: torch.device, traced: bool = False) -> Distances:
        """The buckets that a batch of this length reads; a graph reads all."""
        steps = torch.arange(-length, length, device=device if traced else None)
        to_keys, to_queries = (
            (self.bucket_of(each) + self.span).clamp(0, 2 * self.span - 1) for each in (-steps, steps)
        )
        first, last = (0, 2 * self.span) if traced else (int(to_queries[0]), int(to_keys[0]) + 1)
        return Distances(first, last, (to_keys - first).to(device), (to_queries - first).to(device))

    def bucket_of(self, distances: torch.LongTensor) -> torch.LongTensor:
        """The buckets of distances, below 0 for keys after the query."""
        if self.buckets is None:
            return distances
        half = self.buckets // 2
        far = distances.abs().clamp(min=half - 1)
        # Computed in DeBERTa's order: any other rounds differently, which puts some distances into the next bucket.
        share = torch.log(far / half) / torch.log(torch.tensor((self.most - 1) / half, device=far.device))
        wide = (share * (half - 1)).ceil().long() + half
        return torch.where(far <= half, distances, wide * distances.sign())


class TfmDisentangledAttention(TfmAttention):
    """Self-attention whose scores also compare contents with distances; the arguments are those of [`TfmAttention`]."""

    def __init__(self, config, layer_idx: int, **options):
        super().__init__(config, layer_idx, **options)
        width, whole = config.hidden_size, self.q_proj.out_features
        if not config.key_bias:
            self.k_proj = nn.Linear(width, whole, bias=False)
        self.pos_att_type, self.pos_key_proj, self.pos_query_proj = config.pos_att_type, None, None
        if "c2p" in config.pos_att_type and not config.share_att_key:
            self.pos_key_proj = nn.Linear(width, whole, bias=config.attention_bias and config.key_bias)
        if "p2c" in config.pos_att_type and not config.share_att_key:
            self.pos_query_proj = nn.Linear(width, whole, bias=config.attention_bias)
        self.pos_dropout = nn.Dropout(config.hidden_dropout)

    def forward(self, hidden_states: torch.Tensor, embeddings: nn.Module, distances: Distances, **kwargs):
        """As [`TfmAttention`]; `embeddings` are [`TfmDistanceEmbeddings`], and `distances` those of the batch."""
        # Made in each layer: re-entrant gradient checkpointing lets layers share no tensor that has a graph.
        buckets = self.pos_dropout(embeddings())[distances.first : distances.last].to(hidden_states)
        if "c2p" in self.pos_att_type:
            kwargs["key_table"] = self.table(self.pos_key_proj or self.k_proj, buckets, distances.to_keys)
        if "p2c" in self.pos_att_type:
            kwargs["query_table"] = self.table(self.pos_query_proj or self.q_proj, buckets, distances.to_queries)
        return super().forward(hidden_states, **kwargs)

    def table(self, project: nn.Module, buckets: torch.Tensor, numbers: torch.LongTensor) -> torch.Tensor:
        """Keys or queries of distances, `(heads, head_dim, distances)`, scaled as scores are."""
        heads = (project(buckets) * self.scaling).index_select(0, numbers.to(buckets.device))
        return heads.unflatten(1, (-1, self.head_dim)).permute(1, 2, 0)

    def attend_biased(self, attend: Callable, module, query, key, value, attention_mask, **kwargs):
        """Calls a kernel with the products of contents and distances as a bias of the scores."""
        is_flex, is_eager = (self.config._attn_implementation == name for name in ("flex_attention", "eager"))
        if not (is_flex or is_eager or is_traced(query)) and query.device.type == "cpu" and len(query) > 1:
            # One sequence after the other: the products of all would not fit into the CPU's caches.
            masks = [None] * len(query)
            if attention_mask is not None:
                masks = attention_mask.expand(len(query), -1, -1, -1).split(1)
            rows = zip(query.split(1), key.split(1), value.split(1), masks, strict=True)
            return torch.cat([self.attend_biased(attend, module, *row, **kwargs)[0] for row in rows]), None
        key_table, query_table = kwargs.pop("key_table", None), kwargs.pop("query_table", None)
        bias = 0 if key_table is None else shifted(query, key_table)
        bias = bias if query_table is None else bias + shifted(key, query_table).transpose(2, 3)
        if is_flex:
            return attend(module, query, key, value, attention_mask, position_bias=bias, **kwargs)
        return attend(module, query, key, value, masked(bias, attention_mask), **kwargs)


def shifted(heads: torch.Tensor, table: torch.Tensor) -> torch.Tensor:
    """The products of heads `(batch, heads, n, head_dim)` with what a table holds for the distances of `n` places from
    them: `(batch, heads, n, n)`. Some places are read at a time, with the distances that one of them has."""
    (batch, _, n, _), middle, parts = heads.shape, table.shape[-1] // 2, []
    size, starts = (n, [0]) if is_traced(heads) else (PLACES, range(0, n, PLACES))
    for first in starts:
        block = heads[:, :, first : first + size]
        count = block.shape[2]
        rows = block.transpose(0, 1).flatten(1, 2) @ table[..., middle - first - count : middle - first + n]
        # Those of place `i` begin at `count - i`: each row is one longer than the next one needs.
        rows = rows.unflatten(1, (batch, count)).transpose(0, 1).flatten(2)[..., count:]
        parts.append(rows.unflatten(2, (count, n + count - 1))[..., :n])
    return torch.cat(parts, dim=2)


class TfmConvolution(nn.Module):
    """DeBERTa v2's convolution of the embeddings, which is added to the output of the first layer."""

    def __init__(self, config):
        super().__init__()
        width, size = config.hidden_size, config.conv_kernel_size
        self.conv = nn.Conv1d(width, width, size, padding=size // 2, groups=config.conv_groups)
        self.act_fn = ACT2FN[config.conv_act]
        self.norm = make_norm(config)
        self.dropout = nn.Dropout(config.hidden_dropout)

    def forward(self, embeddings, output, kept: KeptTokens | None, mask: torch.Tensor | None) -> torch.Tensor:
        """`(batch, length, hidden_size)` or `(1, tokens, hidden_size)` in and out; padding counts as zero."""
        if kept is not None:
            embeddings = restore(embeddings, kept)
        elif marks_padding(mask):
            embeddings = embeddings * mask.to(embeddings)[..., None]
        local = self.conv(embeddings.transpose(1, 2)).transpose(1, 2).contiguous()
        local = local if kept is None else keep(local, kept)
        return self.norm(output + self.act_fn(self.dropout(local)))


class TfmDisentangledLayer(TfmLayer):
    """A block with [`TfmDisentangledAttention`]; the first may have a [`TfmConvolution`] beside it."""

    def add_attention(self, config, layer_idx: int, **options) -> None:
        self.add_sub_layer("self_attn", TfmDisentangledAttention(config, layer_idx, **options), config)
        self.conv = TfmConvolution(config) if config.conv_kernel_size and layer_idx == 0 else None

    def forward(self, hidden_states: torch.Tensor, padding_mask: torch.Tensor | None = None, **kwargs) -> torch.Tensor:
        """As [`TfmLayer`]; `padding_mask` is the `attention_mask` of the model."""
        output = self.feed(self.attend(hidden_states, **kwargs))
        return output if self.conv is None else self.conv(hidden_states, output, kwargs["layout"].queries, padding_mask)
