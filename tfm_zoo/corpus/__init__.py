"""Millions of texts through an encoder: one class that reads texts, and one that takes a data set into a folder."""

from .reader import CorpusReader
from .run import CorpusRun
from .source import Corpus

__all__ = ["Corpus", "CorpusReader", "CorpusRun"]
