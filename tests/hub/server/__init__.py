"""A Hub for tests, which serves models to the real `huggingface_hub` client (through `HF_ENDPOINT`).

Each action of `Requests` is one thing that a client asks for, below the path with which it asks; a test can let it
fail. Data sets, Spaces, pull requests and storage of large files are not served: every file comes with its commit.
"""

import hashlib
import json
import re
import sys
import threading
from base64 import b64decode
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from pathlib import Path, PurePosixPath
from urllib.parse import parse_qs, unquote, urlsplit

from . import metadata

__all__ = ["HubServer", "Repository"]

DATE = "2026-01-01T00:00:00.000Z"
NUMBERS = count()


class RefusedError(Exception):
    """What was asked for cannot be had; some reasons have a code, which the client makes its own error of."""

    def __init__(self, status: int, message: str, code: str | None = None):
        super().__init__(message)
        self.status, self.code = status, code


def git_hash(content: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


@dataclass(frozen=True)
class Commit:
    oid: str
    title: str
    files: dict[str, bytes]
    before: tuple["Commit", ...]

    def read(self, path: str) -> bytes:
        if path not in self.files:
            raise RefusedError(404, f"No file {path} in {self.oid}", "EntryNotFound")
        return self.files[path]


class Repository:
    """It begins with a commit of `.gitattributes`, as on the Hub."""

    def __init__(self, name: str, private: bool = False):
        self.name, self.owner, self.private = name, name.partition("/")[0], private
        self.commits: dict[str, Commit] = {}
        self.branches: dict[str, str] = {}
        self.tags: dict[str, str] = {}
        self.add("main", "initial commit", {".gitattributes": b""})

    def at(self, revision: str) -> Commit:
        """The commit that a branch, a tag or a whole hash names."""
        oid = self.branches.get(revision) or self.tags.get(revision) or revision
        if oid not in self.commits:
            raise RefusedError(404, f"Invalid rev id: {revision}", "RevisionNotFound")
        return self.commits[oid]

    def read(self, path: str, revision: str = "main") -> bytes:
        return self.at(revision).read(path)

    def commit(self, branch: str, title: str, changes: list[dict]) -> Commit:
        """Moves a branch on by one commit of what a client sends, or leaves it where it is."""
        if branch not in self.branches:
            raise RefusedError(404, f"Invalid rev id: {branch}, no branch", "RevisionNotFound")
        files = dict(self.at(branch).files)
        for kind, value in ((change["key"], change["value"]) for change in changes):
            path = value["path"]
            if kind == "file":
                files[path] = b64decode(value["content"])
            elif kind == "deletedFile" and path in files:
                del files[path]
            else:
                raise RefusedError(400, f"{kind} of {path} is not served")
        return self.add(branch, title, files)

    def add(self, branch: str, title: str, files: dict[str, bytes]) -> Commit:
        oid, parent = hashlib.sha1(b"%d" % next(NUMBERS)).hexdigest(), self.branches.get(branch)
        before = self.at(parent) if parent else None
        self.branches[branch] = oid
        self.commits[oid] = Commit(oid, title, files, (before, *before.before) if before else ())
        return self.commits[oid]


PLACES = {"repo": r"[\w.-]+/[\w.-]+", "path": ".+"}  # any other is one segment
ROUTES: list[tuple[str, re.Pattern, Callable]] = []


def on(method: str, path: str):
    """Puts an action into the table of routes. `{repo}` reaches it as a repository that the user may see (and change,
    unless the method is GET), `{commit}` as the commit that a revision names, other places as text."""
    pattern = re.sub(r"{(\w+)}", lambda place: f"(?P<{place[1]}>{PLACES.get(place[1], '[^/]+')})", path)

    def add(action: Callable) -> Callable:
        ROUTES.append((method, re.compile(pattern), action))
        return action

    return add


class Requests(BaseHTTPRequestHandler):
    """An action gives what goes back, as JSON or as bytes, or raises `RefusedError`."""

    server: "HubServer"
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1

    @on("GET", "/api/whoami-v2")
    def whoami(self):
        self.check_owner(self.user)
        token = {"type": "access_token", "accessToken": {"displayName": "test", "role": "write"}}
        return {"type": "user", "name": self.user, "fullname": self.user, "orgs": [], "auth": token}

    @on("POST", "/api/repos/create")
    def create(self):
        name = f"{self.json.get('organization') or self.user}/{self.json['name']}"
        private = bool(self.json.get("private") or self.json.get("visibility") == "private")
        self.check_owner(name.partition("/")[0])
        new = Repository(name, private)
        self.status = 200 if self.server.repositories.setdefault(name, new) is new else 409  # which a client may allow
        return {"name": name, "url": f"{self.server.url}/{name}"}

    @on("GET", "/api/models/{repo}")
    @on("GET", "/api/models/{repo}/revision/{commit}")
    def info(self, repo: Repository, commit: Commit | None = None):
        commit = commit or repo.at("main")
        files = [{"rfilename": path, "blobId": git_hash(commit.files[path])} for path in commit.files]
        dates = {"createdAt": DATE, "lastModified": DATE}
        return {"id": repo.name, "sha": commit.oid, "private": repo.private, "siblings": files} | dates

    @on("GET", "/api/models/{repo}/tree/{commit}")
    @on("GET", "/api/models/{repo}/tree/{commit}/{path}")
    def tree(self, repo: Repository, commit: Commit, path: str = "."):
        deep = self.query.get("recursive", ["false"])[0].lower() == "true"
        inside = [file for file in map(PurePosixPath, commit.files) if PurePosixPath(path) in file.parents]
        if not inside:
            raise RefusedError(404, f"No folder {path} in {commit.oid}", "EntryNotFound")
        shown = {str(file): commit.files[str(file)] for file in inside if deep or str(file.parent) == path}
        files = [{"path": name, "size": len(each), "oid": git_hash(each)} for name, each in shown.items()]
        return [{"type": "file"} | file for file in files]

    @on("GET", "/api/models/{repo}/commits/{commit}")
    def commits(self, repo: Repository, commit: Commit):
        about = [{"id": one.oid, "title": one.title} for one in (commit, *commit.before)]
        return [one | {"date": DATE, "authors": [], "message": ""} for one in about]

    @on("GET", "/{repo}/resolve/{commit}/{path}")
    def resolve(self, repo: Repository, commit: Commit, path: str):
        content = commit.read(path)
        self.more["ETag"] = f'"{git_hash(content)}"'
        return content

    @on("GET", "/api/models/{repo}/refs")
    def refs(self, repo: Repository):
        def listed(kind: str, names: dict[str, str]) -> list[dict]:
            return [{"name": name, "ref": f"refs/{kind}/{name}", "targetCommit": oid} for name, oid in names.items()]

        return {"branches": listed("heads", repo.branches), "tags": listed("tags", repo.tags), "converts": []}

    @on("POST", "/api/models/{repo}/branch/{name}")
    def create_branch(self, repo: Repository, name: str):
        if name in repo.branches:
            raise RefusedError(409, f"{name} exists already")
        repo.branches[name] = repo.at(self.json.get("startingPoint", "main")).oid

    @on("POST", "/api/validate-yaml")
    def validate(self):
        try:
            errors = metadata.errors(metadata.read(self.json["content"]) or {})
        except ValueError as error:
            errors = [str(error)]
        self.status = 400 if errors else 200
        return {"errors": [{"message": line} for line in errors], "warnings": []}

    @on("POST", "/api/models/{repo}/preupload/{commit}")
    def preupload(self, repo: Repository, commit: Commit):
        names = [file["path"] for file in self.json["files"]]
        known = {name: {"oid": git_hash(commit.files[name])} for name in names if name in commit.files}
        plan = {"uploadMode": "regular", "shouldIgnore": False}
        return {"files": [{"path": name} | plan | known.get(name, {}) for name in names]}

    @on("POST", "/api/models/{repo}/commit/{branch}")
    def commit(self, repo: Repository, branch: str):
        header, *changes = map(json.loads, self.body.splitlines())
        oid = repo.commit(branch, header["value"]["summary"], changes).oid
        return {"success": True, "commitOid": oid, "commitUrl": f"{self.server.url}/{repo.name}/commit/{oid}"}

    # Who asks, for which repository and commit

    def act(self, action: Callable, places: dict):
        scheme, _, token = self.headers.get("Authorization", "").partition(" ")
        if scheme and token not in self.server.users:
            raise RefusedError(401, "Invalid credentials in Authorization header")
        self.user = self.server.users.get(token)
        if "repo" in places:
            repository = places["repo"] = self.server.repositories.get(places["repo"])
            if repository is None or (repository.private and self.user != repository.owner):
                raise RefusedError(404 if self.user else 401, "Repository not found", "RepoNotFound")
            if self.command == "POST":
                self.check_owner(repository.owner)
            if "commit" in places:
                places["commit"] = repository.at(places["commit"])
                self.more["X-Repo-Commit"] = places["commit"].oid
        return action(self, **places)

    def check_owner(self, owner: str | None) -> None:
        if self.user is None:
            raise RefusedError(401, "Invalid username or password.")
        if self.user != owner:
            raise RefusedError(403, f"{self.user} may not write to what is {owner}'s")

    def answer(self) -> None:
        url = urlsplit(self.path)
        action, places = find("GET" if self.command == "HEAD" else self.command, url.path)
        fault = self.server.meet(action.__name__ if action else f"{self.command} {url.path}")
        if callable(fault):
            self.close_connection = True
            return fault()
        self.body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.query, self.more, self.status = parse_qs(url.query), {}, 200
        try:
            if isinstance(fault, int) or action is None:
                raise RefusedError(fault or 404, "A test asked for this fault" if fault else "This is not served")
            with self.server.lock:
                reply = self.act(action, places)
        except RefusedError as refused:
            self.more |= {"X-Error-Message": ascii(str(refused))[1:-1]}
            self.more |= {"X-Error-Code": refused.code} if refused.code else {}
            reply, self.status = {"error": str(refused)}, refused.status
        reply = reply if isinstance(reply, bytes) else json.dumps(reply).encode()
        self.send_response(self.status)
        for name, value in (self.more | {"Content-Length": len(reply)}).items():
            self.send_header(name, str(value))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(reply[: len(reply) // 2] if fault == "cut" else reply)
        self.close_connection |= fault == "cut"

    do_GET = do_HEAD = do_POST = answer  # noqa: N815

    @property
    def json(self) -> dict:
        return json.loads(self.body)

    def log_message(self, *_) -> None:
        """Not to the tests' output."""


def find(method: str, path: str) -> tuple[Callable | None, dict[str, str]]:
    for served, pattern, action in ROUTES:
        places = pattern.fullmatch(path)
        if places and served == method:
            return action, {name: unquote(value) for name, value in places.groupdict().items()}
    return None, {}


class HubServer(ThreadingHTTPServer):
    """A Hub on the loopback interface while its context lasts: `users` are its tokens, `repositories` what it holds,
    and `served` counts the requests for each action."""

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Requests)
        self.url = f"http://127.0.0.1:{self.server_port}"
        self.users = {"hf_user": "user"}
        self.repositories: dict[str, Repository] = {}
        self.served: Counter[str] = Counter()
        self.faults: dict[str, tuple] = {}
        self.lock = threading.RLock()

    def environment(self, home: Path) -> dict[str, str]:
        """Variables with which a fresh process takes this for the Hub, and is its user."""
        off = dict.fromkeys(("HF_HUB_DISABLE_XET", "HF_HUB_DISABLE_TELEMETRY", "HF_HUB_DISABLE_PROGRESS_BARS"), "1")
        here = {"HF_ENDPOINT": self.url, "HF_HUB_OFFLINE": "0", "NO_PROXY": "127.0.0.1,localhost"}
        patient = dict.fromkeys(("HF_HUB_ETAG_TIMEOUT", "HF_HUB_DOWNLOAD_TIMEOUT"), "100")  # s, on a busy machine
        return here | off | patient | {"HF_HOME": str(home), "HF_TOKEN": "hf_user"}

    def fail(self, action: str, fault: int | str | Callable, times: int = sys.maxsize) -> None:
        """Lets an action, such as `"commit"`, fail from now on, so many `times`: it answers with a status; does what is
        asked and hangs up when half of the answer has gone (`"cut"`); or calls a function and hangs up."""
        self.faults[action] = (fault, self.served[action] + times)

    def meet(self, action: str):
        """Counts a request; gives the fault that it meets."""
        with self.lock:
            self.served[action] += 1
            fault, last = self.faults.get(action, (None, 0))
            return fault if self.served[action] <= last else None

    def __enter__(self) -> "HubServer":
        threading.Thread(target=self.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def __exit__(self, *_) -> None:
        self.shutdown()
        self.server_close()

    def handle_error(self, request, client_address) -> None:
        if not isinstance(sys.exc_info()[1], ConnectionError):  # clients may hang up
            super().handle_error(request, client_address)
