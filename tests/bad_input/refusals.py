"""Inputs of two sequences, cases that are to be refused, and how a refusal is checked."""

import re

import pytest
import torch

IDS = torch.arange(1, 15).view(2, 7)
ONES = torch.ones_like(IDS)
MASK = (torch.arange(7) < torch.tensor([[7], [4]])).long()
SENTENCES = IDS[:, 1]  # 2 and 9, where there are two classes


def refused(message: str, head: str | None = None, **values):
    """A case: what `head` refuses of these inputs or fields, and what the error says (a regular expression)."""
    return pytest.param(
        values, message, *filter(None, [head]), id="-".join(filter(None, [head, *values, message[:30]]))
    )


def assert_refused(model, inputs: dict, message: str) -> None:
    """No module is run before the refusal, but those that only hand their inputs on to be checked."""
    computed, checking = [], {"TfmEncoderDecoderModel", "TfmEncoderStack", "TfmDecoderStack", "TfmGPTModel"}
    for module in model.modules():
        module.register_forward_pre_hook(lambda module, args: computed.append(module) if module is not model else None)
    with pytest.raises(ValueError) as error:
        model(**inputs)
    assert re.search(message, str(error.value), flags=re.DOTALL), error.value
    assert {type(module).__name__ for module in computed} <= checking, "work was done before the refusal"
