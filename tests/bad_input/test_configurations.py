"""Bad configurations are refused: the error names the field and its value, and says what would be right."""

import math
import re

import pytest
from huggingface_hub.errors import StrictDataclassError

from tfm_zoo import (
    TfmBertConfig,
    TfmBertModel,
    TfmDebertaConfig,
    TfmEncoderDecoderConfig,
    TfmEncoderDecoderModel,
    TfmGPTConfig,
    TfmGPTModel,
)

from ..tiny import tiny_config

NO_FINITE = [math.nan, math.inf]
MIXED = {"layer_types": ["full_attention", "sliding_attention"]}
LINEAR = {"attention_type": "linear"}
LEARNED = {"position_embedding_type": "learned"}
BY_PADDING = {"position_ids_from_padding": True}


def rope(kind: str, **parameters) -> dict:
    return {"position_embedding_type": "rotary", "rope_parameters": {"rope_type": kind, "rope_theta": 1e4} | parameters}


OF_OTHERS = rope("default") | {"rope_parameters": {"sliding_attention": {"rope_type": "default", "rope_theta": 1e4}}}


def field(template: str, values: dict) -> list[tuple[dict, str]]:
    """A case for each field and its value, which stand in the error as NAME=VALUE."""
    return [({name: value}, f"{name}={re.escape(repr(value))} {template}") for name, value in values.items()]


