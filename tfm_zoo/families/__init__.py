"""The families of the zoo: which Auto class loads which class, and published sizes by name."""

import transformers  # noqa: F401, which imports `plugin`, and this the files here: before any of them
