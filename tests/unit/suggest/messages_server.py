"""A loopback server that speaks the streaming Messages API, and answers as a test says."""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Answer = Callable[["Handler"], None]


@dataclass
class Messages:
    """The server. `answers` are given in turn, the last one for ever.

    Attributes:
        requests: bodies of what was sent. headers: theirs. raw: every byte that came in, headers and bodies.
    """

    answers: list[Answer] = field(default_factory=list)
    requests: list[dict[str, Any]] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    connections: int = 0

    def __enter__(self) -> Messages:
        outer = self

        class Bound(Handler):
            messages = outer

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Bound)
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"


class Handler(BaseHTTPRequestHandler):
    """One connection."""

    messages: Messages
    protocol_version = "HTTP/1.1"

    def setup(self) -> None:
        self.messages.connections += 1
        super().setup()

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        self.messages.requests.append(json.loads(body))
        self.messages.headers.append(dict(self.headers))
        answers = self.messages.answers
        answer = answers.pop(0) if len(answers) > 1 else answers[0]
        answer(self)

    def log_message(self, *_: object) -> None:
        """Say nothing."""

    def start_stream(self) -> None:
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("connection", "close")
        self.end_headers()

    def event(self, kind: str, **data: Any) -> None:
        self.wfile.write(f"event: {kind}\ndata: {json.dumps({'type': kind, **data})}\n\n".encode())
        self.wfile.flush()


USAGE = {"input_tokens": 100, "output_tokens": 1, "cache_creation_input_tokens": 50, "cache_read_input_tokens": 25}


def begin(handler: Handler) -> None:
    """The events before the first text."""
    handler.start_stream()
    message = {
        "id": "msg_1", "type": "message", "role": "assistant", "model": "claude-opus-5-5", "content": [],
        "stop_reason": None, "stop_sequence": None, "usage": USAGE,
    }  # fmt: skip
    handler.event("message_start", message=message)
    handler.event("content_block_start", index=0, content_block={"type": "text", "text": ""})


def says(text: str, stop_reason: str = "end_turn", pieces: int = 5) -> Answer:
    """A whole answer in some pieces."""

    def answer(handler: Handler) -> None:
        begin(handler)
        size = max(1, -(-len(text) // pieces))
        for start in range(0, len(text), size):
            delta = {"type": "text_delta", "text": text[start : start + size]}
            handler.event("content_block_delta", index=0, delta=delta)
        handler.event("content_block_stop", index=0)
        handler.event(
            "message_delta", delta={"stop_reason": stop_reason, "stop_sequence": None}, usage={"output_tokens": 40}
        )
        handler.event("message_stop")

    return answer


def drops(text: str) -> Answer:
    """The beginning of an answer, and then nothing any more."""

    def answer(handler: Handler) -> None:
        begin(handler)
        handler.event("content_block_delta", index=0, delta={"type": "text_delta", "text": text})
        handler.wfile.write(b"event: content_block_del")
        handler.wfile.flush()
        handler.connection.close()

    return answer


def drops_a_chunk(handler: Handler) -> None:
    """The beginning of an answer whose length is announced piece by piece, and half of a piece."""
    handler.send_response(200)
    handler.send_header("content-type", "text/event-stream")
    handler.send_header("transfer-encoding", "chunked")
    handler.end_headers()
    handler.wfile.write(b"ff\r\nevent: message_start\n")
    handler.wfile.flush()
    handler.close_connection = True


def fails_in_stream(kind: str) -> Answer:
    """An error event in the middle of an answer."""

    def answer(handler: Handler) -> None:
        begin(handler)
        handler.event("error", error={"type": kind, "message": "no"})

    return answer


def fails(status: int, kind: str, **headers: str) -> Answer:
    """An error in place of an answer; it repeats the key that it was sent, as no server should."""

    def answer(handler: Handler) -> None:
        key = handler.headers.get("x-api-key", "")
        body = json.dumps({"type": "error", "error": {"type": kind, "message": f"no, {key}"}}).encode()
        handler.send_response(status)
        handler.send_header("content-type", "application/json")
        handler.send_header("content-length", str(len(body)))
        for name, value in headers.items():
            handler.send_header(name.replace("_", "-"), value)
        handler.end_headers()
        handler.wfile.write(body)

    return answer


def drips(first: bytes) -> Answer:
    """These bytes and then spaces, one at a time, until who asked has gone."""

    def answer(handler: Handler) -> None:
        with contextlib.suppress(OSError):
            handler.wfile.write(first)
            while True:
                handler.wfile.write(b" ")
                handler.wfile.flush()
                time.sleep(0.01)

    return answer


def sends(*events: dict[str, Any]) -> Answer:
    """The beginning of an answer, then events as they are given."""

    def answer(handler: Handler) -> None:
        with contextlib.suppress(OSError):
            begin(handler)
            for event in events:
                handler.event(event.pop("type"), **event)

    return answer
