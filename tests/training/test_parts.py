"""Freezing, decay groups, checkpoints' heads, cards, pictures."""

import re
from dataclasses import asdict, fields, replace

import pytest
import torch
from huggingface_hub import ModelCard, ModelCardData
from matplotlib.figure import Figure
from transformers import (
    AutoModelForSequenceClassification,
    BertConfig,
    BertForSequenceClassification,
    GPT2Config,
    GPT2LMHeadModel,
)

import tfm_zoo
from tfm_zoo.hub.cards import licence_of, write_card
from tfm_zoo.training.checkpoints import TrainState, check_identity, identity
from tfm_zoo.training.models import longest_input
from tfm_zoo.training.optimization import freeze_base_model, parameter_groups
from tfm_zoo.training.options import TrainingOptions, about
from tfm_zoo.training.report import command_line
from tfm_zoo.training.run import tracker_values
from tfm_zoo.training.tasks.classification import ONE_LABEL, ClassificationOptions, LabelledTexts, build_classifier
from tfm_zoo.training.tokenizers import byte_level_bpe
from tfm_zoo.visualization import plot_runs, plot_training

from ..recipes.conftest import TINY


@pytest.fixture
def model():
    return tfm_zoo.TfmBertForSequenceClassification(tfm_zoo.TfmBertConfig(vocab_size=50, **TINY))


def test_frozen_means_all_but_the_head(model):
    freeze_base_model(model)
    free = {name for name, parameter in model.named_parameters() if parameter.requires_grad}
    assert free == {f"classifier.{name}" for name in ("dense.weight", "dense.bias", "out_proj.weight", "out_proj.bias")}
    freeze_base_model(model, False)
    assert all(parameter.requires_grad for parameter in model.parameters())


def test_biases_and_norms_do_not_decay(model):
    freeze_base_model(model)  # what is frozen now may learn later, and must be in the optimiser
    decaying, plain = parameter_groups(model, 1e-3, 0.1)
    assert (decaying["weight_decay"], plain["weight_decay"]) == (0.1, 0.0)
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    assert {names[id(p)] for p in plain["params"]} == {
        name for name in names.values() if name.endswith("bias") or "norm" in name
    }
    assert len(decaying["params"]) + len(plain["params"]) == len(names)


def build(args: ClassificationOptions, labels: list[str] | None = None):
    """The classifier for labels, and its tokenizer."""
    return build_classifier(args, LabelledTexts({}, [], [], [], labels or ["a", "b"], ONE_LABEL))


def projection_of(model) -> torch.nn.Linear:
    """The projection onto the labels."""
    return getattr(model.classifier, "out_proj", model.classifier)


@pytest.fixture
def classifier(checkpoint, tmp_path):
    """A native classifier of the labels bad (0), good (1) and its tokenizer."""
    labels = {"id2label": {0: "bad", 1: "good"}, "label2id": {"bad": 0, "good": 1}}
    model = AutoModelForSequenceClassification.from_pretrained(checkpoint, **labels)
    model.save_pretrained(tmp_path / "classifier")
    for file in checkpoint.glob("tokenizer*"):
        (tmp_path / "classifier" / file.name).write_bytes(file.read_bytes())
    return tmp_path / "classifier"


@pytest.mark.parametrize("model_class", ["zoo", "native"])
def test_a_checkpoints_own_head_keeps_its_weights_and_label_order(classifier, model_class):
    own = AutoModelForSequenceClassification.from_pretrained(classifier).classifier.weight
    args = ClassificationOptions(model_name_or_path=str(classifier), model_class=model_class)
    model, _ = build(args, ["good", "bad"])
    assert type(model).__name__ == {"zoo": "Tfm", "native": ""}[model_class] + "BertForSequenceClassification"
    assert model.config.id2label == {0: "bad", 1: "good"}
    assert torch.equal(projection_of(model).weight, own)


