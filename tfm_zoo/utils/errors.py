"""How an error is told inside a sentence."""


def in_one_line(error: Exception) -> str:
    """What an error says, without line breaks and without a full stop at its end; if it says nothing, its class."""
    return " ".join(str(error).split()).rstrip(".") or type(error).__name__
