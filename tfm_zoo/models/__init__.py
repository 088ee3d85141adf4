import transformers  # noqa: F401, with which the zoo is plugged in: before its files here, of which none is half imported
