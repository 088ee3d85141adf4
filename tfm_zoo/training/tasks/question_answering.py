"""Question answering: where in a text the answer to a question begins and ends."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from datasets import Dataset, DatasetDict
from torch import nn
from transformers import AutoModelForQuestionAnswering, PreTrainedModel, PreTrainedTokenizerBase

from tfm_zoo.data import built_in_data, row_files, splits
from tfm_zoo.data.options import option
from tfm_zoo.data.windows import Window, Windows, best_spans
from tfm_zoo.training.checkpoints import TrainState
from tfm_zoo.training.models import Head, ModelAndTokenizer, with_padding
from tfm_zoo.training.new_models import model_with_labels
from tfm_zoo.training.options import TrainingOptions
from tfm_zoo.training.run import Run
from tfm_zoo.training.task import Batch, Task, Tensors, load_task_of_rows, with_prefix
from tfm_zoo.utils.locking import write_json

HEAD = Head(AutoModelForQuestionAnswering, "question answerer")
SCORES = ("LABEL_0", "LABEL_1")  # of each token: as the first and as the last of an answer
LABELS = ("start_positions", "end_positions")  # of a window: the first and the last token of the answer
#: for metrics: the question's number, the token for no answer, where tokens begin and end in the context (characters)
OF_WINDOWS = ["row", "no_answer", "places"]
ANSWER = ("text", "answer_start")  # lists, of the same length


@dataclass(frozen=True)
class AnsweringOptions(TrainingOptions):
    """The options of a model that finds answers. Names are those of transformers' `run_qa.py`."""

    built_in: ClassVar = staticmethod(built_in_data.questions_on_passages)

    question_column: str = option("question", "Column of the questions.")
    context_column: str = option("context", "Column of the texts with the answers.")
    answer_column: str = option("answers", "Column of the answers: lists 'text' and 'answer_start', in characters.")
    version_2_with_negative: bool = option(False, "Some questions have no answer, as in version 2 of SQuAD.")
    max_seq_length: int = option(384, "Tokens of a window: question and part of a context.", "max_length", at_least=8)
    doc_stride: int | None = option(None, "Tokens that windows share; default: 128, at most half a window.", at_least=0)
    max_answer_length: int = option(30, "The most tokens of an answer.", at_least=1)
    n_best_size: int = option(20, "How many answers to a question are compared, and written down.", at_least=1)
    null_score_diff_threshold: float = option(0.0, "How much better 'no answer' must score than the best.")


@dataclass
class Questions(splits.Data):
    """Splits whose columns are "id", "question", "context" and "answers" (texts and where they begin)."""

    text_columns = ("question", "context")
    are_pairs = True
    usual_metrics = ["squad"]

    def encode(
        self, args: AnsweringOptions, model: PreTrainedModel | None, tokenizer: PreTrainedTokenizerBase
    ) -> DatasetDict:
        """The windows of each split: the model's inputs, `LABELS` and `OF_WINDOWS`."""
        longest = args.max_seq_length
        windows = Windows(tokenizer, longest, args.doc_stride, max_question_len=longest, align_to_words=False)

        def encode_batch(questions: list, contexts: list, answers: list, numbers: list[int]) -> dict[str, list]:
            encoded = []
            for question, context, right, number in zip(questions, contexts, answers, numbers, strict=True):
                for window in windows.of(question, context):
                    encoded.append(labelled(window, right, tokenizer.cls_token_id) | {"row": number})
            return {name: [each[name] for each in encoded] for name in encoded[0]}

        columns = ["question", "context", "answers"]
        options = {"input_columns": columns, "with_indices": True, "batched": True, "batch_size": 200}
        options |= {"remove_columns": ["id", *columns], "num_proc": args.preprocessing_num_workers}
        encoded = self.splits.map(encode_batch, **options)
        for name, rows in encoded.items():
            if len(rows) > (size := len(self.splits[name])):
                self.notes.append(f"The {size:,} contexts of the {name} split were cut into {len(rows):,} windows.")
        return encoded


