"""Conversations for language models: the tokenizer's chat template writes them, and the model learns the answers."""

import logging
import re
from bisect import bisect_left, insort
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import InitVar, dataclass
from itertools import takewhile
from typing import Any, NamedTuple

import torch
from datasets import Dataset, DatasetDict
from jinja2 import TemplateError
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from tfm_zoo.data.row_files import read_text
from tfm_zoo.models.losses import IGNORED
from tfm_zoo.training.data import Data, Table
from tfm_zoo.training.messages import READERS, Message, messages_of, tools_of

logger = logging.getLogger(__name__)
#: marks an answer in a chat template: the tokenizer can then tell which tokens are of answers
GENERATION = re.compile(r"\{%-?\s*generation\b")


class EncodedConversations(NamedTuple):
    """The conversations of a split, one after the other."""

    ids: Tensor  # `(tokens,)`
    answers: Tensor  # `(tokens,)`, true at tokens of answers, which are to be predicted
    lengths: Tensor  # `(conversations,)`

    def __len__(self) -> int:
        return self.ids.numel()


@dataclass
class Conversations(Data):
    """Splits with conversations in the column "messages"."""

    stream: None = None  # as a `Corpus` without a stream: conversations are always in memory

    def texts(self) -> Iterator[str]:
        """Texts to make a tokenizer from: what is said in the training conversations."""
        for messages in self.splits["train"]["messages"]:
            yield from (message["content"] for message in messages_of(messages))

    def encode(self, tokenizer: PreTrainedTokenizerBase, args: Any) -> dict[str, EncodedConversations]:
        """The token ids of each split. Raises a `ValueError` for a conversation that cannot be written."""
        if args.chat_template_path is not None:
            tokenizer.chat_template = read_text(args.chat_template_path)
        if not tokenizer.chat_template:
            raise ValueError(f"tokenizer {tokenizer.name_or_path!r} has no chat template, so give a chat_template_path")
        if not tokenizer.is_fast:
            slow = f"tokenizer {tokenizer.name_or_path!r} is slow (written in Python)"
            raise ValueError(f"{slow} and does not tell where its tokens stand: give a fast one")

        columns = self.splits["train"].column_names
        if "tools" in columns and "tools" not in str(tokenizer.chat_template):
            logger.warning("The chat template does not read tools: the column 'tools' is not learnt from")

        def encode_row(messages: Any, tools: Any = None) -> dict[str, list]:
            ids, answers = encode_conversation(tokenizer, messages, tools)
            return {"ids": ids, "answers": answers}

        options = {"remove_columns": columns, "num_proc": args.preprocessing_num_workers}
        encoded = {}
        for name, split in self.splits.map(encode_row, input_columns=columns, **options).items():
            rows = [torch.tensor(row, dtype=torch.int32) for row in split["ids"]]
            answers = [torch.tensor(row, dtype=torch.bool) for row in split["answers"]]
            lengths = torch.tensor([len(row) for row in rows])
            encoded[name] = EncodedConversations(torch.cat(rows), torch.cat(answers), lengths)
        return encoded

    def first_prompt(self, tokenizer: PreTrainedTokenizerBase, question: str | None) -> list[int]:
        """Token ids of a prompt: a question, or else the first validation conversation up to its first answer (if it
        begins with an answer, up to the second)."""
        messages, tools = [{"role": "user", "content": question}], None
        if question is None:
            row = self.splits["validation"][0]
            first, *others = messages_of(row["messages"])
            messages = [first, *takewhile(lambda message: message["role"] != "assistant", others)]
            tools = tools_of(row.get("tools"))
        options = {"tools": tools, "add_generation_prompt": True, "return_dict": True}
        return tokenizer.apply_chat_template(messages, **options)["input_ids"]


def encode_conversation(
    tokenizer: PreTrainedTokenizerBase, conversation: Any, tools: Any = None
) -> tuple[list[int], list[bool]]:
    """Token ids of a conversation, and which of them are of answers: of messages whose role is "assistant"."""
    messages, template = messages_of(conversation), tokenizer.chat_template
    first, tools = messages[0]["content"][:40], tools_of(tools)
    if "tool_calls" not in str(template) and any(message.get("tool_calls") for message in messages):
        raise ValueError(f"the conversation {first!r}... has tool_calls, which the chat template does not write")

    def apply(messages: Sequence[Message], **options: bool) -> Any:
        try:
            return tokenizer.apply_chat_template(messages, tools=tools, **options)
        except TemplateError as error:
            raise ValueError(f"the chat template refuses the conversation {first!r}...: {error}") from error

    if isinstance(template, str) and GENERATION.search(template):
        encoded = apply(messages, return_dict=True, return_assistant_tokens_mask=True)
        return encoded["input_ids"], [bool(mark) for mark in encoded["assistant_masks"]]

    if messages[0]["role"] == "assistant":
        raise ValueError(
            f"the conversation {first!r}... begins with an answer, so that its beginning cannot be found: "
            "mark answers in the chat template with {% generation %}"
        )

    def written(count: int, **options: bool) -> str:
        return apply(messages[:count], tokenize=False, **options)

    whole, spans = written(len(messages)), []
    for index, message in enumerate(messages):
        if message["role"] == "assistant":
            before, through = written(index, add_generation_prompt=True), written(index + 1)
            if not (whole.startswith(through) and through.startswith(before)):
                raise ValueError(
                    f"the chat template does not write the conversation {first!r}... one message after the other, "
                    "so that its answers cannot be found: mark them in the template with {% generation %}"
                )
            spans.append((len(before), len(through)))
    encoded = tokenizer(whole, add_special_tokens=False, return_offsets_mapping=True, verbose=False)
    ends = [end for _, end in encoded["offset_mapping"]]
    return encoded["input_ids"], [any(start < end <= stop for start, stop in spans) for end in ends]


