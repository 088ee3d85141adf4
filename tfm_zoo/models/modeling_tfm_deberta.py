"""DeBERTa (He et al. 2020, 2021): the encoder family with disentangled attention, and the convolution of version 2.

The score of a query `q` and a key `k` at the distance `r` is `q k + q K(r) + Q(r) k`: distances have keys and queries
of their own. Rows of products with all distances are read as rows of pairs by a shift: nothing is gathered.
"""

from collections import OrderedDict
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import torch
from torch import nn
from transformers.activations import ACT2FN

from .batch import Batch, KeptTokens, is_pad_mask, is_traced
from .configuration_tfm_deberta import TfmDebertaConfig
from .kernels import attend_one_by_one
from .layers import TfmAttention, TfmLayer, make_norm
from .modeling_tfm_bert import (
    TfmBertForMaskedLM,
    TfmBertForMultipleChoice,
    TfmBertForQuestionAnswering,
    TfmBertForReplacedTokenDetection,
    TfmBertForSequenceClassification,
    TfmBertForTokenClassification,
    TfmBertModel,
    TfmBertPreTrainedModel,
)
from .position_bias import check_takes_bias, masked

PLACES = 128  # whose products with distances are made at a time: those of all would not fit into the CPU's caches


class Distances(NamedTuple):
    """The buckets of all distances in a batch of `length` positions."""

    first: int  # the first bucket that is read
    last: int  # the one behind the last
    to_keys: torch.LongTensor  # `(2 * length,)`, counted from `first`, by the key's place seen from the query's
    to_queries: torch.LongTensor  # the same by the query's place seen from the key's


class TfmDistanceEmbeddings(nn.Embedding):
    """An embedding of each bucket of distances, which all layers share, and their norm. The buckets of keys after the
    query come first, then that of the query itself and those of keys before it."""

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
        count = 2 * self.span
        to_keys, to_queries = ((self.bucket_of(each) + self.span).clamp(0, count - 1) for each in (-steps, steps))
        first, last = (0, count) if traced else (int(to_queries[0]), int(to_keys[0]) + 1)
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
            alone = partial(self.attend_biased, attend)
            return attend_one_by_one(alone, module, query, key, value, attention_mask, **kwargs)
        key_table, query_table = kwargs.pop("key_table", None), kwargs.pop("query_table", None)
        bias = 0 if key_table is None else shifted(query, key_table)
        bias = bias if query_table is None else bias + shifted(key, query_table).transpose(2, 3)
        if is_flex:
            return attend(module, query, key, value, attention_mask, position_bias=bias, **kwargs)
        return attend(module, query, key, value, masked(bias, attention_mask), **kwargs)


def shifted(heads: torch.Tensor, table: torch.Tensor) -> torch.Tensor:
    """The products `(batch, heads, n, n)` of heads `(batch, heads, n, head_dim)` with what a table holds for the
    distances of `n` places from them. Some places are read at a time, with the distances that one of them has."""
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
            embeddings = kept.restore(embeddings)
        elif is_pad_mask(mask):
            embeddings = embeddings * mask.to(embeddings)[..., None]
        local = self.conv(embeddings.transpose(1, 2)).transpose(1, 2).contiguous()
        local = local if kept is None else kept.keep(local)
        return self.norm(output + self.act_fn(self.dropout(local)))


class TfmDisentangledLayer(TfmLayer):
    """A block with [`TfmDisentangledAttention`]; the first may have a [`TfmConvolution`] beside it."""

    def add_attention(self, config, layer_idx: int, **options) -> None:
        attention = TfmDisentangledAttention(config, layer_idx, **options)
        self.add_sub_layer("self_attn", attention, config, config.attention_output_dropout)
        self.conv = TfmConvolution(config) if config.conv_kernel_size and layer_idx == 0 else None

    def forward(self, hidden_states: torch.Tensor, padding_mask: torch.Tensor | None = None, **kwargs) -> torch.Tensor:
        """As [`TfmLayer`]; `padding_mask` is the `attention_mask` of the model."""
        output = super().forward(hidden_states, **kwargs)
        return output if self.conv is None else self.conv(hidden_states, output, kwargs["layout"].queries, padding_mask)


class TfmDebertaPreTrainedModel(TfmBertPreTrainedModel):
    """Base of DeBERTa's models."""

    config_class = TfmDebertaConfig
    _no_split_modules = ["TfmEmbeddings", "TfmDisentangledLayer"]
    _supports_flash_attn = False
    #: of checkpoints without absolute positions, which hold a table all the same
    _keys_to_ignore_on_load_unexpected = [r"embeddings\.embed_positions"]


class TfmDebertaModel(TfmDebertaPreTrainedModel, TfmBertModel):
    """The encoder; arguments and outputs are those of [`TfmBertModel`]. Distances are those in the padded batch."""

    layer_class = TfmDisentangledLayer
    of_whole_rows = {"conv_kernel_size": "the convolution"}

    def __init__(self, config: TfmDebertaConfig, add_pooling_layer: bool | None = None):
        super().__init__(config, add_pooling_layer)
        self.distances = TfmDistanceEmbeddings(config)
        if config.project_before_norm:
            projection = nn.Linear(config.embedding_size, config.hidden_size, bias=False)
            self.embeddings.norm = nn.Sequential(OrderedDict(projection=projection, norm=make_norm(config)))
            self.embeddings.projection = None
        self.post_init()

    def counts_padding(self, kept: KeptTokens) -> bool:
        """Also where it stands between tokens, in whose distances it counts."""
        first, last = kept.indices[kept.bounds[:-1].long()], kept.indices[kept.bounds[1:].long() - 1]
        return super().counts_padding(kept) or (last - first + 1).tolist() != kept.lengths

    def run_kept(self, batch: Batch, source: tuple = (), **kwargs):
        """As [`TfmStack`]; layers get embeddings and numbers of distances, and the mask."""
        given = batch.tokens.ids_or_embeddings
        check_takes_bias(self.config, "DeBERTa's scores have one")
        distances = self.distances.of_length(batch.shape[1], given.device, is_traced(given))
        own = {"embeddings": self.distances, "distances": distances, "padding_mask": batch.attention_mask}
        return super().run_kept(batch, source, **own, **kwargs)


class TfmDebertaHead(TfmDebertaPreTrainedModel):
    """DeBERTa, to which a class of the encoder family adds its head."""

    model_class = TfmDebertaModel


class TfmDebertaForMaskedLM(TfmDebertaHead, TfmBertForMaskedLM):
    """DeBERTa with the head of [`TfmBertForMaskedLM`]."""


class TfmDebertaForReplacedTokenDetection(TfmDebertaHead, TfmBertForReplacedTokenDetection):
    """DeBERTa with the head of [`TfmBertForReplacedTokenDetection`]."""


class TfmDebertaForSequenceClassification(TfmDebertaHead, TfmBertForSequenceClassification):
    """DeBERTa with the head of [`TfmBertForSequenceClassification`]."""


class TfmDebertaForTokenClassification(TfmDebertaHead, TfmBertForTokenClassification):
    """DeBERTa with the head of [`TfmBertForTokenClassification`]."""


class TfmDebertaForQuestionAnswering(TfmDebertaHead, TfmBertForQuestionAnswering):
    """DeBERTa with the head of [`TfmBertForQuestionAnswering`]."""


class TfmDebertaForMultipleChoice(TfmDebertaHead, TfmBertForMultipleChoice):
    """DeBERTa with the head of [`TfmBertForMultipleChoice`]."""


__all__ = [*TfmDebertaConfig.auto_classes.values(), "TfmDebertaPreTrainedModel"]
