"""Padding is not computed, wherever it can be left out, by every way of running attention."""

from collections.abc import Iterable
from copy import deepcopy
from functools import partial
from itertools import pairwise

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.module_tracker import ModuleTracker
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.integrations.neftune import neftune_post_forward_hook
from transformers.masking_utils import flash_attention_mask
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from tfm_zoo import (
    TfmBertForMaskedLM,
    TfmBertForQuestionAnswering,
    TfmBertForSequenceClassification,
    TfmBertModel,
    TfmEncoderDecoderForConditionalGeneration,
    TfmGPTForCausalLM,
    TfmGPTForSequenceClassification,
    TfmGPTForTokenClassification,
)
from tfm_zoo.models.batch import Layout
from tfm_zoo.models.kernels import attend_apart, attend_padded
from tfm_zoo.models.masks import apart, find_layouts
from tfm_zoo.models.padding import find_kept, keep, restore

from ..precision import assert_same
from ..tiny import LENGTHS, NO_DROPOUT, TARGET_LENGTHS, ragged_batch, ragged_mask, tiny_model

pytestmark = pytest.mark.usefixtures("double")

REAL = sum(LENGTHS)
ALL = len(LENGTHS) * max(LENGTHS)
VARLEN_CALLS = []


def varlen_attention(module, query, key, value, attention_mask, scaling, dropout=0.0, sliding_window=None, **kwargs):
    """What a kernel for sequences laid end to end computes, written out; like flash attention it knows no mask."""
    bounds = kwargs["cu_seq_lens_q"]
    assert attention_mask is None and not module.is_causal
    assert bounds.dtype == kwargs["cu_seq_lens_k"].dtype == torch.int32
    VARLEN_CALLS.append((query.shape[2], bounds.tolist(), kwargs["max_length_q"], kwargs["max_length_k"]))
    groups = module.num_key_value_groups
    outputs = []
    for start, end in pairwise(bounds.tolist()):
        q, k, v = (states[:, :, start:end] for states in (query, key, value))
        places = torch.arange(end - start)
        # A window of n counts the position itself: n - 1 on either side.
        seen = None if sliding_window is None else (places[:, None] - places).abs() < sliding_window
        k, v = k.repeat_interleave(groups, dim=1), v.repeat_interleave(groups, dim=1)
        outputs.append(nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=seen, scale=scaling))
    return torch.cat(outputs, dim=2).transpose(1, 2), None


AttentionInterface.register("flash_varlen_in_torch", varlen_attention)
AttentionMaskInterface.register("flash_varlen_in_torch", flash_attention_mask)
ARCHITECTURES = {
    "bert": {},
    "rotary": {"position_embedding_type": "rotary", "num_key_value_heads": 2, "norm_position": "pre"},
    "window": {"sliding_window": 2, "position_embedding_type": "sinusoidal"},
    "counted": {"position_ids_from_padding": True, "classifier_pooling": "mean"},
}


def outputs_and_gradients(model, batch: dict) -> tuple:
    mask = batch["attention_mask"].bool()
    outputs = model(**batch)
    outputs.last_hidden_state[mask].square().sum().add(outputs.pooler_output.sum()).backward()
    gradients = {name: parameter.grad for name, parameter in model.named_parameters()}
    return outputs.last_hidden_state[mask].detach(), outputs.pooler_output.detach(), gradients


@pytest.mark.parametrize("fields", [*ARCHITECTURES.values(), {"layer_types": ["linear_attention", "full_attention"]}])
def test_sequence_lengths_reach_the_kernel(fields):
    """Of each layer that compares positions; a linear one, which has no kernel, keeps sequences apart itself."""
    batch = ragged_batch()
    reference = tiny_model(TfmBertModel, skip_padding=False, **fields)
    model = tiny_model(TfmBertModel, **fields)
    model.config._attn_implementation = "flash_varlen_in_torch"  # its setter would look for a kernel on the Hub
    VARLEN_CALLS.clear()
    ours = outputs_and_gradients(model, batch)
    bounds = [0, *torch.tensor(LENGTHS).cumsum(0).tolist()]
    calls = len(model.layers) - model.layer_types.count("linear_attention")
    assert [(REAL, bounds, max(LENGTHS), max(LENGTHS))] * calls == VARLEN_CALLS
    assert_same(ours, outputs_and_gradients(reference, batch))


