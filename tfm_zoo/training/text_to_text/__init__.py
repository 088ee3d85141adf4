"""Texts to read and texts to write: what translation and summarization share."""
