"""Every valid configuration builds, learns, and survives a save and a load; encoders skip padding without a trace,
decoders, with an encoder or without, say the same step by step as at once."""

import tempfile

import pytest
import torch
import transformers
from hypothesis import HealthCheck, assume, example, given, settings
from hypothesis import strategies as st
from transformers import DynamicCache, EncoderDecoderCache, StaticCache

from tfm_zoo import (
    TfmBertConfig,
    TfmBertForMultipleChoice,
    TfmBertModel,
    TfmEncoderDecoderConfig,
    TfmEncoderDecoderForSequenceClassification,
    TfmEncoderDecoderModel,
    TfmGPTConfig,
    TfmGPTForCausalLM,
    TfmGPTForQuestionAnswering,
    TfmGPTModel,
)

from ..precision import assert_same
from ..tiny import DECODERS, ENCODER_DECODERS, ENCODERS, HEADS, NO_DROPOUT, ragged_batch, tiny_model

pytestmark = pytest.mark.usefixtures("double")

AUTO_CLASSES = {
    name: getattr(transformers, auto)
    for family in (TfmBertConfig, TfmGPTConfig, TfmEncoderDecoderConfig)
    for auto, name in reversed(family.auto_classes.items())
}
YES_OR_NO, PERHAPS = (False, True), (None, False, True)
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
#: whose frequencies change with the length, in the official classes too
CHANGING = ("longrope", "dynamic")
COMMON = settings(deadline=None, derandomize=True, database=None, suppress_health_check=[HealthCheck.too_slow])
#: fields that depend on no other, and their values
FREE = {
    **dict.fromkeys(
        ("embedding_norm", "scale_embedding", "attention_bias", "mlp_bias", "tie_word_embeddings"), YES_OR_NO
    ),
    **dict.fromkeys(("final_norm", "attention_output_bias", "mlp_output_bias"), PERHAPS),
    **{"num_hidden_layers": (1, 2), "intermediate_size": range(1, 21), "type_vocab_size": range(3)},
    **{"norm_position": ("post", "pre", "output", "both"), "qk_norm": (None, "head", "whole", "turned_head")},
    **{"norm_type": NORMS, "norm_bias": (None, False)},
    **{"position_embedding_type": ("learned", "sinusoidal", "rotary", "alibi", "none"), "mlp_type": ("dense", "gated")},
    **{"hidden_act": ACTIVATIONS, "sliding_window": (None, *range(2, 9)), "pad_token_id": range(4)},
    **{"attn_logit_softcapping": (None, None, None, 2.0), "attention_scale": (None, 1, 0.3)},
    **{"residual_multiplier": (1, 0.3), "embedding_multiplier": (1, 3), "num_labels": range(2, 5)},
}
OF_ENCODERS = {
    **dict.fromkeys(
        ("lm_head_transform", "classifier_transform", "position_ids_from_padding", "lm_head_bias"), YES_OR_NO
    ),
    **{"classifier_bias": YES_OR_NO, "add_pooling_layer": YES_OR_NO, "pooler_act": ACTIVATIONS},
    "classifier_pooling": ("cls", "mean", "attention", "late"),
}
OF_DECODERS = dict.fromkeys(("train_padding_embedding", "scaled_residual_init", "lm_head_bias"), YES_OR_NO)
OF_DECODERS |= {"logit_scale": (1, 0.3), "final_logit_softcapping": (None, 3)}
OF_TRANSLATORS = {
    **{"encoder_layers": (1, 2), "decoder_layers": (1, 2), "decoder_ffn_dim": (None, 12), "logit_scale": (1, 0.3)},
    **dict.fromkeys(
        ("share_encoder_decoder_embeddings", "start_with_last_token", "train_padding_embedding"), YES_OR_NO
    ),
    **{"final_logit_softcapping": (None, 3), "weight_init": ("xavier", "normal")},
}


def one(draw, *values):
    return draw(st.sampled_from(values))


def drawn(draw, choices: dict) -> dict:
    return {name: one(draw, *values) for name, values in choices.items()}


