"""Bad configurations are refused: the error names the field and its value, and says what would be right."""

import math
import re

import pytest
from huggingface_hub.errors import StrictDataclassError

import tfm_zoo
from tfm_zoo import TfmBertConfig, TfmBertModel, TfmEncoderDecoderConfig, TfmEncoderDecoderModel, TfmGPTModel

from ..tiny import tiny_config
from .refusals import refused


def rope(kind: str, **parameters) -> dict:
    parameters |= {"rope_type": kind, "rope_theta": 10000.0}
    return {"position_embedding_type": "rotary", "rope_parameters": parameters}


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        refused("hidden_size=30 .* num_attention_heads=4.* head_dim", hidden_size=30),
        refused("'hidden_size' expected int, got str", hidden_size="32"),
        *[
            refused(f"{name}={value} .* at least 1", **{name: value})
            for name, value in {
                "vocab_size": -1,
                "num_hidden_layers": 0,
                "num_attention_heads": 0,
                "num_key_value_heads": 0,
                "head_dim": 0,
                "intermediate_size": 0,
                "max_position_embeddings": 0,
                "sliding_window": 0,
            }.items()
        ],
        refused("num_attention_heads=4 .* num_key_value_heads=3", num_key_value_heads=3),
        refused("type_vocab_size=-1 .* 0 .* or more", type_vocab_size=-1),
        refused("relative_attention_num_buckets=3 .* at least 4", relative_attention_num_buckets=3),
        refused("=32 .*max_distance=16", relative_attention_num_buckets=32, relative_attention_max_distance=16),
        refused("buckets=8 .* no linear layer", relative_attention_num_buckets=8, attention_type="linear"),
        refused("per_layer=True .* without relative_attention_num_buckets", relative_attention_per_layer=True),
        refused("attn_logit_softcapping=-1.0 must be above 0", attn_logit_softcapping=-1.0),
        refused("attn_logit_softcapping=9.0 .*'linear'", attn_logit_softcapping=9.0, attention_type="linear"),
        refused("position_embedding_type='alibi' .* linear", position_embedding_type="alibi", attention_type="linear"),
        refused("no_rope_layers=.*'learned' does not have", no_rope_layers=[0, 1]),
        refused("no_rope_layers=.* each of num_hidden_layers=2", no_rope_layers=[0], **rope("default")),
        refused("residual_multiplier=0.5 .*'output'", residual_multiplier=0.5, norm_position="output"),
        refused(
            "needs norm_position 'pre' or 'post' and use_parallel_residual=False, and not 'pre' and True",
            residual_multiplier=0.5,
            norm_position="pre",
            use_parallel_residual=True,
        ),
        refused(
            "'alibi' and relative_attention_num_buckets=8 are two",
            position_embedding_type="alibi",
            relative_attention_num_buckets=8,
        ),
        refused("embedding_multiplier=2 .*embedding_norm=True", embedding_multiplier=2, embedding_norm=True),
        refused("round_embedding_scale=True .*scale_embedding=False", round_embedding_scale=True),
        refused("final_logit_softcapping=3.0 is a field of other families", final_logit_softcapping=3.0),
        refused("attention_scale=0 must be above 0", attention_scale=0),
        refused("attention_scale=1 .*attention_type='linear'", attention_scale=1, attention_type="linear"),
        refused(r"hidden_dropout=1\.0 .* \[0, 1\)", hidden_dropout=1.0),
        refused(r"attention_output_dropout=-0\.1 .* \[0, 1\)", attention_output_dropout=-0.1),
        refused(r"classifier_dropout=2 .* \[0, 1\)", classifier_dropout=2),
        refused(r"norm_eps=0\.0 .* above 0", norm_eps=0.0),
        refused(r"initializer_range=-1\.0 .*at least 0", initializer_range=-1.0),
        *[
            refused(f"{name}={value} must be .*finite", **{name: value})
            for name in (
                "norm_eps",
                "attention_scale",
                "initializer_range",
                "residual_multiplier",
                "embedding_multiplier",
            )
            for value in (math.nan, math.inf)
        ],
        refused("attn_logit_softcapping=nan must be above 0, and finite", attn_logit_softcapping=math.nan),
        refused("is_decoder=True must be False", is_decoder=True),
        refused("add_cross_attention=True must be False", add_cross_attention=True),
        refused("max_distance=99 has no effect without rel.*_num_buckets", relative_attention_max_distance=99),
        refused("sinusoid_type='halves' has no effect without sinusoidal positions", sinusoid_type="halves"),
        refused(
            "lm_head_act='relu' has no effect without lm_head_transform or classifier_transform",
            lm_head_act="relu",
            lm_head_transform=False,
        ),
        refused("pad_token_id=61 .* 0 to 60", pad_token_id=61),
        refused("'norm_position' .*'post', 'pre'.* middle", norm_position="middle"),
        refused("'norm_type' .*'layernorm'.* 'rmsnorm'.* batchnorm", norm_type="batchnorm"),
        refused("'position_embedding_type' .*'rotary'.* relative", position_embedding_type="relative"),
        refused("'mlp_type' .*'dense', 'gated'.* moe", mlp_type="moe"),
        refused("'attention_type' .*'softmax'.* quadratic", attention_type="quadratic"),
        refused("'classifier_pooling' .*'cls', 'mean'.* max", classifier_pooling="max"),
        refused("'attention_bias' expected bool, got str", attention_bias="yes"),
        refused("classifier_norm=True .*classifier_dense=False", classifier_norm=True, classifier_dense=False),
        refused("problem_type='ranking' .*regression", problem_type="ranking"),
        refused("hidden_act='gelo' .* gelu", hidden_act="gelo"),
        refused("pooler_act='tan' .* tanh", pooler_act="tan"),
        refused("lm_head_act='re' .* relu", lm_head_act="re"),
        refused("num_hidden_groups=3 .* num_hidden_layers=2", num_hidden_groups=3),
        refused(
            "num_hidden_groups=1 .* layer_types=",
            num_hidden_groups=1,
            sliding_window=2,
            layer_types=["full_attention", "sliding_attention"],
        ),
        refused("num_local_experts=4 is a field of other families", num_local_experts=4),
        refused("project_tokens=True is a field of other families", project_tokens=True),
        refused("position_offset=2 is a field of other families", position_offset=2),
        refused("num_ln_in_parallel_attn=1 .*use_parallel_residual=False", num_ln_in_parallel_attn=1),
        refused("first_norm=False.*norm_position='post'", first_norm=False),
        refused("norm_bias=True .*'rmsnorm'", norm_type="rmsnorm", norm_bias=True),
        refused("embedding_size=0 must be at least 1", embedding_size=0),
        refused("embedding_size=16 the.*hidden_size=32", lm_head_transform=False, embedding_size=16),
        refused("from_padding=True .*pad_token_id=None", position_ids_from_padding=True, pad_token_id=None),
        refused("id=30 .*max_position_embeddings=24", position_ids_from_padding=True, pad_token_id=30),
        refused("position_embedding_type='learned'", rope_parameters={"rope_type": "default"}),
        refused("rope_theta=100.0 .*position_embedding_type='learned'.* 'rotary'", rope_theta=100.0),
        refused("'rotary' .* head_dim=7 is odd", position_embedding_type="rotary", head_dim=7),
        refused(
            "'sinusoidal' .* hidden_size=9 is odd", position_embedding_type="sinusoidal", hidden_size=9, head_dim=2
        ),
        refused("rope_type='yarnn' .* yarn", **rope("yarnn")),
        refused("'linear': .*factor", **rope("linear")),
        refused(r"partial_rotary_factor=1\.5 .* \(0, 1\]", **rope("default", partial_rotary_factor=1.5)),
        refused("partial_rotary_factor=0.1 .*head_dim=8 with a pair", **rope("default", partial_rotary_factor=0.1)),
        refused("qk_norm='head' .*'plain_layernorm'", qk_norm="head", norm_type="plain_layernorm"),
    ],
)
def test_configuration(fields, message):
    with pytest.raises((ValueError, KeyError, StrictDataclassError)) as error:
        tiny_config(**fields)
    assert re.search(message, str(error.value), flags=re.DOTALL)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        refused("hidden_size=30 .* num_attention_heads=4.* head_dim", hidden_size=30),
        refused(r"num_hidden_layers.*2.*layer_types.*1", layer_types=["full_attention"]),  # transformers' own words
        refused("layer_types=.*chunked.* should name one of full_attention, sl", layer_types=["chunked_attention"] * 2),
        refused("layer_types=.* sliding_window=None", layer_types=["full_attention", "sliding_attention"]),
        refused("token_types_as_tokens=True .* type_vocab_size=2", token_types_as_tokens=True, type_vocab_size=2),
        refused("from_padding=True is a field of other families", position_ids_from_padding=True),
        refused("num_local_experts=4 .*'dense', mlp_bias=True", num_local_experts=4),
        refused("project_tokens=True .*embedding_size=32 .*differ", project_tokens=True),
        refused("renew_longrope_cache=True .*rope_type='longrope'", renew_longrope_cache=True),
        refused("scale_alibi=True .*position_embedding_type='learned'", scale_alibi=True),
        refused("position_ids_from_mask=False should be", position_embedding_type="alibi", round_alibi=True),
        refused("num_experts_per_tok=3 .* num_local_experts=2", num_local_experts=2, num_experts_per_tok=3),
        refused("num_experts_per_tok=2 .* num_local_experts=0", num_local_experts=0),
        refused("moe_intermediate_size=0 at least 1", num_local_experts=2, moe_intermediate_size=0),
        refused("mlp_layer_types.*sparse.*dense", mlp_layer_types=["sparse", "linear"]),  # transformers' own words
        refused("mlp_layer_types=.* num_local_experts=None", mlp_layer_types=["sparse", "dense"]),
        refused("output_router_logits=True .* num_local_experts=None", output_router_logits=True),
        *[
            refused(f"{name}={value} has no effect without num_local_experts", **{name: value})
            for name, value in {
                "num_experts_per_tok": 4,
                "moe_intermediate_size": 7,
                "norm_topk_prob": False,
                "router_aux_loss_coef": 0.1,
            }.items()
        ],
        *[
            refused(f"{name}={value} must be above 0, and finite", **{name: value})
            for name in ("logit_scale", "final_logit_softcapping")
            for value in (math.nan, math.inf)
        ],
    ],
)
def test_decoder_fields(fields, message):
    with pytest.raises((ValueError, StrictDataclassError)) as error:
        tiny_config(tfm_zoo.TfmGPTConfig, **fields)
    assert re.search(message, str(error.value), flags=re.DOTALL)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        refused("hidden_size=30 .* num_attention_heads=4.* head_dim", hidden_size=30),
        refused("num_hidden_layers=0 must be at least 1", encoder_layers=0),
        refused("decoder_layers=0 must be at least 1", decoder_layers=0),
        refused("decoder_vocab_size=-1 must be at least 1", decoder_vocab_size=-1),
        refused(
            "share_encoder_decoder_embeddings=True .* vocab_size=61 and decoder_vocab_size=50",
            decoder_vocab_size=50,
            share_encoder_decoder_embeddings=True,
        ),
        refused("pad_token_id=61 .* 0 to 60", pad_token_id=61),
        refused("pad_token_id=55 .*target.* 0 to 49", pad_token_id=55, decoder_vocab_size=50),
        refused("decoder_start_token_id=61 .*target.* 0 to 60", decoder_start_token_id=61),
        refused("'weight_init' .*'xavier', 'normal'.* kaiming", weight_init="kaiming"),
        refused("'sinusoid_type' .*'halves'.* thirds", sinusoid_type="thirds"),
        refused(
            "position_offset=2 .* position_embedding_type='none'", position_offset=2, position_embedding_type="none"
        ),
        refused("position_offset=-1", position_offset=-1, position_embedding_type="learned"),
        refused("from_padding=True .*pad_token_id=None", position_ids_from_padding=True, pad_token_id=None),
        refused(
            "from_padding=True .*pad_token_id=30 .*max_position_embeddings=24",
            position_ids_from_padding=True,
            position_embedding_type="learned",
            pad_token_id=30,
        ),
        refused(
            "from_padding=True and position_offset=2",
            position_ids_from_padding=True,
            position_embedding_type="learned",
            position_offset=2,
        ),
        refused("lm_head_bias=True .*final_logits_bias=True", lm_head_bias=True, final_logits_bias=True),
        refused("no field 'decoder_layer'.* 'decoder_layers'", decoder_layer=4),
        refused(r"layer_types=\['linear_attention'\] is a field of other families", layer_types=["linear_attention"]),
        refused("token_types_as_tokens=True is a field of other families", token_types_as_tokens=True),
        refused(
            "initializer_range=0.1 has .* without weight_init='normal'", weight_init="xavier", initializer_range=0.1
        ),
        refused("use_parallel_residual=True .*cross-attention", use_parallel_residual=True, norm_position="pre"),
        refused("sliding_window=1 must be at least 2, for a cache", sliding_window=1),
    ],
)
def test_encoder_decoder_fields(fields, message):
    with pytest.raises((ValueError, StrictDataclassError)) as error:
        tiny_config(tfm_zoo.TfmEncoderDecoderConfig, **fields)
    assert re.search(message, str(error.value), flags=re.DOTALL), error.value


