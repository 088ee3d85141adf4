"""The Hub's HTTP: each action of `Requests` is one thing that a client asks for, below the path with which it asks."""

import json
import re
from collections.abc import Callable
from pathlib import Path, PurePosixPath
from urllib.parse import parse_qs

from . import metadata
from .serving import Exchange, Reply, Route, Server, to_json
from .store import Commit, RefusedError, Repository, git_hash

ROUTES: list[Route] = []
PLACES = {"repo": r"[\w.-]+/[\w.-]+", "stored": r"[\w.-]+/[\w.-]+", "path": ".+"}  # any other is one segment


def on(method: str, path: str, writes: bool = False):
    """Puts an action into the table of routes. `{repo}` reaches it as a repository that the user may see (and change,
    where it `writes`), `{commit}` as the commit that a revision names, other places as text."""
    pattern = re.sub(r"{(\w+)}", lambda place: f"(?P<{place[1]}>{PLACES.get(place[1], '[^/]+')})", path)

    def add(action: Callable) -> Callable:
        ROUTES.append(Route(method, re.compile(pattern), action, writes))
        return action

    return add


class Requests(Exchange):
    """An action gives what goes back as JSON, or a `Reply`, or raises `RefusedError`."""

    routes = ROUTES
    server: "HubServer"

    @on("GET", "/api/whoami-v2")
    def whoami(self):
        if self.user is None:
            raise RefusedError(401, "Invalid username or password.")
        token = {"type": "access_token", "accessToken": {"displayName": "test", "role": "write"}}
        return {"type": "user", "name": self.user, "fullname": self.user, "orgs": [], "auth": token}

    @on("POST", "/api/repos/create")
    def create(self):
        if self.json.get("type", "model") != "model":
            raise RefusedError(400, "Only models are served")
        name = f"{self.json.get('organization') or self.user}/{self.json['name']}"
        private = self.json.get("private") or self.json.get("visibility") == "private"
        new = self.check_writable(Repository(name, bool(private)))
        answer = {"name": name, "url": f"{self.server.url}/{name}"}
        if self.server.repositories.setdefault(name, new) is not new:
            return Reply(to_json(answer | {"error": "You already created this model repo"}), 409)
        return answer

    # What a repository holds

    @on("GET", "/api/models/{repo}")
    @on("GET", "/api/models/{repo}/revision/{commit}")
    def info(self, repo: Repository, commit: Commit | None = None):
        commit = commit or repo.at("main")
        card = metadata.read(repo.read("README.md", commit.oid).decode()) if "README.md" in commit.files else None
        files = [{"rfilename": path, "blobId": file.oid, "size": file.size} for path, file in commit.files.items()]
        answer = {"id": repo.name, "author": repo.owner, "sha": commit.oid, "private": repo.private, "siblings": files}
        shown = ("tags", "pipeline_tag", "library_name", "model-index")
        of_card = {"cardData": card} | {name: card[name] for name in shown if card and name in card}
        return answer | of_card | {"createdAt": repo.history(commit)[-1].date, "lastModified": commit.date}

    @on("GET", "/api/models/{repo}/tree/{commit}")
    @on("GET", "/api/models/{repo}/tree/{commit}/{path}")
    def tree(self, repo: Repository, commit: Commit, path: str = "."):
        deep = self.query.get("recursive", ["false"])[0].lower() == "true"
        return [entry(commit, name) for name in commit.under(path) if deep or str(PurePosixPath(name).parent) == path]

    @on("POST", "/api/models/{repo}/paths-info/{commit}")
    def paths_info(self, repo: Repository, commit: Commit):
        paths = parse_qs(self.body.decode())["paths"]
        return [entry(commit, path) for path in paths if path in commit.files.keys() | commit.folders]

    @on("GET", "/api/models/{repo}/commits/{commit}")
    def commits(self, repo: Repository, commit: Commit):
        def told(one: Commit) -> dict:
            texts = {"title": one.title, "message": one.message}
            return {"id": one.oid, "authors": [{"user": one.author}], "date": one.date, **texts}

        return list(map(told, repo.history(commit)))

    @on("GET", "/{repo}/resolve/{commit}/{path}")
    def resolve(self, repo: Repository, commit: Commit, path: str):
        file = commit.file(path)
        if not file.large:
            return self.content(repo.blobs[file.blob], file.blob)
        linked = {"X-Linked-ETag": f'"{file.blob}"', "X-Linked-Size": file.size}
        return Reply(status=302, headers=linked | {"Location": self.server.storage(repo, file.blob)})

    @on("GET", "/storage/{stored}/{oid}")
    def download(self, stored: str, oid: str):
        return self.content(self.server.repositories[stored].blobs[oid], oid)

    # Branches and tags

    @on("GET", "/api/models/{repo}/refs")
    def refs(self, repo: Repository):
        def listed(kind: str, names: dict[str, str]) -> list[dict]:
            return [{"name": name, "ref": f"refs/{kind}/{name}", "targetCommit": oid} for name, oid in names.items()]

        return {"branches": listed("heads", repo.branches), "tags": listed("tags", repo.tags), "converts": []}

    @on("POST", "/api/models/{repo}/branch/{name}", writes=True)
    def create_branch(self, repo: Repository, name: str):
        add_name(repo.branches, name, repo.at(self.json.get("startingPoint", "main")))

    @on("POST", "/api/models/{repo}/tag/{commit}", writes=True)
    def create_tag(self, repo: Repository, commit: Commit):
        add_name(repo.tags, self.json["tag"], commit)

    # An upload: is the card right, which files are large, which of those are missing, their contents, the commit

    @on("POST", "/api/validate-yaml")
    def validate(self):
        try:
            card = metadata.read(self.json["content"])
            errors = metadata.errors(card or {})
        except ValueError as error:
            card, errors = {}, [str(error)]
        warnings = ["empty or missing yaml metadata in repo card"] if card is None else []
        lines = {"errors": errors, "warnings": warnings}
        answer = {kind: [{"message": line} for line in lines[kind]] for kind in lines}
        return Reply(to_json(answer), 400 if errors else 200)

    @on("POST", "/api/models/{repo}/preupload/{commit}", writes=True)
    def preupload(self, repo: Repository, commit: Commit):
        def plan(path: str, size: int) -> dict:
            mode = "lfs" if repo.is_large(path, size) else "regular"
            known = {"oid": commit.files[path].blob} if path in commit.files else {}
            return {"path": path, "uploadMode": mode, "shouldIgnore": False, **known}

        return {"files": [plan(file["path"], file["size"]) for file in self.json["files"]]}

    @on("POST", r"/{repo}\.git/info/lfs/objects/batch", writes=True)
    def batch(self, repo: Repository):
        if self.json["operation"] != "upload" or "basic" not in self.json["transfers"]:
            raise RefusedError(422, "Only basic uploads are served")
        objects = [{"oid": wanted["oid"], "size": wanted["size"]} for wanted in self.json["objects"]]
        verify = {"href": f"{self.server.url}/{repo.name}.git/info/lfs/objects/verify"}
        for missing in (wanted for wanted in objects if wanted["oid"] not in repo.blobs):
            upload = {"href": self.server.storage(repo, missing["oid"])}
            missing["actions"] = {"upload": upload, "verify": verify}
        return {"transfer": "basic", "objects": objects}

    @on("PUT", "/storage/{stored}/{oid}")
    def upload(self, stored: str, oid: str):
        self.server.repositories[stored].keep_large(oid, self.body)

    @on("POST", r"/{repo}\.git/info/lfs/objects/verify", writes=True)
    def verify(self, repo: Repository):
        repo.large(self.json["oid"], self.json["size"])

    @on("POST", "/api/models/{repo}/commit/{branch}", writes=True)
    def commit(self, repo: Repository, branch: str):
        header, *changes = map(json.loads, self.body.splitlines())
        oid = repo.commit(branch, self.user, header["value"], changes).oid
        return {"success": True, "commitOid": oid, "commitUrl": f"{self.server.url}/{repo.name}/commit/{oid}"}

    # Who asks, for which repository and commit

    def act(self, route: Route, places: dict) -> Reply:
        scheme, _, token = self.headers.get("Authorization", "").partition(" ")
        if scheme and token not in self.server.users:
            raise RefusedError(401, "Invalid credentials in Authorization header")
        self.user = self.server.users.get(token)
        if "repo" in places:
            repository = places["repo"] = self.server.repositories.get(places["repo"])
            if repository is None or (repository.private and self.user != repository.owner):
                raise RefusedError(404 if self.user else 401, "Repository not found", "RepoNotFound")
            if route.writes:
                self.check_writable(repository)
                if "create_pr" in self.query:
                    raise RefusedError(501, "Pull requests are not served")
            if "commit" in places:
                places["commit"] = repository.at(places["commit"])
                self.more["X-Repo-Commit"] = places["commit"].oid
        answer = route.action(self, **places)
        return answer if isinstance(answer, Reply) else Reply(to_json(answer))

    def check_writable(self, repository: Repository) -> Repository:
        if self.user is None:
            raise RefusedError(401, "Invalid username or password.")
        if self.user != repository.owner:
            raise RefusedError(403, f"{self.user} may not write to {repository.name}")
        return repository


