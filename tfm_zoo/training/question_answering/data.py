"""Questions whose answers are spans of a text, from any source, as windows of tokens."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Any, ClassVar, NamedTuple

from datasets import Dataset, DatasetDict
from transformers import PreTrainedTokenizerBase

from tfm_zoo.pipelines.windows import Window, Windows
from tfm_zoo.training import generated
from tfm_zoo.training.arguments import option
from tfm_zoo.training.sources import SplitArguments, check_texts, listed, load_source
from tfm_zoo.training.splits import Data, by_role, divide, without_empty

#: what a window has beyond the model's inputs: where the answer stands, and where the context and "no answer" stand
LABELS = ("start_positions", "end_positions")
CONTEXT = ("context_start", "context_end", "no_answer")
ANSWER = ("text", "answer_start")  # lists, of the same length


@dataclass(frozen=True)
class QuestionArguments(SplitArguments):
    """Where questions and answers are, and how texts are cut. Names are those of transformers' `run_qa.py`."""

    built_in: ClassVar = staticmethod(generated.questions_on_passages)
    built_in_note: ClassVar = (
        "The data set is generated: its passages and questions are made from templates. It tests the machinery alone."
    )

    question_column: str = option("question", "Column of the questions.")
    context_column: str = option("context", "Column of the texts with the answers.")
    answer_column: str = option(
        "answers", "Column of the answers: 'text', a list of them, and 'answer_start', where in the context they begin."
    )
    version_2_with_negative: bool = option(
        False, "Some questions have no answer, as in version 2 of SQuAD, and the model learns to recognise them."
    )
    max_seq_length: int = option(
        384,
        "A longer context is cut into windows of this many tokens, the question included.",
        "max_length",
        at_least=8,
    )
    doc_stride: int | None = option(
        None,
        "Tokens of the context that a window shares with the next; default: 128, or half of a window if that is less.",
        at_least=0,
    )
    pad_to_max_length: bool = option(False, "Pad to max_seq_length instead of the batch's longest window.")

    def load_file(self, split: str, file: str) -> Dataset:
        """The rows of a file, which may be SQuAD's own JSON."""
        rows = super().load_file(split, file)
        return squad_rows(rows["data"][0]) if {*rows.column_names} in ({"data"}, {"version", "data"}) else rows


class Answer(NamedTuple):
    """A span of a context, in characters."""

    start: int
    end: int


@dataclass
class Questions(Data):
    """Splits whose columns are "id", "question", "context" and "answers" (texts and where they begin)."""

    def texts(self) -> Iterator[str]:
        """The training texts. Read when iterated."""
        return chain.from_iterable(self.splits["train"][column] for column in ("question", "context"))

    def encode(self, tokenizer: PreTrainedTokenizerBase, args: QuestionArguments) -> DatasetDict:
        """The windows of each split: the model's inputs, `LABELS`, `CONTEXT`, "row" (the question's number) and
        "places" (where in the context each of its tokens begins and ends, in characters)."""
        longest = args.max_seq_length
        windows = Windows(tokenizer, longest, args.doc_stride, max_question_len=longest, align_to_words=False)

        def encode_batch(rows: dict[str, list], numbers: list[int]) -> dict[str, list]:
            found = []
            for number, question, context, answers in zip(
                numbers, rows["question"], rows["context"], rows["answers"], strict=True
            ):
                answer = first_answer(answers)
                try:
                    cut = windows.of(question, context)
                except ValueError as error:
                    raise ValueError(f"max_seq_length {longest} is too small for {question!r}: {error}") from error
                for window in cut:
                    found.append(labelled(window, answer, tokenizer.cls_token_id) | {"row": number})
            return {name: [each[name] for each in found] for name in found[0]}

        options = {"remove_columns": ["id", "question", "context", "answers"], "batch_size": 200}
        options |= {"batched": True, "with_indices": True, "num_proc": args.preprocessing_num_workers}
        encoded = DatasetDict({name: rows.map(encode_batch, **options) for name, rows in self.splits.items()})
        for name, rows in encoded.items():
            if len(rows) > len(self.splits[name]):
                self.notes.append(
                    f"The {len(self.splits[name]):,} contexts of the {name} split were cut into {len(rows):,} windows."
                )
        return encoded