def test_overrides_are_checked(tmp_path):
    tiny_config().save_pretrained(tmp_path)
    with pytest.raises(ValueError, match="hidden_size=32 is not a multiple of num_attention_heads=3"):
        TfmBertConfig.from_pretrained(tmp_path, num_attention_heads=3)


@pytest.mark.parametrize(("wrong", "right"), [("norm_postion", "norm_position"), ("hidden_sizes", "hidden_size")])
def test_misspelt_field(wrong, right):
    with pytest.raises(ValueError, match=rf"no field '{wrong}'\. Is it '{right}'"):
        tiny_config(**{wrong: "pre"})


@pytest.mark.parametrize(
    ("family", "names"),
    [
        (TfmBertConfig, {"hidden_size": 48, "n_embd": 96}),
        (TfmBertConfig, {"hidden_size": 96, "n_embd": 96}),  # the same value, but who reads it learns one name of two
        (TfmBertConfig, {"n_embd": 48, "d_model": 96}),
        (TfmEncoderDecoderConfig, {"num_hidden_layers": 2, "encoder_layers": 4}),
    ],
    ids=str,
)
def test_two_names_of_one_field(family, names, tmp_path):
    message = " and ".join(f"{name}={value}" for name, value in names.items()) + " are names of one field"
    with pytest.raises(ValueError, match=message):
        family(**names)
    family().save_pretrained(tmp_path)
    with pytest.raises(ValueError, match=r"\w+=\d+ and \w+=\d+ are names of one field"):
        family.from_pretrained(tmp_path, **names)


