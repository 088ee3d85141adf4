"""Official -> zoo -> official: every tensor bit for bit, and the same configuration."""

import copy
import json

import pytest
import torch

from tests.conversion.comparison import assert_same_model, assert_same_weights
from tests.conversion.folders import edit_config
from tests.official_models import BY_NAME, ROPE, build_tiny, distinct
from tests.precision import assert_same, in_double
from tfm_zoo.converters import ConversionError, from_official, to_official

#: nothing as it is by default, and fields that only old configurations have
ODD_CONFIG = {
    "bert": {
        "hidden_act": "relu",
        "layer_norm_eps": 1e-6,
        "initializer_range": 0.03,
        "pad_token_id": 3,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "use_cache": False,
        "type_vocab_size": 5,
        "position_embedding_type": "absolute",
        "pooler_fc_size": 768,
        "problem_type": "single_label_classification",
        "finetuning_task": "sst2",
    },
    "distilbert": {
        "activation": "relu",
        "sinusoidal_pos_embds": True,
        "initializer_range": 0.03,
        "pad_token_id": 3,
        "output_past": True,
    },
    "gpt2": {
        "n_inner": None,
        "activation_function": "relu",
        "layer_norm_epsilon": 1e-6,
        "reorder_and_upcast_attn": True,
        "scale_attn_by_inverse_layer_idx": True,
        "summary_first_dropout": 0.3,
        "use_cache": False,
        "eos_token_id": [2, 3],
        "n_ctx": 40,
        "task_specific_params": {"text-generation": {"max_length": 50}},
    },
    "openai-gpt": {"afn": "gelu", "initializer_range": 0.03, "n_special": 0, "pad_token_id": 3},
    "llama": {
        "mlp_bias": True,
        "head_dim": 12,
        "hidden_act": "gelu",
        "pretraining_tp": 2,
        "attention_dropout": None,
        "rope_parameters": {"rope_type": "linear", "factor": 2.0, "rope_theta": 500.0},
        "pad_token_id": None,
        "eos_token_id": [2, 3],
        "use_cache": False,
    },
    "mistral": {
        "sliding_window": None,
        "num_key_value_heads": 4,
        "initializer_range": 0.03,
        "tie_word_embeddings": True,
    },
    "qwen2": {"use_sliding_window": False, "head_dim": 10, "use_mrope": False, "attention_dropout": 0},
    "qwen3": {"use_sliding_window": False, "attention_bias": True, "num_key_value_heads": 4, "eos_token_id": [2, 3]},
    "olmo2": {"num_key_value_heads": 4, "clip_qkv": None, "pad_token_id": None, "use_cache": False},
    "olmo3": {"layer_types": ["full_attention", "sliding_attention", "full_attention"], "attention_bias": True},
    "gemma": {"hidden_act": "gelu", "num_key_value_heads": 4, "hidden_activation": None, "pad_token_id": None},
    "gemma2": {
        "attn_logit_softcapping": None,
        "final_logit_softcapping": None,
        "query_pre_attn_scalar": 224,
        "attention_bias": True,
        "cache_implementation": "hybrid",
    },
    "gemma3_text": {"attention_bias": True, "layer_types": None, "sliding_window_pattern": 2, "sliding_window": 9},
    "embedding_gemma": {"attention_bias": True, "layer_types": None, "sliding_window_pattern": 2, "sliding_window": 9}
    | {"final_logit_softcapping": None, "query_pre_attn_scalar": 24, "pad_token_id": None},
    "smollm3": {"no_rope_layers": None, "no_rope_layer_interval": 2, "use_sliding_window": False, "mlp_bias": True},
    "granite": {"logits_scaling": 6.0, "attention_bias": True, "mlp_bias": False, "tie_word_embeddings": True},
    "phi": {"qk_layernorm": False, "num_key_value_heads": 4, "tie_word_embeddings": True, "eos_token_id": [2, 3]},
    "phi3": {
        "sliding_window": None,
        "num_key_value_heads": 4,
        "embd_pdrop": 0.1,
        "original_max_position_embeddings": 9,
    },
    "gpt_bigcode": {"multi_query": False, "n_inner": None, "attention_softmax_in_fp32": False, "n_ctx": 40}
    | {"scale_attn_weights": False},
    "starcoder2": {"use_bias": False, "sliding_window": None, "mlp_type": "default", "use_cache": False},
    "gpt_neox": {"use_parallel_residual": False, "attention_bias": False, "rope_parameters": ROPE["linear"]},
    "gptj": {"rotary_dim": 4, "n_inner": None, "gradient_checkpointing": False, "scale_attn_weights": True},
    "opt": {"do_layer_norm_before": False, "enable_bias": False, "prefix": "</s>", "init_std": 0.006}
    | {"word_embed_proj_dim": 16, "layer_norm_elementwise_affine": False},
    "falcon": {"new_decoder_architecture": False, "multi_query": False, "bias": False, "parallel_attn": False},
    "bloom": {"n_head": 4, "slow_but_exact": False, "pretraining_tp": 2, "pad_token_id": 3},
    "mixtral": {"num_experts_per_tok": 3, "sliding_window": None, "router_aux_loss_coef": 0.02, "head_dim": None},
    "qwen3_moe": {
        **{"use_sliding_window": True, "sliding_window": 5, "decoder_sparse_step": 2, "mlp_only_layers": [0]},
        **{"norm_topk_prob": True, "attention_bias": True, "output_router_logits": True, "num_experts_per_tok": 5},
    },
    "mpt": {"n_heads": 4, "attn_config": {"softmax_scale": 0.3}, "expansion_ratio": 4, "logit_scale": None},
    "seed_oss": {"attention_bias": False, "attention_out_bias": False, "mlp_bias": False, "num_key_value_heads": 4},
    "arcee": {"mlp_bias": True, "hidden_act": "gelu", "head_dim": None, "eos_token_id": [2, 3]},
    "jais2": {"attention_bias": False, "mlp_bias": False, "hidden_act": "gelu", "layer_norm_eps": 1e-6},
    "nemotron": {"attention_bias": True, "mlp_bias": True, "hidden_act": "gelu", "tie_word_embeddings": True},
    "apertus": {"attention_bias": True, "num_key_value_heads": 4, "rope_parameters": ROPE["linear"]},
    "helium": {"mlp_bias": True, "attention_bias": False, "num_key_value_heads": 4, "tie_word_embeddings": True},
    "ernie4_5": {"use_bias": False, "head_dim": None, "num_key_value_heads": 4, "tie_word_embeddings": False},
    "glm": {"attention_bias": False, "num_key_value_heads": 4, "rope_parameters": ROPE["linear"]},
    "glm4": {"attention_bias": False, "num_key_value_heads": 4, "rope_parameters": ROPE["linear"]},
    "stablelm": {"use_parallel_residual": True, "use_qkv_bias": False, "num_key_value_heads": 4},
    "cohere": {"attention_bias": True, "logit_scale": 1.5, "tie_word_embeddings": False, "hidden_act": "gelu"},
    "cohere2": {"attention_bias": True, "layer_types": None, "sliding_window_pattern": 2, "order_of_interleaved": 1},
    "exaone4": {"sliding_window": None, "layer_types": ["full_attention"] * 3, "tie_word_embeddings": True},
    "persimmon": {"qk_layernorm": False, "hidden_act": "gelu", "tie_word_embeddings": True},
    "vaultgemma": {"attn_logit_softcapping": None, "final_logit_softcapping": None, "query_pre_attn_scalar": 224}
    | {"layer_types": None, "sliding_window": 9, "attention_bias": True},
    "gpt_neo": {"attention_types": [[["global", "local"], 1], [["global"], 1]], "intermediate_size": None}
    | {"window_size": 9, "activation_function": "relu", "summary_type": "cls_index"},
    "biogpt": {"scale_embedding": False, "layer_norm_eps": 1e-6, "hidden_act": "relu", "activation_dropout": 0.3},
    "xglm": {"scale_embedding": False, "activation_function": "relu", "activation_dropout": 0.3, "ffn_dim": 40},
    "codegen": {"rotary_dim": 4, "n_inner": None, "n_ctx": 40, "activation_function": "relu"},
    "olmo": {"attention_bias": False, "num_key_value_heads": 4, "tie_word_embeddings": True, "pad_token_id": None},
    "olmoe": {"norm_topk_prob": True, "output_router_logits": True, "num_experts_per_tok": 5, "attention_bias": True},
    "granitemoe": {"logits_scaling": 6.0, "attention_bias": True, "output_router_logits": False},
    "clip_text_model": {"eos_token_id": 2, "hidden_act": "gelu", "initializer_factor": 0.5, "pad_token_id": 0}
    | {"initializer_range": 0.03, "bos_token_id": 1},
    "siglip_text_model": {"projection_size": None, "hidden_act": "gelu", "eos_token_id": 2, "bos_token_id": 1},
    "marian": {
        "scale_embedding": False,
        "share_encoder_decoder_embeddings": False,
        "decoder_vocab_size": 71,
        "use_cache": False,
        "init_std": 0.03,
        "bos_token_id": 0,
        "static_position_embeddings": True,
        "normalize_before": False,
    },
    "bart": {
        "scale_embedding": True,
        "activation_function": "relu",
        "pad_token_id": 4,
        "bos_token_id": None,
        "decoder_start_token_id": 7,
        "forced_eos_token_id": None,
        "decoder_layers": 4,
        "problem_type": "single_label_classification",
    },
    "mbart": {
        "scale_embedding": False,
        "eos_token_id": 4,
        "decoder_start_token_id": 9,
        "max_position_embeddings": 17,
        "classif_dropout": 0.0,
    },
    "fsmt": {
        "langs": ["ru", "en"],
        "scale_embedding": False,
        "tgt_vocab_size": 99,
        "tie_word_embeddings": True,
        "num_beams": 3,
        "max_length": 50,
        "length_penalty": 1.15,
        "early_stopping": True,
    },
    "electra": {"embedding_size": 32, "summary_first_dropout": 0, "summary_activation": "relu", "type_vocab_size": 5},
    "deberta-v2": {
        **{"max_relative_positions": -1, "position_buckets": -1, "pos_att_type": ["c2p"], "norm_rel_ebd": "none"},
        **{"share_att_key": True, "conv_kernel_size": 5, "conv_groups": 2, "conv_act": "gelu", "cls_dropout": 0.3},
        **{"position_biased_input": False, "legacy": False, "pooler_hidden_act": "relu", "pooler_dropout": 0.2},
        **{"type_vocab_size": 0, "attention_head_size": 8, "hidden_act": "relu"},
    },
    "deberta": {
        **{"max_relative_positions": -1, "pos_att_type": "p2c", "position_biased_input": True, "legacy": False},
        **{"pooler_hidden_act": "tanh", "type_vocab_size": 0, "talking_head": False, "cls_dropout": 0.0},
    },
    "albert": {
        "num_hidden_groups": 1,
        "hidden_act": "relu",
        "net_structure_type": 0,
        "gap_size": 0,
        "down_scale_factor": 1,
    },
    "modernbert": {
        "norm_bias": True,
        "attention_bias": True,
        "mlp_bias": True,
        "classifier_bias": True,
        "decoder_bias": False,
        "classifier_pooling": "mean",
        "classifier_activation": "relu",
        "local_attention": 9,
        "layer_types": ["sliding_attention", "full_attention", "full_attention"],
        "sparse_prediction": True,
        "initializer_cutoff_factor": 3.0,
        "repad_logits_with_grad": False,
    },
    "nomic_bert": {
        "head_dim": None,
        "rope_parameters": {"rope_type": "linear", "factor": 2.0, "rope_theta": 500.0},
        "layer_norm_eps": 1e-6,
        "initializer_range": 0.03,
        "pad_token_id": 3,
        "n_embd": 32,
        "qkv_proj_bias": False,
        "rotary_emb_base": 1000,
    },
    "gte": {"type_vocab_size": 0, "pad_token_id": 3, "hidden_act": "relu", "pack_qkv": True, "unpad_inputs": False},
    "jina_embeddings_v3": {"pad_token_id": 3, "hidden_act": "relu", "use_flash_attn": True, "lora_rank": 4},
    "eurobert": {
        "mlp_bias": True,
        "attention_bias": True,
        "classifier_pooling": "bos",
        "num_key_value_heads": 4,
        "head_dim": None,
        "clf_pooling": "bos",
        "tie_word_embeddings": True,
    },
    "ernie": {"use_task_id": False, "hidden_act": "relu", "pad_token_id": 3},
    "roformer": {"embedding_size": None, "rotary_value": False, "hidden_act": "relu", "type_vocab_size": 5},
    "esm": {"position_embedding_type": "absolute", "emb_layer_norm_before": True, "token_dropout": False}
    | {"layer_norm_eps": 1e-6, "mask_token_id": 7, "vocab_list": ["<cls>"]},
    "plbart": {"scale_embedding": False, "activation_function": "relu", "pad_token_id": 4, "decoder_layers": 4},
    "mvp": {"scale_embedding": True, "decoder_start_token_id": 7, "prompt_length": 9, "forced_eos_token_id": None},
    "m2m_100": {"encoder_layerdrop": 0.05, "decoder_layerdrop": 0.05, "scale_embedding": False, "num_beams": 5},
    "pegasus": {"scale_embedding": False, "length_penalty": 0.8, "normalize_embedding": False, "decoder_layers": 4},
    "t5": {
        "feed_forward_proj": "gated-gelu",
        "tie_word_embeddings": False,
        "num_decoder_layers": 4,
        "eos_token_id": 3,
        "decoder_start_token_id": 7,
        "n_positions": 512,
        "output_past": True,
        "use_cache": False,
    },
    "mt5": {"feed_forward_proj": "relu", "initializer_factor": 0.5, "classifier_dropout": 0.3},
    "umt5": {"feed_forward_proj": "gated-relu", "scalable_attention": True, "d_kv": 8, "bos_token_id": 4},
    "mpnet": {"hidden_act": "relu", "layer_norm_eps": 1e-6, "initializer_range": 0.03, "bos_token_id": 7},
    "blenderbot": {"scale_embedding": False, "extra_layer_norm": False, "layernorm_variant": "prelayernorm"},
}