@pytest.mark.parametrize("side", ["right", "left", "holes"])
@pytest.mark.parametrize("name", ARCHITECTURES)
def test_attention_weights_are_those_of_the_padded_batch(name, side):
    """Asking for them keeps padding out of all but the attention call."""
    batch = ragged_batch(side=side)
    fields = ARCHITECTURES[name] | {"classifier_pooling": "mean"}
    model, reference = (tiny_model(TfmBertModel, skip_padding=skip, **fields) for skip in (True, False))
    computed = count_tokens(model.base_model)
    mask = batch["attention_mask"].bool()
    weights = []
    for each in (model, reference):
        each.set_attn_implementation("eager")
        outputs = each(**batch, output_attentions=True)
        weights.append([layer.transpose(1, 2)[mask] for layer in outputs.attentions])
        assert [layer.shape for layer in outputs.attentions] == [(len(LENGTHS), 4, max(LENGTHS), max(LENGTHS))] * 2
    assert computed == [REAL] * 2
    assert_same(*weights)


@pytest.mark.parametrize(("attention", "value"), [("eager", torch.nan), ("sdpa", torch.inf)])
@pytest.mark.parametrize("head", [TfmBertModel, TfmGPTForSequenceClassification])
def test_a_sequence_that_is_not_finite_leaves_others_as_they_are(head, attention, value):
    model, batch = tiny_model(head, **NO_DROPOUT, num_labels=2).train(), ragged_batch(head)
    model.set_attn_implementation(attention)
    embeds = model.get_input_embeddings()(batch.pop("input_ids")).detach()
    wanted = model(**batch, inputs_embeds=embeds)[0]
    embeds[1, 2] = value
    made = model(**batch, inputs_embeds=embeds)[0]
    others = torch.tensor([0, 2, 3])
    assert_same(made[others], wanted[others])
    assert not made[1].isfinite().all()


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
def test_a_source_that_is_not_finite_leaves_others_as_they_are(attention):
    model = tiny_model(TfmEncoderDecoderForConditionalGeneration, **NO_DROPOUT).train()
    model.set_attn_implementation(attention)
    batch = ragged_batch(TfmEncoderDecoderForConditionalGeneration, labels=True)
    embeds = model.get_input_embeddings()(batch.pop("input_ids")).detach()
    batch["labels"][1], losses = -100, []
    for value in (0.0, torch.nan):
        embeds[1, 2] = value
        losses.append(model(**batch, inputs_embeds=embeds).loss)
    assert losses[0].isfinite()
    assert_same(*losses)


@pytest.mark.parametrize(
    ("fields", "dropout", "calls"),
    [
        ({}, 0.0, [2, 1, 1]),
        ({"num_key_value_heads": 2, "position_embedding_type": "rotary"}, 0.0, [2, 1, 1]),
        ({}, 0.1, [1, 1, 1, 1]),
    ],
    ids=["BERT", "grouped queries", "dropout"],
)
def test_neighbours_of_one_length_are_one_call(fields, dropout, calls, monkeypatch):
    """As in batches that are sorted by length; each gets what it would alone. With dropout each has its own call, on
    which the numbers that a seed draws depend."""
    model = tiny_model(TfmBertModel, **NO_DROPOUT | {"attention_dropout": dropout} | fields)
    kernel, seen = ALL_ATTENTION_FUNCTIONS["sdpa"], []

    def counted(module, query, *args, **kwargs):
        seen.append(len(query))
        return kernel(module, query, *args, **kwargs)

    monkeypatch.setattr(AttentionInterface, "get_interface", lambda *args: counted)
    monkeypatch.setattr("tfm_zoo.models.kernels.dropped_attention_forward", counted)
    lengths = [5, 5, 7, 5]
    ids, mask = torch.randint(1, 60, (4, 7)), (torch.arange(7) < torch.tensor(lengths)[:, None]).long()
    states = model.train(dropout > 0)(ids, mask).last_hidden_state
    assert seen == calls * len(model.layers)
    for row, length in enumerate(lengths) if not dropout else ():
        alone = model(ids[row : row + 1, :length]).last_hidden_state
        assert_same(states[row : row + 1, :length], alone)