@dataclass(eq=False)
class PackedConversations(torch.utils.data.Dataset):
    """Blocks that hold several conversations: `input_ids`, `labels` and `position_ids`, each `(block_size,)`.

    The positions begin anew with each conversation, so that none sees another, and again with the filling at the end.
    Answers alone have labels. A conversation is cut where the block ends.
    """

    encoded: InitVar[EncodedConversations]
    block_size: int  # tokens of a block
    filling: int = 0  # the token that fills up a block
    limit: int | None = None  # blocks at most
    multiple_of: int = 1  # blocks of filling are added until there is a multiple of this, for processes to share evenly

    def __post_init__(self, encoded: EncodedConversations) -> None:
        ids = encoded.ids.long()
        rows = torch.stack([ids, ids.masked_fill(~encoded.answers, IGNORED)])
        parts = [part[:, : self.block_size] for part in rows.split(encoded.lengths.tolist(), dim=1)]
        self.parts = [part for part in parts if (part[1, 1:] != IGNORED).any()]  # of conversations: ids and labels
        if not self.parts:
            raise ValueError(f"no conversation has an answer within its first {self.block_size} tokens (block_size)")
        self.blocks = best_fit([part.shape[1] for part in self.parts], self.block_size)[: self.limit]
        self.blocks += [[]] * (-len(self.blocks) % self.multiple_of)

    def __len__(self) -> int:
        return len(self.blocks)

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        parts = [self.parts[part] for part in self.blocks[index]]
        gap = self.block_size - sum(part.shape[1] for part in parts)
        parts.append(torch.tensor([[self.filling], [IGNORED]]).expand(2, gap))
        ids, labels = torch.cat(parts, dim=1)
        positions = torch.cat([torch.arange(part.shape[1]) for part in parts])
        # What follows another conversation is not predicted from it.
        return {"input_ids": ids, "labels": labels.masked_fill(positions == 0, IGNORED), "position_ids": positions}


def best_fit(lengths: Sequence[int], size: int) -> list[list[int]]:
    """Packs lengths into bins of at most `size`, lists of indices into `lengths`, in the order of their first indices.

    Best fit decreasing (Ding et al. 2024): from the longest on, each goes where it leaves the least room.
    """
    rooms: list[tuple[int, int]] = []  # of bins that are not full, sorted: the room that is left, and the bin's number
    bins: list[list[int]] = []
    for index in sorted(range(len(lengths)), key=lambda index: -lengths[index]):
        place = bisect_left(rooms, (lengths[index], -1))
        if place == len(rooms):  # nowhere
            rooms.append((size, len(bins)))
            bins.append([])
        room, number = rooms.pop(place)
        bins[number].append(index)
        if room > lengths[index]:
            insort(rooms, (room - lengths[index], number))
    return sorted(sorted(each) for each in bins)


def load_conversations(
    args: Any, rows: Mapping[str, Dataset], column: str, own_splits: list[str], notes: list[str]
) -> Conversations:
    """Take conversations from a column, and tools from one of this name; if there is none to validate on, the last of
    those to train on are taken."""
    columns = {column: "messages"} | ({"tools": "tools"} if "tools" in rows["train"].column_names else {})
    splits = DatasetDict(rows).select_columns([*columns]).rename_columns(columns)
    for role, split in splits.items():
        if not len(split):
            raise ValueError(f"there is no conversation in the {role} split")
        for original, name in columns.items():
            for number, value in enumerate(split[name]):
                try:
                    READERS[name](value)
                except ValueError as error:
                    raise Table(args, role, rows[role]).wrong(number, str(error), original) from None
    if "validation" not in splits:
        size, share = len(splits["train"]), args.validation_split_percentage / 100
        held_out = round(size * share)
        if not 0 < held_out < size:
            raise ValueError(f"{share:.0%} of {size} conversations leave none to train or validate on")
        train, validation = splits["train"].train_test_split(held_out, shuffle=False).values()
        splits = DatasetDict(train=train, validation=validation)
        notes.append(f"There is no validation split: the last {held_out} conversations were taken for it.")
    return Conversations(splits, own_splits, notes)
