"""Every valid configuration builds, learns, and survives a save and a load; encoders skip padding without a trace,
decoders, with an encoder or without, say the same step by step as at once."""

import re
import tempfile
from itertools import pairwise

import pytest
import torch
from huggingface_hub.errors import StrictDataclassError
from hypothesis import HealthCheck, assume, example, given, settings
from hypothesis import strategies as st
from transformers import DynamicCache, EncoderDecoderCache, StaticCache

import tfm_zoo

from ..precision import assert_same
from ..tiny import DECODERS, ENCODER_DECODERS, ENCODERS, HEADS, NO_DROPOUT, ragged_batch, tiny_config, tiny_model

pytestmark = pytest.mark.usefixtures("double")

YES_OR_NO, PERHAPS = (False, True), (None, False, True)


def all_of(values: tuple, names: str) -> dict[str, tuple]:
    return dict.fromkeys(names.split(), values)


NORMS = ("layernorm", "zero_centered_layernorm", "rmsnorm", "zero_centered_rmsnorm")
ACTIVATIONS = ("gelu", "relu", "silu", "gelu_new", "quick_gelu", "tanh", "relu2")
SIX = {"original_max_position_embeddings": 6}
ROPES = [
    {"rope_type": "default"},
    {"rope_type": "default", "partial_rotary_factor": 0.5},
    {"rope_type": "linear", "factor": 3.0},
    {"rope_type": "dynamic", "factor": 2.0},
    {"rope_type": "yarn", "factor": 4.0} | SIX,
    {"rope_type": "yarn", "factor": 4.0, "llama_4_scaling_beta": 0.5} | SIX,
    {"rope_type": "longrope", "factor": 4.0} | SIX,
    {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0} | SIX,
]
COMMON = settings(deadline=None, derandomize=True, database=None, suppress_health_check=[HealthCheck.too_slow])
#: field -> values of which one is drawn; `None`: what it is by default. First those that all families have
AXES = {
    **all_of(YES_OR_NO, "embedding_norm scale_embedding attention_bias mlp_bias tie_word_embeddings"),
    **all_of(PERHAPS, "final_norm attention_output_bias mlp_output_bias first_norm"),
    **{"round_embedding_scale": PERHAPS, "num_hidden_layers": (1, 2)},
    **{"intermediate_size": range(1, 21), "type_vocab_size": range(3), "embedding_size": (None, None, 4, 12)},
    **{"norm_position": ("post", "pre", "output", "both"), "qk_norm": (None, "head", "whole", "turned_head")},
    **{"norm_type": NORMS, "norm_bias": (None, False), "mlp_type": ("dense", "gated"), "hidden_act": ACTIVATIONS},
    **{"position_embedding_type": ("learned", "sinusoidal", "rotary", "alibi", "none"), "rope_parameters": ROPES},
    **{"sliding_window": (None, *range(1, 9)), "pad_token_id": range(4), "num_labels": range(2, 5)},
    **{"attn_logit_softcapping": (None, None, None, 2.0), "attention_scale": (None, 1, 0.3)},
    **{"residual_multiplier": (1, 0.3), "embedding_multiplier": (1, 3), "attention_type": (None, None, "linear")},
}
OF_FAMILY = {
    tfm_zoo.TfmBertConfig: {
        **all_of(YES_OR_NO, "lm_head_transform classifier_transform position_ids_from_padding lm_head_bias"),
        **all_of(YES_OR_NO, "classifier_bias add_pooling_layer"),
        **all_of(PERHAPS, "classifier_norm classifier_dense"),
        **{"classifier_pooling": ("cls", "mean", "attention", "late"), "lm_head_act": (None, *ACTIVATIONS)},
        **{"num_hidden_groups": (None, 1), "pooler_act": ACTIVATIONS},
    },
    tfm_zoo.TfmGPTConfig: {
        **all_of(YES_OR_NO, "train_padding_embedding scaled_residual_init lm_head_bias"),
        **all_of(PERHAPS, "lm_head_transform position_ids_from_mask scale_alibi round_alibi"),
        **{"lm_head_act": (None, *ACTIVATIONS), "logit_scale": (1, 0.3), "final_logit_softcapping": (None, 3)},
        **{"position_offset": (None, 1, 2), "project_tokens": PERHAPS, "pad_token_id": (0,)},
    },
    tfm_zoo.TfmEncoderDecoderConfig: {
        **{"encoder_layers": (1, 2), "decoder_layers": (1, 2), "decoder_ffn_dim": (None, 12), "logit_scale": (1, 0.3)},
        **all_of(YES_OR_NO, "share_encoder_decoder_embeddings start_with_last_token train_padding_embedding"),
        **all_of(PERHAPS, "norm_target_tokens lm_head_bias final_logits_bias"),
        **{"final_logit_softcapping": (None, 3), "weight_init": ("xavier", "normal"), "position_offset": (None, 1, 2)},
        **{"sinusoid_type": (None, "halves", "tensor2tensor"), "decoder_attention_heads": (None, 1)},
        **{"position_ids_from_padding": PERHAPS, "num_hidden_layers": (None,)},
    },
}
BUCKETS = {"num_buckets": range(4, 10), "max_distance": range(5, 21), "per_layer": YES_OR_NO}
#: fields that go together
BUNDLES = [
    {f"relative_attention_{name}": values for name, values in BUCKETS.items()},
    {"norm_position": ("pre",), "use_parallel_residual": (True,), "num_ln_in_parallel_attn": (1, 2)},
    {"type_vocab_size": (0,), "token_types_as_tokens": (True,)},
    {
        **{"mlp_type": ("gated",), "mlp_bias": (False,), "mlp_output_bias": (None,), "num_local_experts": (2, 3, 4)},
        **{"num_experts_per_tok": (1, 2), "moe_intermediate_size": (4, 12), "norm_topk_prob": YES_OR_NO},
        **{"shared_expert_intermediate_size": (None, 5), "output_router_logits": YES_OR_NO},
    },
]