ENCODER = [
    ({"hidden_size": 30}, "hidden_size=30 .* num_attention_heads=4.* head_dim"),
    ({"hidden_size": "32"}, "'hidden_size' expected int, got str"),
    *field(
        ".* at least 1",
        {"vocab_size": -1, "num_hidden_layers": 0, "num_attention_heads": 0, "num_key_value_heads": 0, "head_dim": 0}
        | {"intermediate_size": 0, "max_position_embeddings": 0, "sliding_window": 0, "embedding_size": 0},
    ),
    ({"num_key_value_heads": 3}, "num_attention_heads=4 .* num_key_value_heads=3"),
    ({"type_vocab_size": -1}, "type_vocab_size=-1 .* 0 or more"),
    ({"relative_attention_num_buckets": 3}, "relative_attention_num_buckets=3 .* at least 4"),
    ({"relative_attention_num_buckets": 32, "relative_attention_max_distance": 16}, "=32 .*max_distance=16"),
    ({"relative_attention_num_buckets": 8} | LINEAR, "buckets=8 .* no linear layer"),
    ({"relative_attention_per_layer": True}, "per_layer=True .* without relative_attention_num_buckets"),
    ({"relative_attention_max_distance": 99}, "max_distance=99 has no effect without rel.*_num_buckets"),
    ({"attn_logit_softcapping": -1.0}, "attn_logit_softcapping=-1.0 must be above 0"),
    ({"attn_logit_softcapping": 9.0} | LINEAR, "attn_logit_softcapping=9.0 .*'linear'"),
    ({"attn_logit_softcapping": math.nan}, "attn_logit_softcapping=nan must be above 0, and finite"),
    ({"position_embedding_type": "alibi"} | LINEAR, "position_embedding_type='alibi' .* linear"),
    ({"no_rope_layers": [0, 1]}, "no_rope_layers=.*position_embedding_type='learned'"),
    ({"no_rope_layers": [0]} | rope("default"), "no_rope_layers=.* each of num_hidden_layers=2"),
    ({"residual_multiplier": 0.5, "norm_position": "output"}, "residual_multiplier=0.5 .*'output'"),
    (
        {"residual_multiplier": 0.5, "norm_position": "pre", "use_parallel_residual": True},
        "residual_multiplier=0.5 .*use_parallel_residual=True",
    ),
    ({"position_embedding_type": "alibi", "relative_attention_num_buckets": 8}, "'alibi' and .*_buckets=8 are two"),
    ({"embedding_multiplier": 2, "embedding_norm": True}, "embedding_multiplier=2 .*embedding_norm=True"),
    ({"round_embedding_scale": True}, "round_embedding_scale=True .*scale_embedding=False"),
    ({"attention_scale": 0}, "attention_scale=0 must be above 0"),
    ({"attention_scale": 1} | LINEAR, "attention_scale=1 .*attention_type='linear'"),
    *field(r".* \[0, 1\)", {"hidden_dropout": 1.0, "attention_output_dropout": -0.1, "classifier_dropout": 2}),
    ({"norm_eps": 0.0}, r"norm_eps=0\.0 .* above 0"),
    ({"initializer_range": -1.0}, r"initializer_range=-1\.0 .*at least 0"),
    *(
        case
        for value in NO_FINITE
        for name in ("norm_eps", "attention_scale", "initializer_range", "residual_multiplier", "embedding_multiplier")
        for case in field("must be .*finite", {name: value})
    ),
    *field("must be False", {"is_decoder": True, "add_cross_attention": True}),
    ({"sinusoid_type": "halves"}, "sinusoid_type='halves' has no effect without position_embedding_type='sinusoidal'"),
    ({"lm_head_act": "relu", "lm_head_transform": False}, "lm_head_act='relu' has no effect without lm_head_transform"),
    ({"pad_token_id": 61}, "pad_token_id=61 .* 0 to 60"),
    ({"norm_position": "middle"}, "'norm_position' .*'post', 'pre'.* middle"),
    ({"classifier_norm": True, "classifier_dense": False}, "classifier_norm=True .*classifier_dense=False"),
    ({"problem_type": "ranking"}, "problem_type='ranking' .*regression"),
    ({"hidden_act": "gelo"}, "hidden_act='gelo' .* gelu"),
    ({"pooler_act": "tan"}, "pooler_act='tan' .* tanh"),
    ({"lm_head_act": "re"}, "lm_head_act='re' .* relu"),
    ({"num_hidden_groups": 3}, "num_hidden_groups=3 .* num_hidden_layers=2"),
    ({"num_hidden_groups": 1, "sliding_window": 2} | MIXED, "num_hidden_groups=1 .* layer_types="),
    *field("is a field of other families", {"num_local_experts": 4, "project_tokens": True, "position_offset": 2}),
    ({"num_ln_in_parallel_attn": 1}, "num_ln_in_parallel_attn=1 .*use_parallel_residual=False"),
    ({"first_norm": False}, "first_norm=False.*norm_position='post'"),
    ({"norm_type": "rmsnorm", "norm_bias": True}, "norm_bias=True .*'rmsnorm'"),
    ({"lm_head_transform": False, "embedding_size": 16}, "embedding_size=16 to be hidden_size=32"),
    (BY_PADDING | {"pad_token_id": None}, "from_padding=True .*pad_token_id=None"),
    (BY_PADDING | {"pad_token_id": 30}, "id=30 .*max_position_embeddings=24"),
    ({"rope_parameters": {"rope_type": "default"}}, "position_embedding_type='learned'"),
    ({"rope_theta": 100.0}, "rope_theta=100.0 .*position_embedding_type='learned'.* 'rotary'"),
    ({"position_embedding_type": "rotary", "head_dim": 7}, "'rotary' .* head_dim=7 is odd"),
    (
        {"position_embedding_type": "sinusoidal", "hidden_size": 9, "head_dim": 2},
        "'sinusoidal' .* hidden_size=9 is odd",
    ),
    (rope("yarnn"), "rope_type='yarnn' .* yarn"),
    (OF_OTHERS | LINEAR, "rope_parameters=.* should have those of 'linear_attention' layers"),
    (rope("linear"), "'linear': .*factor"),
    (rope("default", partial_rotary_factor=1.5), r"partial_rotary_factor=1\.5 .* \(0, 1\]"),
    (rope("default", partial_rotary_factor=0.1), "partial_rotary_factor=0.1 .*head_dim=8 with a pair"),
    ({"qk_norm": "head", "norm_type": "plain_layernorm"}, "qk_norm='head' .*'plain_layernorm'"),
    (rope("default", llama_4_scaling_beta=0.1), "llama_4_scaling_beta.* original_max_position_embeddings"),
    ({"norm_postion": "pre"}, r"no field 'norm_postion'\. Is it 'norm_position'"),
    ({"hidden_sizes": "pre"}, r"no field 'hidden_sizes'\. Is it 'hidden_size'"),
]
DECODER = [
    ({"sliding_window": 3} | LINEAR, "sliding_window=3"),
    ({"layer_types": ["full_attention"] * 2} | LINEAR, "makes every layer linear"),
    ({"norm_position": "post", "use_parallel_residual": True}, "use_parallel_residual=True .* it goes with 'pre'"),
    ({"layer_types": ["full_attention"]}, r"num_hidden_layers.*2.*layer_types.*1"),  # transformers' own words
    ({"layer_types": ["chunked_attention"] * 2}, "layer_types=.*chunked.* should name one of full_attention, sl"),
    (MIXED, "layer_types=.* sliding_window=None"),
    ({"token_types_as_tokens": True, "type_vocab_size": 2}, "token_types_as_tokens=True .* type_vocab_size=2"),
    (BY_PADDING, "from_padding=True is a field of other families"),
    ({"num_local_experts": 4}, "num_local_experts=4 .*'dense', mlp_bias=True"),
    ({"lm_head_act": "relu"}, "lm_head_act='relu' has no effect without lm_head_transform"),
    ({"lm_head_transform": True, "logit_scale": 2}, "logit_scale=2 .*lm_head_transform=True"),
    ({"project_tokens": True}, "project_tokens=True .*embedding_size=32 .*differ"),
    ({"renew_longrope_cache": True}, "renew_longrope_cache=True .*rope_type='longrope'"),
    ({"scale_alibi": True}, "scale_alibi=True .*position_embedding_type='learned'"),
    ({"position_embedding_type": "alibi", "round_alibi": True}, "round_alibi=True .*position_ids_from_mask=False"),
    ({"num_local_experts": 2, "num_experts_per_tok": 3}, "num_experts_per_tok=3 .* num_local_experts=2"),
    ({"num_local_experts": 0}, "num_experts_per_tok=2 .* num_local_experts=0"),
    ({"num_local_experts": 2, "moe_intermediate_size": 0}, "moe_intermediate_size=0 at least 1"),
    ({"mlp_layer_types": ["sparse", "linear"]}, "mlp_layer_types.*sparse.*dense"),  # transformers' own words
    ({"mlp_layer_types": ["sparse", "dense"]}, "mlp_layer_types=.* num_local_experts=None"),
    ({"output_router_logits": True}, "output_router_logits=True .* num_local_experts=None"),
    *field(
        "has no effect without num_local_experts",
        {"num_experts_per_tok": 4, "moe_intermediate_size": 7, "norm_topk_prob": False, "router_aux_loss_coef": 0.1}
        | {"shared_expert_intermediate_size": 7},
    ),
    *(
        case
        for value in NO_FINITE
        for case in field("must be above 0, and finite", {"logit_scale": value, "final_logit_softcapping": value})
    ),
]
ENCODER_DECODER = [
    ({"encoder_layers": 0}, "num_hidden_layers=0 must be at least 1"),
    *field("must be at least 1", {"decoder_layers": 0, "decoder_vocab_size": -1}),
    (
        {"decoder_vocab_size": 50, "share_encoder_decoder_embeddings": True},
        "share_encoder_decoder_embeddings=True .* vocab_size=61 and decoder_vocab_size=50",
    ),
    ({"pad_token_id": 61}, "pad_token_id=61 .* 0 to 60"),
    ({"pad_token_id": 55, "decoder_vocab_size": 50}, "pad_token_id=55 .*target.* 0 to 49"),
    ({"decoder_start_token_id": 61}, "decoder_start_token_id=61 .*target.* 0 to 60"),
    ({"position_offset": 2, "position_embedding_type": "none"}, "position_offset=2 .* position_embedding_type='none'"),
    ({"position_offset": -1} | LEARNED, "position_offset=-1"),
    (BY_PADDING | {"pad_token_id": None}, "from_padding=True .*pad_token_id=None"),
    (BY_PADDING | LEARNED | {"pad_token_id": 30}, "from_padding=True .*pad_token_id=30 .*max_position_embeddings=24"),
    (BY_PADDING | LEARNED | {"position_offset": 2}, "position_offset=2 .*from_padding=True"),
    ({"lm_head_bias": True, "final_logits_bias": True}, "final_logits_bias=True .*lm_head_bias=True"),
    ({"decoder_layer": 4}, "no field 'decoder_layer'.* 'decoder_layers'"),
    *field("is a field of other families", {"layer_types": ["linear_attention"], "token_types_as_tokens": True}),
    ({"weight_init": "xavier", "initializer_range": 0.1}, "initializer_range=0.1 has .* without weight_init='normal'"),
    ({"use_parallel_residual": True, "norm_position": "pre"}, "use_parallel_residual=True .*cross-attention"),
    ({"sliding_window": 1}, "sliding_window=1 must be at least 2, for a cache"),
    ({"norm_target_tokens": True}, "norm_target_tokens=True .*embedding_norm=False"),
]
CONVOLUTION = {"conv_kernel_size": 3}
DEBERTA = [
    ({"pos_att_type": ["p2p"]}, r"pos_att_type=\['p2p'\] should name 'c2p', 'p2c' or both"),
    ({"pos_att_type": []}, r"pos_att_type=\[\] should name"),
    ({"position_buckets": 46}, "position_buckets=46 .* max_relative_positions=24"),
    ({"conv_kernel_size": 4}, "conv_kernel_size=4 should be odd"),
    (CONVOLUTION | {"conv_groups": 5}, "conv_groups=5 should divide hidden_size=32"),
    ({"project_before_norm": True}, "project_before_norm=True .*embedding_size=32 is hidden_size=32"),
    ({"conv_act": "relu"}, "conv_act='relu' has no effect without conv_kernel_size"),
    ({"num_key_value_heads": 2}, "num_key_value_heads=2 is a field of other families"),
    ({"layer_types": ["linear_attention"] * 2}, "choose no linear layer"),
]
FAMILIES = {
    **{TfmBertConfig: ENCODER, TfmGPTConfig: DECODER, TfmEncoderDecoderConfig: ENCODER_DECODER},
    TfmDebertaConfig: DEBERTA,
}


