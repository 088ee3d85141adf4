"""Summaries of texts: the task, its data and its measures."""
