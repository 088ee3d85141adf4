"""A tagger of words with its tokenizer, from any checkpoint or with new weights."""

from collections.abc import Iterable

from tokenizers.pre_tokenizers import ByteLevel, Sequence
from transformers import AutoModelForTokenClassification, PreTrainedTokenizerBase

from tfm_zoo.training.finetuning import new_config_and_tokenizer, with_padding
from tfm_zoo.training.labels import LabellingArguments, label_fields, load_with_labels
from tfm_zoo.training.models import Head, ModelAndTokenizer

HEAD = Head(AutoModelForTokenClassification, "token classifier")


def build_tagger(
    args: LabellingArguments, label_names: list[str], texts: Iterable[str], max_length: int
) -> ModelAndTokenizer:
    """The checkpoint with a head for these labels, and its tokenizer; or a new model for texts of at most `max_length`
    tokens, and the tokenizer named, or one made from the texts."""
    if args.is_new:
        config, tokenizer = new_config_and_tokenizer(HEAD, args, texts, max_length, **label_fields(label_names))
        model = HEAD.new(args, config)
    else:
        model, tokenizer = load_with_labels(HEAD, args, HEAD.config_of_checkpoint(args), label_names)
    return model, reads_words(tokenizer)


def reads_words(tokenizer: PreTrainedTokenizerBase) -> PreTrainedTokenizerBase:
    """The tokenizer, set to read lists of words and to pad. A byte-level tokenizer is set to put a blank before each
    word, so that no two words are joined. A slow tokenizer (written in Python) is refused."""
    if not tokenizer.is_fast:
        slow = f"tokenizer {tokenizer.name_or_path!r} is slow (written in Python)"
        raise ValueError(f"{slow} and does not tell which word a token is from: give a fast one")
    splitter = tokenizer.backend_tokenizer.pre_tokenizer
    for part in splitter if isinstance(splitter, Sequence) else [splitter]:  # Llama 3 and Qwen2 have several
        if isinstance(part, ByteLevel) and not part.add_prefix_space:
            part.add_prefix_space = tokenizer.add_prefix_space = True
            tokenizer.backend_tokenizer.pre_tokenizer = splitter
            tokenizer.init_kwargs["add_prefix_space"] = True  # so that it is saved
    return with_padding(tokenizer)
