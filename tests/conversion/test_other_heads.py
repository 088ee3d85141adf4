"""A checkpoint as a class that it was not saved from: what both have is taken over, the rest starts at random, and the
log names what is new and what was left out."""

import pytest
import torch
import transformers

import tfm_zoo
from tests.conversion.comparison import assert_same_model
from tests.official_models import BY_NAME, build_tiny
from tests.precision import assert_same, in_double
from tfm_zoo import TfmEncoderDecoderEncoder, TfmEncoderDecoderForConditionalGeneration, TfmEncoderDecoderModel
from tfm_zoo.converters import ConversionError, from_official, to_official

IDS = torch.tensor([[5, 6, 7, 8, 9, 2], [9, 8, 7, 6, 5, 2]])
BATCH = {"input_ids": IDS, "decoder_input_ids": IDS[:, :4], "use_cache": False}
ALL_FOUR = [f"classifier.{layer}.{kind}" for layer in ("dense", "out_proj") for kind in ("weight", "bias")]
THEIRS = [name.replace("classifier", "classification_head") for name in ALL_FOUR]


@pytest.mark.parametrize(
    ("name", "head", "fresh", "left_out"),
    [
        ("RobertaForMaskedLM", "TfmBertForSequenceClassification", ALL_FOUR, ["lm_head.dense"]),
        ("LlamaForCausalLM", "TfmGPTForSequenceClassification", ["score.weight"], ["lm_head.weight"]),
        ("LlamaModel", "TfmGPTForCausalLM", ["lm_head.weight"], []),
        ("GPT2Model", "TfmGPTForCausalLM", [], []),  # a tied head comes with the embeddings
        ("MarianModel", "TfmEncoderDecoderForConditionalGeneration", [], []),
        ("BartModel", "TfmEncoderDecoderForConditionalGeneration", [], []),
        ("BartForConditionalGeneration", "TfmEncoderDecoderForSequenceClassification", THEIRS, ["final_logits_bias"]),
        ("BertForSequenceClassification", "TfmBertModel", [], ["classifier.bias", "classifier.weight"]),
        ("DistilBertModel", "TfmBertForNextSentencePrediction", ["model.pooler.dense.weight"], []),
        ("OpenAIGPTModel", "TfmGPTForTokenClassification", ["score.weight", "score.bias"], []),
    ],
)
def test_another_head(name, head, fresh, left_out, tmp_path, caplog):
    original = build_tiny(BY_NAME[name])
    original.save_pretrained(tmp_path)
    model = from_official(tmp_path, getattr(tfm_zoo, head), num_labels=3)
    made = [message for message in caplog.messages if "new weights were made" in message]
    dropped = [message for message in caplog.messages if "left out" in message]
    for names, messages in ((fresh, made), (left_out, dropped)):
        assert len(messages) == bool(names) and all(each in messages[0] for each in names)
    assert not [message for message in made if "model.layers" in message]
    # what both have, and what starts at random as the class itself starts
    base, expected = model.base_model, from_official(original).base_model
    same = base.state_dict().keys() & expected.state_dict().keys()
    assert len(same) > 10 and all(torch.equal(base.state_dict()[each], expected.state_dict()[each]) for each in same)
    for each in fresh:
        tensor = model.state_dict()[each]
        assert not tensor.any() if each.endswith("bias") else tensor.std().item() == pytest.approx(0.02, rel=0.5)


def test_tensors_of_further_heads_are_used(tmp_path):
    """bert-base-uncased says BertForMaskedLM, and holds the pooler and the next-sentence head too."""
    original = build_tiny(BY_NAME["BertForPreTraining"])
    original.save_pretrained(tmp_path)
    file = tmp_path / "config.json"
    file.write_text(file.read_text().replace("BertForPreTraining", "BertForMaskedLM"))
    assert type(from_official(tmp_path)) is tfm_zoo.TfmBertForMaskedLM
    model = from_official(tmp_path, tfm_zoo.TfmBertForPreTraining)
    assert torch.equal(model(IDS).seq_relationship_logits, original(IDS).seq_relationship_logits)
    assert torch.equal(
        from_official(tmp_path, tfm_zoo.TfmBertModel)(IDS).pooler_output, original.bert(IDS).pooler_output
    )
    model = from_official(tmp_path, tfm_zoo.TfmBertForSequenceClassification)
    assert torch.equal(model.classifier.dense.weight, original.bert.pooler.dense.weight)


LABELS = {"id2label": {0: "no", 1: "yes"}, "label2id": {"no": 0, "yes": 1}}
FIVE = {"id2label": {i: f"L{i}" for i in range(5)}}


@pytest.mark.parametrize(
    ("name", "head", "overrides", "labels"),
    [
        ("BertForMaskedLM", "TfmBertForSequenceClassification", {"num_labels": 2}, ["no", "yes"]),
        ("BertForMaskedLM", "TfmBertForSequenceClassification", {"num_labels": 3}, [f"LABEL_{i}" for i in range(3)]),
        ("BertForSequenceClassification", "TfmBertForTokenClassification", FIVE, [f"L{i}" for i in range(5)]),
    ],
)
def test_labels(name, head, overrides, labels):
    """They keep their names, unless others are given; a classifier of another head is replaced."""
    config = from_official(build_tiny(BY_NAME[name], labels=2, **LABELS), getattr(tfm_zoo, head), **overrides).config
    assert list(config.id2label.values()) == list(config.label2id) == labels
    assert list(config.label2id.values()) == list(range(len(labels)))