@pytest.mark.parametrize("model_class", ["zoo", "native"])
def test_other_number_of_labels_is_refused_unless_the_head_may_go(classifier, model_class):
    labels = ["bad", "good", "ugly"]
    args = ClassificationOptions(model_name_or_path=str(classifier), model_class=model_class)
    with pytest.raises(ValueError, match=r"2 labels \['bad', 'good'\] and the data have 3: \['bad', 'good', 'ugly'\]"):
        build(args, labels)
    model, _ = build(replace(args, ignore_mismatched_sizes=True), labels)
    assert projection_of(model).weight.shape == (3, 32)
    assert model.config.id2label == dict(enumerate(labels))


def test_zoo_checkpoint_stays_what_it_is(checkpoint, tmp_path):
    model, tokenizer = build(ClassificationOptions(model_name_or_path=str(checkpoint)))
    model.save_pretrained(tmp_path / "zoo")
    tokenizer.save_pretrained(tmp_path / "zoo")
    for model_class in ("zoo", "native"):
        args = ClassificationOptions(model_name_or_path=str(tmp_path / "zoo"), model_class=model_class)
        again, _ = build(args)
        assert isinstance(again, tfm_zoo.TfmBertForSequenceClassification)
        assert torch.equal(again.classifier.out_proj.weight, model.classifier.out_proj.weight)


@pytest.mark.parametrize("model_class", ["zoo", "native"])
def test_a_decoder_without_padding_learns_to_classify(model_class, tmp_path):
    """GPT-2's tokenizer pads with the end of a text, and the classifier knows which tokens to pass over."""
    tokenizer = byte_level_bpe(["a film"], 257)
    tokenizer.pad_token = None
    tokenizer.save_pretrained(tmp_path)
    GPT2LMHeadModel(GPT2Config(vocab_size=257, n_embd=16, n_head=2, n_layer=1)).save_pretrained(tmp_path)
    args = ClassificationOptions(model_name_or_path=str(tmp_path), model_class=model_class)
    model, tokenizer = build(args)
    short, long = (tokenizer(texts, padding=True, return_tensors="pt") for texts in (["film"], ["film", "a film"]))
    torch.testing.assert_close(model.eval()(**short).logits[0], model(**long).logits[0])


def test_tokenizer_of_another_model_is_refused(checkpoint, tmp_path):
    BertForSequenceClassification(BertConfig(vocab_size=20, **TINY)).save_pretrained(tmp_path)
    args = ClassificationOptions(model_name_or_path=str(tmp_path), tokenizer_name=str(checkpoint), model_class="native")
    with pytest.raises(ValueError, match=r"tokenizer .* has \d+ tokens, more than the 20 of"):
        build(args)


def test_longest_input(checkpoint):
    _, tokenizer = build(ClassificationOptions(model_name_or_path=str(checkpoint)))
    assert longest_input(BertConfig(max_position_embeddings=50), tokenizer) == 50
    assert longest_input(BertConfig(max_position_embeddings=512), tokenizer) == 64
    config = tfm_zoo.TfmBertConfig(max_position_embeddings=50, pad_token_id=1, position_ids_from_padding=True)
    assert longest_input(config, tokenizer) == 48


def test_card_is_filled_and_replaced_but_never_a_persons(tmp_path):
    data = ModelCardData(library_name="transformers", license="mit", datasets=["stanfordnlp/imdb"])
    assert write_card(tmp_path, "# First", data, "here")
    assert write_card(tmp_path, "# Second", data, "here")
    card = ModelCard.load(tmp_path / "README.md")
    assert card.data.license == "mit"
    assert card.data.datasets == ["stanfordnlp/imdb"]
    assert "# Second" in card.text and "# First" not in card.text
    assert licence_of(str(tmp_path)) == "mit"

    (tmp_path / "README.md").write_text("# Mine\n")
    assert not write_card(tmp_path, "# Third", data, "here")
    assert (tmp_path / "README.md").read_text() == "# Mine\n"
    assert licence_of(str(tmp_path)) is None
    assert licence_of(str(tmp_path / "nowhere")) is None


