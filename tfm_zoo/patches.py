"""What `tfm_zoo` changes in another library while it runs: each change stands here, and says why.

(What other libraries print is a matter of `quiet.py`.)
"""

import transformers

from .registration import FAMILIES


def add_classes_to_transformers() -> None:
    """Makes every zoo class an attribute of `transformers`.

    `transformers serve` takes the class of a checkpoint from `getattr(transformers, config.architectures[0])`. It does
    not ask the Auto classes, where the zoo's classes are registered, and has no other place to register them.
    """
    for module, config_class in FAMILIES.items():
        for name in config_class.auto_classes.values():
            setattr(transformers, name, getattr(module, name))
