"""Examples to pre-train an encoder on: pairs of segments, or single segments, with tokens masked."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice, pairwise
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from transformers import PreTrainedTokenizerBase

from tfm_zoo.models.losses import IGNORED
from tfm_zoo.training.streaming.sentences import Text, join, segments, sentence_pairs
from tfm_zoo.training.streaming.texts import CHARACTERS

SENTENCES = 500  # tokenized at once: a tokenizer's full output takes much more memory than the ids
MASKED, RANDOM = 0.8, 0.1  # shares of the chosen tokens that [MASK] or another token replaces


class Masking:
    """Chooses tokens to predict (Devlin et al. 2019): `[MASK]` replaces 80 %, another token 10 %, and 10 % stay.

    Each word, or each token, is chosen independently with the same probability. Special tokens are neither chosen nor
    put in another's place. (transformers' `DataCollatorForLanguageModeling` draws from one generator for all batches,
    so that its masks depend on the number of processes and on where they started, and it may replace a token by a
    special one.)
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase, probability: float = 0.15):
        if not 0 < probability < 1:
            raise ValueError(f"mlm_probability must be above 0 and below 1, not {probability}")
        if tokenizer.mask_token_id is None:
            raise ValueError(f"tokenizer {tokenizer.name_or_path!r} has no mask token, which a masked model needs")
        self.probability, self.mask = probability, tokenizer.mask_token_id
        self.is_special = np.zeros(len(tokenizer), dtype=bool)
        self.is_special[tokenizer.all_special_ids] = True
        self.ordinary = np.flatnonzero(~self.is_special)

    def __call__(self, ids: np.ndarray, begins: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """The ids that the model reads, and its labels: -100 for tokens that are not predicted.

        All are `(tokens,)`, of one example or of many in a row. `begins` is true where a unit begins that is masked as
        a whole: a word, or each token.
        """
        word = np.cumsum(begins) - begins[0]
        chosen = (rng.random(word[-1] + 1) < self.probability)[word] & ~self.is_special[ids]
        draw = rng.random(len(ids))
        replaced = chosen & (draw >= 1 - RANDOM)
        seen = np.where(chosen & (draw < MASKED), self.mask, ids)
        seen[replaced] = rng.choice(self.ordinary, np.count_nonzero(replaced))
        return seen, np.where(chosen, ids, IGNORED)


@dataclass
class PretrainingExamples:
    """Turns documents into examples for a [`Stream`]: `[CLS] A [SEP] B [SEP]`, or `[CLS] A [SEP]`, partly masked.

    An example has `input_ids` and `labels`, both `(tokens,)`. A pair also has `token_type_ids` and
    `next_sentence_label`: 0 if B follows A, 1 if not. A single segment has `token_type_ids` if the tokenizer has them.
    """

    tokenizer: PreTrainedTokenizerBase
    split: Callable[[str], list[str]]  # cuts a document into its sentences, for pairs
    masking: Masking  # chooses and hides the tokens to predict
    longest: int  # tokens of an example at most, special ones included
    pairs: bool = True  # pairs for next-sentence prediction; false: segments of one document
    short_probability: float = 0.1  # share of the pairs that are made shorter, as texts of a later task may be
    whole_words: bool = False  # mask all tokens of a word or none

    def __post_init__(self) -> None:
        tokenizer = self.tokenizer
        self.has_types = "token_type_ids" in tokenizer.model_input_names
        for name in ("cls_token", "sep_token"):
            if getattr(tokenizer, name) is None:
                raise ValueError(f"tokenizer {tokenizer.name_or_path!r} has no {name}, which an encoder needs")
        if self.whole_words and not tokenizer.is_fast:
            raise ValueError(f"whole_word_mask needs a fast tokenizer, which {tokenizer.name_or_path!r} has not")
        self.cls, self.sep = (np.array([[i], [1]]) for i in (tokenizer.cls_token_id, tokenizer.sep_token_id))
        shape = ("[CLS]", "A", "[SEP]", "B", "[SEP]") if self.pairs else ("[CLS]", "A", "[SEP]")
        if self.longest < len(shape):
            raise ValueError(f"max_seq_length must be at least {len(shape)} ({' '.join(shape)}), not {self.longest}")
        self.room = self.longest - (3 if self.pairs else 2)

    @property
    def needs(self) -> str:
        """What the documents must have for an example to be made, for messages."""
        if not self.pairs:
            return "a token"
        return (
            "two documents, and of one of them two sentences (or --next_sentence_prediction false); documents of"
            f" {CHARACTERS:,} characters or more are read by themselves, and give no pairs: cut them into shorter ones"
        )

    def __call__(self, documents: Sequence[str], rng: np.random.Generator) -> list[dict[str, Any]]:
        """The examples of a chunk of documents, in the documents' order."""
        if self.pairs and len(documents) < 2:
            return []
        encoded = self.encode(documents)
        texts: list[Text] = []
        others: list[dict[str, Any]] = []
        if self.pairs:
            for first, second, is_random in sentence_pairs(encoded, self.room, self.short_probability, rng):
                texts.append(join([self.cls, first, self.sep, second, self.sep]))
                types = np.repeat([0, 1], [first.shape[1] + 2, second.shape[1] + 1])
                others.append({"token_type_ids": types, "next_sentence_label": int(is_random)})
        else:
            for segment in segments(encoded, self.room):
                texts.append(join([self.cls, segment, self.sep]))
                others.append({"token_type_ids": np.zeros_like(texts[-1][0])} if self.has_types else {})
        if not texts:
            return []
        ids, labels = self.masking(*join(texts), rng)
        ends = np.cumsum([text.shape[1] for text in texts])[:-1]
        rows = zip(np.split(ids, ends), np.split(labels, ends), others, strict=True)
        return [{"input_ids": ids, "labels": labels, **other} for ids, labels, other in rows]

    def encode(self, documents: Sequence[str]) -> list[list[Text]]:
        """The tokens of each document's sentences, or of its whole text; texts without tokens are left out."""
        sentences = [self.split(document) if self.pairs else [document] for document in documents]
        texts = self.tokenize([*chain.from_iterable(sentences)])
        encoded = ([text for text in islice(texts, len(group)) if text.shape[1]] for group in sentences)
        return [document for document in encoded if document]

    def tokenize(self, texts: list[str]) -> Iterator[Text]:
        options = {"return_attention_mask": False, "return_token_type_ids": False, "verbose": False}
        for start in range(0, len(texts), SENTENCES):
            encoding = self.tokenizer(texts[start : start + SENTENCES], add_special_tokens=False, **options)
            for index, ids in enumerate(encoding["input_ids"]):
                units = encoding.word_ids(index) if self.whole_words else range(len(ids))
                begins = [True, *(unit != before for before, unit in pairwise(units))][: len(ids)]
                yield np.array([ids, begins], dtype=np.int32)


class Padding:
    """Pads examples, arrays `(tokens,)`, to a batch of the longest one's length, tensors `(batch, length)`. Labels may
    have a length of their own.

    It does what transformers' `DataCollatorForTokenClassification` does, thirty times as fast: through lists, padding
    took as long as training a small model. The length is a multiple of `pad_to_multiple_of`, if that is given.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase, pad_to_multiple_of: int | None = None):
        self.multiple_of, self.side = pad_to_multiple_of or 1, tokenizer.padding_side
        types, ids = tokenizer.pad_token_type_id, tokenizer.pad_token_id
        self.fillings = {"input_ids": ids, "token_type_ids": types, "labels": IGNORED}

    def __call__(self, examples: Sequence[dict[str, Any]]) -> dict[str, Tensor]:
        columns = {name: [torch.as_tensor(example[name]) for example in examples] for name in examples[0]}
        batch = {
            name: self.padded(rows, self.fillings[name]) if name in self.fillings else torch.stack(rows)
            for name, rows in columns.items()
        }
        return batch | {"attention_mask": self.padded([torch.ones_like(row) for row in columns["input_ids"]], 0)}

    def padded(self, rows: list[Tensor], filling: int) -> Tensor:
        """Rows of any lengths as one tensor, `(rows, length)`."""
        padded = pad_sequence(rows, batch_first=True, padding_value=filling, padding_side=self.side).long()
        gap = -padded.shape[1] % self.multiple_of
        return F.pad(padded, (gap, 0) if self.side == "left" else (0, gap), value=filling)
