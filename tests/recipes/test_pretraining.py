"""The recipes of pre-training, by masked tokens and by spans that texts lack: what they learn, measure and leave."""

import json

import pytest
import torch
from accelerate import Accelerator
from huggingface_hub import ModelCard
from transformers import (
    AutoModelForMaskedLM,
    AutoModelForPreTraining,
    AutoModelForSeq2SeqLM,
    AutoTokenizer,
    BertConfig,
    BertForPreTraining,
)

import tfm_zoo
from tfm_zoo.training.tasks.pretraining import PretrainingOptions, PretrainingTask, losses

from .conftest import SIZES, Recipe, history

TINY = {"vocab_size": 50, "hidden_size": 32, "num_attention_heads": 2, "intermediate_size": 32}


@pytest.fixture
def pretrain(recipe) -> Recipe:
    return recipe("pretraining")


@pytest.mark.slow
@pytest.mark.usefixtures("pictures")
def test_learns_and_leaves_everything(pretrain, tmp_path):
    learns = {"num_train_epochs": 25, "learning_rate": 5e-3, "eval_steps": 100, "per_device_train_batch_size": 8}
    results = pretrain(seed=1, **learns)
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
    sizes = f"{SIZES},max_position_embeddings=16"
    results = pretrain(
        max_train_steps=3, whole_word_mask=True, config_overrides=sizes, next_sentence_prediction="false"
    )
    assert not any("nsp" in name for name in results)
    assert results["eval_loss"] == pytest.approx(results["eval_mlm_loss"])
    assert type(AutoModelForMaskedLM.from_pretrained(tmp_path / "run")) is tfm_zoo.TfmBertForMaskedLM
    card = ModelCard.load(tmp_path / "run" / "README.md")
    assert "words, all tokens of each" in card.text and "next" not in card.text
    assert "at most 16" in card.text  # that it takes, of 32 asked for
    assert "![loss, mlm_accuracy against the optimiser step]" in card.text


def test_losses_are_means_over_masked_tokens_and_over_pairs():
    torch.manual_seed(0)
    dropout = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    native = BertForPreTraining(BertConfig(num_hidden_layers=1, **TINY, **dropout)).train()
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
    model, rows, labelled, projected = head(tfm_zoo.TfmBertConfig(num_hidden_layers=2, **TINY)), [], [], []
    for lengths in ([9, 4, 7], [5, 8, 3]):
        ids, is_real = torch.randint(5, 50, (3, 9)), torch.arange(9) < torch.tensor(lengths)[:, None]
        labels = torch.where((torch.rand(3, 9) < 0.4) & is_real, ids, -100)
        labels[1] = -100
        labelled.append(int((labels != -100).sum()))
        batch = {"input_ids": ids, "attention_mask": is_real.long(), "labels": labels}
        if head is tfm_zoo.TfmBertForPreTraining:
            batch["next_sentence_label"] = torch.tensor([0, 1, 1])
        rows += [{name: column[i] for name, column in batch.items()} for i in range(3)]

    def project(states: torch.Tensor) -> torch.Tensor:  # (no hook, which would see every position)
        projected.append(states[..., 0].numel())
        return type(model.lm_head).forward(model.lm_head, states)

    model.lm_head.forward = project
    options = {"args": PretrainingOptions(per_device_eval_batch_size=3), "splits": {"validation": rows}}
    task = PretrainingTask(accelerator=Accelerator(cpu=True), model=model, tokenizer=None, data=None, **options)
    plain, zoo = ({}, {})
    for task.is_zoo, figures in ((False, plain), (True, zoo)):
        figures |= task.evaluate(model)
        del figures["samples_per_second"]
    assert zoo == pytest.approx(plain, rel=1e-6)
    assert set(projected[2:]) == set(labelled) and min(projected[:2]) > max(labelled)


@pytest.mark.slow
def test_learns_what_documents_lack(recipe, tmp_path):
    results = recipe("denoising")(max_train_steps=120, eval_steps=60)
    losses = history(tmp_path / "run", "eval_loss")
    assert history(tmp_path / "run", "loss")[0] > 5 and losses[-1] < losses[0] < 3 and losses[-1] < 2
    assert results["eval_perplexity"] == pytest.approx(torch.tensor(losses[-1]).exp().item())
    card = ModelCard.load(tmp_path / "run" / "README.md")
    assert card.data.pipeline_tag == "text2text-generation"
    assert "15 % of the tokens, in spans of 3 tokens on average" in card.text and "<extra_id_0>" in card.text

    # The loss is that of the saved model, which knows sentinels in what it reads.
    model = AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "run", trust_remote_code=True)
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "run")
    sides = {"text": "cat dog fox <extra_id_0> cat .", "text_target": "<extra_id_0> dog <extra_id_1>"}
    assert tokenizer.tokenize(sides["text"]).count("<extra_id_0>") == 1
    assert model(**tokenizer(**sides, return_tensors="pt")).loss < 4
    assert model.config.relative_attention_num_buckets == 32 and model.config.position_embedding_type == "none"
