"""Texts to read and texts to write: what translation and summarization share."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from accelerate.utils import gather_object
from datasets import DatasetDict
from torch import Tensor, nn
from tqdm.auto import tqdm
from transformers import (
    AutoModelForSeq2SeqLM,
    DataCollatorForSeq2Seq,
    DataCollatorWithPadding,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)
from typing_extensions import Self

from tfm_zoo.data.options import option
from tfm_zoo.data.splits import Data, vocabulary_digest
from tfm_zoo.models.losses import IGNORED
from tfm_zoo.pipelines.text_to_text import field_of_original, load_target_tokenizer
from tfm_zoo.training.batches import Division, GlobalBatchSampler
from tfm_zoo.training.checkpoints import TrainState
from tfm_zoo.training.models import Head
from tfm_zoo.training.new_models import new_config, new_model, new_tokenizer
from tfm_zoo.training.options import TrainingOptions
from tfm_zoo.training.sharding import is_sharded
from tfm_zoo.training.task import Batch, Tensors, TokenTask, inputs_of, sums_of_rows, with_prefix
from tfm_zoo.training.tokenizers import joint_bpe

HEAD = Head(AutoModelForSeq2SeqLM, "sequence-to-sequence language model")
SIDES = ("source", "target")  # the columns of pairs
TARGET_TOKENIZER = "target_tokenizer"  # the folder, beside the model, of a tokenizer that targets have of their own
NUM_SAMPLES = 4  # printed at each evaluation, and put into the card


@dataclass(frozen=True)
class TextToTextOptions(TrainingOptions):
    """The options of a model that reads a text and writes one."""

    default_model: ClassVar = None
    small_type: ClassVar = dict.fromkeys(("zoo", "native"), "tfm_encoder_decoder")
    small_fields: ClassVar = {
        **TrainingOptions.small_fields,
        **{"hidden_size": 128, "num_attention_heads": 4, "hidden_dropout": 0.0},  # the generated data have no noise
    }
    make_tokenizer: ClassVar = staticmethod(joint_bpe)
    length_options: ClassVar = {"max_source_length": "tokenizer", "max_target_length": "target_tokenizer"}
    writes: ClassVar[str]  # what the model writes, such as a "translation"
    # Options in whose place source and target have their own
    max_seq_length: ClassVar = None
    pad_to_max_length: ClassVar = False
    group_by_length: ClassVar = False

    # The data
    source_prefix: str = option("", "Put before every source, such as 'summarize: ' for T5; kept with the model.")
    max_source_length: int = option(128, "Longer sources are truncated to this many tokens.", at_least=1)
    max_target_length: int = option(128, "Likewise for targets; the model writes no longer ones, either.", at_least=1)

    # The run
    per_device_train_batch_tokens: int = option(
        0, "Tokens a pass and process, with padding; 0: batches by examples.", "max_tokens", at_least=0
    )
    label_smoothing_factor: float = option(0.0, "Label smoothing: what labels give to others.", at_least=0, below=1)
    num_beams: int | None = option(None, "Width of the beam search; default: the checkpoint's; 4 if new.", at_least=1)
    num_eval_texts: int = option(
        0, "The first pairs to write texts for, and score.", "num_eval_translations", "num_eval_summaries", at_least=0
    )

    def with_defaults(self) -> Self:
        args = super().with_defaults()
        return replace(args, num_beams=4) if args.is_new and args.num_beams is None else args


@dataclass
class TextPairs(Data):
    """Splits whose columns "source" and "target" hold texts."""

    languages: tuple[str, str] | None = None  # of a translation: names of columns, or codes that begin with them

    text_columns = SIDES

    @property
    def usual_metrics(self) -> list[str]:
        return ["sacrebleu", "chrf", "exact_match"] if self.languages else ["rouge"]

    def encode(self, args: TextToTextOptions, model: Any, tokenizer: Any, target_tokenizer: Any) -> DatasetDict:
        """The splits as token ids, "input_ids" and "labels"."""

        def encode_batch(rows: dict[str, list[str]]) -> dict[str, list]:
            texts = [args.source_prefix + text for text in rows["source"]]
            sources = tokenizer(texts, truncation=True, max_length=args.max_source_length)
            targets = target_tokenizer(text_target=rows["target"], truncation=True, max_length=args.max_target_length)
            return {"input_ids": sources["input_ids"], "labels": targets["input_ids"]}

        options = {"remove_columns": [*SIDES], "num_proc": args.preprocessing_num_workers}
        return self.splits.map(encode_batch, batched=True, **options)


def build_seq2seq(args: TextToTextOptions, pairs: TextPairs) -> tuple[Any, ...]:
    """A model, and the tokenizers of what it reads and writes. They differ in some checkpoints, in new models never."""
    if args.is_new:
        tokenizer = new_tokenizer(args, pairs.texts())
        return new_seq2seq(args, tokenizer, args.writes), tokenizer, tokenizer
    model, tokenizer = HEAD.load(args)
    return model, tokenizer, load_target_tokenizer(model, trust_remote_code=args.trust_remote_code) or tokenizer


def new_seq2seq(args: TrainingOptions, tokenizer: PreTrainedTokenizerBase, writes: str) -> PreTrainedModel:
    """A model with new weights."""
    for token in ("pad_token", "eos_token"):
        if getattr(tokenizer, token) is None:
            raise ValueError(f"tokenizer {tokenizer.name_or_path!r} has no {token}, which a {writes} needs")
    start = tokenizer.pad_token_id if tokenizer.bos_token_id is None else tokenizer.bos_token_id
    config = new_config(HEAD, args, tokenizer, decoder_start_token_id=start)
    size = getattr(config, "decoder_vocab_size", None) or config.vocab_size
    if size < len(tokenizer):
        raise ValueError(f"decoder_vocab_size {size}: the tokenizer has {len(tokenizer)} tokens")
    if getattr(config, "forced_eos_token_id", None) is not None:  # of the architecture's own vocabulary
        config.forced_eos_token_id = tokenizer.eos_token_id
    return new_model(HEAD, args, config)


class TargetTask(TokenTask):
    """An encoder-decoder learns to write targets, which are its labels."""

    smoothing = 0.0  # of labels, in training

    def __post_init__(self) -> None:
        super().__post_init__()
        self.collate.model = self.model  # which makes the decoder's inputs of the labels

    def compute_batch(self, model: nn.Module, batch: Batch) -> Tensors:
        """The summed loss of each target's tokens, `(batch,)`. Labels are smoothed in training alone."""
        labelled, epsilon = batch["labels"] != IGNORED, self.smoothing if torch.is_grad_enabled() else 0.0
        if self.is_zoo and torch.is_grad_enabled() and not epsilon:  # in chunks, whose logits are not held
            return {"loss": model(**batch, use_cache=False, num_items_in_batch=1).loss[None]}
        options = {"logits_to_keep": labelled} if self.is_zoo else {}  # an official model makes those of all positions
        logits = model(**inputs_of(batch), use_cache=False, **options).logits
        logits = logits if self.is_zoo else logits[labelled]  # `(tokens, vocab_size)`
        losses = label_smoothed_loss(logits, batch["labels"][labelled], epsilon)
        return {"loss": sums_of_rows(losses, labelled)}


