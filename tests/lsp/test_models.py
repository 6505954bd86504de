"""Models in the editor: what they write is seen as it comes, and nothing goes to another machine unasked."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.chat_server import ELSEWHERE, ChatServer
from tests.lsp.client import SCALE, STORE_LINE, Editor, editor, run

ANSWER = json.dumps(
    {
        "analysis": "Each thread scales one element.\nThat is as few loads as there can be.",
        "changes": [{"what": "nothing", "why": "it is bound by memory"}],
        "kernel": SCALE.partition("// ///\n")[2],
        "estimated_speedup": None, "grid": None, "block": None, "shared": None,
    }
)  # fmt: skip


async def asked(it: Editor, path: Path) -> dict[str, object]:
    uri = it.open(path, SCALE)
    await it.problems(uri)
    document: dict[str, object] = await it.command(
        "kernelmate.optimize", uri=uri, prompt="make it faster", author="local", propose=False
    )
    return document


def test_what_a_model_writes_is_shown_while_it_writes(tmp_path: Path) -> None:
    async def scenario() -> None:
        with ChatServer(ANSWER, pause_s=0.02) as model:
            async with editor(tmp_path, settings={"modelUrl": model.url, "samples": 1}) as it:
                await asked(it, tmp_path / "scale.cu")
                told = [str(one.get("message")) for one in it.progress if one["kind"] == "report"]
                written = [one for one in told if one.startswith("the model writes: ")]
                assert any("analysis" in one for one in written), told
                assert all(len(one) < 140 for one in written)
                assert it.consents == [], "this machine's model is asked without a question"

    run(scenario())


def test_what_would_go_to_another_machine_is_shown_whole_and_a_refusal_sends_nothing(tmp_path: Path) -> None:
    environment = {"XDG_DATA_HOME": str(tmp_path / "data"), "KERNELMATE_MODEL_KEY": "of-the-tests"}

    async def scenario() -> None:
        with ChatServer(ANSWER, host=ELSEWHERE) as model:
            settings = {"modelUrl": model.url, "samples": 1}
            options = {"consent": True}
            async with editor(tmp_path, settings=settings, options=options, environment=environment) as it:
                it.agrees = False
                await asked(it, tmp_path / "scale.cu")
                assert len(it.consents) == 1
                assert model.bodies == []
                it.agrees = True
                await it.command(
                    "kernelmate.optimize", uri=next(iter(it.texts)), prompt="make it faster", author="local", propose=False
                )  # fmt: skip
                shown = it.consents[-1]
                assert shown["host"] == ELSEWHERE
                assert shown["price"] == "an unknown price"
                for message in model.bodies[0]["messages"]:
                    assert message["content"] in shown["text"]
                assert model.keys[0] == "Bearer of-the-tests"
                assert "of-the-tests" not in shown["text"]
                count = len(it.consents)
                await it.command(
                    "kernelmate.optimize", uri=next(iter(it.texts)), prompt="make it faster", author="local", propose=False
                )  # fmt: skip
                assert len(it.consents) == count, "once for a workspace"

    run(scenario())


def test_a_client_that_cannot_ask_sends_nothing_to_another_machine(tmp_path: Path) -> None:
    environment = {"XDG_DATA_HOME": str(tmp_path / "data")}

    async def scenario() -> None:
        with ChatServer(ANSWER, host=ELSEWHERE) as model:
            async with editor(tmp_path, settings={"modelUrl": model.url}, environment=environment) as it:
                await asked(it, tmp_path / "scale.cu")
                assert model.bodies == []
                assert it.consents == []

    run(scenario())


@pytest.mark.exhaustive(share=0.4)
@pytest.mark.parametrize("on", [False, True])
def test_inline_completion_is_off_until_it_is_asked_for_and_silent_without_a_model(tmp_path: Path, on: bool) -> None:
    async def scenario() -> None:
        settings = {"inlineCompletion": on, "modelsDir": str(tmp_path / "models")}
        async with editor(tmp_path, settings=settings) as it:
            uri = it.open(tmp_path / "scale.cu", SCALE)
            await it.problems(uri)
            assert not await it.inline(uri, STORE_LINE, 4)
            assert it.messages == []

    run(scenario())


@pytest.mark.exhaustive(share=0.4)
def test_inline_completion_asks_a_server_on_this_machine_for_what_stands_in_the_gap(tmp_path: Path) -> None:
    heard: list[dict[str, object]] = []

    class Model(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            heard.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            text = json.dumps({"completion": "float v = x[i];"})
            chunk = {"choices": [{"index": 0, "delta": {"content": text}, "finish_reason": "stop"}]}
            body = f"data: {json.dumps(chunk)}\n\ndata: [DONE]\n\n".encode()
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            return None

    served = ThreadingHTTPServer(("127.0.0.1", 0), Model)
    threading.Thread(target=served.serve_forever, daemon=True).start()

    async def scenario() -> None:
        settings = {"inlineCompletion": True, "modelUrl": f"http://127.0.0.1:{served.server_port}/v1"}
        async with editor(tmp_path, settings=settings) as it:
            uri = it.open(tmp_path / "scale.cu", SCALE)
            await it.problems(uri)
            (found,) = await it.inline(uri, STORE_LINE, 4)
            assert found.insert_text == "float v = x[i];"
            assert "int i = blockIdx.x" in json.dumps(heard[0])

    try:
        run(scenario())
    finally:
        served.shutdown()
