"""Pairs of a text to read and a text to write, as token ids."""

from dataclasses import dataclass
from typing import ClassVar

from datasets import DatasetDict
from transformers import PreTrainedTokenizerBase

from tfm_zoo.training.arguments import option
from tfm_zoo.training.sources import SplitArguments
from tfm_zoo.training.splits import Data

SIDES = ("source", "target")  # the columns of pairs


@dataclass(frozen=True)
class PairArguments(SplitArguments):
    """Where the pairs are, and how much of them to use."""

    source_prefix: ClassVar[str] = ""  # put before every source

    max_source_length: int = option(128, "Longer sources are truncated to this many tokens.", at_least=1)
    max_target_length: int = option(128, "Likewise for targets; the model writes no longer ones, either.", at_least=1)


@dataclass
class TextPairs(Data):
    """Splits whose columns "source" and "target" hold texts."""

    text_columns = SIDES

    def encode(self, tokenizer: PreTrainedTokenizerBase, args: PairArguments) -> DatasetDict:
        """The splits as token ids, "input_ids" and "labels"; `notes` then say how many had to be truncated."""
        max_source, max_target = args.max_source_length, args.max_target_length

        def encode_batch(rows: dict[str, list[str]]) -> dict[str, list]:
            texts = [args.source_prefix + text for text in rows["source"]]
            sources = tokenizer(texts, verbose=False)["input_ids"]
            targets = tokenizer(text_target=rows["target"], verbose=False)["input_ids"]
            longer = [len(s) > max_source or len(t) > max_target for s, t in zip(sources, targets, strict=True)]
            if any(longer):
                sources = tokenizer(texts, truncation=True, max_length=max_source)["input_ids"]
                targets = tokenizer(text_target=rows["target"], truncation=True, max_length=max_target)["input_ids"]
            return {"input_ids": sources, "labels": targets, "truncated": longer}

        options = {"remove_columns": [*SIDES], "num_proc": args.preprocessing_num_workers}
        encoded = self.splits.map(encode_batch, batched=True, **options)
        for name, rows in encoded.items():
            if truncated := sum(rows["truncated"]):
                self.notes.append(
                    f"{truncated:,} of the {len(rows):,} pairs of the {name} split were truncated, to {max_source}"
                    f" tokens of the source and {max_target} of the target."
                )
        return encoded.remove_columns("truncated")
