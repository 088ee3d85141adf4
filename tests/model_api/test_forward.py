"""A head is called by place and by name as official classes are, and as the Trainer sees it."""

import inspect
from unittest.mock import patch

import pytest
import torch

import tfm_zoo
from tfm_zoo import TfmBertForMultipleChoice, TfmEncoderDecoderForSequenceClassification, TfmGPTForCausalLM

from ..precision import assert_same
from ..tiny import HEADS, tiny_model

pytestmark = pytest.mark.usefixtures("double")

WITH_BASES = [head for head in HEADS if "For" in head.__name__]
#: what stands side by side in official classes
PLACES = {
    "BertForQuestionAnswering": ["position_ids", "inputs_embeds", "start_positions", "end_positions"],
    "GPTForCausalLM": ["past_key_values", "inputs_embeds", "labels", "token_type_ids", "use_cache", "logits_to_keep"],
    "EncoderDecoderForConditionalGeneration": ["inputs_embeds", "decoder_inputs_embeds", "labels", "use_cache"],
}


@pytest.mark.parametrize("head", PLACES)
def test_labels_stand_where_official_classes_have_them(head):
    names, wanted = list(inspect.signature(getattr(tfm_zoo, f"Tfm{head}").forward).parameters), PLACES[head]
    first = names.index(wanted[0])
    assert names[first : first + len(wanted)] == wanted


@pytest.mark.parametrize("head", WITH_BASES, ids=lambda head: head.__name__)
def test_every_input_reaches_the_base_model(head):
    """Under its own name; and the inputs stand in the base model's order."""
    model = tiny_model(head)
    base = inspect.signature(model.model.forward)
    names = [name for name in base.parameters if name not in ("read_positions", "kwargs")]
    assert [name for name in inspect.signature(head.forward).parameters if name in names] == names
    shape = (2, 2, 4) if head is TfmBertForMultipleChoice else (2, 4)
    # A classifier of sequences finds their ends by the ids.
    reads_ids = head is TfmEncoderDecoderForSequenceClassification
    for absent in ("inputs_embeds",) if reads_ids else ("inputs_embeds", "input_ids"):
        given = {name: torch.full(shape, number) for number, name in enumerate(names)}
        given |= {"input_ids": torch.full(shape, model.config.eos_token_id or 2)}
        given |= {"inputs_embeds": torch.ones(*shape, 8)}
        del given[absent]
        with patch.object(model.model, "forward", side_effect=StopIteration) as forward, pytest.raises(StopIteration):
            model(**given)
        received = base.bind(*forward.call_args.args, **forward.call_args.kwargs).arguments
        for name, value in given.items():
            assert torch.equal(received[name].flatten(), value.flatten()), name
        assert received[absent] is None


@torch.no_grad()
def test_layers_that_a_user_has_taken_out():
    """The ones that stay go on attending as they did, whichever place they have now."""
    kinds = ["sliding_attention", "full_attention"] * 2
    fields = {"num_hidden_layers": 4, "layer_types": kinds, "sliding_window": 3}
    for keep, left in ((slice(2, 3), kinds[:1]), (slice(1, 4, 2), kinds[1::2])):
        model, ids = tiny_model(TfmGPTForCausalLM, **fields), torch.arange(3, 12)[None]
        pruned = tiny_model(TfmGPTForCausalLM, **fields | {"num_hidden_layers": len(left), "layer_types": left})
        model.model.layers = model.model.layers[keep]
        pruned.load_state_dict(model.state_dict())
        assert_same(model(ids, use_cache=False).logits, pruned(ids, use_cache=False).logits)
