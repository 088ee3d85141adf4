"""What a decoder reads of its target, and an encoder of its source, where the caller does not say."""

import torch

from .inputs import IGNORED


def real_tokens(config, input_ids: torch.LongTensor | None, attention_mask: torch.Tensor | None) -> torch.Tensor | None:
    """`attention_mask`, or else 1 where `input_ids` `(batch, length)` are not `config.pad_token_id`, and 0 there.

    `None` where that id says nothing, since sequences end with it too.
    """
    padding, ends = config.pad_token_id, config.eos_token_id
    given = attention_mask is not None or input_ids is None
    if given or padding is None or padding in (ends if isinstance(ends, list) else [ends]):
        return attention_mask
    if input_ids.is_meta:  # which has no values to read
        return None
    return (input_ids != padding).long()


def shift_right(config, tokens: torch.LongTensor) -> torch.LongTensor:
    """`(batch, length)` labels, or ids, to what a decoder reads that is to predict them: each sees those before it.

    The first is `config.decoder_start_token_id`, or the last real one of `tokens` (`config.start_with_last_token`).

    Raises:
        ValueError: where the configuration lacks an id that is needed, or for another shape.
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