def labelled(window: Window, answers: Mapping[str, list], cls_token_id: int | None) -> dict[str, Any]:
    """A window with the first and the last token of the first answer. If the window does not hold all of it, both are
    the token that stands for no answer: the CLS token, or the first one if the tokenizer has no CLS token."""
    ids, places = window.inputs["input_ids"], window.places
    no_answer = ids.index(cls_token_id) if cls_token_id in ids else 0
    inside, context = [], [index for index, place in enumerate(places) if place]
    if context and answers["text"]:
        begin = answers["answer_start"][0]
        end = begin + len(answers["text"][0])
        if places[context[0]][0] <= begin and end <= places[context[-1]][1]:
            inside = [index for index in context if places[index][0] < end and places[index][1] > begin]
    first, last = (inside[0], inside[-1]) if inside else (no_answer, no_answer)
    return {**window.inputs, LABELS[0]: first, LABELS[1]: last, "no_answer": no_answer, "places": places}


def load_questions(args: AnsweringOptions) -> Questions:
    """Load and check the data; the seed decides which rows a missing split and `max_*_samples` take."""
    raw, notes = splits.load_splits(args)
    rows = {name: _questions(splits.FoundSplit(args, name, split)) for name, split in raw.items()}
    rows = splits.without_empty(rows, Questions.text_columns, notes)
    return Questions(splits.cut_splits(args, rows, notes, args.seed), notes)


def _questions(table: splits.FoundSplit) -> Dataset:
    """The questions of a split, in columns of known names."""
    args, rows = table.args, table.rows
    if "data" in rows.column_names and args.question_column not in rows.column_names:
        raise ValueError(f"{table} is SQuAD's own JSON: give rows, as datasets.load_dataset('rajpurkar/squad') does")
    questions = table.texts(args.question_column, "question_column")
    contexts = table.texts(args.context_column, "context_column")
    (answer_column,) = row_files.find_columns(rows, args.answer_column, [], "answer_column")
    answers = rows[answer_column][:]
    for row, (context, answer) in enumerate(zip(contexts, answers, strict=True)):
        if not isinstance(answer, Mapping) or not all(isinstance(answer.get(key), list) for key in ANSWER):
            raise table.error(row, f"answer_column needs lists `text` and `answer_start`, not {answer!r}")
        if not answer["text"] and not args.version_2_with_negative:
            raise table.error(row, "there is no answer: give version_2_with_negative if questions may lack one")
        for text, start in zip(answer["text"], answer["answer_start"], strict=True):
            if not text or not context.startswith(text, start):
                raise table.error(row, f"the answer {text!r} does not stand at character {start} of its context")
    ids = map(str, rows["id"] if "id" in rows.column_names else range(len(rows)))
    answers = [{key: answer[key] for key in ANSWER} for answer in answers]
    return Dataset.from_dict({"id": [*ids], "question": questions, "context": contexts, "answers": answers})


def build_answerer(args: AnsweringOptions, questions: Questions) -> ModelAndTokenizer:
    """The model and its tokenizer, set to pad at the right: padding moves no token, and the question comes first."""
    model, tokenizer = model_with_labels(HEAD, args, questions.texts(), SCORES)
    tokenizer.padding_side = "right"
    return model, with_padding(tokenizer)


