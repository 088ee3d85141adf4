"""Each field of an official configuration becomes what it means, and comes back as it was."""

import json
from copy import deepcopy

import pytest
import torch
from huggingface_hub.errors import StrictDataclassError
from transformers.initialization import no_init_weights

from tests.conversion.comparison import assert_same_config, assert_same_model, assert_same_weights
from tests.equivalence.comparison import ragged_batch
from tests.hub.editing import CONFIG, edit
from tests.official_models import BY_NAME, FALCON_RW, OFFICIAL_CLASSES, ROPE, OfficialClass, build_tiny, distinct
from tfm_zoo.converters import from_official, to_official
from tfm_zoo.converters.architecture import Architecture
from tfm_zoo.converters.config_comparison import ZOO_WITHOUT_EFFECT, effective_values
from tfm_zoo.converters.config_conversion import COMMON, completed, to_zoo_config
from tfm_zoo.converters.config_rules import Field

UNTIED = ("tie_word_embeddings", False)
#: why an official configuration or class takes no such value, or the zoo does not convert it
NOT_TAKEN = (ValueError, TypeError, KeyError, RuntimeError, AttributeError, IndexError, StrictDataclassError)
#: values that nothing generic stands for, and fields that old configurations alone have
SPECIAL = {
    "bert": {"position_embedding_type": "absolute", "pooler_fc_size": 768, "finetuning_task": "sst2"},
    "gpt2": {"reorder_and_upcast_attn": True, "n_ctx": 40, "task_specific_params": {"text": {"max_length": 50}}},
    "openai-gpt": {"afn": "gelu", "n_special": 0},
    "llama": {"pretraining_tp": 2, "attention_dropout": None, "eos_token_id": [2, 3]},
    "qwen2": {"use_sliding_window": False, "head_dim": 10, "use_mrope": False},
    "olmo3": {"layer_types": ["full_attention", "sliding_attention", "full_attention"]},
    "gemma2": {"attn_logit_softcapping": None, "final_logit_softcapping": None, "query_pre_attn_scalar": 224},
    "gemma3_text": {"layer_types": None, "sliding_window_pattern": 2, "sliding_window": 9},
    "smollm3": {"no_rope_layers": None, "no_rope_layer_interval": 2, "use_sliding_window": False},
    "qwen3_moe": {"decoder_sparse_step": 2, "mlp_only_layers": [0], "output_router_logits": True},
    "mpt": {"attn_config": {"softmax_scale": 0.3}, "logit_scale": None},
    "exaone4": {"sliding_window": None, "layer_types": ["full_attention"] * 3},
    "gpt_neo": {"attention_types": [[["global", "local"], 1], [["global"], 1]], "intermediate_size": None},
    "marian": {"share_encoder_decoder_embeddings": False, "decoder_vocab_size": 71, "normalize_before": False},
    "fsmt": {"langs": ["ru", "en"], "tgt_vocab_size": 99, "tie_word_embeddings": True, "num_beams": 3},
    "m2m_100": {"encoder_layerdrop": 0.05, "decoder_layerdrop": 0.05, "num_beams": 5},
    "deberta-v2": {"position_buckets": -1, "max_relative_positions": -1, "pos_att_type": ["c2p"], "share_att_key": True}
    | {"norm_rel_ebd": "none", "conv_kernel_size": 5, "conv_groups": 2, "conv_act": "gelu", "cls_dropout": 0.3},
    "deberta": {"max_relative_positions": -1, "pos_att_type": "p2c", "talking_head": False, "cls_dropout": 0.0},
    "modernbert": {"layer_types": ["sliding_attention", "full_attention", "full_attention"], "local_attention": 9},
    "nomic_bert": {"head_dim": None, "qkv_proj_bias": False, "rotary_emb_base": 1000},
    "t5": {"feed_forward_proj": "gated-gelu", "n_positions": 512},
    "mt5": {"feed_forward_proj": "relu"},
    "umt5": {"feed_forward_proj": "gated-relu", "scalable_attention": True},
    "esm": {"position_embedding_type": "absolute", "vocab_list": ["<cls>"]},
    "clip_text_model": {"eos_token_id": 2},
}


def other_values(value) -> tuple:
    """Values that a field might have, beside its own."""
    if isinstance(value, bool):
        return (not value,)
    if isinstance(value, int | float):
        return (value + 1, value * 2, value / 2 + 0.1)
    if isinstance(value, str):
        return ("relu", "mean", None)
    return (True, 3, 0.3, deepcopy(ROPE["linear"]), "mean") if value is None else (None, deepcopy(ROPE["linear"]))


def zoo_values(table: Architecture, fields: dict) -> dict:
    head = table.heads[0]
    return effective_values(to_zoo_config(table, completed(table, fields), head.zoo, {}), head)


