"""What a Hub keeps: immutable commits of content-addressed blobs, and the branches and tags that name them."""

import hashlib
import json
from base64 import b64decode
from dataclasses import asdict, dataclass, field
from datetime import datetime, timezone
from fnmatch import fnmatch
from functools import cached_property
from pathlib import PurePosixPath

LARGE = ("arrow", "bin", "ckpt", "gz", "h5", "npy", "npz", "onnx", "parquet", "pt", "pth", "safetensors", "zip")
LARGE_SIZE = 10 * 2**20  # bytes
POINTER = "version https://git-lfs.github.com/spec/v1\noid sha256:{}\nsize {}\n"


class RefusedError(Exception):
    """What was asked for cannot be had; some reasons have a code, which the client makes its own error of."""

    def __init__(self, status: int, message: str, code: str | None = None):
        super().__init__(message)
        self.status, self.code = status, code


def git_hash(content: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


@dataclass(frozen=True)
class File:
    """An entry of a commit. A large file is known by its SHA-256; git keeps a pointer in its place."""

    size: int
    blob: str  # the name of its content
    large: bool = False

    @property
    def pointer(self) -> bytes:
        return POINTER.format(self.blob, self.size).encode()

    @property
    def oid(self) -> str:
        """Git's name of what it keeps."""
        return git_hash(self.pointer) if self.large else self.blob


@dataclass(frozen=True)
class Commit:
    parent: str | None
    author: str
    title: str
    message: str
    files: dict[str, File]
    date: str = field(default_factory=lambda: datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.%fZ"))

    @cached_property
    def oid(self) -> str:
        return hashlib.sha1(json.dumps(asdict(self), sort_keys=True).encode()).hexdigest()

    @cached_property
    def folders(self) -> set[str]:
        """Every folder with a file in it; the root is `.`."""
        return {str(parent) for path in self.files for parent in PurePosixPath(path).parents} | {"."}

    def file(self, path: str) -> File:
        if path not in self.files:
            raise RefusedError(404, f"No file {path} in {self.oid}", "EntryNotFound")
        return self.files[path]

    def under(self, folder: str) -> list[str]:
        """Files and folders below a folder, at any depth."""
        if folder not in self.folders:
            raise RefusedError(404, f"No folder {folder} in {self.oid}", "EntryNotFound")
        paths = sorted(self.files.keys() | self.folders)
        return [path for path in paths if PurePosixPath(folder) in PurePosixPath(path).parents]


class Repository:
    """Its first commit says in `.gitattributes`, as on the Hub, which files are large whatever their size."""

    def __init__(self, name: str, private: bool = False):
        self.name, self.owner, self.private = name, name.partition("/")[0], private
        self.blobs: dict[str, bytes] = {}
        attributes = "".join(f"*.{ending} filter=lfs diff=lfs merge=lfs -text\n" for ending in LARGE)
        first = Commit(None, self.owner, "initial commit", "", {".gitattributes": self.keep(attributes.encode())})
        self.commits = {first.oid: first}
        self.branches = {"main": first.oid}
        self.tags: dict[str, str] = {}

    def at(self, revision: str) -> Commit:
        """The commit that a branch, a tag or a whole hash names."""
        oid = self.branches.get(revision) or self.tags.get(revision) or revision
        if oid not in self.commits:
            raise RefusedError(404, f"Invalid rev id: {revision}", "RevisionNotFound")
        return self.commits[oid]

    def history(self, commit: Commit) -> list[Commit]:
        """The commit and its ancestors, the youngest first."""
        return [commit, *(self.history(self.commits[commit.parent]) if commit.parent else ())]

    def read(self, path: str, revision: str = "main") -> bytes:
        return self.blobs[self.at(revision).file(path).blob]

    def is_large(self, path: str, size: int) -> bool:
        rules = self.read(".gitattributes").decode().splitlines()
        patterns = [rule.split()[0] for rule in rules if "filter=lfs" in rule]
        return size > LARGE_SIZE or any(fnmatch(PurePosixPath(path).name, pattern) for pattern in patterns)

    def keep(self, content: bytes) -> File:
        """A small file, whose content comes with the commit."""
        if len(content) > LARGE_SIZE:
            raise RefusedError(413, f"{len(content)} bytes are a large file, to be uploaded before the commit")
        name = git_hash(content)
        self.blobs[name] = content
        return File(len(content), name)

    def keep_large(self, sha256: str, content: bytes) -> None:
        """The content of a large file, ahead of the commit that names it."""
        if hashlib.sha256(content).hexdigest() != sha256:
            raise RefusedError(400, f"The {len(content)} bytes that came do not hash to {sha256}")
        self.blobs[sha256] = content

    def large(self, sha256: str, size: int | None = None) -> File:
        """A large file that was uploaded."""
        content = self.blobs.get(sha256)
        if content is None or size not in (None, len(content)):
            raise RefusedError(400, f"No large file {sha256} of {size} bytes was uploaded")
        return File(len(content), sha256, large=True)

    def commit(self, branch: str, author: str, header: dict, changes: list[dict]) -> Commit:
        """Moves a branch on by one commit, or leaves it where it is."""
        if branch not in self.branches:
            raise RefusedError(404, f"Invalid rev id: {branch}, no branch", "RevisionNotFound")
        head = self.at(branch)
        if header.get("parentCommit", head.oid) != head.oid:
            raise RefusedError(412, f"{branch} has moved on from {header['parentCommit']} to {head.oid}")
        files = dict(head.files)
        for kind, value in ((change["key"], change["value"]) for change in changes):
            path = value["path"]
            if kind == "file":
                files[path] = self.keep(b64decode(value["content"]))
            elif kind == "lfsFile":
                files[path] = self.large(value["oid"], value.get("size"))
            elif kind in ("deletedFile", "deletedFolder"):
                gone = {path} if kind == "deletedFile" and head.file(path) else head.under(path.rstrip("/"))
                files = {name: files[name] for name in files.keys() - gone}
            else:
                raise RefusedError(400, f"Unknown operation: {kind}")
        commit = Commit(head.oid, author, header["summary"], header.get("description", ""), files)
        self.commits[commit.oid] = commit
        self.branches[branch] = commit.oid
        return commit