def count_tokens(stack) -> list[int]:
    """Fills with the number of tokens that each layer's feed-forward sees. (A hook would have padding computed.)"""
    return count_rows(layer.mlp for layer in stack.layers)


def count_rows(modules: Iterable[nn.Module]) -> list[int]:
    """Fills with the number of states that each of these modules sees."""
    seen = []

    def counted(forward, states):
        seen.append(states.shape[:-1].numel())
        return forward(states)

    for module in modules:
        module.forward = partial(counted, module.forward)
    return seen


def case(name: str, computed: int, head: type = TfmBertModel, fields: dict | None = None, **inputs):
    return pytest.param(head, fields or {}, ragged_batch(head) | inputs, computed, id=name)


LONG = {"rope_type": "longrope", "original_max_position_embeddings": 8, "rope_theta": 100.0, "factor": 3.0}
LONG |= {"short_factor": [1.0] * 4, "long_factor": [2.0] * 4}
LEFT, LABELS_AT_PADDING = ragged_mask(side="left"), torch.where(ragged_mask().bool(), -100, 5)
ONE_IS_EMPTY = ragged_mask() * torch.tensor([[1], [0], [1], [1]])
ANSWERS = {"start_positions": torch.zeros(4).long(), "end_positions": torch.zeros(4).long()}


@pytest.mark.parametrize(
    ("head", "fields", "batch", "computed"),
    [
        case("default", REAL),
        case("boolean mask", REAL, attention_mask=ragged_mask().bool()),
        case("float mask", REAL, attention_mask=ragged_mask().float()),
        case("labels at tokens", REAL, TfmBertForMaskedLM, **ragged_batch(TfmBertForMaskedLM, labels=True)),
        case("classes", REAL, TfmBertForSequenceClassification, labels=torch.tensor([0, 1, 1, 0])),
        case("switched off", ALL, fields={"skip_padding": False}),
        case("no padding", ALL, attention_mask=torch.ones_like(LEFT)),
        case("no mask", ALL, attention_mask=None),
        case("an empty sequence", ALL, attention_mask=ONE_IS_EMPTY),
        case("a mask of pairs", ALL, attention_mask=torch.zeros(4, 1, 9, 9)),
        case("a padded position is pooled", ALL, attention_mask=LEFT),
        case("the mean is pooled", REAL, fields={"classifier_pooling": "mean"}, attention_mask=LEFT),
        case("attention pools", REAL, fields={"classifier_pooling": "attention"}, attention_mask=LEFT),
        case("nothing is pooled", REAL, fields={"add_pooling_layer": False}, attention_mask=LEFT),
        case("labels at padding", ALL, TfmBertForMaskedLM, labels=LABELS_AT_PADDING),
        case("answers to find", REAL, TfmBertForQuestionAnswering),
        case("answers to learn", ALL, TfmBertForQuestionAnswering, **ANSWERS),
        case("hidden states with gradients", ALL, output_hidden_states=True),
        case("frequencies by length", ALL, fields={"position_embedding_type": "rotary", "rope_parameters": LONG}),
    ],
)
def test_tokens_computed(head, fields, batch, computed):
    """Skipped where it can be, and computed where its outputs count; the result is always the padded model's."""
    model, reference = tiny_model(head, **fields), tiny_model(head, **fields | {"skip_padding": False})
    seen = count_tokens(model.base_model)
    outputs = []
    for each in (model, reference):
        outputs.append(each(**batch))
    assert seen == [computed] * 2
    mask = batch["attention_mask"]
    real = mask.bool() if computed == REAL else torch.ones(len(LENGTHS), max(LENGTHS), dtype=torch.bool)
    ours, theirs = (each[0][real] if each[0].shape[:2] == real.shape else each[0] for each in outputs)
    assert_same(ours, theirs)