def squad_rows(articles: Iterable[Mapping[str, Any]]) -> Dataset:
    """A row for each question of SQuAD's own JSON, which has them by article and paragraph."""
    try:
        rows = [
            {
                "id": question["id"],
                "question": question["question"],
                "context": paragraph["context"],
                "answers": {key: [answer[key] for answer in question["answers"]] for key in ANSWER},
            }
            for article in articles
            for paragraph in article["paragraphs"]
            for question in paragraph["qas"]
        ]
    except (KeyError, TypeError) as error:
        raise ValueError(f"'data' is not as SQuAD has it, with 'paragraphs' and 'qas': no {error}") from error
    return Dataset.from_list(rows)


def first_answer(answers: Mapping[str, list]) -> Answer | None:
    """The first of several answers, which is the one to learn."""
    if not answers["text"]:
        return None
    return Answer(answers["answer_start"][0], answers["answer_start"][0] + len(answers["text"][0]))


def labelled(window: Window, answer: Answer | None, cls_token_id: int | None) -> dict[str, Any]:
    """A window with the first and the last token of the answer. If the window does not hold the whole answer, both
    are the token that stands for no answer: the CLS token, or the first one if the tokenizer has no CLS token."""
    ids, context = window.inputs["input_ids"], [index for index, place in enumerate(window.places) if place]
    no_answer = ids.index(cls_token_id) if cls_token_id in ids else 0
    start = end = no_answer
    first, last = (context[0], context[-1]) if context else (no_answer, no_answer - 1)
    if answer and context and window.places[first][0] <= answer.start and answer.end <= window.places[last][1]:
        inside = [i for i in context if window.places[i][0] < answer.end and window.places[i][1] > answer.start]
        start, end = (inside[0], inside[-1]) if inside else (no_answer, no_answer)
    return {
        **window.inputs,
        **dict(zip(LABELS, (start, end), strict=True)),
        **dict(zip(CONTEXT, (first, last, no_answer), strict=True)),
        "places": [window.places[index] for index in context],
    }


def load_questions(args: QuestionArguments, seed: int) -> Questions:
    """Load and check the data; the seed decides which rows a missing split and `max_*_samples` take."""
    splits = {name: _questions(name, split, args) for name, split in load_source(args).items()}
    rows, own_splits, notes = by_role(splits, args)
    rows = without_empty(rows, ("question", "context"), notes)
    return Questions(divide(rows, args, seed, notes), own_splits, notes)


def _questions(name: str, split: Dataset, args: QuestionArguments) -> Dataset:
    """The questions of a split, in columns of known names."""
    for option_name in ("question_column", "context_column"):
        check_texts(args, name, split, getattr(args, option_name), option_name)
    if args.answer_column not in split.column_names:
        raise ValueError(
            f"answer_column {args.answer_column!r}: no such column; the columns are {listed(split.column_names)}"
        )
    contexts, answers = split[args.context_column][:], split[args.answer_column][:]
    for row, (context, answer) in enumerate(zip(contexts, answers, strict=True)):
        where, error = f"split {name!r}, {{row}}", partial(args.row_error, name, row)
        if not isinstance(answer, Mapping) or not all(isinstance(answer.get(key), list) for key in ANSWER):
            raise error(f"{where}: answer_column needs lists `text` and `answer_start`, not {answer!r}")
        if not answer["text"] and not args.version_2_with_negative:
            raise error(f"{where} has no answer: give version_2_with_negative if questions may have none")
        for text, start in zip(answer["text"], answer["answer_start"], strict=True):
            if not text or not context.startswith(text, start):
                raise error(f"{where}: the answer {text!r} does not stand at character {start} of its context")
    columns = {
        "id": [str(each) for each in split["id"]] if "id" in split.column_names else list(map(str, range(len(split)))),
        "question": split[args.question_column][:],
        "context": contexts,
        "answers": [{key: answer[key] for key in ANSWER} for answer in answers],
    }
    return Dataset.from_dict(columns)
