"""What KernelMate's way to a local model adds to llama.cpp's own time for the same tokens. Goal: under 5 %.

    python -m benchmarks.model_overhead [xllamacpp] [llama_cpp]

One side asks the engine in this process, by the package's own call. The other is the whole way of `optimize --author
local`: the prompt is built from a verdict, sent to the model server's process, streamed back piece by piece, and read.
Both get the same messages, the same form, seed and temperature, with a model of random weights that a script has
written, which is small: with a larger one the same additions weigh less. Each question is a new one, so that both evaluate
as much. What is compared is CPU time (client and server
together) and wall time, in A B B A order within one run. Then an answer is stopped, while the prompt is read and while
the answer is written.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from benchmarks.machine import describe
from kernelmate.config import load_settings
from kernelmate.records import Candidate
from kernelmate.session import Session
from kernelmate.source import apply_edits, load_kernel
from kernelmate.suggest.base import AuthorFailed, SuggestRequest
from kernelmate.suggest.local import author, chat
from kernelmate.suggest.local.library import Library
from kernelmate.suggest.local.serving import Endpoint, ModelServer, ServerSettings

ROOT = Path(__file__).resolve().parents[1]
KERNEL = ROOT / "examples" / "softmax.cu"
CONTEXT, ANSWER, ROUNDS = 4096, 200, 2

Ask = Callable[[list[dict[str, str]], dict[str, Any]], tuple[str, int]]
"""Messages and form to the answer's text and the number of its tokens."""


@dataclass(frozen=True, slots=True)
class Spent:
    """Seconds of one call."""

    wall: float
    cpu: float


class Listener:
    """A suggester that keeps what it is asked."""

    name = "listener"
    request: SuggestRequest

    def propose(self, request: SuggestRequest) -> Iterator[Candidate]:
        """Nothing is proposed."""
        self.request = request
        return iter(())


def main() -> None:
    """Print a table for each engine that is installed."""
    engines = sys.argv[1:] or [name for name in ("xllamacpp", "llama_cpp") if importlib.util.find_spec(name)]
    # An answer as long as a context allows takes minutes with weights that never come to an end.
    author.MOST_ANSWER_TOKENS = ANSWER
    print(describe())
    with tempfile.TemporaryDirectory() as folder:
        model = write_model(Path(folder) / "random.gguf")
        library = Library(Path(folder) / "models")
        entry = library.add(model)
        print(
            f"model: {entry.parameters / 1e6:.0f} M random weights, {entry.quantization}; one thread"
            if entry.parameters
            else ""
        )
        request = asked()
        for engine in engines:
            server = ModelServer(
                ServerSettings(context=CONTEXT, threads=1, engine=engine, parallel=1), Path(folder) / engine, library
            )
            try:
                measure(engine, server, lambda server=server: server.ensure(entry), request, BARE[engine](model))
            finally:
                server.stop()


