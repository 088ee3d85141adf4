"""A calibrated encoder gives a text the same numbers, bit for bit, whatever stands beside it."""

import random

import pytest
import torch

from tfm_zoo import TfmBertForSequenceClassification, TfmBertModel, pack_weights
from tfm_zoo.inference.packing.products import ManyRowsInt8Product, levels_of

from ..tiny import tiny_model

COUNT, LONGEST = 128, 24

pytestmark = pytest.mark.skipif(not levels_of(ManyRowsInt8Product), reason="oneDNN multiplies no integers here")


def texts() -> list[list[int]]:
    numbers = random.Random(0)
    return [[numbers.randrange(1, 61) for _ in range(numbers.randint(1, LONGEST))] for _ in range(COUNT)]


def padded(rows: list[list[int]]) -> dict[str, torch.Tensor]:
    longest = max(map(len, rows))
    ids = torch.tensor([row + [0] * (longest - len(row)) for row in rows])
    mask = torch.tensor([[1] * len(row) + [0] * (longest - len(row)) for row in rows])
    return {"input_ids": ids, "attention_mask": mask}


@torch.inference_mode()
def computed(model, rows: list[list[int]], size: int) -> list[list[torch.Tensor]]:
    """What a model gives for each text, of its own tokens alone, in batches of this size."""
    found = []
    for start in range(0, len(rows), size):
        part = rows[start : start + size]
        outputs = [each for each in model(**padded(part)).to_tuple() if isinstance(each, torch.Tensor)]
        for index, row in enumerate(part):
            found.append([each[index, : len(row)] if each.dim() == 3 else each[index] for each in outputs])
    return found


@pytest.mark.parametrize(
    "head, fields",
    [
        (TfmBertModel, {}),
        (
            TfmBertForSequenceClassification,
            {"norm_position": "pre", "mlp_type": "gated", "position_embedding_type": "rotary"},
        ),
    ],
)
def test_same_vector(head, fields):
    """Alone, in batches of 2 to 128, in another order, on one thread and on two."""
    rows, threads = texts(), torch.get_num_threads()
    model = tiny_model(head, **fields)
    pack_weights(model, "int8", calibrate=[padded(rows[:32])], least_cosine=0)
    wanted = computed(model, rows, 1)
    places = random.Random(1).sample(range(COUNT), COUNT)
    try:
        for count, size in ((1, 2), (1, 17), (2, 5), (2, 32), (2, COUNT)):
            torch.set_num_threads(count)
            found = computed(model, [rows[place] for place in places], size)
            for place, outputs in zip(places, found, strict=True):
                assert all(map(torch.equal, outputs, wanted[place])), (count, size, rows[place])
    finally:
        torch.set_num_threads(threads)