def odd_config(native) -> dict:
    return ODD_CONFIG.get(native.architecture.model_type, ODD_CONFIG["bert"])


@pytest.mark.parametrize("native", distinct(by="rules"), ids=str)
def test_in_memory(native):
    """(That rules find the tensors of every other class, too, `test_old_checkpoints.py` tells.)"""
    original = build_tiny(native, dropout=True, **odd_config(native))
    zoo = from_official(original)
    assert type(zoo) is native.head.zoo
    assert_same_model(to_official(zoo), original)


#: every head of one architecture of each family, and the architectures that are no combination of known parts, or whose
#: files hold other tensors than the model
FAMILIES = ("bert", "gpt2", "bart")
THROUGH_FOLDERS = [
    each
    for each in distinct(by="rules")
    if each.architecture.model_type in FAMILIES
    or (not each.has_common_head and (each.architecture.stored or not each.is_later))
]


@pytest.mark.parametrize("native", THROUGH_FOLDERS, ids=str)
def test_through_folders(native, tmp_path):
    """Official folder in shards, zoo folder, official folder: what each `from_pretrained` makes of them."""
    original = build_tiny(native, dropout=True, id2label={0: "no", 1: "yes"}, label2id={"no": 0, "yes": 1})
    original.save_pretrained(tmp_path / "official", max_shard_size="40KB")
    assert len(list(tmp_path.glob("official/model-*.safetensors"))) > 1
    zoo = from_official(tmp_path / "official")
    zoo.save_pretrained(tmp_path / "zoo")
    reloaded = native.head.zoo.from_pretrained(tmp_path / "zoo")
    assert_same_weights(reloaded, zoo)
    to_official(reloaded).save_pretrained(tmp_path / "back")
    assert_same_model(type(original).from_pretrained(tmp_path / "back"), original)