def write_model(path: Path) -> Path:
    """The tests' model in a shape in which a call takes seconds."""
    spec = importlib.util.spec_from_file_location("tiny_gguf", ROOT / "tests/unit/suggest/local/tiny_gguf.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["tiny_gguf"] = module
    spec.loader.exec_module(module)
    written: Path = module.write_tiny_gguf(path, context=CONTEXT, shape=module.Shape(384, 4, 6, 1024))
    return written


def asked() -> SuggestRequest:
    """What an author is told of an example that was judged on the emulator."""
    listener = Listener()
    with Session(load_settings(backend="emulator", history=False, seed=1)) as session:
        session.optimize(load_kernel(str(KERNEL)), "make it faster", suggesters=[listener])
    return listener.request


def measure(
    engine: str, server: ModelServer, endpoint: Callable[[], Endpoint], request: SuggestRequest, bare: Ask
) -> None:
    """Print what both sides took, round by round, and the medians of their ratios."""
    endpoint()
    ratios: list[tuple[float, float]] = []
    print(f"\n# {engine}\n{'round':<7}{'tokens':>14}{'bare wall':>11}{'ours wall':>11}{'bare CPU':>10}{'ours CPU':>10}")
    for number in range(ROUNDS + 1):
        sums = {"bare": Spent(0, 0), "ours": Spent(0, 0)}
        tokens: set[tuple[int, int]] = set()
        for attempt, order in enumerate((("bare", "ours"), ("ours", "bare"))):
            variant = other(request, 2 * number + attempt)
            body, texts = question(endpoint(), variant), {}
            for side in order:
                if side == "bare":
                    spent, (texts[side], count) = timed(lambda body=body: bare(body["messages"], body), None)
                else:
                    spent, (texts[side], read, count) = timed(lambda v=variant: ours(endpoint, v), server)
                    tokens.add((read, count))
                sums[side] = Spent(sums[side].wall + spent.wall, sums[side].cpu + spent.cpu)
            # Half characters, of which random weights write many, are told in different ways.
            if texts["bare"] and plain(texts["bare"]) != plain(texts["ours"]):
                print("the two answers differ")
        told = " ".join(f"{read}+{count}" for read, count in sorted(tokens)[:1])
        cells = (sums["bare"].wall, sums["ours"].wall, sums["bare"].cpu, sums["ours"].cpu)
        name = "warm-up" if number == 0 else str(number)
        print(
            f"{name:<7}{told:>14}"
            + "".join(f"{cell:>{width}.2f}" for cell, width in zip(cells, (11, 11, 10, 10), strict=True))
        )
        if number:
            ratios.append((cells[1] / cells[0], cells[3] / cells[2]))
    wall, cpu = (statistics.median(column) for column in zip(*ratios, strict=True))
    print(
        f"added: {100 * (cpu - 1):+.1f} % of CPU time, {100 * (wall - 1):+.1f} % of wall time (medians of {ROUNDS} rounds)"
    )
    stops(server, endpoint(), other(request, 999))


def plain(text: str) -> str:
    """What of a text is ASCII."""
    return text.encode("ascii", "ignore").decode()


def other(request: SuggestRequest, number: int) -> SuggestRequest:
    """The same request about a kernel whose text is new to the server."""
    kernel = request.kernel
    at = kernel.unit.text.index("{", kernel.start) + 1
    return replace(request, kernel=apply_edits(kernel, [(at, at, f"  // variant {number}")]))


def question(endpoint: Endpoint, request: SuggestRequest) -> dict[str, Any]:
    """What our side would send."""
    caught: list[chat.Question] = []

    def keep(_: Endpoint, asked: chat.Question, **__: object) -> chat.Answer:
        caught.append(asked)
        raise AuthorFailed("cancelled", "kept")

    original, author.ask = author.ask, keep  # type: ignore[assignment]
    try:
        list(author.LocalModel(lambda: endpoint, "bench").samples(request, 1))
    except AuthorFailed:
        pass
    finally:
        author.ask = original
    return chat._body(endpoint, caught[0])


def ours(endpoint: Callable[[], Endpoint], request: SuggestRequest) -> tuple[str, int, int]:
    """The whole way: an answer of random weights is never a proposal, so it ends in a refusal."""
    heard: list[str] = []
    model = author.LocalModel(endpoint, "bench", on_text=heard.append)
    try:
        list(model.samples(request, 1))
    except AuthorFailed as error:
        if error.kind != "malformed":
            raise
    return "".join(heard), model.last_cost.input_tokens or 0, model.last_cost.output_tokens or 0


def timed(work: Callable[[], Any], server: ModelServer | None) -> tuple[Spent, Any]:
    """What work takes here and in a server's process."""
    before = time.perf_counter(), time.process_time() + server_cpu(server)
    result = work()
    return Spent(time.perf_counter() - before[0], time.process_time() + server_cpu(server) - before[1]), result


def server_cpu(server: ModelServer | None) -> float:
    """CPU seconds of a server's process so far."""
    state = None if server is None else server.running()
    if state is None:
        return 0.0
    fields = Path(f"/proc/{state.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def stops(server: ModelServer, endpoint: Endpoint, request: SuggestRequest) -> None:
    """Print how soon a question that is no longer wanted ends, and what the server still does for it."""
    body = question(endpoint, request)
    system, user = (one["content"] for one in body["messages"])
    for what, after in (("reading the prompt", 0.3), ("writing the answer", None)):
        heard: list[str] = []
        since: list[float] = []
        began = time.monotonic()

        def stop(
            heard: list[str] = heard, since: list[float] = since, after: float | None = after, began: float = began
        ) -> bool:
            wanted = len(heard) < 5 if after is None else time.monotonic() - began < after
            if not wanted and not since:
                since.append(time.monotonic())
            return not wanted

        asked = chat.Question(system, f"{what} {user}", most_tokens=ANSWER)
        try:
            chat.ask(endpoint, asked, on_text=heard.append, stop=stop)
        except AuthorFailed as error:
            if error.kind != "cancelled":
                raise
        ended, cpu = time.monotonic() - since[0], server_cpu(server)
        time.sleep(2.0)
        print(
            f"stopped while {what}: back after {ended:.3f} s; the server used {server_cpu(server) - cpu:.3f} s of CPU after that"
        )


def _xllamacpp(model: Path) -> Ask:
    import xllamacpp

    wanted = xllamacpp.CommonParams()
    wanted.model.path = str(model)
    wanted.n_ctx, wanted.n_parallel, wanted.n_gpu_layers = CONTEXT, 1, 0
    wanted.cpuparams.n_threads = 1
    server = xllamacpp.Server(wanted)

    def ask(_: list[dict[str, str]], body: dict[str, Any]) -> tuple[str, int]:
        plain = {
            key: value
            for key, value in body.items()
            if key not in {"stream", "stream_options", "return_progress", "model"}
        }
        pieces: list[str] = []
        # What random weights write is cut off before it is whole, which the package says once all is written.
        with contextlib.suppress(RuntimeError):
            answer = server.handle_chat_completions(plain)
            pieces.append(answer["choices"][0]["message"]["content"])
        return "".join(pieces), 0

    return ask


def _llama_cpp(model: Path) -> Ask:
    import llama_cpp

    llama = llama_cpp.Llama(str(model), n_ctx=CONTEXT, n_threads=1, n_threads_batch=1, verbose=False)

    def ask(messages: list[dict[str, str]], body: dict[str, Any]) -> tuple[str, int]:
        form = {"type": "json_object", "schema": body["response_format"]["json_schema"]["schema"]}
        pieces = llama.create_chat_completion(
            messages, response_format=form, temperature=body["temperature"], max_tokens=body["max_tokens"],
            seed=body["seed"], stream=True,
        )  # fmt: skip
        texts = [piece["choices"][0]["delta"].get("content") or "" for piece in pieces]
        return "".join(texts), len(texts)

    return ask


BARE: dict[str, Callable[[Path], Ask]] = {"xllamacpp": _xllamacpp, "llama_cpp": _llama_cpp}

if __name__ == "__main__":
    main()
