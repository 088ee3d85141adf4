"""How examples become batches."""

from collections.abc import Iterator
from typing import Any


class PadsAtRight:
    """A pipeline that pads batches at the right, whatever the tokenizer's side.

    Padding at the left would move every token to another position than it has alone.
    """

    def get_iterator(self, *arguments: Any) -> Iterator[Any]:
        side, self.tokenizer.padding_side = self.tokenizer.padding_side, "right"
        try:
            return super().get_iterator(*arguments)
        finally:
            self.tokenizer.padding_side = side
