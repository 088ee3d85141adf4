"""What a check has found."""

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

from .origin import listed


@dataclass
class Verdict:
    """Whether a checkpoint is still as it was saved.

    Its `figures` are `saved_by`, the versions that saved it; `loader`, whose code was run; `drift`, the largest drift
    of each output, as a share of the output's largest value; the `tolerance` for that, with the `dtype` of the
    computation; `bit_for_bit`, whether the states after each part of the model are those of the fingerprint to the last
    bit; and `first_change`, the first part whose states differ by more than the tolerance. Those of vectors and of
    exports have `match`, what is said where nothing differs.
    """

    source: str  # the folder or Hub id
    code: str = ""  # whose code the checkpoint carries
    differences: list[str] = field(default_factory=list)  # what has changed since
    warnings: list[str] = field(default_factory=list)  # what could make a difference, though nothing differs yet
    figures: dict[str, Any] = field(default_factory=dict)

    def add(self, change: str, names: Collection[str]) -> None:
        """Notes a difference, if there are names that it is about."""
        self.differences += [f"{change}: {listed(names)}"] if names else []

    @property
    def ok(self) -> bool:
        return not self.differences

    @property
    def names_setting(self) -> bool:
        """Whether a changed setting of the model is among the differences."""
        return any(one.startswith("config.json: ") for one in self.differences)

    @property
    def match(self) -> str:
        """What is said where nothing differs."""
        if "match" in self.figures:
            return self.figures["match"]
        match = "code, weights and outputs match" if self.figures.get("drift") else "code and weights match"
        return "code matches" if self.figures.get("code_only") else match

    def __str__(self) -> str:
        notes = "".join(f" (warning: {warning})" for warning in self.warnings)
        return f"{self.source}: {'; '.join(self.differences) or self.match}{notes}"
