"""Caches: layers that do not copy the past at every step, and states of linear attention; checks of a caller's cache;
and `generate` with these caches."""

import torch
from transformers import Cache, DynamicCache, EncoderDecoderCache, GenerationMixin
from transformers.cache_utils import DynamicLayer, LinearAttentionLayer
from transformers.masking_utils import create_masks_for_generate

from .batch import CACHE, need_gradient
from .inputs import check_tensor

SMALL = 1 << 15  # elements in the keys of a layer, up to which a copy is cheaper than reserved space


class TfmGrowingLayer(DynamicLayer):
    """Keys and values of one layer, `(batch, heads, length, head_dim)`: once they are long, views of larger buffers.

    Cropping and selecting replace these views. The next step then makes new buffers.
    """

    buffers: tuple[torch.Tensor, torch.Tensor] | None = None
    views: tuple[torch.Tensor, torch.Tensor] | None = None  # of the buffers, as last handed out

    def update(self, key_states: torch.Tensor, value_states: torch.Tensor, *args, **kwargs):
        """Appends `(batch, heads, new, head_dim)`, and returns keys and values of all positions."""
        is_small = not self.is_initialized or self.keys.numel() < SMALL
        if is_small or torch.compiler.is_compiling() or need_gradient(key_states, value_states):
            return super().update(key_states, value_states, *args, **kwargs)
        before = self.get_seq_length()
        length = before + key_states.shape[-2]
        if not self.has_space(length):
            room = length + max(length // 2, 64)
            given = (self.keys, self.values)
            self.buffers = tuple(each.new_empty(*each.shape[:2], room, each.shape[3]) for each in given)
            for buffer, states in zip(self.buffers, given, strict=True):
                buffer[:, :, :before] = states
        for buffer, states in zip(self.buffers, (key_states, value_states), strict=True):
            buffer[:, :, before:length] = states
        return self.hand_out(length)

    def reorder_cache(self, beam_idx: torch.LongTensor) -> None:
        """Copies beams in their new order into new buffers, so that the next step does not copy them again."""
        length = self.get_seq_length()
        if not self.has_space(length + 1):
            return super().reorder_cache(beam_idx)
        rows = beam_idx.to(self.buffers[0].device)
        moved = tuple(buffer.new_empty(rows.shape[0], *buffer.shape[1:]) for buffer in self.buffers)
        for states, buffer in zip(self.views, moved, strict=True):
            torch.index_select(states, 0, rows, out=buffer[:, :, :length])
        self.buffers = moved
        self.hand_out(length)

    def hand_out(self, length: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Sets `keys` and `values` to the first `length` positions of the buffers, and returns them."""
        self.views = tuple(buffer[:, :, :length] for buffer in self.buffers)
        self.keys, self.values = self.views
        return self.views

    def has_space(self, length: int) -> bool:
        """Whether `keys` and `values` are still views of the buffers, which have room for `length` positions."""
        if self.views is None or self.keys is not self.views[0] or self.values is not self.views[1]:
            return False
        return is_writable(self.buffers[0]) and self.buffers[0].shape[2] >= length


def is_writable(states: torch.Tensor) -> bool:
    """Whether a tensor may be written to. One made in inference mode may be, in that mode alone."""
    return torch.compiler.is_compiling() or torch.is_inference_mode_enabled() or not states.is_inference()


def use_own_layers(cache: Cache, config) -> Cache:
    """Replaces transformers' layers by those of this file, in an empty cache that no caller has seen."""
    if type(cache) is DynamicCache and not cache.offloading:
        cache.layers = [TfmGrowingLayer() if type(layer) is DynamicLayer else layer for layer in cache.layers]
    use_state_layers(cache, config)
    return cache


class TfmStateLayer(DynamicLayer, LinearAttentionLayer):
    """The state of a layer with linear attention stands for keys, `(batch, heads, head_dim + 1, head_dim)`, and the
    number of positions in it for values, `(batch,)`. (transformers makes no mask for this kind of layer.)"""

    is_compileable, is_croppable, supports_early_init = True, False, False

    def crop(self, max_length: int) -> None:
        raise NotImplementedError("The state of linear attention holds all positions: it cannot be cropped.")

    def lazy_initialization(self, state: torch.Tensor, *args) -> None:
        self.dtype, self.device, self.is_initialized = state.dtype, state.device, True
        self.keys, self.values = torch.zeros_like(state), torch.zeros(len(state), dtype=torch.long, device=state.device)
        if not torch.compiler.is_compiling():
            torch._dynamo.mark_static_address(self.keys)
            torch._dynamo.mark_static_address(self.values)

    def update(self, state: torch.Tensor, length: int) -> None:
        """Keeps the state after `length` more positions."""
        if not self.is_initialized:
            self.lazy_initialization(state)
        if self.keys.requires_grad or need_gradient(state) or not is_writable(self.keys):
            self.keys, self.values = state.clone(), self.values + length
        else:
            self.keys.copy_(state)
            self.values += length

    def get_seq_length(self) -> int | torch.Tensor:
        """An integer; in a graph, where integers are constants, a tensor `()`."""
        if not self.is_initialized:
            return 0
        seen = self.values[:1].sum()  # (a batch may have no row)
        return seen if torch.compiler.is_compiling() else int(seen)


def use_state_layers(cache: Cache, config) -> None:
    """Replaces empty layers of linear attention in a cache, which may be the caller's, by layers that count positions.
    Raises a `ValueError` where it has no such layer, or one that is not empty."""
    if not config.has_linear_attention:
        return
    config = config.get_text_config(decoder=True)
    if not cache.layers:
        cache.layers, cache.layer_class_to_replicate = DynamicCache(config=config).layers, None
    for index, (layer, layer_type) in enumerate(zip(cache.layers, config.layer_types, strict=False)):
        if type(layer) is LinearAttentionLayer and getattr(layer, "device", None) is None:  # it is empty
            cache.layers[index] = TfmStateLayer()
        elif layer_type == "linear_attention" and not isinstance(layer, TfmStateLayer):
            raise ValueError(
                f"past_key_values has a {type(layer).__name__} for layer {index}, whose attention is linear: it should "
                "be a cache that the model returned, or DynamicCache(config=model.config) before its first use."
            )


def take_cache(past_key_values: Cache | None, options: dict) -> Cache | None:
    """A caller's cache. From transformers 5.24 on, `options` may hold it. (A paged one is not a `Cache`, and stays.)"""
    return options.pop("cache") if isinstance(options.get("cache"), Cache) else past_key_values


def open_cache(stack, past: Cache | None, use_cache: bool | None, rows: int) -> tuple[Cache | None, int | None, bool]:
    """The cache that a forward pass reads and writes, the caller's (`past`) or a new one; the number of positions in
    it (`None`: only the device knows); and whether it is returned."""
    if past is not None and not isinstance(past, Cache):
        raise ValueError(f"past_key_values is a {type(past).__name__}; it should be a Cache, such as DynamicCache().")
    if stack.is_checkpointing:
        if past is not None and past.get_seq_length():
            raise ValueError(
                f"past_key_values holds {past.get_seq_length()} positions, which blocks that gradient checkpointing "
                "runs twice cannot read: call gradient_checkpointing_disable(), or pass no cache."
            )
        return None, 0, False
    # Training does not decode, and a cache would hold all keys and values a second time.
    wanted = (stack.config.use_cache and not stack.training) if use_cache is None else use_cache
    if past is not None:
        if "linear_attention" in stack.layer_types:
            use_state_layers(past, stack.config)
        return past, checked_length(stack, past, rows), wanted
    new = use_own_layers(DynamicCache(config=stack.config), stack.config) if wanted else None
    return new, 0, wanted


def checked_length(stack, cache: Cache, rows: int) -> int | None:
    """The number of positions in a cache; `None` if only the device knows that. Raises a `ValueError` for the cache of
    another model, or of another number of sequences."""
    if torch.compiler.is_compiling():
        return None
    (depth, key_heads, head_dim), layers = (stack.depth, *stack.key_heads_and_dim), cache.layers
    # PEFT's prefix is as deep as the encoder (`num_hidden_layers`); a decoder with fewer layers reads the first of it.
    fits = len(layers) in (0, depth, max(depth, stack.config.num_hidden_layers))
    keys = getattr(layers[0], "keys", None) if layers else None
    stored, stored_rows = (len(layers), "?", "?"), 0  # as errors say it where layers are empty
    if keys is not None and keys.dim() == 4:  # (batch, heads, length, head_dim)
        stored, stored_rows = (len(layers), keys.shape[1], keys.shape[3]), len(keys) if keys.shape[2] else 0
        # Tensor parallelism leaves some of the heads to other processes.
        fits = fits and key_heads % stored[1] == 0 and head_dim == stored[2]
    if fits and stored_rows not in (0, rows):  # (an empty cache takes any number of rows)
        raise ValueError(f"past_key_values holds {stored_rows} sequences, and the inputs are {rows}.")
    if not fits:
        raise ValueError(
            "past_key_values is the cache of another model: (layers, key-value heads, head_dim) are "
            f"({', '.join(map(str, stored))}) in it, and {(depth, key_heads, head_dim)} in this model."
        )
    seen = cache.get_seq_length()
    return seen if isinstance(seen, int) else None


class TfmGenerationMixin(GenerationMixin):
    """transformers' generation, with caches that copy less."""

    def generate(self, inputs: torch.Tensor | None = None, *args, **kwargs):
        """As in transformers."""
        named = ("input_ids", "attention_mask", "inputs_embeds", "decoder_input_ids", "decoder_attention_mask")
        for name, value in {"inputs": inputs, **{each: kwargs.get(each) for each in named}}.items():
            check_tensor(name, value)
        return super().generate(inputs, *args, **kwargs)

    def _prepare_cache_for_generation(self, generation_config, model_kwargs: dict, mode, *sizes: int):
        *_, length = sizes  # transformers' `max_cache_length`, one less than `max_length`: the last is never cached
        most = getattr(self.model, "decoder", self.model).num_positions
        position_ids = None if self.config.is_encoder_decoder else model_kwargs.get("position_ids")
        if most is not None and position_ids is not None and length > most:  # positions leave out padding at the left
            least_padding = position_ids.shape[1] - 1 - int(position_ids[:, -1].max())
            length -= least_padding
        if most is not None and length > most:
            raise ValueError(
                f"The prompt and the new tokens would be {length + 1}, as max_new_tokens or max_length says, and the "
                f"model has {most} positions (max_position_embeddings): ask for at least {length - most} fewer, or "
                "shorten the prompt."
            )
        is_callers = model_kwargs.get(CACHE) is not None
        prepared = super()._prepare_cache_for_generation(generation_config, model_kwargs, mode, *sizes)
        cache = model_kwargs.get(CACHE)
        if is_callers:  # (done here, since transformers asks for the cache's length before it calls `forward`)
            target_cache = cache.self_attention_cache if isinstance(cache, EncoderDecoderCache) else cache
            use_state_layers(target_cache, self.config)
        elif cache is not None:
            model_kwargs[CACHE] = self.own_cache(cache, model_kwargs)
        return prepared

    def own_cache(self, cache: Cache, model_kwargs: dict) -> Cache:
        """What `generate` gets in place of transformers' new cache, before it calls the model with `model_kwargs`."""
        return use_own_layers(cache, self.config)

    @staticmethod
    def create_masks_for_generate(config, **kwargs) -> dict | torch.Tensor:
        """A mask for each type of layer of the decoder (of padding, where all are linear), for a compiled step."""
        config = config.get_text_config(decoder=True)
        if {*config.layer_types} == {"linear_attention"}:  # transformers before 5.14 has no mask for it
            return kwargs["attention_mask"]
        return create_masks_for_generate(config=config, **kwargs)
