"""Fine-tune a zoo model with transformers' Trainer: a twin of `minimal.py`.

    accelerate launch recipes/minimal_trainer.py     # a tiny new model on generated reviews: no network, no data
    accelerate launch recipes/minimal_trainer.py --dataset_name ag_news --metrics accuracy f1 ./mine

The metrics are the zoo's, or folders of your own: `tfm_zoo.training.metrics` says what such a folder holds.
"""

import argparse

# first: it quietens what transformers imports
from minimal import TINY, generated_reviews

from tfm_zoo import TfmBertConfig, TfmBertForSequenceClassification, from_official
from tfm_zoo.training.metrics import for_trainer, load_metrics

# isort: split
import torch
from datasets import load_dataset
from transformers import AutoTokenizer, BertTokenizer, Trainer, TrainingArguments, pipeline, set_seed


def main(argv: list[str] | None = None) -> list[dict[str, float]]:
    """Train, save, reload and predict. Returns the figures of the test split after each epoch."""
    parser = argparse.ArgumentParser(description="Fine-tune a zoo model on text classification with the Trainer.")
    parser.add_argument("--model_name_or_path", help="an official BERT, RoBERTa, ...; default: a tiny new model")
    parser.add_argument("--dataset_name", help="has `text` and `label`, train and test; default: generated reviews")
    parser.add_argument("--metrics", nargs="+", default=["accuracy", "f1"], help="of the zoo, or folders of your own")
    parser.add_argument("--output_dir", default="output")
    parser.add_argument("--max_seq_length", type=int, default=128)
    parser.add_argument("--learning_rate", type=float, help="default: 2e-5, or 2e-3 for the tiny new model")
    parser.add_argument("--num_train_epochs", type=int, default=3)
    parser.add_argument("--seed", type=int, default=42)
    args = parser.parse_args(argv)
    metrics = load_metrics(args.metrics)
    settings = TrainingArguments(
        output_dir=args.output_dir,
        learning_rate=args.learning_rate or (2e-5 if args.model_name_or_path else 2e-3),
        num_train_epochs=args.num_train_epochs,
        per_device_train_batch_size=16,
        warmup_steps=0.1,
        eval_strategy="epoch",
        save_strategy="no",
        report_to="none",
        seed=args.seed,
        use_cpu=not torch.accelerator.is_available(),  # without a GPU, processes share the CPU
    )
    set_seed(args.seed)

    # The data, and a model with a label for each class
    dataset = load_dataset(args.dataset_name) if args.dataset_name else generated_reviews()
    names = dataset["train"].features["label"].names
    labels = {"id2label": dict(enumerate(names)), "label2id": {name: index for index, name in enumerate(names)}}
    if args.model_name_or_path:
        tokenizer = AutoTokenizer.from_pretrained(args.model_name_or_path)
        model = from_official(args.model_name_or_path, TfmBertForSequenceClassification, dtype=torch.float32, **labels)
    else:
        tokenizer = BertTokenizer().train_new_from_iterator(dataset["train"]["text"], vocab_size=1000)
        model = TfmBertForSequenceClassification(TfmBertConfig(vocab_size=len(tokenizer), **TINY, **labels))

    def tokenize(batch: dict[str, list]) -> dict[str, list]:
        return tokenizer(batch["text"], truncation=True, max_length=args.max_seq_length)

    with settings.main_process_first():  # the other processes read its cache
        dataset = dataset.map(tokenize, batched=True)
    trainer = Trainer(
        model,
        settings,
        train_dataset=dataset["train"],
        eval_dataset=dataset["test"],
        processing_class=tokenizer,  # pads each batch, and is saved with the model
        compute_metrics=for_trainer(metrics),
    )
    trainer.train()

    # The folder holds weights, tokenizer and the model's code: it loads where `tfm_zoo` is not installed
    trainer.save_model()
    if trainer.is_world_process_zero():
        classifier = pipeline("text-classification", args.output_dir, trust_remote_code=True)
        print(classifier(["the music was rather moving", "the plot was so hollow"]))
    return [entry for entry in trainer.state.log_history if "eval_loss" in entry]


if __name__ == "__main__":
    main()
