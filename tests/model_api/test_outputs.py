"""What users of transformers take for granted of a model's inputs, by place and by name, of its outputs and losses."""

import inspect
from unittest.mock import patch

import pytest
import torch
from torch.nn import functional as F

import tfm_zoo
from tfm_zoo import TfmBertForMaskedLM, TfmBertForMultipleChoice, TfmBertForSequenceClassification, TfmGPTForCausalLM
from tfm_zoo import TfmEncoderDecoderForSequenceClassification as SourceClassifier
from tfm_zoo.models import inputs

from ..precision import assert_same
from ..tiny import HEADS, LENGTHS, NO_DROPOUT, ragged_batch, ragged_mask, tiny_decoder, tiny_model

pytestmark = pytest.mark.usefixtures("double")

WHOLE = [row for row, length in enumerate(LENGTHS) if length == max(LENGTHS)]
#: all but the one that finds the end of its source by the ids
WITH_EMBEDDINGS = [head for head in HEADS if head is not SourceClassifier]


@pytest.mark.parametrize("head", HEADS, ids=lambda head: head.__name__)
def test_a_tuple_instead_of_a_dict(head):
    model, batch = tiny_model(head), ragged_batch(head, labels=True)
    wanted = model(**batch, output_hidden_states=True).to_tuple()
    by_argument = model(**batch, output_hidden_states=True, return_dict=False)
    model.config.return_dict, model.config.output_hidden_states = False, True
    by_config = model(**batch)
    assert type(by_argument) is type(by_config) is tuple
    for result in (by_argument, by_config):
        torch.testing.assert_close(result, wanted, rtol=0, atol=0)


def test_what_attention_weights_need_is_said(monkeypatch):
    model, said = tiny_model(tfm_zoo.TfmBertModel), []
    monkeypatch.setattr(inputs.logger, "warning_once", said.append)
    assert not any(model(**ragged_batch(), output_attentions=True).to_tuple()[-1])
    assert "call model.set_attn_implementation('eager')" in said.pop()
    model.set_attn_implementation("eager")
    assert len(model(**ragged_batch(), output_attentions=True).attentions) == 2 and said == []


@pytest.mark.parametrize("head", WITH_EMBEDDINGS, ids=lambda head: head.__name__)
def test_embeddings_stand_in_for_ids(head):
    model, batch = tiny_model(head), ragged_batch(head)
    wanted = model(**batch)
    batch["inputs_embeds"] = model.get_input_embeddings()(batch.pop("input_ids"))
    assert_same(dict(model(**batch)), dict(wanted))
    if head is tfm_zoo.TfmGPTForSequenceClassification:  # which finds the last one; without a mask all are real
        assert_same(model(inputs_embeds=batch["inputs_embeds"][WHOLE]).logits, wanted.logits[WHOLE])
    if "decoder_input_ids" in batch:
        batch["decoder_inputs_embeds"] = model.base_model.decoder.get_input_embeddings()(batch.pop("decoder_input_ids"))
        assert_same(dict(model(**batch)), dict(wanted))


def test_no_answer_stands_at_padding():
    model = tiny_model(tfm_zoo.TfmBertForQuestionAnswering)
    with torch.no_grad():
        model.qa_outputs.bias.fill_(100.0)  # what a position without a hidden state would get
        model.qa_outputs.weight.mul_(100.0)
    outputs = model(**ragged_batch())
    real = ragged_mask().bool()
    for logits in (outputs.start_logits, outputs.end_logits):
        assert logits[~real].max() < logits[real].min()


def test_positions_that_jump_forward_stay_in_their_sequence():
    """In training as in evaluation, where the official class has its cache; a sequence of one token is one too."""
    model = tiny_decoder(position_embedding_type="rotary", **NO_DROPOUT)
    ids, jumping = torch.arange(1, 9).view(1, 8), torch.tensor([[0, 1, 2, 3, 20, 21, 22, 23]])
    packed, lengths = torch.tensor([[0, 0, 1, 2, 5, 0, 0, 1]]), [1, 4, 1, 2]
    for attention in ("eager", "sdpa"):
        model.set_attn_implementation(attention)
        wanted = model.eval()(ids, torch.ones(1, 8), jumping).logits
        assert (wanted[:, 4:] - model(ids[:, 4:], position_ids=jumping[:, 4:]).logits).abs().max() > 0.1
        parts = zip(ids.split(lengths, dim=1), packed.split(lengths, dim=1), strict=True)
        apart = torch.cat([model(part, position_ids=places).logits for part, places in parts], dim=1)
        for training in (True, False):
            model.train(training)
            assert_same(model(ids, position_ids=jumping).logits, wanted, attention)
            assert_same(model(ids, position_ids=packed).logits, apart, attention)


