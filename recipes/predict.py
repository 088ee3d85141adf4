"""Classify texts with a saved classifier, or tag their words, or find answers in them.

python recipes/predict.py runs/demo "a warm and funny film" "dull from start to end"
python recipes/predict.py user/model --trust_remote_code --file reviews.txt
python recipes/predict.py runs/tags "anna miller flew to madrid ."
python recipes/predict.py runs/answers --question "who burnt the soup ?" "on monday the cook burnt the soup ."

The model's head decides what it does. Plain transformers runs it, except for questions, which transformers 5 no longer
answers: for them `tfm_zoo` is imported.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

import torch
from trained import add_model_arguments, loading, open_config
from transformers import AutoModelForSequenceClassification, AutoTokenizer

#: what a model does, by its head; and what models of other heads do not do
TASKS = {"SequenceClassification": "classify", "TokenClassification": "tag", "QuestionAnswering": "answer"}
DOES_NOT = "neither classifies texts, tags words nor finds answers"


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        usage="%(prog)s MODEL TEXT ... [options]",
        allow_abbrev=False,
        description="Classify texts, tag their words, or find answers in them.",
    )
    add_model_arguments(parser)
    parser.add_argument("texts", nargs="*", help="texts to read")
    parser.add_argument("--file", type=Path, help="file with one text per line")
    parser.add_argument("--question", help="what the texts shall answer")
    parser.add_argument("--batch_size", type=int, default=32)
    args = parser.parse_intermixed_args(argv)
    if args.file and not args.file.is_file():
        parser.error(f"--file {args.file}: no such file")
    texts = args.texts + ([line for line in args.file.read_text("utf-8").splitlines() if line] if args.file else [])
    if not texts:
        parser.error("give texts, or a --file with one text per line")

    config = open_config(args, "predict.py", DOES_NOT, parser.error)
    name = (config.architectures or ["no known class"])[0]
    task = next((task for head, task in TASKS.items() if name.endswith(head)), None)
    if task is None:
        parser.error(f"{args.model} is of {name}, which {DOES_NOT}; a head is one of {', '.join(TASKS)}")
    if (task == "answer") != (args.question is not None):
        parser.error("--question and a model that answers questions belong together")
    {"classify": classify, "tag": tag, "answer": answer}[task](args, texts)


def classify(args: argparse.Namespace, texts: Sequence[str]) -> None:
    """Print a table of probabilities, a text in each line."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    tokenizer = AutoTokenizer.from_pretrained(args.model, **loading(args))
    model = AutoModelForSequenceClassification.from_pretrained(args.model, **loading(args)).eval().to(device)
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
    """Print the words that are tagged, with their kinds and probabilities; an empty line after each text.

    transformers joins words by the marks B- and I- alone: tags with E- and S- are printed as kinds of their own.
    """
    from transformers import pipeline

    options = {"aggregation_strategy": "first", **loading(args)}
    for found in pipeline("token-classification", args.model, **options)(texts, batch_size=args.batch_size):
        for entity in found:
            print(f"{entity['entity_group']:>9}  {entity['score']:.3f}  {entity['word'].strip()}")
        print()


def answer(args: argparse.Namespace, texts: Sequence[str]) -> None:
    """Print the answer that each text gives, with its probability; nothing where there is none.

    Texts are cut and answers limited as they were in training, if the folder records it, else by the recipe's defaults.
    """
    import tfm_zoo
    from tfm_zoo.training.checkpoints import STATE_FILE, TrainState

    find = tfm_zoo.pipeline("question-answering", args.model, **loading(args))
    run = TrainState.read(Path(args.model)).run if (Path(args.model) / STATE_FILE).is_file() else {}
    options = {
        "max_answer_len": run.get("max_answer_length", 30),
        "handle_impossible_answer": run.get("version_2_with_negative") and find.tokenizer.cls_token is not None,
        "doc_stride": run.get("doc_stride"),
        "align_to_words": False,
    }
    if longest := run.get("max_seq_length"):
        options |= {"max_seq_len": longest, "max_question_len": longest}
    for text in texts:
        found = find(question=args.question, context=text, **options)
        print(f"{found['score']:.3f}  {found['answer']}")


if __name__ == "__main__":
    main()
