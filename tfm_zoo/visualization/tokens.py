"""The labels that tokens have in a picture."""

from collections.abc import Sequence

from tokenizers.decoders import ByteLevel
from transformers import PreTrainedTokenizerBase

LONGEST = 14
#: visible marks for spaces (as SentencePiece writes them, and OpenAI GPT at the end of a word) and line ends
MARKS = {"▁": "·", "</w>": "·", " ": "·", "\n": "↵", "\t": "⇥"}


def token_labels(tokenizer: PreTrainedTokenizerBase | None, ids: Sequence[int], is_source: bool = False) -> list[str]:
    """Each token as readable text, with visible marks for spaces and line ends; without a tokenizer, its number.

    Args:
        ids: token ids.
        is_source: whether the ids are of the text that a model reads. Translators such as FSMT and Marian may have a
            vocabulary of their own for it.
    """
    if tokenizer is None:
        return [str(index) for index in ids]
    if is_source and hasattr(tokenizer, "get_src_vocab"):  # `convert_ids_to_tokens` knows the target's vocabulary only
        source = {index: token for token, index in tokenizer.get_src_vocab().items()}
        tokens = [source.get(index) for index in ids]
    else:
        tokens = tokenizer.convert_ids_to_tokens(list(ids))
    # Byte-level BPE writes a letter for each byte, such as "Ġ" for the space.
    if "ByteLevel" in repr(getattr(getattr(tokenizer, "backend_tokenizer", None), "decoder", None)):
        tokens = [token and ByteLevel().decode([token]) for token in tokens]
    # An embedding may have more rows than there are tokens.
    return [f"<{index}>" if token is None else readable(token) for index, token in zip(ids, tokens, strict=True)]


def readable(token: str) -> str:
    for written, mark in MARKS.items():
        token = token.replace(written, mark)
    return "".join(sign if sign.isprintable() else sign.encode("unicode_escape").decode() for sign in token)


def shortened(labels: Sequence[str]) -> list[str]:
    return [label if len(label) <= LONGEST else label[: LONGEST - 1] + "…" for label in labels]
