import transformers  # noqa: F401, with which the zoo is plugged in: before its files here, so that no file is half imported
