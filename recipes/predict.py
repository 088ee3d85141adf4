"""Classify texts with a saved classifier, through plain transformers: `tfm_zoo` is not imported.

python recipes/predict.py runs/demo "a warm and funny film" "dull from start to end"
python recipes/predict.py user/model --trust_remote_code --file reviews.txt
"""

import argparse
from pathlib import Path

import torch
from transformers import AutoModelForSequenceClassification, AutoTokenizer


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Classify texts with a saved classifier.")
    parser.add_argument("model", help="folder or Hub id")
    parser.add_argument("texts", nargs="*", help="texts to classify")
    parser.add_argument("--file", type=Path, help="file with one text per line")
    parser.add_argument("--batch_size", type=int, default=32)
    parser.add_argument("--trust_remote_code", action="store_true", help="run a Hub model's code; a folder's is run")
    args = parser.parse_args(argv)
    if args.file and not args.file.is_file():
        parser.error(f"--file {args.file}: no such file")
    texts = args.texts + ([line for line in args.file.read_text("utf-8").splitlines() if line] if args.file else [])
    if not texts:
        parser.error("give texts, or a --file with one text per line")

    trust = args.trust_remote_code or Path(args.model).is_dir()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    tokenizer = AutoTokenizer.from_pretrained(args.model, trust_remote_code=trust)
    model = AutoModelForSequenceClassification.from_pretrained(args.model, trust_remote_code=trust).eval().to(device)
    positions = getattr(model.config, "max_position_embeddings", None) or tokenizer.model_max_length
    if getattr(model.config, "position_ids_from_padding", False):  # RoBERTa's positions begin after the padding's
        positions -= model.config.pad_token_id + 1
    labels = [model.config.id2label[index] for index in range(model.config.num_labels)]
    width = max(9, *map(len, labels))

    print("  ".join(f"{label:>{width}}" for label in labels), " text")
    for start in range(0, len(texts), args.batch_size):
        batch = texts[start : start + args.batch_size]
        inputs = tokenizer(
            batch,
            padding=True,
            truncation=True,
            max_length=min(positions, tokenizer.model_max_length),
            return_tensors="pt",
        )
        with torch.inference_mode():
            probabilities = model(**inputs.to(device)).logits.float().softmax(-1)
        for text, row in zip(batch, probabilities.tolist(), strict=True):
            cells = [f"{value:.3f}" + ("*" if value == max(row) else " ") for value in row]
            print("  ".join(f"{cell:>{width}}" for cell in cells), f" {text if len(text) <= 70 else text[:67] + '...'}")


if __name__ == "__main__":
    main()
