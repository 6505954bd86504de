"""One request to a server with OpenAI's chat protocol: streamed, and aborted as soon as it is no longer needed."""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

import msgspec

from kernelmate.suggest.base import AuthorFailed
from kernelmate.suggest.local.serving import Endpoint
from kernelmate.suggest.local.state import touch

LOOK_S = 0.05
"""Seconds between two checks of whether the answer is still needed."""
MOST_ANSWER = 1 << 20
"""Largest number of characters of one answer, and of bytes of one event of its stream."""
MOST_STREAM = 16 * MOST_ANSWER
"""Largest number of bytes of one answer's event stream."""
ANSWER_S = 600.0
"""Largest duration of one answer in seconds."""

OnText = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class ChatAnswer:
    """An answer, with the server's token counts; None for counts that it does not report.

    Attributes:
        known_tokens: number of `input_tokens` that were cached.
        likely: log probabilities of the first token by its text; empty if not requested or not reported.
    """

    text: str
    finished: bool
    input_tokens: int | None = None
    output_tokens: int | None = None
    known_tokens: int | None = None
    likely: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ChatRequest:
    """A request to a model.

    Attributes:
        system, user: the messages of a conversation, formatted by the model's chat template.
        prompt: an exact text instead of a conversation, for models that continue a text; special tokens are spelled
            out.
        schema: JSON schema that the answer must follow, if the server supports that.
        likely: number of most probable first tokens to return with their log probabilities, before sampling.
    """

    system: str
    user: str
    schema: dict[str, Any] | None = None
    temperature: float = 0.0
    seed: int = 0
    most_tokens: int = 4096
    prompt: str | None = None
    likely: int = 0


def ask(
    endpoint: Endpoint,
    question: ChatRequest,
    *,
    on_text: OnText | None = None,
    stop: Callable[[], bool] = lambda: False,
    timeout_s: float = 300.0,
    answer_s: float = ANSWER_S,
) -> ChatAnswer:
    """Sends one request and returns the answer.

    Args:
        endpoint: the server and the model.
        question: the messages and the sampling settings.
        on_text: called with text as it arrives.
        stop: checked about twenty times a second; True closes the connection, which stops the server's work.
        timeout_s: seconds without data, including the evaluation of the prompt.
        answer_s: largest duration of the whole answer in seconds.

    Raises:
        AuthorFailed: the model cannot answer.
    """
    body = json.dumps(_body(endpoint, question)).encode()
    headers = {"Content-Type": "application/json", "Accept": "text/event-stream"}
    if endpoint.key:
        headers["Authorization"] = f"Bearer {endpoint.key}"
    connection = _connection(endpoint.url)
    way = "/chat/completions" if question.prompt is None else "/completions"
    path = urlsplit(endpoint.url).path.rstrip("/") + way
    watch = _Watch(connection, stop, timeout_s, answer_s, endpoint)
    try:
        with watch, _turn(endpoint):
            watch.asked()
            connection.request("POST", path, body, headers)
            response = connection.getresponse()
            watch.heard()
            if response.status != 200:
                raise _refused(response.status, response.read(65536))
            return _read(response, watch, on_text, likely=question.likely > 0)
    except (OSError, http.client.HTTPException, msgspec.DecodeError, RecursionError, AuthorFailed) as error:
        # After the watch has closed the connection, resulting errors have no meaning.
        if watch.verdict is not None:
            raise watch.verdict from None
        if isinstance(error, (msgspec.DecodeError, RecursionError)):
            raise _malformed(endpoint, str(error)) from None
        if isinstance(error, AuthorFailed):
            raise
        raise AuthorFailed(
            "connection", f"The model at {_place(endpoint)} broke off ({type(error).__name__})."
        ) from None
    finally:
        connection.close()


@contextlib.contextmanager
def _turn(endpoint: Endpoint) -> Iterator[None]:
    """Context manager that holds the GPU's lock, so that no kernel is timed meanwhile.

    Does nothing for a model on the CPU.
    """
    if endpoint.gpu is None:
        yield
        return
    from kernelmate.backends.cuda.gpu_lock import GpuLock

    turns = GpuLock(endpoint.gpu)
    try:
        with turns.shared():
            yield
    finally:
        turns.close()


