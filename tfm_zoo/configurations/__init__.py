"""What configurations refuse: values, and combinations of values, that have no meaning. These rules stand where the zoo
is installed. They do not travel with a checkpoint, whose configuration was checked when it was made."""

import transformers  # noqa: F401, with which the zoo is plugged in: before the files here, so that no file is half imported
