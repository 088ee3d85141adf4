"""The recipe of pre-training, run in this process on a tiny model."""

import json
import math
import shutil

import pytest
import torch
from accelerate import Accelerator
from huggingface_hub import ModelCard
from transformers import AutoModelForMaskedLM, AutoModelForPreTraining, AutoTokenizer, BertConfig, BertForPreTraining

import tfm_zoo
from tfm_zoo.training.tasks.pretraining import PretrainingOptions, PretrainingTask, losses
from tfm_zoo.training.tokenizers import learned_word_piece

from .conftest import history, logged, shown_error

BERT = (
    "hidden_size=32,num_hidden_layers=1,num_attention_heads=2,intermediate_size=64,hidden_dropout_prob=0,"
    "attention_probs_dropout_prob=0"
)
ALONE = {"next_sentence_prediction": "false"}


@pytest.mark.slow
@pytest.mark.usefixtures("pictures")
def test_learns_and_leaves_everything(pretrain, tmp_path):
    results = pretrain(num_train_epochs=25, seed=1, learning_rate=5e-3, eval_steps=100, per_device_train_batch_size=8)
    folder = tmp_path / "run"
    assert json.loads((folder / "all_results.json").read_text()) == results
    first = {name: history(folder, f"eval_{name}")[0] for name in ("loss", "mlm_loss")}
    assert all(results[f"eval_{name}"] < value - 0.25 for name, value in first.items())
    assert results["eval_loss"] == pytest.approx(results["eval_mlm_loss"] + results["eval_nsp_loss"])
    assert 0.1 < results["eval_mlm_accuracy"] < 1 and 0.3 < results["eval_nsp_accuracy"] <= 1
    assert (folder / "training_curves.png").stat().st_size > 10_000

    model = AutoModelForPreTraining.from_pretrained(folder)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    assert type(model) is tfm_zoo.TfmBertForPreTraining
    assert model.config.vocab_size == len(tokenizer) <= 120
    assert model.config.max_position_embeddings == tokenizer.model_max_length == 128
    card = ModelCard.load(folder / "README.md")
    assert card.data.pipeline_tag == "fill-mask"
    assert {result.metric_type for result in card.data.eval_results} == {"mlm_accuracy", "nsp_accuracy"}
    assert "guessing by their frequency alone" in card.text and "15% of the tokens" in card.text
    assert "![loss, mlm_accuracy, nsp_accuracy, mlm_loss, nsp_loss against the optimiser step]" in card.text


def test_masked_tokens_alone(pretrain, tmp_path):
    sizes = "hidden_size=32,num_hidden_layers=1,num_attention_heads=2,intermediate_size=64,max_position_embeddings=16"
    results = pretrain(max_train_steps=3, whole_word_mask=True, config_overrides=sizes, **ALONE)
    assert not any("nsp" in name for name in results)
    assert results["eval_loss"] == pytest.approx(results["eval_mlm_loss"])
    assert type(AutoModelForMaskedLM.from_pretrained(tmp_path / "run")) is tfm_zoo.TfmBertForMaskedLM
    card = ModelCard.load(tmp_path / "run" / "README.md")
    assert "words, all tokens of each" in card.text and "next" not in card.text
    assert "at most 16" in card.text  # that it takes, of 32 asked for
    assert "![loss, mlm_accuracy against the optimiser step]" in card.text


def test_losses_are_means_over_masked_tokens_and_over_pairs():
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
    dropout = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    native = BertForPreTraining(BertConfig(vocab_size=50, **sizes, **dropout)).train()
    model = tfm_zoo.from_official(native).train()
    ids = torch.randint(5, 50, (4, 9))
    labels = torch.where(torch.rand(4, 9) < 0.3, ids, -100)
    labels[1] = -100
    batch = {"input_ids": ids, "labels": labels, "next_sentence_label": torch.tensor([0, 1, 1, 0])}
    assert PretrainingTask.count(batch).tolist() == [(labels != -100).sum(), 4]
    expected = native(**batch)
    for one, is_zoo in ((native, False), (model, True)):
        parts = losses(one, batch, is_zoo)
        assert parts.sum().item() == pytest.approx(expected.loss.item(), rel=1e-5)
        nothing = losses(one, batch | {"labels": torch.full_like(labels, -100)}, is_zoo)
        assert nothing[0] == 0 and nothing[1].item() == pytest.approx(parts[1].item(), rel=1e-5)
        nothing.sum().backward()
        assert all(torch.isfinite(p.grad).all() for p in one.parameters())
    alone = losses(model, {"input_ids": ids, "labels": labels}, True)
    assert alone.shape == (1,) and alone[0].item() == pytest.approx(losses(model, batch, True)[0].item(), rel=1e-6)


