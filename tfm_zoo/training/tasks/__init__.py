"""Tasks. Each file reads from top to bottom: options, data, model, the task with its losses, and `load_task`."""
