"""What users of transformers take for granted of a model class."""

import pytest
import torch
from torch.nn import functional as F

import tfm_zoo
from tfm_zoo import TfmBertForMaskedLM, TfmBertForPreTraining, TfmBertForSequenceClassification, TfmBertModel

from ..tiny import (
    DECODERS,
    ENCODER_DECODERS,
    ENCODERS,
    HEADS,
    SIZES,
    ragged_batch,
    ragged_mask,
    tiny_config,
    tiny_model,
)

EVERY_HEAD = pytest.mark.parametrize("head", HEADS, ids=lambda head: head.__name__)
TWO_STACKS = [head for head in ENCODER_DECODERS if head is not tfm_zoo.TfmEncoderDecoderEncoder]
ONE_STACK = [head for head in HEADS if head not in TWO_STACKS]
#: all but the one that finds the end of its source by the ids
WITH_EMBEDDINGS = [head for head in HEADS if head is not tfm_zoo.TfmEncoderDecoderForSequenceClassification]
EITHER_NORM = pytest.mark.parametrize(
    "fields", [{"norm_position": "post"}, {"norm_position": "pre"}], ids=["post", "pre"]
)
NO_DROPOUT = {"hidden_dropout": 0.0, "attention_dropout": 0.0}


@EVERY_HEAD
def test_a_tuple_instead_of_a_dict(head):
    model, batch = tiny_model(head), ragged_batch(head, labels=True)
    wanted = model(**batch, output_hidden_states=True).to_tuple()
    by_argument = model(**batch, output_hidden_states=True, return_dict=False)
    model.config.return_dict, model.config.output_hidden_states = False, True
    by_config = model(**batch)
    for result in (by_argument, by_config):
        assert type(result) is tuple
        torch.testing.assert_close(result, wanted, rtol=0, atol=0)


@pytest.mark.parametrize("head", ONE_STACK, ids=lambda head: head.__name__)
@EITHER_NORM
def test_hidden_states_and_attentions(head, fields):
    model, batch = tiny_model(head, **fields), ragged_batch(head)
    model.set_attn_implementation("eager")
    outputs = model(**batch, output_hidden_states=True, output_attentions=True)
    rows, length = batch["input_ids"].flatten(0, -2).shape
    assert [states.shape for states in outputs.hidden_states] == [(rows, length, SIZES["hidden_size"])] * 3
    assert [weights.shape for weights in outputs.attentions] == [(rows, 4, length, length)] * 2
    flat = {name: value.flatten(0, -2) for name, value in batch.items()}
    base = model.base_model
    torch.testing.assert_close(outputs.hidden_states[-1], base(**flat, output_hidden_states=True).last_hidden_state)
    real = flat["attention_mask"].bool()
    for weights in outputs.attentions:  # of real positions, to real positions
        rows = weights.transpose(1, 2)[real]
        torch.testing.assert_close(rows.sum(-1), torch.ones(rows.shape[:-1]))
        assert weights.masked_select(~real[:, None, None, :]).abs().max() < 1e-6 or real.all()
    assert not {"hidden_states", "attentions"} & model(**batch).keys()


@EITHER_NORM
@pytest.mark.parametrize("head", TWO_STACKS, ids=lambda head: head.__name__)
def test_hidden_states_and_attentions_of_both_sides(head, fields):
    model, batch = tiny_model(head, **fields), ragged_batch(head)
    model.set_attn_implementation("eager")
    outputs = model(**batch, output_hidden_states=True, output_attentions=True)
    rows, source = batch["input_ids"].shape
    target = batch.get("decoder_input_ids", batch["input_ids"]).shape[1]
    encoded, decoded = ((rows, length, SIZES["hidden_size"]) for length in (source, target))
    assert [states.shape for states in outputs.encoder_hidden_states] == [encoded] * 3
    assert [states.shape for states in outputs.decoder_hidden_states] == [decoded] * 4
    assert [weights.shape for weights in outputs.encoder_attentions] == [(rows, 4, source, source)] * 2
    assert [weights.shape for weights in outputs.decoder_attentions] == [(rows, 4, target, target)] * 3
    assert [weights.shape for weights in outputs.cross_attentions] == [(rows, 4, target, source)] * 3
    last = model.base_model(**batch, output_hidden_states=True)
    torch.testing.assert_close(outputs.encoder_hidden_states[-1], last.encoder_last_hidden_state)
    torch.testing.assert_close(outputs.decoder_hidden_states[-1], last.last_hidden_state)
    padded = batch["attention_mask"] == 0
    for weights in outputs.cross_attentions:
        torch.testing.assert_close(weights.sum(-1), torch.ones(weights.shape[:-1]))
        assert weights.masked_select(padded[:, None, None, :]).abs().max() < 1e-6
    for weights in outputs.decoder_attentions:
        assert weights.triu(1).eq(0).all() and weights.tril()[:, :, 1:].gt(0).any(-1).all()
    assert not [name for name in model(**batch) if name.endswith(("hidden_states", "attentions"))]


