"""The source of a decoder: [`read_source`] makes a [`Source`] of an encoder's states. Also what else follows from a
source, checks of it, and a cache that beams share."""

import math
from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch.nn import functional as F
from transformers import Cache, DynamicCache, EncoderDecoderCache
from transformers.masking_utils import create_bidirectional_mask
from transformers.modeling_outputs import BaseModelOutput

from .batch import IGNORED, Batch, KeptTokens, Layout, Tokens, bounds_of, has_hooks, is_pad_mask, is_traced
from .entrance import as_attention_reads, shown_keys
from .inputs import check_tensor, fits_pairs
from .kernels import PLAIN, added_to_scores, takes_bounds


class Source(NamedTuple):
    """What the decoder of an encoder-decoder reads of the source."""

    states: torch.Tensor  # the encoder's, `(sources, source length, hidden_size)`; of kept tokens, in one row
    keys_kept: KeptTokens | None  # restores padding in keys and values. `None`: it is there, or nothing needs it
    queries_kept: KeptTokens | None  # restores padding in queries, for attention alone. `None`: the same
    layout: Layout  # which positions of the source are seen
    both_caches: EncoderDecoderCache | None  # of target and source, whose keys are computed once in a generation


def read_source(
    stack, states: torch.Tensor, source_mask: object, target: Batch, past: Cache | None, source_kept: KeptTokens | None
) -> Source:
    """What a decoder reads of the source: its states, once for all beams of a sentence, and which are seen.

    Args:
        states: `(batch, source length, hidden_size)`. Where keys are stored, only shape, dtype and device are read.
        source_mask: of padding `(batch, source length)`, or a mask of pairs.
        target: the decoder's batch.
        past: the caller's cache, of both sides or of the target's alone.
        source_kept: the real tokens of the source, if they are known.
    """
    both_caches = cache_of_both(target.cache, past, states.shape[1])
    source_cache = getattr(both_caches, "cross_attention_cache", None)
    is_stored, is_graph = holds_source(both_caches), is_traced(states)
    # Once keys are stored, nothing of a source is computed. Before, padding and equal rows are left out, but not in a
    # graph, nor where hooks see them. (If `target.kept` is set, `find_kept` has seen that there are no hooks.)
    may_look = not (is_stored or is_graph) and (target.kept is not None or not has_hooks(*stack._modules.values()))
    if isinstance(source_cache, TfmSourceCache) and may_look:
        source_cache.count_beams(states, source_mask)
    elif isinstance(source_cache, TfmSourceCache) and is_stored and not is_graph:
        source_cache.expand_unless_equal(source_mask)
    beams = getattr(source_cache, "beams", 1)
    if beams > 1:
        states, source_kept = states[::beams], None
        source_mask = None if source_mask is None else source_mask[::beams]
    if not (may_look and stack.config.skip_padding):
        source_kept = None
    elif source_kept is None and is_pad_mask(source_mask):
        source_kept = KeptTokens.find(source_mask)
    layout = source_layout(stack, states, source_mask, target, beams, source_kept)
    is_by_bounds = layout.mode == "by_bounds"
    keys_kept = None if is_by_bounds and not layout.keys_are_padded else source_kept
    states = states if source_kept is None else source_kept.keep(states)
    return Source(states, keys_kept, None if is_by_bounds else target.kept, layout, both_caches)


