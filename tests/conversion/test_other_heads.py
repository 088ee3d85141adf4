"""A checkpoint as a class that it was not saved from: what both have is taken over, the rest starts at random, and the
log names what is new and what was left out."""

import pytest
import torch
import transformers

import tfm_zoo
from tests.conversion.comparison import assert_same_model
from tests.hub.editing import CONFIG, edit, tensors, without
from tests.official_models import BY_NAME, build_tiny
from tests.precision import assert_same, in_double
from tfm_zoo import TfmEncoderDecoderEncoder, TfmTextTowerModel
from tfm_zoo.converters import ConversionError, from_official, to_official

BART, IDS = "BartForConditionalGeneration", torch.tensor([[5, 6, 7, 8, 9, 2], [9, 8, 7, 6, 5, 2]])
ALL_FOUR = [f"classifier.{layer}.{kind}" for layer in ("dense", "out_proj") for kind in ("weight", "bias")]
THEIRS = [name.replace("classifier", "classification_head") for name in ALL_FOUR]
POOLER, PAIRS = ([f"{name}.weight", f"{name}.bias"] for name in ("pooler.dense", "cls.seq_relationship"))


@pytest.mark.parametrize(
    ("name", "lacks", "head", "fresh", "left_out"),
    [
        ("RobertaForMaskedLM", [], "BertForSequenceClassification", ALL_FOUR, ["lm_head.dense"]),
        ("LlamaForCausalLM", [], "GPTForSequenceClassification", ["score.weight"], ["lm_head.weight"]),
        ("LlamaModel", [], "GPTForCausalLM", ["lm_head.weight"], []),
        ("GPT2Model", [], "GPTForCausalLM", [], []),  # a tied head comes with the embeddings
        (BART, [], "EncoderDecoderForSequenceClassification", THEIRS, ["final_logits_bias"]),
        ("DistilBertModel", [], "BertForNextSentencePrediction", ["model.pooler.dense.weight"], []),
        ("BertForMaskedLM", [], "BertModel", POOLER, ["cls.predictions"]),
        ("BertModel", POOLER, "BertModel", POOLER, []),
        ("BertForPreTraining", PAIRS[:1], "BertForMaskedLM", [], PAIRS[1:]),
    ],
)
def test_another_head(name, lacks, head, fresh, left_out, tmp_path, caplog):
    original = build_tiny(BY_NAME[name])
    original.save_pretrained(tmp_path)
    without(*lacks)(tmp_path)
    model = from_official(tmp_path, getattr(tfm_zoo, f"Tfm{head}"), num_labels=3)
    made = [message for message in caplog.messages if "new weights were made" in message]
    dropped = [message for message in caplog.messages if "left out" in message]
    for names, messages in ((fresh, made), (left_out, dropped)):
        assert len(messages) == bool(names) and all(each in messages[0] for each in names)
    assert not [message for message in made if "model.layers" in message]
    # what both have, and what starts at random as the class itself starts
    base, expected = model.base_model.state_dict(), from_official(original).base_model.state_dict()
    same = (base.keys() & expected.keys()) - set(fresh)
    assert len(same) > 10 and all(torch.equal(base[each], expected[each]) for each in same)
    for each in fresh:
        tensor = model.state_dict()[each]
        assert not tensor.any() if each.endswith("bias") else tensor.std().item() == pytest.approx(0.02, rel=0.5)


def test_messages_name_tensors_as_the_file_does(tmp_path, caplog):
    """Those that are left out, and those of another shape; BERT's first files had names of their own."""
    old = "cls.predictions.transform.LayerNorm."
    build_tiny(BY_NAME["BertForMaskedLM"]).save_pretrained(tmp_path)
    tensors(lambda given: {name.replace(f"{old}weight", f"{old}gamma"): given[name] for name in given})(tmp_path)
    from_official(tmp_path, tfm_zoo.TfmBertModel)
    assert f"{old}gamma" in caplog.text
    tensors(lambda given: given | {f"{old}gamma": torch.ones(3)})(tmp_path)
    with pytest.raises(ConversionError, match=rf"misshapen: {old}gamma of shape \(3,\)"):
        from_official(tmp_path)