#: what other libraries write into `config.json`, and read there
OF_OTHERS = {
    **{"sentence_transformers": {"activation_fn": "torch.nn.modules.linear.Identity", "version": "4.0.1"}},
    **{"sbert_ce_default_activation_function": "torch.nn.modules.linear.Identity", "unsloth_fixed": True},
    **{"matryoshka_dimensions": [16, 8], "prompts": {"query": "q: "}, "prefix": "say ", "finetuning_task": "sst-2"},
    **{"tokenizer_class": "BertTokenizer", "model_max_length": 24, "task_specific_params": {"sum": {"beams": 2}}},
}
#: what transformers or the zoo would read as something else: it comes back, and stays away from the zoo's own fields
STAYS = {"rope_theta": 5e5, "custom_pipelines": {"mine": {"impl": "mine.Mine"}}, "vocab_sizes": [1]}


@pytest.mark.parametrize("name", ["BertModel", "GPT2LMHeadModel", "BartModel", "T5EncoderModel", "CLIPTextModel"])
def test_fields_of_other_libraries_stay_where_they_look(name, tmp_path):
    """In `config.json`, forth and back. What the zoo's has gained or lost since, the official one gains or loses."""
    build_tiny(BY_NAME[name]).save_pretrained(tmp_path / "official")
    edit_config(tmp_path / "official", **OF_OTHERS, **STAYS)
    from_official(tmp_path / "official").save_pretrained(tmp_path / "zoo")
    fields = json.loads((tmp_path / "zoo" / "config.json").read_text())
    assert {field: fields.get(field) for field in OF_OTHERS} == OF_OTHERS
    assert not STAYS.keys() & fields.keys()
    zoo = BY_NAME[name].head.zoo.from_pretrained(tmp_path / "zoo")
    assert {field: getattr(to_official(zoo).config, field) for field in (OF_OTHERS | STAYS)} == OF_OTHERS | STAYS
    zoo.config.written_later = 1
    del zoo.config.prompts
    official = to_official(zoo).config
    assert official.written_later == 1 and not hasattr(official, "prompts")


