"""Running text for language models: documents, joined and cut into blocks."""

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from datasets import Dataset, DatasetDict
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from tfm_zoo.models.losses import IGNORED
from tfm_zoo.training import generated
from tfm_zoo.training.arguments import option
from tfm_zoo.training.language_modeling.conversations import Conversations, load_conversations
from tfm_zoo.training.sources import StreamedArguments, checked_texts, digest, find_columns, load_source, text_column
from tfm_zoo.training.splits import Data, by_role
from tfm_zoo.training.text_sources import TextSource, hold_out
from tfm_zoo.training.tokenizers import TOKENIZER_TEXT
from tfm_zoo.training.wording import counted

#: characters to validate on: the first of a stream, or of its validation split
HELD_OUT = 500_000


@dataclass(frozen=True)
class CorpusArguments(StreamedArguments):
    """Where the texts are, and how they become blocks."""

    built_in: ClassVar = staticmethod(generated.generated_reviews)
    built_in_note: ClassVar = "The text is generated, from templates. It tests the machinery alone."

    train_file: str | None = option(None, "A text file (one document), CSV, TSV, JSON (lines) or Parquet.")
    messages_column_name: str | None = option(None, "Column of conversations, lists of messages; default: 'messages'.")
    chat_template_path: str | None = option(None, "Jinja file of the chat template; default: that of the tokenizer.")
    max_train_samples: int | None = option(None, "Use this many training blocks, the first ones.", at_least=1)
    block_size: int | None = option(None, "Tokens per block; default: what the model takes, at most 1024.", at_least=2)
    document_separator: str | None = option(
        None, "Text between documents, such as a line break if each row is a line; default: the end-of-text token."
    )


@dataclass
class Joining:
    """Turns documents into token ids, which end with the separator."""

    tokenizer: PreTrainedTokenizerBase
    separator: str | None = None  # text between documents; None: the tokenizer's end of text
    single: bool = False  # whether there is only one document, which needs no separator

    def __post_init__(self) -> None:
        end, name = self.tokenizer.eos_token_id, self.tokenizer.name_or_path
        if self.separator is None and end is None and not self.single:
            raise ValueError(f"tokenizer {name!r} has no end-of-text token: give a document_separator")
        self.separator_ids = [] if end is None else [end]
        if self.separator is not None:
            self.separator_ids = self.tokenizer(self.separator, add_special_tokens=False)["input_ids"]

    def __call__(self, texts: list[str]) -> list[list[int]]:
        ids, end = self.tokenizer(texts, verbose=False)["input_ids"], self.separator_ids
        return [row if end and row[-len(end) :] == end else row + end for row in ids]


@dataclass
class Corpus(Data):
    """Splits with documents in the column "text"; the training split may be a stream instead."""

    stream: TextSource | None = None

    def texts(self) -> Iterator[str]:
        """Texts to make a tokenizer from: the training documents, or some of a stream. Read when iterated."""
        yield from self.stream.first_texts(TOKENIZER_TEXT) if self.stream else self.splits["train"]["text"]

    def encode(self, tokenizer: PreTrainedTokenizerBase, args: CorpusArguments) -> dict[str, Tensor]:
        """Each split as one row of token ids, `(tokens,)`: its documents, joined (see [`Joining`])."""
        single = not self.stream and max(map(len, self.splits.values())) == 1
        join = Joining(tokenizer, args.document_separator, single)
        options = {"remove_columns": "text", "num_proc": args.preprocessing_num_workers}
        splits = self.splits.map(lambda rows: {"input_ids": join(rows["text"])}, batched=True, **options)
        encoded = {}
        for name, split in splits.items():
            encoded[name] = in_a_row(split)
            if len(encoded[name]) < 2:
                raise ValueError(f"split {name!r} holds {counted(len(encoded[name]), 'token')}: too few to predict any")
        return encoded