def _body(endpoint: Endpoint, question: ChatRequest) -> dict[str, Any]:
    body: dict[str, Any] = {
        "model": endpoint.model,
        "max_tokens": question.most_tokens,
        "temperature": question.temperature,
        "seed": question.seed,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    if question.prompt is not None:
        body["prompt"] = question.prompt
    else:
        body["messages"] = [{"role": "system", "content": question.system}, {"role": "user", "content": question.user}]
    if endpoint.state is not None:
        # KernelMate's own server reports its progress in the prompt, which distinguishes slow evaluation from hanging.
        body["return_progress"] = True
    if question.likely:
        body["logprobs"] = question.likely
    if question.schema is not None:
        form = {"name": "answer", "schema": question.schema, "strict": True}
        body["response_format"] = {"type": "json_schema", "json_schema": form}
    return body


def _connection(url: str) -> http.client.HTTPConnection:
    parts = urlsplit(url)
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise AuthorFailed(
            "request", f"{url!r} is not the address of a server; it must start with http:// or https://."
        )
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    connection = kind(parts.hostname, parts.port, timeout=10)
    try:
        connection.connect()
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise AuthorFailed("connection", f"No model answers at {parts.hostname}:{connection.port}: {reason}.") from None
    return connection


class _Watch:
    """Thread that closes a connection when the user cancels or when no data has arrived for too long.

    A blocked read cannot check for cancellation, and a read with a timeout corrupts the stream.

    Attributes:
        verdict: the reason that the connection was closed; None while it is open.
    """

    def __init__(
        self,
        connection: http.client.HTTPConnection,
        stop: Callable[[], bool],
        timeout_s: float,
        answer_s: float,
        endpoint: Endpoint,
    ) -> None:
        self.verdict: AuthorFailed | None = None
        self._socket: socket.socket = connection.sock
        self._socket.settimeout(None)
        self._stop, self._timeout_s, self._answer_s, self._endpoint = stop, timeout_s, answer_s, endpoint
        self._since = self._began = time.monotonic()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look, name="kernelmate-model-watch", daemon=True)

    def __enter__(self) -> _Watch:
        """Starts the thread."""
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Stops the thread."""
        self._over.set()
        self._thread.join()

    def asked(self) -> None:
        """Starts the answer's time limit, once the request is sent.

        Raises:
            AuthorFailed: the user cancelled.
        """
        self._began = time.monotonic()
        self.heard()

    def heard(self) -> None:
        """Record that data arrived.

        Raises:
            AuthorFailed: the user cancelled.
        """
        self._since = time.monotonic()
        if self._stop():
            self.verdict = AuthorFailed("cancelled", "The model was interrupted.")
            raise self.verdict

    def _look(self) -> None:
        while not self._over.wait(LOOK_S):
            if self._endpoint.state is not None:
                touch(self._endpoint.state)
            if self._stop():
                self._end(AuthorFailed("cancelled", "The model was interrupted."))
            elif time.monotonic() - self._since > self._timeout_s:
                self._give_up(f"The model said nothing for {self._timeout_s:g} s.")
            elif time.monotonic() - self._began > self._answer_s:
                place = _place(self._endpoint)
                self._give_up(
                    f"The model at {place} did not end its answer within {self._answer_s:g} s. "
                    "Ask a faster model, or raise model_answer_s in the settings."
                )

    def _give_up(self, why: str) -> None:
        """Handles a timeout. A local server is stopped, because a file's chat template can make it hang."""
        ended = ""
        if self._endpoint.state is not None:
            # The server ends once its state file is removed, and the next question starts another server.
            with contextlib.suppress(OSError):
                self._endpoint.state.unlink()
            ended = " Its server was ended."
        self._end(AuthorFailed("timeout", f"{why}{ended}"))

    def _end(self, verdict: AuthorFailed) -> None:
        self.verdict = verdict
        self._over.set()
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)


_NULL = msgspec.Raw(b"null")


class _Delta(msgspec.Struct):
    content: str | None = None


class _Choice(msgspec.Struct):
    delta: _Delta | None = None
    text: str | None = None
    finish_reason: str | None = None
    logprobs: msgspec.Raw = _NULL


class _Details(msgspec.Struct):
    cached_tokens: int | None = None


class _Usage(msgspec.Struct):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    prompt_tokens_details: _Details | None = None


class _Event(msgspec.Struct):
    """The fields of an event that are used."""

    choices: list[_Choice] | None = None
    usage: _Usage | None = None
    error: msgspec.Raw = _NULL


class _Token(msgspec.Struct):
    token: str
    logprob: float


