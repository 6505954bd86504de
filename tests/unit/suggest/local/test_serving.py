"""Real llama.cpp with a tiny model: found, started, shared, restarted, stopped; streamed and broken off."""

from __future__ import annotations

import json
import os
import signal
import stat
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from tiny_gguf import write_tiny_gguf

from kernelmate.backends.cuda.gpu_lock import GpuLock
from kernelmate.errors import UsageError
from kernelmate.suggest.base import AuthorFailed
from kernelmate.suggest.local.chat import ChatRequest, ask
from kernelmate.suggest.local.library import LocalModelFile, ModelLibrary
from kernelmate.suggest.local.serving import Endpoint, ModelServer
from kernelmate.suggest.replies import Review, read_reply, schema_of

Serve = Callable[..., ModelServer]
SHORT = ChatRequest("Be brief.", "Hello.", most_tokens=24, temperature=0.8, seed=3)


def test_a_server_is_started_on_loopback_and_answers_in_pieces(
    serve: Serve, model: LocalModelFile, engine: str
) -> None:
    endpoint = serve(engine=engine).ensure(model)
    assert endpoint.url.startswith("http://127.0.0.1:")
    heard: list[str] = []
    answer = ask(endpoint, SHORT, on_text=heard.append)
    assert "".join(heard) == answer.text
    assert len(heard) > 1
    assert not answer.finished or (answer.output_tokens or 0) <= 24


def test_equal_seeds_answer_alike_and_others_differ(serve: Serve, model: LocalModelFile, engine: str) -> None:
    endpoint = serve(engine=engine).ensure(model)
    first, again, other = (ask(endpoint, replace(SHORT, seed=seed)).text for seed in (3, 3, 4))
    assert first == again
    assert first != other


def test_an_answer_is_held_to_its_schema(serve: Serve, model: LocalModelFile) -> None:
    endpoint = serve().ensure(model)
    small = {"type": "object", "properties": {"n": {"enum": [1, 2]}}, "required": ["n"], "additionalProperties": False}
    answer = ask(endpoint, replace(SHORT, schema=small, most_tokens=100))
    assert json.loads(answer.text)["n"] in (1, 2)


def test_nonsense_in_the_form_of_a_review_is_read_or_told_to_be_none(serve: Serve, model: LocalModelFile) -> None:
    endpoint = serve().ensure(model)
    question = replace(SHORT, schema=schema_of(Review), most_tokens=900, temperature=1.5)
    became = []
    for seed in range(3):
        try:
            answer = ask(endpoint, replace(question, seed=seed))
        except AuthorFailed as error:
            became.append(error.kind)
        else:
            became.append(type(read_reply(answer.text, Review)).__name__ if answer.finished else "unfinished")
    assert set(became) <= {"malformed", "unfinished", "Review"}


def test_without_the_key_nothing_is_answered(serve: Serve, model: LocalModelFile, engine: str) -> None:
    endpoint = serve(engine=engine).ensure(model)
    with pytest.raises(AuthorFailed) as caught:
        ask(replace(endpoint, key="wrong"), SHORT)
    assert caught.value.kind == "key"
    with pytest.raises(urllib.error.HTTPError):
        urllib.request.urlopen(f"{endpoint.url}/models")


def test_the_key_is_in_no_argument_and_no_environment_and_the_file_is_private(
    serve: Serve, model: LocalModelFile
) -> None:
    server = serve()
    endpoint = server.ensure(model)
    state = server.running()
    assert state is not None
    assert endpoint.key
    for name in ("cmdline", "environ"):
        assert endpoint.key.encode() not in Path(f"/proc/{state.pid}/{name}").read_bytes()
    assert stat.S_IMODE(server.file.stat().st_mode) == 0o600
    assert endpoint.key not in repr(endpoint) + repr(state)


