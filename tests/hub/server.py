"""A Hub for tests, which serves models to the real `huggingface_hub` client (through `HF_ENDPOINT`).

`python -m tests.hub.server [COMMAND]` runs a command, or a shell, for which it is the Hub, and you are its user "user".
It notes tokens, and asks for none. Data sets, Spaces, pull requests and storage of large files are not served: every
file comes with its commit.
"""

import hashlib
import json
import os
import re
import subprocess
import sys
import tempfile
import threading
from base64 import b64decode
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

from huggingface_hub import ModelCard
from yaml import YAMLError

DATE = "2026-01-01T00:00:00.000Z"
NUMBERS = count()


class RefusedError(Exception):
    """Status, message and perhaps a code, of which the client makes its own error."""


def hash_of(content: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


class Commit(NamedTuple):
    oid: str
    title: str
    files: dict[str, bytes]


class Repository:
    """It begins with a commit of `.gitattributes`, as on the Hub."""

    def __init__(self, name: str, private: bool = False):
        self.name, self.private = name, private
        self.commits: dict[str, Commit] = {}
        self.branches, self.tags = {}, {}  # name -> hash of a commit
        self.add({".gitattributes": b""})

    def add(self, files: dict[str, bytes], branch: str = "main", title: str = "") -> Commit:
        """Moves a branch on by one commit."""
        commit = Commit(hashlib.sha1(b"%d" % next(NUMBERS)).hexdigest(), title, files)
        self.branches[branch], self.commits[commit.oid] = commit.oid, commit
        return commit

    def at(self, revision: str) -> Commit:
        """The commit that a branch, a tag or a whole hash names."""
        oid = self.branches.get(revision) or self.tags.get(revision) or revision
        if oid not in self.commits:
            raise RefusedError(404, f"Invalid rev id: {revision}", "RevisionNotFound")
        return self.commits[oid]

    def read(self, path: str, revision: str = "main") -> bytes:
        if path not in (files := self.at(revision).files):
            raise RefusedError(404, f"No file {path} in {revision}", "EntryNotFound")
        return files[path]


class Requests(BaseHTTPRequestHandler):
    """What goes back is JSON or bytes, or a `RefusedError` is raised."""

    server: "HubServer"
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1

    def answer(self) -> None:
        path = [unquote(part) for part in urlsplit(self.path).path.strip("/").split("/")]
        if path[-1] != "agent-harnesses":  # for which the client asks once in a process, without a token
            self.server.tokens.add(self.headers.get("Authorization"))
        fault = next((self.server.faults[part] for part in path if part in self.server.faults), None)
        self.close_connection |= fault is not None
        if callable(fault):
            return fault()
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.lines = [json.loads(line) for line in body.splitlines()]
        self.status, self.more = 200, {}
        try:
            if isinstance(fault, int):
                raise RefusedError(fault, "A test asked for this fault")
            with self.server.lock:
                reply = self.reply("GET" if self.command == "HEAD" else self.command, *path)
        except RefusedError as refused:
            self.status, message, *code = refused.args
            reply = {"error": message}
            self.more |= {"X-Error-Message": ascii(message)[1:-1], "X-Error-Code": "".join(code)}
        reply = reply if isinstance(reply, bytes) else json.dumps(reply).encode()
        self.send_response(self.status)
        for name, value in (self.more | {"Content-Length": len(reply)}).items():
            self.send_header(name, str(value))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(reply[: len(reply) // 2] if fault == "cut" else reply)

    do_GET = do_HEAD = do_POST = answer  # noqa: N815

    def reply(self, *asked: str):
        match asked:
            case "GET", "api", "whoami-v2":
                return {"type": "user", "name": "user", "orgs": []}
            case "POST", "api", "repos", "create":
                given = self.lines[0]
                name = f"{given.get('organization') or 'user'}/{given['name']}"
                if not name.startswith("user/"):
                    raise RefusedError(403, f"user may not write to {name}")
                new = Repository(name, bool(given.get("private") or given.get("visibility") == "private"))
                self.status = 409 if name in self.server.repositories else 200  # which a client may allow
                self.server.repositories.setdefault(name, new)
                return {"name": name, "url": f"{self.server.url}/{name}"}
            case "POST", "api", "validate-yaml":
                errors = metadata_errors(self.lines[0]["content"])
                self.status = 400 if errors else 200
                return {"errors": [{"message": line} for line in errors], "warnings": []}
            case method, "api", "models", owner, name, *rest:
                return self.of_repository(method, self.repository(owner, name), *rest)
            case "GET", owner, name, "resolve", revision, *path:
                repository = self.repository(owner, name)
                content = repository.read("/".join(path), revision)
                self.more |= {"X-Repo-Commit": repository.at(revision).oid, "ETag": f'"{hash_of(content)}"'}
                return content
        raise RefusedError(404, "This is not served")

    def of_repository(self, method: str, repository: Repository, what: str = "revision", revision="main", *path: str):
        match method, what:
            case "GET", "refs":
                tags = [{"name": name, "ref": name, "targetCommit": oid} for name, oid in repository.tags.items()]
                return {"branches": [], "tags": tags, "converts": []}
            case "POST", "branch":
                if revision in repository.branches:
                    raise RefusedError(409, f"{revision} exists already")
                repository.branches[revision] = repository.at(self.lines[0].get("startingPoint", "main")).oid
                return None
        commit = repository.at(revision)
        match method, what:
            case "GET", "revision":
                about = {"id": repository.name, "sha": commit.oid, "private": repository.private}
                files = [{"rfilename": name} for name in commit.files]
                return about | {"siblings": files, "createdAt": DATE, "lastModified": DATE}
            case "GET", "tree":
                folder = "".join(f"{part}/" for part in path)
                inside = {name: content for name, content in commit.files.items() if name.startswith(folder)}
                if not inside:
                    raise RefusedError(404, f"No folder {folder} in {revision}", "EntryNotFound")
                file = {"type": "file"}
                return [file | {"path": name, "size": len(each), "oid": hash_of(each)} for name, each in inside.items()]
            case "GET", "commits":
                return [{"id": commit.oid, "title": commit.title, "date": DATE, "authors": [], "message": ""}]
            case "POST", "preupload":
                names = [file["path"] for file in self.lines[0]["files"]]
                known = {name: {"oid": hash_of(commit.files[name])} for name in names if name in commit.files}
                plan = {"uploadMode": "regular", "shouldIgnore": False}
                return {"files": [{"path": name} | plan | known.get(name, {}) for name in names]}
            case "POST", "commit" if revision in repository.branches:
                files = dict(commit.files)
                for kind, value in ((line["key"], line["value"]) for line in self.lines[1:]):
                    if kind == "file":
                        files[value["path"]] = b64decode(value["content"])
                    elif kind != "deletedFile" or files.pop(value["path"], None) is None:
                        raise RefusedError(400, f"{kind} of {value['path']} is not served")
                oid = repository.add(files, revision, self.lines[0]["value"]["summary"]).oid
                url = f"{self.server.url}/{repository.name}/commit/{oid}"
                return {"success": True, "commitOid": oid, "commitUrl": url}
        raise RefusedError(404, "This is not served")

    def repository(self, *names: str) -> Repository:
        if "/".join(names) not in self.server.repositories:
            raise RefusedError(404, "Repository not found", "RepoNotFound")
        return self.server.repositories["/".join(names)]

    def log_message(self, *_) -> None:
        """Not to the tests' output."""


class HubServer(ThreadingHTTPServer):
    """A Hub on the loopback interface while its context lasts, and the `repositories` that it holds.

    Requests with a part in their paths that `faults` knows, such as `"commit"`, fail: they get a status; what is asked
    is done, and half of the answer sent (`"cut"`); or a function is called, and no answer sent.
    """

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Requests)
        self.url = f"http://127.0.0.1:{self.server_port}"
        self.repositories: dict[str, Repository] = {}
        self.tokens: set[str | None] = set()
        self.faults: dict[str, int | str | Callable] = {}
        self.lock = threading.RLock()

    def environment(self, home: Path) -> dict[str, str]:
        """Variables with which a fresh process takes this for the Hub, and is its user."""
        off = dict.fromkeys(("HF_HUB_DISABLE_XET", "HF_HUB_DISABLE_TELEMETRY", "HF_HUB_DISABLE_PROGRESS_BARS"), "1")
        here = {"HF_ENDPOINT": self.url, "HF_HUB_OFFLINE": "0", "NO_PROXY": "127.0.0.1,localhost"}
        patient = dict.fromkeys(("HF_HUB_ETAG_TIMEOUT", "HF_HUB_DOWNLOAD_TIMEOUT"), "100")  # s, on a busy machine
        return here | off | patient | {"HF_HOME": str(home), "HF_TOKEN": "hf_user"}

    def __enter__(self) -> "HubServer":
        threading.Thread(target=self.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def __exit__(self, *_) -> None:
        self.shutdown()
        self.server_close()


ID = r"[\w.-]+(/[\w.-]+)?"
#: what the Hub accepts as the value of a field of a card, or as each of its values
FIELDS = {"license": r"[a-z0-9.-]+", "base_model": ID, "datasets": ID, "tags": r".+"}
FIELDS |= {"language": r"[a-z]{2,3}(-\w+)*|multilingual|code"}


def metadata_errors(card: str) -> list[str]:
    """A line for each value at the head of a card that the Hub would refuse."""
    try:
        written = ModelCard(card).data.to_dict()
    except (ValueError, YAMLError) as error:
        return [str(error)]
    values = {name: written.get(name, []) for name in FIELDS}
    words = [(name, word) for name, one in values.items() for word in (one if isinstance(one, list) else [one])]
    return [f"{name}: {word!r} is not valid" for name, word in words if not re.fullmatch(FIELDS[name], str(word), re.A)]


if __name__ == "__main__":
    with HubServer() as server, tempfile.TemporaryDirectory() as home:
        print(f"The Hub at {server.url} lasts until this command ends.", file=sys.stderr)
        command = sys.argv[1:] or [os.environ.get("SHELL", "sh")]
        sys.exit(subprocess.run(command, env=os.environ | server.environment(home)).returncode)
