"""What the pipelines of this package share."""

from collections.abc import Iterator
from typing import Any


class PadsAtRight:
    """A pipeline that reads texts, and pads batches at the right, whatever the tokenizer's side.

    Padding at the left would move every token to another position than it has alone.
    """

    _load_tokenizer = True
    _load_processor = _load_image_processor = _load_video_processor = _load_feature_extractor = False

    def get_iterator(self, *arguments: Any) -> Iterator[Any]:
        side, self.tokenizer.padding_side = self.tokenizer.padding_side, "right"
        try:
            return super().get_iterator(*arguments)
        finally:
            self.tokenizer.padding_side = side


def without_none(arguments: dict[str, Any]) -> dict[str, Any]:
    """The arguments that were given. The base class prefers those of a call to those of the pipeline's constructor."""
    return {name: value for name, value in arguments.items() if value is not None}