@dataclass(kw_only=True)
class TextToTextTask(TargetTask):
    """An encoder-decoder learns to write the target of each source. The last samples are kept for the card."""

    data: TextPairs
    target_tokenizer: PreTrainedTokenizerBase

    collator_class = DataCollatorForSeq2Seq

    def __post_init__(self) -> None:
        super().__post_init__()
        args, config = self.args, self.model.config
        if not args.num_eval_texts and args.metric_for_best_model not in TokenTask.metric_titles:
            raise ValueError(f"metric_for_best_model {args.metric_for_best_model!r} needs num_eval_texts")
        if args.num_eval_texts and is_sharded(self.accelerator):
            raise ValueError("num_eval_texts: a sharded model does not write in training; it does with DDP")
        lengths = [(len(pair["input_ids"]), len(pair["labels"])) for pair in self.splits["train"]]
        self.lengths = lengths if args.per_device_train_batch_tokens else list(map(sum, lengths))
        self.smoothing = args.label_smoothing_factor
        self.max_length = args.max_target_length + 1  # of a written text, with the token that every one starts with
        generation = self.model.generation_config  # by which the model writes, here and wherever it is loaded
        if args.is_new or (generation.max_length is None and generation.max_new_tokens is None):
            generation.max_length = self.max_length
        # Set also if it is 1: without a number, the zoo's pipelines would search with more beams than evaluations do.
        generation.num_beams = args.num_beams or generation.num_beams or 1
        self.has_two = self.target_tokenizer is not self.tokenizer
        if self.has_two:
            self.facts["target tokenizer"] = vocabulary_digest(self.target_tokenizer)
        if args.source_prefix or self.has_two or field_of_original(config, "task_specific_params"):
            folder = {"target_tokenizer": TARGET_TOKENIZER} if self.has_two else {}
            config.task_specific_params = {self.pipeline_tag: {"prefix": args.source_prefix, **folder}}

    def make_batch_sampler(self, division: Division) -> GlobalBatchSampler:
        if tokens := self.args.per_device_train_batch_tokens:
            return TokenBatchSampler(self.lengths, replace(division, per_device=tokens), self.args.seed)
        return super().make_batch_sampler(division)

    def evaluate(self, model: nn.Module, split: str = "validation") -> dict[str, float]:
        """Loss and perplexity of a split, and the scores of the texts that are written for its first pairs."""
        num_samples = 0 if is_sharded(self.accelerator) else NUM_SAMPLES
        return super().evaluate(model, split) | self.score(model, split, self.args.num_eval_texts, num_samples)

    def score(self, model: nn.Module, split: str, num_scored: int, num_samples: int) -> dict[str, float]:
        """The scores of texts for the first `num_scored` pairs of a split; the first `num_samples` become samples."""
        count = max(num_scored, num_samples)
        pairs = self.data.splits[split][:count]
        self.texts = self.write(model, self.splits[split][:count]["input_ids"])
        rows = zip(pairs["source"][:num_samples], pairs["target"], self.texts, strict=False)
        names = ("source", "reference", self.args.writes)
        self.samples = ["\n".join(map("  {:<11}  {}".format, names, row)) for row in rows]
        if not num_scored:
            return {}
        numbers, self.others = self.metrics(self.texts[:num_scored], pairs["target"][:num_scored])
        return numbers

    def write(self, model: nn.Module, sources: Sequence[list[int]]) -> list[str]:
        """Texts for the token ids of sources, in their order, on every process; all call it and share the work."""
        accelerator, collate = self.accelerator, DataCollatorWithPadding(self.tokenizer)
        order = sorted(range(len(sources)), key=lambda row: -len(sources[row]))  # the longest first: little padding
        # All have as many rows, one perhaps twice: the processes of a sharded model must generate equally often.
        share, batch_size = -(-len(order) // accelerator.num_processes), self.args.per_device_eval_batch_size
        mine = (order[accelerator.process_index :: accelerator.num_processes] + order[:1])[:share]
        unwrapped, sharded, texts = self.unwrapped(model).eval(), is_sharded(accelerator), []
        for start in tqdm(range(0, share, batch_size), desc="writing", leave=False, disable=self.hides_bars):
            rows = mine[start : start + batch_size]
            batch = collate([{"input_ids": sources[row]} for row in rows]).to(accelerator.device)
            ids = unwrapped.generate(**batch, max_length=self.max_length, synced_gpus=sharded)
            texts += zip(rows, self.target_tokenizer.batch_decode(ids, skip_special_tokens=True), strict=True)
        unwrapped.train()
        return [text for _, text in sorted(dict(gather_object(texts)).items())]

    def after_evaluation(self, model: nn.Module, state: TrainState) -> None:
        """Print samples, and log what was written."""
        if self.samples and self.accelerator.is_main_process:
            state.log_history.append({"step": state.step, "samples": self.texts[: len(self.samples)]})
            print(f"--- samples after step {state.step}", *self.samples, "---", sep="\n", flush=True)

    def final_metrics(self, best: nn.Module, state: TrainState) -> dict[str, float]:
        """Loss and scores of the final split; the texts that the model writes for it go to a file."""
        split = self.final_split
        metrics = super().evaluate(best, split) | self.score(best, split, len(self.splits[split]), NUM_SAMPLES)
        if self.accelerator.is_main_process:
            lines = "".join(" ".join(text.split()) + "\n" for text in self.texts)
            # The file's name is that of transformers' examples.
            Path(self.args.output_dir, "generated_predictions.txt").write_text(lines, encoding="utf-8")
        return with_prefix(metrics, split)

    def save_tokenizer(self, folder: Path) -> None:
        if self.has_two:
            self.target_tokenizer.save_pretrained(folder / TARGET_TOKENIZER)
        super().save_tokenizer(folder)  # last: it completes the manifest


def label_smoothed_loss(logits: Tensor, labels: Tensor, epsilon: float) -> Tensor:
    """The cross-entropy of `(tokens, vocab_size)` logits, `(tokens,)`, against labels that keep `1 - epsilon`, and give
    the rest evenly to all others: Tensor2Tensor's definition, with which *Attention Is All You Need* was trained."""
    classes = logits.shape[-1]
    # torch spreads a mass over all classes: this one gives epsilon / (classes - 1) to each, the label's own included.
    spread = epsilon * classes / (classes - 1)
    return F.cross_entropy(logits.float(), labels, reduction="none", label_smoothing=spread)


class TokenBatchSampler(GlobalBatchSampler):
    """A [`GlobalBatchSampler`] that limits batches by tokens, padding included, and not by examples.

    A global batch holds at most as many tokens as `division` says, when each of its columns (source and target) is
    padded to its longest. Examples of similar `lengths`, `(examples, columns)`, are together.
    From epoch to epoch examples of equal lengths change places, and batches change their order, but not their sizes.
    """

    #: larger batches hold a multiple of this many examples, which most numbers of processes share evenly
    MULTIPLE = 8

    def __init__(self, lengths: Sequence[Sequence[int]], division: Division, seed: int = 0):
        self.columns, self.sizes = torch.as_tensor(lengths), None
        longest, most = int(self.columns.sum(dim=1).max()), division.per_device
        if longest > most:
            raise ValueError(f"per_device_train_batch_tokens {most}: too few for an example of {longest} tokens")
        super().__init__(len(self.columns), division, seed)

    def draw_global_batches(self, generator: torch.Generator) -> Sequence[Tensor]:
        order = torch.randperm(self.size, generator=generator)
        # A stable sort by one column after the other sorts by the last, and where that is equal by those before it.
        for column in self.columns.T:
            order = order[column[order].argsort(stable=True)]
        self.sizes = self.sizes or [*self._sizes(self.columns[order])]
        batches = order.split(self.sizes)
        return [batches[index] for index in torch.randperm(len(batches), generator=generator)]

    def capacity(self, batch: Tensor) -> int:
        # At least one: a batch's longest source and longest target may be too long together, but no example is.
        return max(1, self.division.per_device // int(self.columns[batch].amax(dim=0).sum()))

    def _sizes(self, lengths: Tensor) -> Iterator[int]:
        """How many examples, sorted by length, each batch takes: as many as fit."""
        limit = self.division.global_batch_size
        while len(lengths):
            padded = lengths[:limit].cummax(dim=0).values.sum(dim=1)
            size = int((padded * torch.arange(1, len(padded) + 1) <= limit).sum())
            if self.MULTIPLE < size < len(lengths):
                size -= size % self.MULTIPLE
            yield size
            lengths = lengths[size:]
