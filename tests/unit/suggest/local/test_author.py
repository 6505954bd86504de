"""The local model as an author: with real nonsense from real llama.cpp, and with a scripted server."""

from __future__ import annotations

import json
import math
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from kernelmate.records import Candidate, Judged, Verdict
from kernelmate.suggest.base import AuthorFailed, SuggestRequest
from kernelmate.suggest.local.author import LocalModel, fitted
from kernelmate.suggest.local.library import LocalModelFile
from kernelmate.suggest.local.serving import Endpoint, ModelServer
from kernelmate.suggest.prompts import RULES
from kernelmate.suggest.replies import Review, Step, proposed
from kernelmate.suggest.router import Router

SOURCE = """\
// /// kernelmate
// sizes = [{ n = 1000 }]
// grid = "cdiv(n, 256)"
// block = 256
// [args]
// x = "inout float32[n]"
// n = "int32"
// ///
__global__ void scale(float *x, int n) { x[threadIdx.x] *= 2.0f; }
"""
BETTER = "__global__ void scale(float *x, int n) { x[threadIdx.x] += x[threadIdx.x]; }"
GOOD = {"analysis": "a", "changes": [{"what": "w", "why": "y"}], "kernel": BETTER, "estimated_speedup": None, "grid": None,
        "block": None, "shared": None}  # fmt: skip