def layout_by_bounds(target: Batch, beams: int, keys: KeptTokens, keys_are_padded: bool = True) -> Layout:
    """The layout of a kernel that takes bounds: those of the source's tokens (`keys`), and of the target's."""
    target_kept, (rows, length) = target.kept, target.shape
    if target_kept is None:
        target_kept = KeptTokens.all_of(rows // beams, beams * length, keys.bounds.device)
    elif len(target_kept.lengths) > len(keys.lengths):  # documents that share a row read one source
        counts = (target_kept.indices // length).bincount(minlength=rows)
        target_kept = target_kept._replace(lengths=counts.tolist(), bounds=bounds_of(counts))
    return Layout(mode="by_bounds", queries=target_kept, keys=keys, keys_are_padded=keys_are_padded)


def source_layout(
    stack, states: torch.Tensor, mask: object, target: Batch, beams: int, source_kept: KeptTokens | None
) -> Layout:
    """Which of a source's `states` the target sees. A row of queries holds `beams` rows of the target, end to end."""
    config, implementation = stack.config, stack.config._attn_implementation
    # (A cache stores padded keys, which "varlen" reads as sdpa.)
    by_bounds = takes_bounds(stack, states) and (target.cache is None or implementation != "varlen")
    if by_bounds and source_kept is not None:
        return layout_by_bounds(target, beams, source_kept, keys_are_padded=target.cache is not None)
    if is_pad_mask(mask) and implementation in PLAIN:
        mask = shown_keys(mask, states)
    elif mask is not None:
        mask = as_attention_reads(config, mask, states)
        # Only flex attention needs to know how many positions of the target there are.
        length = beams * target.shape[1] if implementation == "flex_attention" else 1
        like = states.new_empty(states.shape[0], length, 0)
        mask = create_bidirectional_mask(
            config=config, inputs_embeds=like, attention_mask=mask, encoder_hidden_states=states
        )
    if is_pad_mask(mask):  # Only flash attention's is one here. transformers would leave out queries by it, too.
        return layout_by_bounds(target, beams, seen_keys(mask, implementation))
    if by_bounds and mask is None and target.kept is not None:  # (Bounds are asked of both sides.)
        return layout_by_bounds(target, beams, KeptTokens.all_of(*states.shape[:2], states.device))
    if isinstance(mask, torch.Tensor) and mask.dtype == torch.bool:
        # Eager attention and T5 hide by a finite number, as official classes do: over a source without real tokens, all
        # weights are equal then. In evaluation, others get -inf once, here: sdpa would make it anew in each layer.
        if implementation == "eager" or stack.position_bias is not None:
            mask = added_to_scores(mask, states.dtype, torch.finfo(states.dtype).min)
        elif not stack.training and not is_traced(mask):  # (`dropped_attention_forward` makes nan of -inf)
            mask = added_to_scores(mask, states.dtype)
    return Layout(mask)  # ([`TfmCrossAttention`] restores queries and keys itself: they are not of the same tokens)


def seen_keys(mask: torch.Tensor, implementation: str) -> KeptTokens:
    """The real tokens of a source; all tokens of a row without any, as eager attention sees them (sdpa gives zero).
    Raises a `ValueError` in a graph, which cannot know their number."""
    if is_traced(mask):
        raise ValueError(f"Attention {implementation!r} to a padded source cannot be a graph: choose 'sdpa'.")
    real = mask.bool()
    return KeptTokens.find(real | ~real.any(dim=1, keepdim=True), shows_all=True)


def default_mask(config, ids: torch.LongTensor | None, attention_mask: torch.Tensor | None) -> torch.Tensor | None:
    """The mask, by default 0 where `ids` `(batch, length)` are `config.pad_token_id`, and 1 elsewhere. It stays
    `None` if sequences end with that id, which then does not tell padding."""
    if attention_mask is not None or not isinstance(ids, torch.Tensor):  # what is not a tensor is refused later
        return attention_mask
    padding, ends = config.pad_token_id, config.eos_token_id
    if padding is None or padding in (ends if isinstance(ends, list) else [ends]) or ids.is_meta:
        return None
    return (ids != padding).long()


def source_as_target(config, input_ids: torch.LongTensor | None) -> torch.LongTensor:
    """Decoder inputs that a caller left out: the source `(batch, length)`, shifted to the right."""
    official = (config.official or {}).get("model_type")  # in BART one vocabulary serves both, even if nothing is tied
    is_shared = config.share_encoder_decoder_embeddings or official in ("bart", "mbart", "plbart", "mvp")
    if input_ids is None or not is_shared:
        raise ValueError(
            "Neither decoder_input_ids nor decoder_inputs_embeds is given. They follow from labels, or from "
            "input_ids where source and target have one vocabulary (share_encoder_decoder_embeddings)."
        )
    return shift_right(config, input_ids, "input_ids")


def given_or_made_target(config, inputs: dict) -> torch.Tensor:
    """The target's ids or embeddings among the inputs of [`TfmEncoderDecoderModel`]; those of the source, which then
    are written there, if a caller gives no target."""
    ids, embeddings = inputs["decoder_input_ids"], inputs["decoder_inputs_embeds"]
    check_tensor("decoder_input_ids", ids)
    if ids is None and embeddings is None:
        ids = inputs["decoder_input_ids"] = source_as_target(config, inputs["input_ids"])
    return ids if embeddings is None else embeddings


def shift_right(config, ids: torch.LongTensor, name: str = "labels") -> torch.LongTensor:
    """Decoder inputs for predicting `ids` `(batch, length)`: a start, then all ids of a row but its last. The start is
    `decoder_start_token_id`, or the row's last real id (`start_with_last_token`). Errors call the ids `name`."""
    check_tensor(name, ids)
    if ids.dim() != 2 or ids.shape[1] == 0:
        raise ValueError(f"{name} of shape {tuple(ids.shape)} should be of shape (batch, length).")
    padding, start = config.pad_token_id, config.decoder_start_token_id
    if padding is None:
        raise ValueError(f"pad_token_id=None: decoder_input_ids made of {name} need it where there is no label.")
    ids = ids.masked_fill(ids == IGNORED, padding)
    if config.start_with_last_token:
        last = ((ids != padding).sum(dim=1, keepdim=True) - 1).clamp(min=0)
        return torch.cat((ids.gather(1, last), ids[:, :-1]), dim=1)
    if start is None:
        raise ValueError(f"decoder_start_token_id=None: decoder_input_ids made of {name} begin with it. Set it.")
    return F.pad(ids[:, :-1], (1, 0), value=start)


def as_encoder_outputs(config, outputs: object) -> BaseModelOutput:
    """An encoder's outputs, which a caller may pass as a mapping or as a tuple."""
    if isinstance(outputs, tuple | list):
        outputs = BaseModelOutput(*outputs[:3])
    elif not isinstance(outputs, Mapping):
        found = f"encoder_outputs is a {type(outputs).__name__}"
        raise ValueError(f"{found}; it should be what the encoder returns, or a tuple that begins with its states.")
    elif type(outputs) is not BaseModelOutput:
        outputs = BaseModelOutput(**{name: outputs.get(name) for name in BaseModelOutput.__dataclass_fields__})
    check_encoder_states(config, outputs.last_hidden_state)
    return outputs


def check_source(config, shape: tuple, source_mask: object, tokens: Tokens, past_key_values: Cache | None) -> None:
    """Raises a `ValueError` if a source of this `shape`, (batch, source length), does not fit its mask, the target's
    `tokens` or the cache."""
    check_tensor("attention_mask", source_mask)
    target = tokens.ids_or_embeddings.shape[:2]
    if shape[0] != target[0]:
        raise ValueError(f"The source is a batch of {shape[0]} rows, the target (or its labels) one of {target[0]}.")
    if isinstance(source_mask, torch.Tensor) and source_mask.shape != shape:
        fits = fits_pairs(source_mask, shape[0], config.decoder_attention_heads, target[1])
        if not fits or source_mask.shape[3] != shape[1]:
            found = f"attention_mask of shape {tuple(source_mask.shape)}"
            raise ValueError(f"{found} does not fit the source: it should be of shape {tuple(shape)}.")
    if holds_source(past_key_values):
        seen = past_key_values.cross_attention_cache.layers[0].keys.shape[2]
        if seen != shape[1]:
            raise ValueError(f"past_key_values is of a source of {seen} positions, and this one has {shape[1]}.")


def check_encoder_states(config, states: torch.Tensor | None) -> None:
    """Raises a `ValueError` unless an encoder's hidden states have the model's width."""
    if not isinstance(states, torch.Tensor):
        raise ValueError(f"encoder_hidden_states={states}: the decoder reads an encoder's last hidden state.")
    if states.dim() != 3 or states.shape[2] != config.hidden_size:
        found = f"The encoder's last hidden state of shape {tuple(states.shape)}"
        raise ValueError(f"{found} should be of shape (batch, source length, hidden_size={config.hidden_size}).")


class TfmSourceCache(DynamicCache):
    """Keys and values of a source, kept once for every `beams` rows of the decoder that read it. Beam search reorders
    these rows among themselves, which leaves this cache as it is. [`cache_of_both`] and `generate` make it."""

    beams = 1  # consecutive rows whose sources are equal: beams of `generate`, or a caller's rows
    mask: torch.Tensor | None = None  # of the source, by which beams were counted

    def count_beams(self, encoder_hidden_states: torch.Tensor, attention_mask: torch.Tensor | None) -> None:
        """Counts, before anything is stored, how many consecutive rows have the same source."""
        is_learned = torch.is_grad_enabled() and encoder_hidden_states.requires_grad
        if not is_learned and (attention_mask is None or is_pad_mask(attention_mask)):
            self.beams, self.mask = equal_rows(encoder_hidden_states, attention_mask), attention_mask

    def expand_unless_equal(self, mask: torch.Tensor | None) -> None:
        """Gives every row its own keys if a later mask is not the one by which beams were counted."""
        if self.beams == 1 or mask is self.mask:
            return
        masks = [each for each in (mask, self.mask) if each is not None]  # (one that hides nothing may be left out)
        is_equal = torch.equal(*masks) if len(masks) == 2 else masks[0].all()
        self.mask = mask
        if not is_equal:
            self.expand()

    def reorder_cache(self, beam_idx: torch.LongTensor) -> None:
        rows = torch.arange(beam_idx.shape[0], device=beam_idx.device)
        if self.beams == 1 or not torch.equal(beam_idx // self.beams, rows // self.beams):
            self.expand()
            super().reorder_cache(beam_idx)

    def batch_repeat_interleave(self, repeats: int) -> None:
        self.expand()
        super().batch_repeat_interleave(repeats)

    def batch_select_indices(self, indices: torch.Tensor) -> None:
        self.expand()
        super().batch_select_indices(indices)

    def expand(self) -> None:
        """Gives every row of the decoder keys and values of its own."""
        if self.beams > 1:
            super().batch_repeat_interleave(self.beams)
            self.beams = 1


def equal_rows(encoder_hidden_states: torch.Tensor, attention_mask: torch.Tensor | None) -> int:
    """The largest `n` such that the batch consists of groups of `n` consecutive equal rows."""
    same = (encoder_hidden_states[1:] == encoder_hidden_states[:-1]).flatten(1).all(dim=1)
    if attention_mask is not None:
        same &= (attention_mask[1:] == attention_mask[:-1]).flatten(1).all(dim=1)
    return math.gcd(encoder_hidden_states.shape[0], *((~same).nonzero().flatten() + 1).tolist())


def holds_source(cache: Cache | None) -> bool:
    """Whether a cache holds the keys and values of a source."""
    return isinstance(cache, EncoderDecoderCache) and cache.is_updated.get(0, False)


def cache_of_both(target_cache: Cache | None, past: Cache | None, length: int) -> EncoderDecoderCache | None:
    """The cache of both sides, if there is a `target_cache`: `past`, the caller's, if it holds a source or takes one of
    this `length`; else a new one, of the `target_cache` and an empty cache for the source."""
    if target_cache is None:  # as under gradient checkpointing
        return None
    source_cache = getattr(past, "cross_attention_cache", None)
    if holds_source(past) or (source_cache is not None and takes_source(source_cache, length)):
        return past
    return EncoderDecoderCache(target_cache, TfmSourceCache())


def takes_source(cache: Cache, length: int) -> bool:
    """Whether an empty cache takes exactly `length` positions of a source. A larger static cache would show empty keys,
    and a cache with a window would forget some."""
    rooms = {getattr(layer, "max_cache_len", length) for layer in cache.layers}
    return rooms <= {length} and not any(cache.is_sliding)


def with_shared_source(cache: EncoderDecoderCache, length: int) -> EncoderDecoderCache:
    """`generate`'s new cache, with a part for the source that beams share (but a static one of this `length` stays)."""
    source_cache = cache.cross_attention_cache
    if any(hasattr(layer, "max_cache_len") for layer in source_cache.layers) and takes_source(source_cache, length):
        return cache
    return EncoderDecoderCache(cache.self_attention_cache, TfmSourceCache(offloading=source_cache.offloading))
