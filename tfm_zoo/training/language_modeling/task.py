"""Causal language modelling as a task: its options, its figures, samples, its card. The loss is the model's own."""

import copy
from dataclasses import dataclass, field
from typing import ClassVar

import torch
from torch import Tensor, nn
from transformers import GenerationConfig, PreTrainedModel, PreTrainedTokenizerBase

from tfm_zoo.models.losses import IGNORED
from tfm_zoo.training.arguments import LoopArguments, option
from tfm_zoo.training.checkpoints import TrainState
from tfm_zoo.training.language_modeling.conversations import Conversations
from tfm_zoo.training.language_modeling.data import Corpus
from tfm_zoo.training.sharding import is_sharded, unwrapped
from tfm_zoo.training.task import Batch, Task, loss_and_perplexity


@dataclass(frozen=True)
class LanguageModelingArguments(LoopArguments):
    """The options of a language modelling loop, besides those of every loop."""

    figures: ClassVar = ("loss", "perplexity")

    sample_prompt: str | None = option(None, "Text that samples continue; default: none, they begin a text.")
    sample_length: int = option(100, "Tokens of a sample; 0: no samples.", at_least=0)
    num_samples: int = option(1, "Samples drawn at each evaluation.", at_least=1)
    top_p: float = option(
        0.95, "Nucleus sampling: draw from the likeliest tokens that hold this much probability.", above=0, at_most=1
    )
    temperature: float = option(1.0, "Below 1, likely tokens are drawn more often.", above=0)


@dataclass
class Sampler:
    """Draws text from a model (nucleus sampling, Holtzman et al. 2020)."""

    args: LanguageModelingArguments
    tokenizer: PreTrainedTokenizerBase
    config: GenerationConfig  # the model's own; a copy of it takes the options
    longest: int  # tokens that the model takes
    prompt_ids: list[int] | None = None  # None: those of `args.sample_prompt`

    def __post_init__(self) -> None:
        args, tokenizer, longest = self.args, self.tokenizer, self.longest
        start = next((i for i in (tokenizer.bos_token_id, tokenizer.eos_token_id) if i is not None), 0)
        prompt = self.prompt_ids or tokenizer(args.sample_prompt or "")["input_ids"] or [start]
        self.prompt = torch.tensor([prompt] * args.num_samples)
        self.length = max(0, min(args.sample_length, longest - len(prompt)))
        if args.sample_length and self.length < 1:
            raise ValueError(f"sample_prompt has {len(prompt)} tokens, of {longest} that the model takes: shorten it")
        self.config = copy.deepcopy(self.config)
        self.config.update(
            do_sample=True,
            top_p=args.top_p,
            temperature=args.temperature,
            top_k=0,
            max_new_tokens=self.length or None,
            pad_token_id=start if tokenizer.pad_token_id is None else tokenizer.pad_token_id,
        )

    def draw(self, model: PreTrainedModel, step: int, sharded: bool = False) -> list[str]:
        """Samples of a model after `step` steps; none if `sample_length` is 0. If sharded, all processes call it."""
        if not self.length:
            return []
        training = model.training
        model.eval()
        devices = [] if model.device.type == "cpu" else [model.device]
        with torch.random.fork_rng(devices, device_type=model.device.type):  # leaves training's random numbers alone
            torch.manual_seed(self.args.seed + step)
            prompt = self.prompt.to(model.device)
            options = {"generation_config": self.config, "synced_gpus": sharded}
            ids = model.generate(prompt, attention_mask=torch.ones_like(prompt), **options)
        model.train(training)
        return self.tokenizer.batch_decode(ids, skip_special_tokens=True)


@dataclass(kw_only=True)
class LanguageModelingTask(Task):
    """A decoder learns to predict the next token."""

    data: Corpus | Conversations | None = None
    sampler: Sampler | None = None
    tokens: dict[str, int] = field(default_factory=dict)  # how many each split in memory has, for the card

    pipeline_tag = "text-generation"
    figure_names = {"loss": "loss per token", "perplexity": "perplexity"}
    headline = ("loss", "perplexity")
    picture_metrics = ("perplexity",)
    figures = staticmethod(loss_and_perplexity)

    @property
    def name_of_examples(self) -> str:
        return f"blocks of {self.splits['validation'].block_size} tokens"

    @property
    def is_chat(self) -> bool:
        return isinstance(self.data, Conversations)

    @property
    def example_prompt(self) -> str:
        """What the card's example asks the model to continue."""
        return self.args.sample_prompt or "Once"

    @property
    def example_length(self) -> int:
        """How many tokens the card's example asks for: no more than the model has positions for."""
        prompt_length = len(self.sampler.prompt_ids or self.tokenizer(self.example_prompt)["input_ids"])
        return max(1, min(self.args.sample_length or 100, self.sampler.longest - prompt_length))

    def loss(self, model: nn.Module, batch: Batch) -> Tensor:
        """The model's own. (With a cache, the official classes would not see where packed conversations begin.)"""
        return model(**batch, use_cache=False).loss

    def count(self, batch: Batch) -> int:
        """The tokens of a batch that are predicted: at most all but the first of each row."""
        return int((batch["labels"][:, 1:] != IGNORED).sum())

    def measure(self, model: nn.Module, batch: Batch) -> Tensor:
        """The sum of the losses of a batch, and the number of its tokens, `(1, 2)`."""
        # A zoo model computes its loss without logits if told to; an official model always makes them.
        options = {"return_logits": False} if self.is_zoo else {}
        loss_sum = model(**batch, num_items_in_batch=1, use_cache=False, **options).loss
        return torch.stack([loss_sum, loss_sum.new_tensor(self.count(batch))])[None]

    def after_evaluation(self, model: nn.Module, state: TrainState) -> None:
        """Draw samples on the main process, print them, and log them."""
        accelerator = self.accelerator
        if not self.sampler or is_sharded(accelerator) or not accelerator.is_main_process:
            return
        if samples := self.sampler.draw(unwrapped(accelerator, model), state.step):
            state.log_history.append({"step": state.step, "samples": samples})
        for sample in samples:
            print(f"--- sample after step {state.step}\n{sample}\n---", flush=True)

    def final_figures(self, best: nn.Module, state: TrainState) -> dict[str, float]:
        """No figures are added, as there is no test split. The card gets samples of this model."""
        accelerator = self.accelerator
        self.samples = self.sampler.draw(unwrapped(accelerator, best), state.best_step, is_sharded(accelerator))
        return {}
