"""Texts of a stream, and what is read of it."""

from tfm_zoo.training.streaming.streams import Stream
from tfm_zoo.training.streaming.texts import TextSource

TEXTS = [f"text {i} " + "word " * (i % 7) for i in range(100)]


def read(source: TextSource) -> list[str]:
    """The texts of a pass, in order of the alphabet; a first line break is a blank, as shards of lines have one."""
    stream = Stream(source, lambda texts, rng: texts, seed=0)
    return sorted(text.replace("\n", " ", 1) for text in stream.first_pass())
