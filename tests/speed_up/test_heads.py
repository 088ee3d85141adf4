"""Every official class through `speed_up`: outputs, losses, gradients on its parameters, and no padding computed."""

import pytest
import torch

from tests.equivalence import comparison
from tests.equivalence.comparison import gradients_of, ragged_batch
from tests.equivalence.test_variations import VARIATIONS
from tests.official_models import BY_NAME, distinct
from tests.precision import assert_same
from tests.speed_up.models import LENGTHS, fell_back, operations, pair_of, share_of
from tfm_zoo.inference.calls import OWN_PADDING

pytestmark = pytest.mark.usefixtures("double")

#: all but FSMT, whose stacks speed_up leaves alone
CLASSES = [each for each in distinct() if each.architecture.model_type != "fsmt"]
QUICK = [each for each in distinct("rules") if each in CLASSES]
#: and official fields that make another architecture
REST = [(each, {}) for each in CLASSES if each not in QUICK]
REST += [(BY_NAME[name], fields) for name, fields in VARIATIONS if BY_NAME.get(name) in CLASSES]
#: the attention, the side of padding, and whether labels stand at padding, too
SDPA, EAGER = ("sdpa", "right", False), ("eager", "left", True)
SLOW = [*((each, {}, EAGER) for each in QUICK), *((*case, SDPA) for case in REST)]
CASES = [*((each, {}, SDPA) for each in QUICK), *(pytest.param(case, marks=pytest.mark.slow) for case in SLOW)]


@pytest.fixture(scope="module", params=CASES, ids=lambda case: "-".join(map(str, case)))
def case(request):
    official_class, fields, setting = request.param
    return pair_of(official_class, **fields), setting


def test_evaluation(case):
    pair, (attention, side, shows) = case
    official_class, official, [model] = pair
    pair.prepare(attention)
    batch = ragged_batch(official_class, official, side, LENGTHS)
    with torch.no_grad():
        count, outputs = operations(model, lambda each: each(**batch, output_hidden_states=shows))
        most, expected = operations(official, lambda each: each(**batch, output_hidden_states=shows))
    assert type(outputs) is type(expected) and outputs.keys() == expected.keys()
    comparison.assert_same_outputs(outputs, expected, batch["attention_mask"], comparison.target_mask(batch))
    assert not fell_back(model) or has_own_padding(official_class)
    if not reads_padding(pair, side, shows):
        check_operations(count, most, share_of(batch, official_class))


def test_training(case):
    pair, (attention, side, everywhere) = case
    official_class, official, [model] = pair
    batch = ragged_batch(official_class, official, side, LENGTHS)
    pair.prepare(attention, training=True)
    labels = comparison.labels_for(official_class, official, batch, everywhere)

    def step(each) -> torch.Tensor:
        loss = comparison.loss_of(each, official_class, batch, labels)
        loss.backward()
        return loss

    (count, loss), (most, expected) = (operations(each, step) for each in (model, official))
    assert_same(loss, expected)
    assert_same(gradients_of(model), gradients_of(official), "gradient")
    assert not fell_back(model) or has_own_padding(official_class)
    if not reads_padding(pair, side, everywhere) and "QuestionAnswering" not in official_class.head.official:
        check_operations(count, most, share_of(batch, official_class))


def has_own_padding(official_class) -> bool:
    """Whether the official class computes a batch in which padding is read."""
    return official_class.architecture.model_type in OWN_PADDING


def reads_padding(pair, side: str, everywhere: bool) -> bool:
    """Whether padding has to be computed: for a head, for a label, or for who asks for the states of each layer."""
    config = pair.official.config
    is_asked = everywhere or side == "left" or getattr(config, "output_router_logits", False)
    depths = (("decoder_layers", "encoder_layers"), ("num_decoder_layers", "num_layers"))
    # A decoder, to which no mask shows padding, may have more layers than the encoder.
    is_mostly_decoder = any(getattr(config, decoder, 0) > getattr(config, encoder, 0) for decoder, encoder in depths)
    return is_asked or pair.official_class.pools_last or is_mostly_decoder


def check_operations(count: int, most: int, share: float) -> None:
    assert count <= 1.2 * share * most, f"{count / most:.2f} of the operations, for {share:.2f} of the tokens"
