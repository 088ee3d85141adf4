"""transformers' Trainer: accumulated gradients are those of one large batch, and what it saves loads."""

from functools import partial

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoModelForMaskedLM, Trainer, TrainingArguments

from tfm_zoo import (
    TfmBertForMaskedLM,
    TfmBertForSequenceClassification,
    TfmBertForTokenClassification,
    TfmGPTForCausalLM,
    TfmGPTForSequenceClassification,
    TfmGPTForTokenClassification,
)

from ..tiny import ragged_batch, tiny_model

NO_DROPOUT = {"hidden_dropout": 0.0, "attention_dropout": 0.0, "classifier_dropout": 0.0}


def examples(head: type) -> list[dict[str, torch.Tensor]]:
    """Eight sequences, of one to nine tokens, with different numbers of labels."""
    batches = [ragged_batch(head, labels=True, seed=seed) for seed in range(2)]
    return [{name: value[row] for name, value in batch.items()} for batch in batches for row in range(4)]


def make_trainer(head: type, folder, **arguments) -> Trainer:
    learning = {"max_steps": 3, "optim": "sgd", "learning_rate": 0.1, "max_grad_norm": 0.0}
    learning["lr_scheduler_type"] = "constant"
    quiet = {"use_cpu": True, "report_to": [], "disable_tqdm": True, "save_strategy": "no", "logging_steps": 1}
    settings = TrainingArguments(str(folder), **learning | quiet | arguments)
    data = examples(head)
    return Trainer(tiny_model(head, **NO_DROPOUT), settings, train_dataset=data, eval_dataset=data)


TRAINED = [
    *(TfmBertForMaskedLM, TfmBertForTokenClassification, TfmBertForSequenceClassification),
    *(TfmGPTForCausalLM, TfmGPTForTokenClassification, TfmGPTForSequenceClassification),
]
LANGUAGE_MODELS = [
    (TfmBertForMaskedLM, AutoModelForMaskedLM, "modeling_tfm_bert.py"),
    (TfmGPTForCausalLM, AutoModelForCausalLM, "modeling_tfm_gpt.py"),
]


@pytest.mark.parametrize("head", TRAINED, ids=lambda head: head.__name__)
def test_accumulated_gradients(head, tmp_path):
    make = partial(make_trainer, head, tmp_path)
    whole = make(per_device_train_batch_size=4)
    parts = make(per_device_train_batch_size=1, gradient_accumulation_steps=4)
    start = {name: tensor.clone() for name, tensor in whole.model.state_dict().items()}
    for trainer in (whole, parts):
        trainer.train()
    torch.testing.assert_close(parts.model.state_dict(), whole.model.state_dict(), rtol=1e-5, atol=1e-6)
    losses = [[entry["loss"] for entry in trainer.state.log_history if "loss" in entry] for trainer in (whole, parts)]
    assert len(losses[0]) == 3
    assert losses[0] == pytest.approx(losses[1], rel=1e-4)
    # (A key's bias moves no softmax.)
    moved = [name for name in start if "position" not in name and not name.endswith("k_proj.bias")]
    assert not any(whole.model.state_dict()[name].equal(start[name]) for name in moved)


@pytest.mark.parametrize(("head", "auto_class", "code"), LANGUAGE_MODELS)
def test_evaluated_and_saved(head, auto_class, code, tmp_path):
    trainer = make_trainer(head, tmp_path, per_device_eval_batch_size=4, max_steps=1)
    trainer.train()
    prediction = trainer.predict(examples(head))
    assert prediction.predictions.shape == (8, 9, 61)
    trainer.save_model(tmp_path / "saved")
    loaded = auto_class.from_pretrained(tmp_path / "saved")
    batches = [ragged_batch(head, labels=True, seed=seed) for seed in range(2)]
    losses = [loaded(**batch).loss.item() for batch in batches]
    assert trainer.evaluate()["eval_loss"] == pytest.approx(sum(losses) / 2, rel=1e-5)
    assert (tmp_path / "saved" / code).exists()
