"""Documents to pre-train on, in memory or streamed, and the examples that are made of them."""

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar

from accelerate.utils import gather_object
from datasets import Dataset
from transformers import DataCollatorForSeq2Seq, PreTrainedModel, PreTrainedTokenizerBase

from tfm_zoo.data import built_in_data, row_files, splits
from tfm_zoo.data.options import option
from tfm_zoo.training.models import longest_input
from tfm_zoo.training.run import Run
from tfm_zoo.training.streaming.sentences import split_sentences
from tfm_zoo.training.streaming.streams import Stream
from tfm_zoo.training.streaming.texts import CHARACTERS, StreamOptions, TextSource, hold_out
from tfm_zoo.training.task import Task, collator

logger = logging.getLogger(__name__)

HELD_OUT = 1000  # documents of a stream to validate on, unless max_eval_samples says how many


@dataclass(frozen=True)
class DocumentOptions(StreamOptions):
    """The options of tasks that learn from documents, each by itself."""

    text_rows: ClassVar = "line"
    built_in: ClassVar = staticmethod(built_in_data.generated_documents)
    built_in_note: ClassVar = "The documents are generated, from templates. They test the machinery alone."

    train_file: str | None = option(
        None, "A table with a document a row; or text, a sentence a line, empty lines between documents; or a/*.txt."
    )
    block_documents: int = option(2000, "Documents that are mixed at a time, by all readers together.", at_least=2)


@dataclass
class Documents:
    """Documents to train on, and documents to validate on, which are in memory."""

    train: TextSource
    validation: TextSource
    split: Callable[[str], list[str]]  # cuts a document into its sentences
    notes: list[str]  # what a reader of the figures must know of the data


def load_documents(args: DocumentOptions) -> Documents:
    """Load and check the documents. Without a validation split, the seed picks it from the documents in memory."""
    rows, notes = splits.load_splits(args)
    is_text = rows["train"].builder_name == "text"
    if is_text and not args.streaming:
        rows, notes = splits.load_splits(replace(args, streaming=True, max_train_samples=None))  # tells where files end
    column = row_files.find_text_column(rows["train"], args.text_column_name)
    sources = {}
    for role, split in rows.items():
        if isinstance(split, Dataset):
            splits.FoundSplit(args, role, split).texts(column)
        sources[role] = TextSource(split.select_columns(column), column)

    if args.streaming:
        train, held_out = hold_out(sources, notes, CHARACTERS, args.max_eval_samples or HELD_OUT)
        validation = TextSource(held_out)
    else:
        in_memory = {role: source.in_memory() for role, source in sources.items()}
        for role, split in in_memory.items():
            if not any(map(str.strip, split[column])):
                raise ValueError(f"there is no text in the {role} split")
        in_memory = splits.cut_splits(args, in_memory, notes, args.seed)
        train, validation = (TextSource(in_memory[role], column) for role in ("train", "validation"))
    return Documents(train, validation, str.splitlines if is_text else split_sentences, notes)


def task_of_documents(
    task_class: type[Task],
    run: Run,
    documents: Documents,
    make_examples: Any,
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
) -> Task:
    """The task of a run whose data are documents: to train on, a [`Stream`], and to validate on, a list of examples.

    `make_examples` has `longest`, the most tokens of an example, and `needs`: what an example takes, for an error.
    """
    args, accelerator, longest = run.args, run.accelerator, longest_input(model.config, tokenizer)
    stream = partial(Stream, make_examples=make_examples, seed=args.seed, chunk_size=args.block_documents)
    examples = stream(documents.train).with_readers()
    validation = list(stream(documents.validation).first_pass())
    for split, first in (("training", next(examples.first_pass(), None)), ("validation", next(iter(validation), None))):
        if first is None:
            raise ValueError(f"there is no example in the {split} documents: it takes {make_examples.needs}")
    if not args.max_train_steps:
        logger.info("Counting the examples of an epoch")
        mine = range(accelerator.process_index, examples.readers, accelerator.num_processes)
        examples.size = sum(gather_object([sum(1 for _ in examples.first_pass(mine))]))
    return task_class(
        run=run,
        model=model,
        tokenizer=tokenizer,
        data=documents,
        splits={"train": examples, "validation": validation},
        collate=collator(DataCollatorForSeq2Seq, tokenizer, accelerator, longest, make_examples.longest),
        facts={
            "train_files": args.files_identity,
            "training texts": documents.train.identity,
            "validation texts": documents.validation.identity,
        },
    )
