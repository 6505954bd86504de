"""A loopback server that is as much of the Hugging Face hub as a download needs, and breaks off as a test says."""

from __future__ import annotations

import hashlib
import json
import re
import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

REPOSITORY = "owner/model"
COMMIT = "0123456789abcdef0123456789abcdef01234567"


@dataclass
class Hub:
    """The server.

    Attributes:
        files: of the repository. announced: the SHA-256 it tells of a file, in place of the true one.
        ranges: the Range header of each request for a file, None where there was none.
        cuts: bytes after which the next answers are cut off, one each. stall: cut answers hang instead until `go`.
    """

    files: dict[str, bytes]
    announced: dict[str, str] = field(default_factory=dict)
    licence: str | None = "apache-2.0"
    ranges: list[str | None] = field(default_factory=list)
    cuts: list[int] = field(default_factory=list)
    stall: bool = False
    go: threading.Event = field(default_factory=threading.Event)
    stalled: threading.Event = field(default_factory=threading.Event)

    def __enter__(self) -> Hub:
        hub = self

        class Handler(_Handler):
            pass

        Handler.hub = hub
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.go.set()
        self._server.shutdown()
        self._server.server_close()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"


class _Handler(BaseHTTPRequestHandler):
    hub: Hub

    def do_GET(self) -> None:
        path = self.path.split("?")[0]
        if path == f"/api/models/{REPOSITORY}":
            self._send(200, json.dumps(self._info()).encode())
            return
        found = re.fullmatch(rf"/{REPOSITORY}/resolve/{COMMIT}/(.+)", path)
        if found is None or found[1] not in self.hub.files:
            self._send(404, b"{}", {"X-Error-Code": "RepoNotFound"})
            return
        self._file(self.hub.files[found[1]])

    def _info(self) -> dict[str, object]:
        siblings = [
            {
                "rfilename": name,
                "size": len(body),
                "blobId": "b" * 40,
                "lfs": {
                    "sha256": self.hub.announced.get(name, hashlib.sha256(body).hexdigest()),
                    "size": len(body),
                    "pointerSize": 134,
                },
            }
            for name, body in self.hub.files.items()
        ]
        card = {} if self.hub.licence is None else {"cardData": {"license": self.hub.licence}}
        return {"id": REPOSITORY, "modelId": REPOSITORY, "sha": COMMIT, "siblings": siblings, "tags": [], **card}

    def _file(self, body: bytes) -> None:
        wanted = self.headers.get("Range")
        self.hub.ranges.append(wanted)
        start = int(re.fullmatch(r"bytes=(\d+)-", wanted)[1]) if wanted else 0  # type: ignore[index]
        cut = self.hub.cuts.pop(0) if self.hub.cuts else None
        self.send_response(206 if wanted else 200)
        self.send_header("Content-Length", str(len(body) - start))
        if wanted:
            self.send_header("Content-Range", f"bytes {start}-{len(body) - 1}/{len(body)}")
        self.end_headers()
        self.wfile.write(body[start:] if cut is None else body[start : start + cut])
        if cut is not None and self.hub.stall:
            self.wfile.flush()
            self.hub.stalled.set()
            self.hub.go.wait()

    def _send(self, status: int, body: bytes, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Say nothing."""
