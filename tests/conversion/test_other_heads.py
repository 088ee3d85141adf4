"""A checkpoint as a class that it was not saved from: what both have is taken over, the rest starts at random."""

import pytest
import torch

import tfm_zoo
from tests.official_models import BY_NAME, build_tiny
from tfm_zoo.converters import ConversionError, from_official, to_official


def test_masked_lm_for_a_classifier(tmp_path, caplog):
    original = build_tiny(BY_NAME["RobertaForMaskedLM"])
    original.save_pretrained(tmp_path)
    model = from_official(tmp_path, tfm_zoo.TfmBertForSequenceClassification, num_labels=7)
    assert model.classifier.out_proj.weight.shape == (7, 32)
    expected = original.roberta.encoder.layer[2].output.dense.weight
    assert torch.equal(model.model.layers[2].mlp.down_proj.weight, expected)
    fresh, left_out = caplog.messages
    for name in ("dense.weight", "dense.bias", "out_proj.weight", "out_proj.bias"):
        assert f"classifier.{name}" in fresh
    assert "lm_head" not in fresh
    assert "left out what belongs to another head: " in left_out
    assert "lm_head.dense.weight" in left_out
    assert "roberta" not in left_out
    # as the class itself initialises it
    assert model.classifier.out_proj.weight.std().item() == pytest.approx(model.config.initializer_range, rel=0.3)
    assert not model.classifier.out_proj.bias.any()


def test_bare_model_from_a_head(caplog):
    original = build_tiny(BY_NAME["BertForSequenceClassification"])
    model = from_official(original, tfm_zoo.TfmBertModel)
    ids = torch.arange(5, 14)[None]
    assert torch.equal(model(ids).pooler_output, original.bert(ids).pooler_output)
    assert "new weights were made" not in caplog.text


def test_tensors_of_further_heads_are_used(tmp_path):
    """bert-base-uncased says BertForMaskedLM, and holds the pooler and the next-sentence head too."""
    original = build_tiny(BY_NAME["BertForPreTraining"])
    original.save_pretrained(tmp_path)
    file = tmp_path / "config.json"
    file.write_text(file.read_text().replace("BertForPreTraining", "BertForMaskedLM"))
    assert type(from_official(tmp_path)) is tfm_zoo.TfmBertForMaskedLM
    ids = torch.arange(5, 14)[None]
    model = from_official(tmp_path, tfm_zoo.TfmBertForPreTraining)
    assert torch.equal(model(ids).seq_relationship_logits, original(ids).seq_relationship_logits)
    model = from_official(tmp_path, tfm_zoo.TfmBertForSequenceClassification)
    assert torch.equal(model.classifier.dense.weight, original.bert.pooler.dense.weight)


def test_head_without_a_native_counterpart():
    original = build_tiny(BY_NAME["DistilBertModel"])
    model = from_official(original, tfm_zoo.TfmBertForNextSentencePrediction)
    assert model(torch.arange(5, 14)[None]).logits.shape == (1, 2)


def test_classifier_of_another_size_is_refused():
    original = build_tiny(BY_NAME["BertForSequenceClassification"])
    for override in ({"num_labels": 5}, {"id2label": {i: str(i) for i in range(5)}}):
        with pytest.raises(ConversionError, match=r"classifier\.weight of shape \(3, 32\), where .* \(5, 32\)"):
            from_official(original, **override)


def test_labels_keep_their_names():
    original = build_tiny(
        BY_NAME["BertForMaskedLM"], id2label={0: "no", 1: "yes"}, label2id={"no": 0, "yes": 1}, labels=2
    )
    for overrides, expected in (
        ({"num_labels": 2}, ["no", "yes"]),
        ({"num_labels": 3}, [f"LABEL_{i}" for i in range(3)]),
    ):
        config = from_official(original, tfm_zoo.TfmBertForSequenceClassification, **overrides).config
        assert list(config.id2label.values()) == list(config.label2id) == expected


