"""The one error of this package, and where its messages send people with other models."""

#: the last sentence of several messages
OTHER_MODELS = (
    "For other models, tfm_zoo.converters.from_state_dict takes a state dict and the zoo's names of its tensors: see "
    "'A model of your own' in recipes/README.md."
)


class ConversionError(ValueError):
    """A checkpoint or a model that cannot be converted; the message names what stands in the way."""
