"""What makes a model fast where it runs: `speed_up` for the model that one has, packed weights, ONNX graphs."""

from typing import TYPE_CHECKING

from ..utils.importing import names_from

if TYPE_CHECKING:
    from .speeding_up import restore, speed_up

__all__ = ["restore", "speed_up"]

# (Late: the import of transformers brings `packing`, perhaps from the middle of a file that `speed_up` needs.)
__getattr__ = names_from(__name__, dict.fromkeys(__all__, "speeding_up"))
