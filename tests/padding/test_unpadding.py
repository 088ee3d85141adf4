"""Padding is not computed, wherever it can be left out, by every way of running attention."""

from collections.abc import Iterable
from functools import partial

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.module_tracker import ModuleTracker
from transformers.integrations.neftune import neftune_post_forward_hook

import tfm_zoo
from tfm_zoo import TfmBertForMaskedLM, TfmBertModel, TfmGPTForCausalLM, TfmGPTForSequenceClassification
from tfm_zoo.models.entrance import find_layouts

from ..precision import assert_same
from ..tiny import LENGTHS, NO_DROPOUT, TARGET_LENGTHS, ragged_batch, ragged_mask, tiny_model

pytestmark = pytest.mark.usefixtures("double")

SIDES = tfm_zoo.TfmEncoderDecoderForConditionalGeneration
REAL = sum(LENGTHS)
ALL = len(LENGTHS) * max(LENGTHS)


def count_rows(modules: Iterable[nn.Module]) -> list[int]:
    """Fills with the number of states that each of these modules sees. (A hook would have padding computed.)"""
    seen = []

    def counted(forward, states):
        seen.append(states.shape[:-1].numel())
        return forward(states)

    for module in modules:
        module.forward = partial(counted, module.forward)
    return seen


def count_tokens(stack: nn.Module) -> list[int]:
    return count_rows(layer.mlp for layer in stack.layers)


def gradients(model: nn.Module) -> dict[str, torch.Tensor]:
    return {name: parameter.grad for name, parameter in model.named_parameters()}


@pytest.mark.parametrize(("attention", "value"), [("eager", torch.nan), ("sdpa", torch.inf)])
@pytest.mark.parametrize("head", [TfmBertModel, TfmGPTForSequenceClassification, SIDES])
def test_a_sequence_that_is_not_finite_leaves_others_as_they_are(head, attention, value):
    """What the others give; of a source, the loss of the other targets."""
    model, batch = tiny_model(head, **NO_DROPOUT).train(), ragged_batch(head, labels=head is SIDES)
    model.set_attn_implementation(attention)
    embeds = model.get_input_embeddings()(batch.pop("input_ids")).detach()
    if head is SIDES:
        batch["labels"][1] = -100
    wanted = model(**batch, inputs_embeds=embeds)[0]
    embeds[1, 2] = value
    made = model(**batch, inputs_embeds=embeds)[0]
    others = torch.tensor([0, 2, 3]) if made.dim() else ...
    assert wanted.isfinite().all()
    assert_same(made[others], wanted[others])


LONG = {"rope_type": "longrope", "original_max_position_embeddings": 8, "rope_theta": 100.0, "factor": 3.0}
LONG |= {"short_factor": [1.0] * 4, "long_factor": [2.0] * 4}
LONG = {"position_embedding_type": "rotary", "rope_parameters": LONG}
LEFT, LABELS_AT_PADDING = ragged_mask(side="left"), torch.where(ragged_mask().bool(), -100, 5)
AT_LEFT = {"attention_mask": LEFT}
ONE_IS_EMPTY = ragged_mask() * torch.tensor([[1], [0], [1], [1]])
ANSWERS = {"start_positions": torch.zeros(4).long(), "end_positions": torch.zeros(4).long()}
OF_TOKENS = ragged_batch(TfmBertForMaskedLM, labels=True)
TEXTS_AT_LEFT = ragged_batch(TfmGPTForSequenceClassification, "left")


