"""The Hub's HTTP: each method of `Requests` is one thing that a client can ask for, under the path that asks for it."""

import hmac
import json
import re
import threading
from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from fnmatch import fnmatch
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path, PurePosixPath
from typing import NamedTuple
from urllib.parse import parse_qs, unquote, urlsplit

from . import metadata
from .store import (
    Commit,
    EntryNotFound,
    Exists,
    File,
    HubError,
    Malformed,
    Outdated,
    Repository,
    RepoNotFound,
    RevisionNotFound,
)


class Unauthorized(HubError): ...


class Forbidden(HubError): ...


class Unavailable(HubError):
    """A fault that a test asked for."""


NOT_FOUND = (RepoNotFound, RevisionNotFound, EntryNotFound)  # the names are the protocol's
STATUS = dict.fromkeys(NOT_FOUND, 404) | {Malformed: 400, Unauthorized: 401, Forbidden: 403, Exists: 409, Outdated: 412}
SECRET = b"of this Hub and its storage"


class User(NamedTuple):
    name: str
    role: str = "write"


class Reply(NamedTuple):
    body: bytes
    headers: dict[str, str] = {}
    status: int = 200


class Route(NamedTuple):
    method: str
    path: re.Pattern
    action: Callable
    writes: bool


ROUTES: list[Route] = []
REPOSITORY = r"[\w.-]+/[\w.-]+"
PLACES = {"repo": REPOSITORY, "storage": REPOSITORY, "path": ".+"}  # others are one segment


def on(method: str, path: str, writes: bool = False):
    """Adds a path to the table of routes; `{repo}` reaches the method as a repository that the user may see (or change,
    if it `writes`), `{commit}` as the commit that a revision names, others as text."""
    pattern = re.sub(r"{(\w+)}", lambda place: f"(?P<{place[1]}>{PLACES.get(place[1], '[^/]+')})", path)

    def add(action: Callable) -> Callable:
        ROUTES.append(Route(method, re.compile(pattern), action, writes))
        return action

    return add


class Requests(BaseHTTPRequestHandler):
    server: "HubServer"
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1

    # Who is there

    @on("GET", "/api/whoami-v2")
    def whoami(self):
        if self.user is None:
            raise Unauthorized("Invalid username or password.")
        token = {"type": "access_token", "accessToken": {"displayName": "test", "role": self.user.role}}
        return {"type": "user", "name": self.user.name, "fullname": self.user.name, "orgs": [], "auth": token}

    # Repositories

    @on("POST", "/api/repos/create", writes=True)
    def create(self):
        if self.json.get("type", "model") != "model":
            raise Malformed("Only repositories of models are served")
        name = f"{self.json.get('organization') or self.user.name}/{self.json['name']}"
        private = self.json.get("private") or self.json.get("visibility") == "private"
        repository = Repository(name, bool(private))
        self.check_writable(repository)
        answer = {"name": name, "url": f"{self.server.url}/{name}"}
        if name in self.server.repositories:
            error = {"error": "You already created this model repo"}
            return Reply(json.dumps(answer | error).encode(), status=STATUS[Exists])
        self.server.repositories[name] = repository
        return answer

    @on("DELETE", "/api/repos/delete", writes=True)
    def delete(self):
        repository = self.visible(f"{self.json.get('organization') or self.user.name}/{self.json['name']}")
        self.check_writable(repository)
        del self.server.repositories[repository.name]

    @on("PUT", "/api/models/{repo}/settings", writes=True)
    def settings(self, repo: Repository):
        if "visibility" in self.json or "private" in self.json:
            repo.private = self.json.get("visibility") == "private" or self.json.get("private", False)

    @on("GET", "/api/models/{repo}")
    @on("GET", "/api/models/{repo}/revision/{commit}")
    def info(self, repo: Repository, commit: Commit | None = None):
        commit = commit or repo.at("main")
        card = metadata.read(repo.blobs[commit.files["README.md"].blob].decode()) if "README.md" in commit.files else {}
        names = {"id": repo.name, "modelId": repo.name, "author": repo.owner, "sha": commit.oid}
        dates = {"createdAt": repo.history(commit)[-1].date, "lastModified": commit.date}
        state = {"private": repo.private, "gated": False, "disabled": False, "downloads": 0, "likes": 0}
        of_card = {name: card[name] for name in ("tags", "library_name", "pipeline_tag", "model-index") if name in card}
        files = [{"rfilename": path} | ({"blobId": f.oid, "size": f.size} | large(f, "sha256") if "blobs" in self.query else {}) for path, f in commit.files.items()]
        return names | dates | state | of_card | {"cardData": card, "siblings": files}
