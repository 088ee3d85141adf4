"""A model begins as the checkpoint that was named, with its own head and labels, or as new as its tokenizer fits."""

import pytest
import torch
import transformers

import tfm_zoo
from tfm_zoo.training import models
from tfm_zoo.training.models import load_named, load_tokenizer, longest_input
from tfm_zoo.training.tasks import classification, text_to_text
from tfm_zoo.training.tasks.classification import ClassificationOptions
from tfm_zoo.training.tasks.language_modeling import LanguageModelingOptions
from tfm_zoo.training.tokenizers import byte_level_bpe

from ..recipes.conftest import TINY

TEXTS = [" ".join(f"{i:x}{j:x}" for i in range(256)) for j in range(40)]
ZOO_AND_NATIVE = pytest.mark.parametrize("model_class", ["zoo", "native"])


def build(labels: tuple[str, ...] = ("a", "b"), **options):
    """The classifier for labels, and its tokenizer."""
    data = classification.LabelledTexts({"train": {"text": TEXTS}}, [], ["text"], [*labels], classification.ONE_LABEL)
    return classification.build_classifier(ClassificationOptions(**options), data)


def weight_of(model) -> torch.Tensor:
    """That of the projection onto the labels."""
    return getattr(model.classifier, "out_proj", model.classifier).weight


@ZOO_AND_NATIVE
def test_a_checkpoints_own_head_is_kept_unless_it_does_not_fit_and_may_go(checkpoint, tmp_path, model_class, caplog):
    """A zoo checkpoint stays one."""
    _, tokenizer = build(model_name_or_path=str(checkpoint))
    told = {"id2label": {0: "bad", 1: "good"}, "problem_type": "multi_label_classification"}  # not that of the data
    own = transformers.AutoModelForSequenceClassification.from_pretrained(checkpoint, **told)
    for each in (own, tokenizer):
        each.save_pretrained(tmp_path)
    options = {"model_name_or_path": str(tmp_path), "model_class": model_class}
    model, _ = build(("good", "bad"), **options)
    assert type(model).__name__ == {"zoo": "Tfm", "native": ""}[model_class] + "BertForSequenceClassification"
    assert model.config.id2label == {0: "bad", 1: "good"} and torch.equal(weight_of(model), weight_of(own))
    assert model.config.problem_type == classification.ONE_LABEL
    build(("cat", "dog"), **options)
    assert "classifies into ['bad', 'good']: its head now learns ['cat', 'dog']" in caplog.text
    labels = ("bad", "good", "ugly")
    with pytest.raises(ValueError, match=r"2 labels \['bad', 'good'\] and the data have 3: \['bad', 'good', 'ugly'\]"):
        build(labels, **options)
    model, _ = build(labels, ignore_mismatched_sizes=True, **options)
    assert weight_of(model).shape == (3, 32) and model.config.id2label == dict(enumerate(labels))

    model, _ = build(model_name_or_path=str(checkpoint))
    model.save_pretrained(tmp_path)
    again, _ = build(**options)
    assert isinstance(again, tfm_zoo.TfmBertForSequenceClassification)
    assert torch.equal(weight_of(again), weight_of(model))


@ZOO_AND_NATIVE
def test_a_decoder_without_padding_learns_to_classify(model_class, tmp_path):
    """GPT-2's tokenizer pads with the end of a text, and the classifier knows which tokens to pass over."""
    tokenizer = byte_level_bpe(["a film"], 257)
    tokenizer.pad_token = None
    tokenizer.save_pretrained(tmp_path)
    config = transformers.GPT2Config(vocab_size=257, n_embd=16, n_head=2, n_layer=1)
    transformers.GPT2LMHeadModel(config).save_pretrained(tmp_path)
    model, tokenizer = build(model_name_or_path=str(tmp_path), model_class=model_class)
    short, long = (tokenizer(texts, padding=True, return_tensors="pt") for texts in (["film"], ["film", "a film"]))
    torch.testing.assert_close(model.eval()(**short).logits[0], model(**long).logits[0])


def test_the_longest_input_is_what_both_model_and_tokenizer_take(checkpoint):
    _, tokenizer = build(model_name_or_path=str(checkpoint))
    assert longest_input(transformers.BertConfig(max_position_embeddings=512), tokenizer) == 64
    config = tfm_zoo.TfmBertConfig(max_position_embeddings=50, pad_token_id=1, position_ids_from_padding=True)
    assert longest_input(config, tokenizer) == 48


def test_a_model_that_is_not_there_or_does_not_fit_its_tokenizer_is_named(checkpoint, tmp_path, monkeypatch):
    small = transformers.BertForSequenceClassification(transformers.BertConfig(vocab_size=20, **TINY))
    small.save_pretrained(tmp_path / "small")
    with pytest.raises(ValueError, match=r"tokenizer .* has \d+ tokens, more than the 20 of"):
        build(model_name_or_path=str(tmp_path / "small"), tokenizer_name=str(checkpoint), model_class="native")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs" / "imdb").mkdir(parents=True)
    for args, message in [
        (ClassificationOptions(train_file="a.csv").with_defaults(), "'sentence-transformers/.*' is neither a folder"),
        (LanguageModelingOptions(model_name_or_path="runs/imbd"), "There is no folder 'runs/imbd'; did you mean"),
    ]:
        with pytest.raises(OSError, match=f"^model_name_or_path.*: {message}"):
            load_named(args, "model_name_or_path", transformers.AutoConfig)
    assert classification.HEAD.zoo_class(transformers.XLNetConfig()) is None  # whose official class learns
    with pytest.raises(ValueError, match="becomes a 'tfm_bert', not a sequence-to-sequence"):
        text_to_text.HEAD.zoo_class(small.config)
    with pytest.raises(OSError, match=r"^tokenizer_name: 'user/nothing' is neither a folder"):
        load_tokenizer(LanguageModelingOptions(tokenizer_name="user/nothing"))


@ZOO_AND_NATIVE
def test_a_revision_of_a_checkpoint(checkpoint, monkeypatch, model_class):
    """Weights, configuration and tokenizer are all of it."""
    asked = []

    def at(load):
        def loaded(name, *args, **options):
            asked.append((name, options.pop("revision", args[-1] if args else None)))
            return load(checkpoint, *args, **options)

        return loaded

    monkeypatch.setattr(models, "download", at(lambda folder, *_: folder))
    for auto in (transformers.AutoConfig, transformers.AutoTokenizer):
        monkeypatch.setattr(auto, "from_pretrained", at(auto.from_pretrained))
    args = ClassificationOptions(model_name_or_path="user/model", model_revision="v2", model_class=model_class)
    model, _ = classification.HEAD.load_with_labels(args, ["a", "b"])
    assert {("user/model", "v2")} == {each for each in asked if each[0] == "user/model"}
    assert model.config.hidden_size == 32
