"""What a caller of an encoder-decoder may leave out, the source's mask or the decoder's inputs, and encoder outputs."""

from collections.abc import Mapping

import torch
from transformers.modeling_outputs import BaseModelOutput

from .losses import IGNORED


def real_tokens(config, input_ids: torch.LongTensor | None, attention_mask: torch.Tensor | None) -> torch.Tensor | None:
    """The mask, by default 1 where `input_ids` `(batch, length)` are not `config.pad_token_id` and 0 where they are.

    It stays `None` if sequences end with that id, which then does not tell padding.
    """
    padding, ends = config.pad_token_id, config.eos_token_id
    if attention_mask is not None or input_ids is None:
        return attention_mask
    if padding is None or padding in (ends if isinstance(ends, list) else [ends]) or input_ids.is_meta:
        return None
    return (input_ids != padding).long()


def shift_right(config, tokens: torch.LongTensor) -> torch.LongTensor:
    """Decoder inputs for predicting `tokens` `(batch, length)`, labels or ids: these, shifted to the right.

    The first input is `config.decoder_start_token_id`, or the last real token (`config.start_with_last_token`).

    Raises:
        ValueError: for another shape, or if the configuration lacks the id.
    """
    if tokens.dim() != 2 or tokens.shape[1] == 0:
        raise ValueError(f"labels of shape {tuple(tokens.shape)} should be of shape (batch, length), as the target.")
    padding, start = config.pad_token_id, config.decoder_start_token_id
    if padding is None:
        raise ValueError("pad_token_id=None: decoder_input_ids made of labels need it where there is no label.")
    tokens = tokens.masked_fill(tokens == IGNORED, padding)
    if config.start_with_last_token:
        last = ((tokens != padding).sum(dim=1, keepdim=True) - 1).clamp(min=0)
        first = tokens.gather(1, last)
    elif start is None:
        raise ValueError(
            "decoder_start_token_id=None: decoder_input_ids made of labels begin with it. Set it in the config."
        )
    else:
        first = torch.full_like(tokens[:, :1], start)
    return torch.cat((first, tokens[:, :-1]), dim=1)


def as_encoder_outputs(outputs: object) -> BaseModelOutput:
    """An encoder's outputs, which a user may pass as a mapping with the names of [`BaseModelOutput`] or as a tuple."""
    if type(outputs) is BaseModelOutput:
        return outputs
    if isinstance(outputs, Mapping):
        return BaseModelOutput(**{name: outputs.get(name) for name in BaseModelOutput.__dataclass_fields__})
    if isinstance(outputs, tuple | list):
        return BaseModelOutput(*outputs[:3])
    raise ValueError(
        f"encoder_outputs is a {type(outputs).__name__}; it should be what the encoder returns, or a tuple that begins "
        "with its last hidden state."
    )
