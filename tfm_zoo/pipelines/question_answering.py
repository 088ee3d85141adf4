"""The pipeline that finds the answer to a question in a text."""

from collections.abc import Iterable, Iterator, Mapping
from types import GeneratorType
from typing import Any

import torch
from torch.utils.data import Dataset
from transformers import PreTrainedModel
from transformers.pipelines.base import ChunkPipeline

from ..converters.token_positions import positions_of
from ..data.windows import Windows
from .base import PadsAtRight, without_none
from .spans import likeliest_spans


class QuestionAnsweringPipeline(PadsAtRight, ChunkPipeline):
    """Answers as spans of a context: `pipe(question="Who saw it?", context="The actor saw it.")`.

    A call takes `question` and `context`, each a text or a list of texts (a single text goes with every text of the
    other); or an example `{"question": ..., "context": ...}`, which may hold more; or a list, a data set or a generator
    of examples. By name:

    - `top_k` (1): the most answers. `max_answer_len` (15): the most tokens in one.
    - `handle_impossible_answer` (false): an empty text may be returned, for "there is no answer". Its score is that of
      the tokenizer's CLS token, the least of all windows.
    - `max_seq_len` (384, or what tokenizer and model take), `doc_stride`, `max_question_len` (64), `align_to_words`
      (true), `padding`: how a long context is cut into windows, in tokens. See `Windows`.

    It returns for an example an answer `{"score": ..., "start": ..., "end": ..., "answer": ...}`: a probability, two
    numbers of characters in the context, and the text between them; a list of answers if there are several. For several
    examples it returns a list of these, for a data set or a generator an iterator. Answers of the same text are one,
    with the sum of their scores in the window where that is highest.
    """

    default_input_names = "question,context"

    def __init__(self, model: PreTrainedModel, *args, task: str = "", **kwargs):
        super().__init__(model, *args, task="question-answering", **kwargs)

    def __call__(self, *examples: Any, **arguments: Any) -> Any:
        given = examples or [arguments.pop(name) for name in ("X", "data") if name in arguments]
        if given and isinstance(given[0], (Dataset, GeneratorType)):
            return super().__call__(given[0], **arguments)
        if not given:
            given = [pairs(arguments.pop("question", None), arguments.pop("context", None))]
        elif len(given) == 2 and all(isinstance(text, str) for text in given):
            given = [pairs(*given)]
        listed = given[0] if len(given) == 1 else given
        listed = [listed] if isinstance(listed, Mapping | str) or not isinstance(listed, Iterable) else listed
        checked = [as_example(example) for example in listed]
        if not checked:
            return []
        return super().__call__(checked[0] if len(checked) == 1 else checked, **arguments)

    def _sanitize_parameters(
        self,
        top_k: int | None = None,
        max_answer_len: int | None = None,
        handle_impossible_answer: bool | None = None,
        align_to_words: bool | None = None,
        **window_options: Any,
    ) -> tuple[dict, dict, dict]:
        answer_options = {"top_k": top_k, "max_answer_len": max_answer_len}
        for name, value in answer_options.items():
            if value is not None and value < 1:
                raise ValueError(f"{name}={value}: at least 1 is needed.")
        if unknown := window_options.keys() - {"doc_stride", "max_seq_len", "max_question_len", "padding"}:
            raise ValueError(f"question-answering takes no {', '.join(sorted(unknown))}.")
        if handle_impossible_answer and self.tokenizer.cls_token_id is None:
            raise ValueError(
                "handle_impossible_answer=True needs a tokenizer with a CLS token, which stands for no answer."
            )
        answer_options["handle_impossible_answer"] = handle_impossible_answer
        both = {"align_to_words": align_to_words}
        return without_none(window_options | both), {}, without_none(answer_options | both)

    def preprocess(self, example: Any, max_seq_len: int | None = None, **options: Any) -> Iterator[dict[str, Any]]:
        example = as_example(example)
        if max_seq_len is None:
            max_seq_len = min(self.tokenizer.model_max_length, positions_of(self.model.config) or 384, 384)
        windows = Windows(self.tokenizer, max_seq_len, **options).of(**example)
        for number, window in enumerate(windows, start=1):
            # The base class pads batches: `p_mask` with 1, all else with 0.
            values = window.inputs | {
                "p_mask": [int(place is None) for place in window.places],
                "is_null": [int(index == self.tokenizer.cls_token_id) for index in window.inputs["input_ids"]],
                "places": [place or (0, 0) for place in window.places],
            }
            tensors = {name: torch.tensor([row]) for name, row in values.items()}
            yield {**tensors, "example": example, "is_last": number == len(windows)}

    def _forward(self, inputs: dict[str, Any]) -> dict[str, Any]:
        names = [name for name in self.tokenizer.model_input_names if name in inputs]
        output = self.model(**{name: inputs.pop(name) for name in names})
        if "start_logits" not in output:
            raise ValueError(
                "question-answering needs a model with a head for it, such as TfmBertForQuestionAnswering, "
                f"and not {type(self.model).__name__}."
            )
        return {"start": output["start_logits"], "end": output["end_logits"], **inputs}

    def postprocess(
        self,
        outputs: list[dict[str, Any]],
        top_k: int = 1,
        max_answer_len: int = 15,
        handle_impossible_answer: bool = False,
        align_to_words: bool = True,
    ) -> dict[str, Any] | list[dict[str, Any]]:
        # Several spans may become the same words, and so the same answer.
        count = top_k * 2 + 10 if align_to_words else top_k
        best: dict[str, dict[str, Any]] = {}
        least_null = 1.0
        for output in outputs:
            found, null = answers_of(output, max_answer_len, count)
            least_null = min(least_null, null)
            for text, answer in found.items():
                if text not in best or best[text]["score"] < answer["score"]:
                    best[text] = answer
        answers = list(best.values())
        if handle_impossible_answer or not answers:
            answers.append(
                {"score": least_null if handle_impossible_answer else 0.0, "start": 0, "end": 0, "answer": ""}
            )
        answers = sorted(answers, key=lambda answer: answer["score"], reverse=True)[:top_k]
        return answers[0] if len(answers) == 1 else answers


