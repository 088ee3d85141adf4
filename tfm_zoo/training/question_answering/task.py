"""Question answering as a task: its options, its loss, its figures, its card."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tfm_zoo.training.arguments import LoopArguments, option
from tfm_zoo.training.checkpoints import TrainState
from tfm_zoo.training.question_answering.data import CONTEXT, LABELS, Questions
from tfm_zoo.training.question_answering.measures import answer_scores, best_spans
from tfm_zoo.training.task import Batch, Task, with_prefix


@dataclass(frozen=True)
class QuestionAnsweringArguments(LoopArguments):
    """The options of a question answering loop, besides those of every loop."""

    figures: ClassVar = ("loss", "exact_match", "f1")

    metric_for_best_model: str = option("f1", "Validation figure that picks the best model.")
    group_by_length: bool = option(False, "Put examples of similar length into the same batch.")
    max_answer_length: int = option(30, "The most tokens of an answer.", at_least=1)
    n_best_size: int = option(20, "How many answers to a question are compared, and written down.", at_least=1)
    null_score_diff_threshold: float = option(
        0.0, "With version_2_with_negative: by how much 'no answer' has to score better than the best answer."
    )


@dataclass(kw_only=True)
class QuestionAnsweringTask(Task):
    """A model learns where in a text the answer to a question begins and ends. The last answers are kept."""

    args: QuestionAnsweringArguments
    data: Questions
    may_be_unanswered: bool

    pipeline_tag = "question-answering"
    figure_names = {"exact_match": "exact match", "f1": "F1 (words)", "loss": "loss"}
    headline = ("exact_match", "f1")

    def __post_init__(self) -> None:
        self.windows = {name: split.select_columns(["row", "places"]) for name, split in self.splits.items()}
        self.splits = self.splits.remove_columns(["row", "places"])
        super().__post_init__()

    def logits(self, model: nn.Module, batch: Batch) -> tuple[Tensor, Tensor]:
        """Scores of each token as the first and as the last of an answer, `(windows, length)`; lowest at padding."""
        others = (*LABELS, *CONTEXT)
        outputs = model(**{name: values for name, values in batch.items() if name not in others})
        padding, lowest = batch["attention_mask"] == 0, torch.finfo(torch.float32).min
        logits = outputs.start_logits, outputs.end_logits
        return tuple(scores.float().masked_fill(padding, lowest) for scores in logits)

    def loss(self, model: nn.Module, batch: Batch) -> Tensor:
        """The mean of the losses of first and last tokens. Padding has no part in it, whatever the model's class."""
        return span_losses(self.logits(model, batch), batch).mean()

    def count(self, batch: Batch) -> int:
        """The windows of a batch."""
        return len(batch["start_positions"])

    def measure(self, model: nn.Module, batch: Batch) -> Tensor:
        """For each window the loss, the score of no answer, and scores, first and last tokens of its best spans;
        tokens are numbered from the beginning of the context."""
        start, end = logits = self.logits(model, batch)
        places = torch.arange(start.shape[1], device=start.device)
        context_start, context_end, no_answer = (batch[name][:, None] for name in CONTEXT)
        allowed = (places >= context_start) & (places <= context_end)
        longest, count = self.args.max_answer_length, self.args.n_best_size
        scores, first, last = best_spans(start, end, allowed, longest, count)
        unanswered = start.gather(1, no_answer) + end.gather(1, no_answer)
        losses = span_losses(logits, batch)[:, None]
        return torch.cat([losses, unanswered, scores, first - context_start, last - context_start], dim=1)

    def evaluate(self, model: nn.Module, split: str = "validation") -> dict[str, float]:
        """Loss, exact match and F1 of a split."""
        self.evaluated = split
        return super().evaluate(model, split)

    def figures(self, columns: Tensor) -> dict[str, float]:
        """Mean loss of the windows, and exact match and F1 of the questions' answers."""
        rows = self.data.splits[self.evaluated]
        self.candidates = self.best_answers(columns.T, rows["context"])
        self.answers = [candidates[0]["text"] for candidates in self.candidates]
        scores = answer_scores(self.answers, [answers["text"] for answers in rows["answers"]])
        return {"loss": columns[0].mean().item(), **scores}

    def best_answers(self, measured: Tensor, contexts: list[str]) -> list[list[dict[str, Any]]]:
        """For each question its best answers over all windows, as texts with scores and probabilities, the best first.

        The score of no answer, whose text is empty, is that of the window where it is the least. It comes first if it
        is better by more than `null_score_diff_threshold`, and is left out if all questions have answers.
        """
        found: list[dict[tuple[int, int], float]] = [{} for _ in contexts]
        unanswered = [torch.inf] * len(contexts)
        for window, values in zip(self.windows[self.evaluated], measured, strict=True):
            row, places = window["row"], window["places"]
            unanswered[row] = min(unanswered[row], values[1].item())
            for score, first, last in values[2:].unflatten(0, (3, -1)).T.tolist():
                if score > -torch.inf:
                    span = places[int(first)][0], places[int(last)][1]
                    found[row][span] = max(score, found[row].get(span, -torch.inf))
        answers = []
        for context, spans, null_score in zip(contexts, found, unanswered, strict=True):
            by_score = sorted(spans.items(), key=lambda item: -item[1])[: self.args.n_best_size]
            best = [{"text": context[start:end], "score": score} for (start, end), score in by_score]
            if self.may_be_unanswered or not best:
                is_first = not best or null_score - best[0]["score"] > self.args.null_score_diff_threshold
                best.insert(0 if is_first else len(best), {"text": "", "score": null_score})
            chances = torch.tensor([answer["score"] for answer in best]).softmax(0).tolist()
            answers.append([answer | {"probability": chance} for answer, chance in zip(best, chances, strict=True)])
        return answers

    def final_figures(self, best: nn.Module, state: TrainState) -> dict[str, float]:
        """Figures of the final split, whose answers are written to files, by the questions' ids."""
        split = self.final_split
        figures = self.evaluate(best, split)
        if self.accelerator.is_main_process:
            ids, folder = self.data.splits[split]["id"], Path(self.args.output_dir)
            files = {"predictions": self.answers, "nbest_predictions": self.candidates}
            for name, values in with_prefix(files, split).items():
                text = json.dumps(dict(zip(ids, values, strict=True)), indent=2, ensure_ascii=False)
                (folder / f"{name}.json").write_text(text + "\n", encoding="utf-8")
        return with_prefix(figures, split)


def span_losses(logits: tuple[Tensor, Tensor], batch: Batch) -> Tensor:
    """The loss of each window, the mean of those of its first and its last token, `(windows,)`."""
    pairs = zip(logits, LABELS, strict=True)
    return sum(F.cross_entropy(scores, batch[name], reduction="none") for scores, name in pairs) / 2
