"""HTTP for a protocol of named actions, any of which can be told to fail."""

import json
import re
import sys
import threading
from collections import Counter
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import NamedTuple
from urllib.parse import parse_qs, unquote, urlsplit

from .store import RefusedError


class Reply(NamedTuple):
    body: bytes = b""
    status: int = 200
    headers: dict = {}


class Route(NamedTuple):
    method: str
    path: re.Pattern
    action: Callable
    writes: bool


def to_json(answer) -> bytes:
    return json.dumps(answer).encode()


class Exchange(BaseHTTPRequestHandler):
    """Answers the requests of one connection from a table of routes."""

    routes: list[Route]
    server: "Server"
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1

    def act(self, route: Route, places: dict[str, str]) -> Reply:
        """Does what is asked for; what it puts into `self.more` goes into the headers, even if it raises."""
        raise NotImplementedError

    def answer(self) -> None:
        url = urlsplit(self.path)
        route, places = self.find("GET" if self.command == "HEAD" else self.command, url.path)
        fault = self.server.meet(route.action.__name__ if route else f"{self.command} {url.path}")
        size = int(self.headers.get("Content-Length", 0))
        if fault == "drop" or callable(fault):
            self.rfile.read(size // 2)
            self.close_connection = True
            return fault() if callable(fault) else None
        self.body, self.query, self.more = self.rfile.read(size), parse_qs(url.query), {}
        try:
            if isinstance(fault, int) or route is None:
                raise RefusedError(fault or 404, "A test asked for this fault" if fault else "This is not served")
            with self.server.lock:
                reply = self.act(route, places)
        except RefusedError as refused:
            self.more["X-Error-Message"] = ascii(str(refused))[1:-1]
            self.more |= {"X-Error-Code": refused.code} if refused.code else {}
            reply = Reply(to_json({"error": str(refused)}), refused.status)
        self.send_response(reply.status)
        for name, value in (self.more | reply.headers | {"Content-Length": len(reply.body)}).items():
            self.send_header(name, str(value))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(reply.body[: len(reply.body) // 2] if fault == "cut" else reply.body)
        self.close_connection |= fault == "cut"

    do_GET = do_HEAD = do_POST = do_PUT = answer  # noqa: N815

    def find(self, method: str, path: str) -> tuple[Route | None, dict[str, str]]:
        for route in self.routes:
            places = route.path.fullmatch(path)
            if places and route.method == method:
                return route, {name: unquote(value) for name, value in places.groupdict().items()}
        return None, {}

    @property
    def json(self) -> dict:
        return json.loads(self.body)

    def content(self, content: bytes, etag: str) -> Reply:
        """A file, or the part of it that is asked for."""
        headers = {"ETag": f'"{etag}"', "Accept-Ranges": "bytes"}
        part = re.fullmatch(r"bytes=(\d*)-(\d*)", self.headers.get("Range", ""))
        if part is None:
            return Reply(content, headers=headers)
        start = int(part[1]) if part[1] else max(0, len(content) - int(part[2]))
        stop = min(len(content), int(part[2]) + 1) if part[1] and part[2] else len(content)
        if start >= stop:
            return Reply(status=416, headers={"Content-Range": f"bytes */{len(content)}"})
        return Reply(content[start:stop], 206, headers | {"Content-Range": f"bytes {start}-{stop - 1}/{len(content)}"})

    def log_message(self, *_) -> None:
        """Not to the tests' output."""


class Server(ThreadingHTTPServer):
    """On the loopback interface, while its context lasts; `served` counts the requests for each action."""

    daemon_threads = True

    def __init__(self, exchange: type[Exchange]):
        super().__init__(("127.0.0.1", 0), exchange)
        self.url = f"http://127.0.0.1:{self.server_port}"
        self.served: Counter[str] = Counter()
        self.faults: dict[str, tuple] = {}
        self.lock = threading.RLock()

    def fail(self, action: str, fault: int | str | Callable, first: int = 1, times: int = sys.maxsize) -> None:
        """Lets an action fail, from its `first` request from now on, so many `times`.

        Args:
            action: its function's name, such as `"upload"` or `"commit"`.
            fault: a status to answer with; `"drop"`, to hang up when half of the request has come; `"cut"`, to do what
                is asked and hang up when half of the answer has gone; or what to call before hanging up.
        """
        if action not in {route.action.__name__ for route in self.RequestHandlerClass.routes}:
            raise ValueError(f"There is no action {action}")
        first += self.served[action]
        self.faults[action] = (fault, first, first + times)

    def meet(self, action: str):
        """Counts a request; gives the fault that it meets."""
        with self.lock:
            self.served[action] += 1
            fault, first, end = self.faults.get(action, (None, 0, 0))
            return fault if first <= self.served[action] < end else None

    def __enter__(self) -> "Server":
        threading.Thread(target=self.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def __exit__(self, *_) -> None:
        self.shutdown()
        self.server_close()

    def handle_error(self, request, client_address) -> None:
        if not isinstance(sys.exc_info()[1], ConnectionError):  # clients may hang up
            super().handle_error(request, client_address)
