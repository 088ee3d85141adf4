"""Classify texts with a saved classifier, or tag their words, or find answers in them.

python recipes/predict.py runs/demo "a warm and funny film" "dull from start to end"
python recipes/predict.py user/model --trust_remote_code --file reviews.txt
python recipes/predict.py runs/tags "anna miller flew to madrid ."
python recipes/predict.py runs/answers --question "who burnt the soup ?" "on monday the cook burnt the soup ."

What the model does follows from its head. Through plain transformers, which answers questions no longer: for these
`tfm_zoo` is imported.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

import torch
from transformers import AutoConfig, AutoModelForSequenceClassification, AutoTokenizer, pipeline

#: the heads of what is no classifier of texts, and the pipelines for them
PIPELINES = {"TokenClassification": "token-classification", "QuestionAnswering": "question-answering"}


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Classify texts, tag their words, or find answers in them.")
    parser.add_argument("model", help="folder or Hub id")
    parser.add_argument("texts", nargs="*", help="texts to read")
    parser.add_argument("--file", type=Path, help="file with one text per line")
    parser.add_argument("--question", help="what the texts shall answer")
    parser.add_argument("--batch_size", type=int, default=32)
    parser.add_argument("--trust_remote_code", action="store_true", help="run a Hub model's code; a folder's is run")
    args = parser.parse_intermixed_args(argv)
    if args.file and not args.file.is_file():
        parser.error(f"--file {args.file}: no such file")
    texts = args.texts + ([line for line in args.file.read_text("utf-8").splitlines() if line] if args.file else [])
    if not texts:
        parser.error("give texts, or a --file with one text per line")

    args.trust_remote_code |= Path(args.model).is_dir()
    config = AutoConfig.from_pretrained(args.model, trust_remote_code=args.trust_remote_code)
    task = PIPELINES.get((config.architectures or [""])[0].partition("For")[2])
    if (task == "question-answering") != (args.question is not None):
        parser.error("--question and a model that answers questions belong together")
    {"token-classification": tag, "question-answering": answer}.get(task, classify)(args, texts)


def classify(args: argparse.Namespace, texts: Sequence[str]) -> None:
    """Print a table of probabilities, a text in each line."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    trust = {"trust_remote_code": args.trust_remote_code}
    tokenizer = AutoTokenizer.from_pretrained(args.model, **trust)
    model = AutoModelForSequenceClassification.from_pretrained(args.model, **trust).eval().to(device)
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


def tag(args: argparse.Namespace, texts: Sequence[str]) -> None:
    """Print the words that are tagged, with their kinds and probabilities; an empty line after each text."""
    options = {"aggregation_strategy": "first", "trust_remote_code": args.trust_remote_code}
    for found in pipeline("token-classification", args.model, **options)(texts, batch_size=args.batch_size):
        for entity in found:
            print(f"{entity['entity_group']:>9}  {entity['score']:.3f}  {entity['word'].strip()}")
        print()


def answer(args: argparse.Namespace, texts: Sequence[str]) -> None:
    """Print the answer that each text gives, with its probability; nothing where there is none."""
    import tfm_zoo

    find = tfm_zoo.pipeline("question-answering", args.model, trust_remote_code=args.trust_remote_code)
    for text in texts:
        found = find(question=args.question, context=text)
        print(f"{found['score']:.3f}  {found['answer']}")


if __name__ == "__main__":
    main()
