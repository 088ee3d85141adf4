"""Fine-tune a zoo decoder on conversations with trl's SFTTrainer: a twin of `minimal.py`.

    accelerate launch recipes/minimal_sft.py         # a tiny new model that replies to reviews: no network, no data
    accelerate launch recipes/minimal_sft.py --model_name_or_path Qwen/Qwen2.5-0.5B --dataset_name trl-lib/Capybara

The model learns what the assistant says, and reads the rest. All other options are trl's.
"""

from dataclasses import dataclass

# first: it quietens what transformers imports
from minimal import TINY, generated_reviews

from tfm_zoo import TfmGPTConfig, TfmGPTForCausalLM, from_official

# isort: split
import torch
from datasets import load_dataset
from transformers import AutoTokenizer, GPT2Tokenizer, set_seed
from trl import SFTConfig, SFTTrainer, TrlParser

# For a tokenizer without a chat template. What stands in `generation` is learnt: answers, and where they end.
TEMPLATE = """{% for message in messages %}{{ message['role'] + ':' }}{% set text = message['content'] + eos_token -%}
{% if message['role'] == 'assistant' %}{% generation %}{{ text }}{% endgeneration %}{% else %}{{ text }}{% endif -%}
{% endfor %}{% if add_generation_prompt %}{{ 'assistant:' }}{% endif %}"""
# trl's defaults are for GPUs; without one, processes share the CPU
DEFAULTS = {"assistant_only_loss": True, "eval_strategy": "epoch", "save_strategy": "no", "output_dir": "output"}
DEFAULTS |= {"gradient_checkpointing": None, "learning_rate": None}
DEFAULTS |= {"bf16": torch.accelerator.is_available(), "use_cpu": not torch.accelerator.is_available()}


@dataclass
class Options:
    model_name_or_path: str | None = None  # an official GPT-2, LLaMA, Qwen2, ...; default: a tiny new model
    dataset_name: str | None = None  # has `messages`, train and test; default: generated conversations


def reply_to(text: str, label: int) -> list[dict[str, str]]:
    reply = ["What a pity.", "How nice!"][label]
    return [{"role": "user", "content": text}, {"role": "assistant", "content": reply}]


def main(argv: list[str] | None = None) -> list[float]:
    """Train and save. Returns the loss on the test split after each epoch."""
    parser = TrlParser([Options, SFTConfig])
    parser.set_defaults(**DEFAULTS)
    options, settings = parser.parse_args_and_config(argv)
    name, data = options.model_name_or_path, options.dataset_name
    settings.learning_rate = settings.learning_rate or (2e-5 if name else 2e-3)
    set_seed(settings.seed)
    data = load_dataset(data) if data else generated_reviews().map(lambda row: {"messages": reply_to(**row)})
    if name:
        tokenizer = AutoTokenizer.from_pretrained(name)
        model = from_official(name, TfmGPTForCausalLM, dtype=torch.float32)
    else:
        texts = (f"{said['role']}:{said['content']}" for row in data["train"] for said in row["messages"])
        tokenizer = GPT2Tokenizer().train_new_from_iterator(texts, vocab_size=1000)
        model = TfmGPTForCausalLM(TfmGPTConfig(vocab_size=len(tokenizer), **TINY))
    tokenizer.chat_template = tokenizer.chat_template or TEMPLATE
    splits = {"train_dataset": data["train"], "eval_dataset": data["test"]}
    trainer = SFTTrainer(model, settings, processing_class=tokenizer, **splits)
    trainer.train()
    trainer.save_model()  # weights, tokenizer and the model's code: the folder loads where there is no `tfm_zoo`
    return [entry["eval_loss"] for entry in trainer.state.log_history if "eval_loss" in entry]


if __name__ == "__main__":
    main()
