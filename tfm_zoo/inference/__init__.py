"""What makes a model fast where it runs: `speed_up` runs an official model's forward pass through the zoo's."""

from .speed_up import restore, speed_up

__all__ = ["restore", "speed_up"]
