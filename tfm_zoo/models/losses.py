"""Losses over a vocabulary: unless logits are asked for, only labelled positions are projected, and few at a time.

`model` is a language model: `head`, some layers or `None`, and `lm_head`, the projection.
"""

import torch
from torch import nn
from torch.nn import functional as F

from .batch import IGNORED, has_hooks, is_traced, need_gradient
from .kernels import soft_capped

VOCABULARY = "the vocabulary (vocab_size)"  # as errors call it
WIDE = 1 << 18  # the vocabulary of a projection that does not say how large it is
CHUNK = 512  # tokens projected at a time: as fast as all at once on a CPU, with little memory
FEW = 1 << 18  # if all logits are no more than this, they are made in one call, without chunks
MANY = 1 << 26  # the most logits in a chunk
SHARDED = ("placements", "ds_tensor")  # attributes of a parameter that processes divide: FSDP2, ZeRO-3


def makes_logits(model: nn.Module, labels: torch.LongTensor | None, return_logits: bool | None) -> bool:
    """Whether logits are made, and not only a loss of the labelled positions."""
    if return_logits is None:
        return_logits = not (model.training and labels is not None)
    return return_logits or has_hooks(model.lm_head, model.head)  # hooks see every position


def states_to_read(has_label: torch.BoolTensor | None, with_logits: bool) -> torch.BoolTensor | None:
    """The `read_positions` of a decoder for labels `(batch, length)`: tokens behind a row's last label, such as
    padding, need not be computed. If logits are made besides, all positions are read. (`None` would not say so: a
    decoder that trains takes it for the real tokens.)"""
    return torch.ones_like(has_label) if with_logits and has_label is not None else has_label


def vocabulary_outputs(model, states, labels, with_logits: bool, num_items=None, logits_to_keep=0) -> tuple:
    """The loss and the logits of states `(batch, length, width)`, by `model.head` and `model.lm_head`; `None` if
    not asked for. `with_logits` is what [`makes_logits`] says. Other options are those of [`TfmGPTForCausalLM`]."""
    softcap, head = getattr(model.config, "final_logit_softcapping", None), model.head or (lambda given: given)
    if not with_logits:
        if labels is None:
            return None, None
        states, labels = labelled_only(states, labels)
        return vocabulary_loss(head(states), model.lm_head, labels, num_items, softcap), None
    states, loss = head(states), None
    logits = soft_capped(model.lm_head(select_positions(states, logits_to_keep)), softcap)
    # (Equal shapes say nothing if a tensor has chosen the positions: they may stand in another order.)
    if labels is not None and isinstance(logits_to_keep, int) and logits.shape[:-1] == labels.shape:
        loss = logits_loss(logits.flatten(0, 1), labels.flatten(), num_items)
    elif labels is not None:
        states, targets = labelled_only(states, labels)
        loss = vocabulary_loss(states, model.lm_head, targets, num_items, softcap)
    return loss, logits


def select_positions(hidden_states: torch.Tensor, logits_to_keep: int | torch.Tensor) -> torch.Tensor:
    """The hidden states to make logits of; see [`TfmGPTForCausalLM`]."""
    if isinstance(logits_to_keep, int):
        return hidden_states[:, -logits_to_keep:] if logits_to_keep else hidden_states
    if logits_to_keep.dim() == 1:
        return hidden_states[:, logits_to_keep]
    if logits_to_keep.dtype == torch.bool:
        return hidden_states[logits_to_keep]
    return hidden_states.take_along_dim(logits_to_keep[..., None], dim=1)


def labelled_only(hidden_states: torch.Tensor, labels: torch.LongTensor) -> tuple[torch.Tensor, torch.LongTensor]:
    """Hidden states (or logits) `(batch, length, width)` and labels `(batch, length)` to those of labelled tokens,
    `(tokens, width)` and `(tokens,)`; of all tokens in a graph, whose sizes cannot depend on values."""
    states, targets = hidden_states.flatten(0, 1), labels.flatten().to(hidden_states.device)
    if is_traced(labels):
        return states, targets
    places = (targets != IGNORED).nonzero().flatten()
    return states.index_select(0, places), targets.index_select(0, places)


