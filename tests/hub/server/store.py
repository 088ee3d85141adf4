"""What a Hub keeps: immutable commits of files, and the branches and tags that name them."""

import hashlib
import json
from base64 import b64decode
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import PurePosixPath


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
    parent: str | None
    author: str
    title: str
    files: dict[str, bytes]
    date: str

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
        self.add("main", self.owner, "initial commit", {".gitattributes": b""})

    def at(self, revision: str) -> Commit:
        """The commit that a branch, a tag or a whole hash names."""
        oid = self.branches.get(revision) or self.tags.get(revision) or revision
        if oid not in self.commits:
            raise RefusedError(404, f"Invalid rev id: {revision}", "RevisionNotFound")
        return self.commits[oid]

    def read(self, path: str, revision: str = "main") -> bytes:
        return self.at(revision).read(path)

    def history(self, commit: Commit) -> list[Commit]:
        """The commit and its ancestors, the youngest first."""
        return [commit, *(self.history(self.commits[commit.parent]) if commit.parent else ())]

    def commit(self, branch: str, author: str, header: dict, changes: list[dict]) -> Commit:
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
        return self.add(branch, author, header["summary"], files)

    def add(self, branch: str, author: str, title: str, files: dict[str, bytes]) -> Commit:
        date = datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        parent, digests = self.branches.get(branch), {path: git_hash(content) for path, content in files.items()}
        oid = hashlib.sha1(json.dumps([parent, title, digests, date]).encode()).hexdigest()
        self.branches[branch] = oid
        self.commits[oid] = Commit(oid, parent, author, title, files, date)
        return self.commits[oid]


def folders_of(commit: Commit) -> set[str]:
    """Every folder with a file in it; the root is `.`."""
    return {str(parent) for path in commit.files for parent in PurePosixPath(path).parents}
