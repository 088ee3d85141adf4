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
NORMS = ["layernorm", "zero_centered_layernorm", "rmsnorm", "zero_centered_rmsnorm"]
ACTIVATIONS = st.sampled_from(["gelu", "relu", "silu", "gelu_new", "quick_gelu", "tanh", "relu2"])
ROPES = [
    {"rope_type": "default"},
    {"rope_type": "default", "partial_rotary_factor": 0.5},
    {"rope_type": "linear", "factor": 3.0},
    {"rope_type": "dynamic", "factor": 2.0},
    {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 6},
    {"rope_type": "longrope", "factor": 4.0, "original_max_position_embeddings": 6},
    {
        "rope_type": "llama3",
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 6,
    },
]
#: whose frequencies change with the length, in the native classes too
CHANGING = ("longrope", "dynamic")
COMMON = settings(deadline=None, derandomize=True, database=None, suppress_health_check=[HealthCheck.too_slow])


@st.composite
def blocks(draw) -> dict:
    """Fields that all families have, drawn along every axis."""
    heads = draw(st.sampled_from([1, 2, 4]))
    head_dim = draw(st.sampled_from([None, 4, 6]))
    fields = NO_DROPOUT | {
        "num_attention_heads": heads,
        "num_key_value_heads": draw(st.sampled_from([n for n in (None, 1, 2, 4) if n is None or heads % n == 0])),
        "head_dim": head_dim,
        "hidden_size": 8 * heads if head_dim is None else draw(st.sampled_from([10, 16])),
        "num_hidden_layers": draw(st.integers(1, 2)),
        "intermediate_size": draw(st.integers(1, 20)),
        "norm_position": draw(st.sampled_from(["post", "pre", "output", "both"])),
        "final_norm": draw(st.sampled_from([None, False, True])),
        "embedding_norm": draw(st.booleans()),
        "norm_type": draw(st.sampled_from(NORMS)),
        "norm_bias": draw(st.sampled_from([None, False])),
        "qk_norm": draw(st.sampled_from([None, "head", "whole"])),
        "position_embedding_type": draw(st.sampled_from(["learned", "sinusoidal", "rotary", "alibi", "none"])),
        "mlp_type": draw(st.sampled_from(["dense", "gated"])),
        "hidden_act": draw(ACTIVATIONS),
        "sliding_window": draw(st.none() | st.integers(2, 8)),
        "attn_logit_softcapping": draw(st.sampled_from([None, None, None, 2.0])),
        "residual_multiplier": draw(st.sampled_from([1, 0.3])),
        "embedding_multiplier": draw(st.sampled_from([1, 3])),
        "scale_embedding": draw(st.booleans()),
        "attention_scale": draw(st.sampled_from([None, 1, 0.3])),
        "attention_bias": draw(st.booleans()),
        "attention_output_bias": draw(st.none() | st.booleans()),
        "mlp_bias": draw(st.booleans()),
        "mlp_output_bias": draw(st.none() | st.booleans()),
        "type_vocab_size": draw(st.integers(0, 2)),
        "tie_word_embeddings": draw(st.booleans()),
        "pad_token_id": draw(st.integers(0, 3)),
        "num_labels": draw(st.integers(2, 4)),
    }
    if fields["scale_embedding"]:
        fields["round_embedding_scale"] = draw(st.booleans())
    if fields["embedding_norm"]:
        fields["embedding_multiplier"] = 1
    has_alibi = fields["position_embedding_type"] == "alibi"
    if not has_alibi and draw(st.booleans()):
        fields |= {
            "relative_attention_num_buckets": draw(st.integers(4, 9)),
            "relative_attention_max_distance": draw(st.integers(5, 20)),
            "relative_attention_per_layer": draw(st.booleans()),
        }
    if fields["norm_position"] in ("output", "both"):
        fields["residual_multiplier"] = 1
        fields["norm_eps"] = 0.1  # else the norm of an output that is nearly constant enlarges its rounding
    if fields["position_embedding_type"] == "rotary":
        rope = draw(st.sampled_from(ROPES))
        if rope["rope_type"] == "longrope":
            width = (head_dim or 8) // 2
            rope = rope | {"short_factor": [1.0] * width, "long_factor": [2.0] * width}
        fields["rope_parameters"] = rope | {"rope_theta": draw(st.sampled_from([100.0, 10000.0]))}
    if fields["norm_position"] in ("pre", "both"):
        fields["first_norm"] = draw(st.booleans())
    if not has_alibi and "relative_attention_num_buckets" not in fields and draw(st.integers(0, 1)) == 0:
        fields |= {"attention_type": "linear", "sliding_window": None}
        fields |= {"attention_scale": None, "attn_logit_softcapping": None}
    if draw(st.booleans()):
        fields |= {"embedding_size": draw(st.sampled_from([4, 12])), "tie_word_embeddings": False}
    return fields