def one(draw, *values):
    return draw(st.sampled_from(values))


def drawn(draw, choices: dict) -> dict:
    return {name: one(draw, *values) for name, values in choices.items()}


@st.composite
def configurations(draw, family: type) -> dict:
    """Fields of a family, drawn along every axis. Those that an error names, since they do not fit, are left out."""
    fields = NO_DROPOUT | drawn(draw, AXES | OF_FAMILY[family])
    for bundle in BUNDLES:
        fields |= drawn(draw, bundle) if one(draw, *YES_OR_NO) else {}
    heads, head_dim = one(draw, 1, 2, 4), one(draw, None, 4, 6)
    fields |= {"num_attention_heads": heads, "num_key_value_heads": one(draw, None, 1, max(heads // 2, 1))}
    fields |= {"head_dim": head_dim}
    fields["hidden_size"] = 8 * heads if head_dim is None else one(draw, 10, 16)
    if fields["norm_position"] in ("output", "both"):
        fields["norm_eps"] = 0.1  # else the norm of an output that is nearly constant enlarges its rounding
    rope = fields["rope_parameters"] = fields["rope_parameters"] | {"rope_theta": one(draw, 100.0, 10000.0)}
    if rope["rope_type"] == "longrope":  # it counts channels
        width = (head_dim or 8) // 2
        rope |= {"short_factor": [1.0] * width, "long_factor": [2.0] * width}
        fields["decoder_attention_heads"] = None
    if family is not tfm_zoo.TfmEncoderDecoderConfig and one(draw, *YES_OR_NO):
        depth = fields["num_hidden_layers"]
        fields["no_rope_layers"] = [one(draw, 0, 1) for _ in range(depth)]
        kinds = ("full_attention", "sliding_attention", "linear_attention")
        fields["layer_types"] = [one(draw, *kinds) for _ in range(depth)]
        if one(draw, *YES_OR_NO):
            other = {"rope_type": "default", "rope_theta": 50.0}
            by_type = {"full_attention": other, "sliding_attention": rope, "linear_attention": rope}
            fields["rope_parameters"] = {kind: by_type[kind] for kind in fields["layer_types"]}
    return valid(family, fields)


def valid(family: type, fields: dict) -> dict:
    fields = {name: value for name, value in fields.items() if value is not None}
    while True:
        try:
            tiny_config(family, **fields)
        except (ValueError, StrictDataclassError) as error:
            del fields[next(name for name in re.findall(r"(\w+)=", str(error)) if name in fields)]
        else:
            return fields


OF_ENCODERS, OF_DECODERS, OF_TRANSLATORS = map(configurations, OF_FAMILY)
#: heads, and fields for them
ENCODER = st.tuples(st.sampled_from(ENCODERS), OF_ENCODERS)
DECODER = st.tuples(st.sampled_from(DECODERS), OF_DECODERS)
TRANSLATOR = st.tuples(st.sampled_from(ENCODER_DECODERS), OF_TRANSLATORS)
ATTENTION, SIDE = st.sampled_from(["eager", "sdpa"]), st.sampled_from(["right", "left", "holes"])
PADDED_SIDE = st.sampled_from(["right", "left"])


def make(head: type, attention: str, **fields):
    """A model with this implementation of attention, if it has it."""
    model = tiny_model(head, **fields)
    if attention == "eager" or model._supports_sdpa:
        model.set_attn_implementation(attention)
    return model


def make_batch(head: type, fields: dict, side: str, labels: bool = False) -> dict[str, torch.Tensor]:
    batch = ragged_batch(head, side, labels=labels)
    if head is tfm_zoo.TfmEncoderDecoderForSequenceClassification and not fields["share_encoder_decoder_embeddings"]:
        batch["decoder_input_ids"] = batch["input_ids"]
    return batch | {"token_type_ids": (batch["input_ids"] % 2).clamp(max=max(fields.get("type_vocab_size", 2) - 1, 0))}


def read(outputs, mask: torch.Tensor) -> dict[str, torch.Tensor]:
    """Every output, at real tokens alone where it has one for each token."""
    outputs = {name: value for name, value in outputs.items() if isinstance(value, torch.Tensor)}
    return {name: value[mask] if value.shape[: mask.dim()] == mask.shape else value for name, value in outputs.items()}


def gradients(model, batch: dict) -> dict[str, torch.Tensor | None]:
    """Of the loss, or of the outputs at real tokens where a model has none. (A decoder's classifier has dropout.)"""
    torch.manual_seed(0)
    outputs = read(model(**batch, return_dict=True), batch["attention_mask"].bool())
    loss = outputs["loss"] if "loss" in outputs else sum(value.square().sum() for value in outputs.values())
    loss.backward()
    return {name: parameter.grad for name, parameter in model.named_parameters()}


@pytest.mark.slow
@settings(COMMON, max_examples=60)
@given(made=ENCODER | DECODER | TRANSLATOR, attention=ATTENTION, side=SIDE)
def test_saved_and_loaded(made, attention, side):
    head, fields = made
    model, batch = make(head, attention, **fields), make_batch(head, fields, side)
    with tempfile.TemporaryDirectory() as folder, torch.no_grad():
        model.save_pretrained(folder)
        loaded = head.from_pretrained(folder, attn_implementation=model.config._attn_implementation)
        torch.testing.assert_close(dict(loaded(**batch)), dict(model(**batch)), rtol=0, atol=1e-13)


@settings(COMMON, max_examples=80)
@given(made=ENCODER | TRANSLATOR, attention=ATTENTION, side=SIDE)
# A padded position whose window holds no token has nothing to see.
@example(made=(tfm_zoo.TfmBertModel, NO_DROPOUT | {"sliding_window": 1}), attention="eager", side="right")
def test_skipped_padding_changes_nothing(made, attention, side):
    head, fields = made
    model, reference = (make(head, attention, skip_padding=skip, **fields) for skip in (True, False))
    batch = make_batch(head, fields, side)
    mask = batch["attention_mask"].bool()
    with torch.no_grad():
        assert_same(read(model(**batch), mask), read(reference(**batch), mask))
    batch = make_batch(head, fields, side, labels=True)
    ours, theirs = (gradients(each.train(), batch) for each in (model, reference))
    assert_same(ours, theirs)


def frequencies_change(fields: dict) -> bool:
    """Whether those of rotary positions change with the length, in the official classes too."""
    return any(kind in str(fields.get("rope_parameters")) for kind in ("longrope", "dynamic"))


def pieces_of(length: int, first: int) -> list[slice]:
    """A first piece, one of a token, and the rest."""
    return [slice(*each) for each in pairwise(sorted({0, min(first, length), min(first + 1, length), length}))]


#: padding at the position -1, where the scale of queries grows with the logarithm of positions
GROWING = {"rope_type": "yarn", "factor": 4.0, "llama_4_scaling_beta": 0.5, "rope_theta": 100.0}
GROWING |= {"original_max_position_embeddings": 6}
FROM_MASK = {"position_embedding_type": "rotary", "rope_parameters": GROWING, "position_ids_from_mask": True}


@example(made=(tfm_zoo.TfmGPTModel, FROM_MASK | NO_DROPOUT), side="right", first=1)
@settings(COMMON, max_examples=60)
@given(made=DECODER, side=PADDED_SIDE, first=st.integers(1, 8))
def test_a_decoder_step_by_step_as_at_once_and_eager_as_sdpa(made, side, first):
    """With a cache that grows or one that does not; and both implementations of attention learn the same."""
    head, fields = made
    eager, model = (make(head, attention, **fields) for attention in ("eager", "sdpa"))
    with torch.no_grad():
        for base in (eager.base_model, model.base_model) if not frequencies_change(fields) else ():
            batch = make_batch(tfm_zoo.TfmGPTModel, fields, side)
            mask = batch["attention_mask"].bool()
            length = mask.shape[1]
            whole = base(**batch).last_hidden_state[mask]
            caches = DynamicCache(config=base.config), StaticCache(config=base.config, max_cache_len=length)
            cache, pieces = caches[base is eager.base_model], []
            for part in pieces_of(length, first):
                piece = {name: ids[:, part] for name, ids in batch.items()}
                piece["attention_mask"] = batch["attention_mask"][:, : part.stop]
                pieces.append(base(**piece, past_key_values=cache, use_cache=True).last_hidden_state)
            assert_same(torch.cat(pieces, dim=1)[mask], whole)
    # Of what is padded on the left, both compute what they like where nothing is seen; and so does a loss of answers.
    if side == "left" or head is tfm_zoo.TfmGPTForQuestionAnswering:
        return
    batch = make_batch(head, fields, side, labels=True)
    assert_same(*[gradients(each.train(), batch) for each in (eager, model)])


@settings(COMMON, max_examples=40)
@given(fields=OF_TRANSLATORS, attention=ATTENTION, side=SIDE, first=st.integers(1, 6))
def test_step_by_step_as_at_once_with_a_source(fields, attention, side, first):
    """The target in pieces, whose cache remembers the source too."""
    assume(not frequencies_change(fields))
    head = tfm_zoo.TfmEncoderDecoderModel
    model, batch = make(head, attention, **fields), make_batch(head, fields, side)
    target = batch.pop("decoder_input_ids").clamp(min=4)  # none is padding
    config, length = model.config.get_text_config(decoder=True), target.shape[1]
    with torch.no_grad():
        whole = model(**batch, decoder_input_ids=target)
        encoded = {"encoder_outputs": (whole.encoder_last_hidden_state,), "attention_mask": batch["attention_mask"]}
        for own in (DynamicCache(config=config), StaticCache(config=config, max_cache_len=length)):
            cache, pieces = EncoderDecoderCache(own, DynamicCache()), []
            for part in pieces_of(length, first):
                piece = model(**encoded, decoder_input_ids=target[:, part], past_key_values=cache, use_cache=True)
                pieces.append(piece.last_hidden_state)
            assert_same(torch.cat(pieces, dim=1), whole.last_hidden_state)


@pytest.mark.parametrize("head", HEADS, ids=lambda head: head.__name__)
def test_every_weight_learns(head):
    """All parameters of the default architecture are in the graph. (A bias of scores of choices cancels out.)"""
    grads = gradients(tiny_model(head, **NO_DROPOUT).train(), ragged_batch(head, labels=True))
    if head is tfm_zoo.TfmBertForMultipleChoice:
        del grads["classifier.bias"]
    assert [name for name, gradient in grads.items() if gradient is None or not gradient.abs().sum() > 0] == []
