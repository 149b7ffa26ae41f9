"""An image registry on the loopback interface, behind a password: as much of the protocol as push and pull need."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import re
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Registry(ThreadingHTTPServer):
    """What was pushed, and who came."""

    daemon_threads = True

    def __init__(self, user: str, password: str) -> None:
        super().__init__(("127.0.0.1", 0), _Guest)
        self.expected = "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()
        self.blobs: dict[str, bytes] = {}
        self.manifests: dict[str, tuple[str, bytes]] = {}
        self.pending: dict[str, bytes] = {}
        self.refused = 0

    @property
    def name(self) -> str:
        """As it stands before an image's name."""
        return f"127.0.0.1:{self.server_address[1]}"


class _Guest(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Registry

    def log_message(self, format: str, *args: object) -> None:
        """Nobody reads it."""

    def _answer(self, status: int, body: bytes = b"", kind: str = "application/json", **headers: str) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def _body(self) -> bytes:
        if self.headers.get("Transfer-Encoding", "").lower() != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))
        parts = []
        while size := int(self.rfile.readline().strip() or b"0", 16):
            parts.append(self.rfile.read(size))
            self.rfile.readline()
        self.rfile.readline()
        return b"".join(parts)

    def _serve(self) -> None:
        body = self._body() if self.command in ("POST", "PUT", "PATCH") else b""
        if self.headers.get("Authorization") != self.server.expected:
            self.server.refused += 1
            self._answer(401, b'{"errors":[{"code":"UNAUTHORIZED"}]}', WWW_Authenticate='Basic realm="tests"')
        elif "/blobs/uploads/" in self.path:
            self._upload(body)
        elif found := re.search(r"/blobs/(sha256:[0-9a-f]{64})$", self.path):
            blob = self.server.blobs.get(found[1])
            self._answer(404 if blob is None else 200, blob or b"", "application/octet-stream")
        elif found := re.search(r"/manifests/([^/]+)$", self.path):
            self._manifest(found[1], body)
        else:
            self._answer(200, b"{}", Docker_Distribution_Api_Version="registry/2.0")

    def _upload(self, body: bytes) -> None:
        path, _, query = self.path.partition("?")
        if self.command == "POST":
            path = f"{path}{len(self.server.pending) + 1:04d}"
        self.server.pending[path] = self.server.pending.get(path, b"") + body
        if self.command != "PUT":
            last = str(max(len(self.server.pending[path]) - 1, 0))
            self._answer(202, Location=path, Range=f"0-{last}")
            return
        blob = self.server.pending[path]
        digest = f"sha256:{hashlib.sha256(blob).hexdigest()}"
        if digest.replace(":", "%3A") not in query and digest not in query:
            self._answer(400)
            return
        self.server.blobs[digest] = blob
        self._answer(201, Docker_Content_Digest=digest)

    def _manifest(self, reference: str, body: bytes) -> None:
        if self.command == "PUT":
            kind, digest = self.headers["Content-Type"], f"sha256:{hashlib.sha256(body).hexdigest()}"
            for name in (reference, digest):
                self.server.manifests[name] = (kind, body)
            self._answer(201, Docker_Content_Digest=digest)
            return
        if reference not in self.server.manifests:
            self._answer(404, b'{"errors":[{"code":"MANIFEST_UNKNOWN"}]}')
            return
        kind, text = self.server.manifests[reference]
        self._answer(200, text, kind, Docker_Content_Digest=f"sha256:{hashlib.sha256(text).hexdigest()}")

    do_GET = do_HEAD = do_POST = do_PUT = do_PATCH = _serve


@contextlib.contextmanager
def registry(user: str, password: str) -> Iterator[Registry]:
    """One that listens until the end."""
    with Registry(user, password) as made:
        thread = threading.Thread(target=made.serve_forever, kwargs={"poll_interval": 0.1}, daemon=True)
        thread.start()
        try:
            yield made
        finally:
            made.shutdown()
            thread.join(5)