def test_tensors_of_further_heads_are_used(tmp_path):
    """bert-base-uncased says BertForMaskedLM, and holds the pooler and the next-sentence head too."""
    original = build_tiny(BY_NAME["BertForPreTraining"])
    original.save_pretrained(tmp_path)
    edit(tmp_path, CONFIG, architectures=["BertForMaskedLM"])
    assert type(from_official(tmp_path)) is tfm_zoo.TfmBertForMaskedLM
    pairs, bare, classifier = (
        from_official(tmp_path, head)
        for head in (tfm_zoo.TfmBertForPreTraining, tfm_zoo.TfmBertModel, tfm_zoo.TfmBertForSequenceClassification)
    )
    assert torch.equal(pairs(IDS).seq_relationship_logits, original(IDS).seq_relationship_logits)
    assert torch.equal(bare(IDS).pooler_output, original.bert(IDS).pooler_output)
    assert torch.equal(classifier.classifier.dense.weight, original.bert.pooler.dense.weight)


def test_labels():
    """They keep their names, unless others are given."""
    names = {"id2label": {0: "no", 1: "yes"}, "label2id": {"no": 0, "yes": 1}}
    original = build_tiny(BY_NAME["BertForSequenceClassification"], labels=2, **names)
    three = {"id2label": {i: f"L{i}" for i in range(3)}}
    for given, labels in (({"num_labels": 2}, ["no", "yes"]), (three, ["L0", "L1", "L2"])):
        config = from_official(original, tfm_zoo.TfmBertForTokenClassification, **given).config
        assert [*config.id2label.values()] == [*config.label2id] == labels


@pytest.mark.parametrize("name", ["MarianMTModel", "BartModel", "T5ForConditionalGeneration"])
@in_double()
def test_the_encoder_alone(name, tmp_path, caplog):
    """T5's has a class of its own on both sides."""
    original = build_tiny(BY_NAME[name])
    original.save_pretrained(tmp_path)
    for source in (original, tmp_path):
        zoo = from_official(source, TfmEncoderDecoderEncoder)
        assert_same(zoo(IDS).last_hidden_state, original.base_model.encoder(IDS, torch.ones_like(IDS))[0])
        assert all(key.startswith("encoder.") for key in zoo.state_dict())
    assert not caplog.text
    if name.startswith("T5"):
        assert_same_model(to_official(zoo), transformers.T5EncoderModel.from_pretrained(tmp_path))
    else:
        with pytest.raises(ConversionError, match="TfmEncoderDecoderEncoder has no counterpart"):
            to_official(zoo)


# Text towers

TEXTS = torch.tensor([[9, 40, 98, 7, 3, 3], [9, 50, 51, 52, 97, 7]])


@in_double()
def test_a_tower_of_a_diffusion_pipeline(tmp_path):
    """Its files were saved by earlier releases: names begin with `text_model`, and positions are stored."""
    tower = build_tiny(BY_NAME["CLIPTextModel"], eos_token_id=2)
    tower.save_pretrained(tmp_path)
    stored = {"embeddings.position_ids": torch.arange(40)[None]}
    tensors(lambda given: {f"text_model.{name}": tensor for name, tensor in (given | stored).items()})(tmp_path)
    zoo = from_official(tmp_path)
    assert isinstance(zoo, TfmTextTowerModel) and zoo.config.pooled_position == "highest"
    assert_same(zoo(TEXTS).pooler_output, tower(TEXTS).pooler_output)


@in_double()
def test_what_a_tower_pools(tmp_path):
    """A text ends at its end token, whatever stands behind it; with 2 for that, at the first highest id."""
    official = build_tiny(BY_NAME["CLIPTextModelWithProjection"])
    for fields, places in ({}, [3, 5]), ({"eos_token_id": 2, "pooled_position": "highest"}, [2, 4]):
        zoo = from_official(official, **fields)
        mask = (torch.arange(6) <= torch.tensor(places)[:, None]).long()
        bare = zoo.model(TEXTS)
        assert torch.equal(bare.pooler_output, bare.last_hidden_state[[0, 1], places])
        assert_same(zoo(TEXTS, mask).text_embeds, zoo(TEXTS).text_embeds)
        assert not zoo.model(TEXTS, mask).last_hidden_state[mask == 0].any(), "padding has been computed"
    assert to_official(zoo).config.eos_token_id == 2
    zoo.save_pretrained(tmp_path)
    loaded = transformers.AutoModel.from_pretrained(tmp_path, trust_remote_code=True)
    assert torch.equal(loaded(TEXTS).text_embeds, zoo(TEXTS).text_embeds)
    assert isinstance(transformers.AutoModelForTextEncoding.from_pretrained(tmp_path), TfmTextTowerModel)
    with pytest.raises(ValueError, match=r"input_ids of type torch\.float64 should be integers"):
        zoo(torch.zeros(1, 3, 32))
