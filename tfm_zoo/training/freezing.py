"""What of a model learns: not what is frozen by name, and not yet what waits until the head has settled."""

import difflib
from collections.abc import Sequence
from fnmatch import fnmatchcase
from itertools import combinations

from transformers import PreTrainedModel

from tfm_zoo.training.depths import depths


def freeze_base_model(model: PreTrainedModel, frozen: bool = True) -> None:
    """Freeze the model's body, so that only its head learns; `frozen=False` lets everything learn again.

    The pooler stays trainable: it is part of the base model by name, but it serves the head, and in RoBERTa and
    DistilBERT checkpoints it is as new as the classifier.
    """
    for name, parameter in model.base_model.named_parameters():
        parameter.requires_grad_(not frozen or name.startswith("pooler."))


def freeze(model: PreTrainedModel, patterns: Sequence[str]) -> None:
    """Freeze the parameters that shell patterns name.

    A pattern means whole parts of a dotted name, wherever they stand in it: `embeddings` all that is in the
    embeddings, `layers.[0-3]` the first four layers of each stack, `encoder.layers.*.mlp`, `*norm`. A weight that is
    tied to another is frozen by either name.

    Raises:
        ValueError: if a pattern names nothing, with names that are near; if nothing is left to learn.
    """
    named = list(model.named_parameters(remove_duplicate=False))
    for pattern in patterns:
        frozen = [parameter for name, parameter in named if fnmatchcase(f".{name}.", f"*.{pattern}.*")]
        if not frozen:
            near = _near(pattern, [name for name, _ in named])
            raise ValueError(f"freeze {pattern!r}: {type(model).__name__} has no parameter of that name; near: {near}")
        for parameter in frozen:
            parameter.requires_grad_(False)
    if not any(parameter.requires_grad for _, parameter in named):
        raise ValueError(f"freeze {list(patterns)}: nothing is left to learn")


def _near(pattern: str, names: Sequence[str]) -> list[str]:
    parts = (name.split(".") for name in names)
    known = {".".join(part[start:end]) for part in parts for start, end in combinations(range(len(part) + 1), 2)}
    return difflib.get_close_matches(pattern.removesuffix(".*"), sorted(known), n=3, cutoff=0)


class GradualUnfreezing:
    """Lets a model learn from the head downwards: first the head, then one layer more at a time, the embeddings last.

    From ULMFiT (Howard & Ruder 2018). What is frozen when this is made stays frozen.

    Args:
        every: after how many steps a layer more learns, or "epoch".
    """

    def __init__(self, model: PreTrainedModel, every: str):
        self.every, self.stage = every, -1
        depth_of = depths(model)
        self.parameters = [(p, depth_of[name]) for name, p in model.named_parameters() if p.requires_grad]
        # A head that is tied to the embeddings lies with them, and the norm that is left would learn next to nothing.
        first = min((depth for p, depth in self.parameters if p.ndim >= 2), default=0)
        self.stages = sorted({max(depth, first) for _, depth in self.parameters})  # the depth that each reaches

    def advance(self, epoch: int, step: int) -> bool:
        """Let learn what shall after so many epochs and steps; whether that is not what learnt before."""
        stage = min(epoch if self.every == "epoch" else step // int(self.every), len(self.stages) - 1)
        if stage == self.stage:
            return False
        self.stage = stage
        for parameter, depth in self.parameters:
            parameter.requires_grad_(depth <= self.stages[stage])
        return True


def what_learns(model: PreTrainedModel) -> str:
    """How many parameters learn now, for the log."""
    return f"{model.num_parameters(only_trainable=True):,} of {model.num_parameters():,} parameters learn"
