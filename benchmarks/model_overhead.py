"""Time that KernelMate adds to llama.cpp's own time for the same tokens of a local model. Goal: under 5 %.

    python -m benchmarks.model_overhead [xllamacpp] [llama_cpp]

One side asks the engine in this process, by the package's own call. The other is the whole way of `optimize --author
local`: the prompt is built from a verdict, sent to the model server's process, streamed back piece by piece, and read.
Both get the same messages, the same form, seed and temperature, with a model of random weights that a script has
written, which is small: with a larger one the same additions weigh less. Each question is a new one, so that both evaluate
as much. The compared figures are CPU time (client and server
together) and wall time, in A B B A order within one run. Then an answer is stopped, while the prompt is read and while
the answer is written.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
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
from kernelmate.suggest.local.library import ModelLibrary
from kernelmate.suggest.local.serving import Endpoint, ModelServer, ServerSettings

ROOT = Path(__file__).resolve().parents[1]
KERNEL = ROOT / "examples" / "softmax.cu"
CONTEXT, ANSWER, ROUNDS = 4096, 200, 2

Ask = Callable[[list[dict[str, str]], dict[str, Any]], str]
"""Messages and form to the answer's text, empty if none is made."""


@dataclass(frozen=True, slots=True)
class Spent:
    """Seconds of one call."""

    wall: float
    cpu: float

    def __add__(self, more: Spent) -> Spent:
        """Of both calls."""
        return Spent(self.wall + more.wall, self.cpu + more.cpu)


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
        library = ModelLibrary(Path(folder) / "models")
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
    """Returns the request that a suggester gets for an example that was judged on the emulator."""
    listener = Listener()
    with Session(load_settings(backend="emulator", history=False, seed=1)) as session:
        session.optimize(load_kernel(str(KERNEL)), "make it faster", suggesters=[listener])
    return listener.request


def measure(
    engine: str, server: ModelServer, endpoint: Callable[[], Endpoint], request: SuggestRequest, bare: Ask
) -> None:
    """Print what both sides took, round by round, and the medians of their ratios."""
    asked = question(endpoint(), request)["messages"]
    read = chat.ask(endpoint(), chat.ChatRequest(asked[0]["content"], asked[1]["content"], most_tokens=1)).input_tokens
    print(f"\n# {engine}: {read} tokens read and at most {ANSWER} written in each of four calls of a round")
    print(f"{'round':<9}{'bare wall':>10}{'ours wall':>10}{'bare CPU':>10}{'ours CPU':>10}")
    ratios: list[tuple[float, float]] = []
    for number in range(ROUNDS + 1):
        first = one_round(server, endpoint, other(request, 2 * number), bare, ("bare", "ours"))
        second = one_round(server, endpoint, other(request, 2 * number + 1), bare, ("ours", "bare"))
        sums = {side: first[side] + second[side] for side in first}
        cells = (sums["bare"].wall, sums["ours"].wall, sums["bare"].cpu, sums["ours"].cpu)
        print(f"{number or 'warm-up':<9}" + "".join(f"{cell:>10.2f}" for cell in cells))
        if number:
            ratios.append((cells[1] / cells[0], cells[3] / cells[2]))
    wall, cpu = (100 * (statistics.median(column) - 1) for column in zip(*ratios, strict=True))
    print(f"added: {cpu:+.1f} % of CPU time, {wall:+.1f} % of wall time (medians of {ROUNDS} rounds)")
    stops(server, endpoint(), other(request, 999))


def one_round(
    server: ModelServer, endpoint: Callable[[], Endpoint], request: SuggestRequest, bare: Ask, order: tuple[str, str]
) -> dict[str, Spent]:
    """Returns the time that each side takes for one question, asked in the order given."""
    body = question(endpoint(), request)
    spent: dict[str, Spent] = {}
    texts: dict[str, str] = {}
    for side in order:
        if side == "bare":
            spent[side], texts[side] = timed(lambda: bare(body["messages"], body), None)
        else:
            spent[side], texts[side] = timed(lambda: ours(endpoint, request), server)
    # Half characters, of which random weights write many, are told in different ways.
    if texts["bare"] and plain(texts["bare"]) != plain(texts["ours"]):
        print("the two answers differ")
    return spent


def plain(text: str) -> str:
    """Returns the ASCII characters of a text."""
    return text.encode("ascii", "ignore").decode()


def other(request: SuggestRequest, number: int) -> SuggestRequest:
    """The same request about a kernel whose text is new to the server."""
    kernel = request.kernel
    at = kernel.unit.text.index("{", kernel.start) + 1
    return replace(request, kernel=apply_edits(kernel, [(at, at, f"  // variant {number}")]))


def question(endpoint: Endpoint, request: SuggestRequest) -> dict[str, Any]:
    """Returns the body of the request that KernelMate would send."""
    caught: list[chat.ChatRequest] = []

    def keep(_: Endpoint, asked: chat.ChatRequest, **__: object) -> chat.ChatAnswer:
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


def ours(endpoint: Callable[[], Endpoint], request: SuggestRequest) -> str:
    """The whole way: an answer of random weights is never a proposal, so it ends in a refusal."""
    heard: list[str] = []
    model = author.LocalModel(endpoint, "bench", on_text=heard.append)
    try:
        list(model.samples(request, 1))
    except AuthorFailed as error:
        if error.kind != "malformed":
            raise
    return "".join(heard)


def timed(work: Callable[[], Any], server: ModelServer | None) -> tuple[Spent, Any]:
    """Returns the wall time and CPU time of `work`, a server's process included, and its result."""
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

        asked = chat.ChatRequest(system, f"{what} {user}", most_tokens=ANSWER)
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
    """The package's own server, without HTTP and without streaming."""
    import xllamacpp

    wanted = xllamacpp.CommonParams()
    wanted.model.path = str(model)
    wanted.n_ctx, wanted.n_parallel, wanted.n_gpu_layers = CONTEXT, 1, 0
    wanted.cpuparams.n_threads = 1
    server = xllamacpp.Server(wanted)

    def ask(_: list[dict[str, str]], body: dict[str, Any]) -> str:
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
        return "".join(pieces)

    return ask


def _llama_cpp(model: Path) -> Ask:
    import llama_cpp
    from llama_cpp.llama_chat_format import Jinja2ChatFormatter

    llama = llama_cpp.Llama(str(model), n_ctx=CONTEXT, n_threads=1, n_threads_batch=1, verbose=False)
    vocabulary = llama_cpp.llama_model_get_vocab(llama.model)
    template = Jinja2ChatFormatter(llama.metadata["tokenizer.chat_template"], "", "")

    def ask(messages: list[dict[str, str]], body: dict[str, Any]) -> str:
        """Evaluation and sampling alone: not even the text is made of the tokens."""
        grammar = llama_cpp.LlamaGrammar.from_json_schema(
            json.dumps(body["response_format"]["json_schema"]["schema"]), verbose=False
        )
        tokens = llama.tokenize(template(messages=messages).prompt.encode(), add_bos=False, special=True)
        for count, token in enumerate(llama.generate(tokens, temp=body["temperature"], grammar=grammar), 1):
            if llama_cpp.llama_vocab_is_eog(vocabulary, token) or count == body["max_tokens"]:
                break
        return ""

    return ask


BARE: dict[str, Callable[[Path], Ask]] = {"xllamacpp": _xllamacpp, "llama_cpp": _llama_cpp}

if __name__ == "__main__":
    main()
