"""What was found out about a checkpoint."""

from dataclasses import dataclass, field
from typing import Any


@dataclass
class Verdict:
    """What was found out about a checkpoint.

    Args:
        source: the folder or Hub id.
        differences: what is not as it was; none: all is.
        warnings: what may make a difference, and made none.
        figures: `saved_by`, the versions; `drift`, the largest of each output, as a share of its largest value, with
            the `tolerance` for it and the `dtype` that it was computed in.
    """

    source: str
    differences: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    figures: dict[str, Any] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        return not self.differences

    def __str__(self) -> str:
        matched = "code, weights and outputs match" if self.figures.get("drift") else "code and weights match"
        found = "; ".join(self.differences) or matched
        return f"{self.source}: {found}" + "".join(f" (warning: {warning})" for warning in self.warnings)
