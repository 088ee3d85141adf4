"""How often a GPU would be waited for: once a batch on each side, in no layer, and in no decoding step.

Every read of a value on the host, and every tensor whose size follows from values, waits for the device. Here they are
counted on a CPU, where the way of a GPU is taken: its kernel is written out, and what only a CPU asks is not asked.
"""

from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import wraps
from unittest.mock import patch

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from tfm_zoo import TfmBertForMaskedLM, TfmBertModel, TfmGPTForCausalLM

from ..tiny import NO_DROPOUT, ragged_batch, tiny_model
from ..varlen import device
from .test_varlen import SIDES, WINDOWS

WAITING = ("_local_scalar_dense", "nonzero", "unique_consecutive", "_unique2", "masked_select", "equal", "is_nonzero")


class Waits(TorchDispatchMode):
    """Counts them by the function that waits; `nonzero_static` knows its size, and does not."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: Counter[str] = Counter()

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        name = function._schema.name.partition("::")[2]
        indexed = [each for each in args[1] if each is not None] if name == "index" else []
        if name in WAITING or any(each.dtype in (torch.bool, torch.uint8) for each in indexed):
            self.seen[name] += 1
        return function(*args, **kwargs or {})


@contextmanager
def counted() -> Iterator[Counter]:
    """Counts what the models of the zoo wait for, as on a GPU."""
    waits, tolist = Waits(), torch.Tensor.tolist

    def listed(tensor: torch.Tensor) -> list:
        waits.seen["tolist"] += 1
        return tolist(tensor)

    with ExitStack() as stack:
        for module in ("batch", "entrance", "inputs"):
            stack.enter_context(patch(f"tfm_zoo.models.{module}.is_readable", lambda states: False))
        stack.enter_context(patch.object(torch.Tensor, "tolist", listed))
        with device(), waits:
            yield waits.seen


MASKED, CAUSAL = ragged_batch(TfmBertForMaskedLM, labels=True), ragged_batch(TfmGPTForCausalLM, labels=True)
TRANSLATED = {name: each for name, each in ragged_batch(SIDES, labels=True).items() if name != "decoder_input_ids"}
FULL = {"attention_mask": torch.ones(4, 9).long()}
LEARNED = {"position_embedding_type": "learned"}  # (sinusoids look on a CPU whether their table is long enough)


@pytest.mark.parametrize(
    ("head", "fields", "batch", "waits"),
    [
        (TfmBertModel, WINDOWS, ragged_batch(), {"tolist": 1}),
        (TfmBertModel, {}, ragged_batch() | {"attention_mask": None}, {}),
        # The loss has the size of what is labelled.
        (TfmBertForMaskedLM, {}, MASKED, {"tolist": 1, "nonzero": 1}),
        (TfmGPTForCausalLM, WINDOWS, CAUSAL, {"tolist": 1, "nonzero": 1}),
        # Either side counts its tokens.
        (SIDES, LEARNED, TRANSLATED, {"tolist": 2, "nonzero": 1}),
        (SIDES, LEARNED, TRANSLATED | FULL, {"tolist": 2, "nonzero": 1}),
    ],
)
def test_a_batch_is_waited_for_once(head, fields, batch, waits):
    """... and as often with more layers; the backward pass waits for nothing."""
    for layers in (2, 4):
        fields = fields | {"layer_types": None} if layers == 4 else fields
        model = tiny_model(head, num_hidden_layers=layers, **NO_DROPOUT, **fields).train()
        model.set_attn_implementation("varlen")
        with counted() as seen:
            model(**batch)[0].sum().backward()
        assert dict(seen) == waits


@torch.no_grad()
@pytest.mark.parametrize("side", ["left", "full"])
@pytest.mark.parametrize("head", [TfmGPTForCausalLM, SIDES])
def test_no_decoding_step_waits(head, side):
    """Once a prompt or a source has been read; with padding, or a mask that hides nothing."""
    batch = {name: each for name, each in ragged_batch(head, side="left").items() if name != "decoder_input_ids"}
    batch |= FULL if side == "full" else {}
    model, steps = tiny_model(head, use_cache=True, eos_token_id=None, **LEARNED), []
    expected, forward = model.generate(**batch, max_new_tokens=5), model.forward

    @wraps(forward)
    def stepped(*args, **kwargs):
        with counted() as seen:
            outputs = forward(*args, **kwargs)
        steps.append(sum(seen.values()))
        return outputs

    model.forward = stepped
    for attention in ("eager", "sdpa", "varlen"):
        model.set_attn_implementation(attention)
        assert torch.equal(model.generate(**batch, max_new_tokens=5), expected)
        assert len(steps) == 5 and steps[1:] == [0] * 4, attention
        steps.clear()