def answers_of(output: dict[str, Any], max_answer_len: int, count: int) -> tuple[dict[str, dict[str, Any]], float]:
    """The answers in one window, by their texts in small letters; and the probability that there is no answer."""
    context, places = output["example"]["context"], output["places"][0].tolist()
    allowed, null = output["p_mask"][0] == 0, output["is_null"][0] == 1
    spans, no_answer = likeliest_spans(output["start"][0], output["end"][0], allowed, null, max_answer_len, count)
    answers: dict[str, dict[str, Any]] = {}
    for first, last, score in spans:
        start, end = places[first][0], places[last][1]
        answer = {"score": 0.0, "start": start, "end": end, "answer": context[start:end]}
        answers.setdefault(answer["answer"].lower(), answer)["score"] += score
    return answers, no_answer


def as_example(example: Any) -> dict[str, str]:
    """Question and context of an example, which is checked. (transformers 4 had a `SquadExample` with other names.)"""
    fields = example if isinstance(example, Mapping) else getattr(example, "__dict__", {})
    texts = {name: fields.get(name, fields.get(f"{name}_text")) for name in ("question", "context")}
    for name, text in texts.items():
        if not isinstance(text, str) or not text:
            raise ValueError(
                f"{name}={text!r} in {example!r}: an example is {{'question': a text, 'context': a text}}."
            )
    return texts


def pairs(question: str | list[str] | None, context: str | list[str] | None) -> list[dict[str, Any]]:
    """An example for each question and context; a single one goes with all of the other."""
    questions, contexts = (
        [texts] if isinstance(texts, str) or texts is None else list(texts) for texts in (question, context)
    )
    count = max(len(questions), len(contexts))
    if {len(questions), len(contexts)} - {1, count}:
        raise ValueError(f"{len(questions)} questions do not go with {len(contexts)} contexts: pass as many, or one.")
    questions, contexts = (texts * (count if len(texts) == 1 else 1) for texts in (questions, contexts))
    return [{"question": text, "context": source} for text, source in zip(questions, contexts, strict=True)]