@st.composite
def blocks(draw) -> dict:
    """Fields that all families have, drawn along every axis."""
    heads, head_dim = one(draw, 1, 2, 4), one(draw, None, 4, 6)
    fields = NO_DROPOUT | drawn(draw, FREE) | {"num_attention_heads": heads, "head_dim": head_dim}
    fields["num_key_value_heads"] = one(draw, None, *(n for n in (1, 2, 4) if heads % n == 0))
    fields["hidden_size"] = 8 * heads if head_dim is None else one(draw, 10, 16)
    if fields["scale_embedding"]:
        fields["round_embedding_scale"] = one(draw, *YES_OR_NO)
    if fields["embedding_norm"]:
        fields["embedding_multiplier"] = 1
    has_alibi = fields["position_embedding_type"] == "alibi"
    if not has_alibi and one(draw, *YES_OR_NO):
        buckets = {"num_buckets": range(4, 10), "max_distance": range(5, 21), "per_layer": YES_OR_NO}
        fields |= drawn(draw, {f"relative_attention_{name}": values for name, values in buckets.items()})
    if fields["norm_position"] in ("output", "both"):
        fields["residual_multiplier"] = 1
        fields["norm_eps"] = 0.1  # else the norm of an output that is nearly constant enlarges its rounding
    if fields["position_embedding_type"] == "rotary":
        rope = one(draw, *ROPES)
        if rope["rope_type"] == "longrope":
            width = (head_dim or 8) // 2
            rope = rope | {"short_factor": [1.0] * width, "long_factor": [2.0] * width}
        fields["rope_parameters"] = rope | {"rope_theta": one(draw, 100.0, 10000.0)}
    if fields["norm_position"] in ("pre", "both"):
        fields["first_norm"] = one(draw, *YES_OR_NO)
    if not has_alibi and "relative_attention_num_buckets" not in fields and one(draw, *YES_OR_NO):
        fields |= {"attention_type": "linear", "sliding_window": None}
        fields |= {"attention_scale": None, "attn_logit_softcapping": None}
    if one(draw, *YES_OR_NO):
        fields |= {"embedding_size": one(draw, 4, 12), "tie_word_embeddings": False}
    return fields


def layer_by_layer(draw, fields: dict) -> dict:
    """Each layer may have an attention of its own, and each kind of attention rotary positions of its own, or none."""
    depth = fields["num_hidden_layers"]
    if "rope_parameters" in fields and one(draw, *YES_OR_NO):
        fields["no_rope_layers"] = [one(draw, 0, 1) for _ in range(depth)]
    if "attention_type" not in fields and one(draw, *YES_OR_NO):
        slides = ["sliding_attention"] * (fields["sliding_window"] is not None)
        is_biased = "relative_attention_num_buckets" in fields or fields["position_embedding_type"] == "alibi"
        scoreless = [] if is_biased else ["linear_attention"]
        fields["layer_types"] = [one(draw, "full_attention", *scoreless, *slides) for _ in range(depth)]
        grows = "llama_4_scaling_beta" in fields.get("rope_parameters", {})
        if "rope_parameters" in fields and not grows and one(draw, *YES_OR_NO):
            rope, other = fields["rope_parameters"], {"rope_type": "default", "rope_theta": 50.0}
            kinds = {kind: other if kind == "full_attention" else rope for kind in fields["layer_types"]}
            fields["rope_parameters"] = kinds
    return fields


def beside_each_other(draw, fields: dict) -> dict:
    """With a norm before both, attention and feed-forward may be computed beside each other."""
    if fields["norm_position"] == "pre" and one(draw, *YES_OR_NO):
        fields |= {"use_parallel_residual": True, "residual_multiplier": 1}
        fields["num_ln_in_parallel_attn"] = one(draw, 1, 2)
    return fields