class HubServer(Server):
    """A Hub while its context lasts: `users` are its tokens, `repositories` what it holds."""

    def __init__(self):
        super().__init__(Requests)
        self.users = {"hf_user": "user", "hf_other": "other"}
        self.repositories: dict[str, Repository] = {}

    def environment(self, home: Path, token: str = "hf_user") -> dict[str, str]:
        """Variables with which a fresh process takes this for the Hub (with no token, as nobody)."""
        off = dict.fromkeys(("HF_HUB_DISABLE_XET", "HF_HUB_DISABLE_TELEMETRY", "HF_HUB_DISABLE_PROGRESS_BARS"), "1")
        here = {"HF_ENDPOINT": self.url, "HF_HUB_OFFLINE": "0", "NO_PROXY": "127.0.0.1,localhost"}
        patient = dict.fromkeys(("HF_HUB_ETAG_TIMEOUT", "HF_HUB_DOWNLOAD_TIMEOUT"), "100")  # s, on a busy machine
        return here | off | patient | {"HF_HOME": str(home), "HF_TOKEN": token}

    def storage(self, repository: Repository, oid: str) -> str:
        """A link to a large file, for whoever has it: on what looks like another host, which gets no token."""
        return f"http://localhost:{self.server_port}/storage/{repository.name}/{oid}"


def entry(commit: Commit, path: str) -> dict:
    """A file or a folder in a listing."""
    if path in commit.folders:
        inside = [(name, commit.files[name].oid) for name in commit.under(path) if name in commit.files]
        return {"type": "directory", "path": path, "size": 0, "oid": git_hash(to_json(inside))}
    file = commit.files[path]
    large = {"lfs": {"oid": file.blob, "size": file.size, "pointerSize": len(file.pointer)}} if file.large else {}
    return {"type": "file", "path": path, "size": file.size, "oid": file.oid, **large}


def add_name(names: dict[str, str], name: str, commit: Commit) -> None:
    if name in names:
        raise RefusedError(409, f"{name} exists already")
    names[name] = commit.oid
