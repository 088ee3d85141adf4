"""Models that start from nothing: how many tokens the tokenizer made for them has."""

import pytest

import tfm_zoo
from tfm_zoo.training.models import load_config, load_tokenizer
from tfm_zoo.training.new_models import new_tokenizer, tokens_to_learn
from tfm_zoo.training.tasks.classification import ONE_LABEL, ClassificationOptions, LabelledTexts, build_classifier
from tfm_zoo.training.tasks.language_modeling import LanguageModelingOptions
from tfm_zoo.training.tasks.pretraining import PAIRS, PretrainingOptions, new_encoder
from tfm_zoo.training.tasks.text_to_text import TextToTextOptions, new_writer

SMALL = "hidden_size=32,num_hidden_layers=1,num_attention_heads=2,intermediate_size=32"
TEXTS = [" ".join(f"{i:x}{j:x}" for i in range(256)) for j in range(40)]


@pytest.mark.parametrize(
    ("options", "tokens"),
    [
        ({}, 1000),
        ({"config_name": "gpt2"}, 50257),
        ({"config_name": "bert-base"}, 30522),
        ({"model_type": "llama"}, 32000),
        ({"config_name": "gpt2", "tokenizer_vocab_size": 600}, 600),
        ({"config_name": "gpt2", "config_overrides": "vocab_size=700"}, 700),
        ({"config_overrides": "vocab_size=700"}, 700),
    ],
    ids=str,
)
def test_as_many_as_the_configuration_has(options, tokens):
    assert tokens_to_learn(LanguageModelingOptions(**options), 1000) == tokens


def test_every_task_asks_for_so_many():
    sizes = {"config_overrides": f"{SMALL},vocab_size=650"}
    assert len(new_tokenizer(LanguageModelingOptions(**sizes), TEXTS)) == 650
    named = {"config_name": "bert-base", **sizes}
    model, tokenizer = new_encoder(PretrainingOptions(**named), PAIRS, TEXTS)
    assert model.config.vocab_size == len(tokenizer) == 650
    labelled = LabelledTexts({"train": {"text": TEXTS}}, [], [], ["text"], ["a", "b"], ONE_LABEL)
    model, tokenizer = build_classifier(ClassificationOptions(**named), labelled)
    assert model.config.vocab_size == len(tokenizer) == 650
    args = TextToTextOptions(**sizes)
    tokenizer = new_tokenizer(args, TEXTS)
    assert new_writer(args, tokenizer, "text").config.vocab_size == len(tokenizer) == 650


def test_fewer_where_the_text_does_not_give_as_many():
    args = PretrainingOptions(config_name="bert-base", config_overrides=SMALL)
    model, tokenizer = new_encoder(args, PAIRS, TEXTS)
    assert type(model) is tfm_zoo.TfmBertForPreTraining
    assert model.config.vocab_size == len(tokenizer) < 30522


def test_the_hub_is_not_asked_for_a_misspelt_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs" / "imdb").mkdir(parents=True)
    monkeypatch.delattr("transformers.AutoConfig.from_pretrained")
    args = LanguageModelingOptions(model_name_or_path="runs/imbd")
    with pytest.raises(OSError, match="model_name_or_path 'runs/imbd': no such folder"):
        load_config(args, "model_name_or_path")


def test_a_folder_without_a_model(tmp_path):
    args = LanguageModelingOptions(model_name_or_path=str(tmp_path))
    with pytest.raises(OSError, match=r"model_name_or_path .*: the folder has no config.json, and so holds no model"):
        load_config(args, "model_name_or_path")


def test_a_default_model_that_is_not_there_is_said_to_be_the_default(monkeypatch):
    def refuse(name, files):
        raise OSError

    monkeypatch.setattr("tfm_zoo.training.models.download", refuse)
    args = ClassificationOptions(train_file="reviews.csv").resolved()
    with pytest.raises(OSError, match=r"model_name_or_path 'sentence-transformers/.*', the default: neither"):
        load_config(args, "model_name_or_path")


@pytest.mark.parametrize("option_name", ["model_name_or_path", "tokenizer_name"])
def test_the_option_that_names_no_tokenizer_is_named(monkeypatch, option_name):
    def refuse(name, files):
        raise OSError

    monkeypatch.setattr("tfm_zoo.training.models.download", refuse)
    with pytest.raises(OSError, match=f"^{option_name} 'user/nothing': neither a tokenizer's folder"):
        load_tokenizer(LanguageModelingOptions(**{option_name: "user/nothing"}))
