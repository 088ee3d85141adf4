"""Pre-training of encoder-decoders by span corruption: they write what a text lacks (T5, Raffel et al. 2020)."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, count, takewhile
from typing import Any, ClassVar

import numpy as np
from transformers import PreTrainedTokenizerBase

from tfm_zoo.data.options import option
from tfm_zoo.training.models import longest_input
from tfm_zoo.training.new_models import new_tokenizer
from tfm_zoo.training.options import cap_lengths
from tfm_zoo.training.run import Run
from tfm_zoo.training.streaming.documents import DocumentOptions, load_documents, task_of_documents
from tfm_zoo.training.tasks.text_to_text import HEAD, TargetTask, new_seq2seq
from tfm_zoo.training.tokenizers import SENTINEL, bpe_with_sentinels


@dataclass(frozen=True)
class DenoisingOptions(DocumentOptions):
    """The options of span corruption. Defaults are T5's."""

    small_type: ClassVar = dict.fromkeys(("zoo", "native"), "tfm_encoder_decoder")
    #: as T5's: relative positions, no biases
    small_fields: ClassVar = {
        **DocumentOptions.small_fields,
        **{"hidden_size": 128, "num_attention_heads": 4, "hidden_dropout": 0.0},
        **{"position_embedding_type": "none", "relative_attention_num_buckets": 32, "scale_embedding": False},
        **{"norm_position": "pre", "norm_type": "rmsnorm", "attention_bias": False, "mlp_bias": False},
    }
    make_tokenizer: ClassVar = staticmethod(bpe_with_sentinels)

    max_seq_length: int = option(512, "Tokens that the model reads of an example, at most.", "max_length", at_least=3)
    noise_density: float = option(0.15, "Share of the tokens that are left out.", above=0, below=1)
    mean_noise_span_length: float = option(3.0, "Mean number of tokens of what is left out.", at_least=1)


@dataclass
class SpanCorruption:
    """Turns documents into examples for a `Stream`: `input_ids` and `labels`, `(tokens,)`, of pieces of documents.

    Of *Thank you for inviting me to your party last week* the model may read *Thank you <extra_id_0> me to your party
    <extra_id_1> week* and write *<extra_id_0> for inviting <extra_id_1> last <extra_id_2>*; both then end. As in T5,
    each piece loses the same share of its tokens in as many spans as give the mean length, at random places, but a
    piece begins with a kept token and ends with one that is left out.
    """

    tokenizer: PreTrainedTokenizerBase
    max_length: int  # tokens of `input_ids` at most
    noise_density: float = 0.15  # share of the tokens that are left out
    mean_noise_span_length: float = 3.0

    needs = "a text of two tokens"

    def __post_init__(self) -> None:
        tokenizer, known = self.tokenizer, self.tokenizer.get_vocab()
        if tokenizer.eos_token_id is None:
            raise ValueError(f"tokenizer {tokenizer.name_or_path!r} has no eos_token, which ends texts")
        ids = map(known.get, map(SENTINEL.format, count()))
        self.sentinels = np.array([*takewhile(lambda index: index is not None, ids)], dtype=np.int64)
        self.end = np.array([tokenizer.eos_token_id])
        self.room = next(size for size in count(2) if self.lengths(size + 1)[0] > self.max_length)
        self.longest = max(self.max_length, self.lengths(self.room)[1])
        needed = self.divided(self.room)[1] + 1
        if needed > len(self.sentinels):
            has = f"tokenizer {tokenizer.name_or_path!r} has {len(self.sentinels)} sentinels (<extra_id_0>, ...)"
            raise ValueError(f"{has}, and max_seq_length {self.max_length} needs {needed}")

    def divided(self, size: int) -> tuple[int, int]:
        """How many of `size` tokens are left out, and in how many spans."""
        left_out = min(max(round(size * self.noise_density), 1), size - 1)
        spans = min(max(round(left_out / self.mean_noise_span_length), 1), left_out, size - left_out)
        return left_out, spans

    def lengths(self, size: int) -> tuple[int, int]:
        """The tokens that the model reads, and those that it writes, of a piece of `size` tokens."""
        left_out, spans = self.divided(size)
        return size - left_out + spans + 1, left_out + spans + 2

    def __call__(self, documents: Sequence[str], rng: np.random.Generator) -> list[dict[str, Any]]:
        """The examples of a chunk of documents, in the documents' order."""
        return [self.corrupted(piece, rng) for piece in self.pieces(documents)]

    def pieces(self, documents: Sequence[str]) -> Iterator[np.ndarray]:
        """Each document's tokens in pieces of one size; the last may be shorter, but a single token is not a piece."""
        options = {"return_attention_mask": False, "return_token_type_ids": False, "verbose": False}
        for ids in self.tokenizer([*documents], add_special_tokens=False, **options)["input_ids"]:
            starts = range(0, len(ids) - 1, self.room)
            yield from (np.array(ids[start : start + self.room]) for start in starts)

    def corrupted(self, ids: np.ndarray, rng: np.random.Generator) -> dict[str, Any]:
        """The example of a piece, `(tokens,)`."""
        left_out, spans = self.divided(len(ids))
        sizes = np.stack([random_parts(len(ids) - left_out, spans, rng), random_parts(left_out, spans, rng)], axis=1)
        parts = np.split(ids, np.cumsum(sizes)[:-1])  # kept, left out, kept, left out, ...
        sentinels = np.split(self.sentinels[: spans + 1], spans + 1)
        seen = chain.from_iterable(zip(parts[::2], sentinels, strict=False))
        written = chain.from_iterable(zip(sentinels, parts[1::2], strict=False))
        labels = np.concatenate([*written, sentinels[-1], self.end])
        return {"input_ids": np.concatenate([*seen, self.end]), "labels": labels.tolist()}


def random_parts(total: int, parts: int, rng: np.random.Generator) -> np.ndarray:
    """A number as a sum of `parts` numbers of at least 1, `(parts,)`; each way to divide it has the same chance."""
    cuts = np.sort(rng.choice(total - 1, parts - 1, replace=False)) + 1
    return np.diff(cuts, prepend=0, append=total)


@dataclass(kw_only=True)
class DenoisingTask(TargetTask):
    """An encoder-decoder learns to write the spans that texts lack."""

    pipeline_tag = "text2text-generation"

    @property
    def example(self) -> dict[str, Any]:
        """A short one, for the card."""
        by_length = sorted(self.splits["validation"], key=lambda example: len(example["input_ids"]))
        return by_length[len(by_length) // 4]


def load_task(run: Run) -> DenoisingTask:
    args = run.args
    with run.accelerator.main_process_first():  # it downloads; the others read what it left in the cache
        documents = load_documents(args)
        if args.is_new:
            tokenizer = new_tokenizer(args, documents.train.first_texts())
            model = new_seq2seq(args, tokenizer, "span")
        else:
            model, tokenizer = HEAD.load(args)
    longest = longest_input(model.config, tokenizer)
    args = cap_lengths(args, longest, "max_seq_length")
    examples = SpanCorruption(tokenizer, args.max_seq_length, args.noise_density, args.mean_noise_span_length)
    if examples.longest > longest:
        raise ValueError(f"noise_density {args.noise_density}: {examples.longest} tokens to write, at most {longest}")
    return task_of_documents(DenoisingTask, replace(run, args=args), documents, examples, model, tokenizer)
