"""trl trains zoo models on conversations as it trains official ones: the answers alone are learned."""

import random

import pytest
import torch
from datasets import Dataset
from transformers import LlamaConfig
from transformers.models.auto.modeling_auto import AutoModelForCausalLM
from trl import SFTConfig, SFTTrainer

import tfm_zoo
from tfm_zoo.training.tokenizers import byte_level_bpe

COLOURS = {"sky": "blue", "grass": "green", "coal": "black", "snow": "white"}
TEMPLATE = (
    "{% for message in messages %}<{{ message.role }}>{% if message.role == 'assistant' %}"
    "{% generation %}{{ message.content }}</s>\n{% endgeneration %}{% else %}{{ message.content }}</s>\n{% endif %}"
    "{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}"
)
LLAMA = {"vocab_size": 300, "num_hidden_layers": 2, "hidden_size": 32, "num_attention_heads": 2}
LLAMA |= {"intermediate_size": 64, "bos_token_id": 0, "eos_token_id": 0, "pad_token_id": 0}


def conversation(*things: str) -> list[dict[str, str]]:
    said = [("user", f"What colour has {thing}?", "assistant", f"It is {COLOURS[thing]}.") for thing in things]
    return [{"role": role, "content": text} for each in said for role, text in (each[:2], each[2:])]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:`gradient_checkpointing` is deprecated:FutureWarning")  # TRL sets it
def test_trl_trains_the_zoo_as_it_trains_native_models(tmp_path):
    rng = random.Random(0)
    rows = [{"messages": conversation(*rng.choices([*COLOURS], k=rng.randint(1, 3)))} for _ in range(32)]
    tokenizer = byte_level_bpe([message["content"] for message in conversation(*COLOURS)], 300)
    tokenizer.chat_template = TEMPLATE
    torch.manual_seed(0)
    official = AutoModelForCausalLM.from_config(LlamaConfig(**LLAMA))
    options = {"max_steps": 3, "logging_steps": 1, "learning_rate": 1e-3, "per_device_train_batch_size": 4}
    options |= {"assistant_only_loss": True, "gradient_checkpointing": False, "bf16": False, "use_cpu": True}
    arguments = SFTConfig(tmp_path, max_length=64, report_to=[], save_strategy="no", **options)
    histories = []
    for model in (tfm_zoo.from_official(official), official):
        dataset = Dataset.from_list(rows)
        trainer = SFTTrainer(model=model, args=arguments, train_dataset=dataset, processing_class=tokenizer)
        trainer.train()
        histories.append([[entry[key] for key in ("loss", "grad_norm")] for entry in trainer.state.log_history[:-1]])
    assert len(histories[0]) == 3
    for ours, theirs in zip(*histories, strict=True):
        assert ours == pytest.approx(theirs, abs=1e-3)
