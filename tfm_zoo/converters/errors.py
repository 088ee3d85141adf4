"""The one error of this package."""


class ConversionError(ValueError):
    """A checkpoint or a model that cannot be converted; the message names what stands in the way."""
