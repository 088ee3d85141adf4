"""The recipes of pre-training, by masked tokens and by spans that texts lack: what they learn, measure and leave."""

import pytest
import torch
from huggingface_hub import ModelCard
from transformers import AutoModelForMaskedLM, BertConfig, BertForPreTraining

import tfm_zoo
from tfm_zoo.training.task import sums
from tfm_zoo.training.tasks.pretraining import PretrainingTask

from .conftest import SIZES, Recipe

TINY = {"vocab_size": 50, "hidden_size": 32, "num_attention_heads": 2, "intermediate_size": 32}


@pytest.fixture
def pretrain(recipe) -> Recipe:
    return recipe("pretraining")


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
    expected = native(**batch)
    for one, is_zoo in ((native, False), (model, True)):
        task = PretrainingTask.__new__(PretrainingTask)
        task.is_zoo = is_zoo

        def parts(batch, one=one, task=task) -> torch.Tensor:
            return task.sum_losses(task.compute_batch(one, batch)) / sums(task.count_items(batch)).clamp(min=1)

        both = parts(batch)
        assert both.sum().item() == pytest.approx(expected.loss.item(), rel=1e-5)
        nothing = parts(batch | {"labels": torch.full_like(labels, -100)})
        assert nothing[0] == 0 and nothing[1].item() == pytest.approx(both[1].item(), rel=1e-5)
        nothing.sum().backward()
        assert all(torch.isfinite(p.grad).all() for p in one.parameters())
        alone = parts({"input_ids": ids, "labels": labels})
        assert alone.tolist() == pytest.approx([both[0].item()], rel=1e-6)