def vocabulary_loss(
    states: torch.Tensor, lm_head: nn.Module, labels: torch.Tensor, num_items=None, softcap: float | None = None
) -> torch.Tensor:
    """Cross-entropy of `lm_head(states)`, for states `(tokens, hidden_size)` and labels `(tokens,)`; nan without any
    label. Few logits are held at once (all in a graph, or if processes share `lm_head`). `num_items` divides the summed
    loss, for a step of several batches. `None`: the number of labels."""
    vocabulary = getattr(lm_head, "out_features", WIDE)  # (a stand-in for a projection may lack it)
    chunk = min(CHUNK, max(1, MANY // vocabulary))
    # Each call of a divided layer gathers its parts from all processes, so all processes must call it equally often.
    if labels.numel() * vocabulary <= FEW or is_traced(states) or is_divided(lm_head):
        return logits_loss(soft_capped(lm_head(states), softcap), labels, num_items)
    if need_gradient(states, *lm_head.parameters()):
        learned = [parameter for parameter in lm_head.parameters() if parameter.requires_grad]
        loss = ChunkedLoss.apply(lm_head, labels, softcap, chunk, states, *learned)
    else:
        chunks = zip(states.split(chunk), labels.split(chunk), strict=True)
        loss = sum(logits_loss(soft_capped(lm_head(part), softcap), targets, num_items=1) for part, targets in chunks)
    return per_label(loss, labels, num_items)


class ChunkedLoss(torch.autograd.Function):
    """The summed loss of all chunks. A chunk's gradients are computed beside its loss, and kept, not its logits."""

    @staticmethod
    def forward(ctx, lm_head, labels: torch.LongTensor, softcap: float | None, chunk: int, states, *learned):
        """`learned` are parameters of `lm_head`."""
        total, state_gradients, parameter_gradients = torch.zeros((), device=states.device), [], [None] * len(learned)
        for part, targets in zip(states.split(chunk), labels.split(chunk), strict=True):
            with torch.enable_grad():
                part = part.detach().requires_grad_()
                logits = soft_capped(lm_head(part), softcap)
            # (Where `.float()` copies nothing, this overwrites `logits`, which no backward pass reads.)
            loss, of_logits = loss_and_gradient(logits.detach().float(), targets)
            total += loss
            of_part, *new = torch.autograd.grad(logits, (part, *learned), of_logits.to(logits), allow_unused=True)
            state_gradients.append(of_part)
            pairs = zip(parameter_gradients, new, strict=True)
            parameter_gradients = [each if so_far is None else so_far.add_(each) for so_far, each in pairs]
            del new, pairs  # or they would stand beside those of the next chunk
        ctx.gradients = [torch.cat(state_gradients), *parameter_gradients]
        return total

    @staticmethod
    def backward(ctx, gradient: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        if torch.is_grad_enabled() or ctx.gradients is None:
            raise RuntimeError("A loss in chunks cannot be differentiated twice: give the model return_logits=True.")
        gradients, ctx.gradients = ctx.gradients, None  # they are changed in place
        return None, None, None, None, *(None if each is None else each.mul_(gradient) for each in gradients)


def loss_and_gradient(logits: torch.Tensor, labels: torch.LongTensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The summed loss of logits `(tokens, vocabulary)` in float32, and its gradient, written over the logits."""
    labels, has_label = labels.clamp(min=0).unsqueeze(1), (labels != IGNORED).unsqueeze(1)
    logits.sub_(logits.amax(dim=1, keepdim=True))
    wanted = logits.gather(1, labels)
    sums = logits.exp_().sum(dim=1, keepdim=True)
    logits.mul_(has_label / sums).scatter_add_(1, labels, -has_label.to(logits))
    return (sums.log() - wanted).where(has_label, 0).sum(), logits


def logits_loss(logits: torch.Tensor, labels: torch.LongTensor, num_items: int | torch.Tensor | None) -> torch.Tensor:
    """[`vocabulary_loss`] from logits `(tokens, vocab_size)` that have been made; summed with `num_items=1`."""
    labels = labels.to(logits.device)
    return per_label(F.cross_entropy(logits.float(), labels, reduction="sum"), labels, num_items)


def per_label(loss: torch.Tensor, labels: torch.LongTensor, num_items: int | torch.Tensor | None) -> torch.Tensor:
    """A summed loss, divided by `num_items`, which may lie on another device, or by the number of labels."""
    count = (labels != IGNORED).sum() if num_items is None else num_items
    return loss / (count.to(loss.device) if isinstance(count, torch.Tensor) else count)


def is_divided(layer: nn.Module) -> bool:
    """Whether processes share a layer's parameters: with FSDP, ZeRO-3 and tensor parallelism."""
    marked = any(hasattr(parameter, mark) for parameter in layer.parameters(recurse=False) for mark in SHARDED)
    return marked or type(layer).__module__.startswith("torch.distributed")  # FSDP2 may have gathered them just now
