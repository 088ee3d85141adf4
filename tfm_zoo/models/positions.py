"""Positions: sinusoids that are added to the embeddings, or a rotation in attention; buffers in no checkpoint."""

import math
from copy import copy

import torch
from torch import nn
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS, dynamic_rope_update

from .batch import is_readable


class TfmConstants(nn.Module):
    """A module whose buffers follow from the configuration: `make_constants` gives them by name, and no checkpoint
    holds them. If somebody gives them other memory (`to_empty`, a meta device), they are made again."""

    def add_constants(self) -> None:
        for name, values in self.make_constants().items():
            self.register_buffer(name, values, persistent=False)

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Fills the buffers; the name is torch's."""
        with torch.device("cpu"):  # and not the meta device, on which a caller may be making modules
            constants = self.make_constants()
        for name, values in constants.items():
            self._buffers[name].copy_(values)

    def _apply(self, fn, recurse: bool = True) -> nn.Module:
        before = [*self._buffers.values()]
        super()._apply(fn, recurse)
        if any(new is not old for new, old in zip(self._buffers.values(), before, strict=True)):
            self.reset_parameters()
        return self

    def _load_from_state_dict(self, state_dict: dict[str, torch.Tensor], *args) -> None:
        super()._load_from_state_dict(state_dict, *args)
        if any(buffer.is_meta for buffer in self.buffers()):  # `assign=True` gives memory to parameters alone
            self.to_empty(device="cpu")


class TfmSinusoidalPositions(TfmConstants):
    """The fixed sinusoids of *Attention Is All You Need* (section 3.5), for any length.

    The frequency of pair `i` is `10000 ** (-2 * i / width)`. `config.sinusoid_type` says where its channels are:

    - `"interleaved"`: a pair's sine and cosine side by side, as in the paper;
    - `"halves"`: all sines, then all cosines (Marian);
    - `"tensor2tensor"`: halves too, with the last pair's frequency at 1/10000 (the authors' own code; FSMT).

    On a CPU the first ones are looked up in a table. (Elsewhere the device would be waited for.)
    """

    ROWS = 512

    def __init__(self, config):
        super().__init__()
        self.width, self.sinusoid_type = config.position_size, config.sinusoid_type
        self.padding_row = config.pad_token_id if config.position_ids_from_padding else None
        self.add_constants()

    def make_constants(self) -> dict[str, torch.Tensor]:
        return {"table": self.sinusoids(torch.arange(self.ROWS))}

    def sinusoids(self, rows: torch.LongTensor) -> torch.Tensor:
        """Rows `(...)`, which are positions plus `first_row`, to `(..., width)`: zero at the row of padding."""
        half, device = self.width // 2, rows.device
        if self.sinusoid_type == "tensor2tensor":  # in float32, as in tensor2tensor: far positions differ otherwise
            pairs = torch.arange(half, device=device, dtype=torch.float)
            frequencies = (pairs * -(math.log(10000.0) / max(half - 1, 1))).exp()
        else:
            dtype = torch.float if device.type == "mps" else torch.double  # MPS has no double
            frequencies = 10000.0 ** (-torch.arange(half, device=device, dtype=dtype) / half)
        angles = rows[..., None].to(frequencies.dtype) * frequencies
        waves = (angles.sin(), angles.cos())
        in_pairs = self.sinusoid_type == "interleaved"
        sinusoids = torch.stack(waves, dim=-1).flatten(-2) if in_pairs else torch.cat(waves, dim=-1)
        if self.padding_row is not None:
            sinusoids = sinusoids.masked_fill((rows == self.padding_row)[..., None], 0.0)
        return sinusoids.float()

    def forward(self, rows: torch.LongTensor) -> torch.Tensor:
        """As `sinusoids`: `(batch, length)` to `(batch, length, width)`."""
        if is_readable(rows) and rows.numel() and int(rows.max()) < self.ROWS:  # (a graph is to serve any length)
            return nn.functional.embedding(rows, self.table)
        return self.sinusoids(rows).to(self.table.dtype)


