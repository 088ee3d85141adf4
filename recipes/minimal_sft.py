"""Fine-tune a zoo decoder on conversations with trl's SFTTrainer: a twin of `minimal.py`.

    accelerate launch recipes/minimal_sft.py         # a tiny new model that replies to reviews: no network, no data
    accelerate launch recipes/minimal_sft.py --model_name_or_path Qwen/Qwen2.5-0.5B --dataset_name trl-lib/Capybara

The model learns what the assistant says, and reads the rest. All other options are trl's.
"""

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
ON_CPU = not torch.accelerator.is_available()  # processes share it; trl's defaults are for GPUs
DEFAULTS = {"assistant_only_loss": True, "eval_strategy": "epoch", "save_strategy": "no", "output_dir": "output"}
DEFAULTS |= {"gradient_checkpointing": None, "learning_rate": None, "bf16": not ON_CPU, "use_cpu": ON_CPU}


def conversation(review: dict) -> dict[str, list[dict[str, str]]]:
    said = {"user": review["text"], "assistant": ["What a pity.", "How nice!"][review["label"]]}
    return {"messages": [{"role": role, "content": text} for role, text in said.items()]}


def main(argv: list[str] | None = None) -> list[float]:
    """Train and save. Returns the loss on the test split after each epoch."""
    parser = TrlParser(SFTConfig)
    parser.add_argument("--model_name_or_path", help="an official GPT-2, LLaMA, ...; default: a tiny new model")
    parser.add_argument("--dataset_name", help="has `messages`, train and test; default: generated conversations")
    parser.set_defaults(**DEFAULTS)
    settings, own = parser.parse_args_and_config(argv)
    settings.learning_rate = settings.learning_rate or (2e-5 if own.model_name_or_path else 2e-3)
    set_seed(settings.seed)
    data = load_dataset(own.dataset_name) if own.dataset_name else generated_reviews().map(conversation)
    if own.model_name_or_path:
        tokenizer = AutoTokenizer.from_pretrained(own.model_name_or_path)
        model = from_official(own.model_name_or_path, TfmGPTForCausalLM, dtype=torch.float32)
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
