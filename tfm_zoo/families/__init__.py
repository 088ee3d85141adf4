"""The families of the zoo: which Auto class loads which class, and published sizes by name."""

import transformers  # noqa: F401, with which the zoo is plugged in: before the files here, so that no file is half imported
