"""Models in the editor: text is shown while it is generated, and sent to another machine only after consent."""

from __future__ import annotations

import json
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
@pytest.mark.parametrize(
    ("written", "text", "shown"),
    [
        ("float v = x[i];", SCALE, True),
        ("return;", SCALE, False),
        ("float v = z[i];", SCALE, False),
        ("float v = x[i];", SCALE[SCALE.index("__global__") :], False),
    ],
    ids=["right", "wrong", "not compiled", "without a contract"],
)
def test_inline_completion_shows_what_a_server_on_this_machine_writes_where_the_kernel_with_it_is_right(
    tmp_path: Path, written: str, text: str, shown: bool
) -> None:
    async def scenario() -> None:
        with ChatServer(json.dumps({"completion": written})) as model:
            async with editor(tmp_path, settings={"inlineCompletion": True, "modelUrl": model.url}) as it:
                uri = it.open(tmp_path / "scale.cu", text)
                await it.problems(uri)
                line = text[: text.index("    if (i < n) y[i]")].count("\n")
                found = await it.inline(uri, line, 4)
                assert [one.insert_text for one in found] == [written] * shown
                assert bool(model.bodies) is text.startswith("// ///")
                assert all("int i = blockIdx.x" in json.dumps(body) for body in model.bodies)

    run(scenario())
