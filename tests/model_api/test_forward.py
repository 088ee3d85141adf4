"""A head is called by place and by name as official classes are, and as the Trainer sees it."""

import inspect
from unittest.mock import patch

import pytest
import torch

from tfm_zoo import (
    TfmBertForMultipleChoice,
    TfmBertForQuestionAnswering,
    TfmBertForSequenceClassification,
    TfmEncoderDecoderForConditionalGeneration,
    TfmEncoderDecoderForQuestionAnswering,
    TfmEncoderDecoderForSequenceClassification,
    TfmGPTForCausalLM,
    TfmGPTForQuestionAnswering,
)

from ..precision import assert_same
from ..tiny import HEADS, tiny_model

pytestmark = pytest.mark.usefixtures("double")

WITH_BASES = [head for head in HEADS if "For" in head.__name__]

PLACES = {
    TfmBertForSequenceClassification: ["token_type_ids", "position_ids", "inputs_embeds", "labels"],
    TfmBertForQuestionAnswering: ["position_ids", "inputs_embeds", "start_positions", "end_positions"],
    TfmGPTForCausalLM: ["past_key_values", "inputs_embeds", "labels", "token_type_ids", "use_cache", "logits_to_keep"],
    TfmGPTForQuestionAnswering: ["inputs_embeds", "start_positions", "end_positions", "token_type_ids", "use_cache"],
    TfmEncoderDecoderForConditionalGeneration: ["inputs_embeds", "decoder_inputs_embeds", "labels", "use_cache"],
}


@pytest.mark.parametrize("head", PLACES, ids=lambda head: head.__name__)
def test_labels_stand_where_official_classes_have_them(head):
    names = list(inspect.signature(head.forward).parameters)
    first = names.index(PLACES[head][0])
    assert names[first : first + len(PLACES[head])] == PLACES[head]


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


def test_labels_of_choices_may_be_a_column():
    model, ids = tiny_model(TfmBertForMultipleChoice), torch.randint(3, 60, (2, 3, 6))
    labels = torch.tensor([2, 0])
    assert torch.equal(model(ids, labels=labels[:, None]).loss, model(ids, labels=labels).loss)


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


def test_encoder_outputs_as_a_mapping():
    model, ids = tiny_model(TfmEncoderDecoderForQuestionAnswering), torch.randint(3, 60, (2, 6))
    states = model.model.encoder(ids).last_hidden_state
    made = model(encoder_outputs={"last_hidden_state": states}, decoder_input_ids=ids)
    assert_same(made.start_logits, model(ids, decoder_input_ids=ids).start_logits)