@pytest.mark.parametrize(("side", "attention"), [("right", "sdpa"), ("left", "eager"), ("holes", "sdpa")])
@pytest.mark.parametrize(
    ("fields", "inputs", "computed"),
    [
        ({}, {}, REAL),
        ({"sliding_window": 2, "position_ids_from_padding": True}, {}, REAL),
        ({}, {"attention_mask": None}, REAL),  # padding is known by its id
        ({"pad_token_id": None}, {"attention_mask": None}, ALL),
        ({"skip_padding": False}, {}, ALL),
        ({}, {"output_hidden_states": True}, ALL),  # with gradients
    ],
    ids=["default", "counted", "no mask", "nothing is padding", "switched off", "hidden states"],
)
def test_tokens_of_a_source_computed(fields, inputs, computed, side, attention):
    """By the encoder, that is; the decoder reads the same of it, and every gradient is the same."""
    head = TfmEncoderDecoderForConditionalGeneration
    batch = ragged_batch(head, side, labels=True) | inputs
    results = []
    for skip in (True, False):
        model = tiny_model(head, **{"skip_padding": skip, "hidden_dropout": 0.0} | fields).train()
        model.set_attn_implementation(attention)
        seen, decoded = (count_tokens(stack) for stack in (model.model.encoder, model.model.decoder))
        outputs = model(**batch, return_logits=True)
        outputs.loss.backward()
        assert seen == [computed if skip else ALL] * 2 and decoded == [batch["labels"].numel()] * 3
        gradients = {name: parameter.grad for name, parameter in model.named_parameters()}
        results.append((outputs.logits, outputs.loss, gradients))
    assert_same(*results)


WHOLE_TARGET = len(TARGET_LENGTHS) * max(TARGET_LENGTHS)


@pytest.mark.parametrize(
    ("fields", "inputs", "computed"),
    [
        ({}, {}, sum(TARGET_LENGTHS)),
        ({"sliding_window": 2, "position_embedding_type": "rotary"}, {}, sum(TARGET_LENGTHS)),
        ({"position_embedding_type": "none", "relative_attention_num_buckets": 8}, {}, sum(TARGET_LENGTHS)),
        ({"attention_type": "linear"}, {}, sum(TARGET_LENGTHS)),
        ({}, {"labels": torch.tensor([[-100] * 6 + [5], [-100] * 7, [4] + [-100] * 6, [-100, 4] + [-100] * 5])}, 11),
        ({}, {"output_hidden_states": True}, WHOLE_TARGET),
        ({}, {"decoder_attention_mask": torch.ones(4, 7)}, sum(TARGET_LENGTHS)),
        ({}, {"decoder_attention_mask": ragged_mask((5, 2, 7, 4))}, sum(TARGET_LENGTHS)),
    ],
    ids=["default", "window", "bias", "linear", "few labels", "hidden states", "mask", "padding in a mask"],
)
@pytest.mark.parametrize("is_padded", [False, True], ids=["split", "padded"])
def test_tokens_of_a_target_computed(fields, inputs, computed, is_padded, monkeypatch):
    """In training nobody reads what stands behind the last label; the loss and every gradient are the same."""
    monkeypatch.setattr("tfm_zoo.models.decoder_entrance.find_layouts", partial(find_layouts, shows_weights=is_padded))
    head = TfmEncoderDecoderForConditionalGeneration
    batch = ragged_batch(head, labels=True) | inputs
    results = []
    for skip in (True, False):
        model = tiny_model(head, skip_padding=skip, **NO_DROPOUT, **fields).train()
        decoded = count_tokens(model.model.decoder)
        outputs = model(**batch)
        outputs.loss.backward()
        assert outputs.logits is None and decoded == [computed if skip else WHOLE_TARGET] * 3
        results.append((outputs.loss, {name: parameter.grad for name, parameter in model.named_parameters()}))
    assert_same(*results)


