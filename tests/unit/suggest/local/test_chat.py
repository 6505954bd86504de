"""Servers that misbehave cost one clear error: slow, endless, of wrong types, or speaking something else."""

from __future__ import annotations

import gzip
import itertools
import json
import os
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from kernelmate.suggest.base import AuthorFailed
from kernelmate.suggest.local import serving
from kernelmate.suggest.local.chat import MOST_ANSWER, ChatAnswer, ChatRequest, ask
from kernelmate.suggest.local.serving import Endpoint, ModelServer
from kernelmate.suggest.local.state import ServerState, write_state

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"
END = b'data: {"choices": [{"delta": {}, "finish_reason": "stop"}]}\n\ndata: [DONE]\n\n'
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
Serve = Callable[..., Endpoint]


def event(value: Any) -> bytes:
    return b"data: " + (value if isinstance(value, bytes) else json.dumps(value).encode()) + b"\n\n"


@pytest.fixture
def serve() -> Iterator[Serve]:
    """A server on loopback that answers each connection with these pieces, pausing between them, until it is left."""
    over = threading.Event()
    listening: list[socket.socket] = []

    def start(pieces: Iterable[bytes], pause_s: float = 0.0, *, with_body: bool = True) -> Endpoint:
        server = socket.create_server(("127.0.0.1", 0))
        listening.append(server)

        def answer() -> None:
            try:
                connection, _ = server.accept()
                with connection, connection.makefile("rb") as request:
                    head = iter(request.readline, b"\r\n")
                    length = with_body and next(
                        int(line[15:]) for line in head if line.lower().startswith(b"content-length:")
                    )
                    list(head)
                    request.read(length)
                    for piece in pieces:
                        connection.sendall(piece)
                        if over.wait(pause_s):
                            return
            except OSError:
                return  # who asked has gone

        threading.Thread(target=answer, daemon=True).start()
        return Endpoint(f"http://127.0.0.1:{server.getsockname()[1]}/v1", "m")

    yield start
    over.set()
    for server in listening:
        server.close()


def asked(endpoint: Endpoint, **limits: Any) -> ChatAnswer:
    return ask(endpoint, ChatRequest("s", "u"), **limits)


def drip(text: bytes) -> Iterator[bytes]:
    """One byte after another, and the last one for ever."""
    for index in range(len(text)):
        yield text[index : index + 1]
    while True:
        yield text[-1:]


SLOW = {
    "the status line": b"H",
    "a header": HEAD[:-2] + b"X-Long: aaaaaaaa",
    "an event": HEAD + b"data: {",
    "the text": HEAD + b'data: {"choices": [{"delta": {"content": "aaa',
    "comments": HEAD + b": \n\n",
    "a refusal": b"HTTP/1.1 500 No\r\n\r\n{",
}


@pytest.mark.parametrize("what", SLOW)
def test_a_byte_at_a_time_ends_at_the_time_for_the_whole_answer(what: str, serve: Serve) -> None:
    endpoint = serve(drip(SLOW[what]), 0.01)
    with pytest.raises(
        AuthorFailed, match=r"127\.0\.0\.1:\d+ did not end its answer within 0\.5 s.*model_answer_s"
    ) as failed:
        asked(endpoint, timeout_s=100, answer_s=0.5)
    assert failed.value.kind == "timeout"


def test_silence_ends_at_the_time_for_silence(serve: Serve) -> None:
    with pytest.raises(AuthorFailed, match=r"said nothing for 0\.3 s"):
        asked(serve([HEAD, b": still here"], 60), timeout_s=0.3, answer_s=100)


WRONG: dict[str, tuple[Any, str]] = {
    "content a number": ({"choices": [{"delta": {"content": 3}}]}, r"\$\.choices\[\.*0?\.*\]\.delta\.content"),
    "content a list": ({"choices": [{"delta": {"content": ["a"]}}]}, "content"),
    "choices a dict": ({"choices": {"delta": {"content": "a"}}}, r"\$\.choices"),
    "choices of numbers": ({"choices": [1]}, r"\$\.choices"),
    "choices of null": ({"choices": [None]}, r"\$\.choices"),
    "delta a text": ({"choices": [{"delta": "a"}]}, "delta"),
    "text a dict": ({"choices": [{"text": {}}]}, "text"),
    "finish_reason a list": ({"choices": [{"finish_reason": ["stop"]}]}, "finish_reason"),
    "usage a text": ({"usage": "many"}, "usage"),
    "tokens a text": ({"usage": {"prompt_tokens": "many"}}, "prompt_tokens"),
    "details a list": ({"usage": {"prompt_tokens_details": []}}, "prompt_tokens_details"),
    "an event that is a list": ([1, 2], "object"),
    "an event that is null": (None, "object"),
    "no JSON": (b"{nonsense", "malformed"),
    "deep JSON": (b'{"choices": ' + b"[" * 200_000 + b"]" * 200_000 + b"}", "choices"),
    "deep JSON beside": (b'{"other": ' + b"[" * 200_000 + b"]" * 200_000 + b"}", "recursion"),
}


@pytest.mark.parametrize("what", WRONG)
def test_what_is_not_the_protocol_is_one_error_that_names_the_server(what: str, serve: Serve) -> None:
    value, said = WRONG[what]
    with pytest.raises(
        AuthorFailed, match=r"127\.0\.0\.1:\d+ does not speak OpenAI's chat protocol.*model_url"
    ) as failed:
        asked(serve([HEAD, event(value), END]))
    assert failed.value.kind == "malformed"
    assert "\n" not in str(failed.value)
    assert len(str(failed.value)) < 500
    with pytest.raises(AuthorFailed, match=f"(?i){said}"):
        asked(serve([HEAD, event(value), END]))


