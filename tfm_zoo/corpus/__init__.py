"""Millions of texts through an encoder.

`reader.py` reads any iterable of texts, and needs transformers alone. `run.py` takes a data set (`source.py`) into a
folder of Parquet (`folder.py`).
"""

from .reader import CorpusReader

__all__ = ["CorpusReader"]
