"""Fine-tune a zoo model with plain Accelerate. The whole training loop is in sight: copy it and make it yours.

    accelerate launch recipes/minimal.py             # a tiny new model on generated reviews: no network, no data
    accelerate launch recipes/minimal.py --model_name_or_path google-bert/bert-base-uncased --dataset_name ag_news

The other recipes add what a long run needs: options in YAML, resuming, early stopping, pictures and model cards.
"""

import argparse
from itertools import product

# first: it quietens what transformers imports
from tfm_zoo import TfmBertConfig, TfmBertForSequenceClassification, from_official

# isort: split
import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from datasets import Dataset, DatasetDict, load_dataset
from torch.utils.data import DataLoader
from transformers import AutoTokenizer, BertTokenizer, DataCollatorWithPadding, get_scheduler, pipeline

TINY = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 128}
PARTS = ["film", "plot", "music", "ending", "cast", "pace"]
DEGREES = ["very", "rather", "quite", "so", "really", "just"]
ADJECTIVES = {
    "negative": ["dull", "noisy", "lazy", "bland", "hollow"],
    "positive": ["warm", "witty", "clever", "fresh", "moving"],
}


def generated_reviews() -> DatasetDict:
    """Sentences about films that one word makes negative or positive."""
    rows = [
        {"text": f"the {part} was {degree} {adjective}", "label": label}
        for label, adjectives in ADJECTIVES.items()
        for part, degree, adjective in product(PARTS, DEGREES, adjectives)
    ]
    return Dataset.from_list(rows).class_encode_column("label").train_test_split(test_size=0.2, seed=0)


def main(argv: list[str] | None = None) -> list[float]:
    """Train, save, reload and predict. Returns the accuracy on the test split after each epoch."""
    parser = argparse.ArgumentParser(description="Fine-tune a zoo model on text classification.")
    parser.add_argument("--model_name_or_path", help="an official BERT, RoBERTa, ...; default: a tiny new model")
    parser.add_argument("--dataset_name", help="has `text` and `label`, train and test; default: generated reviews")
    parser.add_argument("--output_dir", default="output")
    parser.add_argument("--max_seq_length", type=int, default=128)
    parser.add_argument("--per_device_train_batch_size", type=int, default=16)
    parser.add_argument("--learning_rate", type=float, help="default: 2e-5, or 2e-3 for the tiny new model")
    parser.add_argument("--num_train_epochs", type=int, default=3)
    parser.add_argument("--seed", type=int, default=42)
    args = parser.parse_args(argv)

    # `accelerate launch` says how many processes there are, and in which precision; without a GPU they share the CPU
    accelerator = Accelerator(cpu=not torch.accelerator.is_available())
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
        return tokenizer(batch["text"], truncation=True, max_length=args.max_seq_length) | {"labels": batch["label"]}

    with accelerator.main_process_first():  # the other processes read its cache
        dataset = dataset.map(tokenize, batched=True, remove_columns=dataset["train"].column_names)
    loader = {"batch_size": args.per_device_train_batch_size, "collate_fn": DataCollatorWithPadding(tokenizer)}
    train_loader = DataLoader(dataset["train"], shuffle=True, **loader)
    test_loader = DataLoader(dataset["test"], **loader)

    # From here on Accelerate takes care of devices, processes and precision
    learning_rate = args.learning_rate or (2e-5 if args.model_name_or_path else 2e-3)
    optimizer = torch.optim.AdamW(model.parameters(), lr=learning_rate)
    model, optimizer, train_loader, test_loader = accelerator.prepare(model, optimizer, train_loader, test_loader)
    steps = args.num_train_epochs * len(train_loader)
    scheduler = get_scheduler("linear", optimizer, num_warmup_steps=steps // 10, num_training_steps=steps)

    accuracies = []
    for epoch in range(1, args.num_train_epochs + 1):
        model.train()
        for batch in train_loader:
            loss = model(**batch).loss
            accelerator.backward(loss)
            accelerator.clip_grad_norm_(model.parameters(), max_norm=1.0)
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad()

        model.eval()
        hits = []
        for batch in test_loader:
            with torch.no_grad():
                predictions = model(**batch).logits.argmax(dim=-1)
            hits.append(accelerator.gather_for_metrics(predictions == batch["labels"]))
        accuracies.append(torch.cat(hits).float().mean().item())
        accelerator.print(f"epoch {epoch}: last loss {loss.item():.3f}, test accuracy {accuracies[-1]:.1%}")

    # The folder holds weights, tokenizer and the model's code: it loads where `tfm_zoo` is not installed
    weights = accelerator.get_state_dict(model)
    if accelerator.is_main_process:
        accelerator.unwrap_model(model).save_pretrained(args.output_dir, state_dict=weights)
        tokenizer.save_pretrained(args.output_dir)
        classifier = pipeline("text-classification", args.output_dir, trust_remote_code=True)
        print(classifier(["the music was rather moving", "the plot was so hollow"]))
    del model, optimizer  # DDP uses the processes' connection, and has to be freed before it is closed
    accelerator.free_memory()
    accelerator.end_training()
    return accuracies


if __name__ == "__main__":
    main()