@pytest.mark.parametrize(
    ("head", "changes", "message"),
    [
        (TfmBertModel, {"hidden_size": 100, "num_attention_heads": 12}, "hidden_size=100 .* num_attention_heads=12"),
        (TfmBertModel, {"hidden_size": 30}, "hidden_size=30 is not a multiple of num_attention_heads=4"),
        (TfmBertModel, {"position_embedding_type": "rotary"}, "rope_parameters=None should have those of 'full"),
        (TfmGPTModel, {"layer_types": ["full_attention"]}, "num_hidden_layers=2 is not the length of layer_types="),
        (TfmGPTModel, {"num_experts_per_tok": 3}, "num_experts_per_tok=3 has no effect without num_local_experts"),
        (TfmEncoderDecoderModel, {"decoder_attention_heads": 3}, "decoder_attention_heads=3 should divide 32"),
        (
            TfmEncoderDecoderModel,
            {"decoder_vocab_size": 50, "pad_token_id": 55},
            "pad_token_id=55 is outside the target",
        ),
    ],
    ids=str,
)
def test_a_changed_configuration(head, changes, message, tmp_path):
    """Is refused when a model is made from it, and when it is saved."""
    config = tiny_config(head.config_class)
    config.update(changes)
    with pytest.raises(ValueError, match=message):
        head(config)
    with pytest.raises(StrictDataclassError, match=message):
        config.save_pretrained(tmp_path)
    assert not list(tmp_path.iterdir())


def test_a_changed_rotary_configuration():
    config = tiny_config(**rope("default"))
    config.position_embedding_type = "learned"
    with pytest.raises(ValueError, match=r"rope_parameters=.* no meaning with position_embedding_type='learned': it"):
        TfmBertModel(config)