class TfmRotaryEmbedding(TfmConstants):
    """Cosines and sines of rotary positions (Su et al. 2021), with every scaling that transformers knows. Attributes
    have the names that its `dynamic_rope_update` and its weight initialisation need."""

    def __init__(self, config):
        super().__init__()
        self.config = config
        self.rope_type = config.rope_parameters["rope_type"]
        self.add_constants()

    def make_constants(self) -> dict[str, torch.Tensor]:
        make_frequencies = ROPE_INIT_FUNCTIONS.get(self.rope_type, self.compute_default_rope_parameters)
        inv_freq, self.attention_scaling = make_frequencies(self.config)
        self.max_seq_len_cached = self.original_max_seq_len = self.config.max_position_embeddings
        signs = torch.ones_like(inv_freq)  # of sines, as `rotate` reads them: minus one for the first half
        return {"inv_freq": inv_freq, "original_inv_freq": inv_freq.clone(), "signs": torch.cat((-signs, signs))}

    @staticmethod
    def compute_default_rope_parameters(config, *args, **kwargs) -> tuple[torch.Tensor, float]:
        """Unscaled frequencies of shape `(rotated channels / 2,)`, and the factor 1 for cosines and sines."""
        rotated = int(config.head_dim * config.rope_parameters.get("partial_rotary_factor", 1.0))
        exponents = torch.arange(0, rotated, 2, dtype=torch.float) / rotated
        return 1.0 / config.rope_parameters["rope_theta"] ** exponents, 1.0  # rounded as in the official classes

    @dynamic_rope_update
    def forward(self, hidden_states: torch.Tensor, position_ids: torch.LongTensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Positions of shape `(batch, length)` to cosines and sines of shape `(batch, length, rotated channels)`."""
        angles = position_ids[..., None].float() * self.inv_freq.to(hidden_states.device, torch.float)
        cos, sin = angles.cos(), angles.sin()
        if self.attention_scaling != 1:
            cos, sin = cos * self.attention_scaling, sin * self.attention_scaling
        # (Joined in float32: where autocast computes in bfloat16, it refuses to join float16.)
        return tuple(torch.cat((half, half), dim=-1).to(hidden_states.dtype) for half in (cos, sin))

    def prepare(self, hidden_states: torch.Tensor, position_ids: torch.LongTensor) -> tuple[torch.Tensor, ...]:
        """The same, once for all layers, as [`rotate`] reads them."""
        cos, sin = self(hidden_states, position_ids)
        return cos.unsqueeze(1), (sin * self.signs.to(sin)).unsqueeze(1)


class TfmGrowingRotaryEmbedding(TfmRotaryEmbedding):
    """The same, and a third tensor `(batch, 1, length, 1)`: what queries are multiplied by (Ministral 3)."""

    def prepare(self, hidden_states: torch.Tensor, position_ids: torch.LongTensor) -> tuple[torch.Tensor, ...]:
        own = self.config.rope_parameters
        # (Padding may have the position -1, whose logarithm is infinite.)
        stretches = (position_ids / own["original_max_position_embeddings"]).floor().clamp(min=0)
        scale = 1 + own["llama_4_scaling_beta"] * (1 + stretches).log()
        return *super().prepare(hidden_states, position_ids), scale[:, None, :, None].to(hidden_states.dtype)


class TfmRotaryByLayerType(nn.ModuleDict):
    """A [`TfmRotaryEmbedding`] for each type of layer, where their parameters differ (ModernBERT)."""

    def __init__(self, config, layer_types: list[str]):
        super().__init__()
        for layer_type in layer_types:
            part = copy(config)
            part.rope_parameters = config.rope_parameters[layer_type]
            self[layer_type] = TfmRotaryEmbedding(part)

    def prepare(self, *inputs: torch.Tensor) -> dict[str, tuple[torch.Tensor, torch.Tensor]]:
        """What [`rotate`] reads, by type of layer."""
        return {layer_type: rotary.prepare(*inputs) for layer_type, rotary in self.items()}


def make_rotary(config, layer_types: list[str]) -> nn.Module | None:
    if config.position_embedding_type != "rotary":
        return None
    own = [layer_type for layer_type in dict.fromkeys(layer_types) if layer_type in config.rope_parameters]
    of_all = TfmGrowingRotaryEmbedding if config.scales_queries else TfmRotaryEmbedding
    return TfmRotaryByLayerType(config, own) if own else of_all(config)


def rotate(heads: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """Turns the first channels of each head, of shape `(batch, heads, length, head_dim)`, by the positions' angles.
    `cos` and `sin` are `(batch, 1, length, rotated channels)`; the first half of the sines has the other sign."""
    rotated = cos.shape[-1]
    if rotated < heads.shape[-1]:
        return torch.cat((rotate(heads[..., :rotated], cos, sin), heads[..., rotated:]), dim=-1)
    # (A channel of the first half and one of the second are a pair.)
    return (heads * cos + heads.roll(rotated // 2, dims=-1) * sin).to(heads.dtype)