@pytest.mark.parametrize(
    "token", ["--hub_token hf_secret", "--hub_token=hf_secret", "--hub_token=hf_secret=secret", "--hub-token hf_secret"]
)
def test_published_command_has_no_token_and_no_paths(token):
    script = "/home/me/recipes/finetune_classification.py"
    relative = ["--validation_file", "../data/b.csv", "--test_file", "data/c.csv"]  # which are told as they are
    command = command_line([script, *token.split(), *relative, "--train_file=/home/me/a b.csv"])
    assert "secret" not in command and "/home" not in command
    assert command.startswith("accelerate launch recipes/finetune_classification.py --hub")
    assert command.endswith("--validation_file ../data/b.csv --test_file data/c.csv '--train_file=a b.csv'")


def test_trackers_get_simple_values_and_no_token():
    values = tracker_values(TrainingOptions(hub_token="hf_secret"))
    assert "hf_secret" not in str(values)
    assert values["eval_steps"] == "None"
    assert values.keys() | {"hub_token"} == asdict(TrainingOptions()).keys()


def test_resuming_another_run_is_refused(caplog):
    state = TrainState(run={"seed": 1, "global_batch_size": 16})
    check_identity(state, {"seed": 1, "global_batch_size": 16})
    with pytest.raises(ValueError, match="another run: global_batch_size was 16 and is 8"):
        check_identity(state, {"seed": 1, "global_batch_size": 8})
    check_identity(state, {"seed": 1, "global_batch_size": 8}, ["global_batch_size"])
    assert "Continuing with global_batch_size 8, which was 16: examples follow in the same order" in caplog.text


def test_every_option_counts_that_does_not_say_otherwise():
    args = ClassificationOptions()
    counted = identity({}, args).keys()
    assert counted == {each.name for each in fields(args) if about(each, "resume")}
    assert {"metric_for_best_model", "greater_is_better", "mixed_precision", "label_column_name"} <= counted
    where = {"output_dir", "model_name_or_path", "tokenizer_name", "dataset_name", "train_file", "hub_token"}
    how_divided = {"per_device_train_batch_size", "gradient_accumulation_steps", "num_train_epochs", "max_train_steps"}
    how_often = {"eval_steps", "checkpointing_steps", "resume_from_checkpoint", "early_stopping_patience"}
    assert not (where | how_divided | how_often) & counted
    assert identity({"warmup_steps": 7, "total_steps": 70}, args)["warmup_steps"] == 7  # a fact, and not the option


def test_another_metric_is_refused():
    """An F1 is never compared with a loss, whether the checkpoint recorded its metric or (version 0.1) did not."""
    evaluated = {"best_metric": 0.7, "best_step": 4, "log_history": [{"step": 4, "eval_loss": 0.7, "eval_f1": 0.5}]}
    recorded = TrainState(run={"metric_for_best_model": "loss"}, **evaluated)
    with pytest.raises(ValueError, match="another run: metric_for_best_model was loss and is f1"):
        check_identity(recorded, {"metric_for_best_model": "f1"})
    with pytest.raises(ValueError, match=r"of version 0\.1, did not choose its best model by 'f1'"):
        check_identity(TrainState(**evaluated), {"metric_for_best_model": "f1"})
    check_identity(TrainState(**evaluated), {"metric_for_best_model": "loss"})


def test_one_column_is_what_0_2_recorded_as_its_name():
    recorded = TrainState(run={"label_column_name": "stars"})
    check_identity(recorded, {"label_column_name": ["stars"], "problem_type": None, "metrics": None})
    for other in (["grade"], ["stars", "grade"], None):
        with pytest.raises(
            ValueError, match=f"another run: label_column_name was stars and is {re.escape(str(other))}"
        ):
            check_identity(recorded, {"label_column_name": other})


