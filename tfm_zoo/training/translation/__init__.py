"""Translation: the task, its model and its data."""
