"""How the training of a variant went, as its folder keeps it."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from transformers import PreTrainedConfig

from tfm_zoo.training.checkpoints import TrainState, staged

FILE = "result.json"
CONFIG = "config."


@dataclass
class Result:
    """How the training of a variant went. Losses are those of the validation text, in nats per token."""

    name: str
    changes: dict[str, Any]
    parameters: int
    steps: int
    tokens_per_step: int
    final_loss: float | None  # None: it diverged
    best_loss: float | None  # None: it diverged before the first evaluation
    diverged_at: int | None  # the step after which the loss exploded
    tokens_per_second: float | None  # in training, by the median step
    peak_memory: int | None  # bytes, in training, of the main process
    settings: dict[str, Any]  # all that the result depends on
    log_history: list[dict[str, Any]] = field(default_factory=list)

    @property
    def peak_mebibytes(self) -> float | None:
        return self.peak_memory and self.peak_memory / 2**20

    def write(self, folder: Path) -> None:
        """Write the last file of a variant, in one move: a folder that has it is finished."""
        values = {name: value for name, value in asdict(self).items() if name != "log_history"}
        with staged(folder) as staging:
            (staging / FILE).write_text(json.dumps(values, indent=1) + "\n", encoding="utf-8")

    @classmethod
    def read(cls, folder: Path) -> "Result | None":
        """The result in a folder; `None` if its variant is not finished."""
        path = folder / FILE
        if not path.is_file():
            return None
        return cls(**json.loads(path.read_text(encoding="utf-8")), log_history=TrainState.read(folder).log_history)

    def changes_to(self, settings: Mapping[str, Any], config_class: type[PreTrainedConfig]) -> str:
        """How these settings differ from those of the result, in words."""
        fields = {name.removeprefix(CONFIG): value for name, value in self.settings.items() if name.startswith(CONFIG)}
        options = {name: value for name, value in self.settings.items() if not name.startswith(CONFIG)}
        # The fields as the class writes them now: an earlier version may have left out a default.
        recorded = options | as_json(settings_of(config_class.from_dict(fields)))
        pairs = {name: (recorded.get(name), settings.get(name)) for name in recorded | settings}
        return ", ".join(f"{name} was {old} and is {new}" for name, (old, new) in pairs.items() if old != new)


def settings_of(config: PreTrainedConfig) -> dict[str, Any]:
    """The fields of a configuration, as `config.json` holds them, under names that no option has."""
    fields = config.to_diff_dict().items()
    return {f"{CONFIG}{name}": value for name, value in fields if name != "transformers_version"}


def as_json(values: Mapping[str, Any]) -> dict[str, Any]:
    """Values as JSON reads them again: tuples as lists, all keys as texts."""
    return json.loads(json.dumps(values))
