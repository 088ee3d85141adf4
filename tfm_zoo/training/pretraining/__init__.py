"""Pre-training of encoders: the task, its model and its data."""
