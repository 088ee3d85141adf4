"""Official architectures and the zoo's, one reversible table each: a rule that reads is the rule that writes.

To add an architecture, write one file like `distilbert.py` and name its table in `official.ARCHITECTURES`.
"""

from .official import ARCHITECTURES, from_official, to_official
from .rules import ConversionError

__all__ = ["ARCHITECTURES", "ConversionError", "from_official", "to_official"]