def test_classifier_of_another_head_is_replaced(caplog):
    original = build_tiny(BY_NAME["BertForSequenceClassification"])
    model = from_official(original, tfm_zoo.TfmBertForTokenClassification, id2label={i: f"L{i}" for i in range(5)})
    assert model.classifier.out_features == model.config.num_labels == 5
    assert model.config.label2id == {f"L{i}": i for i in range(5)}
    assert "classifier.weight" in caplog.text


def test_overrides_reach_the_model():
    original = build_tiny(BY_NAME["BertForMaskedLM"], dropout=True)
    model = from_official(original, hidden_dropout=0.0, skip_padding=False, attention_dropout=0.5)
    assert model.config.hidden_dropout == model.model.layers[0].mlp_dropout.p == 0.0
    assert model.config.attention_dropout == 0.5
    assert not model.config.skip_padding


def test_a_body_that_does_not_fit_is_refused():
    original = build_tiny(BY_NAME["BertForMaskedLM"])
    with pytest.raises(ConversionError, match="gate_proj"):
        from_official(original, mlp_type="gated")
    with pytest.raises(ConversionError, match=r"unexpected: bert\.embeddings\.position_embeddings\.weight"):
        from_official(original, position_embedding_type="rotary")


def test_dropouts_follow_an_override():
    """RoBERTa's classifier drops what its dense layer reads at the rate that the other dropouts have."""
    original = build_tiny(BY_NAME["RobertaForSequenceClassification"], hidden_dropout_prob=0.1)
    assert from_official(original).classifier.dropout.p == 0.1
    assert from_official(original, hidden_dropout=0.3).classifier.dropout.p == 0.3
    assert from_official(original, classifier_dropout=0.2).classifier.dropout.p == 0.2
    assert from_official(original, hidden_dropout=0.3, pooler_dropout=0.0).classifier.dropout.p == 0.0


def test_language_model_for_a_classifier(tmp_path, caplog):
    original = build_tiny(BY_NAME["LlamaForCausalLM"])
    original.save_pretrained(tmp_path)
    model = from_official(tmp_path, tfm_zoo.TfmGPTForSequenceClassification, num_labels=7)
    assert model.score.weight.shape == (7, 32)
    assert torch.equal(model.model.layers[2].mlp.down_proj.weight, original.model.layers[2].mlp.down_proj.weight)
    fresh, left_out = caplog.messages
    assert fresh == f"{tmp_path} has no weights that fit score.weight: new weights were made for these, to be trained."
    assert left_out.endswith("left out what belongs to another head: lm_head.weight.")


def test_language_model_from_a_bare_one(tmp_path, caplog):
    """A tied head comes with the embeddings; one of its own has to be trained first."""
    for name, fresh in (("GPT2Model", False), ("LlamaModel", True)):
        build_tiny(BY_NAME[name]).save_pretrained(tmp_path / name)
        caplog.clear()
        model = from_official(tmp_path / name, tfm_zoo.TfmGPTForCausalLM)
        assert model.config.tie_word_embeddings != fresh
        assert ("lm_head.weight" in caplog.text) == fresh


def test_head_that_the_native_side_has_not():
    model = from_official(build_tiny(BY_NAME["OpenAIGPTModel"]), tfm_zoo.TfmGPTForTokenClassification)
    assert model(torch.arange(5, 14)[None]).logits.shape == (1, 9, 3)
    with pytest.raises(ConversionError, match="TfmGPTForTokenClassification has no counterpart"):
        to_official(model)


@pytest.mark.parametrize(
    ("name", "wanted"),
    [("BertModel", "TfmGPTForCausalLM"), ("GPT2LMHeadModel", "TfmBertForMaskedLM")],
)
def test_class_of_another_family_is_refused(name, wanted):
    with pytest.raises(ConversionError, match=f"to which {wanted} does not belong"):
        from_official(build_tiny(BY_NAME[name]), getattr(tfm_zoo, wanted))


def test_nothing_is_left_without_memory():
    """The model is made without, and in evaluation mode, as `from_pretrained` does it."""
    model = from_official(build_tiny(BY_NAME["BertModel"]), tfm_zoo.TfmBertForPreTraining)
    assert not model.training
    assert not any(tensor.is_meta for tensor in (*model.parameters(), *model.buffers()))
