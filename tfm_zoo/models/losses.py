"""Losses over a vocabulary: only labelled positions are projected, and few at a time."""

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from .layout import is_traced

IGNORED = -100  # the label of a position that has none
CHUNK = 512  # tokens projected at a time: as fast as all at once on a CPU, with little memory
FEW = 1 << 18  # up to so many logits are made at once


def next_tokens(
    model: nn.Module,
    hidden_states: torch.Tensor,
    labels: torch.LongTensor | None,
    logits_to_keep: int | torch.Tensor,
    num_items_in_batch: int | torch.Tensor | None,
    return_logits: bool | None,
) -> tuple[torch.Tensor | None, torch.Tensor | None]:
    """The loss and the logits of `model.lm_head`, each `None` if not asked for.

    Args:
        hidden_states: `(batch, length, hidden_size)`.
        labels: `(batch, length)`, what each position is to predict.
        logits_to_keep, num_items_in_batch, return_logits: see [`TfmGPTForCausalLM`].
    """
    if return_logits is None:
        return_logits = not (model.training and labels is not None)
    logits = model.lm_head(select_positions(hidden_states, logits_to_keep)) if return_logits else None
    if labels is None:
        return None, logits
    if isinstance(logits_to_keep, int) and logits is not None and logits.shape[:-1] == labels.shape:
        return logits_loss(logits, labels, num_items_in_batch), logits
    states, targets = labelled_only(hidden_states, labels)
    return vocabulary_loss(states, model.lm_head, targets, num_items_in_batch), logits


def labelled_only(hidden_states: torch.Tensor, labels: torch.LongTensor) -> tuple[torch.Tensor, torch.LongTensor]:
    """Hidden states `(tokens, hidden_size)` and labels `(tokens,)` of labelled tokens; in a graph, whose sizes cannot
    depend on values, of all."""
    states, targets = hidden_states.flatten(0, 1), labels.flatten().to(hidden_states.device)
    if is_traced(labels):
        return states, targets
    labelled = (targets != IGNORED).nonzero().flatten()
    return states.index_select(0, labelled), targets.index_select(0, labelled)


def select_positions(hidden_states: torch.Tensor, logits_to_keep: int | torch.Tensor) -> torch.Tensor:
    """The hidden states to make logits of; see [`TfmGPTForCausalLM`]."""
    if isinstance(logits_to_keep, int):
        return hidden_states[:, -logits_to_keep:]
    if logits_to_keep.dim() == 1:
        return hidden_states[:, logits_to_keep]
    if logits_to_keep.dtype == torch.bool:
        return hidden_states[logits_to_keep]
    return hidden_states.take_along_dim(logits_to_keep[..., None], dim=1)


def logits_loss(
    logits: torch.Tensor, labels: torch.LongTensor, num_items: int | torch.Tensor | None = None
) -> torch.Tensor:
    """[`vocabulary_loss`] of logits `(batch, length, vocab_size)` that have been made."""
    labels = labels.flatten().to(logits.device)
    loss = F.cross_entropy(logits.flatten(0, 1).float(), labels, reduction="sum")
    return loss / ((labels != IGNORED).sum() if num_items is None else num_items)


def vocabulary_loss(
    hidden_states: torch.Tensor,
    lm_head: nn.Module,
    labels: torch.LongTensor,
    num_items: int | torch.Tensor | None = None,
) -> torch.Tensor:
    """Cross-entropy of `lm_head(hidden_states)`, without holding all logits at once; nan without any label.

    Args:
        hidden_states: `(tokens, hidden_size)`.
        lm_head: projection onto the vocabulary.
        labels: `(tokens,)`, -100 where there is none.
        num_items: divisor of the summed loss, for a step of several batches. `None`: the number of labels.
    """
    labels = labels.to(hidden_states.device)
    if labels.numel() * getattr(lm_head, "out_features", FEW) <= FEW or is_traced(labels):
        loss = summed_loss(lm_head, hidden_states, labels)
    elif can_fuse(lm_head, hidden_states):
        options = nn.LinearCrossEntropyOptions(batch_chunk_size=CHUNK, chunking_method=None)
        projection = (hidden_states, lm_head.weight, labels)
        loss = F.linear_cross_entropy(*projection, linear_bias=lm_head.bias, reduction="sum", options=options)
    else:
        chunks = zip(hidden_states.split(CHUNK), labels.split(CHUNK), strict=True)
        loss = sum(checkpoint(summed_loss, lm_head, *chunk, use_reentrant=False) for chunk in chunks)
    return loss / ((labels != IGNORED).sum() if num_items is None else num_items)


def summed_loss(lm_head: nn.Module, hidden_states: torch.Tensor, labels: torch.LongTensor) -> torch.Tensor:
    """The summed loss of a chunk, in float32."""
    return F.cross_entropy(lm_head(hidden_states).float(), labels, reduction="sum")


def can_fuse(lm_head: nn.Module, hidden_states: torch.Tensor) -> bool:
    """Whether torch's own chunked loss (2.13 and later) gives what calling `lm_head` would.

    It reads the weight and does not call the module, so that it would skip an adapter, a quantised layer or a hook
    (offloading, sharding). It ignores autocast, and sums in the type of its input.
    """
    if not hasattr(F, "linear_cross_entropy") or hidden_states.dtype not in (torch.float32, torch.float64):
        return False
    is_linear = isinstance(lm_head, nn.Linear) and type(lm_head).forward is nn.Linear.forward
    if not is_linear or "forward" in vars(lm_head) or type(lm_head.weight) is not nn.Parameter:
        return False
    has_hooks = lm_head._forward_hooks or lm_head._forward_pre_hooks
    return not has_hooks and not torch.is_autocast_enabled(lm_head.weight.device.type)
