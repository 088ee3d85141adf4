"""Classify texts with a saved classifier, or tag their words, find answers in them, or make their vectors.

python recipes/predict.py runs/demo "a warm and funny film" "dull from start to end"
python recipes/predict.py user/model --trust_remote_code --file reviews.txt
python recipes/predict.py runs/imdb --file labelled.csv --metrics accuracy f1
python recipes/predict.py runs/tags "anna miller flew to madrid ."
python recipes/predict.py runs/answers --question "who burnt the soup ?" "on monday the cook burnt the soup ."
python recipes/predict.py sentence-transformers/all-MiniLM-L6-v2 --data_files 'corpus/*.parquet' --output_dir vectors

The model's head decides what it does. Plain transformers runs it, except for questions, which transformers 5 no longer
answers; for `--metrics`, which score a classifier on a table of texts and labels; and for a corpus, whose labels, tags
or vectors are written to a folder, alone or under `accelerate launch`. For these `tfm_zoo` is imported.
"""

import argparse
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import torch
from corpus_options import add_corpus_arguments, corpus_run, is_corpus
from trained import add_model_arguments, check_file, lines_of, loading, open_config, parsed, positions_of
from transformers import AutoModelForSequenceClassification, AutoTokenizer, PreTrainedConfig, PreTrainedTokenizerBase

#: what a model does, by its head; and what models of other heads do not do
TASKS = {"SequenceClassification": "classify", "TokenClassification": "tag", "QuestionAnswering": "answer"}
DOES_NOT = "neither classifies texts, tags words nor finds answers"


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        usage="%(prog)s MODEL TEXT ... [options]",
        allow_abbrev=False,
        description="Classify texts, tag their words, find answers in them, or make their vectors.",
    )
    add_model_arguments(parser)
    parser.add_argument("texts", nargs="*", help="texts to read")
    parser.add_argument("--file", type=Path, help="file with one text per line")
    parser.add_argument("--question", help="what the texts shall answer")
    parser.add_argument("--batch_size", type=int, default=32)
    parser.add_argument("--metrics", nargs="+", help="score a classifier on the --file, a table with labels")
    parser.add_argument(
        "--text_column_name", nargs="+", help="with --metrics: the column of texts, or two; of a corpus: one"
    )
    parser.add_argument("--label_column_name", nargs="+", help="with --metrics: the column or columns of labels")
    add_corpus_arguments(parser)
    args = parsed(parser, argv)
    if is_corpus(args, parser):
        return read_corpus(args, parser.error)
    if args.metrics and (args.texts or not args.file):
        parser.error("--metrics need a --file of texts with labels, and no other texts")
    if (args.text_column_name or args.label_column_name) and not args.metrics:
        advice = "the labels of a table: --data_files FILE --text_column_name COLUMN --output_dir FOLDER"
        parser.error(f"text_column_name and label_column_name are for --metrics, which score a --file; for {advice}")
    if args.metrics:
        check_file(args.file, parser.error)
    else:
        advice = f": give --data_files {args.file} --text_column_name COLUMN --output_dir FOLDER"
        args.texts += filter(None, lines_of(args.file, parser.error, advice))
    if not args.texts and not args.metrics:
        parser.error("give texts, or a --file with one text per line")

    config = open_config(args, "predict.py", DOES_NOT, parser.error)
    name = (config.architectures or ["no known class"])[0]
    task = next((task for head, task in TASKS.items() if name.endswith(head)), None)
    if task is None:
        heads = f"a head is one of {', '.join(TASKS)}; for vectors give --data_files and --output_dir"
        parser.error(f"{args.model} is of {name}, which {DOES_NOT}; {heads}")
    if args.metrics and task != "classify":
        parser.error(f"--metrics score classifiers, and {args.model} is of {name}")
    if (task == "answer") != (args.question is not None):
        parser.error("--question and a model that answers questions belong together")
    if task == "answer" and args.max_length is not None:
        parser.error("--max_length cuts texts, and a model that answers questions reads them whole")
    if args.metrics:
        return score(args, parser.error)
    {"classify": classify, "tag": tag, "answer": answer}[task](args, args.texts)


def read_corpus(args: argparse.Namespace, error: Callable[[str], None]) -> None:
    """Write what the model gives for each text of a corpus."""
    from tfm_zoo.training.run import check_launcher, errors_in_one_line

    open_config(args, None, DOES_NOT, error)
    with errors_in_one_line():
        check_launcher()
        corpus_run(args)()
    if int(os.environ.get("RANK", 0)) == 0:
        print(f"The results are in {args.output_dir}")


def cut(tokenizer: PreTrainedTokenizerBase, config: PreTrainedConfig, longest: int | None) -> None:
    """Makes a tokenizer cut texts to as many tokens, and to those that fit the model."""
    tokenizer.model_max_length = tokenizer.model_max_length if longest is None else longest
    tokenizer.model_max_length = positions_of(config, tokenizer)