@st.composite
def architectures(draw) -> dict:
    """The fields of an encoder."""
    fields = beside_each_other(draw, draw(blocks())) | drawn(draw, OF_ENCODERS)
    if fields["sliding_window"]:
        fields["sliding_window"] = one(draw, *range(1, 9))
    fields = layer_by_layer(draw, fields)
    if not {"layer_types", "no_rope_layers"} & fields.keys() and fields.get("first_norm", True):
        fields["num_hidden_groups"] = one(draw, None, 1)
    if fields["lm_head_transform"] or fields["classifier_transform"]:
        fields["lm_head_act"] = one(draw, None, *ACTIVATIONS)
    return fields | one(draw, {}, {"classifier_norm": True}, {"classifier_dense": False})


@st.composite
def decoders(draw) -> dict:
    """The fields of a decoder. Padding is 0, by which a classifier finds the last token that the batches below have."""
    fields = beside_each_other(draw, draw(blocks())) | drawn(draw, OF_DECODERS) | {"pad_token_id": 0}
    if one(draw, *YES_OR_NO):
        fields |= {"lm_head_transform": True, "lm_head_act": one(draw, None, *ACTIVATIONS), "logit_scale": 1}
    kind = fields["position_embedding_type"]
    if kind != "sinusoidal":
        fields["position_ids_from_mask"] = one(draw, *YES_OR_NO)
    if kind == "alibi":
        fields["scale_alibi"] = one(draw, *YES_OR_NO)
        fields["round_alibi"] = fields["position_ids_from_mask"] and one(draw, *YES_OR_NO)
    if kind == "learned":
        fields["position_offset"] = one(draw, *range(int(fields["position_ids_from_mask"]), 3))
    fields = layer_by_layer(draw, fields)
    if one(draw, *YES_OR_NO):
        fields |= {"type_vocab_size": 0, "token_types_as_tokens": True}
    if "embedding_size" in fields and "lm_head_transform" not in fields and one(draw, *YES_OR_NO):
        fields |= {"project_tokens": True, "tie_word_embeddings": one(draw, *YES_OR_NO)}
    return of_experts(draw, fields)


def of_experts(draw, fields: dict) -> dict:
    """With a gate and no biases, feed-forwards may be experts."""
    if fields["mlp_type"] != "gated" or one(draw, *YES_OR_NO):
        return fields
    fields["hidden_size"] = 8 * fields["num_attention_heads"] if fields["head_dim"] is None else 16
    fields |= {"mlp_bias": False, "mlp_output_bias": False}
    # torch's kernel takes multiples of 16 bytes
    sizes = {"num_local_experts": (2, 3, 4), "num_experts_per_tok": (1, 2), "moe_intermediate_size": (4, 12)}
    sizes["shared_expert_intermediate_size"] = (None, 5)
    fields |= drawn(draw, sizes | dict.fromkeys(("norm_topk_prob", "output_router_logits"), YES_OR_NO))
    if one(draw, *YES_OR_NO):
        fields["mlp_layer_types"] = [one(draw, "sparse", "dense") for _ in range(fields["num_hidden_layers"])]
    return fields


@st.composite
def translators(draw) -> dict:
    """The fields of an encoder with a decoder."""
    fields = draw(blocks()) | drawn(draw, OF_TRANSLATORS)
    fields |= one(draw, {}, {"lm_head_bias": True}, {"final_logits_bias": True})
    del fields["num_hidden_layers"]
    fields["norm_target_tokens"] = fields["embedding_norm"] and one(draw, *YES_OR_NO)
    if fields["position_embedding_type"] == "sinusoidal":
        fields["sinusoid_type"] = one(draw, "interleaved", "halves", "tensor2tensor")
    is_grouped = fields["num_key_value_heads"] not in (None, fields["num_attention_heads"])
    if not is_grouped and fields.get("rope_parameters", {}).get("rope_type") != "longrope":  # it counts channels
        fields["decoder_attention_heads"] = one(draw, None, 1)
    if one(draw, *YES_OR_NO):
        fields["position_ids_from_padding"] = True
    elif fields["position_embedding_type"] == "learned":
        fields["position_offset"] = one(draw, 0, 1, 2)
    return fields


