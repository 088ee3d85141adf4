"""Pre-training of encoder-decoders by span corruption: they write what a text lacks (T5, Raffel et al. 2020).

Read from top to bottom: the options, the model, the task (its loss is the model's own), and `prepare`. The documents
are loaded by `streaming/documents.py`, and made into examples by `streaming/spans.py`.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor, nn
from transformers import PreTrainedTokenizerBase

from tfm_zoo.training.loop import Loop
from tfm_zoo.training.models import ModelAndTokenizer
from tfm_zoo.training.new_models import new_tokenizer
from tfm_zoo.training.options import option
from tfm_zoo.training.run import start_run
from tfm_zoo.training.sharding import unwrapped
from tfm_zoo.training.streaming.documents import DocumentOptions, Documents, task_of_documents
from tfm_zoo.training.streaming.spans import SpanCorruption
from tfm_zoo.training.task import Batch, TokenTask
from tfm_zoo.training.tasks.text_to_text import HEAD, losses_of_targets, new_writer
from tfm_zoo.training.tokenizers import bpe_with_sentinels


@dataclass(frozen=True)
class DenoisingOptions(DocumentOptions):
    """The options of span corruption. Defaults are T5's."""

    small_type: ClassVar = dict.fromkeys(("zoo", "native"), "tfm_encoder_decoder")
    #: as T5's: relative positions, no biases
    small_fields: ClassVar = {
        **DocumentOptions.small_fields,
        **{"hidden_size": 128, "num_attention_heads": 4, "hidden_dropout": 0.0},
        **{"position_embedding_type": "none", "relative_attention_num_buckets": 32, "scale_embedding": False},
        **{"norm_position": "pre", "norm_type": "rmsnorm", "attention_bias": False, "mlp_bias": False},
    }
    make_tokenizer: ClassVar = staticmethod(bpe_with_sentinels)

    max_seq_length: int = option(512, "Tokens that the model reads of an example, at most.", "max_length")
    noise_density: float = option(0.15, "Share of the tokens that are left out.", above=0, below=1)
    mean_noise_span_length: float = option(3.0, "Mean number of tokens of what is left out.", at_least=1)


@dataclass(kw_only=True)
class DenoisingTask(TokenTask):
    """An encoder-decoder learns to write the spans that texts lack."""

    args: DenoisingOptions

    pipeline_tag = "text2text-generation"

    def measure(self, model: nn.Module, batch: Batch) -> dict[str, Tensor]:
        """Loss and number of tokens of each target."""
        shifted = unwrapped(self.accelerator, model).prepare_decoder_input_ids_from_labels(labels=batch["labels"])
        return losses_of_targets(model, {**batch, "decoder_input_ids": shifted}, self.is_zoo)

    def for_card(self) -> dict[str, Any]:
        sizes = {"train": self.splits["train"].size, "validation": len(self.splits["validation"])}
        by_length = sorted(self.splits["validation"], key=lambda example: len(example["input_ids"]))
        short = by_length[len(by_length) // 4]
        example = {name: self.tokenizer.decode(short[name]) for name in ("input_ids", "labels")}
        return {"sizes": sizes, "example": example}


def build_writer(args: DenoisingOptions, documents: Documents) -> ModelAndTokenizer:
    if not args.is_new:
        return HEAD.load(args)
    tokenizer = new_tokenizer(args, documents.train.first_texts())
    return ModelAndTokenizer(new_writer(args, tokenizer, "span"), tokenizer)


def make_examples_for(
    args: DenoisingOptions, documents: Documents, tokenizer: PreTrainedTokenizerBase, longest: int
) -> SpanCorruption:
    made = SpanCorruption(tokenizer, args.max_seq_length, args.noise_density, args.mean_noise_span_length)
    if made.longest > longest:
        raise ValueError(f"noise_density {args.noise_density}: {made.longest} tokens to write, of {longest} at most")
    return made


def prepare(argv: list[str] | None = None) -> Loop:
    """Read options, data and model: all that a user can get wrong."""
    run = start_run("pretrain_t5", DenoisingOptions, argv)
    return Loop(run, task_of_documents(run, DenoisingTask, build_writer, make_examples_for))