@pytest.mark.parametrize(
    ("name", "head", "overrides", "message"),
    [
        ("BertForSequenceClassification", None, {"num_labels": 5}, r"classifier\.weight of shape \(3, 32\).* \(5"),
        ("BertForSequenceClassification", None, FIVE, r"classifier\.weight of shape \(3, 32\), where .* \(5, 32\)"),
        ("BertForMaskedLM", None, {"mlp_type": "gated"}, "gate_proj"),
        ("BertForMaskedLM", None, {"position_embedding_type": "rotary"}, r"unexpected: .*position_embeddings"),
        ("BertModel", "TfmGPTForCausalLM", {}, "TfmGPTForCausalLM is of another family"),
        ("GPT2LMHeadModel", "TfmBertForMaskedLM", {}, "TfmBertForMaskedLM is of another family"),
    ],
)
def test_what_does_not_fit_is_refused(name, head, overrides, message):
    with pytest.raises(ConversionError, match=message):
        from_official(build_tiny(BY_NAME[name]), head and getattr(tfm_zoo, head), **overrides)


@pytest.mark.parametrize("name", ["BartForCausalLM", "MarianForCausalLM"])
def test_official_classes_that_the_zoo_has_not(name):
    config = build_tiny(BY_NAME["MarianModel" if name.startswith("Marian") else "BartModel"]).config
    with pytest.raises(ConversionError, match="is_decoder=True"):
        from_official(getattr(transformers, name)(config))


@pytest.mark.parametrize(
    ("overrides", "rate"),
    [
        ({}, 0.1),
        ({"hidden_dropout": 0.3}, 0.3),
        ({"classifier_dropout": 0.2}, 0.2),
        ({"hidden_dropout": 0.3, "pooler_dropout": 0.0}, 0.0),
    ],
    ids=str,
)
def test_overrides_reach_the_model(overrides, rate):
    """RoBERTa's classifier drops what its dense layer reads at the rate that the other dropouts have."""
    original = build_tiny(BY_NAME["RobertaForSequenceClassification"], hidden_dropout_prob=0.1)
    model = from_official(original, skip_padding=False, **overrides)
    assert model.classifier.dropout.p == rate
    assert model.model.layers[0].mlp_dropout.p == overrides.get("hidden_dropout", 0.1)
    assert not model.config.skip_padding


@pytest.mark.parametrize(
    ("name", "official"),
    [
        *((name, None) for name in ("MarianMTModel", "MBartForConditionalGeneration", "FSMTForConditionalGeneration")),
        *(("BartModel", None), ("T5ForConditionalGeneration", "T5EncoderModel"), ("UMT5Model", "UMT5EncoderModel")),
    ],
)
@in_double()
def test_the_encoder_alone(name, official, tmp_path, caplog):
    """T5's has a class of its own on both sides."""
    original = build_tiny(BY_NAME[name])
    original.save_pretrained(tmp_path)
    for source in (original, tmp_path):
        zoo = from_official(source, TfmEncoderDecoderEncoder)
        assert_same(zoo(IDS).last_hidden_state, original.base_model.encoder(IDS, torch.ones_like(IDS))[0])
        assert all(key.startswith("encoder.") for key in zoo.state_dict())
    assert not caplog.text
    if official:
        assert_same_model(to_official(zoo), getattr(transformers, official).from_pretrained(tmp_path))
    else:
        with pytest.raises(ConversionError, match="TfmEncoderDecoderEncoder has no counterpart"):
            to_official(zoo)


@in_double()
def test_answers_from_an_encoded_source():
    original = build_tiny(BY_NAME["T5ForQuestionAnswering"])
    batch = {"encoder_outputs": (torch.randn(*IDS.shape, original.config.d_model),), "decoder_input_ids": IDS}
    places = dict.fromkeys(("start_positions", "end_positions"), torch.ones(len(IDS), dtype=torch.long))
    made, expected = (model(**batch, **places) for model in (from_official(original), original))
    assert_same(made.start_logits, expected.start_logits)
    assert_same(made.loss, expected.loss)


@in_double()
def test_bare_fsmt_gives_logits():
    """Its official class holds the projection; without one, the zoo's model has no way back."""
    original = build_tiny(BY_NAME["FSMTForConditionalGeneration"])
    zoo = from_official(original.model)
    assert type(zoo) is TfmEncoderDecoderForConditionalGeneration
    assert_same(zoo(**BATCH).logits, original.model(**BATCH).last_hidden_state)
    bare = from_official(original, TfmEncoderDecoderModel)
    assert bare(**BATCH).last_hidden_state.shape == (2, 4, 32)
    with pytest.raises(ConversionError, match="TfmEncoderDecoderModel has no counterpart among the classes of FSMT"):
        to_official(bare)