HEAD = st.sampled_from(ENCODERS)
TRANSLATOR = st.sampled_from(ENCODER_DECODERS)
DECODER = st.sampled_from(DECODERS)
#: (The loss of question answering is a softmax over padding too, where eager and sdpa compute what they like.)
READING_REAL_TOKENS = st.sampled_from([head for head in DECODERS if head is not TfmGPTForQuestionAnswering])
ATTENTION = st.sampled_from(["eager", "sdpa"])
SIDE = st.sampled_from(["right", "left", "holes"])


def use(attention: str, model) -> None:
    """Sets the implementation of attention, if the model has it."""
    if attention == "eager" or model._supports_sdpa:
        model.set_attn_implementation(attention)


def make_batch(head: type, fields: dict, side: str, labels: bool = False) -> dict[str, torch.Tensor]:
    batch = ragged_batch(head, side, labels=labels)
    if head is TfmEncoderDecoderForSequenceClassification and not fields["share_encoder_decoder_embeddings"]:
        batch["decoder_input_ids"] = batch["input_ids"]
    segments = (batch["input_ids"] % 2).clamp(max=max(fields.get("type_vocab_size", 2) - 1, 0))
    return batch | {"token_type_ids": segments}


def read(outputs, mask: torch.Tensor) -> dict[str, torch.Tensor]:
    """Every output, at real tokens alone where it has one for each token."""
    outputs = {name: value for name, value in outputs.items() if isinstance(value, torch.Tensor)}
    return {name: value[mask] if value.shape[: mask.dim()] == mask.shape else value for name, value in outputs.items()}


def gradients(model, batch: dict) -> dict[str, torch.Tensor | None]:
    """Of the loss, or of the outputs at real tokens where a model has none."""
    outputs = read(model(**batch, return_dict=True), batch["attention_mask"].bool())
    loss = outputs["loss"] if "loss" in outputs else sum(value.square().sum() for value in outputs.values())
    loss.backward()
    return {name: parameter.grad for name, parameter in model.named_parameters()}


@pytest.mark.slow
@settings(COMMON, max_examples=60)
@given(
    model=st.one_of(
        st.tuples(HEAD, architectures()), st.tuples(DECODER, decoders()), st.tuples(TRANSLATOR, translators())
    ),
    attention=ATTENTION,
    side=SIDE,
)
def test_saved_and_loaded(model, attention, side):
    head, fields = model
    model = tiny_model(head, **fields)
    use(attention, model)
    batch = make_batch(head, fields, side)
    with tempfile.TemporaryDirectory() as folder, torch.no_grad():
        model.save_pretrained(folder)
        loaded = AUTO_CLASSES[head.__name__].from_pretrained(
            folder, attn_implementation=model.config._attn_implementation
        )
        assert type(loaded) is head
        torch.testing.assert_close(dict(loaded(**batch)), dict(model(**batch)), rtol=0, atol=1e-13)


@settings(COMMON, max_examples=150)
@given(
    made=st.one_of(st.tuples(HEAD, architectures()), st.tuples(TRANSLATOR, translators())),
    attention=ATTENTION,
    side=SIDE,
)
# A padded position whose window holds no token has nothing to see.
@example(made=(TfmBertModel, NO_DROPOUT | {"sliding_window": 1}), attention="eager", side="right")
def test_skipped_padding_changes_nothing(made, attention, side):
    head, fields = made
    model, reference = (tiny_model(head, skip_padding=skip, **fields) for skip in (True, False))
    batch = make_batch(head, fields, side)
    mask = batch["attention_mask"].bool()
    for each in (model, reference):
        use(attention, each)
    with torch.no_grad():
        assert_same(read(model(**batch), mask), read(reference(**batch), mask))

    batch = make_batch(head, fields, side, labels=True)
    ours, theirs = gradients(model.train(), batch), gradients(reference.train(), batch)
    assert_same(ours, theirs)
    assert any(gradient is not None and gradient.any() for gradient in theirs.values())


def kinds_of(rope_parameters: dict) -> list[dict]:
    """The rotary parameters of each kind of layer."""
    return [value for value in rope_parameters.values() if isinstance(value, dict)] or [rope_parameters]


