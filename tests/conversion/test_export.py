"""Zoo models that never were official: exported where an official class can express them, refused by name where not."""

import pytest
import torch
from transformers import GenerationConfig

import tfm_zoo
from tests.official_models import BY_NAME, SPECIAL_TOKENS, build_tiny
from tests.precision import assert_same, in_double
from tfm_zoo.converters import ConversionError, from_official, to_official

IDS = torch.tensor([[5, 6, 7, 8, 9, 2]])
SIZES = {"vocab_size": 99, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
SIZES |= {"intermediate_size": 48, "max_position_embeddings": 40} | SPECIAL_TOKENS
PARTIAL = {"rope_parameters": {"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 0.5}}
MLP_BIAS = {"mlp_bias": True, "mlp_output_bias": True}
APART = {"share_encoder_decoder_embeddings": False}
ROTARY = {"position_embedding_type": "rotary"}
#: keys without a bias, and a row for each distance
OF_DEBERTA_V1 = {"position_buckets": None, "key_bias": False, "share_att_key": False, "norm_rel_ebd": "none"}
MASKED, CAUSAL, LLAMA = "TfmBertForMaskedLM", "TfmGPTForCausalLM", "LlamaForCausalLM"
MARIAN, BART, FSMT = "MarianMTModel", "BartForConditionalGeneration", "FSMTForConditionalGeneration"
#: classes whose own axes make a model theirs
THEIR_OWN = (
    *("DistilBertForMaskedLM", "OpenAIGPTLMHeadModel", LLAMA, "MistralForCausalLM", "PhiForCausalLM", MARIAN, BART),
    *("Gemma3ForCausalLM", "Qwen2ForCausalLM", "MBartForConditionalGeneration", FSMT, "T5ForConditionalGeneration"),
)


def make(name: str, **fields):
    """A zoo model with the default axes of its class, or with those that this official class has."""
    if name.startswith("Tfm"):
        model_class = getattr(tfm_zoo, name)
        config = model_class.config_class(**SIZES | fields)
    else:
        model_class = BY_NAME[name].head.zoo
        like = from_official(build_tiny(BY_NAME[name])).config.to_dict()
        config = model_class.config_class.from_dict(like | {"official": None} | fields)
    torch.manual_seed(0)
    return model_class(config).eval()


@pytest.mark.parametrize(
    ("like", "fields", "official"),
    [
        (MASKED, {}, "BertForMaskedLM"),
        (MASKED, {"position_embedding_type": "none"}, "DebertaV2ForMaskedLM"),
        ("TfmBertForQuestionAnswering", {"pooler_act": "relu", "lm_head_act": "silu"}, "BertForQuestionAnswering"),
        (MASKED, {"position_ids_from_padding": True, "pad_token_id": 1}, "RobertaForMaskedLM"),
        (MASKED, {"embedding_size": 8}, "ElectraForMaskedLM"),
        ("TfmDebertaForMaskedLM", {"position_buckets": 8}, "DebertaV2ForMaskedLM"),
        ("TfmDebertaForMaskedLM", OF_DEBERTA_V1, "DebertaForMaskedLM"),
        ("TfmBertForTokenClassification", ROTARY, "JinaEmbeddingsV3ForTokenClassification"),
        (CAUSAL, {}, "GPT2LMHeadModel"),
        (CAUSAL, ROTARY, "Starcoder2ForCausalLM"),
        ("LlamaModel", {"head_dim": 12, "attention_scale": 12**-0.5} | MLP_BIAS, "LlamaModel"),
        (LLAMA, PARTIAL | {"attention_bias": False, "attention_output_bias": False}, "Phi3ForCausalLM"),
        ("MistralForCausalLM", MLP_BIAS, "SmolLM3ForCausalLM"),
        *((name, {}, name) for name in THEIR_OWN),
        (MARIAN, {"decoder_vocab_size": 80} | APART, MARIAN),
        (BART, APART | {"tie_word_embeddings": False, "decoder_layers": 1}, BART),
        (FSMT, {"decoder_vocab_size": 80}, FSMT),
    ],
)
@in_double()
def test_the_nearest_class_computes_the_same(like, fields, official, caplog):
    """And gives the same model back, with its settings of generation."""
    zoo = make(like, **fields)
    caplog.clear()
    if zoo.can_generate():
        zoo.generation_config = GenerationConfig(num_beams=7, forced_eos_token_id=2)
    made = to_official(zoo)
    assert type(made).__name__ == official and not (caplog.text and zoo.config.is_encoder_decoder)
    batch = {"input_ids": IDS}
    if zoo.config.is_encoder_decoder and "Classification" not in official:
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


OF_NO_ENCODER = {"norm_position": "output", "embedding_norm": False, "mlp_type": "gated", "lm_head_transform": False}
OF_NO_DECODER = {"norm_type": "rmsnorm", "position_embedding_type": "sinusoidal", "head_dim": 16, "sliding_window": 3}


@pytest.mark.parametrize(
    ("like", "fields"),
    [
        *((MASKED, {name: value}) for name, value in OF_NO_ENCODER.items()),
        ("TfmBertForSequenceClassification", {"classifier_pooling": "mean"}),
        ("TfmBertForNextSentencePrediction", {"type_vocab_size": 0}),
        *((CAUSAL, {name: value}) for name, value in OF_NO_DECODER.items()),
        ("MistralForCausalLM", {"mlp_bias": True, "qk_norm": "head"}),
        # LLaMA refuses the rotary parameters, so that what else it lacks is not known: another is the nearest.
        (LLAMA, PARTIAL | {"mlp_bias": True}),
        *(("MarianModel", fields) for fields in ({"sinusoid_type": "interleaved"}, {"norm_eps": 1e-6})),
        (MARIAN, {"tie_word_embeddings": False, "share_encoder_decoder_embeddings": True}),
        ("BartModel", {"decoder_vocab_size": 80} | APART),
        (FSMT, {"final_logits_bias": True}),
    ],
)
def test_what_no_official_class_can_express_is_named(like, fields):
    with pytest.raises(ConversionError, match="No official class can express this model") as caught:
        to_official(make(like, **fields))
    lacking = {name: value for name, value in fields.items() if name not in PARTIAL}
    assert any(f"{name}={value!r}" in str(caught.value) for name, value in lacking.items())


@pytest.mark.parametrize(
    ("name", "head", "overrides", "message"),
    [
        # What was changed after its conversion goes back to where it came from, or nowhere.
        ("RobertaForTokenClassification", None, {"sliding_window": 4}, "RobertaForTok.*sliding_window=4"),
        ("FalconModel", None, {"hidden_dropout": 0.3}, r"Near it: FalconModel, .*=0.3 \(it has 0.0\)\.$"),
        ("RobertaModel", "TfmBertForNextSentencePrediction", {}, "TfmBertForNextSentencePrediction has no counterpart"),
        ("CLIPTextModel", None, {"pooled_position": "last"}, "pooled_position='last'"),
        ("M2M100Model", None, {"pad_token_id": 98}, "M2M100Model cannot be made with this configuration: index 98"),
    ],
)
def test_a_converted_model_that_has_no_way_back(name, head, overrides, message):
    zoo = from_official(build_tiny(BY_NAME[name]), head and getattr(tfm_zoo, head), **overrides)
    with pytest.raises(ConversionError, match=message):
        to_official(zoo)


def test_what_neither_way_takes():
    original = build_tiny(BY_NAME["BertModel"])
    with pytest.raises(ConversionError, match="This BertModel is not a model of the zoo"):
        to_official(original)
    with pytest.raises(ConversionError, match=r"not the str 'folder'\. `tfm-zoo export folder OUT`.*from_pretr"):
        to_official("folder")
    with pytest.raises(ConversionError, match="model_class='TfmBertModel' should be a class of the zoo"):
        from_official(original, "TfmBertModel")


@in_double()
def test_what_only_training_shows_is_reported(caplog):
    """It changes nothing of what the model computes."""
    zoo = make(LLAMA, hidden_dropout=0.1, train_padding_embedding=True)
    official = to_official(zoo)
    assert "hidden_dropout=0.1" in caplog.text and "train_padding_embedding=True" in caplog.text
    assert_same(official(IDS).logits, zoo(IDS).logits)


@pytest.mark.parametrize("name", ["RobertaForMaskedLM", "DistilBertForMaskedLM"])
@in_double()
def test_another_head_after_saving(name, tmp_path):
    """A checkpoint converted as a language model and fine-tuned as a classifier goes back as a classifier."""
    from_official(build_tiny(BY_NAME[name], dropout=True)).save_pretrained(tmp_path)
    model = tfm_zoo.TfmBertForSequenceClassification.from_pretrained(tmp_path, num_labels=4)
    official = to_official(model)
    assert type(official).__name__ == name.replace("MaskedLM", "SequenceClassification")
    assert_same(official(IDS).logits, model(IDS).logits)


@in_double()
def test_question_answering_does_not_count_labels():
    """An official class for it has as many scores a token as it has labels, and works with two only."""
    zoo = make("TfmBertForQuestionAnswering", num_labels=3)
    official = to_official(zoo)
    assert official.config.num_labels == official.qa_outputs.out_features == 2
    assert_same(official(IDS).end_logits, zoo(IDS).end_logits)
