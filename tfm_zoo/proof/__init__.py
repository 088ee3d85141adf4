"""Whether models, their vectors and their exports still compute what they did, and what rounding has cost.

`utils/folder_kinds.py` tells the three apart. All of it works on models of any class, official ones and the zoo's.
"""

from typing import TYPE_CHECKING

import transformers  # noqa: F401, which imports `tfm_zoo.plugin`: first, so that no file here is half imported then

from ..utils.importing import names_from

if TYPE_CHECKING:
    from .exports import verify_export
    from .matrix import Matrix, verify_matrix
    from .model_recording import record
    from .side_by_side import compare
    from .vector_recording import record_vectors
    from .vectors import verify_vectors
    from .verdict import Verdict
    from .verifying import verify

#: name -> the file that defines it
NAMES = {
    **{"Verdict": "verdict", "verify": "verifying", "Matrix": "matrix", "verify_matrix": "matrix"},
    **{"record": "model_recording", "compare": "side_by_side"},
    **{"record_vectors": "vector_recording", "verify_vectors": "vectors", "verify_export": "exports"},
}
__all__ = [
    "Matrix",
    "Verdict",
    "compare",
    "record",
    "record_vectors",
    "verify",
    "verify_export",
    "verify_matrix",
    "verify_vectors",
]

__getattr__ = names_from(__name__, NAMES)
