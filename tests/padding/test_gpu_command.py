"""`make gpu` on a machine without a GPU: what of it runs on a CPU, with the kernel written out."""

from pathlib import Path

import pytest
import torch

from benchmarks import attention, gpu, speed

from ..varlen import device


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_device_it_says_so():
    with pytest.raises(SystemExit, match="make gpu needs a CUDA device, and torch finds none here"):
        gpu.main("", Path())


def test_correctness():
    """Each quantity in bfloat16 is as near to float32 as the official class's is, and the kernel ran."""
    with device() as kernel:
        head, rows = gpu.correctness(
            "cpu", ["BertForMaskedLM", "MistralForCausalLM", "MarianMTModel"], [torch.bfloat16]
        )
    assert kernel.calls and {call.dtype for call in kernel.calls} == {torch.bfloat16}
    assert {row[head.index("what")] for row in rows} >= {"logits", "loss", "gradients"}
    assert {row[head.index("within")] for row in rows} == {"yes"}


@pytest.mark.slow
def test_backends(monkeypatch):
    """Each way is timed beside the others, and says which kernel ran, or why it did not."""
    monkeypatch.setattr(attention, "WAYS", [("official", "sdpa"), ("zoo", "varlen"), ("zoo", "unheard_of")])
    with device() as kernel:
        head, rows = gpu.backends("cpu", is_tiny=True)
    assert kernel.calls and len(rows) == 12
    for row in (dict(zip(head, row, strict=True)) for row in rows):
        if row["attention"] == "unheard_of":
            assert "unheard_of" in row["ran"] and not row["time"]
        else:
            assert row["time"].endswith(" ms") and float(row["drift"]) < 0.05


def test_every_part_names_benchmarks_that_exist():
    assert {*gpu.SPEED, *gpu.MEMORY} <= speed.CASES.keys()
