"""`python -m tests.hub.server [COMMAND]`: runs a command, or a shell, for which a Hub on this machine is the Hub.

It holds nothing at first, and is gone when the command ends. You are its user "user".
"""

import os
import subprocess
import sys
import tempfile

from . import HubServer

with HubServer() as server, tempfile.TemporaryDirectory() as home:
    print(f"The Hub at {server.url} lasts until this command ends.", file=sys.stderr)
    command = sys.argv[1:] or [os.environ.get("SHELL", "sh")]
    sys.exit(subprocess.run(command, env=os.environ | server.environment(home)).returncode)
