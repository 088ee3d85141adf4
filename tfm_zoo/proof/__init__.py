"""What proves itself besides models: vectors that a model made, exports of it, and what rounding it has cost.

`kinds.py` tells the three apart that `tfm-zoo verify` takes. Nothing here needs a class of the zoo.
"""

from typing import TYPE_CHECKING

from ..importing import names_from

if TYPE_CHECKING:
    from .exports import verify_export
    from .recording import record_vectors
    from .vectors import verify_vectors

__all__ = ["record_vectors", "verify_export", "verify_vectors"]

__getattr__ = names_from(
    __name__, {"record_vectors": "recording", "verify_export": "exports", "verify_vectors": "vectors"}
)
