"""Bad configurations are refused: the error names the field and its value, and says what would be right."""

import math
import re

import pytest
from huggingface_hub.errors import StrictDataclassError

from tfm_zoo import TfmBertConfig, TfmBertModel, TfmDebertaConfig, TfmEncoderDecoderConfig, TfmGPTConfig, TfmGPTModel
from tfm_zoo.configurations.names import OTHERS

from ..tiny import tiny_config

FULL, MIXED = ["full_attention"], {"layer_types": ["full_attention", "sliding_attention"]}
LEARNED, BY_PADDING = {"position_embedding_type": "learned"}, {"position_ids_from_padding": True}
BUCKETS, DISTANCE = "relative_attention_num_buckets", "relative_attention_max_distance"
EXPERTS, LINEAR = {"mlp_type": "gated", "mlp_bias": False, "num_local_experts": 4}, {"attention_type": "linear"}


def rope(kind: str, **parameters) -> dict:
    return {"position_embedding_type": "rotary", "rope_parameters": {"rope_type": kind, "rope_theta": 1e4} | parameters}


OF_OTHERS = rope("default") | {"rope_parameters": {"sliding_attention": {"rope_type": "default", "rope_theta": 1e4}}}
ODD = {"position_embedding_type": "sinusoidal", "hidden_size": 9, "head_dim": 2}


def field(template: str, values: dict) -> list[tuple[dict, str]]:
    """A case for each field and its value, which stand in the error as NAME=VALUE."""
    return [({name: value}, f"{name}={re.escape(repr(value))} {template}") for name, value in values.items()]


