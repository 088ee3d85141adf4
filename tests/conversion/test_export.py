"""Zoo models that never were official: exported where an official class can express them, refused by name where not."""

import logging

import pytest
import torch
import transformers
from transformers import GenerationConfig

import tfm_zoo
from tests.official_models import BY_NAME, build_tiny
from tests.precision import assert_same, in_double
from tfm_zoo import named_config
from tfm_zoo.converters import ConversionError, from_official, to_official

IDS = torch.tensor([[5, 6, 7, 8, 9, 2]])
SIZES = {"vocab_size": 99, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
SIZES |= {"intermediate_size": 48, "max_position_embeddings": 40}
SPECIAL = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}

LIKE_DISTILBERT = {"type_vocab_size": 0, "attention_output_dropout": 0.0, "add_pooling_layer": False}
LIKE_DISTILBERT |= {"pooler_act": "relu"}
LIKE_LLAMA = {"norm_type": "rmsnorm", "position_embedding_type": "rotary", "mlp_type": "gated", "hidden_act": "silu"}
LIKE_LLAMA |= {"hidden_dropout": 0.0, "attention_bias": False, "mlp_bias": False}
LIKE_QWEN2 = LIKE_LLAMA | {"attention_bias": True, "attention_output_bias": False}
LIKE_OPENAI = {"norm_position": "post", "intermediate_size": 128}
LIKE_PHI = {"position_embedding_type": "rotary", "use_parallel_residual": True, "num_ln_in_parallel_attn": 1}
LIKE_PHI |= {"lm_head_bias": True}
MIXED = {"sliding_window": 3, "layer_types": ["sliding_attention", "full_attention"]}
LIKE_OLMO3 = LIKE_LLAMA | MIXED | {"norm_position": "output", "qk_norm": "whole"}
LIKE_GEMMA3 = LIKE_LLAMA | MIXED | {"norm_position": "both", "norm_type": "zero_centered_rmsnorm", "qk_norm": "head"}
LIKE_GEMMA3 |= {"hidden_act": "gelu_pytorch_tanh", "scale_embedding": True, "round_embedding_scale": True}
LIKE_GEMMA3 |= {"attention_scale": 7**-0.5}
PARTIAL = {"rope_parameters": {"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 0.5}}
LINEAR = {"rope_parameters": {"rope_type": "linear", "rope_theta": 50.0, "factor": 4.0}}
LIKE_MARIAN = {"sinusoid_type": "halves"}
LIKE_BART = {"position_embedding_type": "learned", "position_offset": 2, "embedding_norm": True}
LIKE_MBART = LIKE_BART | {"norm_position": "pre", "start_with_last_token": True}
LIKE_BLENDERBOT = LIKE_BART | {"norm_position": "pre", "position_offset": 0, "embedding_norm": False}
LIKE_FSMT = {"sinusoid_type": "tensor2tensor", "position_ids_from_padding": True, "start_with_last_token": True}
LIKE_T5 = {"position_embedding_type": "none", "relative_attention_num_buckets": 8, "attention_scale": 1.0}
LIKE_T5 |= {"relative_attention_max_distance": 20, "norm_position": "pre", "norm_type": "rmsnorm"}
LIKE_T5 |= {"attention_bias": False, "mlp_bias": False, "scale_embedding": False, "train_padding_embedding": True}
LIKE_T5 |= dict.fromkeys(("hidden_dropout", "attention_dropout", "activation_dropout", "final_dropout"), 0.1)
LIKE_UMT5 = LIKE_T5 | {"relative_attention_per_layer": True, "mlp_type": "gated", "hidden_act": "silu"}
SEQ2SEQ = "EncoderDecoderForConditionalGeneration"
APART = {"share_encoder_decoder_embeddings": False}


def make(head: str, **fields):
    """A zoo model of the class `Tfm` + `head`."""
    torch.manual_seed(0)
    model_class = getattr(tfm_zoo, f"Tfm{head}")
    special = SPECIAL if head.startswith("GPT") else {}
    return model_class(model_class.config_class(**(SIZES | special | fields))).eval()


@pytest.mark.parametrize(
    ("head", "fields", "official"),
    [
        ("BertForMaskedLM", {}, "BertForMaskedLM"),
        ("BertForMaskedLM", {"position_embedding_type": "none"}, "DebertaV2ForMaskedLM"),
        ("BertForPreTraining", {"hidden_act": "gelu_new", "norm_eps": 1e-5}, "BertForPreTraining"),
        ("BertForQuestionAnswering", {"pooler_act": "relu", "lm_head_act": "silu"}, "BertForQuestionAnswering"),
        ("BertForMaskedLM", {"position_ids_from_padding": True, "pad_token_id": 1}, "RobertaForMaskedLM"),
        ("BertForMaskedLM", LIKE_DISTILBERT, "DistilBertForMaskedLM"),
        ("BertForMaskedLM", {"embedding_size": 8}, "ElectraForMaskedLM"),
        ("BertForTokenClassification", {"position_embedding_type": "rotary"}, "JinaEmbeddingsV3ForTokenClassification"),
        ("GPTForCausalLM", {}, "GPT2LMHeadModel"),
        ("GPTModel", {"hidden_act": "relu", "embedding_dropout": 0.3}, "GPT2Model"),
        ("GPTForCausalLM", LIKE_OPENAI, "OpenAIGPTLMHeadModel"),
        ("GPTForCausalLM", LIKE_LLAMA, "LlamaForCausalLM"),
        ("GPTModel", LIKE_LLAMA | {"head_dim": 12, "mlp_bias": True, "num_key_value_heads": 2}, "LlamaModel"),
        ("GPTModel", LIKE_LLAMA | LINEAR, "LlamaModel"),
        ("GPTForCausalLM", LIKE_LLAMA | {"sliding_window": 3}, "MistralForCausalLM"),
        ("GPTModel", LIKE_LLAMA | {"hidden_size": 34, "head_dim": 8}, "MistralModel"),
        ("GPTForCausalLM", LIKE_LLAMA | PARTIAL, "Phi3ForCausalLM"),
        ("GPTForCausalLM", {"position_embedding_type": "rotary"}, "Starcoder2ForCausalLM"),
        ("GPTForCausalLM", LIKE_LLAMA | {"sliding_window": 3, "mlp_bias": True}, "SmolLM3ForCausalLM"),
        ("GPTForCausalLM", LIKE_PHI, "PhiForCausalLM"),
        ("GPTForCausalLM", LIKE_OLMO3, "Olmo3ForCausalLM"),
        ("GPTForCausalLM", LIKE_GEMMA3, "Gemma3ForCausalLM"),
        ("GPTForCausalLM", LIKE_QWEN2, "Qwen2ForCausalLM"),
        (SEQ2SEQ, LIKE_MARIAN, "MarianMTModel"),
        (SEQ2SEQ, LIKE_MARIAN | {"decoder_vocab_size": 80}, "MarianMTModel"),
        (SEQ2SEQ, LIKE_MARIAN | {"final_logits_bias": True}, "MarianMTModel"),
        ("EncoderDecoderModel", LIKE_MARIAN | APART | {"decoder_layers": 1}, "MarianModel"),
        (SEQ2SEQ, LIKE_BART, "BartForConditionalGeneration"),
        ("EncoderDecoderForSequenceClassification", LIKE_BART, "BartForSequenceClassification"),
        (SEQ2SEQ, LIKE_BART | APART | {"tie_word_embeddings": False}, "BartForConditionalGeneration"),
        (SEQ2SEQ, LIKE_MBART, "MBartForConditionalGeneration"),
        (SEQ2SEQ, LIKE_MARIAN | {"norm_position": "pre"}, "PegasusForConditionalGeneration"),
        ("EncoderDecoderModel", LIKE_BLENDERBOT, "BlenderbotModel"),
        (SEQ2SEQ, LIKE_T5, "T5ForConditionalGeneration"),
        ("EncoderDecoderModel", LIKE_UMT5, "UMT5Model"),
        (SEQ2SEQ, LIKE_FSMT, "FSMTForConditionalGeneration"),
        (SEQ2SEQ, LIKE_FSMT | {"tie_word_embeddings": False, "decoder_vocab_size": 80}, "FSMTForConditionalGeneration"),
    ],
    ids=str,
)
@in_double()
def test_the_nearest_class_computes_the_same(head, fields, official, caplog):
    """And gives the same model back, with its settings of generation."""
    zoo = make(head, **fields)
    if zoo.can_generate():
        zoo.generation_config = GenerationConfig(num_beams=7, forced_eos_token_id=2)
    made = to_official(zoo)
    assert type(made).__name__ == official
    assert not (caplog.text and zoo.config.is_encoder_decoder)
    batch = {"input_ids": IDS}
    if zoo.config.is_encoder_decoder and "Classification" not in head:
        batch |= {"decoder_input_ids": IDS[:, :3], "use_cache": False}
    for expected, value in zip(zoo(**batch).values(), made(**batch).values(), strict=False):
        if isinstance(expected, torch.Tensor):
            assert_same(value, expected)
    if made.can_generate():
        assert made.generation_config.to_dict() == zoo.generation_config.to_dict()
    again, state = from_official(made).state_dict(), zoo.state_dict()
    assert not again.keys() - state.keys() or not again["lm_head.bias"].any()
    for name, tensor in state.items():
        assert torch.equal(again[name], tensor), name


@pytest.mark.parametrize(
    ("head", "like", "fields"),
    [
        *(
            ("BertForMaskedLM", {}, {name: value})
            for name, value in {
                **{"norm_position": "output", "embedding_norm": False, "mlp_type": "gated", "num_key_value_heads": 2},
                **{"attention_bias": False, "lm_head_transform": False},
            }.items()
        ),
        ("BertForSequenceClassification", {}, {"classifier_pooling": "mean"}),
        ("BertForNextSentencePrediction", {}, {"type_vocab_size": 0}),
        *(
            ("GPTForCausalLM", {}, {name: value})
            for name, value in {
                **{"norm_type": "rmsnorm", "position_embedding_type": "sinusoidal", "head_dim": 16},
                **{"sliding_window": 3, "mlp_bias": False, "final_norm": False},
            }.items()
        ),
        ("GPTForCausalLM", LIKE_OPENAI, {"hidden_act": "gelu"}),
        ("GPTForCausalLM", LIKE_LLAMA | {"norm_type": "layernorm", "mlp_bias": True}, {"mlp_type": "gated"}),
        ("GPTForCausalLM", LIKE_LLAMA | {"sliding_window": 3, "mlp_bias": True}, {"qk_norm": "head"}),
        # LLaMA refuses the rotary parameters, so that what else it lacks is not known: another is the nearest.
        ("GPTForCausalLM", LIKE_LLAMA | PARTIAL, {"mlp_bias": True}),
        ("GPTForCausalLM", LIKE_LLAMA | PARTIAL, {"mlp_bias": True, "qk_norm": "whole"}),
        ("EncoderDecoderModel", {}, {"sinusoid_type": "interleaved"}),
        ("EncoderDecoderModel", LIKE_MARIAN, {"norm_position": "output"}),
        ("EncoderDecoderModel", LIKE_MARIAN, {"norm_eps": 1e-6}),
        ("EncoderDecoderModel", LIKE_MARIAN, {"num_key_value_heads": 2}),
        (SEQ2SEQ, LIKE_MARIAN | {"tie_word_embeddings": False}, APART | {"share_encoder_decoder_embeddings": True}),
        ("EncoderDecoderModel", LIKE_BART, {"position_offset": 1}),
        ("EncoderDecoderModel", LIKE_BART, {"decoder_vocab_size": 80}),
        (SEQ2SEQ, LIKE_FSMT, {"final_logits_bias": True}),
    ],
    ids=str,
)
def test_what_no_official_class_can_express_is_named(head, like, fields):
    with pytest.raises(ConversionError, match="No official class can express this model") as caught:
        to_official(make(head, **like | fields))
    assert all(f"{name}={value!r}" in str(caught.value) for name, value in fields.items())


@pytest.mark.parametrize(
    ("name", "head", "overrides", "message"),
    [
        # What was changed after its conversion goes back to where it came from, or nowhere.
        ("RobertaForTokenClassification", None, {"sliding_window": 4}, "RobertaForTok.*sliding_window=4"),
        ("FalconModel", None, {"hidden_dropout": 0.3}, r"FalconModel, the nearest, lacks .*=0.3 \(it has 0.0\).$"),
        ("RobertaModel", "TfmBertForNextSentencePrediction", {}, "TfmBertForNextSentencePrediction has no counterpart"),
        ("OpenAIGPTModel", "TfmGPTForTokenClassification", {}, "TfmGPTForTokenClassification has no counterpart"),
        ("CLIPTextModel", None, {"pooled_position": "last"}, "pooled_position='last'"),
    ],
)
def test_a_converted_model_that_has_no_way_back(name, head, overrides, message):
    zoo = from_official(build_tiny(BY_NAME[name]), head and getattr(tfm_zoo, head), **overrides)
    with pytest.raises(ConversionError, match=message):
        to_official(zoo)


@pytest.mark.parametrize(
    ("head", "fields", "named"),
    [
        # a size of its own: transformers warns once of each
        ("BertForMaskedLM", {"vocab_size": 97}, {"activation_dropout": 0.2}),
        ("GPTForCausalLM", LIKE_LLAMA, {"hidden_dropout": 0.1, "train_padding_embedding": True}),
    ],
)
@in_double()
def test_what_only_training_shows_is_reported(head, fields, named, caplog):
    """It changes nothing of what the model computes. (Of the other classes that were tried, nothing is said.)"""
    zoo, logger = make(head, **fields | named), logging.getLogger("transformers")
    logger.addHandler(caplog.handler)
    try:
        official = to_official(zoo)
    finally:
        logger.removeHandler(caplog.handler)
    assert all(f"{name}={value}" in caplog.text for name, value in named.items()) and "token_id" not in caplog.text
    assert_same(official(IDS).logits, zoo(IDS).logits)


@pytest.mark.parametrize("name", ["RobertaForMaskedLM", "DistilBertForMaskedLM", "BertForMaskedLM"])
@in_double()
def test_another_head_after_saving(name, tmp_path):
    """A checkpoint converted as a language model and fine-tuned as a classifier goes back as a classifier."""
    from_official(build_tiny(BY_NAME[name], dropout=True)).save_pretrained(tmp_path)
    model = tfm_zoo.TfmBertForSequenceClassification.from_pretrained(tmp_path, num_labels=4)
    official = to_official(model)
    assert type(official).__name__ == name.replace("MaskedLM", "SequenceClassification")
    assert_same(official(IDS).logits, model(IDS).logits)


@pytest.mark.parametrize("like", [{}, LIKE_DISTILBERT], ids=["BERT", "DistilBERT"])
@in_double()
def test_question_answering_does_not_count_labels(like):
    """An official class for it has as many scores a token as it has labels, and works with two only."""
    zoo = from_official(to_official(make("BertForMaskedLM", **like)), tfm_zoo.TfmBertForQuestionAnswering)
    zoo.config.id2label = {0: "no", 1: "yes", 2: "perhaps"}
    zoo.config.label2id = {label: id for id, label in zoo.config.id2label.items()}
    official = to_official(zoo)
    assert official.config.num_labels == len(official.config.label2id) == official.qa_outputs.out_features == 2
    assert_same(official(IDS).end_logits, zoo(IDS).end_logits)


@pytest.mark.parametrize(
    ("name", "official"),
    [("openai-gpt", "OpenAIGPTLMHeadModel"), ("smollm-135m", "LlamaForCausalLM"), ("opus-mt", "MarianMTModel")],
)
def test_named_configurations_are_the_published_ones(name, official, caplog):
    """As official classes have them: nothing is lost, not even in training."""
    config = named_config(name, num_hidden_layers=1, vocab_size=60000, hidden_size=72, intermediate_size=288)
    head = "AutoModelForSeq2SeqLM" if config.is_encoder_decoder else "AutoModelForCausalLM"
    assert type(to_official(getattr(transformers, head).from_config(config))).__name__ == official
    assert not caplog.text
