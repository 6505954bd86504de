"""A server that speaks OpenAI's chat protocol, for tests: it writes what it is told to, piece by piece, and keeps what it was sent."""

from __future__ import annotations

import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any

ELSEWHERE = "127.0.0.2"
"""An address of this machine that KernelMate takes for another machine's: only the usual names are the user's own."""


class ChatServer:
    """Answers every question alike.

    Args:
        text: of the answer. host: where it listens.
        piece: characters of one piece. pause_s: seconds between two of them.

    Attributes:
        bodies, keys: of each question, in order.
    """

    def __init__(self, text: str, host: str = "127.0.0.1", piece: int = 20, pause_s: float = 0.0) -> None:
        self.bodies: list[dict[str, Any]] = []
        self.keys: list[str | None] = []
        chat = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                chat.keys.append(self.headers.get("Authorization"))
                chat.bodies.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
                self.send_response(200)
                self.send_header("Content-Type", "text/event-stream")
                self.end_headers()
                try:
                    for start in range(0, len(text), piece):
                        self.event({"delta": {"content": text[start : start + piece]}, "finish_reason": None})
                        time.sleep(pause_s)
                    self.event({"delta": {}, "finish_reason": "stop"})
                    self.wfile.write(b"data: [DONE]\n\n")
                except OSError:
                    return  # who asked has gone

            def event(self, choice: dict[str, Any]) -> None:
                self.wfile.write(f"data: {json.dumps({'choices': [{'index': 0, **choice}]})}\n\n".encode())
                self.wfile.flush()

            def log_message(self, *_: object) -> None:
                """Say nothing."""

        self._server = ThreadingHTTPServer((host, 0), Handler)
        self.url = f"http://{host}:{self._server.server_port}/v1"
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    @property
    def asked(self) -> str:
        """All that was sent here, as text."""
        return json.dumps(self.bodies)

    def __enter__(self) -> ChatServer:
        """It serves from the beginning."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End it."""
        self._server.shutdown()
        self._server.server_close()