@pytest.mark.parametrize(
    ("computed", "head", "fields", "inputs"),
    [
        pytest.param(computed, head, fields, inputs, id=name)
        for name, computed, head, fields, inputs in (
            ("default", REAL, TfmBertModel, {}, {}),
            ("boolean mask", REAL, TfmBertModel, {}, {"attention_mask": ragged_mask().bool()}),
            ("float mask", REAL, TfmBertModel, {}, {"attention_mask": ragged_mask().float()}),
            ("labels at tokens", REAL, TfmBertForMaskedLM, {}, OF_TOKENS),
            ("classes", REAL, tfm_zoo.TfmBertForSequenceClassification, {}, {"labels": torch.tensor([0, 1, 1, 0])}),
            ("texts", REAL, TfmGPTForSequenceClassification, {}, {"token_type_ids": None}),
            ("texts, left", REAL, TfmGPTForSequenceClassification, {}, {"token_type_ids": None} | TEXTS_AT_LEFT),
            ("switched off", ALL, TfmBertModel, {"skip_padding": False}, {}),
            ("no padding", ALL, TfmBertModel, {}, {"attention_mask": torch.ones_like(LEFT)}),
            ("no mask", ALL, TfmBertModel, {}, {"attention_mask": None}),
            ("an empty sequence", ALL, TfmBertModel, {}, {"attention_mask": ONE_IS_EMPTY}),
            ("a mask of pairs", ALL, TfmBertModel, {}, {"attention_mask": torch.zeros(4, 1, 9, 9)}),
            ("a padded position is pooled", ALL, TfmBertModel, {}, AT_LEFT),
            ("the mean is pooled", REAL, TfmBertModel, {"classifier_pooling": "mean"}, AT_LEFT),
            ("attention pools", REAL, TfmBertModel, {"classifier_pooling": "attention"}, AT_LEFT),
            ("nothing is pooled", REAL, TfmBertModel, {"add_pooling_layer": False}, AT_LEFT),
            ("labels at padding", ALL, TfmBertForMaskedLM, {}, {"labels": LABELS_AT_PADDING}),
            ("answers to find", REAL, tfm_zoo.TfmBertForQuestionAnswering, {}, {}),
            ("answers to learn", ALL, tfm_zoo.TfmBertForQuestionAnswering, {}, ANSWERS),
            ("hidden states with gradients", ALL, TfmBertModel, {}, {"output_hidden_states": True}),
            ("frequencies by length", ALL, TfmBertModel, LONG, {}),
        )
    ],
)
def test_tokens_computed(computed, head, fields, inputs):
    """Skipped where it can be, and computed where its outputs count; the result is always the padded model's."""
    batch = ragged_batch() | inputs
    model, reference = tiny_model(head, **fields), tiny_model(head, **fields | {"skip_padding": False})
    seen = count_tokens(model.base_model)
    outputs = [each(**batch)[0] for each in (model, reference)]
    assert seen == [computed] * 2
    real = batch["attention_mask"].bool() if computed == REAL else torch.ones(4, 9, dtype=torch.bool)
    assert_same(*(each[real] if each.shape[:2] == real.shape else each for each in outputs))


@pytest.mark.parametrize(
    ("fields", "inputs", "computed"),
    [
        ({}, {}, REAL),
        ({"sliding_window": 2, "position_ids_from_padding": True}, {}, REAL),
        ({}, {"attention_mask": None}, REAL),  # padding is known by its id
        ({"skip_padding": False}, {}, ALL),
        ({}, {"output_hidden_states": True}, ALL),  # with gradients
    ],
    ids=["default", "counted", "no mask", "switched off", "hidden states"],
)
def test_tokens_of_a_source_computed(fields, inputs, computed):
    """By the encoder, that is; the decoder reads the same of it, and every gradient is the same."""
    for side, attention in (("right", "sdpa"), ("holes", "eager")):
        batch, results = ragged_batch(SIDES, side, labels=True) | inputs, []
        for skip in (True, False):
            model = tiny_model(SIDES, **{"skip_padding": skip, "hidden_dropout": 0.0} | fields).train()
            model.set_attn_implementation(attention)
            encoder, decoder = model.model.encoder, model.model.decoder
            seen, decoded = count_tokens(encoder), count_tokens(decoder)
            projected = count_rows(layer.encoder_attn.k_proj for layer in decoder.layers)
            outputs = model(**batch, return_logits=True)
            outputs.loss.backward()
            assert seen == [computed if skip else ALL] * 2 and decoded == [batch["labels"].numel()] * 3, side
            if not inputs.get("output_hidden_states"):  # keys and values are those of real tokens alone
                assert projected == [computed if skip else ALL] * 3, side
            results.append((outputs.logits, outputs.loss, gradients(model)))
        assert_same(*results, side)


T5 = {"position_embedding_type": "none", "relative_attention_num_buckets": 8}
LAST_LABELS = sum(TARGET_LENGTHS)
WHOLE_TARGET = len(TARGET_LENGTHS) * max(TARGET_LENGTHS)
FEW_OF_TARGETS = torch.tensor([[-100] * 6 + [5], [-100] * 7, [4] + [-100] * 6, [-100, 4] + [-100] * 5])
FEW_LABELS = torch.tensor([-100, 3, 4, -100, 5, *[-100] * 4]).expand(4, -1).where(ragged_mask().bool(), -100)
NEEDED = 5 + 3 + 1 + 5  # up to the last of these labels, or the first token
LABELS_AT_LEFT = AT_LEFT | {"labels": F.pad(torch.tensor([[5], [5], [-100], [5]]), (8, 0), value=-100)}
EXPERTS = {"num_local_experts": 3, "mlp_type": "gated", "mlp_bias": False, "hidden_act": "silu"}
ROTARY, LINEAR = {"position_embedding_type": "rotary"}, {"attention_type": "linear"}


