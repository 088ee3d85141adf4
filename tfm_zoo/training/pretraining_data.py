"""What an encoder is pre-trained on: documents as pairs of segments, or as segments, with tokens masked."""

from collections.abc import Callable, Iterator, Sequence
from itertools import chain, islice, pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from tfm_zoo.models.inputs import IGNORED
from tfm_zoo.training.masking import Masking
from tfm_zoo.training.sentence_pairs import Text, join, segments, sentence_pairs
from tfm_zoo.training.text_sources import CHARACTERS

SENTENCES = 500  # that are tokenized at once: what the tokenizer tells of them takes much more room than their ids


class PretrainingExamples:
    """Makes documents into examples, for [`Stream`]: `[CLS] A [SEP] B [SEP]`, or `[CLS] A [SEP]`, partly masked.

    An example has `input_ids`, `labels` and, where the model takes them, `token_type_ids`, all `(tokens,)`; a pair also
    `next_sentence_label`, 0 where B follows A and 1 where it does not.

    Args:
        split: the sentences of a document, for pairs.
        masking: what is masked, and how.
        max_length: tokens of an example at most, special ones included.
        pairs: pairs for next-sentence prediction; false: segments of one document.
        short_probability: share of the pairs that are made shorter, as those of a task may be.
        whole_words: mask all tokens of a word or none.

    Raises:
        ValueError: if `max_length` leaves no room, or the tokenizer has no token to begin with, or to separate.
    """

    def __init__(
        self,
        tokenizer: PreTrainedTokenizerBase,
        split: Callable[[str], list[str]],
        masking: Masking,
        max_length: int,
        pairs: bool = True,
        short_probability: float = 0.1,
        whole_words: bool = False,
    ):
        self.tokenizer, self.split, self.masking = tokenizer, split, masking
        self.pairs, self.short_probability, self.whole_words = pairs, short_probability, whole_words
        self.has_types = "token_type_ids" in tokenizer.model_input_names
        for name in ("cls_token", "sep_token"):
            if getattr(tokenizer, name) is None:
                raise ValueError(f"tokenizer {tokenizer.name_or_path!r} has no {name}, which an encoder needs")
        if whole_words and not tokenizer.is_fast:
            raise ValueError(f"whole_word_mask needs a fast tokenizer, which {tokenizer.name_or_path!r} has not")
        self.cls, self.sep = (np.array([[i], [1]]) for i in (tokenizer.cls_token_id, tokenizer.sep_token_id))
        shape = ("[CLS]", "A", "[SEP]", "B", "[SEP]") if pairs else ("[CLS]", "A", "[SEP]")
        if max_length < len(shape):
            raise ValueError(f"max_seq_length must be at least {len(shape)} ({' '.join(shape)}), not {max_length}")
        self.room = max_length - (3 if pairs else 2)

    @property
    def needs(self) -> str:
        """What documents must have so that there are examples."""
        if not self.pairs:
            return "a token"
        return (
            "two documents, and of one of them two sentences (or --next_sentence_prediction false); documents of"
            f" {CHARACTERS:,} characters or more are read by themselves, and give no pairs: cut them into shorter ones"
        )

    def __call__(self, documents: Sequence[str], rng: np.random.Generator) -> list[dict[str, Any]]:
        """The examples of a block of documents, in the documents' order."""
        if self.pairs and len(documents) < 2:  # before work in vain
            return []
        encoded = self.encode(documents)
        if self.pairs:
            pairs = sentence_pairs(encoded, self.room, self.short_probability, rng)
            made = [self._pair(*pair) for pair in pairs]
        else:
            made = [self._segment(text) for text in segments(encoded, self.room)]
        if not made:
            return []
        texts, others = zip(*made, strict=True)
        ids, labels = self.masking(*join(texts), rng)
        ends = np.cumsum([text.shape[1] for text in texts])[:-1]
        rows = zip(np.split(ids, ends), np.split(labels, ends), others, strict=True)
        return [{"input_ids": ids, "labels": labels, **other} for ids, labels, other in rows]

    def encode(self, documents: Sequence[str]) -> list[list[Text]]:
        """The tokens of each document's sentences, or of all at once; what has none is left out."""
        sentences = [self.split(document) if self.pairs else [document] for document in documents]
        flat = list(chain.from_iterable(sentences))
        starts = range(0, len(flat), SENTENCES)
        texts = chain.from_iterable(self._tokenize(flat[start : start + SENTENCES]) for start in starts)
        encoded = ([text for text in islice(texts, len(own)) if text.shape[1]] for own in sentences)
        return [document for document in encoded if document]

    def _tokenize(self, sentences: list[str]) -> Iterator[Text]:
        options = {"return_attention_mask": False, "return_token_type_ids": False, "verbose": False}
        encoding = self.tokenizer(sentences, add_special_tokens=False, **options)
        for index, ids in enumerate(encoding["input_ids"]):
            begins = [1] * len(ids)
            if self.whole_words:
                words = encoding.word_ids(index)
                begins[1:] = (word != before for before, word in pairwise(words))
            yield np.array([ids, begins], dtype=np.int32)

    def _pair(self, first: Text, second: Text, is_random: bool) -> tuple[Text, dict[str, Any]]:
        types = np.repeat([0, 1], [first.shape[1] + 2, second.shape[1] + 1])
        text = join([self.cls, first, self.sep, second, self.sep])
        return text, {"token_type_ids": types, "next_sentence_label": int(is_random)}

    def _segment(self, segment: Text) -> tuple[Text, dict[str, Any]]:
        text = join([self.cls, segment, self.sep])
        return text, {"token_type_ids": np.zeros(text.shape[1], dtype=int)} if self.has_types else {}


class Padding:
    """Makes examples one batch, of the longest one's length: arrays `(tokens,)` to tensors `(batch, length)`.

    What transformers' `DataCollatorForTokenClassification` does, thirty times as fast: that one goes through lists,
    which took as long as training a small model.

    Args:
        multiple_of: the length is a multiple of this.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase, multiple_of: int = 1):
        self.multiple_of, self.is_left = multiple_of, tokenizer.padding_side == "left"
        self.fillings = {
            "input_ids": tokenizer.pad_token_id,
            "token_type_ids": tokenizer.pad_token_type_id,
            "labels": IGNORED,
        }

    def __call__(self, examples: Sequence[dict[str, Any]]) -> dict[str, Tensor]:
        lengths = np.array([[len(example["input_ids"])] for example in examples])
        places = np.arange(-(-lengths.max() // self.multiple_of) * self.multiple_of)
        is_real = (places[::-1] if self.is_left else places) < lengths
        batch = {"attention_mask": is_real.astype(np.int64)}
        for name in examples[0]:
            values = [example[name] for example in examples]
            if name in self.fillings:
                batch[name] = np.full(is_real.shape, self.fillings[name], dtype=np.int64)
                batch[name][is_real] = np.concatenate(values)
            else:
                batch[name] = np.array(values)
        return {name: torch.from_numpy(values) for name, values in batch.items()}
