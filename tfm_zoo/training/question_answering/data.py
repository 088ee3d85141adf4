"""Questions whose answers are spans of a text, from any source, as windows of tokens."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

from datasets import Dataset, DatasetDict
from transformers import PreTrainedTokenizerBase

from tfm_zoo.pipelines.windows import Window, Windows
from tfm_zoo.training import generated
from tfm_zoo.training.arguments import option
from tfm_zoo.training.sources import SplitArguments, checked_texts, find_columns, load_source
from tfm_zoo.training.splits import Data, by_role, divide, without_empty

#: what a window has beyond the model's inputs: where the answer stands, and where the context and "no answer" stand
LABELS = ("start_positions", "end_positions")
CONTEXT = ("context_start", "context_end", "no_answer")
ANSWER = ("text", "answer_start")  # lists, of the same length


@dataclass(frozen=True)
class QuestionArguments(SplitArguments):
    """Where questions and answers are, and how texts are cut. Names are those of transformers' `run_qa.py`."""

    built_in: ClassVar = staticmethod(generated.questions_on_passages)

    question_column: str = option("question", "Column of the questions.")
    context_column: str = option("context", "Column of the texts with the answers.")
    answer_column: str = option("answers", "Column of the answers: lists 'text' and 'answer_start', in characters.")
    version_2_with_negative: bool = option(False, "Some questions have no answer, as in version 2 of SQuAD.")
    max_seq_length: int = option(384, "Tokens of a window: question and part of a context.", "max_length", at_least=8)
    doc_stride: int | None = option(
        None, "Tokens that a window shares with the next; default: 128, or half a window if that is less.", at_least=0
    )
    pad_to_max_length: bool = option(False, "Pad to max_seq_length instead of the batch's longest window.")

    def load_file(self, split: str, file: str) -> Dataset:
        """The rows of a file, which may be SQuAD's own JSON."""
        rows = super().load_file(split, file)
        return squad_rows(rows["data"][0]) if {*rows.column_names} in ({"data"}, {"version", "data"}) else rows


@dataclass
class Questions(Data):
    """Splits whose columns are "id", "question", "context" and "answers" (texts and where they begin)."""

    text_columns = ("question", "context")

    def encode(self, tokenizer: PreTrainedTokenizerBase, args: QuestionArguments) -> DatasetDict:
        """The windows of each split: the model's inputs, `LABELS`, `CONTEXT`, "row" (the question's number) and
        "places" (where in the context each of its tokens begins and ends, in characters)."""
        longest = args.max_seq_length
        windows = Windows(tokenizer, longest, args.doc_stride, max_question_len=longest, align_to_words=False)

        def encode_batch(questions: list, contexts: list, answers: list, numbers: list[int]) -> dict[str, list]:
            found = []
            for question, context, right, number in zip(questions, contexts, answers, numbers, strict=True):
                try:
                    cut = windows.of(question, context)
                except ValueError as error:
                    raise ValueError(f"max_seq_length {longest} is too small for {question!r}: {error}") from error
                found += [labelled(window, right, tokenizer.cls_token_id) | {"row": number} for window in cut]
            return {name: [each[name] for each in found] for name in found[0]}

        columns = ["question", "context", "answers"]
        options = {"input_columns": columns, "with_indices": True, "batched": True, "batch_size": 200}
        options |= {"remove_columns": ["id", *columns], "num_proc": args.preprocessing_num_workers}
        encoded = DatasetDict({name: rows.map(encode_batch, **options) for name, rows in self.splits.items()})
        for name, rows in encoded.items():
            if len(rows) > (size := len(self.splits[name])):
                self.notes.append(f"The {size:,} contexts of the {name} split were cut into {len(rows):,} windows.")
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


def labelled(window: Window, answers: Mapping[str, list], cls_token_id: int | None) -> dict[str, Any]:
    """A window with the first and the last token of the first answer. If the window does not hold all of it, both are
    the token that stands for no answer: the CLS token, or the first one if the tokenizer has no CLS token."""
    ids, context = window.inputs["input_ids"], [index for index, place in enumerate(window.places) if place]
    no_answer = ids.index(cls_token_id) if cls_token_id in ids else 0
    first, last = (context[0], context[-1]) if context else (no_answer, no_answer - 1)
    inside = []
    if context and answers["text"]:
        begin = answers["answer_start"][0]
        end = begin + len(answers["text"][0])
        if window.places[first][0] <= begin and end <= window.places[last][1]:
            inside = [i for i in context if window.places[i][0] < end and window.places[i][1] > begin]
    inside = inside or [no_answer]
    values = dict(zip(LABELS + CONTEXT, (inside[0], inside[-1], first, last, no_answer), strict=True))
    return {**window.inputs, **values, "places": [window.places[index] for index in context]}


def load_questions(args: QuestionArguments, seed: int) -> Questions:
    """Load and check the data; the seed decides which rows a missing split and `max_*_samples` take."""
    splits = {name: _questions(name, split, args) for name, split in load_source(args).items()}
    rows, own_splits, notes = by_role(splits, args)
    rows = without_empty(rows, ("question", "context"), notes)
    return Questions(divide(rows, args, seed, notes), own_splits, notes)


def _questions(name: str, split: Dataset, args: QuestionArguments) -> Dataset:
    """The questions of a split, in columns of known names."""
    questions = checked_texts(args, name, split, args.question_column, "question_column")
    contexts = checked_texts(args, name, split, args.context_column, "context_column")
    (answer_column,) = find_columns(split, args.answer_column, [], "answer_column")
    answers = split[answer_column][:]
    for row, (context, answer) in enumerate(zip(contexts, answers, strict=True)):
        where, error = f"split {name!r}, {{row}}", partial(args.row_error, name, row)
        if not isinstance(answer, Mapping) or not all(isinstance(answer.get(key), list) for key in ANSWER):
            raise error(f"{where}: answer_column needs lists `text` and `answer_start`, not {answer!r}")
        if not answer["text"] and not args.version_2_with_negative:
            raise error(f"{where} has no answer: give version_2_with_negative if questions may have none")
        for text, start in zip(answer["text"], answer["answer_start"], strict=True):
            if not text or not context.startswith(text, start):
                raise error(f"{where}: the answer {text!r} does not stand at character {start} of its context")
    ids = split["id"] if "id" in split.column_names else range(len(split))
    columns = {
        "id": [str(each) for each in ids],
        "question": questions,
        "context": contexts,
        "answers": [{key: answer[key] for key in ANSWER} for answer in answers],
    }
    return Dataset.from_dict(columns)