MADE = {"decoder_input_ids": None}  # of labels
LAST_LABELS = sum(TARGET_LENGTHS)


@pytest.mark.parametrize(
    ("inputs", "computed"),
    [
        (MADE, LAST_LABELS),
        ({}, LAST_LABELS + 3),  # where labels end, three of the targets have one more token, and then padding
        ({"decoder_attention_mask": ragged_mask(TARGET_LENGTHS)}, LAST_LABELS),
        (MADE | {"decoder_attention_mask": ragged_mask(TARGET_LENGTHS)}, LAST_LABELS),
        ({"decoder_attention_mask": ragged_mask((5, 2, 7, 4))}, LAST_LABELS + 2),
        ({"decoder_attention_mask": ragged_mask(TARGET_LENGTHS, "left")}, WHOLE_TARGET),
        ({"decoder_attention_mask": ragged_mask(TARGET_LENGTHS), "labels": torch.ones(4, 7).long()}, WHOLE_TARGET),
        (MADE | {"return_logits": True}, WHOLE_TARGET),
        (MADE | {"output_attentions": True}, WHOLE_TARGET),
        (MADE | {"logits_to_keep": 2}, WHOLE_TARGET),
    ],
    ids=["made", "given", "mask", "made, mask", "longer mask", "left", "labels", "logits", "attentions", "some logits"],
)
@pytest.mark.parametrize("fields", [{}, {"position_embedding_type": "none", "relative_attention_num_buckets": 8}])
@torch.no_grad()
def test_tokens_of_a_target_evaluated(fields, inputs, computed):
    """In evaluation the padding at the end of a target has no logits, and the others and the loss are the same."""
    head = TfmEncoderDecoderForConditionalGeneration
    batch = ragged_batch(head, labels=True) | inputs
    model, reference = (tiny_model(head, skip_padding=skip, **fields) for skip in (True, False))
    decoded = count_tokens(model.model.decoder)
    outputs, expected = model(**batch), reference(**batch)
    assert_same(outputs.loss, expected.loss)
    assert decoded == [computed] * 3
    assert outputs.logits.shape == expected.logits.shape
    real = outputs.logits.any(dim=-1)
    assert real.sum() == (LAST_LABELS if "output_attentions" in inputs else min(computed, real.numel()))
    assert_same(outputs.logits[real], expected.logits[real])


def test_source_read_without_its_padding():
    """Its keys and values are made of real tokens alone, for an attention whose weights and gradients are the same."""
    head = TfmEncoderDecoderForConditionalGeneration
    results = []
    for skip in (True, False):
        model = tiny_model(head, skip_padding=skip, attention_bias=True).eval()
        projected = count_rows(layer.encoder_attn.k_proj for layer in model.model.decoder.layers)
        model(**ragged_batch(head, labels=True)).loss.backward()
        assert projected == [REAL if skip else ALL] * 3
        results.append([parameter.grad for parameter in model.parameters()])
    assert_same(*results)


FEW_LABELS = torch.tensor([-100, 3, 4, -100, 5, *[-100] * 4]).expand(4, -1).where(ragged_mask().bool(), -100)
NEEDED = 5 + 3 + 1 + 5  # up to the last of these labels, or the first token
AT_LEFT = {"attention_mask": LEFT, "labels": F.pad(torch.tensor([[5], [5], [-100], [5]]), (8, 0), value=-100)}
EXPERTS = {"num_local_experts": 3, "mlp_type": "gated", "mlp_bias": False, "hidden_act": "silu"}


