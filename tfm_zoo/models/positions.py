"""Where a token stands: a table or a sinusoid added to the embeddings, or a rotation in attention."""

import torch
from torch import nn

from .compat import ROPE_INIT_FUNCTIONS, dynamic_rope_update


def default_position_ids(
    config, input_ids: torch.LongTensor | None, inputs_embeds: torch.Tensor | None
) -> torch.LongTensor:
    """Positions of shape `(batch or 1, length)`, for callers who give none.

    Counted from 0 over all tokens; or, with `config.position_ids_from_padding`, from `pad_token_id + 1` over the
    tokens that are not padding, while padding keeps `pad_token_id`. Embeddings do not show which of them are padding.
    """
    if config.position_ids_from_padding and input_ids is not None:
        real = input_ids != config.pad_token_id
        return real.cumsum(dim=1) * real + config.pad_token_id
    inputs = input_ids if inputs_embeds is None else inputs_embeds
    first = first_position(config)
    return torch.arange(first, first + inputs.shape[1], device=inputs.device).unsqueeze(0)


def first_position(config) -> int:
    return config.pad_token_id + 1 if config.position_ids_from_padding else 0


class TfmSinusoidalPositions(nn.Module):
    """The fixed sinusoids of *Attention Is All You Need* (section 3.5), sine and cosine interleaved.

    Computed from the positions at hand: nothing to store, no longest length.
    """

    def __init__(self, config):
        super().__init__()
        self.hidden_size = config.hidden_size

    def forward(self, position_ids: torch.LongTensor) -> torch.Tensor:
        """Positions of shape `(batch, length)` to float32 sinusoids of shape `(batch, length, hidden_size)`."""
        channels = torch.arange(0, self.hidden_size, 2, device=position_ids.device, dtype=torch.float)
        angles = position_ids[..., None].float() * 10000.0 ** (-channels / self.hidden_size)
        return torch.stack((angles.sin(), angles.cos()), dim=-1).flatten(-2)


class TfmRotaryEmbedding(nn.Module):
    """Cosines and sines of rotary positions (Su et al. 2021), with every scaling kind that transformers knows.

    The attribute names are those that transformers' `dynamic_rope_update` and weight initialisation work on; the
    latter also restores the buffers, which hold garbage after loading onto the meta device.
    """

    def __init__(self, config):
        super().__init__()
        self.config = config
        self.max_seq_len_cached = self.original_max_seq_len = config.max_position_embeddings
        self.rope_type = config.rope_parameters["rope_type"]
        scaled = ROPE_INIT_FUNCTIONS.get(self.rope_type, self.compute_default_rope_parameters)
        inv_freq, self.attention_scaling = scaled(config)
        self.register_buffer("inv_freq", inv_freq, persistent=False)
        self.register_buffer("original_inv_freq", inv_freq.clone(), persistent=False)

    @staticmethod
    def compute_default_rope_parameters(config, *args, **kwargs) -> tuple[torch.Tensor, float]:
        """Unscaled frequencies of shape `(rotated channels / 2,)`, and the factor 1 for cosines and sines."""
        rotated = int(config.head_dim * config.rope_parameters.get("partial_rotary_factor", 1.0))
        exponents = torch.arange(0, rotated, 2, dtype=torch.float) / rotated
        return config.rope_parameters["rope_theta"] ** -exponents, 1.0

    @torch.no_grad()
    @dynamic_rope_update
    def forward(self, hidden_states: torch.Tensor, position_ids: torch.LongTensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Positions of shape `(batch, length)` to cosines and sines of shape `(batch, length, rotated channels)`."""
        angles = position_ids[..., None].float() * self.inv_freq.to(hidden_states.device, torch.float)
        angles = torch.cat((angles, angles), dim=-1)
        cos, sin = angles.cos() * self.attention_scaling, angles.sin() * self.attention_scaling
        return cos.to(hidden_states.dtype), sin.to(hidden_states.dtype)


def rotate(heads: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """Turns the first channels of each head, of shape `(batch, heads, length, head_dim)`, by the positions' angles."""
    cos, sin = cos.unsqueeze(1), sin.unsqueeze(1)
    turned, rest = heads.split([cos.shape[-1], heads.shape[-1] - cos.shape[-1]], dim=-1)
    first, second = turned.chunk(2, dim=-1)
    turned = turned * cos + torch.cat((-second, first), dim=-1) * sin
    return torch.cat((turned, rest), dim=-1) if rest.shape[-1] else turned
