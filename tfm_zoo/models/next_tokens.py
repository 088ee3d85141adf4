"""Which tokens of a decoder are read, and the loss and the logits of its language-modelling head."""

import torch

from .decoder_entrance import needed_up_to
from .inputs import IGNORED, marks_padding
from .kernels import soft_capped
from .losses import labelled_only, logits_loss, makes_logits, vocabulary_loss
from .padding import find_kept, has_hooks, keep, restore, unless_whole


def next_tokens(
    model, states: torch.Tensor, labels, logits_to_keep, num_items, return_logits: bool | None, read_positions=None
) -> tuple[torch.Tensor | None, torch.Tensor | None]:
    """The loss and the logits of `model.lm_head`, after `model.head`, each `None` if not asked for.

    Args:
        states: `(batch, length, hidden_size)`.
        labels: `(batch, length)`, what each position is to predict.
        logits_to_keep, num_items, return_logits: see [`TfmGPTForCausalLM`].
        read_positions: `(batch, length)`; behind the last true one of a row, logits are zero. `None`: all are made.
    """
    if model.head is not None:
        states = model.head(states)
    softcap, logits, kept = model.config.final_logit_softcapping, None, None
    if makes_logits(model, labels, return_logits):
        # (Whoever chooses some by `logits_to_keep` reads all: see [`positions_to_read`].)
        kept = None if read_positions is None else unless_whole(find_kept(*needed_up_to(read_positions)))
        if kept is not None:
            states, labels = keep(states, kept), keep(labels, kept)
        logits = soft_capped(model.lm_head(select_positions(states, logits_to_keep)), softcap)
    if labels is None:
        return None, logits
    if isinstance(logits_to_keep, int) and logits is not None and logits.shape[:-1] == labels.shape:
        loss = logits_loss(logits.flatten(0, 1), labels.flatten(), num_items)
        return loss, logits if kept is None else restore(logits, kept)
    states, targets = labelled_only(states, labels)
    return vocabulary_loss(states, model.lm_head, targets, num_items, softcap=softcap), logits


def positions_to_read(
    model, labels: torch.Tensor, return_logits: bool | None = None, logits_to_keep: int | torch.Tensor = 0, real=None
) -> torch.BoolTensor:
    """Where a language model reads the last hidden state of its base model, `(batch, length)`.

    Args:
        labels: `(batch, length)`, what each position is to predict, -100 where there is nothing.
        return_logits, logits_to_keep: see [`TfmGPTForCausalLM`].
        real: `(batch, length)`, 0 at padding, whose logits may be zero if nobody asks for them. `None`: not known.
    """
    has_label, everywhere = labels != IGNORED, torch.ones_like(labels, dtype=torch.bool)
    if not makes_logits(model, labels, return_logits):
        return has_label
    asks = return_logits or not isinstance(logits_to_keep, int) or logits_to_keep != 0 or has_hooks(model.lm_head)
    # Whoever evaluates with gradients inspects the model, and gets what the official class computes, digit for digit.
    if asks or torch.is_grad_enabled() or not model.config.skip_padding:
        return everywhere
    # A mask that does not fit is refused later.
    return has_label | real.to(labels.device).bool() if getattr(real, "shape", None) == labels.shape else everywhere


def read_states(hidden_states: torch.Tensor, positions: torch.BoolTensor) -> torch.Tensor:
    """`(batch, hidden_size)`, the states at the one true position `(batch, length)` of each row."""
    index = positions.to(hidden_states.device).int().argmax(dim=1)
    return hidden_states[torch.arange(index.shape[0], device=index.device), index]  # `len` would fix it in a graph


def select_positions(hidden_states: torch.Tensor, logits_to_keep: int | torch.Tensor) -> torch.Tensor:
    """The hidden states to make logits of; see [`TfmGPTForCausalLM`]."""
    if isinstance(logits_to_keep, int):
        return hidden_states[:, -logits_to_keep:] if logits_to_keep else hidden_states
    if logits_to_keep.dim() == 1:
        return hidden_states[:, logits_to_keep]
    if logits_to_keep.dtype == torch.bool:
        return hidden_states[logits_to_keep]
    return hidden_states.take_along_dim(logits_to_keep[..., None], dim=1)


def last_tokens(
    config, ids: torch.LongTensor | None, mask: torch.Tensor | None, given: torch.Tensor
) -> torch.BoolTensor:
    """`(batch, length)`, true at the last token that is not `pad_token_id` or, for embeddings and models without that
    id, not masked. `given` are the ids or the embeddings. Raises a `ValueError` if neither says what is padding."""
    batch, length = given.shape[:2]
    if ids is not None and config.pad_token_id is not None:
        real = ids != config.pad_token_id
    elif marks_padding(mask):
        real = mask[:, -length:] != 0
    elif ids is None or batch == 1:
        real = torch.ones((batch, length), dtype=torch.bool, device=given.device)
    else:
        raise ValueError(
            f"Neither attention_mask nor config.pad_token_id says which tokens of the {batch} sequences are padding: "
            "give one of them."
        )
    return only_last(real)


def only_last(positions: torch.BoolTensor) -> torch.BoolTensor:
    """`(batch, length)`: true at the last true one of each row alone; at its first position without one."""
    places = torch.arange(positions.shape[1], device=positions.device)
    return places == (positions * places).argmax(dim=1, keepdim=True)
