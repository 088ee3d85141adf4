"""What a Hub keeps: immutable commits of content-addressed blobs, and the branches and tags that name them."""

import hashlib
import json
from base64 import b64decode
from dataclasses import asdict, dataclass, field
from datetime import datetime, timezone
from fnmatch import fnmatch
from functools import cached_property
from pathlib import PurePosixPath

#: of a new repository: what is large whatever its size
LARGE_NAMES = (
    "*.arrow *.bin *.ckpt *.gz *.h5 *.msgpack *.npy *.npz *.onnx *.parquet *.pickle *.pkl *.pt *.pth *.safetensors "
    "*.tar *.zip *tfevents*"
).split()
LARGE_SIZE = 10 * 2**20  # bytes
POINTER = "version https://git-lfs.github.com/spec/v1\noid sha256:{}\nsize {}\n"


class HubError(Exception):
    """What a request asks for cannot be had; a kind of error is a subclass."""


class RepoNotFound(HubError): ...


class RevisionNotFound(HubError): ...


class EntryNotFound(HubError): ...


class Malformed(HubError): ...


class Exists(HubError): ...


class Outdated(HubError): ...


def git_hash(content: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


@dataclass(frozen=True)
class File:
    """An entry of a commit; a large one's `oid` is that of the pointer that git would keep."""

    oid: str
    size: int
    sha256: str | None = None  # of a large file

    @property
    def blob(self) -> str:
        """The name of its content, which is also its ETag."""
        return self.sha256 or self.oid

    @classmethod
    def large(cls, sha256: str, size: int) -> "File":
        return cls(git_hash(POINTER.format(sha256, size).encode()), size, sha256)


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
        return {str(parent) for path in self.files for parent in PurePosixPath(path).parents} | {"."}

    def file(self, path: str) -> File:
        if path not in self.files:
            raise EntryNotFound(f"There is no file {path} in {self.oid}")
        return self.files[path]

    def under(self, folder: str) -> set[str]:
        """The paths of all files and folders below one folder (`.` is the root)."""
        if folder not in self.folders:
            raise EntryNotFound(f"There is no folder {folder} in {self.oid}")
        return {
            path for path in self.files.keys() | self.folders if PurePosixPath(folder) in PurePosixPath(path).parents
        }


class Repository:
    """Its first commit says in `.gitattributes` which names are of large files."""

    def __init__(self, name: str, private: bool = False):
        self.name, self.owner, self.private = name, name.partition("/")[0], private
        self.blobs: dict[str, bytes] = {}
        attributes = "".join(f"{pattern} filter=lfs diff=lfs merge=lfs -text\n" for pattern in LARGE_NAMES)
        first = Commit(None, self.owner, "initial commit", "", {".gitattributes": self.keep(attributes.encode())})
        self.commits = {first.oid: first}
        self.branches = {"main": first.oid}
        self.tags: dict[str, str] = {}

    def at(self, revision: str) -> Commit:
        """The commit that a branch, a tag or a whole hash names."""
        oid = self.branches.get(revision) or self.tags.get(revision) or revision
        if oid not in self.commits:
            raise RevisionNotFound(f"Invalid rev id: {revision}")
        return self.commits[oid]

    def history(self, commit: Commit | None) -> list[Commit]:
        """The commit and its ancestors, the youngest first."""
        commits = []
        while commit is not None:
            commits.append(commit)
            commit = self.commits.get(commit.parent)
        return commits

    def is_large(self, path: str, size: int) -> bool:
        rules = map(str.split, self.read("main", ".gitattributes").decode().splitlines())
        patterns = [pattern for pattern, *attributes in filter(None, rules) if "filter=lfs" in attributes]
        return size > LARGE_SIZE or any(fnmatch(PurePosixPath(path).name, pattern) for pattern in patterns)

    def read(self, revision: str, path: str) -> bytes:
        return self.blobs[self.at(revision).file(path).blob]

    def keep(self, content: bytes) -> File:
        """A small file, whose content comes with the commit."""
        if len(content) > LARGE_SIZE:
            raise Malformed(f"A file of {len(content)} bytes has to be uploaded before the commit, as a large one")
        file = File(git_hash(content), len(content))
        self.blobs[file.blob] = content
        return file

    def keep_large(self, sha256: str, content: bytes) -> None:
        """The content of a large file, ahead of the commit that names it."""
        if hashlib.sha256(content).hexdigest() != sha256:
            raise Malformed(f"What was uploaded ({len(content)} bytes) does not hash to {sha256}")
        self.blobs[sha256] = content

    def uploaded(self, sha256: str, size: int | None = None) -> File:
        content = self.blobs.get(sha256)
        if content is None or size not in (None, len(content)):
            raise Malformed(f"No large file {sha256} of {size} bytes was uploaded")
        return File.large(sha256, len(content))

    def commit(self, branch: str, author: str, header: dict, changes: list[tuple[str, dict]]) -> Commit:
        """Puts one commit on a branch, or leaves everything as it was."""
        if branch not in self.branches:
            raise RevisionNotFound(f"Invalid rev id: {branch} (a commit needs a branch)")
        head = self.at(branch)
        if header.get("parentCommit", head.oid) != head.oid:
            raise Outdated(f"{branch} has moved on from {header['parentCommit']} to {head.oid}")
        files = dict(head.files)
        for kind, value in changes:
            path = value["path"]
            if kind == "file":
                files[path] = self.keep(b64decode(value["content"]))
            elif kind == "lfsFile":
                files[path] = self.uploaded(value["oid"], value.get("size"))
            elif kind == "deletedFile":
                head.file(path)
                files.pop(path, None)
            elif kind == "deletedFolder":
                files = {name: files[name] for name in files.keys() - head.under(path.rstrip("/"))}
            else:
                raise Malformed(f"Unknown operation: {kind}")
        commit = Commit(head.oid, author, header["summary"], header.get("description", ""), files)
        self.commits[commit.oid] = commit
        self.branches[branch] = commit.oid
        return commit