@pytest.mark.parametrize("name", ["LlamaModel", "BartModel", "CLIPTextModel"])
def test_a_decoder_that_sees_later_tokens_is_refused(name):
    """No official class declares the field by which it does."""
    with pytest.raises(ConversionError, match=r"is_causal=False.* True"):
        from_official(build_tiny(BY_NAME[name], is_causal=False))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_stays(dtype, tmp_path):
    original = build_tiny(BY_NAME["RobertaForSequenceClassification"]).to(dtype)
    original.save_pretrained(tmp_path)
    for source in (tmp_path, original):
        zoo = from_official(source)
        assert zoo.dtype == dtype
        assert_same_weights(to_official(zoo), original)


def test_dtype_on_demand():
    original = build_tiny(BY_NAME["BertModel"])
    assert from_official(original, dtype="bfloat16").dtype == torch.bfloat16
    with pytest.raises(ValueError, match="float31"):
        from_official(original, dtype="float31")


def test_weights_are_copies():
    """Neither direction shares memory with what it converts."""
    original = build_tiny(BY_NAME["BertForMaskedLM"])
    before = copy.deepcopy(original.state_dict())
    zoo = from_official(original)
    back = to_official(zoo)
    for model in (zoo, back):
        for parameter in model.parameters():
            torch.nn.init.zeros_(parameter)
    for name, tensor in original.state_dict().items():
        assert torch.equal(tensor, before[name])
    assert not any(parameter.any() for parameter in zoo.parameters())