@pytest.mark.parametrize("head", [tfm_zoo.TfmBertForPreTraining, tfm_zoo.TfmBertForMaskedLM])
def test_evaluation_projects_labelled_tokens_alone(head):
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
    model = head(tfm_zoo.TfmBertConfig(vocab_size=50, **sizes))
    batches = []
    for lengths in ([9, 4, 7], [5, 8, 3]):
        ids, is_real = torch.randint(5, 50, (3, 9)), torch.arange(9) < torch.tensor(lengths)[:, None]
        labels = torch.where((torch.rand(3, 9) < 0.4) & is_real, ids, -100)
        labels[1] = -100
        batches.append({"input_ids": ids, "attention_mask": is_real.long(), "labels": labels})
        if head is tfm_zoo.TfmBertForPreTraining:
            batches[-1]["next_sentence_label"] = torch.tensor([0, 1, 1])
    projected = []

    def project(states: torch.Tensor) -> torch.Tensor:  # (no hook, which would see every position)
        projected.append(states[..., 0].numel())
        return type(model.lm_head).forward(model.lm_head, states)

    model.lm_head.forward = project
    rows = [{name: column[i] for name, column in batch.items()} for batch in batches for i in range(3)]
    options = {"args": PretrainingOptions(per_device_eval_batch_size=3), "splits": {"validation": rows}}
    task = PretrainingTask(accelerator=Accelerator(cpu=True), model=model, tokenizer=None, data=None, **options)
    task.is_zoo = False
    all_of_them = task.evaluate(model)
    task.is_zoo = True
    few = task.evaluate(model)
    assert {name: few[name] for name in few if name != "samples_per_second"} == pytest.approx(
        {name: value for name, value in all_of_them.items() if name != "samples_per_second"}, rel=1e-6
    )
    labelled = [int((batch["labels"] != -100).sum()) for batch in batches]
    assert set(projected[2:]) == set(labelled) and min(projected[:2]) > max(labelled)


@pytest.mark.slow
@pytest.mark.parametrize("streaming", [True, False])
def test_a_run_goes_on_with_its_own_data_alone(pretrain, documents, tmp_path, streaming):
    shutil.copytree(documents, tmp_path / "documents")
    files = {"train_file": tmp_path / "documents" / "train-*.txt", "max_train_steps": 1, "streaming": streaming}
    pretrain(checkpointing_steps=1, **files)
    again = files | {"resume_from_checkpoint": "auto"}
    with pytest.raises(ValueError, match="another run: tokenizer was"):
        pretrain(tokenizer_vocab_size=80, **again)
    moved = shutil.move(tmp_path / "documents", tmp_path / "moved")
    again["train_file"] = moved / "train-*.txt"
    pretrain(**again)
    with pytest.raises(ValueError, match=r"another run: .*validation texts was"):
        pretrain(validation_file=documents / "train-1.txt", **again)
    (moved / "train-2.txt").write_text("cat fox .\ndog .\n")
    with pytest.raises(ValueError, match=r"another run: .*training texts was"):
        pretrain(**again)


def test_accumulation_does_not_change_the_steps(pretrain, tmp_path):
    """Though batches have unlike numbers of masked tokens: they weigh alike, whichever batch they are in."""
    parts = {"per_device_train_batch_size": 2, "gradient_accumulation_steps": 4}
    whole = pretrain.trained(output_dir=tmp_path / "whole", per_device_train_batch_size=8, max_train_steps=3)
    parted = pretrain.trained(output_dir=tmp_path / "parts", max_train_steps=3, **parts)
    assert len(logged(whole, "loss")) == 3
    for key in ("loss", "grad_norm", "eval_mlm_loss", "eval_nsp_loss"):
        assert logged(parted, key) == pytest.approx(logged(whole, key), abs=1e-5), key


@pytest.mark.slow
def test_streams_learn_too(pretrain, tmp_path):
    results = pretrain(streaming=True, max_train_steps=30, eval_steps=15, learning_rate=1e-2)
    assert len(history(tmp_path / "run", "eval_loss")) == 2
    assert results["eval_mlm_loss"] < history(tmp_path / "run", "loss")[0] - math.log(2)
    assert "not counted" in (tmp_path / "run" / "README.md").read_text()


def test_zoo_and_native_model_take_the_same_steps(pretrain, tmp_path):
    options = {"model_type": "bert", "config_overrides": BERT, "max_train_steps": 4}
    zoo, native = (
        pretrain.trained(output_dir=tmp_path / name, model_class=name, **options) for name in ("zoo", "native")
    )
    assert [loop.model.config.model_type for loop in (zoo, native)] == ["tfm_bert", "bert"]
    for key in ("loss", "grad_norm", "eval_mlm_loss", "eval_nsp_loss", "eval_mlm_accuracy", "eval_nsp_accuracy"):
        assert logged(zoo, key) == pytest.approx(logged(native, key), abs=1e-4), key


