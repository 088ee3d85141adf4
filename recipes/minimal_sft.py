"""Fine-tune a zoo decoder on conversations with trl's SFTTrainer: a twin of `minimal.py`.

    accelerate launch recipes/minimal_sft.py         # a tiny new model that replies to reviews: no network, no data
    accelerate launch recipes/minimal_sft.py --model_name_or_path Qwen/Qwen2.5-0.5B --dataset_name trl-lib/Capybara

The model learns what the assistant says, and reads the rest.
"""

import argparse

# first: it quietens what transformers imports
from minimal import TINY, generated_reviews

from tfm_zoo import TfmGPTConfig, TfmGPTForCausalLM, from_official

# isort: split
import torch
from datasets import DatasetDict, load_dataset
from transformers import AutoTokenizer, GPT2Tokenizer, pipeline, set_seed
from trl import SFTConfig, SFTTrainer

REPLIES = ["What a pity.", "How nice!"]  # to negative and to positive reviews
# For a tokenizer without a chat template. What stands in `generation` is learnt: answers, and where they end.
TEMPLATE = (
    "{% for message in messages %}{{ message['role'] + ':' }}{% set text = message['content'] + eos_token %}"
    "{% if message['role'] == 'assistant' %}{% generation %}{{ text }}{% endgeneration %}"
    "{% else %}{{ text }}{% endif %}{% endfor %}{% if add_generation_prompt %}{{ 'assistant:' }}{% endif %}"
)


def generated_conversations() -> DatasetDict:
    """Reviews, each with a reply to it."""

    def converse(row: dict) -> dict:
        reply = REPLIES[row["label"]]
        return {"messages": [{"role": "user", "content": row["text"]}, {"role": "assistant", "content": reply}]}

    return generated_reviews().map(converse, remove_columns=["text", "label"])


def main(argv: list[str] | None = None) -> list[float]:
    """Train, save, reload and answer. Returns the loss on the test split after each epoch."""
    parser = argparse.ArgumentParser(description="Fine-tune a zoo decoder on conversations with the SFTTrainer.")
    parser.add_argument("--model_name_or_path", help="an official GPT-2, LLaMA, Qwen2, ...; default: a tiny new model")
    parser.add_argument("--dataset_name", help="has `messages`, train and test; default: generated conversations")
    parser.add_argument("--output_dir", default="output")
    parser.add_argument("--max_seq_length", type=int, default=1024)
    parser.add_argument("--learning_rate", type=float, help="default: 2e-5, or 2e-3 for the tiny new model")
    parser.add_argument("--num_train_epochs", type=int, default=3)
    parser.add_argument("--seed", type=int, default=42)
    args = parser.parse_args(argv)
    settings = SFTConfig(
        output_dir=args.output_dir,
        max_length=args.max_seq_length,
        learning_rate=args.learning_rate or (2e-5 if args.model_name_or_path else 2e-3),
        num_train_epochs=args.num_train_epochs,
        assistant_only_loss=True,
        bf16=torch.accelerator.is_available(),  # trl's default, which refuses a CPU
        eval_strategy="epoch",
        save_strategy="no",
        report_to="none",
        seed=args.seed,
        gradient_checkpointing=None,  # trl turns it on, under a name that transformers is about to drop
        use_cpu=not torch.accelerator.is_available(),  # without a GPU, processes share the CPU
    )
    set_seed(args.seed)

    # The data, and a model that predicts the next token
    dataset = load_dataset(args.dataset_name) if args.dataset_name else generated_conversations()
    if args.model_name_or_path:
        tokenizer = AutoTokenizer.from_pretrained(args.model_name_or_path)
        model = from_official(args.model_name_or_path, TfmGPTForCausalLM, dtype=torch.float32)
    else:
        conversations = dataset["train"]["messages"]
        texts = (f"{message['role']}:{message['content']}" for messages in conversations for message in messages)
        tokenizer = GPT2Tokenizer().train_new_from_iterator(texts, vocab_size=1000)
        model = TfmGPTForCausalLM(TfmGPTConfig(vocab_size=len(tokenizer), **TINY))
    tokenizer.chat_template = tokenizer.chat_template or TEMPLATE

    trainer = SFTTrainer(
        model, settings, train_dataset=dataset["train"], eval_dataset=dataset["test"], processing_class=tokenizer
    )
    trainer.train()

    # The folder holds weights, tokenizer and the model's code: it loads where `tfm_zoo` is not installed
    trainer.save_model()
    if trainer.is_world_process_zero():
        chat = pipeline("text-generation", args.output_dir, trust_remote_code=True)
        question = [{"role": "user", "content": "the plot was so hollow"}]
        # pipelines sample unless told otherwise
        print(chat(question, max_new_tokens=20, do_sample=False)[0]["generated_text"][-1])
    return [entry["eval_loss"] for entry in trainer.state.log_history if "eval_loss" in entry]


if __name__ == "__main__":
    main()