@pytest.mark.parametrize(
    ("head", "fields", "inputs", "computed"),
    [
        *((SIDES, fields, {}, LAST_LABELS) for fields in ({}, ROTARY | {"sliding_window": 2}, T5, LINEAR)),
        (SIDES, {}, {"labels": FEW_OF_TARGETS}, 11),
        (SIDES, {}, {"output_hidden_states": True}, WHOLE_TARGET),
        (SIDES, {}, {"decoder_attention_mask": ragged_mask((5, 2, 7, 4))}, LAST_LABELS),
        (TfmGPTForCausalLM, {}, {}, REAL),
        (TfmGPTForCausalLM, {"position_embedding_type": "alibi"}, {"labels": FEW_LABELS}, NEEDED),
        (TfmGPTForCausalLM, ROTARY | {"sliding_window": 2}, LABELS_AT_LEFT, REAL),
        (TfmGPTForCausalLM, LINEAR, {"attention_mask": None, "labels": FEW_LABELS}, NEEDED),
        (TfmGPTForCausalLM, EXPERTS, {"labels": FEW_LABELS}, NEEDED),
        (TfmGPTForCausalLM, EXPERTS | {"output_router_logits": True}, {}, ALL),
        (TfmGPTForCausalLM, LONG, {}, ALL),
        (TfmGPTForCausalLM, {}, {"labels": LABELS_AT_PADDING}, ALL),
        (TfmGPTForCausalLM, {}, {"return_logits": True}, ALL),
        (TfmGPTForCausalLM, {"skip_padding": False}, {}, ALL),
        (TfmGPTForCausalLM, ROTARY, LABELS_AT_LEFT | {"position_ids": (LEFT.cumsum(1) - 1).clamp(min=0)}, REAL),
    ],
)
def test_tokens_computed_by_a_decoder_in_training(head, fields, inputs, computed, monkeypatch):
    """Nobody reads what stands behind the last label. The loss and every gradient are those of all tokens, whether
    attention runs sequence by sequence or, as for a bias that is large, on the padded batch."""
    batch, place = ragged_batch(head, labels=True) | inputs, "tfm_zoo.models.decoder_entrance.find_layouts"
    for is_padded in (False, True):
        monkeypatch.setattr(place, partial(find_layouts, shows_weights=is_padded))
        results = []
        for skip in (True, False):
            model = tiny_model(head, **NO_DROPOUT | {"skip_padding": skip} | fields).train()
            decoder = model.get_decoder()
            seen = count_tokens(decoder)
            outputs = model(**batch)
            outputs.loss.backward()
            assert seen == [computed if skip else batch["labels"].numel()] * len(decoder.layers)
            results.append((outputs.loss, gradients(model)))
        assert_same(*results)


def test_an_evaluated_tagger_reads_what_is_behind_the_last_label():
    model, batch = tiny_model(tfm_zoo.TfmGPTForTokenClassification), ragged_batch(tfm_zoo.TfmGPTForTokenClassification)
    real = batch["attention_mask"] == 1
    assert_same(model(**batch, labels=FEW_LABELS.clamp(max=1)).logits[real], model(**batch).logits[real])


@torch.no_grad()
def test_logits_at_padding_are_zero_with_and_without_labels():
    batch, model = ragged_batch(TfmBertForMaskedLM, labels=True), tiny_model(TfmBertForMaskedLM)
    padded = batch["attention_mask"] == 0
    for given in (batch, batch | {"labels": None}):
        logits = model(**given).logits
        assert not logits[padded].any() and logits[~padded].any()


@torch.no_grad()
def test_hooks_see_padded_batches():
    """What captum and Opacus compute of a submodule's input; those that are known to take any shape change nothing."""
    model, batch, shapes = tiny_model(TfmBertModel), ragged_batch(), []
    wanted, real = model(**batch).last_hidden_state, batch["attention_mask"] == 1

    def note(module, args, output) -> None:
        shapes.append(output.shape)

    hook = model.layers[1].mlp.register_forward_hook(note)
    assert_same(model(**batch).last_hidden_state[real], wanted[real])
    hook.remove()
    assert shapes == [wanted.shape]
    tokens = count_tokens(model)
    model.enable_input_require_grads()
    with ModuleTracker():
        model(**batch)
    assert {*tokens} == {REAL}
    tokens.clear()
    model.embeddings.register_forward_hook(neftune_post_forward_hook)  # reads the length of a row
    model(**batch)
    assert {*tokens} == {ALL}


@pytest.mark.parametrize("kind", ["forward", "full_backward_pre"])
def test_hooks_of_all_modules_see_padded_batches(kind):
    shapes, model, batch = [], tiny_model(TfmBertModel, add_pooling_layer=False), ragged_batch()

    def note(module: nn.Module, *values):
        if module is model.layers[1]:
            shapes.append(values[0][0].shape)

    handle = getattr(torch.nn.modules.module, f"register_module_{kind}_hook")(note)
    try:
        model(**batch).last_hidden_state.sum().backward()
    finally:
        handle.remove()
    assert shapes == [(*batch["input_ids"].shape, model.config.hidden_size)]