def layer_by_layer(draw, fields: dict) -> dict:
    """Each layer may have an attention of its own, and each kind of attention rotary positions of its own, or none."""
    if "rope_parameters" in fields and draw(st.booleans()):
        fields["no_rope_layers"] = [draw(st.integers(0, 1)) for _ in range(fields["num_hidden_layers"])]
    if "attention_type" not in fields and draw(st.booleans()):
        slides = ["sliding_attention"] * (fields["sliding_window"] is not None)
        is_biased = "relative_attention_num_buckets" in fields or fields["position_embedding_type"] == "alibi"
        scoreless = [] if is_biased else ["linear_attention"]
        kinds = st.sampled_from(["full_attention", *scoreless, *slides])
        fields["layer_types"] = [draw(kinds) for _ in range(fields["num_hidden_layers"])]
        if "rope_parameters" in fields and draw(st.booleans()):
            other = {"rope_type": "default", "rope_theta": 50.0}
            fields["rope_parameters"] = {
                kind: other if kind == "full_attention" else fields["rope_parameters"] for kind in fields["layer_types"]
            }
    return fields


def beside_each_other(draw, fields: dict) -> dict:
    """With a norm before both, attention and feed-forward may be computed beside each other."""
    if fields["norm_position"] == "pre" and draw(st.booleans()):
        fields |= {"use_parallel_residual": True, "residual_multiplier": 1}
        fields |= {"num_ln_in_parallel_attn": draw(st.sampled_from([1, 2]))}
    return fields


@st.composite
def architectures(draw) -> dict:
    """The fields of an encoder."""
    fields = beside_each_other(draw, draw(blocks()))
    if fields["sliding_window"]:
        fields["sliding_window"] = draw(st.integers(1, 8))
    fields = layer_by_layer(draw, fields)
    if not {"layer_types", "no_rope_layers"} & fields.keys() and fields.get("first_norm", True):
        fields["num_hidden_groups"] = draw(st.sampled_from([None, 1]))
    has_dense_heads = {"lm_head_transform": draw(st.booleans()), "classifier_transform": draw(st.booleans())}
    if any(has_dense_heads.values()):
        fields["lm_head_act"] = draw(st.none() | ACTIVATIONS)
    return fields | {
        "position_ids_from_padding": draw(st.booleans()),
        "pooler_act": draw(ACTIVATIONS),
        "classifier_pooling": draw(st.sampled_from(["cls", "mean", "attention", "late"])),
        **has_dense_heads,
        "lm_head_bias": draw(st.booleans()),
        "classifier_bias": draw(st.booleans()),
        **draw(st.sampled_from([{}, {"classifier_norm": True}, {"classifier_dense": False}])),
        "add_pooling_layer": draw(st.booleans()),
    }