def test_the_server_sees_no_secret_of_the_environment(
    serve: Serve, model: LocalModelFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOME_API_KEY", "a-secret-of-the-user")
    server = serve()
    server.ensure(model)
    state = server.running()
    assert state is not None
    assert b"a-secret-of-the-user" not in Path(f"/proc/{state.pid}/environ").read_bytes()


def test_two_processes_share_one_server(serve: Serve, model: LocalModelFile) -> None:
    first, second = serve(), serve()
    one, two = first.ensure(model), second.ensure(model)
    assert one == two
    assert first.running() == second.running()


def test_two_that_start_at_once_start_one(serve: Serve, model: LocalModelFile) -> None:
    found: list[Endpoint] = []
    threads = [threading.Thread(target=lambda: found.append(serve().ensure(model))) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 3
    assert len(set(found)) == 1


def test_two_clients_are_answered_at_once(serve: Serve, model: LocalModelFile) -> None:
    endpoint = serve().ensure(model)
    texts: list[str] = []
    threads = [threading.Thread(target=lambda: texts.append(ask(endpoint, SHORT).text)) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(texts) == 2


def test_a_crashed_server_is_started_again(serve: Serve, model: LocalModelFile) -> None:
    server = serve()
    before = server.ensure(model)
    state = server.running()
    assert state is not None
    os.kill(state.pid, signal.SIGKILL)
    os.waitpid(state.pid, 0)
    assert server.running() is None
    after = server.ensure(model)
    assert after != before
    assert ask(after, SHORT).text


def test_another_model_takes_its_place(serve: Serve, model: LocalModelFile, library: ModelLibrary) -> None:
    server = serve()
    server.ensure(model)
    old = server.running()
    other = library.add(Path(model.path), "other")
    assert server.ensure(other).model == "other"
    new = server.running()
    assert old is not None
    assert new is not None
    assert old.pid != new.pid
    assert not Path(f"/proc/{old.pid}/cmdline").exists() or Path(f"/proc/{old.pid}/cmdline").read_bytes() == b""


def test_it_ends_when_nobody_asks_for_a_while(serve: Serve, model: LocalModelFile) -> None:
    server = serve(idle_s=0.5)
    server.ensure(model)
    state = server.running()
    assert state is not None
    os.waitpid(state.pid, 0)
    assert server.running() is None
    assert not server.file.exists()


def test_stopping_ends_it(serve: Serve, model: LocalModelFile) -> None:
    server = serve()
    server.ensure(model)
    assert server.stop() is True
    assert server.stop() is False
    assert server.running() is None


def test_interrupting_ends_the_servers_work(serve: Serve, model: LocalModelFile) -> None:
    server = serve(context=4096)
    endpoint = server.ensure(model)
    heard: list[str] = []
    asked: list[float] = []

    def stop() -> bool:
        if len(heard) >= 3 and not asked:
            asked.append(time.monotonic())
        return bool(asked)

    with pytest.raises(AuthorFailed) as caught:
        ask(endpoint, replace(SHORT, most_tokens=3900), on_text=heard.append, stop=stop)
    assert caught.value.kind == "cancelled"
    assert time.monotonic() - asked[0] < 0.3
    assert len(heard) < 3900
    assert _is_idle(server)
    assert ask(endpoint, SHORT).text, "the server is free for the next one"


def test_interrupting_while_the_prompt_is_read_does_not_wait_for_it(serve: Serve, deep: LocalModelFile) -> None:
    server = serve(context=4096)
    endpoint = server.ensure(deep)
    long = replace(SHORT, user="abcdefghij " * 300)
    began = time.process_time(), _cpu_s(server)
    ask(endpoint, replace(long, user="0" + long.user, most_tokens=1))
    whole = _cpu_s(server) - began[1]
    before = _cpu_s(server)
    with pytest.raises(AuthorFailed) as caught:
        ask(endpoint, long, stop=lambda: _cpu_s(server) - before > 0.1 * whole)
    assert caught.value.kind == "cancelled"
    assert _is_idle(server)
    assert _cpu_s(server) - before < 0.7 * whole, "the rest of the prompt was read for nobody"
    assert ask(endpoint, SHORT).text, "the server is free for the next one"


def _cpu_s(server: ModelServer) -> float:
    """CPU seconds that the server's process has used."""
    state = server.running()
    assert state is not None
    fields = Path(f"/proc/{state.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _is_idle(server: ModelServer) -> bool:
    """The server comes to rest: it uses next to no CPU within some half second, of the twenty that are looked at."""
    for _ in range(20):
        before = _cpu_s(server)
        time.sleep(0.5)
        if _cpu_s(server) - before < 0.1:
            return True
    return False


def test_the_common_beginning_of_two_questions_is_evaluated_once(serve: Serve, model: LocalModelFile) -> None:
    endpoint = serve(context=4096, parallel=1).ensure(model)
    rules = "These are the rules, the same for every question of a search. " * 12
    first = ask(endpoint, ChatRequest(rules, "The kernel. What limits it?", most_tokens=4))
    second = ask(endpoint, ChatRequest(rules, "The kernel. What would be better?", most_tokens=4))
    assert first.input_tokens is not None
    assert second.known_tokens is not None
    assert second.known_tokens > 0.9 * first.input_tokens
    assert (first.known_tokens or 0) < 0.1 * first.input_tokens


def test_a_prompt_beyond_the_context_is_said(serve: Serve, model: LocalModelFile, engine: str) -> None:
    endpoint = serve(engine=engine, context=512).ensure(model)
    with pytest.raises(AuthorFailed) as caught:
        ask(endpoint, replace(SHORT, user="many words " * 2000))
    assert caught.value.kind == "truncated"


def test_a_form_that_no_grammar_can_be_made_of_is_said_and_the_server_lives(
    serve: Serve, model: LocalModelFile
) -> None:
    endpoint = serve().ensure(model)
    bad = {"type": "no type at all"}
    with pytest.raises(AuthorFailed) as caught:
        ask(endpoint, replace(SHORT, schema=bad))
    assert caught.value.kind in {"request", "server"}
    assert ask(endpoint, SHORT).text


TEMPLATES = {
    "reaches into Python": "{{ ''.__class__.__mro__[1].__subclasses__() }}",
    "raises": "{{ raise_exception('no') }}",
    "is no template": "{% for",
}


@pytest.mark.parametrize("template", TEMPLATES.values(), ids=TEMPLATES.keys())
def test_a_hostile_chat_template_costs_one_line(
    serve: Serve, library: ModelLibrary, tmp_path: Path, template: str
) -> None:
    model = library.add(write_tiny_gguf(tmp_path / "hostile.gguf", template=template))
    with pytest.raises(AuthorFailed) as caught:
        ask(serve().ensure(model), SHORT)
    assert caught.value.kind in {"server", "request"}
    assert "\n" not in str(caught.value)


def test_a_chat_template_without_end_costs_one_line_and_the_server(
    serve: Serve, library: ModelLibrary, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kernelmate.suggest.local.serving.START_S", 5.0)
    endless = "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}"
    model = library.add(write_tiny_gguf(tmp_path / "endless.gguf", template=endless))
    server = serve()
    with pytest.raises(AuthorFailed) as caught:
        ask(server.ensure(model), SHORT, timeout_s=1.0)
    assert caught.value.kind == "timeout"
    assert server.running() is None


def test_a_file_that_llama_cannot_load_is_said(serve: Serve, library: ModelLibrary, tiny: Path, tmp_path: Path) -> None:
    odd = tmp_path / "odd.gguf"
    odd.write_bytes(tiny.read_bytes().replace(b"blk.1.attn_q.weight", b"blk.1.attn_x.weight"))
    with pytest.raises(AuthorFailed) as caught:
        serve().ensure(library.add(odd))
    assert caught.value.kind == "server"
    assert "tensor 'blk.1.attn_q.weight' not found" in str(caught.value)


def test_a_removed_file_is_said(serve: Serve, model: LocalModelFile, library: ModelLibrary, tmp_path: Path) -> None:
    gone = tmp_path / "gone.gguf"
    gone.write_bytes(Path(model.path).read_bytes())
    entry = library.add(gone)
    gone.unlink()
    with pytest.raises(UsageError, match="is gone"):
        serve().ensure(entry)


def test_without_llama_it_says_what_to_install(
    serve: Serve, model: LocalModelFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kernelmate.suggest.local.serving.engine_name", lambda: None)
    with pytest.raises(AuthorFailed, match=r"pip install 'kernelmate\[local\]'"):
        serve(engine=None).ensure(model)


def test_a_model_beyond_the_memory_is_not_loaded(
    serve: Serve, model: LocalModelFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kernelmate.suggest.local.serving._free_memory", lambda: 1000)
    with pytest.raises(AuthorFailed, match="GiB of memory"):
        serve().ensure(model)


def test_a_running_server_is_kept_when_it_has_taken_the_memory(
    serve: Serve, model: LocalModelFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = serve(context=None)
    endpoint = server.ensure(model)
    monkeypatch.setattr("kernelmate.suggest.local.serving._free_memory", lambda: 1000)
    assert server.ensure(model) == endpoint


def test_a_model_on_a_gpu_is_not_asked_while_a_kernel_is_timed_there(serve: Serve, model: LocalModelFile) -> None:
    endpoint = replace(serve().ensure(model), gpu=f"GPU-of-a-test-{os.getpid()}")
    assert endpoint.gpu is not None
    heard: list[str] = []
    turns = GpuLock(endpoint.gpu)
    thread = threading.Thread(target=lambda: ask(endpoint, SHORT, on_text=heard.append))
    try:
        with turns.alone() as got:
            assert got
            thread.start()
            time.sleep(1.0)
            assert heard == []
        thread.join()
        assert heard
    finally:
        turns.close()
        for path in Path("/tmp").glob(f"kernelmate-{endpoint.gpu}.*"):
            path.unlink()


def test_a_server_that_is_not_there_is_said() -> None:
    with pytest.raises(AuthorFailed) as caught:
        ask(Endpoint("http://127.0.0.1:9/v1", "m"), SHORT)
    assert caught.value.kind == "connection"
    with pytest.raises(AuthorFailed, match="not the address of a server"):
        ask(Endpoint("ftp://x", "m"), SHORT)
