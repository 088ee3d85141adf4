"""Plugs the zoo into transformers and its peers, by being imported: `tfm_zoo` does so as soon as there is transformers.

The packages that it uses have it imported before their own files: none of these is half imported when it asks for them.
"""

from ..utils.quiet import silenced_imports

with silenced_imports():
    from .patches import (
        add_names_to_transformers,
        add_types_to_peft,
        ask_for_bases,
        place_tied_modules,
        read_encoders_alone,
        refuse_to_change_packed_models,
    )
    from .registration import register

register()
add_names_to_transformers()
add_types_to_peft()
ask_for_bases()
refuse_to_change_packed_models()
read_encoders_alone()
place_tied_modules()
