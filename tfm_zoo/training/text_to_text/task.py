"""Text to text as a task, in which a model reads a source and writes a target: its options, figures and samples."""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar, Literal

import torch
import torch.nn.functional as F
from accelerate.utils import gather_object
from torch import Tensor, nn
from tqdm.auto import tqdm
from transformers import DataCollatorWithPadding, GenerationConfig
from typing_extensions import Self

from tfm_zoo.models.losses import IGNORED
from tfm_zoo.training.arguments import LoopArguments, option
from tfm_zoo.training.checkpoints import TrainState
from tfm_zoo.training.sharding import is_sharded, unwrapped
from tfm_zoo.training.task import Batch, Task, loss_and_perplexity, sums_of_rows, with_prefix
from tfm_zoo.training.text_to_text.data import TextPairs
from tfm_zoo.training.text_to_text.measures import label_smoothed_loss, labelled_logits


@dataclass(frozen=True)
class TextToTextArguments(LoopArguments):
    """The options of a text-to-text loop, besides those of every loop."""

    #: the figures that rate written texts; and the option that says how many texts each evaluation writes
    score_names: ClassVar[Sequence[str]]
    counted_by: ClassVar[str]

    per_device_train_batch_tokens: int = option(
        0, "Tokens per process and forward pass, padding included; 0: batches by examples.", "max_tokens", at_least=0
    )
    label_smoothing_factor: float = option(
        0.0, "Label smoothing: probability that is spread over the vocabulary; 0: none.", at_least=0, below=1
    )
    label_smoothing_over: Literal["others", "all"] = option(
        "others",
        "Classes that share it: all 'others' than the label (Tensor2Tensor, the paper) or 'all' (torch).",
    )
    num_beams: int | None = option(None, "Width of the beam search; default: the checkpoint's; 4 if new.", at_least=1)
    length_penalty: float | None = option(
        None, "Above 0 favours long texts, below 0 short ones; default: the checkpoint's, or 1."
    )
    num_samples: int = option(4, "Samples printed at each evaluation, and put into the card.", at_least=0)

    @property
    def num_eval_texts(self) -> int:
        """For how many of the validation split's pairs a text is written at each evaluation."""
        return getattr(self, self.counted_by)

    @property
    def figures(self) -> tuple[str, ...]:
        return ("loss", "perplexity", *(self.score_names if self.num_eval_texts else ()))

    def resolved(self, is_new: bool) -> Self:
        """These options with the defaults that depend on the model filled in."""
        resolved = super().resolved(is_new)
        return replace(resolved, num_beams=4) if is_new and self.num_beams is None else resolved

    def set_generation(self, config: GenerationConfig, max_length: int, is_new: bool) -> None:
        """Let the model write as the options say, here and wherever it is loaded: at most `max_length` tokens, unless
        a checkpoint has a length of its own."""
        if is_new or (config.max_length is None and config.max_new_tokens is None):
            config.max_length = max_length
        # Set also if it is 1: without a number, the zoo's pipelines would search with more beams than evaluations do.
        config.num_beams = self.num_beams or config.num_beams or 1
        if self.length_penalty is not None:
            config.length_penalty = self.length_penalty