class Chat:
    """A server that answers questions with given texts, in their turn, the last one for ever.

    It tells how likely the words of `likely` are, given as chances, whatever text they would follow; `most_likely` is how many it
    can be asked for, and a question for more is refused.
    """

    def __init__(
        self, *texts: str, finish: str = "stop", likely: dict[str, float] | None = None, most_likely: int = 1000
    ) -> None:
        self.texts, self.finish, self.bodies = list(texts), finish, []  # type: ignore[var-annotated]
        chat = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                chat.bodies.append(json.loads(self.rfile.read(int(self.headers["content-length"]))))
                if chat.bodies[-1].get("logprobs", 0) > most_likely:
                    self.send_response(400)
                    self.end_headers()
                    self.wfile.write(b'{"error": {"message": "at most %d logprobs"}}' % most_likely)
                    return
                if "logprobs" in chat.bodies[-1] and likely is not None:
                    self.told(likely)
                    return
                text = chat.texts.pop(0) if len(chat.texts) > 1 else chat.texts[0]
                self.send_response(200)
                self.end_headers()
                pieces = (text[:5], *(text[start : start + 1_000_000] for start in range(5, len(text), 1_000_000)))
                for piece in pieces:
                    self.event({"choices": [{"delta": {"content": piece}, "finish_reason": None}]})
                self.event({"choices": [{"delta": {}, "finish_reason": chat.finish}]})
                self.event({"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 3}})
                self.wfile.write(b"data: [DONE]\n\n")

            def told(self, likely: dict[str, float]) -> None:
                self.send_response(200)
                self.end_headers()
                top = [{"token": token, "logprob": math.log(chance)} for token, chance in likely.items()]
                choice = {
                    "text": top[0]["token"],
                    "logprobs": {"content": [{"top_logprobs": top}]},
                    "finish_reason": "length",
                }
                self.event({"choices": [choice]})
                self.event({"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 1}})

            def event(self, document: dict[str, Any]) -> None:
                self.wfile.write(f"data: {json.dumps(document)}\n\n".encode())

            def log_message(self, *_: object) -> None:
                """Say nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()

    def endpoint(self, context: int | None = None) -> Endpoint:
        return Endpoint(f"http://127.0.0.1:{self._server.server_address[1]}/v1", "m", None, context)

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def chat() -> Iterator[Callable[..., Chat]]:
    made: list[Chat] = []

    def make(*texts: str, **more: Any) -> Chat:
        made.append(Chat(*texts, **more))
        return made[-1]

    yield make
    for one in made:
        one.close()


@pytest.fixture
def request_(ask: Callable[..., SuggestRequest]) -> SuggestRequest:
    return ask(SOURCE)


def author(server: Chat, context: int | None = None) -> LocalModel:
    return LocalModel(lambda: server.endpoint(context), "small")


def test_samples_differ_in_seed_and_temperature_and_share_their_beginning(
    chat: Callable[..., Chat], request_: SuggestRequest
) -> None:
    server = chat(json.dumps(GOOD))
    model = author(server)
    assert [one.kernel for one in model.samples(request_, 3)] == [BETTER] * 3
    assert [body["temperature"] for body in server.bodies] == [0.0, 0.7, 0.8]
    assert len({body["seed"] for body in server.bodies}) == 3
    assert len({json.dumps(body["messages"]) for body in server.bodies}) == 1
    assert server.bodies[0]["response_format"]["type"] == "json_schema"
    assert (model.last_cost.input_tokens, model.last_cost.output_tokens, model.last_cost.usd) == (7, 3, 0.0)
    assert model.name == "local:small"


def test_a_sample_that_cannot_be_read_is_left_out(chat: Callable[..., Chat], request_: SuggestRequest) -> None:
    server = chat("nonsense", json.dumps(GOOD), '{"analysis": 1}')
    assert len(list(author(server).samples(request_, 3))) == 1


def test_where_none_can_be_read_that_is_one_line(chat: Callable[..., Chat], request_: SuggestRequest) -> None:
    with pytest.raises(AuthorFailed) as caught:
        list(author(chat("nonsense")).samples(request_, 2))
    assert caught.value.kind == "malformed"
    assert "\n" not in str(caught.value)


def test_an_answer_that_was_cut_off_is_none(chat: Callable[..., Chat], request_: SuggestRequest) -> None:
    with pytest.raises(AuthorFailed, match="cut off"):
        list(author(chat(json.dumps(GOOD), finish="length")).samples(request_, 1))


def test_an_answer_without_end_is_broken_off(chat: Callable[..., Chat], request_: SuggestRequest) -> None:
    server = chat("x" * 40_000_000)
    heard: list[int] = []
    model = author(server)
    model.on_text = lambda text: heard.append(len(text))
    with pytest.raises(AuthorFailed) as caught:
        list(model.samples(request_, 1))
    assert caught.value.kind == "truncated"
    assert sum(heard) < 20_000_000


def test_ten_megabytes_of_answer_are_none(chat: Callable[..., Chat], request_: SuggestRequest) -> None:
    server = chat(json.dumps(GOOD | {"kernel": BETTER + "//" + "x" * 10_000_000}))
    with pytest.raises(AuthorFailed, match="characters") as caught:
        list(author(server).samples(request_, 1))
    assert len(str(caught.value)) < 300


def test_a_repair_is_told_what_failed_and_a_review_what_to_do(
    chat: Callable[..., Chat], request_: SuggestRequest, verdict: Callable[..., Verdict]
) -> None:
    server = chat(json.dumps(GOOD))
    failed = Judged(
        Candidate("local:small", "it was tried", request_.kernel, request_.contract),
        verdict(error="shared-race", accepted=False),
    )
    list(author(server).repair(request_, failed))
    list(author(server).apply(request_, Review("Bound by memory.", (), (Step("Use float4.", "Fewer requests."),))))
    repair, apply = server.bodies[0], server.bodies[-1]
    assert "shared-race" in repair["messages"][1]["content"]
    assert "1. Use float4." in apply["messages"][1]["content"]


def test_stopping_between_two_samples_ends_them(chat: Callable[..., Chat], request_: SuggestRequest) -> None:
    server = chat(json.dumps(GOOD))
    model = author(server)
    samples = model.samples(request_, 5)
    next(samples)
    model.stop = lambda: True
    assert list(samples) == []
    assert len(server.bodies) == 1


def test_the_least_important_part_is_cut_first_and_the_kernel_never() -> None:
    kernel, important, less = "K" * 3000, "I" * 3000, "L" * 9000
    text, room = fitted(kernel, [important, less], "task", 6000)
    assert kernel in text
    assert important in text
    assert less not in text
    assert text.endswith("task")
    assert "[cut]" in text
    assert (len(text) + len(RULES)) / 2.5 + room <= 6000


def test_a_kernel_beyond_the_context_is_said_with_what_it_needs() -> None:
    with pytest.raises(AuthorFailed, match=r"about \d+ tokens of context are needed, it has 1000"):
        fitted("K" * 9000, [], "task", 1000)


def test_a_proposal_of_the_local_model_becomes_its_candidate(
    chat: Callable[..., Chat], request_: SuggestRequest
) -> None:
    model = author(chat(json.dumps(GOOD)))
    (proposal,) = model.samples(request_, 1)
    candidate = proposed(request_, proposal, model.name)
    assert (candidate.author, candidate.why) == ("local:small", "w")
    assert candidate.kernel.source == BETTER


def test_the_nonsense_of_a_random_model_costs_one_line_and_the_loop_goes_on(
    serve: Callable[..., ModelServer], model: LocalModelFile, request_: SuggestRequest
) -> None:
    server = serve(context=4096)
    local = LocalModel(lambda: server.ensure(model), model.name, timeout_s=60.0)
    router = Router(None, local, samples=1)
    assert list(router.propose(request_)) == []
    (note,) = router.notes
    assert note.startswith("local:tiny") or "local:tiny wrote" in note
    assert server.running() is not None


def test_a_text_that_is_not_agreed_to_leaves_for_no_other_machine(
    chat: Callable[..., Chat], request_: SuggestRequest
) -> None:
    server, shown = chat(json.dumps(GOOD)), []
    model = author(server)
    model.agree = lambda text: bool(shown.append(text))
    with pytest.raises(AuthorFailed) as caught:
        list(model.samples(request_, 2))
    assert caught.value.kind == "consent"
    assert server.bodies == []
    model.agree = lambda text: shown.append(text) is None
    list(model.samples(request_, 1))
    sent = server.bodies[0]["messages"]
    assert shown[-1] == f"{sent[0]['content']}\n{sent[1]['content']}"
