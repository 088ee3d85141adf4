"""`speed_up` and `restore`."""

import logging
from typing import TypeVar

from torch import nn

from .finding import Found, find, modules_of
from .standing_in import BaseStandIn, HeadStandIn, StandIn

logger = logging.getLogger(__name__)

Thing = TypeVar("Thing")


def speed_up(model: Thing, dtype: str | None = None, calibrate=None) -> Thing:
    """Makes an official model compute no padding, in place."""
    if calibrate is not None:
        raise ValueError("calibrate")
    found = find(model)
    if not found:
        raise ValueError(f"speed_up found no model that it knows in this {type(model).__name__}.")
    for each in found:
        for head in each.around:
            if not isinstance(vars(head).get("forward"), StandIn):
                head.forward = HeadStandIn(head)
        if each.part and not isinstance(vars(each.holder).get("forward"), StandIn):
            each.holder.forward = HeadStandIn(each.holder)
        each.owner.forward = BaseStandIn(each.owner, each.holder, dtype)
        each.owner.forward.look()
    return model


def restore(model: Thing) -> Thing:
    """Gives a model its official forward back, in place."""
    for module in modules_of(model):
        for each in module.modules():
            stand_in = vars(each).get("forward")
            if isinstance(stand_in, StandIn):
                stand_in.is_on = False
                del each.forward
    return model
