"""What the recipes share: options, data, batches, checkpoints. Import the modules; they need the extra `recipes`."""
