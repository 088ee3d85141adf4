"""Fresh processes without the seconds of their imports: an interpreter imports transformers once, and forks for each.

`Forks` is this interpreter, and the file is also the program that it runs. Nothing here imports the project.
"""

import gc
import json
import os
import runpy
import signal
import subprocess
import sys
import traceback
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

STREAMS = ("stdin", "stdout", "stderr")
SECONDS = 300  # after which a fork is killed


class Forks:
    """Runs scripts as `subprocess.run` does, with `python -I` and the environment that it is made with.

    Of the environment of a single script, what libraries read when they are imported comes too late, except
    `HF_MODULES_CACHE`, in which transformers keeps the code of checkpoints.
    """

    def __init__(self, python: str = sys.executable, **environment: str):
        self.server = subprocess.Popen(
            [python, "-I", __file__],
            env=os.environ | environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def run(self, command: list[object], env: Mapping[str, str] = os.environ, input: str = "", check=False, **_):
        """Runs `[python, script, *arguments]`; streams are captured."""
        with TemporaryDirectory() as folder:
            Path(folder, "stdin").write_text(input)
            asked = {"folder": folder, "argv": list(map(str, command[1:])), "environment": dict(env)}
            print(json.dumps(asked), file=self.server.stdin, flush=True)
            code = int(self.server.stdout.readline())
            shown = [Path(folder, name).read_text() for name in STREAMS[1:]]
        ended = subprocess.CompletedProcess(command, code, *shown)
        if check:
            ended.check_returncode()
        return ended

    def __enter__(self) -> "Forks":
        return self

    def __exit__(self, *_) -> None:
        self.server.communicate()


def become(folder: str, argv: list[str], environment: dict[str, str]) -> None:
    """Makes this process that of a script."""
    from transformers import dynamic_module_utils
    from transformers.utils import hub

    signal.alarm(SECONDS)
    os.environ.update(environment)
    for number, name in enumerate(STREAMS):
        os.dup2(os.open(Path(folder, name), os.O_RDWR | os.O_CREAT), number)
    if cache := environment.get("HF_MODULES_CACHE"):
        hub.HF_MODULES_CACHE = dynamic_module_utils.HF_MODULES_CACHE = cache
    sys.argv = argv
    sys.path.insert(0, str(Path(argv[0]).parent))
    code = 0
    try:
        runpy.run_path(argv[0], run_name="__main__")
    except BaseException:
        traceback.print_exc()
        code = 1
    for stream in (sys.__stdout__, sys.__stderr__):
        stream.flush()
    os._exit(code)  # an orderly end takes a second


def serve() -> None:
    from transformers import AutoModel, GenerationMixin, modeling_layers  # noqa: F401, slow: before the forks

    gc.freeze()
    for line in sys.stdin:
        if (process := os.fork()) == 0:
            become(**json.loads(line))
        print(os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]), flush=True)


if __name__ == "__main__":
    serve()