#: of each family, what it refuses, one case for each check
REFUSED = {
    TfmBertConfig: [
        ({"hidden_size": 30}, "hidden_size=30 .* num_attention_heads=4.* head_dim"),
        ({"hidden_size": "32"}, "'hidden_size' expected int, got str"),
        ({"norm_position": "middle"}, "'norm_position' .*'post', 'pre'.* middle"),
        *field(".* at least 1", {"vocab_size": -1, "num_attention_heads": 0, "head_dim": 0, "sliding_window": 0}),
        ({"num_key_value_heads": 3}, "num_attention_heads=4 .* num_key_value_heads=3"),
        ({"type_vocab_size": -1}, "type_vocab_size=-1 .* 0 or more"),
        *field(r".* \[0, 1\)", {"hidden_dropout": 1.0, "attention_output_dropout": -0.1}),
        *field("must be above 0, and finite", {"norm_eps": 0.0, "attention_scale": math.nan}),
        *field("must be .*finite", {"initializer_range": -1.0, "embedding_multiplier": math.inf}),
        ({"hidden_act": "gelo"}, "hidden_act='gelo' .* gelu"),
        ({"problem_type": "ranking"}, "problem_type='ranking' .*regression"),
        ({"is_decoder": True}, "is_decoder=True must be False"),
        ({"pad_token_id": 61}, "pad_token_id=61 .* 0 to 60"),
        ({"embedding_multiplier": 2, "embedding_norm": True}, "embedding_multiplier=2 .*embedding_norm=True"),
        ({"lm_head_transform": False, "embedding_size": 16}, "embedding_size=16 to be hidden_size=32"),
        ({"lm_head_act": "relu", "lm_head_transform": False}, "lm_head_act='relu' has no effect without lm_head_trans"),
        ({"sinusoid_type": "halves"}, "sinusoid_type='halves' has no effect without .*='sinusoidal'"),
        ({BUCKETS: 3}, f"{BUCKETS}=3 .* at least 4"),
        ({BUCKETS: 32, DISTANCE: 16}, "buckets=32 .*max_distance=16"),
        ({BUCKETS: 8} | LINEAR, "buckets=8 .* no linear layer"),
        ({BUCKETS: 8, "position_embedding_type": "alibi"}, "'alibi' and .*_buckets=8 are two"),
        (BY_PADDING | {"pad_token_id": None}, "from_padding=True .*pad_token_id=None"),
        (BY_PADDING | {"pad_token_id": 23}, "id=23 .*max_position_embeddings=24"),
        (ODD, "'sinusoidal' .* hidden_size=9 is odd"),
        ({"rope_theta": 100.0}, "rope_theta=100.0 .*position_embedding_type='learned'.* 'rotary'"),
        ({"no_rope_layers": [0]} | rope("default"), "no_rope_layers=.* each of num_hidden_layers=2"),
        ({"head_dim": 7} | rope("default"), "'rotary' .* head_dim=7 is odd"),
        (rope("yarnn"), "rope_type='yarnn' .* yarn"),
        (OF_OTHERS | LINEAR, "rope_parameters=.* should have those of 'linear_attention' layers"),
        (rope("default", partial_rotary_factor=1.5), r"partial_rotary_factor=1\.5 .* \(0, 1\]"),
        (rope("default", partial_rotary_factor=0.1), "partial_rotary_factor=0.1 .*head_dim=8 with a pair"),
        (rope("default", llama_4_scaling_beta=0.1), "llama_4_scaling_beta.* original_max_position_embeddings"),
        ({"num_hidden_groups": 3}, "num_hidden_groups=3 .* num_hidden_layers=2"),
        ({"num_hidden_groups": 1, "sliding_window": 2} | MIXED, "num_hidden_groups=1 .* layer_types="),
        ({"num_local_experts": 4}, "num_local_experts=4 is a field of other families"),
        *(({name: 1}, f"'{name}'. Is it .{meant}") for name, meant in (OTHERS | {"norm_tipe": "norm_t"}).items()),
    ],
    TfmGPTConfig: [
        (LINEAR | {"layer_types": FULL * 2}, "makes every layer linear"),
        ({"layer_types": FULL}, r"num_hidden_layers.*2.*layer_types.*1"),  # transformers' own words
        ({"layer_types": ["chunked_attention"] * 2}, "layer_types=.*chunked.* should name one of full_attention, sl"),
        (MIXED, "layer_types=.* sliding_window=None"),
        ({"sliding_window": 1}, "sliding_window=1 must be at least 2, for a cache"),
        ({"project_tokens": True}, "project_tokens=True .*embedding_size=32 .*differ"),
        ({"renew_longrope_cache": True}, "renew_longrope_cache=True .*rope_type='longrope'"),
        ({"position_ids_from_mask": True}, "puts padding at -1: .*'learned' from row 1"),
        ({"num_local_experts": 4}, "=4 .*: mlp_type='dense' should be 'gated', mlp_bias=True .*False.$"),
        ({"num_local_experts": 2, "num_experts_per_tok": 3}, "num_experts_per_tok=3 .* num_local_experts=2"),
        ({"num_local_experts": 2, "moe_intermediate_size": 0}, "moe_intermediate_size=0 at least 1"),
        ({"mlp_layer_types": ["sparse", "linear"]}, "mlp_layer_types.*sparse.*dense"),  # transformers' own words
        ({"mlp_layer_types": ["sparse", "dense"]}, "mlp_layer_types=.* num_local_experts=None"),
        ({"output_router_logits": True}, "output_router_logits=True .* num_local_experts=None"),
    ],
    TfmEncoderDecoderConfig: [
        ({"encoder_layers": 0}, "num_hidden_layers=0 must be at least 1"),
        ({"decoder_attention_heads": 3}, "decoder_attention_heads=3 should divide 32"),
        ({"decoder_attention_heads": 32} | rope("default"), "=32 should divide 32, .*, into equal heads of even width"),
        ({"decoder_vocab_size": 50, "share_encoder_decoder_embeddings": True}, "vocab_size=61 and decoder_v.*=50 must"),
        ({"decoder_start_token_id": 61}, "decoder_start_token_id=61 .*target.* 0 to 60"),
    ],
    TfmDebertaConfig: [
        ({"pos_att_type": ["p2p"]}, r"pos_att_type=\['p2p'\] should name 'c2p', 'p2c' or both"),
        ({"pos_att_type": []}, r"pos_att_type=\[\] should name"),
        ({"position_buckets": 46}, "position_buckets=46 .* max_relative_positions=24"),
        ({"conv_kernel_size": 4}, "conv_kernel_size=4 should be odd"),
        ({"conv_kernel_size": 3, "conv_groups": 5}, "conv_groups=5 should divide hidden_size=32"),
        ({"project_before_norm": True}, "project_before_norm=True .*embedding_size=32 is hidden_size=32"),
        ({"layer_types": ["linear_attention"] * 2}, "choose no linear layer"),
    ],
}
#: and what is just right
TAKEN = {
    TfmBertConfig: [
        dict.fromkeys(("num_hidden_layers", "num_attention_heads", "intermediate_size", "sliding_window"), 1),
        {"type_vocab_size": 0, "hidden_dropout": 0.0, "initializer_range": 0.0, "pad_token_id": 60},
        *({BUCKETS: 4, DISTANCE: 3}, {BUCKETS: 5, DISTANCE: 3}, BY_PADDING | {"pad_token_id": 22}),
        *(rope("default", partial_rotary_factor=0.25), rope("default") | {"no_rope_layers": [0, 1]}),
        LINEAR | {"layer_types": ["linear_attention"] * 2},
    ],
    TfmGPTConfig: [
        EXPERTS | {"num_experts_per_tok": 1, "moe_intermediate_size": 1, "shared_expert_intermediate_size": 1},
        EXPERTS | {"num_experts_per_tok": 4, "output_router_logits": True, "mlp_layer_types": ["sparse", "dense"]},
        {"sliding_window": 2, "position_offset": 1, "position_ids_from_mask": True},
        {"project_tokens": True, "embedding_size": 16},
    ],
    TfmEncoderDecoderConfig: [
        {"decoder_layers": 1, "decoder_ffn_dim": 1, "decoder_attention_heads": 1, "sliding_window": 2},
        {"decoder_vocab_size": 50, "decoder_start_token_id": 49, "pad_token_id": 49, "final_logits_bias": True},
    ],
    TfmDebertaConfig: [{"position_buckets": 45, "conv_kernel_size": 3, "conv_groups": 4, "pos_att_type": ["c2p"]}],
}


