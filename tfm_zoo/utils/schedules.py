"""Learning-rate schedules by name: those of transformers, and that of *Attention Is All You Need*."""

from typing import Any

from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR, LRScheduler
from transformers import get_scheduler

#: those of transformers that need to know no more than the warm-up and the number of steps; and "noam"
SCHEDULES = (
    "linear",
    "cosine",
    "cosine_with_restarts",
    "polynomial",
    "constant",
    "constant_with_warmup",
    "inverse_sqrt",
    "warmup_stable_decay",
    "noam",
)

#: share of the steps, if the warm-up leaves so many, in which "warmup_stable_decay" falls (Hägele et al. 2024)
DECAY = 0.2


def create_schedule(
    name: str, optimizer: Optimizer, warmup_steps: int, total_steps: int, hidden_size: int, **more: Any
) -> LRScheduler:
    """The schedule of this name. `hidden_size`, the width of the model, scales "noam" and no other; transformers' take
    `more` arguments of their own.

    Raises:
        ValueError: for an argument that the schedule does not take.
    """
    try:
        if name == "noam":
            return noam_schedule(optimizer, hidden_size, warmup_steps, **more)
        decay_steps = max(0, min(int(DECAY * total_steps), total_steps - warmup_steps))
        own = {"num_decay_steps": decay_steps, "decay_type": "1-sqrt"} if name == "warmup_stable_decay" else {}
        return get_scheduler(name, optimizer, warmup_steps, total_steps, own | more)
    except TypeError as error:
        raise ValueError(f"lr_scheduler_kwargs {more} for {name!r}: {error}") from error


def noam_schedule(optimizer: Optimizer, hidden_size: int, warmup_steps: int) -> LambdaLR:
    """The schedule of *Attention Is All You Need* (section 5.3), which counts steps from 1:

        lr(step) = hidden_size**-0.5 * min(step**-0.5, step * warmup_steps**-1.5)

    The rate rises linearly to `(hidden_size * warmup_steps)**-0.5` and then falls with the inverse square root of the
    step. The optimiser's own learning rate multiplies it; the paper's is 1. (transformers' "inverse_sqrt" has the same
    shape, but rises from 0 to the optimiser's learning rate.)
    """
    warmup_steps = max(1, warmup_steps)  # without a warm-up, the first step has the highest rate

    def rate(steps_done: int) -> float:
        step = steps_done + 1
        return hidden_size**-0.5 * min(step**-0.5, step * warmup_steps**-1.5)

    return LambdaLR(optimizer, rate)
