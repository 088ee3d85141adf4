"""Losses over a vocabulary that is never projected onto where nobody reads the result."""

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from .inputs import IGNORED
from .unpadding import is_traced

CHUNK = 512  # tokens projected at a time: as fast as all at once on a CPU, with little memory


def labelled_only(hidden_states: torch.Tensor, labels: torch.LongTensor) -> tuple[torch.Tensor, torch.LongTensor]:
    """`(batch, length, hidden_size)` and labels `(batch, length)` to `(tokens, hidden_size)` and `(tokens,)`: of the
    labelled tokens, or of all while a graph is made, in which their number cannot depend on values."""
    states, targets = hidden_states.flatten(0, 1), labels.flatten().to(hidden_states.device)
    if is_traced(labels):
        return states, targets
    labelled = (targets != IGNORED).nonzero().flatten()
    return states.index_select(0, labelled), targets.index_select(0, labelled)


def select_positions(hidden_states: torch.Tensor, logits_to_keep: int | torch.Tensor) -> torch.Tensor:
    """The positions of `(batch, length, hidden_size)` that logits are wanted for; see [`TfmGPTForCausalLM`]."""
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
    """[`vocabulary_loss`] where the logits `(batch, length, vocab_size)` are there anyway."""
    labels = labels.flatten().to(logits.device)
    loss = F.cross_entropy(logits.flatten(0, 1).float(), labels, reduction="sum")
    return loss / ((labels != IGNORED).sum() if num_items is None else num_items)


def vocabulary_loss(
    hidden_states: torch.Tensor,
    lm_head: nn.Module,
    labels: torch.LongTensor,
    num_items: int | torch.Tensor | None = None,
) -> torch.Tensor:
    """Cross-entropy of `lm_head(hidden_states)`, without ever holding all those logits.

    Args:
        hidden_states: `(tokens, hidden_size)`; best those of labelled tokens only.
        lm_head: projection onto the vocabulary.
        labels: `(tokens,)`, -100 where there is none.
        num_items: what the sum is divided by, where a step is made of several batches. `None`: the mean.

    Returns:
        A scalar; nan for the mean over no token, as `torch.nn.functional.cross_entropy` gives.
    """
    labels = labels.to(hidden_states.device)
    if labels.numel() == 0 or is_traced(labels):
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
    """The sum over a chunk, in float32 whatever the model's type; its logits are made again when gradients are."""
    return F.cross_entropy(lm_head(hidden_states).float(), labels, reduction="sum")


def can_fuse(lm_head: nn.Module, hidden_states: torch.Tensor) -> bool:
    """Whether torch's own chunked loss (2.13 and later) gives what calling `lm_head` would.

    It reads the weight by itself, so that an adapter, a quantised layer or a hook (offloading, sharding) would be
    passed by; it does not take part in autocast, and sums in the type it is given.
    """
    if not hasattr(F, "linear_cross_entropy") or hidden_states.dtype not in (torch.float32, torch.float64):
        return False
    plain = type(lm_head) is nn.Linear and type(lm_head.weight) is nn.Parameter and "forward" not in vars(lm_head)
    hooked = lm_head._forward_hooks or lm_head._forward_pre_hooks
    return plain and not hooked and not torch.is_autocast_enabled(lm_head.weight.device.type)
