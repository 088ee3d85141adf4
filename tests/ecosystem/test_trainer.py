"""Trainers of transformers, trl and sentence-transformers compute of a zoo model what they do of the official one, and
no padding."""

from collections.abc import Callable
from functools import partial

import pytest
import torch
from datasets import Dataset
from torch.nn import functional as F
from transformers import (
    AutoModelForCausalLM,
    DataCollatorForSeq2Seq,
    DataCollatorWithPadding,
    PreTrainedModel,
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
QUIET = {"use_cpu": True, "report_to": [], "disable_tqdm": True, "save_strategy": "no", "logging_steps": 1}
LEARNING = {"max_steps": 3, "optim": "sgd"}


def losses_of(trainer: Trainer) -> list[float]:
    trainer.train()
    return [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]


def examples(head: type) -> list[dict[str, torch.Tensor]]:
    """Eight sequences, of one to nine tokens, with different numbers of labels."""
    batches = [ragged_batch(head, labels=True, seed=seed) for seed in range(2)]
    return [{name: value[row] for name, value in batch.items()} for batch in batches for row in range(4)]


def make_trainer(head: type, folder, **arguments) -> Trainer:
    rates = {"learning_rate": 0.1, "max_grad_norm": 0.0, "lr_scheduler_type": "constant"}
    settings = TrainingArguments(str(folder), **QUIET | LEARNING | rates | arguments)
    data = examples(head)
    return Trainer(tiny_model(head, **NO_DROPOUT), settings, train_dataset=data)


@pytest.mark.parametrize(
    "head",
    [
        *(TfmBertForMaskedLM, TfmBertForSequenceClassification),
        *(TfmGPTForCausalLM, TfmGPTForTokenClassification),
        TfmEncoderDecoderForConditionalGeneration,
    ],
)
def test_accumulated_gradients_are_those_of_one_large_batch(head, tmp_path):
    make = partial(make_trainer, head, tmp_path)
    whole = make(per_device_train_batch_size=4)
    parts = make(per_device_train_batch_size=1, gradient_accumulation_steps=4)
    start = {name: tensor.clone() for name, tensor in whole.model.state_dict().items()}
    losses = [losses_of(trainer) for trainer in (whole, parts)]
    torch.testing.assert_close(parts.model.state_dict(), whole.model.state_dict(), rtol=1e-5, atol=1e-6)
    assert len(losses[0]) == 3
    assert losses[0] == pytest.approx(losses[1], rel=1e-4)
    # (A key's bias moves no softmax.)
    moved = [name for name in start if "position" not in name and not name.endswith("k_proj.bias")]
    assert not any(whole.model.state_dict()[name].equal(start[name]) for name in moved)


@pytest.mark.parametrize("name", ["GPT2LMHeadModel", "BertForMaskedLM", "BartForConditionalGeneration"])
def test_smoothed_labels(name, tmp_path):
    """They are shifted, as of official decoders, and those of an encoder are not."""
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
    assert "tfm_gpt" in decoders and "tfm_gpt" not in encoder_decoders
    assert "tfm_encoder_decoder" in encoder_decoders and "tfm_encoder_decoder" not in decoders
    assert type(AutoModelForCausalLM.from_config(tiny_model(TfmGPTForCausalLM).config)) is TfmGPTForCausalLM


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_translated_while_evaluating(smoothing, tmp_path):
    """`Seq2SeqTrainer` with its collator: targets shifted, labels smoothed, predictions made by beam search."""
    tokenizer = make_tokenizer()
    ids = {"vocab_size": len(tokenizer), "pad_token_id": 0, "eos_token_id": 3, "decoder_start_token_id": 2}
    model = tiny_model(TfmEncoderDecoderForConditionalGeneration, use_cache=True, hidden_dropout=0.0, **ids)
    targets = [tokenizer(sentence)["input_ids"][1:] for sentence in reversed(SENTENCES)]
    data = [dict(tokenizer(sentence), labels=target) for sentence, target in zip(SENTENCES, targets, strict=True)]
    sizes = {"per_device_train_batch_size": 2, "gradient_accumulation_steps": 2, "per_device_eval_batch_size": 4}
    written = {"predict_with_generate": True, "generation_max_length": 9, "generation_num_beams": 3}
    settings = QUIET | sizes | written | {"max_steps": 2, "label_smoothing_factor": smoothing}
    collator = DataCollatorForSeq2Seq(tokenizer, model=model)
    options = {"data_collator": collator, "train_dataset": data, "eval_dataset": data, "processing_class": tokenizer}
    trainer = Seq2SeqTrainer(model, Seq2SeqTrainingArguments(str(tmp_path), **settings), **options)
    batch = collator([dict(example) for example in data])
    assert batch["decoder_input_ids"].equal(model.prepare_decoder_input_ids_from_labels(batch["labels"]))
    logits, labels = model(**batch).logits.flatten(0, 1), batch["labels"].flatten()
    wanted = F.cross_entropy(logits, labels, label_smoothing=smoothing, reduction="sum") / 50
    loss = trainer.compute_loss(model.train(), {**batch}, num_items_in_batch=torch.tensor(50))
    torch.testing.assert_close(loss, wanted)

    trainer.train()
    prediction = trainer.predict(data)
    wanted = F.cross_entropy(model.eval()(**batch).logits.flatten(0, 1), labels, label_smoothing=smoothing)
    assert prediction.metrics["test_loss"] == pytest.approx(wanted.item(), rel=1e-5)
    batch = {name: batch[name] for name in ("input_ids", "attention_mask")}
    made = model.generate(**batch, max_length=9, num_beams=3)
    assert made.equal(torch.tensor(prediction.predictions)[:, : made.shape[1]])


STEPS = QUIET | LEARNING | {"per_device_train_batch_size": 4, "learning_rate": 1e-2, "seed": 0}
PLAIN = {"bf16": False, "activation_checkpointing": False, "max_length": 24}
LONGER = [f"{one} {other}" for one in SENTENCES for other in SENTENCES]


def saved(model: PreTrainedModel, folder: str) -> str:
    """The folder of the model and of a tokenizer, where these tools look for them."""
    model.save_pretrained(f"{folder}/model")
    make_tokenizer().save_pretrained(f"{folder}/model")
    return f"{folder}/model"


def by_trainer(model: PreTrainedModel, folder: str) -> Trainer:
    tokenizer = make_tokenizer()
    rows = [tokenizer(text) | {"label": number % 2} for number, text in enumerate(SENTENCES * 2)]
    arguments = TrainingArguments(folder, **STEPS)
    return Trainer(model, arguments, data_collator=DataCollatorWithPadding(tokenizer), train_dataset=rows)


def by_trl(method: str, rows: dict, model: PreTrainedModel, folder: str, **options) -> Trainer:
    import trl

    model = type(model).from_pretrained(saved(model, folder))
    arguments, data = getattr(trl, f"{method}Config")(folder, **STEPS, **PLAIN), Dataset.from_dict(rows)
    tokenizer = make_tokenizer()
    tokenizer.eos_token = "[SEP]"
    make = getattr(trl, f"{method}Trainer")
    return make(model, args=arguments, train_dataset=data, processing_class=tokenizer, **options)


def by_lora(model: PreTrainedModel, folder: str) -> Trainer:
    from peft import LoraConfig

    return by_sft(model, folder, peft_config=LoraConfig(r=2, target_modules=["q_proj", "v_proj"]))


def by_sentence_transformers(model: PreTrainedModel, folder: str) -> Trainer:
    import sentence_transformers
    from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss

    loaded = sentence_transformers.SentenceTransformer(saved(model, folder), device="cpu")
    rows = Dataset.from_dict({"anchor": LONGER[:8], "positive": SENTENCES * 2})
    arguments = sentence_transformers.SentenceTransformerTrainingArguments(folder, **STEPS)
    loss = MultipleNegativesRankingLoss(loaded)
    return sentence_transformers.SentenceTransformerTrainer(loaded, arguments, rows, loss=loss)


def by_cross_encoder(model: PreTrainedModel, folder: str) -> Trainer:
    from sentence_transformers import cross_encoder
    from sentence_transformers.cross_encoder.losses import BinaryCrossEntropyLoss

    loaded = cross_encoder.CrossEncoder(saved(model, folder), device="cpu", num_labels=1)
    rows = Dataset.from_dict({"one": LONGER[:8], "other": SENTENCES * 2, "label": [0.0, 1.0] * 4})
    arguments = cross_encoder.CrossEncoderTrainingArguments(folder, **STEPS)
    return cross_encoder.CrossEncoderTrainer(loaded, arguments, rows, loss=BinaryCrossEntropyLoss(loaded))


ANSWERS = {"chosen": [" good"] * 8, "rejected": [" a long bad dull film", " bad"] * 4}
by_sft = partial(by_trl, "SFT", {"text": SENTENCES * 2})
by_dpo = partial(by_trl, "DPO", {"prompt": SENTENCES * 2} | ANSWERS)
by_reward = partial(by_trl, "Reward", {"chosen": LONGER[:8], "rejected": LONGER[8:]})


def shapes_seen(model: torch.nn.Module) -> list[tuple[int, ...]]:
    """Fills with the shapes of what the first feed-forward of a zoo model sees."""
    seen = []
    mlp = next(module for name, module in model.named_modules() if name.endswith("layers.0.mlp"))
    forward = mlp.forward  # (A hook would be shown the padded shapes.)
    mlp.forward = lambda states: seen.append(tuple(states.shape[:-1])) or forward(states)
    return seen


@pytest.mark.slow
@pytest.mark.parametrize(
    ("way", "name", "labels"),
    [
        pytest.param(by_trainer, "BertForSequenceClassification", 2, id="by_trainer"),
        pytest.param(by_sentence_transformers, "BertModel", 2, id="by_sentence_transformers"),
        pytest.param(by_cross_encoder, "BertForSequenceClassification", 1, id="by_cross_encoder"),
        # (The Trainer counts one label too many of each row for GPT2LMHeadModel, whose loss it does not know by name.)
        pytest.param(by_sft, "LlamaForCausalLM", 2, id="by_sft"),
        pytest.param(by_lora, "LlamaForCausalLM", 2, id="by_lora"),
        pytest.param(by_dpo, "LlamaForCausalLM", 2, id="by_dpo"),
        pytest.param(by_reward, "GPT2ForSequenceClassification", 1, id="by_reward"),
    ],
)
def test_losses_are_those_of_the_official_class(way: Callable, name, labels, tmp_path):
    official = build_tiny(BY_NAME[name], labels=labels)
    official.config.pad_token_id = 0
    models, losses = (official, from_official(official)), []
    for side, model in zip(("official", "zoo"), models, strict=True):
        torch.manual_seed(0)
        trainer = way(model, str(tmp_path / side))
        seen = shapes_seen(trainer.model) if side == "zoo" else []
        losses.append(losses_of(trainer))
    assert len(losses[0]) == 3 and losses[1] == pytest.approx(losses[0], rel=2e-4)
    assert seen and all(shape[0] == 1 for shape in seen)  # real tokens, laid end to end