@pytest.mark.parametrize("head", WITH_EMBEDDINGS, ids=lambda head: head.__name__)
@pytest.mark.parametrize("fields", [{}, {"scale_embedding": False}, {"tie_word_embeddings": False}], ids=str)
def test_embeddings_stand_in_for_ids(head, fields):
    model, batch = tiny_model(head, **fields), ragged_batch(head)
    wanted = model(**batch)
    batch["inputs_embeds"] = model.get_input_embeddings()(batch.pop("input_ids"))
    torch.testing.assert_close(dict(model(**batch)), dict(wanted))
    if "decoder_input_ids" in batch:
        embed = model.base_model.decoder.get_input_embeddings()
        batch["decoder_inputs_embeds"] = embed(batch.pop("decoder_input_ids"))
        torch.testing.assert_close(dict(model(**batch)), dict(wanted))


def test_positions_and_segments_are_read():
    model, batch = tiny_model(TfmBertModel), ragged_batch()
    mask = ragged_mask().bool()
    default = model(**batch).last_hidden_state
    given = model(**batch, position_ids=torch.arange(9)[None]).last_hidden_state
    torch.testing.assert_close(given, default)
    for changed in ({"position_ids": torch.arange(9).flip(0)[None]}, {"token_type_ids": 1 - batch["token_type_ids"]}):
        assert (model(**batch | changed).last_hidden_state[mask] - default[mask]).abs().min(-1).values.gt(0).all()


@pytest.mark.parametrize("reentrant", [True, False])
@pytest.mark.parametrize(
    ("head", "fields"),
    [(head, {"skip_padding": skip}) for head in ENCODERS for skip in (True, False)]
    + [(head, {"use_cache": cached}) for head in DECODERS for cached in (True, False)]
    + [(head, {"use_cache": True, "skip_padding": skip}) for head in ENCODER_DECODERS for skip in (True, False)],
)
def test_gradient_checkpointing(head, fields, reentrant):
    batch = ragged_batch(head, labels=True)

    def gradients(checkpoint: bool) -> dict:
        model = tiny_model(head, **fields).train()  # dropout must be the same in both passes
        if checkpoint:
            model.gradient_checkpointing_enable({"use_reentrant": reentrant})
            # Re-entrant checkpointing follows the inputs' gradients; this is what the Trainer calls for that.
            model.enable_input_require_grads()
        torch.manual_seed(1)
        outputs = model(**batch)
        (outputs.loss if "loss" in outputs else outputs[0].square().sum() + outputs[-1].sum()).backward()
        return {name: parameter.grad for name, parameter in model.named_parameters()}

    ours, theirs = gradients(True), gradients(False)
    scale = torch.stack([gradient.norm() for gradient in theirs.values() if gradient is not None]).norm()
    for name, wanted in theirs.items():
        assert (ours[name] is None) == (wanted is None), name
        if wanted is not None:  # (that of a key's bias is rounding alone)
            assert (ours[name] - wanted).norm() <= 1e-5 * wanted.norm() + 1e-7 * scale, name


@pytest.mark.parametrize("size", [70, 50])
@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("head", [TfmBertForMaskedLM, TfmBertForPreTraining], ids=lambda head: head.__name__)
def test_resized_vocabulary(head, tied, size, tmp_path):
    model = tiny_model(head, tie_word_embeddings=tied)
    old = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    model.resize_token_embeddings(size)
    kept = min(size, SIZES["vocab_size"])
    assert model.config.vocab_size == model.lm_head.out_features == size
    for name in ("model.embeddings.embed_tokens.weight", "lm_head.weight", "lm_head.bias"):
        resized = model.state_dict()[name]
        assert resized.shape[0] == size
        assert resized[:kept].equal(old[name][:kept]), name
    assert (model.lm_head.weight is model.get_input_embeddings().weight) == tied
    model.save_pretrained(tmp_path)
    loaded = head.from_pretrained(tmp_path)
    ids = torch.tensor([[1, size - 1, 3]])
    assert loaded(ids)[0].equal(model(ids)[0])
    loss = loaded.train()(ids, labels=ids).loss
    loss.backward()
    assert loss.isfinite() and loaded.lm_head.bias.grad[size - 1] != 0


