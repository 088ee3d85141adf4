"""Answers to questions, as spans of a text: the task, its model, its data and its measures."""
