"""Classification of texts: the task, its model and its data."""