def test_an_evaluated_tagger_reads_what_is_behind_the_last_label():
    model, batch = tiny_model(TfmGPTForTokenClassification, use_cache=False).eval(), ragged_batch()
    del batch["token_type_ids"]
    labels, real = FEW_LABELS.clamp(max=1), batch["attention_mask"] == 1
    torch.testing.assert_close(model(**batch, labels=labels).logits[real], model(**batch).logits[real])


@pytest.mark.parametrize(
    ("fields", "inputs", "computed"),
    [
        ({}, {}, REAL),
        ({"position_embedding_type": "alibi"}, {"labels": FEW_LABELS}, NEEDED),
        ({"sliding_window": 2, "position_embedding_type": "rotary"}, AT_LEFT, REAL),
        ({"attention_type": "linear"}, {"attention_mask": None, "labels": FEW_LABELS}, NEEDED),
        (EXPERTS, {"labels": FEW_LABELS}, NEEDED),
        (EXPERTS | {"output_router_logits": True}, {}, ALL),
        ({"position_embedding_type": "rotary", "rope_parameters": LONG}, {}, ALL),
        ({}, {"attention_mask": None, "labels": torch.ones(4, 9, dtype=torch.long)}, ALL),
        ({}, {"labels": LABELS_AT_PADDING}, ALL),
        ({}, {"return_logits": True}, ALL),
        ({"skip_padding": False}, {}, ALL),
        ({}, {"position_ids": torch.arange(9)[None]}, REAL),
        ({"position_embedding_type": "rotary"}, AT_LEFT | {"position_ids": (LEFT.cumsum(1) - 1).clamp(min=0)}, REAL),
    ],
)
@pytest.mark.parametrize("is_padded", [False, True], ids=["split", "padded"])
def test_tokens_of_a_text_computed(fields, inputs, computed, is_padded, monkeypatch):
    """By a decoder in training, up to the last label of each row; the loss and every gradient are the same."""
    monkeypatch.setattr("tfm_zoo.models.decoder_entrance.find_layouts", partial(find_layouts, shows_weights=is_padded))
    batch = ragged_batch(TfmGPTForCausalLM, labels=True) | inputs
    results = []
    for skip in (True, False):
        model = tiny_model(TfmGPTForCausalLM, **NO_DROPOUT | {"skip_padding": skip} | fields).train()
        seen = count_tokens(model.model)
        loss = model(**batch).loss
        loss.backward()
        assert seen == [computed if skip else ALL] * 2
        results.append((loss, {name: parameter.grad for name, parameter in model.named_parameters()}))
    assert_same(*results)


@pytest.mark.parametrize("side", ["right", "left"])
def test_a_classifier_of_texts_computes_no_padding(side):
    batch = ragged_batch(TfmGPTForSequenceClassification, side, labels=True)
    model, reference = (tiny_model(TfmGPTForSequenceClassification, skip_padding=skip) for skip in (True, False))
    seen = count_tokens(model.model)
    assert_same(model(**batch).logits, reference(**batch).logits)
    assert seen == [REAL] * 2


def test_hidden_states_without_gradients_are_restored():
    model, reference = (tiny_model(TfmBertModel, skip_padding=skip) for skip in (True, False))
    batch, mask = ragged_batch(), ragged_mask().bool()
    seen = count_tokens(model.base_model)
    with torch.no_grad():
        ours, theirs = (each(**batch, output_hidden_states=True).hidden_states for each in (model, reference))
    assert seen == [REAL] * 2
    assert len(ours) == len(theirs) == 3
    for one, other in zip(ours, theirs, strict=True):
        assert one.shape == other.shape
        assert one[~mask].eq(0).all()
        assert_same(one[mask], other[mask])


def test_drop_and_restore():
    mask = ragged_mask(side="holes")
    kept = find_kept(mask)
    states = torch.randn(*mask.shape, 5)
    dropped = keep(states, kept)
    assert dropped.shape == (1, REAL, 5)
    assert restore(dropped, kept).equal(states * mask[..., None])
    # A row that stands for every sequence, as position ids do.
    assert keep(torch.arange(9)[None], kept).equal(torch.arange(9).expand(4, 9)[mask.bool()][None])