@dataclass(kw_only=True)
class TextToTextTask(Task):
    """An encoder-decoder learns to write the target of each source. The last samples are kept for the card."""

    args: TextToTextArguments
    data: TextPairs
    max_length: int  # the most tokens of a written text, its start token included

    writes: ClassVar[str]  # what is written, such as "translation"
    figure_names = {"loss": "loss per token", "perplexity": "perplexity"}
    picture_metrics = ("perplexity",)
    figures = staticmethod(loss_and_perplexity)

    @staticmethod
    @abstractmethod
    def scores(texts: Sequence[str], references: Sequence[str]) -> dict[str, float]:
        """The scores of written texts against their references."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.args.num_eval_texts and is_sharded(self.accelerator):
            raise ValueError(f"{self.args.counted_by}: a sharded model does not write in training; it does with DDP")
        lengths = [(len(pair["input_ids"]), len(pair["labels"])) for pair in self.splits["train"]]
        self.batch_tokens = self.args.per_device_train_batch_tokens
        self.lengths = lengths if self.batch_tokens else list(map(sum, lengths))

    def loss(self, model: nn.Module, batch: Batch) -> Tensor:
        """The mean loss over the target's tokens, with smoothed labels."""
        smoothing = self.args.label_smoothing_factor, self.args.label_smoothing_over
        return label_smoothed_loss(*labelled_logits(model, batch, self.is_zoo), *smoothing)

    def measure(self, model: nn.Module, batch: Batch) -> Tensor:
        """Loss and number of tokens of each target. Labels are not smoothed, so that perplexity is the text's."""
        logits, labels = labelled_logits(model, batch, self.is_zoo)
        losses = F.cross_entropy(logits, labels, reduction="none")
        return sums_of_rows(torch.stack([losses, torch.ones_like(losses)], dim=1), batch["labels"] != IGNORED)

    def evaluate(self, model: nn.Module, split: str = "validation") -> dict[str, float]:
        """Loss and perplexity of a split, and the scores of the texts that are written for its first pairs."""
        num_samples = 0 if is_sharded(self.accelerator) else self.args.num_samples
        return super().evaluate(model, split) | self.score(model, split, self.args.num_eval_texts, num_samples)

    def score(self, model: nn.Module, split: str, num_scored: int, num_samples: int) -> dict[str, float]:
        """The scores of texts for the first `num_scored` pairs of a split; the first `num_samples` become samples."""
        count = max(num_scored, num_samples)
        pairs = self.data.splits[split][:count]
        self.texts = self.write(model, self.splits[split][:count]["input_ids"])
        rows = zip(pairs["source"][:num_samples], pairs["target"], self.texts, strict=False)
        names = ("source", "reference", self.writes)
        self.samples = ["\n".join(map("  {:<11}  {}".format, names, row)) for row in rows]
        return self.scores(self.texts[:num_scored], pairs["target"][:num_scored]) if num_scored else {}

    def write(self, model: nn.Module, sources: Sequence[list[int]]) -> list[str]:
        """Texts for the token ids of sources, in their order, on every process; all call it and share the work."""
        accelerator, collate = self.accelerator, DataCollatorWithPadding(self.tokenizer)
        order = sorted(range(len(sources)), key=lambda row: -len(sources[row]))  # the longest first: little padding
        mine = order[accelerator.process_index :: accelerator.num_processes]
        whole, sharded = unwrapped(accelerator, model), is_sharded(accelerator)
        training = whole.training
        whole.eval()
        texts: list[tuple[int, str]] = []
        batch_size = self.args.per_device_eval_batch_size
        is_hidden = None if accelerator.is_main_process else True  # None: hidden only where stderr is no terminal
        # The processes of a sharded model must generate equally often. One without rows left writes a text for nothing.
        starts = range(0, -(-len(order) // accelerator.num_processes), batch_size)
        for start in tqdm(starts, desc="writing", leave=False, disable=is_hidden):
            rows = mine[start : start + batch_size]
            batch = collate([{"input_ids": sources[row]} for row in rows or order[:1]]).to(accelerator.device)
            ids = whole.generate(**batch, max_length=self.max_length, synced_gpus=sharded)
            texts += zip(rows, self.tokenizer.batch_decode(ids, skip_special_tokens=True), strict=bool(rows))
        whole.train(training)
        return [text for _, text in sorted(gather_object(texts))]

    def after_evaluation(self, model: nn.Module, state: TrainState) -> None:
        """Print samples, and log what was written."""
        if self.samples and self.accelerator.is_main_process:
            state.log_history.append({"step": state.step, "samples": self.texts[: len(self.samples)]})
            print(f"--- samples after step {state.step}", *self.samples, "---", sep="\n", flush=True)

    def final_figures(self, best: nn.Module, state: TrainState) -> dict[str, float]:
        """Loss and scores of the final split; the texts that the model writes for it go to a file."""
        split = self.final_split
        figures = super().evaluate(best, split)
        figures |= self.score(best, split, len(self.splits[split]), self.args.num_samples)
        if self.accelerator.is_main_process:
            lines = "".join(" ".join(text.split()) + "\n" for text in self.texts)
            # The file's name is that of transformers' examples.
            Path(self.args.output_dir, "generated_predictions.txt").write_text(lines, encoding="utf-8")
        return with_prefix(figures, split)
