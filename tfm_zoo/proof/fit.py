"""How near vectors of a store are to those that a model gives for the same texts."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from .comparisons import TOLERANCE

#: how far numbers may be apart, as a share of the largest of their vector, by the type that they are stored in. (Those
#: of smaller types are rounded by half of the last place that they have.)
STORED = {"float64": 1e-4, "float32": 1e-4, "float16": 2e-3}
#: the cosine from which on vectors are called the same up to rounding; up to that of weights in four bits; and the mean
#: one of settings worth naming
ROUNDED, INT4, NEAR = 0.99, 0.9, 0.5
#: how far the length of a vector that was rounded may be from its own, as a share
LENGTHENED = 0.1


@dataclass(frozen=True)
class Fit:
    """The distance of vectors to others, row by row.

    Args:
        cosines: of each row, `(rows,)`.
        differences: the largest of each row, as a share of the largest number of its vector, `(rows,)`.
        lengths: of each row, how many times as long its vector is, `(rows,)`.
    """

    cosines: np.ndarray
    differences: np.ndarray
    lengths: np.ndarray

    @property
    def cosine(self) -> float:
        return float(self.cosines.min())

    @property
    def difference(self) -> float:
        return float(self.differences.max())

    @property
    def is_rounded(self) -> bool:
        """Whether these may be the same vectors, rounded to a smaller type."""
        return self.cosine > ROUNDED and self.lengthened is None

    @property
    def lengthened(self) -> int | None:
        """The place of the row whose vector has the wrong length by most, if one has."""
        errors = np.abs(self.lengths - 1)
        return int(errors.argmax()) if errors.max() > LENGTHENED else None

    def worse(self, bound: float) -> list[int]:
        """The places of the rows that are further apart than `bound`."""
        return [int(place) for place in np.flatnonzero(~(self.differences <= bound))]

    def __str__(self) -> str:
        if self.difference == np.inf:
            return "of another size, or not numbers"
        return f"least cosine {self.cosine:.6f}, largest difference {self.difference:.1e} of the largest number"


def fit_of(stored: np.ndarray, made: np.ndarray) -> Fit:
    """How near `made` is to `stored`, both `(rows, size)`; infinitely far if they differ in size."""
    rows = len(stored)
    if stored.shape != made.shape:
        return Fit(np.full(rows, -1.0), np.full(rows, np.inf), np.ones(rows))
    one, other = stored.astype(np.float64), made.astype(np.float64)
    length, wanted = np.linalg.norm(one, axis=1), np.linalg.norm(other, axis=1)
    cosines = (one * other).sum(1) / np.where(length * wanted == 0, 1, length * wanted)
    lengths = np.where(wanted == 0, 1, length / np.where(wanted == 0, 1, wanted))
    cosines = np.where((one == other).all(1), 1.0, cosines)
    largest = np.abs(one).max(1)
    differences = np.abs(one - other).max(1) / np.where(largest == 0, 1, largest)
    return Fit(np.nan_to_num(cosines, nan=-1), np.nan_to_num(differences, nan=np.inf), np.nan_to_num(lengths, nan=1))


def least_cosine(computed: Mapping[str, Any]) -> float:
    """The least cosine that vectors may have with those that their model gives without packed weights; `computed`: how
    they were made."""
    return INT4 if computed.get("pack") else ROUNDED


def bound_of(stored: str, dtype: str, agreement: dict | None = None, times: float = 1.05) -> float:
    """How far vectors may be from those that a model gives now.

    Args:
        stored: the type that they are stored in.
        dtype: the type that the model is loaded in.
        agreement: how near they were to what the model gave when they were recorded. (What something else wrote, such
            as a packed model, does not come nearer later.)
        times: how many times as far as then they may be.
    """
    return max(STORED.get(stored, 1e-4), TOLERANCE.get(dtype, 1e-4)) + times * (agreement or {}).get("difference", 0)
