"""Causal language modelling of running text."""

import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from typing import ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from datasets import Dataset, DatasetDict
from torch import Tensor, nn
from transformers import AutoModelForCausalLM, GenerationConfig, PreTrainedModel, PreTrainedTokenizerBase

from tfm_zoo.data import built_in_data, row_files, splits
from tfm_zoo.data.options import option
from tfm_zoo.models.losses import IGNORED
from tfm_zoo.training import models, sharding
from tfm_zoo.training.checkpoints import TrainState
from tfm_zoo.training.new_models import new_config, new_model, new_tokenizer
from tfm_zoo.training.options import cap_lengths
from tfm_zoo.training.run import Run
from tfm_zoo.training.streaming.streams import Stream
from tfm_zoo.training.streaming.texts import StreamOptions, TextSource, hold_out
from tfm_zoo.training.task import Batch, Tensors, TokenTask
from tfm_zoo.training.tokenizers import byte_level_bpe
from tfm_zoo.utils.quiet import shown_bars

HEAD = models.Head(AutoModelForCausalLM, "causal language model")
#: characters to validate on: the first of a stream, or of its validation split
HELD_OUT = 500_000
#: documents of a stream that are mixed at a time: so many that a chunk ends by its limit of characters
MIXED_DOCUMENTS = 128_000
#: how samples are drawn: nucleus sampling (Holtzman et al. 2020)
SAMPLING = {"do_sample": True, "top_p": 0.95, "temperature": 1.0, "top_k": 0}


@dataclass(frozen=True)
class LanguageModelingOptions(StreamOptions):
    """The options of a causal language model."""

    small_type: ClassVar = dict.fromkeys(("zoo", "native"), "tfm_gpt")
    small_fields: ClassVar = {**StreamOptions.small_fields, "max_position_embeddings": 128}
    small_vocab_size: ClassVar = 1024
    make_tokenizer: ClassVar = staticmethod(byte_level_bpe)
    built_in: ClassVar = staticmethod(built_in_data.generated_reviews)
    built_in_note: ClassVar = "The text is generated, from templates. It tests the machinery alone."
    max_seq_length: ClassVar = None  # `block_size` stands for it

    max_train_samples: int | None = option(None, "Use this many training blocks, the first ones.", at_least=1)
    block_size: int | None = option(None, "Tokens per block; default: what the model takes, at most 1024.", at_least=2)
    document_separator: str | None = option(None, "Text between documents; default: the end-of-text token.")
    sample_prompt: str | None = option(None, "Text that samples continue; by default they begin a text.")
    sample_length: int = option(100, "Tokens of a sample; 0: no samples.", at_least=0)


def separator(tokenizer: PreTrainedTokenizerBase, args: LanguageModelingOptions, is_needed: bool = True) -> list[int]:
    """The token ids that end a document: those of the `document_separator`, or the tokenizer's end of text."""
    if args.document_separator is not None:
        return tokenizer(args.document_separator, add_special_tokens=False)["input_ids"]
    if tokenizer.eos_token_id is None and is_needed:
        raise ValueError(f"tokenizer {tokenizer.name_or_path!r} has no end-of-text token: give a document_separator")
    return [] if tokenizer.eos_token_id is None else [tokenizer.eos_token_id]


def ids_of(texts: list[str], tokenizer: PreTrainedTokenizerBase, end: list[int]) -> list[list[int]]:
    """Documents as token ids, which end with a separator."""
    ids = tokenizer(texts, verbose=False)["input_ids"]
    return [row if end and row[-len(end) :] == end else row + end for row in ids]


@dataclass
class Corpus:
    """Splits with documents in the column "text"; the training split may be a stream instead."""

    splits: DatasetDict
    notes: list[str]  # what a reader of the figures must know of the data
    stream: TextSource | None = None

    def texts(self) -> Iterator[str]:
        """Texts to make a tokenizer from: the training documents, or some of a stream. Read when iterated."""
        yield from self.stream.first_texts() if self.stream else self.splits["train"]["text"]

    def rows_of_tokens(self, tokenizer: PreTrainedTokenizerBase, args: LanguageModelingOptions) -> dict[str, Tensor]:
        """Each split as one row of token ids, `(tokens,)`: its documents, one after the other."""
        end = separator(tokenizer, args, is_needed=bool(self.stream) or max(map(len, self.splits.values())) > 1)
        options = {"remove_columns": "text", "num_proc": args.preprocessing_num_workers, "batched": True}
        rows_of_ids = self.splits.map(lambda rows: {"input_ids": ids_of(rows["text"], tokenizer, end)}, **options)
        encoded = {}
        for name, split in rows_of_ids.items():
            chunks = [chunk.flatten().to_numpy() for chunk in split.data.column("input_ids").chunks]
            encoded[name] = torch.from_numpy(np.concatenate([np.empty(0, np.int32), *chunks], dtype=np.int32))
            if (size := len(encoded[name])) < 2:
                raise ValueError(f"split {name!r} holds {splits.pluralize(size, 'token')}: too few to predict any")
        return encoded


