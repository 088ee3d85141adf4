"""Official models, each beside a copy of itself that is sped up, and whether the zoo computed the copy."""

import copy
from contextlib import nullcontext

import torch
from torch.utils.flop_counter import FlopCounterMode
from transformers import PreTrainedModel

from tests.equivalence.comparison import Batch, Pair, target_mask
from tests.official_models import OfficialClass, build_tiny
from tfm_zoo.inference import speed_up
from tfm_zoo.inference.standing_in import BaseStandIn

LENGTHS = [13, 5, 9, 1]


def pair_of(official_class: OfficialClass, **options) -> Pair:
    """An official model, and instead of the zoo's a copy that is sped up."""
    official = build_tiny(official_class, **options)
    if official_class.architecture.variant_of:  # EmbeddingGemma's class, made for decoders, would fill a cache
        official.config.use_cache = False
    return Pair(official_class, official, [speed_up(copy.deepcopy(official))])


def fell_back(model: torch.nn.Module) -> list[str]:
    """Why the official forward has computed, of each part of a model that is sped up."""
    forwards = (vars(module).get("forward") for module in model.modules())
    found = [each for each in forwards if isinstance(each, BaseStandIn)]
    assert found, "nothing has been taken over"
    return sorted({reason for each in found for reason in (each.reason, *each.said)} - {None})


class Untracked(nullcontext):
    """Counts operations, whichever module they are of."""

    parents = frozenset({"Global"})

    def __enter__(self):
        return self


def operations(model: PreTrainedModel, run) -> tuple[int, object]:
    """How many floating-point operations `run(model)` takes, and what it returns."""
    counter = FlopCounterMode(display=False)
    counter.mod_tracker = Untracked()  # torch's own fails where a parameter is an argument, as in DeBERTa
    with counter:
        result = run(model)
    return counter.get_total_flops(), result


def share_of(batch: Batch, official_class: OfficialClass) -> float:
    """The share of a batch's tokens that are not padding; of both sides, that of the side with more padding last."""
    masks = [batch["attention_mask"], *([target_mask(batch)] if official_class.is_encoder_decoder else [])]
    return max(mask.float().mean().item() for mask in masks)
