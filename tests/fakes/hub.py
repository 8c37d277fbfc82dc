"""A Hugging Face hub on loopback that serves repositories of small files.

It has the routes that huggingface_hub requests: a model's info and tree, and files by name. Weight files carry a
sha256, as files in LFS do.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from json import dumps
from typing import Any
from urllib.parse import unquote, urlsplit

# the environment of a program that uses this hub
CLIENT_SETTINGS = {
    "HF_HOME": "/nonexistent",  # no token and no cache of the user who runs the test
    "HF_HUB_DISABLE_PROGRESS_BARS": "1",
    "HF_HUB_DISABLE_XET": "1",
}


@dataclass
class Hub:
    """One repository, and `others`. The bytes of `corrupted` files differ from their listed checksums."""

    repo: str
    revision: str
    files: dict[str, bytes]
    corrupted: set[str] = field(default_factory=set)
    requests: list[str] = field(default_factory=list)
    url: str = ""
    others: tuple[Hub, ...] = ()

    def describe_file(self, name: str, key: str) -> dict[str, Any]:
        data = self.files[name]
        sha1 = hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()
        entry: dict[str, Any] = {key: name, "size": len(data), "blobId": sha1, "oid": sha1, "type": "file"}
        if name.endswith(".safetensors"):
            sha256 = hashlib.sha256(data).hexdigest()
            entry["lfs"] = {"sha256": sha256, "oid": sha256, "size": len(data), "pointerSize": 134}
        return entry

    def answer(self, path: str) -> tuple[int, bytes, dict[str, str]]:
        """Return status, body and headers."""
        self.requests.append(path)
        for other in self.others:
            if other.repo in path:
                return other.answer(path)
        api = f"/api/models/{self.repo}"
        if path in (f"{api}/revision/{self.revision}", api):
            siblings = [self.describe_file(name, "rfilename") for name in self.files]
            model = {"id": self.repo, "modelId": self.repo, "sha": self.revision, "private": False, "tags": []}
            return 200, dumps({**model, "downloads": 0, "likes": 0, "siblings": siblings}).encode(), {}
        if path == f"{api}/tree/{self.revision}":
            return 200, dumps([self.describe_file(name, "path") for name in self.files]).encode(), {}
        name = path.removeprefix(f"/{self.repo}/resolve/{self.revision}/")
        if name in self.files:
            entry = self.describe_file(name, "name")
            etag = entry.get("lfs", entry)["oid"]
            body = bytes(byte ^ 1 for byte in self.files[name]) if name in self.corrupted else self.files[name]
            return 200, body, {"ETag": f'"{etag}"', "X-Repo-Commit": self.revision}
        return 404, b'{"error": "not here"}', {"X-Error-Code": "RepoNotFound"}


@contextmanager
def serve(hub: Hub) -> Iterator[Hub]:
    """Serve the hub from a thread and set its `url`."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            status, body, headers = hub.answer(unquote(urlsplit(self.path).path))
            self.send_response(status)
            for name, value in {**headers, "Content-Length": str(len(body))}.items():
                self.send_header(name, value)
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(body)

        do_HEAD = do_GET

        def log_message(self, *args: object) -> None:
            """Keep stderr quiet."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        hub.url = f"http://127.0.0.1:{server.server_address[1]}"
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield hub
        finally:
            server.shutdown()
            thread.join()
