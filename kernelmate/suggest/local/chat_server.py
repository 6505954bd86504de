"""Server of OpenAI's chat protocol on the loopback interface, for `Binding`: one request at a time, streamed."""

from __future__ import annotations

import codecs
import hmac
import json
import select
import socket
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from kernelmate.suggest.local.binding import Binding, ClientGone, SamplingOptions, TokenCounts, Unanswerable
from kernelmate.suggest.local.engine_settings import EngineSettings

MOST_BODY = 16 << 20
"""Largest size of a request's body in bytes."""
LOOK_S = 0.02
"""Seconds between two checks of whether the client is still connected."""
MOST_TOKENS = 4096
"""Default limit of tokens in an answer."""

MOST_LIKELY = 4096
"""Largest number of token values reported with probabilities."""


def serve(binding: Binding, settings: EngineSettings) -> str:
    """Starts a thread that serves a model; returns its address."""
    turn = threading.Lock()

    class BoundHandler(_Handler):
        model, alias, key, one_at_a_time = binding, settings.alias, settings.key, turn

    server = ThreadingHTTPServer(("127.0.0.1", 0), BoundHandler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, name="kernelmate-chat", daemon=True).start()
    return f"http://127.0.0.1:{server.server_address[1]}"


class _Refused(Exception):
    """A request that is answered with an HTTP status and a sentence."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class _Handler(BaseHTTPRequestHandler):
    """Handler of one request. The stream ends with the connection."""

    model: Binding
    alias: str
    key: str
    one_at_a_time: threading.Lock

    def do_GET(self) -> None:
        """Answers with the list of models, which has one entry."""
        try:
            self._check_key()
            if self.path != "/v1/models":
                raise _Refused(404, "there is nothing here")
            self._send(200, {"object": "list", "data": [{"id": self.alias, "object": "model"}]})
        except _Refused as refusal:
            self._send(refusal.status, {"error": {"message": str(refusal)}})

    def do_POST(self) -> None:
        """Answers a completion request with a stream of events."""
        begun = False
        try:
            self._check_key()
            if self.path not in ("/v1/chat/completions", "/v1/completions"):
                raise _Refused(404, "there is nothing here")
            body = self._body()
            with _watched(self.connection) as gone, self._turn(gone):
                prompt, wanted = self._question(body)
                self.send_response(200)
                self.send_header("Content-Type", "text/event-stream")
                self.end_headers()
                begun = True
                self._answer(prompt, wanted, gone)
        except _Refused as refusal:
            self._send(refusal.status, {"error": {"message": str(refusal)}})
        except (ClientGone, OSError):
            return
        except Exception as error:  # noqa: BLE001 -- the client must hear of it, and the next one be served
            said = {"error": {"message": f"{type(error).__name__}: {error}"}}
            self._event(said) if begun else self._send(500, said)

    def _check_key(self) -> None:
        shown = self.headers.get("Authorization", "")
        if not hmac.compare_digest(shown.encode("utf-8", "replace"), f"Bearer {self.key}".encode()):
            raise _Refused(401, "the key is wrong")

    def _body(self) -> dict[str, Any]:
        try:
            size = int(self.headers.get("Content-Length", ""))
        except ValueError:
            raise _Refused(411, "the request has no Content-Length") from None
        if not 0 <= size <= MOST_BODY:
            raise _Refused(413, f"the question has {size} bytes; at most {MOST_BODY} are read")
        try:
            document = json.loads(self.rfile.read(size))
        except ValueError:
            raise _Refused(400, "the request is not JSON") from None
        if not isinstance(document, dict):
            raise _Refused(400, "the request is not a JSON object")
        return document

    def _question(self, body: dict[str, Any]) -> tuple[list[int], SamplingOptions]:
        form = body.get("response_format") or {}
        schema = (form.get("json_schema") or {}).get("schema") if form.get("type") == "json_schema" else None
        try:
            return self._tokens(body), SamplingOptions(
                most_tokens=int(body.get("max_tokens") or MOST_TOKENS),
                temperature=float(body.get("temperature") or 0.0),
                seed=int(body.get("seed") or 0) & 0xFFFFFFFF,
                grammar=None if schema is None else self.model.grammar(schema),
                likely=min(int(body.get("logprobs") or 0), MOST_LIKELY),
            )
        except (Unanswerable, TypeError, ValueError) as error:
            raise _Refused(400, str(error)) from None

    def _tokens(self, body: dict[str, Any]) -> list[int]:
        """Returns the tokens of a request: of a conversation, or of an exact text."""
        if self.path == "/v1/completions":
            text = body.get("prompt")
            if not isinstance(text, str):
                raise _Refused(400, "the question holds no prompt")
            return self.model.tokens(text)
        messages = body.get("messages")
        if not isinstance(messages, list) or not all(isinstance(one, dict) for one in messages):
            raise _Refused(400, "the question holds no messages")
        return self.model.prompt(messages)

    @contextmanager
    def _turn(self, gone: threading.Event) -> Iterator[None]:
        """Context manager that waits until the model is free, or the client is gone."""
        while not self.one_at_a_time.acquire(timeout=LOOK_S):
            if gone.is_set():
                raise ClientGone
        try:
            yield
        finally:
            self.one_at_a_time.release()

    def _answer(self, prompt: list[int], wanted: SamplingOptions, gone: threading.Event) -> None:
        counts = TokenCounts(len(prompt))
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        for piece in self.model.answer(prompt, wanted, counts, gone.is_set):
            text = decoder.decode(piece)
            if counts.likely:
                self._event({"choices": [{**self._choice(text, None), "logprobs": _told(counts.likely)}]})
                counts.likely = []
            elif text:
                self._event({"choices": [self._choice(text, None)]})
        rest = decoder.decode(b"", final=True)
        told = {"logprobs": _told(counts.likely)} if counts.likely else {}
        self._event({"choices": [{**self._choice(rest, counts.finish), **told}]})
        usage = {
            "prompt_tokens": counts.prompt,
            "completion_tokens": counts.written,
            "prompt_tokens_details": {"cached_tokens": counts.known},
        }
        self._event({"choices": [], "usage": usage})
        self.wfile.write(b"data: [DONE]\n\n")

    def _choice(self, text: str, finish: str | None) -> dict[str, Any]:
        said = {"text": text} if self.path == "/v1/completions" else {"delta": {"content": text}}
        return {"index": 0, **said, "finish_reason": finish}

    def _event(self, document: dict[str, Any]) -> None:
        self.wfile.write(b"data: " + json.dumps(document).encode() + b"\n\n")

    def _send(self, status: int, document: dict[str, Any]) -> None:
        body = json.dumps(document).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Logs nothing: requests and keys must not appear in logs."""


def _told(likely: Sequence[tuple[str, float]]) -> dict[str, Any]:
    """Formats token probabilities like llama.cpp's own server."""
    return {"content": [{"top_logprobs": [{"token": text, "logprob": chance} for text, chance in likely]}]}


@contextmanager
def _watched(connection: socket.socket) -> Iterator[threading.Event]:
    """Returns an event that is set when the client closes the connection; it sends nothing else after its request."""
    gone, over = threading.Event(), threading.Event()

    def look() -> None:
        while not over.is_set():
            readable, _, _ = select.select([connection], [], [], LOOK_S)
            if not readable:
                continue
            try:
                closed = connection.recv(1, socket.MSG_PEEK) == b""
            except OSError:
                closed = True
            if closed:
                gone.set()
                return
            over.wait(LOOK_S)

    thread = threading.Thread(target=look, name="kernelmate-client-watch", daemon=True)
    thread.start()
    try:
        yield gone
    finally:
        over.set()
        thread.join()