@torch.no_grad()
def changes_that_fit(table: Architecture) -> dict:
    """Changes every field of a tiny official model, one on top of the others, as far as its class takes them and they
    are converted. One that leaves the zoo's configuration as it is has to leave what the official class computes, too.
    """
    official_class = OfficialClass(table, table.heads[0])
    original = build_tiny(official_class)
    batch, fields = ragged_batch(official_class, original, "right", [7, 4]), original.config.to_dict()
    before, changes, made_of = zoo_values(table, fields), {}, original.config.from_dict
    expected = original(**batch)[0]
    copied = {rule.official for rule in table.config if isinstance(rule, Field) and rule.zoo not in ZOO_WITHOUT_EFFECT}
    names = (type(original.config).__dataclass_fields__.keys() & fields.keys()) - COMMON
    told: set[str] = set()
    for name in sorted(names):
        for value in other_values(fields[name]):
            if name in told and isinstance(fields[name], int | float):
                break  # a number tells no more than another
            try:
                if zoo_values(table, fields | {name: value}) != before:
                    if name not in changes:
                        config = made_of(fields | changes | {name: value})
                        zoo_values(table, config.to_dict())
                        with no_init_weights():
                            type(original)(config).eval()(**batch)
                        changes[name] = value
                        told.add(name)
                    continue
                if name in copied:
                    continue
                with no_init_weights():
                    changed = type(original)(made_of(fields | {name: value})).eval()
                changed.load_state_dict(original.state_dict())
            except NOT_TAKEN:
                continue
            assert torch.equal(changed(**batch)[0], expected), f"{name}={value}"
            told.add(name)
    return changes


@pytest.mark.parametrize("table", {each.architecture: 0 for each in OFFICIAL_CLASSES}, ids=lambda each: each.model_type)
def test_every_field_there_and_back(table):
    """With all changes at once, and with values of their kind. (Where nothing is tied, some official classes have
    tensors that they do not read: the tests of ties have these.)"""
    found, special = changes_that_fit(table).items(), SPECIAL.get(table.model_type)
    changes = {name: value for name, value in found if name != "dropout" and (name, value) != UNTIED}
    natives = [each for each in distinct(by="rules") if each.architecture is table]
    classifiers = [each for each in natives if str(each).endswith("SequenceClassification")]
    rows = [(each, changes, False) for each in natives]
    rows += [(each, special, True) for each in natives[:1] + classifiers if special]
    for native, fields, dropout in rows:
        original = build_tiny(native, dropout=dropout, **fields)
        zoo = from_official(original)
        assert type(zoo) is native.head.zoo
        assert_same_model(to_official(zoo), original)


SERIAL = {"new_decoder_architecture": False, "parallel_attn": False}
APART = {"share_encoder_decoder_embeddings": False, "tie_word_embeddings": False}
TIED = {"share_encoder_decoder_embeddings": True, "tie_word_embeddings": True}
TWO_VOCABULARIES = {"share_encoder_decoder_embeddings": False, "decoder_vocab_size": 71}
FULL = "full_attention"
LONGROPE = {"original_max_position_embeddings": 20, "rope_parameters": ROPE["longrope"], "sliding_window": None}


@pytest.mark.parametrize(
    ("name", "fields", "expected"),
    [
        ("GPT2Model", {"n_inner": None}, {"intermediate_size": 128}),
        ("LlamaModel", {"head_dim": None, "num_key_value_heads": None}, {"head_dim": 8, "num_key_value_heads": 4}),
        ("LlamaModel", {}, {"scaled_residual_init": False, "train_padding_embedding": False, "hidden_dropout": 0.0}),
        ("MistralModel", {"sliding_window": None}, {"sliding_window": None, "layer_types": [FULL] * 3}),
        ("Qwen2Model", {"use_sliding_window": False}, {"layer_types": [FULL] * 3, "sliding_window": None}),
        ("Qwen2Model", {"max_window_layers": 28}, {"layer_types": [FULL] * 3, "sliding_window": 4}),
        ("GPTJModel", {"n_embd": 88, "n_head": 2, "rotary_dim": 30}, {"head_dim": 44}),
        ("FalconModel", SERIAL | {"attention_dropout": 0.3}, {"attention_output_dropout": 0.3}),
        ("FalconModel", FALCON_RW, {"position_embedding_type": "alibi", "round_alibi": True, "attention_bias": True}),
        *(
            ("LlamaForCausalLM", {"rope_parameters": rope, "head_dim": None}, {"rope_parameters": rope})
            for rope in ROPE.values()
        ),
        ("MarianModel", {}, {"weight_init": "normal"}),
        ("MarianMTModel", {"tie_word_embeddings": False}, APART),
        ("MarianMTModel", TWO_VOCABULARIES, TWO_VOCABULARIES | {"tie_word_embeddings": True}),
        ("BartForConditionalGeneration", {"tie_word_embeddings": False}, APART),
        ("FSMTForConditionalGeneration", {"src_vocab_size": 80}, {"vocab_size": 80, "decoder_vocab_size": 91}),
        ("FSMTForConditionalGeneration", {"tgt_vocab_size": 99, "tie_word_embeddings": True}, TIED),
    ],
    ids=str,
)
def test_what_a_field_means(name, fields, expected):
    """(What the fields of tiny models mean, `tests/equivalence` compares.)"""
    original = build_tiny(BY_NAME[name], **deepcopy(fields))  # official classes write to some
    zoo = from_official(original)
    assert {key: getattr(zoo.config, key) for key in expected} == expected
    back = to_official(zoo)
    reloaded = type(zoo.config).from_dict(json.loads(zoo.config.to_json_string()))
    for config in (back.config, to_official(type(zoo)(reloaded)).config):
        assert_same_config(config, original.config)
    # Where nothing is tied, no official class reads the embeddings that might be shared: others take their place.
    if fields.get("tie_word_embeddings") is False and hasattr(back.base_model, "shared"):
        back.base_model.shared.weight = original.base_model.shared.weight
    assert_same_weights(back, original)


