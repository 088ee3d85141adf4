"""The pipelines that transformers 5 removed: translation, summarization, text to text, question answering.

They take zoo models and official ones, and the arguments that they took in transformers 4, but for `topk` and
`return_type`, which were deprecated. Importing this package does not import the pipelines.
"""

from .factory import pipeline

__all__ = ["pipeline"]