@pytest.mark.slow
def test_goes_on_from_a_checkpoint_and_is_fine_tuned(pretrain, finetune, tmp_path):
    fresh = {"config_overrides": None, "tokenizer_vocab_size": None, "max_train_steps": 2}
    tokenizer = learned_word_piece(["cat dog fox owl"], 60)
    tokenizer.save_pretrained(tmp_path / "official")
    BertForPreTraining(
        BertConfig(vocab_size=60, hidden_size=32, num_hidden_layers=1, num_attention_heads=2)
    ).save_pretrained(tmp_path / "official")
    pretrain(model_name_or_path=tmp_path / "official", output_dir=tmp_path / "zoo", **fresh)
    pretrain(model_name_or_path=tmp_path / "zoo", output_dir=tmp_path / "again", **fresh)
    assert history(tmp_path / "again", "loss")[0] < history(tmp_path / "zoo", "loss")[0]
    finetune(model_name_or_path=tmp_path / "again", output_dir=tmp_path / "fine", max_train_steps=1)
    tuned = tfm_zoo.TfmBertForSequenceClassification.from_pretrained(tmp_path / "fine")
    assert tuned.config.vocab_size == 60


@pytest.mark.parametrize(
    "options",
    [
        {"config_name": "bert-base", "config_overrides": "hidden_size=32,num_hidden_layers=1,num_attention_heads=2"},
        {"config_overrides": "hidden_size=32,norm_type=rmsnorm,position_embedding_type=rotary,norm_position=pre"},
        {
            "model_type": "roberta",
            "config_overrides": "hidden_size=32,num_hidden_layers=1,num_attention_heads=2",
            **ALONE,
        },
    ],
    ids=["named", "axes", "official type"],
)
def test_new_models_of_any_kind(pretrain, options):
    config = pretrain.prepare(max_train_steps=1, max_eval_samples=2, **options).model.config
    assert (type(config), config.hidden_size) == (tfm_zoo.TfmBertConfig, 32)


def test_built_in_documents(pretrain, tmp_path):
    files = {"train_file": None, "validation_file": None}
    pretrain(max_train_steps=2, max_train_samples=50, max_eval_samples=8, **files)
    assert "The documents are generated" in (tmp_path / "run" / "README.md").read_text()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"streaming": True}, "streaming needs max_train_steps"),
        ({"mlm_probability": 0}, "mlm_probability must be above 0 and below 1, not 0.0"),
        ({"mlm_probability": 1e-9}, "no token of the validation documents is masked"),
        ({"mlm_probability": 1.5}, "mlm_probability must be above 0 and below 1, not 1.5"),
        ({"max_seq_length": 4}, "max_seq_length must be at least 5"),
        ({"tokenizer_vocab_size": 20}, "tokenizer_vocab_size must be at least"),
        (
            {"model_type": "roberta", "config_overrides": None},
            "model_type 'roberta' has no head, or no segments, for pairs",
        ),
        ({"model_type": "gpt2", "config_overrides": None}, "model_type 'gpt2' has no head, or no segments, for pairs"),
        ({"model_type": "gpt2", "config_overrides": None, **ALONE}, "model_type 'gpt2' is not a masked language model"),
        ({"metric_for_best_model": "f1"}, "metric_for_best_model 'f1': expected one of .*nsp_accuracy"),
        ({"metric_for_best_model": "nsp_loss", **ALONE}, "metric_for_best_model 'nsp_loss': expected one of"),
        (
            {"train_file": "one.txt"},
            "in the training documents: it takes two .* 2,000,000 characters or more",
        ),
        ({"train_file": "one.txt", "validation_file": None}, "train has 1 row: too few to cut a validation split"),
        ({"validation_file": "one.txt"}, "there is no example in the validation documents"),
        ({"train_file": "empty.txt"}, "there is no text"),
        ({"train_file": "one.txt", "streaming": True, "max_train_steps": 1}, "there is no example in the training"),
    ],
    ids=lambda value: str(value) if isinstance(value, dict) else "",
)
def test_bad_input_is_refused_before_work(pretrain, documents, options, message):
    (documents / "one.txt").write_text("cat dog .\nfox .\n")
    (documents / "empty.txt").write_text("\n \n\n")
    options = {name: documents / value if name.endswith("file") and value else value for name, value in options.items()}
    with pytest.raises(ValueError, match=message):
        pretrain.prepare(**options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"short_seq_prob": 2}, "short_seq_prob must be at least 0 and at most 1, not 2.0"),
        ({"block_documents": 1}, "block_documents must be at least 2, not 1"),
        ({"next_sentence": "false"}, "unknown option --next_sentence; did you mean '--next_sentence_prediction'"),
    ],
)
def test_options_out_of_range_are_refused(pretrain, capsys, options, message):
    with pytest.raises(SystemExit):
        pretrain(**options)
    assert message in capsys.readouterr().err


def test_an_error_is_one_line(pretraining_recipe, tmp_path, monkeypatch, capsys):
    argv = ["--train_file", "nowhere.txt", "--output_dir", tmp_path / "run"]
    shown = shown_error(pretraining_recipe, argv, monkeypatch, capsys)
    assert shown.splitlines()[-1] == "pretrain_bert.py: error: train_file 'nowhere.txt': no such file"
    assert "Traceback" not in shown