@pytest.mark.parametrize(
    ("problem", "labels", "classes", "loss"),
    [
        ("regression", torch.tensor([0.5, -1.0, 2.0, 0.0]), 1, lambda x, y: F.mse_loss(x.squeeze(), y)),
        ("regression", torch.randn(4, 3), 3, F.mse_loss),
        ("single_label_classification", torch.tensor([2, 0, 1, 1]), 3, F.cross_entropy),
        ("multi_label_classification", torch.eye(4)[:, :3], 3, F.binary_cross_entropy_with_logits),
    ],
)
def test_problem_types(problem, labels, classes, loss):
    """By name, and found from the labels, where values for several labels are not taken for several classes."""
    for given in (problem, None) if (problem, classes) != ("regression", 3) else (problem,):
        model = tiny_model(TfmBertForSequenceClassification, num_labels=classes, problem_type=given)
        outputs = model(**ragged_batch(), labels=labels)
        torch.testing.assert_close(outputs.loss, loss(outputs.logits, labels))
        assert model.config.problem_type == problem


def test_logits_are_made_where_somebody_reads_them():
    model, batch = tiny_model(TfmBertForMaskedLM), ragged_batch(TfmBertForMaskedLM, labels=True)
    training = model.train()
    assert training(**batch).logits is None
    assert training(**batch, return_logits=True).logits.shape == (4, 9, SIZES["vocab_size"])
    evaluating = model.eval()
    assert evaluating(**batch, return_logits=False).logits is None
    with_logits = evaluating(**batch)
    torch.testing.assert_close(
        with_logits.loss, F.cross_entropy(with_logits.logits.flatten(0, 1), batch["labels"].flatten())
    )


def test_nothing_to_predict():
    """As torch has it: nan for a mean over no token, zero where the step's number of tokens is given; no error."""
    model, batch = tiny_model(TfmBertForMaskedLM).train(), ragged_batch()
    labels = torch.full_like(batch["input_ids"], -100)
    assert model(**batch, labels=labels).loss.isnan()
    loss = model(**batch, labels=labels, num_items_in_batch=5).loss
    loss.backward()
    assert loss == 0


def test_no_answer_stands_at_padding():
    model = tiny_model(tfm_zoo.TfmBertForQuestionAnswering)
    with torch.no_grad():
        model.qa_outputs.bias.fill_(100.0)  # what a position without a hidden state would get
        model.qa_outputs.weight.mul_(100.0)
    outputs = model(**ragged_batch())
    real = ragged_mask().bool()
    for logits in (outputs.start_logits, outputs.end_logits):
        assert logits[~real].max() < logits[real].min()


def test_initial_weights():
    config = tiny_config(hidden_size=64, intermediate_size=256, position_ids_from_padding=True, pad_token_id=1)
    for name, tensor in TfmBertForPreTraining(config).state_dict().items():
        if name.endswith("norm.weight"):
            assert tensor.eq(1).all(), name
        elif tensor.dim() == 1:
            assert tensor.eq(0).all(), name
        else:
            assert tensor.std().item() == pytest.approx(config.initializer_range, rel=0.15), name
            if "embed_tokens" in name or "embed_positions" in name:
                assert tensor[1].eq(0).all(), name


def test_module_names():
    """The names that tensor-parallel plans, adapters and quantisers look for."""
    gated = tiny_model(TfmBertForMaskedLM, num_hidden_layers=1, mlp_type="gated", attention_bias=False, mlp_bias=False)
    names = {name.removesuffix(".weight") for name in gated.state_dict() if name.endswith("weight")}
    block = [f"self_attn.{name}_proj" for name in "qkvo"] + ["self_attn_norm", "mlp_norm"]
    block += [f"mlp.{name}_proj" for name in ("gate", "up", "down")]
    tables = ["embed_tokens", "embed_positions", "embed_token_types", "norm"]
    wanted = {f"model.layers.0.{name}" for name in block} | {f"model.embeddings.{name}" for name in tables}
    assert names == wanted | {"head.dense", "head.norm", "lm_head"}
    assert not [name for name in gated.state_dict() if "proj.bias" in name]