@dataclass(eq=False)
class Blocks(torch.utils.data.Dataset):
    """A row of tokens cut into blocks of one size: `input_ids` and `labels`, both `(block_size,)`.

    Every token counts: the last block is filled up, with labels that the loss ignores. The filling comes after all
    tokens, where a causal model does not see it, and needs no attention mask. A block may hold several documents or a
    part of one; tokens after an end of text see those before it.
    """

    tokens: Tensor  # `(tokens,)`, at least 2
    block_size: int  # tokens of a block; the first of them is not predicted
    filling: int = 0  # the token that fills up the last block
    limit: int | None = None  # blocks at most
    multiple_of: int = 1  # blocks of filling are added until there is a multiple of this, for processes to share evenly

    def __post_init__(self) -> None:
        size = -(-(len(self.tokens) - 1) // self.block_size)  # a last block of a single token would predict nothing
        self.size = min(size, self.limit or size)
        self.tokens = self.tokens[: self.size * self.block_size]
        self.padded_size = -(-self.size // self.multiple_of) * self.multiple_of

    def __len__(self) -> int:
        return self.padded_size

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        tokens = self.tokens[index * self.block_size : (index + 1) * self.block_size].long()
        gap = (0, self.block_size - len(tokens))
        return {"input_ids": F.pad(tokens, gap, value=self.filling), "labels": F.pad(tokens, gap, value=IGNORED)}


@dataclass
class StreamedBlocks:
    """Turns the documents that a [`Stream`] reads together into [`Blocks`], which hold all of their tokens."""

    join: Joining
    blocks: Callable[[Tensor], Blocks]

    def __call__(self, documents: list[str], rng: np.random.Generator) -> list[dict[str, np.ndarray]]:
        """Blocks as arrays: as a tensor, each would need an open file on its way from a worker."""
        tokens = np.concatenate([np.array(ids, dtype=np.int32) for ids in self.join(documents)])
        blocks = self.blocks(torch.from_numpy(tokens))
        return [{name: row.numpy() for name, row in blocks[index].items()} for index in range(len(blocks))]


def load_corpus(args: CorpusArguments) -> Corpus | Conversations:
    """Load and check the texts, or the conversations."""
    raw = load_source(args)
    if args.is_generated:
        raw = {"train": raw["train"]}  # the other splits have words of their own, which a language model cannot know
    rows, own_splits, notes = by_role(raw, args)
    messages = args.messages_column_name
    if messages or (not args.text_column_name and "messages" in (rows["train"].column_names or ())):
        (messages,) = find_columns(rows["train"], messages, [["messages"]], "messages_column_name")
        if args.streaming:
            raise ValueError(f"column {messages!r} holds conversations, which are read into memory: do not stream it")
        return load_conversations(rows, messages, args.validation_split_percentage / 100, own_splits, notes)
    column = text_column(rows["train"], args.text_column_name)
    if args.streaming:
        sources = {role: TextSource(split.select_columns(column), column, breaks=False) for role, split in rows.items()}
        train, held_out = hold_out(sources, notes, HELD_OUT)
        return Corpus(DatasetDict(validation=held_out), own_splits, notes, train)

    for role, split in rows.items():
        checked_texts(args, role, split, column)
    splits = DatasetDict(rows).select_columns(column).rename_columns({column: "text"}).filter(len, input_columns="text")
    if "validation" not in splits:
        share = args.validation_split_percentage
        if share == 0:
            raise ValueError("there is no validation split: give a validation_split_percentage above 0")
        parts = cut_at_the_end(splits["train"]["text"][:], share / 100)
        splits = {role: Dataset.from_dict({"text": part}) for role, part in zip(args.roles, parts, strict=True)}
        notes.append(f"There is no validation split: the last {share:g} % of the training text were taken for it.")
    for role, split in splits.items():
        if not len(split):
            raise ValueError(f"there is no text in the {role} split")
    return Corpus(DatasetDict(splits), own_splits, notes)


def split_digest(encoded: Tensor | tuple[Tensor, ...]) -> str:
    """A short digest of an encoded split."""
    return digest(encoded if isinstance(encoded, tuple) else [encoded])


def in_a_row(split: Dataset) -> Tensor:
    """All token ids of a split, `(tokens,)`. If the split lies in the cache of `datasets`, they are written to a file
    beside it, which is then memory-mapped."""
    chunks = split.data.column("input_ids").chunks
    parts = (chunk.flatten().to_numpy(zero_copy_only=False).astype(np.int32) for chunk in chunks)
    if not split.cache_files:
        return torch.from_numpy(np.concatenate([np.empty(0, np.int32), *parts]))
    path = Path(split.cache_files[0]["filename"]).with_suffix(".tokens")
    if not path.exists():
        staging = path.with_suffix(f".{os.getpid()}")
        with open(staging, "wb") as file:
            for part in parts:
                part.tofile(file)
        os.replace(staging, path)
    size = path.stat().st_size // np.dtype(np.int32).itemsize
    return torch.from_file(str(path), size=size, dtype=torch.int32) if size else torch.empty(0, dtype=torch.int32)


def cut_at_the_end(texts: list[str], share: float) -> tuple[list[str], list[str]]:
    """Texts without their last share of characters, and that share; a text at the cut is divided."""
    first = round((1 - share) * sum(map(len, texts)))
    before, after = [], []
    for text in texts:
        before.append(text[:first])
        after.append(text[first:])
        first = max(0, first - len(text))
    return [text for text in before if text], [text for text in after if text]
