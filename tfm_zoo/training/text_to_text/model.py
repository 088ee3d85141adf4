"""A model that reads a text and writes one, with its tokenizer, with new weights or from any checkpoint."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

from transformers import AutoModelForSeq2SeqLM

from tfm_zoo.training.models import Head, ModelAndTokenizer, ModelArguments, new_tokenizer, vocabulary_option
from tfm_zoo.training.tokenizers import joint_bpe

HEAD = Head(AutoModelForSeq2SeqLM, "sequence-to-sequence language model")


@dataclass(frozen=True)
class TextToTextModelArguments(ModelArguments):
    """Which encoder-decoder to train."""

    small_type: ClassVar = "tfm_encoder_decoder"
    small_fields: ClassVar = {
        **ModelArguments.small_fields,
        **{"hidden_size": 128, "num_attention_heads": 4, "hidden_dropout": 0.0},  # the generated data have no noise
    }
    make_tokenizer: ClassVar = staticmethod(joint_bpe)

    tokenizer_vocab_size: int | None = vocabulary_option("a BPE of both sides")


def new_text_to_text(args: TextToTextModelArguments, texts: Iterable[str], writes: str = "text") -> ModelAndTokenizer:
    """A model with new weights; and the tokenizer named, or one made from the texts, those of both sides. An error says
    what the model `writes`, such as a "translation"."""
    tokenizer = new_tokenizer(args, texts)
    for token in ("pad_token", "eos_token"):
        if getattr(tokenizer, token) is None:
            raise ValueError(f"tokenizer {tokenizer.name_or_path!r} has no {token}, which a {writes} needs")
    bos, eos = tokenizer.bos_token_id, tokenizer.eos_token_id
    start = tokenizer.pad_token_id if bos is None else bos
    config = HEAD.new_config(args, tokenizer, bos_token_id=bos, eos_token_id=eos, decoder_start_token_id=start)
    if getattr(config, "forced_eos_token_id", None) is not None:  # of the architecture's own vocabulary
        config.forced_eos_token_id = eos
    return HEAD.new(args, config), tokenizer
