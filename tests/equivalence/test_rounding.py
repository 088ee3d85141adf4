"""Official architectures in float32, as they are computed: the zoo rounds as well as the official class.

What both are measured by is the official class in double precision. Whether they are the same is tested there, by the
other modules.
"""

from copy import deepcopy

import pytest
import torch
from transformers import PreTrainedModel

from tests.equivalence import comparison
from tests.equivalence.comparison import Batch, Pair, official_gradients, real_outputs, target_mask, zoo_gradients
from tests.equivalence.test_heads import LENGTHS, LONGEST
from tests.official_models import FIRST, build_tiny, distinct
from tests.precision import assert_rounds_as_well, in_double
from tfm_zoo.converters import from_official

#: later architectures whose arithmetic is not that of others
LATER = ["albert", "apertus", "bloom", "cohere2", "falcon", "gemma2", "glm4", "gpt_neox", "gptj", "mixtral", "roformer"]
#: of each architecture one class: a language model, or at least one with a loss
BY_WORTH = sorted(distinct(), key=lambda each: (each.has_loss, str(each).endswith(("LM", "Generation", "HeadModel"))))
ONE_OF_EACH = {each.architecture.model_type: each for each in BY_WORTH}


@pytest.mark.parametrize("name", [*FIRST, *LATER])
def test_float32_rounds_as_well(name):
    official_class = ONE_OF_EACH[name]
    official = build_tiny(official_class)
    pair = Pair(official_class, official, [from_official(official)])
    with in_double():
        exact = Pair(official_class, deepcopy(official).double(), [])
    found = []
    for attention, side in (("sdpa", "right"), ("eager", "left")):
        lengths = LONGEST if official_class.reads_padding(side, has_labels=True) else LENGTHS
        batch = comparison.ragged_batch(official_class, official, side, lengths)
        pair.prepare(attention)
        found.append([results(pair, model, batch) for model in (*pair.zoo_models, official)])
        with in_double():
            exact.prepare(attention)
            found[-1].append(results(pair, exact.official, batch))
    zoo, official, exact = zip(*found, strict=True)
    for kind in exact[0]:
        assert_rounds_as_well(*([each[kind] for each in side] for side in (zoo, official, exact)), kind)


def results(pair: Pair, model: PreTrainedModel, batch: Batch) -> dict[str, Batch | torch.Tensor]:
    """What a model gives, with its loss, and all gradients as one tensor, since some are zero but for rounding."""
    official_class, official, zoo_models = pair
    labels = comparison.labels_for(official_class, official, batch, everywhere=False)
    with torch.no_grad():
        outputs = real_outputs(model(**batch, output_hidden_states=True), batch["attention_mask"], target_mask(batch))
    loss = comparison.loss_of(model, official_class, batch, labels)
    loss.backward()
    if model in zoo_models:
        gradients = zoo_gradients(model, official_class, official_gradients(official, official_class))
    else:
        gradients = official_gradients(model, official_class)
    outputs["loss"], flat = loss, torch.cat([each.flatten() for each in gradients.values()])
    return {"outputs": outputs, "gradients": flat}
