"""Labels, refused where they do not fit. Losses of classes, of answers and over a vocabulary, where only labelled
positions are projected, and few at a time."""

import math

import torch
from torch import nn
from torch.nn import functional as F

from .inputs import IGNORED, check_tensor, check_values, is_traced
from .kernels import soft_capped
from .padding import has_hooks

VOCABULARY = "the vocabulary (vocab_size)"
CHUNK = 512  # tokens projected at a time: as fast as all at once on a CPU, with little memory
FEW = 1 << 18  # up to this many logits are made at once
MANY = 1 << 26  # the most logits in a chunk
SHARDED = ("placements", "ds_tensor")  # attributes of a parameter that processes divide: FSDP2, ZeRO-3


def check_classes(config, tokens: torch.Tensor, labels: torch.Tensor | None) -> None:
    """Raises a `ValueError` unless `labels` are values, or one class each, of the sequences `(batch, length, ...)`, or
    of several classes whether each applies."""
    check_tensor("labels", labels)
    if labels is None:
        return
    batch, classes, problem = tokens.shape[:1], config.num_labels, config.problem_type
    if problem == "multi_label_classification":
        check_labels(labels, (*batch, classes), inputs="(batch, num_labels)")
        check_values("labels", None if labels.is_floating_point() else labels, 2, f"the two marks of {problem}")
    elif labels.is_floating_point() or problem == "regression" or classes == 1:
        check_labels(labels, batch)
    else:
        several = "the inputs (for several classes of each, set problem_type='multi_label_classification')"
        check_labels(labels, batch, classes, inputs=several)


def check_labels(
    labels: torch.Tensor | None,
    shape: tuple[int, ...],
    classes: int | None = None,
    table: str = "the classes (num_labels)",
    name: str = "labels",
    inputs: str = "the inputs",
) -> None:
    """Raises a `ValueError` unless labels are of `shape`, each -100 or less than `classes`. With `classes=None` they
    may have any value, and more dimensions.

    `table`, `name` and `inputs` name the classes, the labels and what has that `shape` in the message.
    """
    check_tensor(name, labels)
    if labels is None:
        return
    is_one_each = classes is None or labels.numel() == math.prod(shape)
    if labels.shape[: len(shape)] != shape or not is_one_each:
        raise ValueError(f"{name} of shape {tuple(labels.shape)} should be of shape {tuple(shape)}, as {inputs}.")
    if classes is not None:
        check_values(name, labels, classes, table, ignored=IGNORED)


def check_answers(given: torch.Tensor, *ends: torch.LongTensor | None) -> torch.BoolTensor:
    """Raises a `ValueError` unless the first and the last positions of answers are one each for the inputs. Returns
    where answers are looked for, `(batch, length)`: everywhere."""
    for name, each in zip(("start_positions", "end_positions"), ends, strict=True):
        check_labels(each, given.shape[:1], name=name)
    return given.new_ones(given.shape[:2], dtype=torch.bool)


def sequence_loss(model: nn.Module, logits: torch.Tensor, labels: torch.Tensor | None) -> torch.Tensor | None:
    """The loss of a classifier's `logits` `(batch, num_labels)`, which reads values and marks as floats."""
    if labels is None:
        return None
    problem = model.config.problem_type or ("regression" if model.config.num_labels == 1 else None)
    if problem in ("regression", "multi_label_classification") and not labels.is_floating_point():
        labels = labels.float()
    return model.loss_function(labels=labels, pooled_logits=logits, config=model.config)


def token_loss(
    model: nn.Module, logits: torch.Tensor, labels: torch.Tensor | None, num_items: int | torch.Tensor | None
) -> torch.Tensor | None:
    """The loss of a classifier of tokens, whose `logits` are `(batch, length, num_labels)`."""
    if labels is None:
        return None
    return model.loss_function(logits, labels, config=model.config, num_items_in_batch=num_items)


def labelled(labels: torch.LongTensor | None) -> torch.BoolTensor | None:
    """`(batch, length)`, true where there is a label; `None` without labels."""
    return None if labels is None else labels != IGNORED


def makes_logits(model: nn.Module, labels: torch.LongTensor | None, return_logits: bool | None) -> bool:
    """Whether logits are made, of positions without labels too."""
    if return_logits is None:
        return_logits = not (model.training and labels is not None)
    return return_logits or has_hooks(model.lm_head, getattr(model, "head", None))  # hooks see every position


def labelled_only(hidden_states: torch.Tensor, labels: torch.LongTensor) -> tuple[torch.Tensor, torch.LongTensor]:
    """Hidden states (or logits) `(tokens, width)` and labels `(tokens,)` of labelled tokens; of all tokens in a graph,
    whose sizes cannot depend on values."""
    states, targets = hidden_states.flatten(0, 1), labels.flatten().to(hidden_states.device)
    if is_traced(labels):
        return states, targets
    places = labelled(targets).nonzero().flatten()
    return states.index_select(0, places), targets.index_select(0, places)