@pytest.mark.parametrize(
    ("family", "fields", "message"), [(family, *case) for family, cases in REFUSED.items() for case in cases]
)
def test_fields(family, fields, message):
    with pytest.raises((ValueError, KeyError, StrictDataclassError)) as error:
        tiny_config(family, **fields)
    assert re.search(message, str(error.value), flags=re.DOTALL), error.value


@pytest.mark.parametrize(("family", "fields"), [(family, each) for family, cases in TAKEN.items() for each in cases])
def test_what_is_just_right_is_taken(family, fields):
    tiny_config(family, **fields)


def test_two_names_of_one_field(tmp_path):
    """Of the same value, too: who reads it learns one name of two."""
    TfmBertConfig().save_pretrained(tmp_path)
    for names in ({"hidden_size": 96, "n_embd": 96}, {"n_embd": 48, "d_model": 96}):
        for make in (TfmBertConfig, lambda **names: TfmBertConfig.from_pretrained(tmp_path, **names)):
            with pytest.raises(ValueError, match=r"\w+=\d+ and \w+=\d+ are names of one field"):
                make(**names)


def test_a_changed_configuration(tmp_path):
    """Is refused when a model is made from it, when it is saved, and when it is an override."""
    for head, changes, message in (
        (TfmBertModel, {"hidden_size": 100, "num_attention_heads": 12}, "hidden_size=100 .* num_attention_heads=12"),
        (TfmBertModel, {"position_offset": 2}, "position_offset=2 is a field of other families"),
        (TfmGPTModel, {"layer_types": FULL}, "num_hidden_layers=2 is not the length of layer_types="),
    ):
        config = tiny_config(head.config_class)
        config.save_pretrained(tmp_path / "before")
        config.update(changes)
        with pytest.raises(ValueError, match=message):
            head(config)
        with pytest.raises(StrictDataclassError, match=message):
            config.save_pretrained(tmp_path / "after")
        assert not [*tmp_path.glob("after/*")]
        with pytest.raises(ValueError, match=message):
            head.config_class.from_pretrained(tmp_path / "before", **changes)
