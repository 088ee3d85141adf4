"""What users of transformers take for granted of a model's inputs and outputs."""

import pytest
import torch

import tfm_zoo
from tfm_zoo import TfmBertModel

from ..precision import assert_same
from ..tiny import ENCODERS, HEADS, NO_DROPOUT, SIZES, TWO_STACKS, ragged_batch, ragged_mask, tiny_decoder, tiny_model

pytestmark = pytest.mark.usefixtures("double")

EVERY_HEAD = pytest.mark.parametrize("head", HEADS, ids=lambda head: head.__name__)
ONE_STACK = [head for head in HEADS if head not in TWO_STACKS]
#: all but the one that finds the end of its source by the ids
WITH_EMBEDDINGS = [head for head in HEADS if head is not tfm_zoo.TfmEncoderDecoderForSequenceClassification]
UNLIKE_THE_DEFAULT = ("scale_embedding", "tie_word_embeddings")
#: each head with a norm before its blocks, and models without a head with one behind them, too
PRE, POST = {"norm_position": "pre"}, {"norm_position": "post"}


@EVERY_HEAD
def test_a_tuple_instead_of_a_dict(head):
    """A router that a model does not have is not missed, as in official classes: it has no logits."""
    model, batch = tiny_model(head), ragged_batch(head, labels=True)
    wanted = model(**batch, output_hidden_states=True).to_tuple()
    routed = model(**batch, output_hidden_states=True, output_router_logits=True).to_tuple()
    assert routed[len(wanted) :] in ((), ((),))
    by_argument = model(**batch, output_hidden_states=True, return_dict=False)
    model.config.return_dict, model.config.output_hidden_states = False, True
    by_config = model(**batch)
    assert type(by_argument) is type(by_config) is tuple
    for result in (routed[: len(wanted)], by_argument, by_config):
        torch.testing.assert_close(result, wanted, rtol=0, atol=0)


@EVERY_HEAD
def test_a_batch_without_rows(head):
    """Outputs without rows; a loss is that of torch for a mean over nothing."""
    batch, late = ragged_batch(head, labels=True), {"classifier_pooling": "late"} if head in ENCODERS else {}
    for training, fields in ((False, late), (True, {"position_embedding_type": "alibi"})):
        model = tiny_model(head, **fields).train(training)
        full, outputs = model(**batch), model(**{name: value[:0] for name, value in batch.items()})
        for name, value in full.items():
            if isinstance(value, torch.Tensor):
                assert outputs[name].shape == (value[:0].shape if value.dim() else ()), name


@pytest.mark.parametrize(
    ("head", "fields"),
    [(head, PRE) for head in ONE_STACK] + [(head, POST) for head in (TfmBertModel, tfm_zoo.TfmGPTModel)],
)
def test_hidden_states_and_attentions(head, fields):
    model, batch = tiny_model(head, **fields), ragged_batch(head)
    model.set_attn_implementation("eager")
    outputs = model(**batch, output_hidden_states=True, output_attentions=True)
    rows, length = batch["input_ids"].flatten(0, -2).shape
    assert [states.shape for states in outputs.hidden_states] == [(rows, length, SIZES["hidden_size"])] * 3
    assert [weights.shape for weights in outputs.attentions] == [(rows, 4, length, length)] * 2
    flat = {name: value.flatten(0, -2) for name, value in batch.items()}
    base = model.base_model
    assert_same(outputs.hidden_states[-1], base(**flat, output_hidden_states=True).last_hidden_state)
    real = flat["attention_mask"].bool()
    for weights in outputs.attentions:  # of real positions, to real positions
        rows = weights.transpose(1, 2)[real]
        assert_same(rows.sum(-1), torch.ones(rows.shape[:-1]))
        assert weights.masked_select(~real[:, None, None, :]).abs().max() < 1e-6 or real.all()
    assert not {"hidden_states", "attentions"} & model(**batch).keys()


@pytest.mark.parametrize(
    ("head", "fields"),
    [(head, {}) for head in WITH_EMBEDDINGS]
    + [(tfm_zoo.TfmEncoderDecoderForConditionalGeneration, {name: False}) for name in UNLIKE_THE_DEFAULT],
)
def test_embeddings_stand_in_for_ids(head, fields):
    model, batch = tiny_model(head, **fields), ragged_batch(head)
    wanted = model(**batch)
    batch["inputs_embeds"] = model.get_input_embeddings()(batch.pop("input_ids"))
    assert_same(dict(model(**batch)), dict(wanted))
    if "decoder_input_ids" in batch:
        embed = model.base_model.decoder.get_input_embeddings()
        batch["decoder_inputs_embeds"] = embed(batch.pop("decoder_input_ids"))
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


@pytest.mark.parametrize("fields", [{}, {"sliding_window": 2}], ids=["all", "window"])
def test_positions_that_jump_forward_stay_in_their_sequence(fields):
    """In training as in evaluation, where the official class has its cache; a sequence of one token is one too."""
    model = tiny_decoder(position_embedding_type="rotary", **NO_DROPOUT, **fields)
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
