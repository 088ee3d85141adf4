"""Causal language modelling as a task: its options, what its loss counts, one evaluation, samples, its card."""

import copy
import inspect
import json
import math
from collections.abc import Iterable
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import torch
from accelerate import Accelerator
from torch import Tensor, nn
from transformers import GenerationConfig, PreTrainedModel, PreTrainedTokenizerBase

from tfm_zoo.hub.cards import table
from tfm_zoo.training.arguments import LoopArguments, check_at_least, option
from tfm_zoo.training.checkpoints import TrainState
from tfm_zoo.training.corpora import IGNORED, Corpus
from tfm_zoo.training.reports import Report, shortened
from tfm_zoo.training.runs import is_sharded


@dataclass
class LanguageModelingArguments(LoopArguments):
    """What a language modelling loop needs to know beyond any other."""

    sample_prompt: str | None = option(None, "How the samples begin; default: at the start of a text.")
    sample_length: int = option(100, "Tokens of a sample that is drawn at each evaluation; 0: no samples.")
    num_samples: int = option(1, "Samples drawn at each evaluation.")
    top_p: float = option(0.95, "Nucleus sampling: draw from the likeliest tokens that hold this much probability.")
    temperature: float = option(1.0, "Below 1, likely tokens are drawn more often.")

    def __post_init__(self) -> None:
        super().__post_init__()
        check_at_least(self, {"sample_length": 0, "num_samples": 1})
        if not 0 < self.top_p <= 1:
            raise ValueError(f"top_p must be above 0 and at most 1, not {self.top_p}")
        if not self.temperature > 0:
            raise ValueError(f"temperature must be above 0, not {self.temperature}")


def count_predicted(batch: dict[str, Tensor]) -> int:
    """What a language model's loss is the mean over: the labels but the first of each row, which nothing predicts."""
    return int((batch["labels"][:, 1:] != IGNORED).sum())


@torch.no_grad()
def evaluate_language_model(
    accelerator: Accelerator, model: nn.Module, loader: Iterable[dict[str, Tensor]], blocks: int
) -> dict[str, float]:
    """Mean loss per token, its exponential (perplexity) and blocks per second, the same on every process.

    Args:
        loader: batches with "labels", prepared by the accelerator, of `blocks` blocks in all.
    """
    forward = inspect.signature(accelerator.unwrap_model(model).forward).parameters
    # A zoo model need not make the logits of a loss (a native one always does).
    options = {"return_logits": False} if "return_logits" in forward else {}
    model.eval()
    loss_sum, tokens = 0.0, 0
    start = perf_counter()
    for batch in loader:
        loss_sum += model(**batch, num_items_in_batch=1, **options).loss.item()  # the sum, and not the mean
        tokens += count_predicted(batch)
    totals = torch.tensor([loss_sum, tokens], device=accelerator.device)
    loss_sum, tokens = accelerator.reduce(totals, "sum").tolist()
    seconds = perf_counter() - start
    model.train()
    loss = loss_sum / tokens
    return {"loss": loss, "perplexity": math.exp(min(loss, 700)), "samples_per_second": blocks / seconds}


class Sampler:
    """Draws text from a model as it stands (nucleus sampling, Holtzman et al. 2020).

    What it draws follows from the seed and the step alone, and it leaves the random numbers of training as they were.

    Args:
        config: how the model generates otherwise: where a text ends.
        room: how many tokens the model takes.

    Raises:
        ValueError: if the prompt leaves no room for a token.
    """

    def __init__(
        self,
        args: LanguageModelingArguments,
        tokenizer: PreTrainedTokenizerBase,
        config: GenerationConfig,
        room: int,
    ):
        self.args, self.tokenizer = args, tokenizer
        start = next((i for i in (tokenizer.bos_token_id, tokenizer.eos_token_id) if i is not None), 0)
        prompt = tokenizer(args.sample_prompt or "")["input_ids"] or [start]
        self.prompt = torch.tensor([prompt] * args.num_samples)
        self.length = max(0, min(args.sample_length, room - len(prompt)))
        if args.sample_length and self.length < 1:
            raise ValueError(f"sample_prompt has {len(prompt)} tokens, of {room} that the model takes: shorten it")
        self.config = copy.deepcopy(config)
        padding = start if tokenizer.pad_token_id is None else tokenizer.pad_token_id
        self.config.update(
            do_sample=True,
            top_p=args.top_p,
            temperature=args.temperature,
            top_k=0,
            max_new_tokens=self.length or None,
            pad_token_id=padding,
        )

    def after_evaluation(self, accelerator: Accelerator, model: nn.Module, state: TrainState) -> None:
        """Draw samples, print them, and keep them in the history. All processes may call it; the main one draws."""
        if not self.length or is_sharded(accelerator) or not accelerator.is_main_process:
            return
        samples = self.draw(accelerator.unwrap_model(model), state.step)
        state.log_history.append({"step": state.step, "samples": samples})
        for sample in samples:
            print(f"--- sample after step {state.step}\n{sample}\n---", flush=True)

    @torch.no_grad()
    def draw(self, model: PreTrainedModel, step: int) -> list[str]:
        training = model.training
        model.eval()
        with torch.random.fork_rng():
            torch.manual_seed(self.args.seed + step)
            prompt = self.prompt.to(model.device)
            ids = model.generate(prompt, attention_mask=torch.ones_like(prompt), generation_config=self.config)
        model.train(training)
        return self.tokenizer.batch_decode(ids, skip_special_tokens=True)


@dataclass
class LanguageModelReport(Report):
    """The card of a language model."""

    corpus: Corpus
    tokens: dict[str, str]  # how many, of each split
    block_size: int
    samples: list[str]  # of the best model

    pipeline_tag = "text-generation"
    picture_metrics = ("perplexity",)
    figure_names = {"loss": "loss per token", "perplexity": "perplexity"}
    headline = ("loss", "perplexity")

    def introduction(self) -> str:
        origin = f"`{shortened(self.base_model)}`, fine-tuned" if self.base_model else "A new model, trained"
        return f"""
{origin} on `{self.dataset}` to predict the next token.
{self.carries_its_code}

```python
from transformers import pipeline

generate = pipeline("text-generation", model={json.dumps(self.repository)}{self.remote_code})
generate({self.args.sample_prompt or "Once"!r}, max_new_tokens={self.args.sample_length or 100})
```
""".strip()

    def data(self) -> str:
        return f"""
Loss in nats per token, over every token but the first of each block of {self.block_size}; perplexity is its
exponential, and depends on the tokenizer (here {self.model.config.vocab_size:,} tokens).

{table(self.tokens, ("split", "tokens"))}

{" ".join(self.corpus.notes)}
""".strip()

    def split_of_the_figures(self) -> str | None:
        return "validation" if self.corpus.has_own_validation else None

    def task_settings(self) -> dict[str, Any]:
        return {"tokens per block": self.block_size}

    def appendix(self) -> str:
        """Samples: what the model wrote at the first evaluation, and the best one."""
        if not self.samples:
            return ""
        early = next((entry for entry in self.state.log_history if "samples" in entry), None)
        parts = [f"## Samples\n\nNucleus sampling, p = {self.args.top_p:g}, temperature {self.args.temperature:g}."]
        if early and early["step"] != self.state.best_step:
            parts += [f"After {early['step']} steps:", _quoted(early["samples"][0])]
        return "\n\n".join([*parts, f"After {self.state.best_step} steps:", *map(_quoted, self.samples)])


def _quoted(text: str) -> str:
    return f"````text\n{text}\n````"