def test_tied_weights_stay_tied(tmp_path):
    encoders = ("BertForPreTraining", "RobertaForMaskedLM", "DistilBertForMaskedLM")
    for name in (*encoders, "GPT2LMHeadModel", "OpenAIGPTLMHeadModel", "LlamaForCausalLM", "Qwen2ForCausalLM"):
        original = build_tiny(BY_NAME[name], tie_word_embeddings=True)
        original.save_pretrained(tmp_path / name)
        zoo = from_official(tmp_path / name)
        assert zoo.lm_head.weight is zoo.model.embeddings.embed_tokens.weight
        native = to_official(zoo)
        assert native.get_output_embeddings().weight is native.get_input_embeddings().weight


@pytest.mark.parametrize(
    "name",
    [
        *("BertForMaskedLM", "RobertaForMaskedLM", "DistilBertForMaskedLM"),
        *("GPT2LMHeadModel", "OpenAIGPTLMHeadModel", "LlamaForCausalLM", "MistralForCausalLM"),
    ],
)
@in_double()
def test_untied_weights_stay_apart(name, tmp_path):
    original = build_tiny(BY_NAME[name], tie_word_embeddings=False)
    original.save_pretrained(tmp_path)
    zoo = from_official(tmp_path)
    assert not torch.equal(zoo.lm_head.weight, zoo.model.embeddings.embed_tokens.weight)
    back = to_official(zoo).state_dict()
    # Untied, BERT and RoBERTa keep a second bias that nothing reads: the one that is read takes its place.
    unread = ("cls.predictions.bias", "lm_head.bias")
    for key, tensor in original.state_dict().items():
        assert key in unread or torch.equal(back[key], tensor), key
    ids = torch.arange(5, 14)[None]
    assert_same(zoo(ids).logits, original(ids).logits)