@pytest.mark.parametrize(
    ("family", "fields", "message"),
    [
        pytest.param(family, *case, id=f"{family.model_type}-{case[1]}")
        for family, cases in FAMILIES.items()
        for case in cases
    ],
)
def test_fields(family, fields, message):
    with pytest.raises((ValueError, KeyError, StrictDataclassError)) as error:
        tiny_config(family, **fields)
    assert re.search(message, str(error.value), flags=re.DOTALL), error.value


EXPERTS = {"mlp_type": "gated", "mlp_bias": False, "num_local_experts": 4}
PRE = {"norm_position": "pre"}
#: of each family, what is just right
EDGES = {
    TfmBertConfig: [
        dict.fromkeys(("num_hidden_layers", "num_attention_heads", "intermediate_size", "sliding_window"), 1),
        {"type_vocab_size": 0, "hidden_dropout": 0.0, "initializer_range": 0.0, "pad_token_id": 60},
        {"relative_attention_num_buckets": 4, "relative_attention_max_distance": 3},
        {"relative_attention_num_buckets": 5, "relative_attention_max_distance": 3},
        *(BY_PADDING | {"pad_token_id": 22}, rope("default", partial_rotary_factor=0.25)),
        *(rope("default") | {"no_rope_layers": [0, 1]}, LINEAR | {"layer_types": ["linear_attention"] * 2}),
        PRE | {"use_parallel_residual": True, "num_ln_in_parallel_attn": 1, "first_norm": False},
        {"norm_position": "both", "first_norm": False, "qk_norm": "head", "norm_type": "rmsnorm"},
        {"embedding_norm": False, "embedding_multiplier": 2, "num_hidden_groups": 1},
        {"scale_embedding": True, "round_embedding_scale": True, "classifier_norm": True, "lm_head_act": "relu"},
    ],
    TfmGPTConfig: [
        EXPERTS | {"num_experts_per_tok": 1, "moe_intermediate_size": 1, "shared_expert_intermediate_size": 1},
        EXPERTS | {"num_experts_per_tok": 4, "output_router_logits": True, "mlp_layer_types": ["sparse", "dense"]},
        {"sliding_window": 2, "position_offset": 1, "token_types_as_tokens": True, "residual_multiplier": 0.5},
        {"position_embedding_type": "alibi", "position_ids_from_mask": True, "round_alibi": True, "scale_alibi": True},
        {"project_tokens": True, "embedding_size": 16, "tie_word_embeddings": True, "logit_scale": 2},
        {"lm_head_transform": True, "lm_head_act": "relu", "embedding_size": 16},
    ],
    TfmEncoderDecoderConfig: [
        {"decoder_layers": 1, "decoder_ffn_dim": 1, "decoder_attention_heads": 1, "sliding_window": 2},
        {"decoder_vocab_size": 50, "decoder_start_token_id": 49, "pad_token_id": 49, "final_logits_bias": True},
        LEARNED | {"position_offset": 1, "embedding_norm": True, "norm_target_tokens": True},
        BY_PADDING | LEARNED | {"pad_token_id": 22, "sliding_window": 2},
    ],
    TfmDebertaConfig: [{"position_buckets": 45, "conv_kernel_size": 3, "conv_groups": 4, "pos_att_type": ["c2p"]}],
}