def vocabulary_loss(
    states: torch.Tensor, lm_head: nn.Module, labels: torch.Tensor, num_items=None, softcap: float | None = None
) -> torch.Tensor:
    """Cross-entropy of `lm_head(states)`, without holding all logits at once unless processes share `lm_head`
    ([`is_divided`]); nan without any label.

    Args:
        states: `(tokens, hidden_size)`.
        lm_head: projection onto the vocabulary.
        labels: `(tokens,)`, -100 where there is no label.
        num_items: divisor of the summed loss, for a step of several batches. `None`: the number of labels.
        softcap: logits become `softcap * tanh(logits / softcap)`.
    """
    vocabulary = getattr(lm_head, "out_features", FEW)  # one of unknown width is taken for a wide one
    chunk = min(CHUNK, max(1, MANY // vocabulary))
    # Each call of a divided layer gathers its parts from all processes, so all processes must call it equally often.
    if labels.numel() * vocabulary <= FEW or is_traced(states) or is_divided(lm_head):
        return logits_loss(soft_capped(lm_head(states), softcap), labels, num_items)
    if torch.is_grad_enabled():
        loss = ChunkedLoss.apply(lm_head, labels, softcap, chunk, states, *lm_head.parameters())
    else:
        chunks = zip(states.split(chunk), labels.split(chunk), strict=True)
        loss = sum(logits_loss(soft_capped(lm_head(part), softcap), targets, num_items=1) for part, targets in chunks)
    return per_label(loss, labels, num_items)


class ChunkedLoss(torch.autograd.Function):
    """The summed loss of all chunks. Each chunk's gradients are computed beside its loss, and kept in place of its
    logits, which would else be computed a second time."""

    @staticmethod
    def forward(ctx, lm_head: nn.Module, labels: torch.LongTensor, softcap: float | None, chunk: int, *inputs):
        """`inputs` are the hidden states, then the parameters of `lm_head`."""
        (states, *parameters), ctx.needed = inputs, ctx.needs_input_grad[-len(inputs) :]
        learned = [parameter for parameter, needed in zip(parameters, ctx.needed[1:], strict=True) if needed]
        total, of_states, of_parameters = torch.zeros((), device=states.device), [], [None] * len(learned)
        for part, targets in zip(states.split(chunk), labels.split(chunk), strict=True):
            with torch.set_grad_enabled(any(ctx.needed)):
                part = part.detach().requires_grad_()
                logits = soft_capped(lm_head(part), softcap)
            loss, of_logits = loss_and_gradient(logits.detach().float(), targets)  # in place: a layer keeps no output
            total += loss
            if any(ctx.needed):
                of_logits = of_logits.to(logits.dtype)
                gradient, *gradients = torch.autograd.grad(logits, (part, *learned), of_logits, allow_unused=True)
                of_states.append(gradient)
                sums = zip(of_parameters, gradients, strict=True)
                of_parameters = [new if old is None else old.add_(new) for old, new in sums]
                del gradients, sums  # or they would stand beside those of the next chunk
        ctx.gradients = [torch.cat(of_states), *of_parameters] if of_states else []
        return total

    @staticmethod
    def backward(ctx, gradient: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        if torch.is_grad_enabled() or ctx.gradients is None:
            raise RuntimeError(
                "A loss that is computed in chunks cannot be differentiated twice: call the model with "
                "return_logits=True, and it is computed from all logits."
            )
        of_states, *of_parameters = ctx.gradients
        ctx.gradients = None  # they are changed in place
        scaled = iter([None if each is None else each.mul_(gradient) for each in of_parameters])
        rest = [next(scaled) if needed else None for needed in ctx.needed[1:]]
        return None, None, None, None, of_states.mul_(gradient) if ctx.needed[0] else None, *rest


def loss_and_gradient(logits: torch.Tensor, labels: torch.LongTensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The summed loss of logits `(tokens, vocabulary)` in float32, and its gradient, which takes their place."""
    labels, has_label = labels.clamp(min=0).unsqueeze(1), (labels != IGNORED).unsqueeze(1)
    logits.sub_(logits.amax(dim=1, keepdim=True))
    wanted = logits.gather(1, labels)
    sums = logits.exp_().sum(dim=1, keepdim=True)
    logits.mul_(has_label / sums).scatter_add_(1, labels, -has_label.to(logits))
    return (sums.log() - wanted).where(has_label, 0).sum(), logits


def logits_loss(logits: torch.Tensor, labels: torch.LongTensor, num_items: int | torch.Tensor | None) -> torch.Tensor:
    """[`vocabulary_loss`] of logits `(tokens, vocab_size)` that have been made."""
    labels = labels.to(logits.device)
    return per_label(F.cross_entropy(logits.float(), labels, reduction="sum"), labels, num_items)


def per_label(loss: torch.Tensor, labels: torch.LongTensor, num_items: int | torch.Tensor | None) -> torch.Tensor:
    """A summed loss, divided by `num_items`, which may lie on another device, or by the number of labels."""
    count = (labels != IGNORED).sum() if num_items is None else num_items
    return loss / (count.to(loss.device) if isinstance(count, torch.Tensor) else count)


def answers(model: nn.Module, scores: torch.Tensor, *ends: torch.LongTensor | None) -> dict[str, torch.Tensor | None]:
    """`start_logits` and `end_logits` `(batch, length)` of scores `(batch, length, 2)`, and the loss of the answers:
    `ends` are the first and the last positions `(batch,)`."""
    start_logits, end_logits = (each.squeeze(-1).contiguous() for each in scores.split(1, dim=-1))
    loss = model.loss_function(start_logits, end_logits, *ends)
    return {"loss": loss, "start_logits": start_logits, "end_logits": end_logits}


def is_divided(layer: nn.Module) -> bool:
    """Whether processes gather a layer's parameters for each of its calls: with FSDP, ZeRO-3 and tensor parallelism."""
    marked = any(hasattr(parameter, mark) for parameter in layer.parameters(recurse=False) for mark in SHARDED)
    return marked or type(layer).__module__.startswith("torch.distributed")  # FSDP2 may have gathered them just now
