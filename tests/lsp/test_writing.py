"""The action that writes a kernel for a Python function, in the real server."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from lsprotocol import types

from kernelmate.source import load_kernel
from tests.lsp.client import editor, run

REFERENCE = '''\
import numpy as np

HALF = 0.5


def scaled(x: "float32[rows=40, cols=32]", w: "float32[cols]"):
    """Scales columns."""
    return HALF * x * w


def bare(x):
    return x + 1


def nothing():
    return HALF
'''
PLAIN = REFERENCE.replace("import numpy as np", "import math")


def line_of(word: str) -> int:
    return REFERENCE.split("\n").index(next(one for one in REFERENCE.split("\n") if one.startswith(word)))


def test_the_action_stands_on_defs_of_files_with_numpy_and_nowhere_else(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with editor(tmp_path) as it:
            uri = it.open(tmp_path / "reference.py", REFERENCE, "python")
            (action,) = await it.actions(uri, line_of("def scaled"))
            assert action.title == "KernelMate: Write a CUDA kernel for scaled"
            for word in ("HALF", "    return HALF * x", "def nothing"):
                assert await it.actions(uri, line_of(word)) == []
            other = it.open(tmp_path / "plain.py", PLAIN, "python")
            assert await it.actions(other, line_of("def scaled")) == []

    run(scenario())


def test_the_action_writes_a_kernel_beside_the_function_and_shows_it(tmp_path: Path) -> None:
    (tmp_path / "reference.py").write_text(REFERENCE)
    shown: list[str] = []

    async def scenario() -> None:
        async with editor(tmp_path) as it:

            @it.client.feature(types.WINDOW_SHOW_DOCUMENT)
            def on_show(params: types.ShowDocumentParams) -> types.ShowDocumentResult:
                shown.append(params.uri)
                return types.ShowDocumentResult(True)

            uri = it.open(tmp_path / "reference.py", REFERENCE, "python")
            (action,) = await it.actions(uri, line_of("def scaled"))
            assert action.command is not None
            asked = types.ExecuteCommandParams(action.command.command, action.command.arguments)
            answer: Any = await it.client.workspace_execute_command_async(asked)
            assert [Path(one).name for one in answer["written"]["files"]] == ["scaled.cu"]
            assert any(one.startswith("scaled.cu was written") for one in it.messages)
            again: Any = await it.client.workspace_execute_command_async(asked)
            assert "there already" in again["error"]["message"]

    run(scenario())
    assert load_kernel(str(tmp_path / "scaled.cu")).name == "scaled"
    assert shown in ([], [(tmp_path / "scaled.cu").as_uri()])


def test_a_function_without_examples_or_an_unsaved_file_is_refused_with_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "reference.py").write_text(REFERENCE)

    async def scenario() -> None:
        async with editor(tmp_path) as it:
            uri = it.open(tmp_path / "reference.py", REFERENCE, "python")
            told = await it.command("kernelmate.write", uri=uri, function="bare")
            assert "Annotate the parameters" in told["error"]["hint"]
            it.change(uri, REFERENCE + "\n")
            told = await it.command("kernelmate.write", uri=uri, function="scaled")
            assert told["error"]["hint"] == "Save it first."

    run(scenario())
    assert list(tmp_path.glob("*.cu")) == []
