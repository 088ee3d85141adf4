"""transformers' Trainer: accumulated gradients are those of one large batch, and what it saves loads."""

from functools import partial

import pytest
import torch
from torch.nn import functional as F
from transformers import (
    AutoModelForCausalLM,
    AutoModelForMaskedLM,
    AutoModelForSeq2SeqLM,
    DataCollatorForSeq2Seq,
    Seq2SeqTrainer,
    Seq2SeqTrainingArguments,
    Trainer,
    TrainingArguments,
)
from transformers.models.auto import modeling_auto

from tfm_zoo import (
    TfmBertForMaskedLM,
    TfmBertForSequenceClassification,
    TfmEncoderDecoderForConditionalGeneration,
    TfmGPTForCausalLM,
    TfmGPTForTokenClassification,
    from_official,
)

from ..official_models import BY_NAME, build_tiny
from ..tiny import ragged_batch, tiny_model
from ..words import SENTENCES, make_tokenizer

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
    *(TfmBertForMaskedLM, TfmBertForSequenceClassification),
    *(TfmGPTForCausalLM, TfmGPTForTokenClassification),
    TfmEncoderDecoderForConditionalGeneration,
]
LANGUAGE_MODELS = [
    (TfmBertForMaskedLM, AutoModelForMaskedLM, "modeling_tfm_bert.py"),
    (TfmGPTForCausalLM, AutoModelForCausalLM, "modeling_tfm_gpt.py"),
    (TfmEncoderDecoderForConditionalGeneration, AutoModelForSeq2SeqLM, "modeling_tfm_encoder_decoder.py"),
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
    prediction, labels = trainer.predict(examples(head)), examples(head)[0]["labels"]
    logits = prediction.predictions
    logits = logits[0] if isinstance(logits, tuple) else logits  # an encoder's last hidden state comes after them
    assert logits.shape == (8, len(labels), 61)
    trainer.save_model(tmp_path / "saved")
    loaded = auto_class.from_pretrained(tmp_path / "saved")
    batches = [ragged_batch(head, labels=True, seed=seed) for seed in range(2)]
    losses = [loaded(**batch).loss.item() for batch in batches]
    assert trainer.evaluate()["eval_loss"] == pytest.approx(sum(losses) / 2, rel=1e-5)
    assert (tmp_path / "saved" / code).exists()


def test_smoothed_labels_of_a_decoder(tmp_path):
    """They are shifted, as of official decoders, and those of an encoder are not."""
    for head in (TfmGPTForCausalLM, TfmBertForMaskedLM):
        trainer, batch = make_trainer(head, tmp_path, label_smoothing_factor=0.1), ragged_batch(head, labels=True)
        logits, labels = trainer.model(**batch, return_logits=True).logits, batch["labels"]
        if head is TfmGPTForCausalLM:
            logits, labels = logits[:, :-1], labels[:, 1:]
        wanted = F.cross_entropy(logits.flatten(0, 1), labels.flatten(), label_smoothing=0.1)
        torch.testing.assert_close(trainer.compute_loss(trainer.model, {**batch}), wanted)


@pytest.mark.parametrize("name", ["GPT2LMHeadModel", "BertForMaskedLM", "BartForConditionalGeneration"])
def test_smoothed_labels_of_official_classes(name, tmp_path):
    official = build_tiny(BY_NAME[name])
    settings = TrainingArguments(str(tmp_path), label_smoothing_factor=0.1, use_cpu=True, report_to=[])
    batch = {"input_ids": torch.arange(4, 22).view(3, 6), "labels": torch.arange(7, 25).view(3, 6)}
    if name.startswith("Bart"):
        batch["decoder_input_ids"] = batch["input_ids"]
    losses = [
        Trainer(model, settings).compute_loss(model, {**batch}) for model in (official, from_official(official).eval())
    ]
    torch.testing.assert_close(losses[1], losses[0])


def test_names_by_which_tools_tell_decoders_from_encoder_decoders():
    """lm-eval, for one, reads these tables. The Auto classes go on finding the classes where they are registered."""
    decoders = modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES
    encoder_decoders = modeling_auto.MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES
    for decoder, encoder_decoder in (("llama", "marian"), ("tfm_gpt", "tfm_encoder_decoder")):
        assert decoder in decoders and decoder not in encoder_decoders
        assert encoder_decoder in encoder_decoders
    assert "tfm_encoder_decoder" not in decoders
    assert type(AutoModelForCausalLM.from_config(tiny_model(TfmGPTForCausalLM).config)) is TfmGPTForCausalLM


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_translated_while_evaluating(smoothing, tmp_path):
    """`Seq2SeqTrainer` with its collator: targets shifted, labels smoothed, predictions made by beam search."""
    tokenizer = make_tokenizer()
    ids = {"vocab_size": len(tokenizer), "pad_token_id": 0, "eos_token_id": 3, "decoder_start_token_id": 2}
    model = tiny_model(TfmEncoderDecoderForConditionalGeneration, use_cache=True, hidden_dropout=0.0, **ids)
    targets = [tokenizer(sentence)["input_ids"][1:] for sentence in reversed(SENTENCES)]
    data = [dict(tokenizer(sentence), labels=target) for sentence, target in zip(SENTENCES, targets, strict=True)]
    arguments = Seq2SeqTrainingArguments(
        str(tmp_path),
        **{"use_cpu": True, "report_to": [], "disable_tqdm": True, "save_strategy": "no", "max_steps": 2},
        per_device_train_batch_size=2,
        gradient_accumulation_steps=2,
        per_device_eval_batch_size=4,
        label_smoothing_factor=smoothing,
        predict_with_generate=True,
        generation_max_length=9,
        generation_num_beams=3,
    )
    collator = DataCollatorForSeq2Seq(tokenizer, model=model)
    options = {"data_collator": collator, "train_dataset": data, "eval_dataset": data, "processing_class": tokenizer}
    trainer = Seq2SeqTrainer(model, arguments, **options)
    batch = collator([dict(example) for example in data])
    assert batch["decoder_input_ids"].equal(model.prepare_decoder_input_ids_from_labels(batch["labels"]))
    logits, labels = model(**batch).logits.flatten(0, 1), batch["labels"].flatten()
    wanted = F.cross_entropy(logits, labels, label_smoothing=smoothing, reduction="sum") / 50
    loss = trainer.compute_loss(model.train(), {**batch}, num_items_in_batch=torch.tensor(50))
    torch.testing.assert_close(loss, wanted)

    trainer.train()
    prediction = trainer.predict(data)
    batch = {name: batch[name] for name in ("input_ids", "attention_mask")}
    made = model.eval().generate(**batch, max_length=9, num_beams=3)
    width = prediction.predictions.shape[1]
    assert made.equal(torch.tensor(prediction.predictions)[:, : made.shape[1]]) and made.shape[1] <= width
    assert prediction.metrics["test_loss"] > 0
