"""A model that finds answers in texts, with its tokenizer, from any checkpoint or with new weights."""

from collections.abc import Iterable

from transformers import AutoModelForQuestionAnswering, PreTrainedTokenizerBase

from tfm_zoo.training.finetuning import FineTuningArguments, new_config_and_tokenizer, with_padding
from tfm_zoo.training.models import Head, ModelAndTokenizer

HEAD = Head(AutoModelForQuestionAnswering, "question answerer")
SCORES = 2  # of each token: as the first and as the last of an answer


def build_answerer(args: FineTuningArguments, texts: Iterable[str], max_length: int) -> ModelAndTokenizer:
    """The checkpoint with a head for answers, its own if it has one, and its tokenizer; or a new model for windows of
    at most `max_length` tokens, and the tokenizer named, or one made from the texts."""
    if args.is_new:
        config, tokenizer = new_config_and_tokenizer(HEAD, args, texts, max_length, num_labels=SCORES)
        model = HEAD.new(args, config)
    else:
        model, tokenizer = HEAD.load(args, num_labels=SCORES)
    return model, padded_at_right(tokenizer)


def padded_at_right(tokenizer: PreTrainedTokenizerBase) -> PreTrainedTokenizerBase:
    """The tokenizer, set to pad at the right, so that padding moves no token. [`Windows`] then put the question first:
    a decoder reads it before the context, and the first token, which may stand for "no answer", is not of the context.
    """
    tokenizer.padding_side = "right"
    return with_padding(tokenizer)
