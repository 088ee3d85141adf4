"""Running text for language models: documents, joined and cut into blocks."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from datasets import Dataset, IterableDataset
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from tfm_zoo.models.inputs import IGNORED
from tfm_zoo.training import generated
from tfm_zoo.training.arguments import check_at_least, option
from tfm_zoo.training.sources import DataArguments, StreamedArguments, check_texts, load_source, text_column
from tfm_zoo.training.text_sources import TextSource, hold_out
from tfm_zoo.training.tokenizers import TOKENIZER_TEXT

HELD_OUT = 500_000  # characters, the first of a stream or of its validation split, that validate


@dataclass
class CorpusArguments(DataArguments):
    """Where the texts are, and how they become blocks."""

    file_types: ClassVar[Mapping[str, str]] = {".txt": "text", **DataArguments.file_types}

    train_file: str | None = option(
        None, "Instead of dataset_name: a text file, which is one document, or CSV, TSV, JSON (lines) or Parquet."
    )
    validation_split_percentage: float = option(
        10, "Share of the training text, its end, to validate on if there is no such split."
    )
    text_column_name: str | None = option(None, "Column of the texts; default: 'text', or the only one.")
    max_train_samples: int | None = option(None, "Use this many training blocks, the first ones.")
    block_size: int | None = option(
        None, "Tokens per block; default: what the model takes, at most 1024; 128 for a small new model."
    )
    document_separator: str | None = option(
        None, "Text that joins documents (where the rows of a data set are lines: a line break); default: end of text."
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        check_at_least(self, {"block_size": 2})
        if not 0 <= self.validation_split_percentage < 100:
            raise ValueError(
                f"validation_split_percentage must be 0 or more and leave something to train on, not"
                f" {self.validation_split_percentage}"
            )


@dataclass
class StreamedCorpusArguments(StreamedArguments, CorpusArguments):
    """The same, of texts that need not fit into memory."""

    @property
    def text_rows(self) -> str:  # a file is read a line at a time, and joined again
        return "line" if self.streaming else "document"


class Joining:
    """Makes documents into token ids, each followed by the separator.

    Args:
        separator: text between documents; `None`: the tokenizer's end of text. (Without either, nothing joins them.)
        single: whether there is but one document, which needs nothing.

    Raises:
        ValueError: if there is nothing to join documents with.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase, separator: str | None = None, single: bool = False):
        self.tokenizer = tokenizer
        if separator is not None:
            self.joint = tokenizer(separator, add_special_tokens=False)["input_ids"]
        elif tokenizer.eos_token_id is not None:
            self.joint = [tokenizer.eos_token_id]
        elif single:
            self.joint = []
        else:
            raise ValueError(
                f"tokenizer {tokenizer.name_or_path!r} has no end-of-text token: give a document_separator"
            )

    def __call__(self, texts: list[str]) -> list[list[int]]:
        joint = self.joint
        ids = self.tokenizer(texts, verbose=False)["input_ids"]
        return [row if joint and row[-len(joint) :] == joint else row + joint for row in ids]


@dataclass
class Corpus:
    """Splits "train" and "validation": documents in the column "text". Or a stream, and "validation" alone."""

    splits: dict[str, Dataset]
    has_own_validation: bool
    notes: list[str]  # what was done to the data that a reader of the figures must know
    stream: TextSource | None = None

    def texts(self) -> Iterator[str]:
        """What to make a tokenizer from: the documents to train on, or the first of a stream. Read when asked for."""
        yield from self.stream.first_texts(TOKENIZER_TEXT) if self.stream else self.splits["train"]["text"]

    def encode(
        self, tokenizer: PreTrainedTokenizerBase, separator: str | None = None, num_proc: int | None = None
    ) -> dict[str, Tensor]:
        """Each split as one row of token ids, `(tokens,)`: its documents, joined (see [`Joining`])."""
        join = Joining(tokenizer, separator, single=not self.stream and max(map(len, self.splits.values())) == 1)
        encoded = {}
        for name, split in self.splits.items():
            rows = split.map(
                lambda rows: {"input_ids": join(rows["text"])}, batched=True, remove_columns="text", num_proc=num_proc
            )
            encoded[name] = torch.cat([torch.tensor(row, dtype=torch.int32) for row in rows["input_ids"]])
            if len(encoded[name]) < 2:
                raise ValueError(f"split {name!r} holds {len(encoded[name])} token(s): too few to predict any")
        return encoded