class _TokenPlace(msgspec.Struct):
    top_logprobs: list[_Token] | None = None


class _Logprobs(msgspec.Struct):
    content: list[_TokenPlace] | None = None


def _read(response: http.client.HTTPResponse, watch: _Watch, on_text: OnText | None, *, likely: bool) -> ChatAnswer:
    """Returns the answer in an event stream.

    Raises:
        AuthorFailed: cancelled, disconnected, too long, or an error of the server.
        msgspec.DecodeError, RecursionError: an event does not follow the protocol.
    """
    pieces: list[str] = []
    length = 0
    usage, finish = _Usage(), None
    first: dict[str, float] = {}
    for line in _events(response, watch):
        event = msgspec.json.decode(line.decode("utf-8", "replace"), type=_Event)
        if bytes(event.error) != b"null":
            raise _refused(500, line)
        usage = event.usage or usage
        for choice in event.choices or ():
            finish = choice.finish_reason or finish
            if likely and not first:
                first = _likely(choice.logprobs)
            text = (choice.delta.content if choice.delta is not None else None) or choice.text
            if text:
                length += len(text)
                if length > MOST_ANSWER:
                    raise _endless()
                pieces.append(text)
                if on_text is not None:
                    on_text(text)
    if finish is None:
        raise AuthorFailed("connection", "The model broke off in the middle of its answer.")
    known = None if usage.prompt_tokens_details is None else usage.prompt_tokens_details.cached_tokens
    return ChatAnswer("".join(pieces), finish == "stop", usage.prompt_tokens, usage.completion_tokens, known, first)


def _likely(told: msgspec.Raw) -> dict[str, float]:
    """Returns log probabilities of the first token in a piece of an answer, in llama.cpp's format."""
    content = msgspec.json.decode(told, type=_Logprobs | None)
    first = content.content[0] if content is not None and content.content else None
    return {} if first is None else {one.token: one.logprob for one in first.top_logprobs or ()}


def _events(response: http.client.HTTPResponse, watch: _Watch) -> Iterator[bytes]:
    """Yields the JSON of server-sent events.

    Raises:
        AuthorFailed: cancelled, or too long.
    """
    rest = bytearray()
    read = 0
    while chunk := response.read1(65536):
        watch.heard()
        read += len(chunk)
        rest += chunk
        if read > MOST_STREAM:
            raise _endless()
        if b"\n" in chunk:
            *lines, last = bytes(rest).split(b"\n")
            rest = bytearray(last)
            for line in lines:
                event = line[5:].strip() if line.startswith(b"data:") else b""
                if event and event != b"[DONE]":
                    yield event
        if len(rest) > MOST_ANSWER:
            raise _endless()


def _endless() -> AuthorFailed:
    return AuthorFailed("truncated", f"The model's answer does not end: it has over {MOST_ANSWER:,} characters.")


def _malformed(endpoint: Endpoint, what: str) -> AuthorFailed:
    """Returns the error for a server that violates the protocol, with its address."""
    advice = "see what else answers there" if endpoint.state is not None else "check the setting model_url"
    return AuthorFailed(
        "malformed",
        f"The model's server at {_place(endpoint)} does not speak OpenAI's chat protocol: {what[:200]}. "
        f"Update that server, or {advice}.",
    )


def _refused(status: int, body: bytes) -> AuthorFailed:
    """Returns a server's error response as one line; its kind is derived from status and text."""
    try:
        error = json.loads(body).get("error")
        said = error.get("message") if isinstance(error, dict) else str(error)
    except (ValueError, AttributeError, RecursionError):
        said = None
    words = f": {' '.join(str(said).split())[:200]}" if said else ""
    lower = words.lower()
    if status in {401, 403}:
        return AuthorFailed("key", "The model's server did not accept the key.")
    if "context" in lower or "n_ctx" in lower or "exceed" in lower:
        return AuthorFailed("truncated", f"The kernel and the information about it are too long for the model{words}")
    if "does not match the expected" in lower:
        return AuthorFailed("malformed", "The model's answer was not in the form that was asked for.")
    if status == 429:
        return AuthorFailed("limit", "The model's server has a limit that is reached; try again in a minute.")
    kind = "server" if status >= 500 else "request"
    return AuthorFailed(kind, f"The model's server refused (status {status}){words}")


def _place(endpoint: Endpoint) -> str:
    parts = urlsplit(endpoint.url)
    return f"{parts.hostname}:{parts.port or parts.scheme}"
