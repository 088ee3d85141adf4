"""Fresh processes without the seconds of their imports: an interpreter imports once what is slow, and forks for each.

`Forks` is this interpreter, and the file is also the program that it runs. Nothing here imports the project.
"""

import atexit
import gc
import json
import os
import runpy
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

TRANSFORMERS = "from transformers import AutoModel, GenerationMixin, modeling_layers"
#: what is as slow, but reads no variables of Hugging Face's
LIBRARIES = "import torch._dynamo, torch.distributed.fsdp, torch.distributed.tensor"
LIBRARIES += ", scipy.optimize, matplotlib.figure, pandas"
STREAMS = ("stdin", "stdout", "stderr")


class Forks:
    """Runs scripts as `subprocess.run` does, with `python -I`, and captures what they print.

    Args:
        imports: what they find imported. Its variables have to be in `environment`, except `HF_MODULES_CACHE`, in which
            transformers keeps the code of checkpoints: each script can have its own.
    """

    def __init__(self, python: str = sys.executable, imports: str = TRANSFORMERS, **environment: str):
        command, pipe = [python, "-I", __file__, imports], subprocess.PIPE
        self.server = subprocess.Popen(command, env=os.environ | environment, stdin=pipe, stdout=pipe, text=True)

    def run(
        self, command: list[object], env: Mapping[str, str] = os.environ, input="", check=False, timeout=600, **_
    ) -> subprocess.CompletedProcess:
        """Runs `[python, script or "-c", program, *arguments]`; kills it after `timeout` seconds."""
        with TemporaryDirectory() as folder:
            Path(folder, "stdin").write_text(input)
            places = {"streams": folder, "cwd": os.getcwd()}
            asked = places | {"argv": list(map(str, command[1:])), "environment": dict(env), "timeout": timeout}
            print(json.dumps(asked), file=self.server.stdin, flush=True)
            code = int(self.server.stdout.readline())
            if code == -signal.SIGALRM:
                raise subprocess.TimeoutExpired(command, timeout)
            shown = [Path(folder, name).read_text() for name in STREAMS[1:]]
        ended = subprocess.CompletedProcess(command, code, *shown)
        if check and code:
            raise AssertionError(ended.stderr)
        return ended

    def __enter__(self) -> "Forks":
        return self

    def __exit__(self, *_) -> None:
        self.server.communicate()


@cache
def with_transformers() -> Forks:
    return Forks()


@cache
def with_libraries() -> Forks:
    return Forks(imports=LIBRARIES)


def become(streams: str, cwd: str, argv: list[str], environment: dict[str, str], timeout: int) -> None:
    """Makes this process that of a script."""
    signal.alarm(timeout)
    os.chdir(cwd)
    os.environ.update(environment)
    for number, name in enumerate(STREAMS):
        os.dup2(os.open(Path(streams, name), os.O_RDWR | os.O_CREAT), number)
    if "transformers" in sys.modules and (place := environment.get("HF_MODULES_CACHE")):
        from transformers import dynamic_module_utils
        from transformers.utils import hub

        hub.HF_MODULES_CACHE = dynamic_module_utils.HF_MODULES_CACHE = place
    paths = filter(None, environment.get("PYTHONPATH", "").split(os.pathsep))
    if argv[0] == "-c":
        sys.argv, sys.path[:0] = [argv[0], *argv[2:]], paths
        exec(argv[1], {"__name__": "__main__"})
    else:
        sys.argv, sys.path[:0] = argv, [str(Path(argv[0]).parent), *paths]
        runpy.run_path(argv[0], run_name="__main__")


def exit_code(error: BaseException) -> int:
    """With which the interpreter ends, and says why."""
    if isinstance(error, SystemExit) and isinstance(error.code, int | None):
        return error.code or 0
    if isinstance(error, SystemExit):
        print(error.code, file=sys.stderr)
        return 1
    try:
        sys.excepthook(type(error), error, error.__traceback__)
    except SystemExit as ended:
        return exit_code(ended)
    return 1


def serve() -> None:
    gc.freeze()
    gc.enable()
    for line in sys.stdin:
        if (process := os.fork()) == 0:
            code = 0
            try:
                become(**json.loads(line))
            except BaseException as error:
                code = exit_code(error)
            threading._shutdown()  # as at the end of any process: its threads have to end
            atexit._run_exitfuncs()
            for stream in (sys.__stdout__, sys.__stderr__):
                stream.flush()
            os._exit(code)  # to free what was imported takes a second
        print(os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]), flush=True)


if __name__ == "__main__":
    gc.disable()  # what is imported stays
    exec(sys.argv[1])
    serve()