@pytest.mark.parametrize(
    "answer",
    [
        b"SSH-2.0-OpenSSH_9.6\r\n",
        b"HTTP/1.1 200 OK\r\n" + b"A: b\r\n" * 500,
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n{}",
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}",
        b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\n\r\n",
        b"HTTP/1.1 500 No\r\n\r\n" + b"[" * 60_000,
        b'HTTP/1.1 400 No\r\n\r\n{"error": {"message": {"a": [1]}}}',
        b"HTTP/1.1 200 OK\r\n\r\n" + event({"error": 7}),
        b"HTTP/1.1 200 OK\r\n\r\n" + event({"choices": [{"delta": {"content": "cut"}}]}),
        b"",
    ],
)
def test_any_other_answer_is_one_error_too(answer: bytes, serve: Serve) -> None:
    with pytest.raises(AuthorFailed) as failed:
        asked(serve([answer]))
    assert failed.value.kind in {"connection", "malformed", "server", "request"}
    assert len(str(failed.value)) < 500


@pytest.mark.parametrize(
    "pieces",
    [
        itertools.repeat(b"HTTP/1.1 100 Continue\r\n\r\n"),
        itertools.chain([b"HTTP/1.1 200 OK\r\n"], (b"A%d: b\r\n" % n for n in itertools.count())),
        itertools.chain([b"HTTP/1.1 200 OK\r\n"], itertools.repeat(b" folded\r\n")),
        itertools.chain([CHUNKED, b"1;"], itertools.repeat(b"x" * 4096)),
        itertools.chain([CHUNKED, b"0\r\n"], itertools.repeat(b"Trailer: b\r\n")),
        [CHUNKED, b"f" * 40 + b"\r\nx"],
        [CHUNKED, b"-1\r\nx\r\n"],
        [b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n{}"],
        [b"HTTP/1.1 99999 OK\r\n\r\n{}"],
        [b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n\r\n", gzip.compress(b"data: " + b"x" * (64 << 20))],
        [HEAD, event(b'{"usage": {"prompt_tokens": 1' + b"0" * 5000 + b"}}")],
        [HEAD, event(b'{"usage": {"prompt_tokens": 1e400}}')],
        [HEAD, b"\xff\xfe" + event({"choices": []}).decode().encode("utf-16-le")],
        [HEAD, event(b'{"choices": [{"delta": {"content": "\x00\xff\xc0"}}]}')],
    ],
)
def test_what_has_no_end_or_no_sense_is_one_error_in_time(pieces: Iterable[bytes], serve: Serve) -> None:
    began = time.monotonic()
    with pytest.raises(AuthorFailed) as failed:
        asked(serve(pieces), timeout_s=2, answer_s=2)
    assert time.monotonic() - began < 8
    assert failed.value.kind in {"connection", "malformed", "server", "request", "timeout", "truncated"}
    assert len(str(failed.value)) < 500
    assert "\n" not in str(failed.value)


def test_half_a_character_in_an_answer_is_one_error_or_text_that_can_be_written(serve: Serve) -> None:
    pieces = [HEAD, event(b'{"choices": [{"delta": {"content": "a\\ud800b"}}]}'), END]
    with pytest.raises(AuthorFailed, match="does not speak") as failed:
        asked(serve(pieces))
    assert failed.value.kind == "malformed"


def test_text_events_and_lines_without_end_are_ended(serve: Serve) -> None:
    piece = event({"choices": [{"delta": {"content": "x" * 60_000}}]})
    for pieces in (
        [HEAD, *[piece] * (MOST_ANSWER // 60_000 + 2)],
        [HEAD, b"data: " + b"x" * (MOST_ANSWER + 70_000)],
        [HEAD, *[b": comment\n" * 100_000] * 20],
    ):
        with pytest.raises(AuthorFailed, match="does not end") as failed:
            asked(serve(pieces))
        assert failed.value.kind == "truncated"


def test_what_servers_add_to_the_protocol_is_no_error(serve: Serve) -> None:
    added = {
        "id": 1,
        "error": None,
        "usage": None,
        "choices": [
            {
                "delta": {"content": None, "role": "assistant", "x": [1]},
                "logprobs": {"content": "odd"},
                "finish_reason": None,
            }
        ],
    }
    said = {"choices": [{"delta": {"content": "one"}}], "timings": {"a": 1.5}}
    counted = {"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 4, "prompt_tokens_details": None}}
    pieces = [HEAD, b": keep-alive\n\n", event(added), event(said).replace(b"\n", b"\r\n"), event(counted), END]
    answer = asked(serve(pieces))
    assert (answer.text, answer.finished, answer.input_tokens, answer.output_tokens) == ("one", True, 3, 4)


@pytest.mark.parametrize("answer", [b"HTTP/1.1 200 OK\r\nX: ", b"nonsense\r\n\r\n", b""])
def test_whatever_listens_at_a_servers_port_is_no_server(
    answer: bytes, serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serving, "ALIVE_S", 0.3)
    port = urlsplit(serve(drip(answer) if answer.endswith(b" ") else [answer], 0.01, with_body=False).url).port
    file = tmp_path / "server.json"
    write_state(file, ServerState(os.getpid(), f"http://127.0.0.1:{port}", "key", "identity", "alias", 512))
    assert ModelServer(file=file).running() is None


def test_the_completions_form_is_read_as_well(serve: Serve) -> None:
    answer = asked(serve([HEAD, event({"choices": [{"text": "two", "finish_reason": "length"}]}), END]))
    assert answer.text == "two"
