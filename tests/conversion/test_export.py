"""Zoo models that never were official: exported where a native class can express them, refused by name where not."""

import logging

import pytest
import torch
import transformers
from transformers import GenerationConfig

import tfm_zoo
from tests.official_models import BY_NAME, build_tiny
from tests.precision import assert_same, in_double
from tfm_zoo import TfmBertConfig, TfmEncoderDecoderConfig, TfmGPTConfig, converters, named_config
from tfm_zoo.converters import ConversionError, choosing, from_official, to_official

SIZES = {
    "vocab_size": 99,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "max_position_embeddings": 40,
}
LIKE_DISTILBERT = {
    "type_vocab_size": 0,
    "attention_output_dropout": 0.0,
    "add_pooling_layer": False,
    "pooler_act": "relu",
}

LIKE_LLAMA = {
    "norm_type": "rmsnorm",
    "position_embedding_type": "rotary",
    "mlp_type": "gated",
    "hidden_act": "silu",
    "hidden_dropout": 0.0,
    "attention_bias": False,
    "mlp_bias": False,
}
PARTIAL = {"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 0.5}

LIKE_PHI = {
    "position_embedding_type": "rotary",
    "use_parallel_residual": True,
    "num_ln_in_parallel_attn": 1,
    "lm_head_bias": True,
}
LIKE_OLMO3 = LIKE_LLAMA | {
    "norm_position": "output",
    "qk_norm": "whole",
    "sliding_window": 3,
    "layer_types": ["sliding_attention", "full_attention"],
}
LIKE_GEMMA3 = LIKE_OLMO3 | {
    "norm_position": "both",
    "norm_type": "zero_centered_rmsnorm",
    "qk_norm": "head",
    "hidden_act": "gelu_pytorch_tanh",
    "scale_embedding": True,
    "round_embedding_scale": True,
    "attention_scale": 7**-0.5,
}

LIKE_MARIAN = {"sinusoid_type": "halves"}
LIKE_BART = {"position_embedding_type": "learned", "position_offset": 2, "embedding_norm": True}
LIKE_MBART = LIKE_BART | {"norm_position": "pre", "start_with_last_token": True}
LIKE_BLENDERBOT = {"norm_position": "pre", "position_offset": 0, "embedding_norm": False}
LIKE_FSMT = {"sinusoid_type": "tensor2tensor", "position_ids_from_padding": True, "start_with_last_token": True}


def make_decoder(head: str = "ForCausalLM", **config):
    torch.manual_seed(0)
    special = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
    return getattr(tfm_zoo, f"TfmGPT{head}")(TfmGPTConfig(**(SIZES | special | config))).eval()


def make_encoder_decoder(head: str = "ForConditionalGeneration", **config):
    torch.manual_seed(0)
    return getattr(tfm_zoo, f"TfmEncoderDecoder{head}")(TfmEncoderDecoderConfig(**(SIZES | config))).eval()


def make(head: str = "ForMaskedLM", **config):
    torch.manual_seed(0)
    return getattr(tfm_zoo, f"TfmBert{head}")(TfmBertConfig(**(SIZES | config))).eval()


@pytest.mark.parametrize(
    ("head", "config", "native"),
    [
        ("ForMaskedLM", {}, "BertForMaskedLM"),
        ("ForPreTraining", {"hidden_act": "gelu_new", "norm_eps": 1e-5}, "BertForPreTraining"),
        ("ForQuestionAnswering", {"pooler_act": "relu", "lm_head_act": "silu"}, "BertForQuestionAnswering"),
        ("ForMaskedLM", {"position_ids_from_padding": True, "pad_token_id": 1}, "RobertaForMaskedLM"),
        ("ForMaskedLM", LIKE_DISTILBERT, "DistilBertForMaskedLM"),
        ("ForSequenceClassification", LIKE_DISTILBERT, "DistilBertForSequenceClassification"),
        ("Model", LIKE_DISTILBERT, "DistilBertModel"),
        ("ForMaskedLM", {"embedding_size": 8}, "ElectraForMaskedLM"),
        (
            "ForSequenceClassification",
            {"position_embedding_type": "rotary"},
            "JinaEmbeddingsV3ForSequenceClassification",
        ),
    ],
)
@in_double()
def test_first_architecture_that_can_express_it(head, config, native):
    zoo = make(head, **config)
    official = to_official(zoo)
    assert type(official).__name__ == native
    ids = torch.tensor([[5, 6, 7, 8]])
    for expected, value in zip(zoo(ids).values(), official(ids).values(), strict=True):
        assert_same(expected, value)


@pytest.mark.parametrize(
    "config",
    [
        {"norm_position": "output"},
        {"final_norm": True},
        {"embedding_norm": False},
        {"norm_type": "rmsnorm"},
        {"mlp_type": "gated"},
        {"position_embedding_type": "none"},
        {"position_embedding_type": "sinusoidal"},
        {"num_key_value_heads": 2},
        {"head_dim": 16},
        {"sliding_window": 3},
        {"attention_bias": False},
        {"mlp_bias": False},
        {"mlp_output_bias": False},
        {"lm_head_act": "relu"},
        {"lm_head_transform": False},
        {"lm_head_bias": False},
    ],
    ids=str,
)
def test_what_no_native_class_can_express_is_named(config):
    with pytest.raises(ConversionError) as caught:
        to_official(make(**config))
    for name, value in config.items():
        assert f"{name}={value!r}" in str(caught.value)


def test_fields_of_a_head_matter_to_that_head():
    for pooling in ("mean", "attention"):
        with pytest.raises(ConversionError, match=f"No official class .* classifier_pooling='{pooling}'"):
            to_official(make("ForSequenceClassification", classifier_pooling=pooling))
    to_official(make("ForTokenClassification", classifier_pooling="mean"))
    with pytest.raises(ConversionError, match="type_vocab_size=0"):
        to_official(make("ForNextSentencePrediction", type_vocab_size=0))


def test_changed_after_conversion():
    """It goes back to where it came from, or nowhere."""
    zoo = from_official(build_tiny(BY_NAME["RobertaForTokenClassification"]), sliding_window=4)
    with pytest.raises(ConversionError, match=r"RobertaForTokenClassification.*sliding_window=4"):
        to_official(zoo)


def test_a_dropout_that_the_table_refuses():
    zoo = from_official(build_tiny(BY_NAME["FalconModel"]), hidden_dropout=0.3)
    with pytest.raises(ConversionError) as caught:
        to_official(zoo)
    lacks = "FalconModel, the nearest, lacks hidden_dropout=0.3 (it has 0.0)."
    assert str(caught.value) == f"No official class can express this model: {lacks}"


def test_head_that_the_architecture_has_not():
    zoo = from_official(build_tiny(BY_NAME["RobertaModel"]), tfm_zoo.TfmBertForNextSentencePrediction)
    with pytest.raises(ConversionError, match="TfmBertForNextSentencePrediction has no counterpart"):
        to_official(zoo)


@in_double()
def test_dropout_that_no_native_class_has_is_reported(caplog):
    """It changes nothing of what the model computes. (Of the other classes that were tried, nothing is said.)"""
    zoo = make(activation_dropout=0.2, vocab_size=97)  # (a size of its own: transformers warns once of each)
    logger = logging.getLogger("transformers")
    logger.addHandler(caplog.handler)
    try:
        official = to_official(zoo)
    finally:
        logger.removeHandler(caplog.handler)
    assert "activation_dropout=0.2" in caplog.text and "token_id" not in caplog.text
    ids = torch.tensor([[5, 6, 7, 8]])
    assert_same(official(ids).logits, zoo(ids).logits)


@in_double()
def test_another_head_after_saving(tmp_path):
    """A checkpoint converted as a language model and fine-tuned as a classifier goes back as a classifier."""
    for name in ("RobertaForMaskedLM", "DistilBertForMaskedLM", "BertForMaskedLM"):
        from_official(build_tiny(BY_NAME[name], dropout=True)).save_pretrained(tmp_path / name)
        model = tfm_zoo.TfmBertForSequenceClassification.from_pretrained(tmp_path / name, num_labels=4)
        official = to_official(model)
        assert type(official).__name__ == name.replace("MaskedLM", "SequenceClassification")
        ids = torch.tensor([[5, 6, 7, 8]])
        assert_same(official(ids).logits, model(ids).logits)


@pytest.mark.parametrize("like", [{}, LIKE_DISTILBERT], ids=["BERT", "DistilBERT"])
@in_double()
def test_question_answering_does_not_count_labels(like):
    """A native class for it has as many scores a token as it has labels, and works with two only."""
    zoo = from_official(to_official(make("ForMaskedLM", **like)), tfm_zoo.TfmBertForQuestionAnswering)
    zoo.config.id2label = {0: "no", 1: "yes", 2: "perhaps"}
    zoo.config.label2id = {label: id for id, label in zoo.config.id2label.items()}
    official = to_official(zoo)
    assert official.config.num_labels == len(official.config.label2id) == official.qa_outputs.out_features == 2
    ids = torch.tensor([[5, 6, 7, 8]])
    assert_same(official(ids).end_logits, zoo(ids).end_logits)


def test_any_architecture_of_the_list_is_exported_to(monkeypatch):
    """But for `nn.TransformerEncoder`, wherever that stands."""
    backwards = dict(reversed(converters.ARCHITECTURES.items()))
    monkeypatch.setattr(choosing, "ARCHITECTURES", backwards)
    assert type(to_official(make("ForPreTraining"))).__name__ == "ErnieForPreTraining"
    assert type(to_official(make("Model", **LIKE_DISTILBERT))).__name__ == "DistilBertModel"


def test_sentence_classifier_of_one_label():
    original = build_tiny(BY_NAME["DistilBertForSequenceClassification"], labels=1)
    assert to_official(from_official(original)).classifier.out_features == 1


@pytest.mark.parametrize(
    ("head", "config", "native"),
    [
        ("ForCausalLM", {}, "GPT2LMHeadModel"),
        ("Model", {"hidden_act": "relu", "embedding_dropout": 0.3}, "GPT2Model"),
        ("ForTokenClassification", {"classifier_dropout": 0.3}, "GPT2ForTokenClassification"),
        ("ForQuestionAnswering", {"token_types_as_tokens": True}, "GPT2ForQuestionAnswering"),
        ("ForCausalLM", {"norm_position": "post", "intermediate_size": 128}, "OpenAIGPTLMHeadModel"),
        (
            "ForSequenceClassification",
            {"norm_position": "post", "intermediate_size": 128, "hidden_act": "silu"},
            "OpenAIGPTForSequenceClassification",
        ),
        ("ForCausalLM", LIKE_LLAMA, "LlamaForCausalLM"),
        ("ForQuestionAnswering", LIKE_LLAMA | {"num_key_value_heads": 2}, "LlamaForQuestionAnswering"),
        ("ForTokenClassification", LIKE_LLAMA | {"attention_bias": True}, "LlamaForTokenClassification"),
        ("Model", LIKE_LLAMA | {"head_dim": 12, "mlp_bias": True}, "LlamaModel"),
        (
            "Model",
            LIKE_LLAMA | {"rope_parameters": {"rope_type": "linear", "rope_theta": 50.0, "factor": 4.0}},
            "LlamaModel",
        ),
        ("ForCausalLM", LIKE_LLAMA | {"sliding_window": 3}, "MistralForCausalLM"),
        ("ForCausalLM", LIKE_LLAMA | {"rope_parameters": PARTIAL}, "Phi3ForCausalLM"),
        ("ForCausalLM", {"position_embedding_type": "rotary"}, "Starcoder2ForCausalLM"),
        ("ForCausalLM", LIKE_LLAMA | {"sliding_window": 3, "mlp_bias": True}, "SmolLM3ForCausalLM"),
        ("ForCausalLM", LIKE_PHI, "PhiForCausalLM"),
        ("ForCausalLM", LIKE_OLMO3, "Olmo3ForCausalLM"),
        ("ForCausalLM", LIKE_GEMMA3, "Gemma3ForCausalLM"),
        ("Model", LIKE_LLAMA | {"hidden_size": 34, "head_dim": 8}, "MistralModel"),
        ("ForCausalLM", LIKE_LLAMA | {"attention_bias": True, "attention_output_bias": False}, "Qwen2ForCausalLM"),
        (
            "ForSequenceClassification",
            LIKE_LLAMA
            | {"attention_bias": True, "attention_output_bias": False, "sliding_window": 3}
            | {"layer_types": ["sliding_attention", "full_attention"]},
            "Qwen2ForSequenceClassification",
        ),
    ],
)
@in_double()
def test_first_architecture_that_can_express_a_decoder(head, config, native, caplog):
    zoo = make_decoder(head, **config)
    official = to_official(zoo)
    assert type(official).__name__ == native
    ids = torch.tensor([[5, 6, 7, 8, 9, 10]])
    expected, value = (next(iter(model(ids).values())) for model in (zoo, official))
    assert_same(expected, value)
    again = from_official(official)
    for name, tensor in zoo.state_dict().items():
        assert torch.equal(again.state_dict()[name], tensor), name


@pytest.mark.parametrize(
    "config",
    [
        {"norm_type": "rmsnorm"},
        {"position_embedding_type": "sinusoidal"},
        {"mlp_type": "gated"},
        {"num_key_value_heads": 2},
        {"head_dim": 16},
        {"sliding_window": 3},
        {"attention_bias": False},
        {"mlp_bias": False},
        {"final_norm": False},
        {"norm_position": "post", "intermediate_size": 128, "hidden_act": "gelu"},
        LIKE_LLAMA | {"norm_type": "layernorm", "mlp_bias": True},
        LIKE_LLAMA | {"sliding_window": 3, "mlp_bias": True, "qk_norm": "head"},
        LIKE_LLAMA | {"rope_parameters": PARTIAL, "mlp_bias": True},
    ],
    ids=str,
)
def test_what_no_native_decoder_can_express_is_named(config):
    zoo = make_decoder(**config)
    with pytest.raises(ConversionError, match="No official class can express this model") as caught:
        to_official(zoo)
    assert any(f"{name}={value!r}" in str(caught.value) for name, value in config.items())


def test_the_nearest_native_decoder_is_one_that_was_compared():
    """LLaMA refuses the rotary parameters, so that what else it lacks is not known."""
    config = LIKE_LLAMA | {"rope_parameters": PARTIAL, "mlp_bias": True, "qk_norm": "whole"}
    with pytest.raises(ConversionError, match=r"the nearest, lacks .*mlp_bias=True") as caught:
        to_official(make_decoder(**config))
    assert "qk_norm='whole'" in str(caught.value)


def test_what_only_training_shows_is_reported(caplog):
    official = to_official(make_decoder(**LIKE_LLAMA | {"hidden_dropout": 0.1, "train_padding_embedding": True}))
    assert type(official).__name__ == "LlamaForCausalLM"
    assert "hidden_dropout=0.1" in caplog.text
    assert "train_padding_embedding=True" in caplog.text


@pytest.mark.parametrize(
    ("name", "native"),
    [
        *(("gpt2", "GPT2LMHeadModel"), ("openai-gpt", "OpenAIGPTLMHeadModel"), ("smollm-135m", "LlamaForCausalLM")),
        ("opus-mt", "MarianMTModel"),
        ("bart-base", "BartForConditionalGeneration"),
    ],
)
def test_named_configurations_are_the_published_ones(name, native, caplog):
    """As native classes have them: nothing is lost, not even in training."""
    config = named_config(name, num_hidden_layers=1, vocab_size=60000, hidden_size=72, intermediate_size=288)
    head = "AutoModelForSeq2SeqLM" if config.is_encoder_decoder else "AutoModelForCausalLM"
    official = to_official(getattr(transformers, head).from_config(config))
    assert type(official).__name__ == native
    assert not caplog.text


LIKE_T5 = {
    "position_embedding_type": "none",
    "relative_attention_num_buckets": 8,
    "relative_attention_max_distance": 20,
    "attention_scale": 1.0,
    "norm_position": "pre",
    "norm_type": "rmsnorm",
    "attention_bias": False,
    "mlp_bias": False,
    "scale_embedding": False,
    "train_padding_embedding": True,
    **dict.fromkeys(("hidden_dropout", "attention_dropout", "activation_dropout", "final_dropout"), 0.1),
}


@pytest.mark.parametrize(
    ("head", "config", "native"),
    [
        ("ForConditionalGeneration", LIKE_MARIAN, "MarianMTModel"),
        ("ForConditionalGeneration", LIKE_MARIAN | {"decoder_vocab_size": 80, "decoder_layers": 1}, "MarianMTModel"),
        ("ForConditionalGeneration", LIKE_MARIAN | {"final_logits_bias": True}, "MarianMTModel"),
        ("ForConditionalGeneration", LIKE_MARIAN | {"lm_head_bias": True}, "MarianMTModel"),
        ("Model", LIKE_MARIAN | {"share_encoder_decoder_embeddings": False}, "MarianModel"),
        ("ForConditionalGeneration", LIKE_BART, "BartForConditionalGeneration"),
        ("ForSequenceClassification", LIKE_BART | {"classifier_dropout": 0.3}, "BartForSequenceClassification"),
        (
            "ForConditionalGeneration",
            LIKE_BART | {"tie_word_embeddings": False, "share_encoder_decoder_embeddings": False},
            "BartForConditionalGeneration",
        ),
        ("ForConditionalGeneration", LIKE_MBART, "MBartForConditionalGeneration"),
        ("ForSequenceClassification", LIKE_MBART, "MBartForSequenceClassification"),
        ("ForConditionalGeneration", LIKE_FSMT, "FSMTForConditionalGeneration"),
        ("ForConditionalGeneration", LIKE_MARIAN | {"norm_position": "pre"}, "PegasusForConditionalGeneration"),
        ("Model", LIKE_BART | LIKE_BLENDERBOT, "BlenderbotModel"),
        ("ForConditionalGeneration", LIKE_T5, "T5ForConditionalGeneration"),
        (
            "Model",
            LIKE_T5 | {"relative_attention_per_layer": True, "mlp_type": "gated", "hidden_act": "silu"},
            "UMT5Model",
        ),
        (
            "ForConditionalGeneration",
            LIKE_FSMT | {"tie_word_embeddings": False, "decoder_vocab_size": 80},
            "FSMTForConditionalGeneration",
        ),
    ],
)
@in_double()
def test_first_architecture_that_can_express_an_encoder_decoder(head, config, native, caplog):
    zoo = make_encoder_decoder(head, **config)
    zoo.generation_config = GenerationConfig(num_beams=7, forced_eos_token_id=2)
    official = to_official(zoo)
    assert type(official).__name__ == native
    assert not caplog.text
    ids = torch.tensor([[5, 6, 7, 8, 9, 2]])
    batch = {"input_ids": ids, "use_cache": False}
    if head != "ForSequenceClassification":
        batch["decoder_input_ids"] = ids[:, :3]
    expected, value = (next(iter(model(**batch).values())) for model in (zoo, official))
    assert_same(expected, value)
    if official.can_generate():
        assert official.generation_config.to_dict() == zoo.generation_config.to_dict()
    again = from_official(official).state_dict()
    if head == "ForConditionalGeneration" and zoo.lm_head.bias is None:
        assert not again.pop("lm_head.bias", torch.zeros(1)).any()
    assert again.keys() == zoo.state_dict().keys()
    for name, tensor in zoo.state_dict().items():
        assert torch.equal(again[name], tensor), name


@pytest.mark.parametrize(
    ("config", "named"),
    [
        ({}, ("sinusoid_type='interleaved'",)),
        (LIKE_MARIAN | {"norm_position": "output"}, ("norm_position='output'", "final_norm=True")),
        (LIKE_MARIAN | {"norm_type": "rmsnorm"}, ("norm_type='rmsnorm'",)),
        (LIKE_MARIAN | {"mlp_type": "gated"}, ("mlp_type='gated'",)),
        (LIKE_MARIAN | {"sliding_window": 3}, ("sliding_window=3",)),
        (LIKE_MARIAN | {"norm_eps": 1e-6}, ("norm_eps=1e-06",)),
        (LIKE_MARIAN | {"num_key_value_heads": 2}, ("num_key_value_heads=2",)),
        (LIKE_MARIAN | {"tie_word_embeddings": False}, ("share_encoder_decoder_embeddings=True",)),
        (LIKE_BART | {"position_offset": 1}, ("position_offset=1",)),
        (LIKE_BART | {"decoder_vocab_size": 80}, ("decoder_vocab_size=80",)),
        (LIKE_FSMT | {"final_logits_bias": True}, ("final_logits_bias=True",)),
    ],
    ids=str,
)
def test_what_no_native_encoder_decoder_can_express_is_named(config, named):
    with pytest.raises(ConversionError, match="No official class can express this model") as caught:
        to_official(make_encoder_decoder(**config))
    assert any(field in str(caught.value) for field in named)