def test_split_and_padded_are_one_attention():
    """Called by themselves, on the same heads, they give the same result."""
    mask = ragged_mask(side="holes")
    kept = find_kept(mask)
    torch.manual_seed(0)
    heads = [torch.randn(1, 4, REAL, 8) for _ in range(3)]
    allowed = mask.bool()[:, None, None, :].expand(-1, 1, mask.shape[1], -1)

    def attention(module, query, key, value, attention_mask, **kwargs):
        attended = nn.functional.scaled_dot_product_attention(query, key, value, attn_mask=attention_mask)
        return attended.transpose(1, 2), None

    places = torch.arange(mask.shape[1])
    near = allowed & ((places[:, None] - places).abs() <= 2)
    for own, whole in ((None, allowed), (near, near)):
        split = attend_apart(attention, apart(Layout(own), kept), None, *heads, None)[0]
        restored = Layout(whole, mode="restored", queries=kept, keys=kept)
        padded = attend_padded(attention, restored, None, *heads, whole)[0]
        assert_same(split, padded)


def test_logits_at_padding_are_zero_with_and_without_labels():
    batch = ragged_batch(TfmBertForMaskedLM, labels=True)
    labels, padded = batch.pop("labels"), batch["attention_mask"] == 0
    model = tiny_model(TfmBertForMaskedLM)
    with torch.no_grad():
        for logits in (model(**batch).logits, model(**batch, labels=labels).logits):
            assert not logits[padded].any() and logits[~padded].any()


def test_mean_of_real_tokens_needs_to_know_them():
    batch = ragged_batch()
    mask = batch.pop("attention_mask")
    pairs = mask[:, None, None, :].expand(-1, 1, mask.shape[1], -1)
    with pytest.raises(ValueError, match="classifier_pooling='mean' needs to know"):
        tiny_model(TfmBertModel, classifier_pooling="mean")(**batch, attention_mask=pairs)


def test_hooks_see_padded_batches():
    """What captum and Opacus compute of a submodule's input; those that are known to take any shape change nothing."""
    model, batch = tiny_model(TfmBertModel), ragged_batch()
    with torch.no_grad():
        wanted = model(**batch, output_hidden_states=True).last_hidden_state
        assert wanted[batch["attention_mask"] == 0].eq(0).all()
        shapes = []
        hook = model.layers[1].mlp.register_forward_hook(lambda module, args, output: shapes.append(output.shape))
        states = model(**batch).last_hidden_state
        hook.remove()
        assert shapes == [wanted.shape]
        mlp, hooked = model.layers[1].mlp, deepcopy(model.layers[1].mlp)
        hooked.register_forward_hook(lambda module, args, output: shapes.append(output.shape))
        model(**batch)
        model.layers[1].mlp = hooked  # which registers no hook
        model(**batch)
        model.layers[1].mlp = mlp
        assert shapes == [wanted.shape] * 2
        seen = {}
        hook = model.layers[1].register_forward_pre_hook(seen.__setitem__)  # it is of no Python module
        model(**batch)
        hook.remove()
        assert seen[model.layers[1]][0].shape == wanted.shape
        real = batch["attention_mask"] == 1
        assert_same(states[real], wanted[real])
        assert model(**batch).last_hidden_state.equal(wanted)
        tokens = count_tokens(model)
        model.enable_input_require_grads()
        with ModuleTracker():
            model(**batch)
        assert {*tokens} == {REAL}
        tokens.clear()
        handle = model.embeddings.register_forward_hook(neftune_post_forward_hook)  # reads the length of a row
        model(**batch)
        handle.remove()
        assert {*tokens} == {ALL}


@pytest.mark.parametrize("kind", ["forward", "forward_pre", "full_backward", "full_backward_pre"])
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
