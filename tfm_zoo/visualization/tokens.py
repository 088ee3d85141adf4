"""Tokens, as a picture names them."""

from collections.abc import Sequence

from tokenizers.decoders import ByteLevel
from transformers import PreTrainedTokenizerBase

LONGEST = 14
#: how tokenizers write a space (SentencePiece; at the end of a word, OpenAI GPT), and what cannot be seen
MARKS = {"▁": "·", "</w>": "·", " ": "·", "\n": "↵", "\t": "⇥"}


def token_labels(tokenizer: PreTrainedTokenizerBase, ids: Sequence[int], is_source: bool = False) -> list[str]:
    """Each token as readable text, in which spaces and line ends are marks that can be seen.

    Args:
        is_source: ids are those of what is read. A translator's may have a vocabulary of their own (FSMT, Marian).
    """
    if is_source and hasattr(tokenizer, "get_src_vocab"):  # such a tokenizer converts ids of the target alone
        source = {index: token for token, index in tokenizer.get_src_vocab().items()}
        tokens = [source.get(index) for index in ids]
    else:
        tokens = tokenizer.convert_ids_to_tokens(list(ids))
    # Byte-level BPE writes each byte as a letter of its own, of which "Ġ" is the space.
    if "ByteLevel" in repr(getattr(getattr(tokenizer, "backend_tokenizer", None), "decoder", None)):
        tokens = [token and ByteLevel().decode([token]) for token in tokens]
    # Of a vocabulary with more rows than tokens, some ids have none.
    return [f"<{index}>" if token is None else readable(token) for index, token in zip(ids, tokens, strict=True)]


def readable(token: str) -> str:
    for written, mark in MARKS.items():
        token = token.replace(written, mark)
    return "".join(sign if sign.isprintable() else sign.encode("unicode_escape").decode() for sign in token)


def shortened(labels: Sequence[str]) -> list[str]:
    return [label if len(label) <= LONGEST else label[: LONGEST - 1] + "…" for label in labels]