def test_earlier_versions_did_not_record_what_the_launcher_decided():
    now = {"mixed_precision": "bf16", "torch_compile": True, "engine": "DDP"}
    check_identity(TrainState(run={"mixed_precision": None, "torch_compile": False}), now)
    check_identity(TrainState(run={"mixed_precision": "bf16", "torch_compile": True}), now)
    for earlier in ({"mixed_precision": "no"}, {"torch_compile": False, "engine": "DDP"}, {"engine": "FSDP"}):
        with pytest.raises(ValueError, match="the checkpoint belongs to another run"):
            check_identity(TrainState(run=earlier), now)


@pytest.fixture
def drawn(monkeypatch):
    """A dict whose "axes" are those of the picture that was saved last."""
    drawn = {}
    save = Figure.savefig
    monkeypatch.setattr(
        Figure, "savefig", lambda self, path, **k: (drawn.update(axes=self.axes), save(self, path, **k))
    )
    return drawn


def test_picture_shows_losses_and_metric_with_labelled_axes(tmp_path, drawn):
    history = [
        {"step": 1, "loss": 0.9},
        {"step": 2, "loss": 0.7},
        {"step": 2, "eval_loss": 0.8, "eval_f1": 0.5},
    ]
    plot_training(history, tmp_path / "curves.png", "f1")
    assert (tmp_path / "curves.png").read_bytes().startswith(b"\x89PNG")
    losses, metric = drawn["axes"]
    assert [line.get_xydata().tolist() for line in losses.lines] == [[[1, 0.9], [2, 0.7]], [[2, 0.8]]]
    assert [line.get_xydata().tolist() for line in metric.lines] == [[[2, 0.5]]]
    assert (losses.get_ylabel(), metric.get_ylabel(), metric.get_xlabel()) == (
        "loss",
        "validation f1",
        "optimiser step",
    )
    plot_training(history, tmp_path / "curves.png")
    assert [panel.get_xlabel() for panel in drawn["axes"]] == ["optimiser step"]
    plot_training([*history, {"step": 3, "eval_loss": 1, "eval_f1": 1.0}], tmp_path / "curves.png", "f1", best_step=2)
    losses, metric = drawn["axes"]
    assert metric.get_ylim()[1] == 1  # there is no more
    assert losses.get_legend().get_texts()[-1].get_text() == "kept: step 2"
    assert [panel.lines[-1].get_xdata() for panel in (losses, metric)] == [[2, 2]] * 2
    plot_training(history, tmp_path / "curves.png", "f1", "accuracy")
    assert [panel.get_ylabel() for panel in drawn["axes"]] == ["loss", "validation f1", "validation accuracy"]


def test_runs_side_by_side(tmp_path, drawn):
    one = [{"step": 5, "loss": 9.0}, {"step": 5, "eval_loss": 3.0, "train_runtime": 60.0}]
    two = [{"step": 4, "eval_loss": 2.5, "train_runtime": 30.0}, {"step": 8, "eval_loss": 2.0, "train_runtime": 90.0}]
    plot_runs({"one": one, "two": two}, tmp_path / "runs.png")
    steps, minutes = drawn["axes"]
    assert [line.get_xydata().tolist() for line in steps.lines] == [[[5, 3.0]], [[4, 2.5], [8, 2.0]]]
    assert [line.get_xydata().tolist() for line in minutes.lines] == [[[1, 3.0]], [[0.5, 2.5], [1.5, 2.0]]]
    assert [text.get_text() for text in minutes.get_legend().get_texts()] == ["one: 3.000", "two: 2.000"]
    plot_runs({"one": [{"step": 5, "eval_loss": 3.0}], "two": two}, tmp_path / "runs.png")  # a time is not known
    assert [panel.get_xlabel() for panel in drawn["axes"]] == ["optimiser step"]
    with pytest.raises(ValueError, match="one: no validation loss"):
        plot_runs({"one": one[:1]}, tmp_path / "runs.png")