@dataclass(eq=False)
class Blocks(torch.utils.data.Dataset):
    """A row of tokens cut into blocks of one size: `input_ids` and `labels`, both `(block_size,)`.

    The last block is filled up, with labels that the loss ignores. A causal model does not see what comes after all
    tokens, and needs no attention mask. Tokens after an end of text see those before it.
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
        labels = F.pad(tokens, gap, value=IGNORED)
        labels[0] = IGNORED  # nothing predicts it
        return {"input_ids": F.pad(tokens, gap, value=self.filling), "labels": labels}


def blocks_of_chunk(
    documents: list[str],
    rng: np.random.Generator,
    encode: Callable[[list[str]], list[list[int]]],
    blocks: Callable[[Tensor], Blocks],
) -> list[dict[str, np.ndarray]]:
    """[`Blocks`] of all tokens of these documents, as arrays: a tensor needs an open file on its way from a worker."""
    tokens = np.concatenate([np.array(ids, dtype=np.int32) for ids in encode(documents)])
    blocks = blocks(torch.from_numpy(tokens))
    return [{name: row.numpy() for name, row in blocks[index].items()} for index in range(len(blocks))]


def load_corpus(args: LanguageModelingOptions) -> Corpus:
    """Load and check the texts."""
    rows, notes = splits.load_splits(args)
    if args.is_generated:
        rows = {"train": rows["train"]}  # the other splits have words of their own, which a language model cannot know
    column = row_files.find_text_column(rows["train"], args.text_column_name)
    if args.streaming:
        sources = {role: TextSource(split.select_columns(column), column, breaks=False) for role, split in rows.items()}
        train, held_out = hold_out(sources, notes, HELD_OUT)
        return Corpus(DatasetDict(validation=held_out), notes, train)

    for role, split in rows.items():
        splits.FoundSplit(args, role, split).texts(column)
    texts = DatasetDict(rows).select_columns(column).rename_columns({column: "text"}).filter(len, input_columns="text")
    if "validation" not in texts:
        share = splits.share_to_validate_on(args)
        parts = cut_at_the_end(texts["train"]["text"][:], share / 100)
        texts = {role: Dataset.from_dict({"text": part}) for role, part in zip(args.roles, parts, strict=True)}
        notes.append(f"There is no validation split: the last {share:g} % of the training text were taken for it.")
    for role, split in texts.items():
        if not len(split):
            raise ValueError(f"there is no text in the {role} split")
    return Corpus(DatasetDict(texts), notes)


def cut_at_the_end(texts: list[str], share: float) -> tuple[list[str], list[str]]:
    """Texts without their last share of characters, and that share; a text at the cut is divided."""
    first = round((1 - share) * sum(map(len, texts)))
    before, after = [], []
    for text in texts:
        before.append(text[:first])
        after.append(text[first:])
        first = max(0, first - len(text))
    return [text for text in before if text], [text for text in after if text]


@dataclass
class Sampler:
    """Draws text from a model."""

    args: LanguageModelingOptions
    tokenizer: PreTrainedTokenizerBase
    config: GenerationConfig  # the model's own; a copy of it takes the options
    longest: int  # tokens that the model takes

    def __post_init__(self) -> None:
        args, tokenizer = self.args, self.tokenizer
        start = next((i for i in (tokenizer.bos_token_id, tokenizer.eos_token_id) if i is not None), 0)
        prompt = tokenizer(args.sample_prompt or "")["input_ids"] or [start]
        self.prompt = torch.tensor([prompt])
        self.length = max(0, min(args.sample_length, self.longest - len(prompt)))
        if args.sample_length and not self.length:
            raise ValueError(f"sample_prompt has {len(prompt)} tokens, of {self.longest} that the model takes")
        padding = start if tokenizer.pad_token_id is None else tokenizer.pad_token_id
        self.config = copy.deepcopy(self.config)
        self.config.update(**SAMPLING, max_new_tokens=self.length or None, pad_token_id=padding)

    def draw(self, model: PreTrainedModel, step: int, sharded: bool = False) -> list[str]:
        """Samples of a model after `step` steps, empty if `sample_length` is 0. If sharded, all processes call it."""
        if not self.length:
            return []
        model.eval()
        devices = [] if model.device.type == "cpu" else [model.device]
        with torch.random.fork_rng(devices, device_type=model.device.type):  # leaves training's random numbers alone
            torch.manual_seed(self.args.seed + step)
            prompt = self.prompt.to(model.device)
            options = {"generation_config": self.config, "synced_gpus": sharded}
            ids = model.generate(prompt, attention_mask=torch.ones_like(prompt), **options)
        model.train()
        return self.tokenizer.batch_decode(ids, skip_special_tokens=True)


@dataclass(kw_only=True)
class LanguageModelingTask(TokenTask):
    """A decoder learns to predict the next token."""

    sampler: Sampler | None = None
    tokens: dict[str, int] = field(default_factory=dict)  # how many each split in memory has, for the card

    pipeline_tag = "text-generation"

    @property
    def name_of_examples(self) -> str:
        return f"blocks of {self.splits['validation'].block_size} tokens"

    def compute_batch(self, model: nn.Module, batch: Batch) -> Tensors:
        """The summed loss of the batch, `(1,)`, which the model computes itself."""
        # A zoo model computes its loss without logits if told to; an official model always makes them.
        options = {"return_logits": False} if self.is_zoo else {}
        return {"loss": model(**batch, num_items_in_batch=1, use_cache=False, **options).loss[None]}

    def after_evaluation(self, model: nn.Module, state: TrainState) -> None:
        """Draw samples on the main process, print them, and log them."""
        if self.sampler and self.accelerator.is_main_process and not sharding.is_sharded(self.accelerator):
            if samples := self.sampler.draw(self.unwrapped(model), state.step):
                state.log_history.append({"step": state.step, "samples": samples})
            for sample in samples:
                print(f"--- sample after step {state.step}\n{sample}\n---", flush=True)

    def final_metrics(self, best: nn.Module, state: TrainState) -> dict[str, float]:
        """No metrics are added, as there is no test split. The card gets samples of this model."""
        is_sharded = sharding.is_sharded(self.accelerator)
        self.samples = self.sampler.draw(self.unwrapped(best), state.best_step, is_sharded)
        return {}


def load_task(run: Run) -> LanguageModelingTask:
    args = run.args
    with run.accelerator.main_process_first():  # it downloads; the others read what it left in the cache
        corpus = load_corpus(args)
        if args.is_new:
            tokenizer = new_tokenizer(args, corpus.texts())
            positions = {"max_position_embeddings": args.block_size} if args.block_size else {}
            model = new_model(HEAD, args, new_config(HEAD, args, tokenizer, **positions))
        else:
            model, tokenizer = HEAD.load(args)
        with shown_bars(run.accelerator.is_main_process):
            tokens = corpus.rows_of_tokens(tokenizer, args)
    longest = models.longest_input(model.config, tokenizer)
    args = cap_lengths(replace(args, block_size=args.block_size or min(1024, longest)), longest, "block_size")
    sampler = Sampler(args, tokenizer, model.generation_config, longest)
    if args.is_new:
        model.generation_config = sampler.config

    blocks = partial(Blocks, block_size=args.block_size, filling=tokenizer.eos_token_id or 0)
    if corpus.stream:
        encode = partial(ids_of, tokenizer=tokenizer, end=separator(tokenizer, args))
        make_examples = partial(blocks_of_chunk, encode=encode, blocks=blocks)
        examples = Stream(corpus.stream, make_examples, args.seed, MIXED_DOCUMENTS).with_readers()
        if next(examples.first_pass(), None) is None:
            raise ValueError("the training text holds too few tokens to predict any")
    else:
        examples = blocks(tokens["train"], limit=args.max_train_samples)
    processes = run.accelerator.num_processes
    multiple_of = args.per_device_eval_batch_size * processes if processes > 1 else 1
    validation = blocks(tokens["validation"], limit=args.max_eval_samples, multiple_of=multiple_of)
    return LanguageModelingTask(
        run=replace(run, args=args),
        model=model,
        tokenizer=tokenizer,
        data=corpus,
        splits={"train": examples, "validation": validation},
        facts={
            "train_files": args.files_identity,
            "training text": corpus.stream.identity if corpus.stream else splits.digest([tokens["train"]]),
            "validation text": splits.digest([tokens["validation"]]),
        },
        sampler=sampler,
        tokens={name: len(split) for name, split in tokens.items()},
    )
