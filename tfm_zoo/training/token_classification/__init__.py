"""Classification of words: the task, its model, its data and its measures."""
