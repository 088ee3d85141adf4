"""The command, in this process."""

from typer.testing import CliRunner

from tfm_zoo.cli import app


def tfm_zoo(*words: object, code: int = 0) -> str:
    """What `tfm-zoo` says, in one line; it ends with this code."""
    done = CliRunner().invoke(app, [*map(str, words)])
    assert done.exit_code == code, done.output
    return " ".join(done.output.split())