@dataclass(kw_only=True)
class AnsweringTask(Task):
    """A model learns where in a text the answer to a question begins and ends. The last answers are kept."""

    data: Questions

    pipeline_tag = "question-answering"
    usual_best = "f1"
    metric_titles = {"exact_match": "exact match", "f1": "F1 (words)", "loss": "loss"}
    label_of_loss = {"loss": LABELS[0]}

    def __post_init__(self) -> None:
        self.windows = {name: split.select_columns(OF_WINDOWS) for name, split in self.splits.items()}
        self.splits = self.splits.remove_columns(OF_WINDOWS)
        super().__post_init__()

    def compute_batch(self, model: nn.Module, batch: Batch) -> Tensors:
        """For each window the loss, the mean of those of its first and its last token, and in evaluations the scores of
        its tokens. Padding has no part in it, whatever the model's class."""
        outputs = model(**{name: values for name, values in batch.items() if name not in LABELS})
        padding, lowest = batch["attention_mask"] == 0, torch.finfo(torch.float32).min
        scores = {"start": outputs.start_logits, "end": outputs.end_logits}  # `(windows, length)`
        scores = {name: each.float().masked_fill(padding, lowest) for name, each in scores.items()}
        ends = zip(scores.values(), LABELS, strict=True)
        losses = sum(F.cross_entropy(each, batch[name], reduction="none") for each, name in ends) / 2
        if torch.is_grad_enabled():
            return {"loss": losses}
        rest = (0, self.args.max_seq_length - padding.shape[1])
        return {"loss": losses, **{name: F.pad(each, rest, value=lowest) for name, each in scores.items()}}

    def compute_metrics(self, computed: Tensors, split: str) -> dict[str, float]:
        """The mean loss of the windows, and the metrics of the questions' answers, which are kept."""
        self.candidates = self.best_answers(computed, split)
        self.answers = [candidates[0]["text"] for candidates in self.candidates]
        results = self.metrics(self.answers, [answers["text"] for answers in self.data.splits[split]["answers"]])
        return {**super().compute_metrics(computed, split), **results.numbers}

    def best_answers(self, computed: Tensors, split: str) -> list[list[dict[str, Any]]]:
        """For each question its best answers over all windows, as texts with scores and probabilities, the best first.

        The score of no answer, whose text is empty, is that of the window where it is the least. It comes first if it
        is better by more than `null_score_diff_threshold`, and is left out if all questions have answers.
        """
        contexts = self.data.splits[split]["context"]
        scores: list[dict[tuple[int, int], float]] = [{} for _ in contexts]  # of each question's spans
        unanswered = [torch.inf] * len(contexts)
        for window, *ends in zip(self.windows[split], computed["start"], computed["end"], strict=True):
            row, places = window["row"], window["places"]
            start, end = (each[None, : len(places)] for each in ends)
            unanswered[row] = min(unanswered[row], (start + end)[0, window["no_answer"]].item())
            allowed = torch.tensor([[place is not None for place in places]])
            spans = best_spans(start, end, allowed, self.args.max_answer_length, self.args.n_best_size)
            for score, first, last in zip(*(values[0].tolist() for values in spans), strict=True):
                if score > -torch.inf:
                    span = places[first][0], places[last][1]
                    scores[row][span] = max(score, scores[row].get(span, -torch.inf))
        answers = []
        for context, spans, null_score in zip(contexts, scores, unanswered, strict=True):
            by_score = sorted(spans.items(), key=lambda item: -item[1])[: self.args.n_best_size]
            best = [{"text": context[start:end], "score": score} for (start, end), score in by_score]
            if self.args.version_2_with_negative or not best:
                is_first = not best or null_score - best[0]["score"] > self.args.null_score_diff_threshold
                best.insert(0 if is_first else len(best), {"text": "", "score": null_score})
            chances = torch.tensor([answer["score"] for answer in best]).softmax(0).tolist()
            answers.append([answer | {"probability": chance} for answer, chance in zip(best, chances, strict=True)])
        return answers

    def final_metrics(self, best: nn.Module, state: TrainState) -> dict[str, float]:
        """Metrics of the final split, whose answers are written to files, by the questions' ids."""
        split = self.final_split
        metrics = self.evaluate(best, split)
        if self.accelerator.is_main_process:
            ids, folder = self.data.splits[split]["id"], Path(self.args.output_dir)
            files = {"predictions": self.answers, "nbest_predictions": self.candidates}
            for name, values in with_prefix(files, split).items():
                write_json(folder / f"{name}.json", dict(zip(ids, values, strict=True)), ensure_ascii=False)
        return with_prefix(metrics, split)


def load_task(run: Run) -> AnsweringTask:
    return load_task_of_rows(AnsweringTask, run, load_questions, build_answerer)
