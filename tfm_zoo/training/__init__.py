"""What the recipes share: options, data, batches, checkpoints. Import the modules; they need the extra `recipes`."""

from ..quiet import hush_interrupt

hush_interrupt()  # before imports that take seconds
