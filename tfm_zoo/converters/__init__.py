"""Converts between official checkpoints and the zoo's, both ways, by one reversible table per official architecture.

The tables are in `architectures/`: they are data, and importing them loads neither torch nor a model. They consist of
rules: `config_rules.py` defines those for configurations, `tensor_rules.py` those for tensors. The other files apply
the tables, and open, name and write what is converted. `from_state_dict` and `to_state_dict` convert models of other
classes, by tensor rules that a caller gives.
"""

from typing import TYPE_CHECKING

from ..utils.importing import names_from
from .architectures import ARCHITECTURES
from .errors import ConversionError
from .tensor_rules import Interleaved, Join, NotConverted, Rename, Row, Sinusoids, Split, SplitHeads, Transpose, ZooOnly

if TYPE_CHECKING:
    from .conversion import from_official, to_official
    from .own_models import from_state_dict, to_state_dict

__all__ = [
    "ARCHITECTURES",
    "ConversionError",
    "Interleaved",
    "Join",
    "NotConverted",
    "Rename",
    "Row",
    "Sinusoids",
    "Split",
    "SplitHeads",
    "Transpose",
    "ZooOnly",
    "from_official",
    "from_state_dict",
    "to_official",
    "to_state_dict",
]

#: name -> the file that defines it, imported at its first use because it imports torch
LAZY = {
    **dict.fromkeys(("from_official", "to_official"), "conversion"),
    **dict.fromkeys(("from_state_dict", "to_state_dict"), "own_models"),
}

__getattr__ = names_from(__name__, LAZY)
