"""Forks end as processes do: with their threads, and not at all if one of these does not end."""

import subprocess
import sys

import pytest

from ..forks import Forks

pytestmark = pytest.mark.slow

THREAD = "import threading, time; threading.Thread(target=lambda: (time.sleep({}), print('done'))).start()"


def test_a_process_waits_for_its_threads():
    with Forks(imports="import json") as forks:
        assert forks.run([sys.executable, "-c", THREAD.format(0.2)]).stdout == "done\n"
        with pytest.raises(subprocess.TimeoutExpired):
            forks.run([sys.executable, "-c", THREAD.format(60)], timeout=1)