class Classifier:
    """A saved classifier: gives logits to texts, or to pairs of texts."""

    def __init__(self, args: argparse.Namespace):
        self.device, self.batch_size = "cuda" if torch.cuda.is_available() else "cpu", args.batch_size
        self.tokenizer = AutoTokenizer.from_pretrained(args.model, **loading(args))
        model = AutoModelForSequenceClassification.from_pretrained(args.model, **loading(args))
        self.model, self.config = model.eval().to(self.device), model.config
        self.problem = model.config.problem_type or "single_label_classification"
        cut(self.tokenizer, self.config, args.max_length)

    def logits(self, *texts: Sequence[str]) -> Iterator[tuple[Sequence[str], torch.Tensor]]:
        """Batches of the texts, of the first column where there are two, and their logits."""
        for start in range(0, len(texts[0]), self.batch_size):
            batch = [column[start : start + self.batch_size] for column in texts]
            options = {"padding": True, "truncation": True, "return_tensors": "pt"}
            with torch.inference_mode():
                yield batch[0], self.model(**self.tokenizer(*batch, **options).to(self.device)).logits.float().cpu()


def classify(args: argparse.Namespace, texts: Sequence[str]) -> None:
    """Print a table of probabilities, or of a regression's numbers, a text in each line."""
    classifier = Classifier(args)
    labels = [classifier.config.id2label[index] for index in range(classifier.config.num_labels)]
    width = max(9, *map(len, labels))
    print("  ".join(f"{label:>{width}}" for label in labels), " text")
    for batch, logits in classifier.logits(texts):
        if classifier.problem == "multi_label_classification":
            values, are_marked = logits.sigmoid(), logits > 0
        elif classifier.problem == "regression":
            values, are_marked = logits, torch.zeros_like(logits)
        else:
            values = logits.softmax(-1)
            are_marked = values == values.amax(-1, keepdim=True)
        for text, row, marks in zip(batch, values.tolist(), are_marked.tolist(), strict=True):
            cells = [f"{value:.3f}" + ("*" if mark else " ") for value, mark in zip(row, marks, strict=True)]
            print("  ".join(f"{cell:>{width}}" for cell in cells), f" {text if len(text) <= 70 else text[:67] + '...'}")


def score(args: argparse.Namespace, error: Callable[[str], None]) -> None:
    """Print what metrics say of a classifier on a table of texts and labels."""
    from tfm_zoo.metrics import load_metrics
    from tfm_zoo.training.tasks.classification import predicted

    try:
        metrics, classifier = load_metrics(args.metrics, args.trust_remote_code), Classifier(args)
        texts, references = labelled_texts(args, classifier)
        logits = torch.cat([logits for _, logits in classifier.logits(*texts)])
        figures = metrics(predicted(logits, classifier.problem), references).numbers
    except (OSError, ValueError) as reason:
        error(str(reason))
    for name, value in figures.items():
        print(f"{name:>12}  {value:.4f}")


def labelled_texts(args: argparse.Namespace, classifier: Classifier) -> tuple[list[list[str]], list]:
    """The columns of texts in a table, and its labels, as the model reads them."""
    from tfm_zoo.data import splits
    from tfm_zoo.data.labels import each_label, labelled_rows
    from tfm_zoo.training.tasks import classification

    columns = {"text_column_name": args.text_column_name, "label_column_name": args.label_column_name}
    options, file = {"problem_type": classifier.problem, **columns}, str(args.file)
    options = classification.ClassificationOptions(train_file=file, **options)
    rows, label2id = splits.load_file(options, "train", file), classifier.config.label2id
    texts, label_columns, problem = found = classification.columns_and_problem(options, rows)
    labelled = labelled_rows(*found, splits.FoundSplit(options, "train", rows))
    if labelled is None:
        raise ValueError(f"{file!r} has no label in {label_columns}")
    labels = labelled["label"][:]
    if problem != "regression" and (unknown := sorted(set(each_label(labels)) - set(label2id))):
        raise ValueError(f"{file!r} has labels that the model lacks: {unknown}; it has {list(label2id)}")
    return [labelled[column][:] for column in texts], classification.encoded_labels(labels, problem, label2id)


def tag(args: argparse.Namespace, texts: Sequence[str]) -> None:
    """Print the words that are tagged, with their kinds and probabilities; an empty line after each text.

    transformers joins words by the marks B- and I- alone: tags with E- and S- are printed as kinds of their own.
    """
    from transformers import pipeline

    options = {"aggregation_strategy": "first", **loading(args)}
    find = pipeline("token-classification", args.model, **options)
    cut(find.tokenizer, find.model.config, args.max_length)
    for text, found in zip(texts, find(texts, batch_size=args.batch_size), strict=True):
        for entity in found:
            print(f"{entity['entity_group']:>9}  {entity['score']:.3f}  {entity['word'].strip()}")
        print()
        if not found:
            print(f"no word is tagged in {text!r}", file=sys.stderr)


def answer(args: argparse.Namespace, texts: Sequence[str]) -> None:
    """Print the answer that each text gives, with its probability; an empty text if there is no answer.

    Texts are cut and answers limited as they were in training, if the folder records it, else by the recipe's defaults.
    """
    import tfm_zoo
    from tfm_zoo.training.checkpoints import STATE_FILE, TrainState

    find = tfm_zoo.pipeline("question-answering", args.model, **loading(args))
    run = TrainState.read(Path(args.model)).identity if (Path(args.model) / STATE_FILE).is_file() else {}
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
