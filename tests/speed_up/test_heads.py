"""Every official class through `speed_up`: outputs, losses, gradients on its parameters, and no padding computed."""

import pytest
import torch

from tests.equivalence.comparison import (
    assert_same_outputs,
    gradients_of,
    labels_for,
    loss_of,
    ragged_batch,
    target_mask,
)
from tests.official_models import distinct
from tests.precision import assert_same
from tests.speed_up.models import LENGTHS, LONGEST, fell_back, operations, pair_of, share_of

pytestmark = pytest.mark.usefixtures("double")

#: all but FSMT, whose stacks speed_up leaves alone
CLASSES = [each for each in distinct() if each.architecture.model_type != "fsmt"]
QUICK = [each for each in distinct("rules") if each in CLASSES]
REST = [pytest.param(each, marks=pytest.mark.slow) for each in CLASSES if each not in QUICK]


@pytest.fixture(scope="module", params=[*QUICK, *REST], ids=str)
def pair(request):
    return pair_of(request.param)


def test_outputs(pair):
    official_class, official, [model] = pair
    for attention, side in (("sdpa", "right"), ("eager", "left")):
        pair.prepare(attention)
        lengths = LONGEST if official_class.reads_padding(side) else LENGTHS
        batch = ragged_batch(official_class, official, side, lengths)
        with torch.no_grad():
            expected = official(**batch, output_hidden_states=side == "left")
            outputs = model(**batch, output_hidden_states=side == "left")
        assert type(outputs) is type(expected) and outputs.keys() == expected.keys()
        assert_same_outputs(outputs, expected, batch["attention_mask"], target_mask(batch))
    assert not fell_back(model)


def test_loss_and_gradients(pair):
    official_class, official, [model] = pair
    for attention, side, everywhere in (("sdpa", "right", False), ("eager", "left", True)):
        if everywhere and (official_class.ignores_padding or not official_class.chooses_attention):
            continue  # as in tests/equivalence
        lengths = LONGEST if official_class.reads_padding(side, has_labels=True) else LENGTHS
        batch = ragged_batch(official_class, official, side, lengths)
        pair.prepare(attention, training=True)
        labels = labels_for(official_class, official, batch, everywhere)
        losses = [loss_of(each, official_class, batch, labels) for each in (model, official)]
        for loss in losses:
            loss.backward()
        assert_same(*losses)
        assert_same(gradients_of(model), gradients_of(official), "gradient")
    assert not fell_back(model)


@pytest.mark.parametrize("training", [False, True])
def test_no_padding_is_computed(pair, training):
    official_class, official, [model] = pair
    reads_padding = official_class.pools_last or (training and "QuestionAnswering" in official_class.head.official)
    if reads_padding or getattr(official.config, "output_router_logits", False):
        pytest.skip("it reads padding")
    batch = ragged_batch(official_class, official, "right", LENGTHS)
    pair.prepare("sdpa", training)
    labels = labels_for(official_class, official, batch, everywhere=False) if training else {}

    def run(each):
        with torch.set_grad_enabled(training):
            if training:
                loss_of(each, official_class, batch, labels).backward()
            else:
                each(**batch)

    expected, found = (operations(each, run)[0] for each in (official, model))
    assert found <= 1.2 * share_of(batch, official_class) * expected, f"{found / expected:.2f} of the operations"
