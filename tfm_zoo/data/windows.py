"""A question and its context as a model reads them: windows of tokens, which overlap where a context is long; and the
best spans in them, for answers."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor
from transformers import PreTrainedTokenizerBase

Place = tuple[int, int]  # where characters of a context begin and end


class Window(NamedTuple):
    """What a model reads at a time."""

    inputs: dict[str, list[int]]  # `input_ids`, `attention_mask`, ..., each `(length,)`
    places: list[Place | None]  # of each token of the context, or of its word; `None` for any other token


@dataclass(frozen=True)
class Windows:
    """How questions and contexts become windows.

    A question stands before its context, or behind it if the tokenizer pads at the left, as models are trained.
    """

    tokenizer: PreTrainedTokenizerBase  # in Rust or in Python
    max_seq_len: int  # the most tokens in a window, the question and special tokens among them
    #: How many tokens of the context a window shares with the next, where the question leaves room for more than that.
    #: By default 128, or half of `max_seq_len` if that is less.
    doc_stride: int | None = None
    max_question_len: int = 64  # a question is cut after this many tokens
    align_to_words: bool = True  # places are those of words (always, if the tokenizer is in Python)
    padding: Any = False  # as in the tokenizer's call

    def __post_init__(self):
        if self.doc_stride is not None and not 0 <= self.doc_stride <= self.max_seq_len:
            windows = f"windows of max_seq_len={self.max_seq_len} tokens"
            raise ValueError(f"doc_stride={self.doc_stride} is not a number of tokens that {windows} share.")
        if self.max_question_len < 1:
            raise ValueError(f"max_question_len={self.max_question_len}: at least 1 is needed.")

    def of(self, question: str, context: str) -> list[Window]:
        """All windows of a context.

        Raises:
            ValueError: if the question leaves no room for the context.
        """
        return list((self.cut_by_rust if self.tokenizer.is_fast else self.cut_in_python)(question, context))

    @property
    def question_first(self) -> bool:
        return self.tokenizer.padding_side == "right"

    def room_beside(self, question_length: int) -> tuple[int, int]:
        """How many tokens of the context a window has beside a question, and how many of those it shares."""
        special = self.tokenizer.num_special_tokens_to_add(pair=True)
        room = self.max_seq_len - question_length - special
        if room < 1:
            others = f"a question of {question_length} tokens and {special} special tokens"
            raise ValueError(f"max_seq_len={self.max_seq_len} leaves no room for the context beside {others}.")
        shared = min(self.max_seq_len // 2, 128) if self.doc_stride is None else self.doc_stride
        return room, min(shared, room - 1)

    def cut_by_rust(self, question: str, context: str) -> Iterator[Window]:
        """The windows of a tokenizer in Rust, which cuts by itself and knows the place of every token."""
        offsets = self.tokenizer(question, add_special_tokens=False, return_offsets_mapping=True)["offset_mapping"]
        if len(offsets) > self.max_question_len:
            offsets = offsets[: self.max_question_len]
            question = question[: offsets[-1][1]]
        _, shared = self.room_beside(len(offsets))
        encoded = self.tokenizer(
            *((question, context) if self.question_first else (context, question)),
            padding=self.padding,
            truncation="only_second" if self.question_first else "only_first",
            max_length=self.max_seq_len,
            stride=shared,
            return_overflowing_tokens=True,
            return_offsets_mapping=True,
        )
        context_number = int(self.question_first)
        for number, offsets in enumerate(encoded["offset_mapping"]):
            texts = encoded.sequence_ids(number)
            places = [offset if text == context_number else None for offset, text in zip(offsets, texts, strict=True)]
            if self.align_to_words:
                places = places_of_words(places, encoded.word_ids(number))
            yield Window({name: encoded[name][number] for name in self.input_names(encoded)}, places)

    def cut_in_python(self, question: str, context: str) -> Iterator[Window]:
        """The windows of a tokenizer in Python, which knows no places: each word is tokenized by itself."""
        question_ids = self.ids(question)[: self.max_question_len]
        room, shared = self.room_beside(len(question_ids))
        words = [(self.ids(word[0]), word.span()) for word in re.finditer(r"\S+", context)]
        ids = [index for word_ids, _ in words for index in word_ids]
        places = [place for word_ids, place in words for _ in word_ids]
        question_places = [None] * len(question_ids)
        for start in range(0, max(len(ids) - room, 0) + room - shared, room - shared):
            part, part_places = ids[start : start + room], places[start : start + room]
            pair = (question_ids, part) if self.question_first else (part, question_ids)
            encoded = self.tokenizer.prepare_for_model(
                *pair, padding=self.padding, max_length=self.max_seq_len, return_special_tokens_mask=True
            )
            in_order = iter(question_places + part_places if self.question_first else part_places + question_places)
            token_places = [None if special else next(in_order) for special in encoded["special_tokens_mask"]]
            yield Window({name: encoded[name] for name in self.input_names(encoded)}, token_places)

    def ids(self, text: str) -> list[int]:
        return self.tokenizer.convert_tokens_to_ids(self.tokenizer.tokenize(text))

    def input_names(self, encoded: dict[str, Any]) -> list[str]:
        return [name for name in self.tokenizer.model_input_names if name in encoded]


def places_of_words(places: list[Place | None], words: list[int | None]) -> list[Place | None]:
    """For each token of the context the place of its word, as far as the word is in the window."""
    word_places: dict[int, Place] = {}
    for place, word in zip(places, words, strict=True):
        if place is not None and word is not None:
            word_places[word] = (word_places.get(word, place)[0], place[1])
    return [place and word_places.get(word, place) for place, word in zip(places, words, strict=True)]


def best_spans(
    start_logits: Tensor, end_logits: Tensor, allowed: Tensor, longest: int, count: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Scores, first and last tokens of the best spans of each window, each `(windows, count)`, the best first; a score
    is -inf where there are no more spans.

    A span's score is the sum of its `start_logits` and `end_logits`, `(windows, length)`. It begins and ends where
    `allowed`, `(windows, length)`, is true, and has at most `longest` tokens.
    """
    length = start_logits.shape[1]
    spans = allowed.new_ones(length, length).triu().tril(longest - 1) & allowed[:, :, None] & allowed[:, None, :]
    scores = (start_logits[:, :, None] + end_logits[:, None, :]).masked_fill(~spans, -torch.inf).flatten(1)
    best, places = scores.topk(min(count, scores.shape[1]))
    missing = (0, count - best.shape[1])
    places = F.pad(places, missing)
    return F.pad(best, missing, value=-torch.inf), places // length, places % length