BY_NAME, FOUND = (True,), (True, False)
PROBLEMS = [
    ("regression", FOUND, torch.tensor([0.5, -1.0, 2.0, 0.0]), 1, lambda x, y: F.mse_loss(x.squeeze(), y)),
    ("regression", BY_NAME, torch.randn(4, 3), 3, F.mse_loss),  # values for several labels, not for several classes
    ("single_label_classification", FOUND, torch.tensor([2, 0, 1, 1]), 3, F.cross_entropy),
    ("multi_label_classification", FOUND, torch.eye(4)[:, :3], 3, F.binary_cross_entropy_with_logits),
]


@pytest.mark.parametrize(("problem", "ways", "labels", "classes", "loss"), PROBLEMS)
def test_problem_types(problem, ways, labels, classes, loss):
    """By name, and found from the labels."""
    labels = labels.double() if labels.is_floating_point() else labels
    for is_named in ways:
        fields = {"num_labels": classes, "problem_type": problem if is_named else None}
        model = tiny_model(TfmBertForSequenceClassification, **fields)
        outputs = model(**ragged_batch(), labels=labels)
        assert_same(outputs.loss, loss(outputs.logits, labels))
        assert model.config.problem_type == problem
    if problem != "single_label_classification":  # whole numbers count as numbers
        whole = labels.round()
        assert model(**ragged_batch(), labels=whole.long()).loss.equal(model(**ragged_batch(), labels=whole).loss)


def test_logits_are_made_where_somebody_reads_them():
    """The loss is the same without; a label at padding counts, and has logits."""
    model, batch = tiny_model(TfmBertForMaskedLM, **NO_DROPOUT), ragged_batch()
    labels = batch["labels"] = batch["input_ids"]
    assert (labels == 0).any()  # that of padding
    wanted = model(**batch)
    assert_same(wanted.loss, F.cross_entropy(wanted.logits.flatten(0, 1), labels.flatten()))
    assert_same(wanted.logits, model(**batch, output_hidden_states=True).logits)
    for training, options, is_made in (
        (True, {}, False),
        (True, {"return_logits": True}, True),
        (False, {"return_logits": False}, False),
    ):
        outputs = model.train(training)(**batch, **options)
        assert (outputs.logits is not None) == is_made
        assert_same(outputs.loss, wanted.loss)
    decoder, losses = tiny_decoder(), []
    for options in ({}, {"return_logits": False}, {"logits_to_keep": 1}):
        losses.append(decoder(batch["input_ids"], labels=labels, **options).loss)
    assert_same(losses, losses[:1] * 3)
    assert decoder(labels, return_logits=False).logits is None


def test_nothing_to_predict():
    """As torch has it: nan for a mean over no token, zero where the step's number of tokens is given; no error."""
    model, batch = tiny_model(TfmBertForMaskedLM).train(), ragged_batch()
    labels = torch.full_like(batch["input_ids"], -100)
    assert model(**batch, labels=labels).loss.isnan()
    loss = model(**batch, labels=labels, num_items_in_batch=5).loss
    loss.backward()
    assert loss == 0 and model(batch["input_ids"][:0]).logits.shape[:2] == (0, batch["input_ids"].shape[1])  # nor a row


def test_a_projection_of_ones_own_need_not_say_its_size():
    model, batch = tiny_model(TfmBertForMaskedLM), ragged_batch(TfmBertForMaskedLM, labels=True)
    expected = model(**batch)
    model.lm_head = torch.nn.Sequential(model.lm_head)
    made = model(**batch)
    assert torch.equal(made.loss, expected.loss) and torch.equal(made.logits, expected.logits)


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


@pytest.mark.parametrize("head", [head for head in HEADS if "For" in head.__name__])
def test_every_input_reaches_the_base_model(head):
    """Under its own name; and the inputs stand in the base model's order."""
    model = tiny_model(head)
    base = inspect.signature(model.model.forward)
    names = [name for name in base.parameters if name not in ("read_positions", "kwargs")]
    assert [name for name in inspect.signature(head.forward).parameters if name in names] == names
    shape = (2, 2, 4) if head is TfmBertForMultipleChoice else (2, 4)
    for absent in ("inputs_embeds", "input_ids") if head in WITH_EMBEDDINGS else ("inputs_embeds",):
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