@st.composite
def decoders(draw) -> dict:
    """The fields of a decoder."""
    fields = beside_each_other(draw, draw(blocks())) | {
        "pad_token_id": 0,  # by which a classifier finds the last token that the batches below have
        "train_padding_embedding": draw(st.booleans()),
        "scaled_residual_init": draw(st.booleans()),
        "logit_scale": draw(st.sampled_from([1, 0.3])),
        "final_logit_softcapping": draw(st.sampled_from([None, 3])),
        "lm_head_bias": draw(st.booleans()),
    }
    if fields["position_embedding_type"] != "sinusoidal":
        fields["position_ids_from_mask"] = draw(st.booleans())
    if fields["position_embedding_type"] == "alibi":
        fields["scale_alibi"] = draw(st.booleans())
        fields["round_alibi"] = fields["position_ids_from_mask"] and draw(st.booleans())
    if fields["position_embedding_type"] == "learned":
        fields["position_offset"] = draw(st.integers(int(fields["position_ids_from_mask"]), 2))
    fields = layer_by_layer(draw, fields)
    if draw(st.booleans()):
        fields |= {"type_vocab_size": 0, "token_types_as_tokens": True}
    if "embedding_size" in fields and draw(st.booleans()):
        fields |= {"project_tokens": True, "tie_word_embeddings": draw(st.booleans())}
    return of_experts(draw, fields)


def of_experts(draw, fields: dict) -> dict:
    """With a gate and no biases, feed-forwards may be experts."""
    if fields["mlp_type"] != "gated" or draw(st.booleans()):
        return fields
    depth = fields["num_hidden_layers"]
    kinds = st.lists(st.sampled_from(["sparse", "dense"]), min_size=depth, max_size=depth)
    return fields | {
        "hidden_size": 8 * fields["num_attention_heads"] if fields["head_dim"] is None else 16,
        **{"mlp_bias": False, "mlp_output_bias": False},
        "num_local_experts": draw(st.integers(2, 4)),
        "num_experts_per_tok": draw(st.integers(1, 2)),
        "moe_intermediate_size": draw(st.sampled_from([4, 12])),  # torch's kernel takes multiples of 16 bytes
        "norm_topk_prob": draw(st.booleans()),
        "output_router_logits": draw(st.booleans()),
        "mlp_layer_types": draw(st.none() | kinds),
    }


@st.composite
def translators(draw) -> dict:
    """The fields of an encoder with a decoder."""
    fields = draw(blocks()) | {
        "encoder_layers": draw(st.integers(1, 2)),
        "decoder_layers": draw(st.integers(1, 2)),
        "decoder_ffn_dim": draw(st.sampled_from([None, 12])),
        "share_encoder_decoder_embeddings": draw(st.booleans()),
        "final_logit_softcapping": draw(st.sampled_from([None, 3])),
        "logit_scale": draw(st.sampled_from([1, 0.3])),
        **draw(st.sampled_from([{}, {"lm_head_bias": True}, {"final_logits_bias": True}])),
        "start_with_last_token": draw(st.booleans()),
        "train_padding_embedding": draw(st.booleans()),
        "weight_init": draw(st.sampled_from(["xavier", "normal"])),
    }
    del fields["num_hidden_layers"]
    if fields["position_embedding_type"] == "sinusoidal":
        fields["sinusoid_type"] = draw(st.sampled_from(["interleaved", "halves", "tensor2tensor"]))
    is_grouped = fields["num_key_value_heads"] not in (None, fields["num_attention_heads"])
    if not is_grouped and fields.get("rope_parameters", {}).get("rope_type") != "longrope":  # it counts channels
        fields["decoder_attention_heads"] = draw(st.sampled_from([None, 1]))
    counted = draw(st.booleans())
    if counted:
        fields["position_ids_from_padding"] = True
    elif fields["position_embedding_type"] == "learned":
        fields["position_offset"] = draw(st.integers(0, 2))
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
        torch.testing.assert_close(dict(loaded(**batch)), dict(model(**batch)), rtol=0, atol=0)


@settings(COMMON, max_examples=200)
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