def test_rules_give_contiguous_tensors():
    """Turned and cut, forth and back."""
    original = build_tiny(BY_NAME["GPT2LMHeadModel"])
    zoo = from_official(original)
    for model in (zoo, to_official(zoo)):
        assert all(tensor.is_contiguous() for tensor in model.state_dict().values())


def test_generation_config_comes_along(tmp_path):
    original = build_tiny(BY_NAME["LlamaForCausalLM"])
    original.generation_config.temperature, original.generation_config.do_sample = 0.7, True
    original.save_pretrained(tmp_path)
    for source in (original, tmp_path):
        zoo = from_official(source)
        assert zoo.generation_config is not original.generation_config
        for model in (zoo, to_official(zoo)):
            assert (model.generation_config.temperature, model.generation_config.do_sample) == (0.7, True)


def test_a_class_without_a_choice_of_attention():
    """OpenAI GPT computes its own; the zoo's model may have any."""
    original = build_tiny(BY_NAME["OpenAIGPTLMHeadModel"])
    zoo = from_official(original)
    assert zoo.config._attn_implementation == "sdpa"
    assert to_official(zoo).config._attn_implementation == "eager"
    gpt2 = from_official(build_tiny(BY_NAME["GPT2Model"]), attn_implementation="flex_attention")
    assert to_official(gpt2).config._attn_implementation == "sdpa"


def test_attention_implementation_and_origin_come_along(tmp_path):
    original = build_tiny(BY_NAME["BertModel"], attn_implementation="eager")
    zoo = from_official(original)
    assert zoo.config._attn_implementation == to_official(zoo).config._attn_implementation == "eager"
    assert from_official(original, attn_implementation="sdpa").config._attn_implementation == "sdpa"
    original.save_pretrained(tmp_path)
    zoo = from_official(tmp_path)
    assert zoo.config.name_or_path == str(tmp_path) and not zoo.name_or_path  # it lies nowhere yet
    assert to_official(zoo).config.name_or_path == str(tmp_path)