LLAMA, ROBERTA = "LlamaForTokenClassification", "RobertaForSequenceClassification"


@pytest.mark.parametrize(
    ("name", "rates", "overrides", "classifier", "layer"),
    [
        (LLAMA, {"classifier_dropout": 0.0, "hidden_dropout": 0.2}, {}, 0.0, 0.0),
        (LLAMA, {"classifier_dropout": None, "hidden_dropout": 0.2}, {}, 0.2, 0.0),
        # RoBERTa's classifier drops what its dense layer reads at the rate that the other dropouts have.
        (ROBERTA, {"hidden_dropout_prob": 0.1}, {}, 0.1, 0.1),
        (ROBERTA, {}, {"classifier_dropout": 0.2}, 0.2, 0.0),
        (ROBERTA, {}, {"hidden_dropout": 0.3, "pooler_dropout": 0.0}, 0.0, 0.3),
    ],
)
def test_dropout_of_a_classifier(name, rates, overrides, classifier, layer):
    zoo = from_official(build_tiny(BY_NAME[name], **rates), **overrides)
    assert (getattr(zoo, "classifier", zoo).dropout.p, zoo.model.layers[0].mlp_dropout.p) == (classifier, layer)
    if not overrides:
        zoo.config.classifier_dropout = 0.5
        official = to_official(zoo)
        assert getattr(official, "classifier", official).dropout.p == 0.5


@pytest.mark.parametrize(
    ("name", "fields", "later"),
    [("BloomForCausalLM", {}, "position_ids_from_mask"), ("Phi3ForCausalLM", LONGROPE, "renew_longrope_cache")],
)
def test_models_that_were_converted_before_a_field_was_there(name, fields, later):
    zoo = from_official(original := build_tiny(BY_NAME[name], **fields))
    setattr(zoo.config, later, not getattr(zoo.config, later))
    assert_same_model(to_official(zoo), original)


#: what other libraries write into `config.json`, and read there
OF_OTHERS = {
    **{"sentence_transformers": {"activation_fn": "torch.nn.modules.linear.Identity", "version": "4.0.1"}},
    **{"sbert_ce_default_activation_function": "torch.nn.modules.linear.Identity", "unsloth_fixed": True},
    **{"matryoshka_dimensions": [16, 8], "prompts": {"query": "q: "}, "prefix": "say ", "finetuning_task": "sst-2"},
    **{"tokenizer_class": "BertTokenizer", "model_max_length": 24, "task_specific_params": {"sum": {"beams": 2}}},
}
#: what transformers or the zoo would read as something else: it comes back, and stays away from the zoo's own fields
STAYS = {"rope_theta": 5e5, "custom_pipelines": {"mine": {"impl": "mine.Mine"}}, "vocab_sizes": [1]}


@pytest.mark.parametrize("name", ["BertModel", "GPT2LMHeadModel", "BartModel"])
def test_fields_of_other_libraries_stay_where_they_look(name, tmp_path):
    """In `config.json`, forth and back. What the zoo's has gained or lost since, the official one gains or loses."""
    build_tiny(BY_NAME[name]).save_pretrained(tmp_path / "official")
    edit(tmp_path / "official", CONFIG, **OF_OTHERS, **STAYS)
    from_official(tmp_path / "official").save_pretrained(tmp_path / "zoo")
    fields = json.loads((tmp_path / "zoo" / CONFIG).read_text())
    assert OF_OTHERS.items() <= fields.items() and not STAYS.keys() & fields.keys()
    zoo = BY_NAME[name].head.zoo.from_pretrained(tmp_path / "zoo")
    assert (OF_OTHERS | STAYS).items() <= to_official(zoo).config.to_dict().items()
    zoo.config.written_later = 1
    del zoo.config.prompts
    official = to_official(zoo).config
    assert official.written_later == 1 and not hasattr(official, "prompts")