@settings(COMMON, max_examples=100)
@given(fields=decoders(), attention=ATTENTION, side=st.sampled_from(["right", "left"]), first=st.integers(1, 8))
def test_step_by_step_as_at_once(fields, attention, side, first):
    """A first piece, then token by token, with a cache that grows or one that does not."""
    rope_parameters = fields.get("rope_parameters", {})
    assume(not any(parameters.get("rope_type") in CHANGING for parameters in kinds_of(rope_parameters)))
    model = tiny_model(TfmGPTModel, **fields)
    use(attention, model)
    batch = make_batch(TfmGPTModel, fields, side)
    mask = batch["attention_mask"].bool()
    length = mask.shape[1]
    with torch.no_grad():
        whole = model(**batch).last_hidden_state[mask]
        for cache in (DynamicCache(config=model.config), StaticCache(config=model.config, max_cache_len=length)):
            pieces, start = [], 0
            for end in range(first, length + 1):
                piece = {name: ids[:, start:end] for name, ids in batch.items()}
                piece["attention_mask"] = batch["attention_mask"][:, :end]
                pieces.append(model(**piece, past_key_values=cache, use_cache=True).last_hidden_state)
                start = end
            assert_same(torch.cat(pieces, dim=1)[mask], whole)


@settings(COMMON, max_examples=60)
@given(fields=translators(), attention=ATTENTION, side=SIDE, first=st.integers(1, 6))
def test_step_by_step_as_at_once_with_a_source(fields, attention, side, first):
    """The target in pieces, whose cache remembers the source too."""
    assume(fields.get("rope_parameters", {}).get("rope_type") not in CHANGING)
    model = tiny_model(TfmEncoderDecoderModel, **fields)
    use(attention, model)
    batch = make_batch(TfmEncoderDecoderModel, fields, side)
    target = batch.pop("decoder_input_ids").clamp(min=4)  # none is padding
    config, length = model.config.get_text_config(decoder=True), target.shape[1]
    with torch.no_grad():
        whole = model(**batch, decoder_input_ids=target)
        encoded = {"encoder_outputs": (whole.encoder_last_hidden_state,), "attention_mask": batch["attention_mask"]}
        for own in (DynamicCache(config=config), StaticCache(config=config, max_cache_len=length)):
            cache, pieces = EncoderDecoderCache(own, DynamicCache()), []
            ends = range(first, length + 1)
            for start, end in zip((0, *ends), ends, strict=False):
                piece = model(**encoded, decoder_input_ids=target[:, start:end], past_key_values=cache, use_cache=True)
                pieces.append(piece.last_hidden_state)
            assert_same(torch.cat(pieces, dim=1), whole.last_hidden_state)


@settings(COMMON, max_examples=100)
@given(head=READING_REAL_TOKENS, fields=decoders(), side=st.sampled_from(["right", "left"]))
def test_eager_and_sdpa_learn_the_same(head, fields, side):
    batch = make_batch(head, fields, side, labels=True)
    if head is TfmGPTForCausalLM:  # what is padded on the left has nothing to see, and no first token to predict
        first = batch["attention_mask"].cumsum(dim=1) <= 1
        batch["labels"] = batch["labels"].masked_fill(first, -100)
        batch["labels"][0, -1] = 7
    both = []
    for attention in ("eager", "sdpa"):
        model = tiny_model(head, **fields).train()
        use(attention, model)
        both.append(gradients(model, batch))
    assert_same(*both)
    assert any(gradient is not None and gradient.any() for gradient in both[0].values())


@pytest.mark.parametrize("head", HEADS, ids=lambda head: head.__name__)
def test_every_weight_learns(head):
    """No parameter of the default architecture is left out of the graph. (The bias of a score that choices are compared
    by cancels out.)"""
    model = tiny_model(head, **NO_DROPOUT).train()
    grads = gradients(model, ragged_batch(head, labels=True))
    if head is TfmBertForMultipleChoice:
        del grads["classifier.bias"]
    assert [name for name, gradient in grads.items() if gradient is None or not gradient.abs().sum() > 0] == []
