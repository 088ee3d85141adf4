"""`python -m tfm_zoo` is the `tfm-zoo` command."""

from .cli import main

main()
