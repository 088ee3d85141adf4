"""Configurations of decoders: what each field becomes, that the same comes back, and what is refused."""

import json

import pytest
import torch
from transformers import AutoModelForCausalLM, Qwen2Config, Qwen2ForTokenClassification

from tests.conversion.comparison import assert_same_config, assert_same_model
from tests.official_models import BY_NAME, FALCON_RW, ROPE, build_tiny
from tests.precision import assert_same, in_double
from tfm_zoo.converters import ConversionError, from_official, to_official

IDS = torch.tensor([[5, 6, 7, 8, 9, 10, 11]])
LONGROPE = {"original_max_position_embeddings": 20, "rope_parameters": ROPE["longrope"], "sliding_window": None}
SERIAL = {"new_decoder_architecture": False, "parallel_attn": False}


@pytest.mark.parametrize(
    ("name", "fields", "expected"),
    [
        ("GPT2Model", {"n_inner": None}, {"intermediate_size": 128}),
        ("GPT2Model", {"n_inner": 128}, {"intermediate_size": 128}),
        ("GPT2Model", {"embd_pdrop": 0.0, "resid_pdrop": 0.3}, {"embedding_dropout": 0.0, "hidden_dropout": 0.3}),
        ("GPT2Model", {}, {"token_types_as_tokens": True, "norm_position": "pre", "final_norm": True}),
        ("OpenAIGPTModel", {"afn": "gelu"}, {"hidden_act": "gelu_new"}),
        ("OpenAIGPTModel", {"afn": "swish"}, {"hidden_act": "silu"}),
        ("OpenAIGPTModel", {"afn": "silu"}, {"hidden_act": "silu"}),
        ("OpenAIGPTModel", {}, {"norm_position": "post", "final_norm": False, "intermediate_size": 128}),
        ("LlamaModel", {"attention_bias": True}, {"attention_bias": True, "attention_output_bias": True}),
        ("LlamaModel", {"head_dim": None}, {"head_dim": 8, "num_key_value_heads": 2}),
        ("LlamaModel", {"num_key_value_heads": None}, {"num_key_value_heads": 4, "hidden_dropout": 0.0}),
        ("LlamaModel", {}, {"scaled_residual_init": False, "train_padding_embedding": False}),
        ("MistralModel", {"sliding_window": 3}, {"sliding_window": 3, "layer_types": ["sliding_attention"] * 3}),
        ("MistralModel", {"sliding_window": None}, {"sliding_window": None, "layer_types": ["full_attention"] * 3}),
        ("MistralModel", {"head_dim": 6}, {"head_dim": 6}),
        ("Qwen2Model", {}, {"attention_bias": True, "attention_output_bias": False, "sliding_window": 4}),
        ("Qwen2Model", {"use_sliding_window": False}, {"layer_types": ["full_attention"] * 3, "sliding_window": None}),
        ("Qwen2Model", {"sliding_window": None}, {"layer_types": ["full_attention"] * 3, "sliding_window": None}),
        ("Qwen2Model", {"max_window_layers": 28}, {"layer_types": ["full_attention"] * 3, "sliding_window": 4}),
        ("Qwen3MoeModel", {"use_sliding_window": True, "sliding_window": 4}, {"sliding_window": 4}),
        ("Qwen2Model", {}, {"layer_types": ["full_attention"] + ["sliding_attention"] * 2}),
        ("GPTJModel", {"n_embd": 88, "n_head": 2, "rotary_dim": 30}, {"head_dim": 44}),
        ("FalconModel", {"attention_dropout": 0.3}, {"attention_output_dropout": 0.0}),
        ("FalconModel", SERIAL | {"attention_dropout": 0.3}, {"attention_output_dropout": 0.3}),
        ("FalconModel", FALCON_RW, {"position_embedding_type": "alibi", "round_alibi": True, "attention_bias": True}),
        ("FalconModel", SERIAL, {"position_embedding_type": "rotary", "round_alibi": False}),
        *(("LlamaForCausalLM", {"rope_parameters": rope}, {"rope_parameters": rope}) for rope in ROPE.values()),
    ],
    ids=str,
)
def test_fields(name, fields, expected):
    original = build_tiny(BY_NAME[name], **fields | {"head_dim": None} if "rope_parameters" in fields else fields)
    zoo = from_official(original)
    assert {key: getattr(zoo.config, key) for key in expected} == expected
    back = to_official(zoo)
    assert_same_model(back, original)
    reloaded = type(zoo.config).from_dict(json.loads(zoo.config.to_json_string()))
    assert_same_config(to_official(type(zoo)(reloaded)).config, original.config)


@pytest.mark.parametrize(
    ("fields", "rate"),
    [
        ({"classifier_dropout": None}, 0.1),
        ({"classifier_dropout": 0.3, "hidden_dropout": 0.2}, 0.3),
        ({"classifier_dropout": None, "hidden_dropout": 0.2}, 0.2),
        ({"classifier_dropout": 0.0, "hidden_dropout": 0.2}, 0.0),
    ],
    ids=str,
)
def test_dropout_of_a_classifier(fields, rate):
    original = build_tiny(BY_NAME["LlamaForTokenClassification"], **fields)
    zoo = from_official(original)
    assert original.dropout.p == zoo.dropout.p == to_official(zoo).dropout.p == rate
    assert_same_config(to_official(zoo).config, original.config)
    zoo.config.classifier_dropout = 0.5
    assert to_official(zoo).dropout.p == 0.5


