"""Where people train: tools take a zoo model as it is, losses are the official ones, and padding is not computed."""

from collections.abc import Callable

import pytest
import torch
from datasets import Dataset
from transformers import DataCollatorWithPadding, PreTrainedModel, Trainer, TrainingArguments

from tfm_zoo import from_official

from ..official_models import BY_NAME, build_tiny
from ..words import SENTENCES, make_tokenizer

STEPS = {"max_steps": 3, "per_device_train_batch_size": 4, "learning_rate": 1e-2, "optim": "sgd", "seed": 0}
QUIET = {"use_cpu": True, "report_to": [], "disable_tqdm": True, "save_strategy": "no", "logging_steps": 1}
LONGER = [f"{one} {other}" for one in SENTENCES for other in SENTENCES]
PLAIN = {"bf16": False, "activation_checkpointing": False, "max_length": 24}


def tokenizer_with_end():
    tokenizer = make_tokenizer()
    tokenizer.eos_token = "[SEP]"
    return tokenizer


def by_trainer(model: PreTrainedModel, folder: str) -> Trainer:
    tokenizer = make_tokenizer()
    rows = [tokenizer(text) | {"label": number % 2} for number, text in enumerate(SENTENCES * 2)]
    arguments = TrainingArguments(folder, **STEPS, **QUIET)
    return Trainer(model, arguments, data_collator=DataCollatorWithPadding(tokenizer), train_dataset=rows)


def by_sft(model: PreTrainedModel, folder: str, **options) -> Trainer:
    from trl import SFTConfig, SFTTrainer

    arguments = SFTConfig(folder, **STEPS, **QUIET, **PLAIN)
    rows = Dataset.from_dict({"text": SENTENCES * 2})
    return SFTTrainer(model, arguments, train_dataset=rows, processing_class=tokenizer_with_end(), **options)


def by_lora(model: PreTrainedModel, folder: str) -> Trainer:
    from peft import LoraConfig

    return by_sft(loaded(model, folder), folder, peft_config=LoraConfig(r=2, target_modules=["q_proj", "v_proj"]))


def loaded(model: PreTrainedModel, folder: str) -> PreTrainedModel:
    """The same from a folder, where these tools look for it again."""
    model.save_pretrained(f"{folder}/model")
    return type(model).from_pretrained(f"{folder}/model")


def by_dpo(model: PreTrainedModel, folder: str) -> Trainer:
    from trl import DPOConfig, DPOTrainer

    rows = {"prompt": SENTENCES * 2, "chosen": [" good"] * 8, "rejected": [" a long bad dull film", " bad"] * 4}
    arguments = DPOConfig(folder, **STEPS, **QUIET, **PLAIN)
    data, tokenizer = Dataset.from_dict(rows), tokenizer_with_end()
    return DPOTrainer(loaded(model, folder), args=arguments, train_dataset=data, processing_class=tokenizer)


def by_reward(model: PreTrainedModel, folder: str) -> Trainer:
    from trl import RewardConfig, RewardTrainer

    rows = {"chosen": LONGER[:8], "rejected": LONGER[8:]}
    arguments = RewardConfig(folder, **STEPS, **QUIET, **PLAIN)
    return RewardTrainer(
        model, args=arguments, train_dataset=Dataset.from_dict(rows), processing_class=tokenizer_with_end()
    )


def by_sentence_transformers(model: PreTrainedModel, folder: str) -> Trainer:
    import sentence_transformers
    from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer
    from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss

    model.save_pretrained(f"{folder}/model")
    make_tokenizer().save_pretrained(f"{folder}/model")
    loaded = SentenceTransformer(f"{folder}/model", device="cpu")
    rows = Dataset.from_dict({"anchor": LONGER[:8], "positive": SENTENCES * 2})
    arguments = sentence_transformers.SentenceTransformerTrainingArguments(folder, **STEPS, **QUIET)
    return SentenceTransformerTrainer(loaded, arguments, rows, loss=MultipleNegativesRankingLoss(loaded))


def by_cross_encoder(model: PreTrainedModel, folder: str) -> Trainer:
    from sentence_transformers.cross_encoder import CrossEncoder, CrossEncoderTrainer, CrossEncoderTrainingArguments
    from sentence_transformers.cross_encoder.losses import BinaryCrossEntropyLoss

    model.save_pretrained(f"{folder}/model")
    make_tokenizer().save_pretrained(f"{folder}/model")
    loaded = CrossEncoder(f"{folder}/model", device="cpu", num_labels=1)
    rows = Dataset.from_dict({"one": LONGER[:8], "other": SENTENCES * 2, "label": [0.0, 1.0] * 4})
    arguments = CrossEncoderTrainingArguments(folder, **STEPS, **QUIET)
    return CrossEncoderTrainer(loaded, arguments, rows, loss=BinaryCrossEntropyLoss(loaded))


WAYS = {
    by_trainer: ("BertForSequenceClassification", 2),
    by_sentence_transformers: ("BertModel", 2),
    by_cross_encoder: ("BertForSequenceClassification", 1),
    # (The Trainer counts one label too many of each row for GPT2LMHeadModel, by whose name it does not know the loss.)
    by_sft: ("LlamaForCausalLM", 2),
    by_lora: ("LlamaForCausalLM", 2),
    by_dpo: ("LlamaForCausalLM", 2),
    by_reward: ("GPT2ForSequenceClassification", 1),
}


def shapes_seen(model: torch.nn.Module) -> list[tuple[int, ...]]:
    """Fills with the shapes of what the first feed-forward of a zoo model sees."""
    seen = []
    mlp = next(module for name, module in model.named_modules() if name.endswith("layers.0.mlp"))
    forward = mlp.forward

    def counted(states: torch.Tensor) -> torch.Tensor:
        seen.append(tuple(states.shape[:-1]))
        return forward(states)

    mlp.forward = counted
    return seen


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_losses_are_those_of_the_official_class(way: Callable, tmp_path):
    name, labels = WAYS[way]
    official = build_tiny(BY_NAME[name], labels=labels)
    official.config.pad_token_id = 0
    models, losses = (official, from_official(official)), []
    for side, model in zip(("official", "zoo"), models, strict=True):
        torch.manual_seed(0)
        trainer = way(model, str(tmp_path / side))
        seen = shapes_seen(trainer.model) if side == "zoo" else []
        trainer.train()
        losses.append([entry["loss"] for entry in trainer.state.log_history if "loss" in entry])
    assert len(losses[0]) == 3 and losses[1] == pytest.approx(losses[0], rel=2e-4)
    assert seen and all(shape[0] == 1 for shape in seen)  # real tokens, laid end to end
