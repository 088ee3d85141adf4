"""Words that log, errors and cards share."""


def counted(number: int, thing: str) -> str:
    """A number and what it counts: "1 row", "2 rows", "2 processes"."""
    plural = "" if number == 1 else "es" if thing.endswith("s") else "s"
    return f"{number:,} {thing}{plural}"