def test_no_field_is_invented():
    """One that native configurations may have, and these have not."""
    fields = {"vocab_size": 9, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "num_labels": 3}
    config = Qwen2Config(num_key_value_heads=2, intermediate_size=16, **fields)
    assert not {"classifier_dropout", "head_dim"} & config.to_dict().keys()
    original = Qwen2ForTokenClassification(config).eval()
    assert_same_model(to_official(from_official(original)), original)


@pytest.mark.parametrize(
    "old",
    [
        {"rope_theta": 100.0, "rope_scaling": None, "torch_dtype": "float32"},
        {"rope_theta": 100.0, "rope_scaling": {"type": "linear", "factor": 2.0}, "torch_dtype": "float32"},
        {
            "rope_theta": 100.0,
            "rope_scaling": {key: value for key, value in ROPE["llama3"].items() if key != "rope_theta"},
            "pretraining_tp": 1,
            "max_length": 30,
        },
        {"rope_theta": 100.0, "architectures": ["LLaMAForCausalLM"]},
    ],
    ids=["unscaled", "linear", "llama3", "LLaMA"],
)
def test_configurations_of_old(old, tmp_path):
    """Before transformers 5: the rotary base and its scaling beside each other."""
    original = build_tiny(BY_NAME["LlamaForCausalLM"], head_dim=None)
    original.save_pretrained(tmp_path)
    file = tmp_path / "config.json"
    config = json.loads(file.read_text()) | old
    for name in ("rope_parameters", "dtype", "head_dim"):
        del config[name]
    file.write_text(json.dumps(config))
    native = AutoModelForCausalLM.from_pretrained(tmp_path)
    zoo = from_official(tmp_path)
    assert zoo.config.rope_parameters == native.config.rope_parameters
    assert_same_model(to_official(zoo), native)
    zoo, native = zoo.double(), native.double()  # outside: frequencies are those of float32, as in any process
    with in_double():
        assert_same(zoo(IDS).logits, native(IDS).logits)


@pytest.mark.parametrize(
    ("name", "fields"),
    [
        ("GPT2Model", {"add_cross_attention": True}),
        ("OpenAIGPTModel", {"afn": "tanh"}),
        ("LlamaModel", {"sliding_window": 4}),
        ("LlamaModel", {"rope_parameters": ROPE["default"] | {"partial_rotary_factor": 0.5}}),
        ("MistralModel", {"layer_types": ["full_attention"] * 3}),
        ("MptModel", {"logit_scale": 0.5}),
        ("MptModel", {"no_bias": False}),
        ("LlamaForTokenClassification", {"token_classification_bias": False}),
    ],
    ids=str,
)
def test_what_the_zoo_does_not_convert(name, fields, tmp_path):
    build_tiny(BY_NAME[name]).save_pretrained(tmp_path)
    file = tmp_path / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | fields))
    key, value = next(iter(fields.items()))
    with pytest.raises(ConversionError) as caught:
        from_official(tmp_path)
    assert f"{key}={value!r} is not converted" in str(caught.value)


def test_variations_of_attention_that_are_not_converted(tmp_path):
    build_tiny(BY_NAME["MptModel"], attn_config={"alibi": False, "clip_qkv": 3.0}).save_pretrained(tmp_path)
    with pytest.raises(ConversionError, match=r"'alibi': False.* What is converted: .*alibi=True and clip_qkv=None\."):
        from_official(tmp_path)


@pytest.mark.parametrize(
    ("name", "fields", "later"),
    [("BloomForCausalLM", {}, "position_ids_from_mask"), ("Phi3ForCausalLM", LONGROPE, "renew_longrope_cache")],
)
def test_models_that_were_converted_before_a_field_was_there(name, fields, later):
    original = build_tiny(BY_NAME[name], **fields)
    zoo = from_official(original)
    assert getattr(zoo.config, later)
    setattr(zoo.config, later, False)
    assert_same_model(to_official(zoo), original)


@in_double()
def test_a_window_given_to_a_converted_model():
    """The layers of Qwen2 name their kind; those of a model without a window follow it."""
    original = build_tiny(BY_NAME["Qwen2ForCausalLM"], use_sliding_window=False)
    zoo = from_official(original, sliding_window=3)
    assert zoo.config.layer_types == ["sliding_attention"] * 3
    official = to_official(zoo)
    assert official.config.use_sliding_window
    assert official.config.layer_types == ["sliding_attention"] * 3
    assert_same(official(IDS).logits, zoo(IDS).logits)
    assert (original(IDS).logits - zoo(IDS).logits).abs().max() > 1e-2


def test_padding_is_trained_where_the_native_class_trains_it():
    """An embedding with a `padding_idx` gets no gradient for it: LLaMA's does not, GPT-2's does."""
    for name, is_trained in (("GPT2LMHeadModel", True), ("LlamaForCausalLM", False)):
        original = build_tiny(BY_NAME[name], tie_word_embeddings=False)
        zoo = from_official(original)
        for model in (original, zoo):
            model(torch.tensor([[5, 0, 7]])).logits.sum().backward()
            assert model.get_input_embeddings().weight.grad[0].any() == is_trained