class Blocks(torch.utils.data.Dataset):
    """A row of tokens cut into blocks of one size: `input_ids` and `labels`, both `(block_size,)`.

    The last block is filled up, and its filling is not learned (label -100), so that every token counts; filling
    stands after all that is real, where a causal model does not see it, and needs no attention mask. A block does not
    end with its document: what comes after an end of text sees what was before it.

    Args:
        tokens: `(tokens,)`, at least 2.
        block_size: tokens per block. Each predicts the next; the first of a block is not predicted.
        filling: token that fills up.
        limit: use this many blocks at most.
        multiple_of: add blocks of filling up to a multiple of this, so that processes can share them evenly.
    """

    def __init__(
        self, tokens: Tensor, block_size: int, filling: int = 0, limit: int | None = None, multiple_of: int = 1
    ):
        size = -(-(len(tokens) - 1) // block_size)  # a last block of a single token would predict nothing
        self.size = min(size, limit or size)
        self.tokens = tokens[: self.size * block_size]
        self.block_size, self.filling = block_size, filling
        self.padded_size = -(-self.size // multiple_of) * multiple_of

    def __len__(self) -> int:
        return self.padded_size

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        tokens = self.tokens[index * self.block_size : (index + 1) * self.block_size].long()
        gap = (0, self.block_size - len(tokens))
        return {
            "input_ids": torch.nn.functional.pad(tokens, gap, value=self.filling),
            "labels": torch.nn.functional.pad(tokens, gap, value=IGNORED),
        }


class StreamedBlocks:
    """Makes the documents that a [`Stream`] reads together into blocks, which hold all of them.

    Args:
        blocks: makes a row of tokens into [`Blocks`].
    """

    def __init__(self, join: Joining, blocks: Callable[[Tensor], Blocks]):
        self.join, self.blocks = join, blocks

    def __call__(self, documents: list[str], rng: np.random.Generator) -> list[dict[str, Tensor]]:
        blocks = self.blocks(torch.tensor([token for row in self.join(documents) for token in row], dtype=torch.int32))
        return [blocks[index] for index in range(len(blocks))]


def load_corpus(args: CorpusArguments) -> Corpus:
    """Load and check the texts.

    Raises:
        FileNotFoundError, ValueError: naming the file, column, split or row that is missing or wrong.
    """
    raw = load_source(args)
    notes: list[str] = []
    if args.dataset_name == generated.NAME:
        raw = {"train": raw["train"]}  # the other splits have words of their own, which a language model cannot know
        notes.append("The text is generated: its reviews are made from templates. It tests the machinery alone.")
    some = next(iter(raw.values()))
    column = text_column(some, args.text_column_name)

    roles = {role: next((n for n in raw if n.startswith(role)), None) for role in ("train", "validation")}
    if roles["train"] is None:
        if len(raw) != 1:
            raise ValueError(f"no split to train on among {list(raw)}")
        (roles["train"],) = raw
        roles["validation"] = None
        notes.append(f"The data set has only the split {roles['train']!r}; training and validation share it.")
    if isinstance(some, IterableDataset):
        return _streamed({role: raw[name] for role, name in roles.items() if name is not None}, column, notes)
    splits = {}
    for role, name in roles.items():
        if name is not None:
            check_texts(name, raw[name], column)
            texts = raw[name].select_columns(column)
            texts = texts if column == "text" else texts.rename_column(column, "text")
            splits[role] = texts.filter(len, input_columns="text")
    own = "validation" in splits
    if not own:
        share = args.validation_split_percentage
        if share == 0:
            raise ValueError("there is no validation split: give a validation_split_percentage above 0")
        parts = cut_at_the_end(splits["train"]["text"][:], share / 100)
        splits = {
            role: Dataset.from_dict({"text": part}) for role, part in zip(("train", "validation"), parts, strict=True)
        }
        notes.append(f"There is no validation split: the last {share:g} % of the training text were taken for it.")
    for role, split in splits.items():
        if not len(split):
            raise ValueError(f"there is no text in the {role} split")
    return Corpus(splits, own, notes)


def _streamed(splits: Mapping[str, IterableDataset], column: str, notes: list[str]) -> Corpus:
    """A stream to train on; its begin, or that of the validation split, is in memory to validate on."""
    sources = {
        role: TextSource(rows.select_columns(column), column, by_line=rows.builder_name == "text", breaks=False)
        for role, rows in splits.items()
    }
    train, held_out = hold_out(sources, notes, HELD_OUT)
    return Corpus({"validation": held_out}, "validation" in sources, notes, train)


def cut_at_the_end(texts: list[str], share: float) -> tuple[list[str], list[str]]:
    """Texts without their last share of characters, and that share; the text that the cut falls into is divided."""
    first = round((1 - share) * sum(map(len, texts)))
    before, after = [], []
    for text in texts:
        before.append(text[:first])
        after.append(text[first:])
        first = max(0, first - len(text))
    return [text for text in before if text], [text for text in after if text]
