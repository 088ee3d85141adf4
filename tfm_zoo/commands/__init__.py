"""The subcommands of `tfm-zoo`, a file per group.

A subcommand imports torch and transformers when it runs, not before: `tfm-zoo --help` answers at once.
"""

from ..utils.quiet import silence_interrupt

silence_interrupt()  # before imports that take seconds