@pytest.mark.parametrize(("family", "fields"), [(family, each) for family, cases in EDGES.items() for each in cases])
def test_what_is_just_right_is_taken(family, fields):
    tiny_config(family, **fields)


def test_two_names_of_one_field(tmp_path):
    """Of the same value, too: who reads it learns one name of two."""
    for family, names in (
        (TfmBertConfig, {"hidden_size": 48, "n_embd": 96}),
        (TfmBertConfig, {"hidden_size": 96, "n_embd": 96}),
        (TfmBertConfig, {"n_embd": 48, "d_model": 96}),
        (TfmEncoderDecoderConfig, {"num_hidden_layers": 2, "encoder_layers": 4}),
    ):
        message = " and ".join(f"{name}={value}" for name, value in names.items()) + " are names of one field"
        with pytest.raises(ValueError, match=message):
            family(**names)
        family().save_pretrained(tmp_path)
        with pytest.raises(ValueError, match=r"\w+=\d+ and \w+=\d+ are names of one field"):
            family.from_pretrained(tmp_path, **names)


CHANGES = [
    (TfmBertModel, {"position_embedding_type": "learned"}, "rope_parameters=.* no meaning with .*='learned': it"),
    (TfmBertModel, {"hidden_size": 100, "num_attention_heads": 12}, "hidden_size=100 .* num_attention_heads=12"),
    (TfmBertModel, {"position_embedding_type": "rotary"}, "rope_parameters=None should have those of 'full"),
    (TfmBertModel, {"position_offset": 2}, "position_offset=2 is a field of other families"),
    (TfmGPTModel, {"layer_types": ["full_attention"]}, "num_hidden_layers=2 is not the length of layer_types="),
    (TfmEncoderDecoderModel, {"decoder_attention_heads": 3}, "decoder_attention_heads=3 should divide 32"),
]


@pytest.mark.parametrize(("head", "changes", "message"), CHANGES, ids=str)
def test_a_changed_configuration(head, changes, message, tmp_path):
    """Is refused when a model is made from it, when it is saved, and when it is an override."""
    config = tiny_config(head.config_class, **(rope("default") if "learned" in changes.values() else {}))
    config.save_pretrained(tmp_path / "before")
    config.update(changes)
    with pytest.raises(ValueError, match=message):
        head(config)
    with pytest.raises(StrictDataclassError, match=message):
        config.save_pretrained(tmp_path / "after")
    assert not (tmp_path / "after").exists() or not list((tmp_path / "after").iterdir())
    if "position_embedding_type" not in changes:
        with pytest.raises(ValueError, match=message):
            head.config_class.from_pretrained(tmp_path / "before", **changes)
