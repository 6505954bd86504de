"""Workspaces: several folders with their own settings, headers that are not found, and pages about a kernel."""

from __future__ import annotations

from pathlib import Path

import pytest
from lsprotocol import types

from tests.lsp.client import SCALE, STORE_LINE, editor, run, until

pytestmark = pytest.mark.exhaustive(share=0.4)

INCLUDING = '#include "shapes/twice.cuh"\n' + SCALE.replace("a * x[i]", "a * twice(x[i]) * 0.5f")
HEADER = "#pragma once\n__device__ float twice(float v) { return 2.0f * v; }\n"


def test_each_workspace_folder_has_its_own_settings_and_those_of_an_added_one_hold_at_once(tmp_path: Path) -> None:
    folders = [tmp_path / name for name in ("first", "second", "second/inner")]
    for folder in folders:
        folder.mkdir()
    text = SCALE.replace("a * x[i]", "a * x[i] + FACTOR")
    scoped = {folder: {"defines": [f"FACTOR={index}"]} for index, folder in enumerate(folders)}
    del scoped[folders[2]]

    async def scenario() -> None:
        async with editor(folders[0], folders=folders[:2], scoped=scoped) as it:
            uris = [it.open(folder / "scale.cu", text) for folder in folders[:2]]
            for uri in uris:
                assert await it.problems(uri) == []
            verdicts = [(await it.command("kernelmate.benchmark", uri=uri))["verdicts"][0] for uri in uris]
            assert [one["correct"] for one in verdicts] == [True, False]
            # Its own settings are the innermost folder's, once it is one.
            inner = it.open(folders[2] / "scale.cu", text)
            assert await it.problems(inner) == []
            it.scoped[folders[2].as_uri()] = {"defines": ["OTHER=1"]}
            added = types.WorkspaceFolder(folders[2].as_uri(), "inner")
            event = types.WorkspaceFoldersChangeEvent([added], [])
            it.client.workspace_did_change_workspace_folders(types.DidChangeWorkspaceFoldersParams(event))
            await until(lambda: bool(it.published[inner][1]), "the problem of a define that is not there")
            assert not any("undefined" in one.message for one in it.published[uris[1]][1])

    run(scenario())


def test_a_header_that_is_somewhere_in_the_workspace_is_offered_by_its_folder_and_a_repair_is_not(
    tmp_path: Path,
) -> None:
    for folder in ("lib/include/shapes", "old/shapes", "node_modules/shapes", ".hidden/shapes", "src"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "twice.cuh").write_text(HEADER)

    async def scenario() -> None:
        async with editor(tmp_path) as it:
            uri = it.open(tmp_path / "src" / "scale.cu", INCLUDING)
            problems = await it.problems(uri)
            assert [one.range.start.line for one in problems] == [0, STORE_LINE + 1]
            actions = [one for one in await it.actions(uri, STORE_LINE + 1, problems[1:]) if one.kind == "quickfix"]
            at_include = [one for one in await it.actions(uri, 0, problems[:1]) if one.kind == "quickfix"]
            assert [one.title for one in at_include] == [one.title for one in actions]
            titles = [one.title for one in actions]
            assert [title.split(" to the")[0] for title in titles] == [
                "KernelMate: Add old",
                "KernelMate: Add lib/include",
            ]
            assert not any("Fix" in title for title in titles)
            command = actions[1].command
            assert command is not None
            await it.command(command.command, **command.arguments[0])
            await until(lambda: it.published[uri][1] == [], "the header to be found")
            assert "includePaths" in it.messages[-1]
            assert (await it.command("kernelmate.benchmark", uri=uri))["verdicts"][0]["correct"] is True

    run(scenario())


@pytest.mark.parametrize("header", ["nowhere.cuh", "../outside/twice.cuh", "/etc/passwd.cuh"])
def test_a_header_that_the_workspace_does_not_have_offers_no_folder(tmp_path: Path, header: str) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "twice.cuh").write_text(HEADER)
    folder = tmp_path / "work"
    folder.mkdir()

    async def scenario() -> None:
        async with editor(folder) as it:
            uri = it.open(folder / "scale.cu", f'#include "{header}"\n' + SCALE)
            problems = await it.problems(uri)
            found = await it.actions(uri, 0, problems)
            assert not any("include path" in one.title or "Fix" in one.title for one in found)

    run(scenario())


def test_in_a_workspace_that_is_not_trusted_no_folder_is_added(tmp_path: Path) -> None:
    (tmp_path / "shapes").mkdir()
    (tmp_path / "shapes" / "twice.cuh").write_text(HEADER)
    (tmp_path / "src").mkdir()

    async def scenario() -> None:
        async with editor(tmp_path, options={"trusted": False}) as it:
            uri = it.open(tmp_path / "src" / "scale.cu", INCLUDING)
            problems = await it.problems(uri)
            assert problems
            assert not any("include path" in one.title for one in await it.actions(uri, 0, problems))
            refused = await it.command("kernelmate.addIncludePath", uri=uri, folder=str(tmp_path))
            assert "not trusted" in refused["error"]["message"]

    run(scenario())


def test_pages_say_what_limits_a_kernel_what_it_became_and_which_versions_were_judged(tmp_path: Path) -> None:
    settings = {"historyFile": str(tmp_path / "history.db")}

    async def scenario() -> None:
        async with editor(tmp_path, settings=settings) as it:
            uri = it.open(tmp_path / "scale.cu", SCALE)
            await it.problems(uri)
            explained = await it.command("kernelmate.explain", uri=uri)
            assert explained["explained"][0]["causes"], "it was benchmarked first"
            assert "what to do" in explained["text"]
            remedies = [cause["remedy"] for cause in explained["explained"][0]["causes"]]
            assert all(remedy in explained["text"] for remedy in remedies), "the editor breaks lines"
            assert all(line == line.rstrip() for line in explained["text"].splitlines())
            code = await it.command("kernelmate.sass", uri=uri)
            assert any("LDG" in one["text"] for one in code["listings"][0]["sass"])
            assert "__global__ void scale" in code["text"]
            slower = SCALE.replace("y[i] = a * x[i];", "y[i] = a * x[i] + 0.0f * i;")
            it.change(uri, slower)
            await it.command("kernelmate.benchmark", uri=uri)
            versions = await it.command("kernelmate.history", uri=uri)
            first, second = versions["lines"]
            assert first["version"] > second["version"]
            assert "user: clean, ~" in second["label"]
            assert (await it.command("kernelmate.restore", uri=uri, version=second["version"]))["applied"]
            assert it.after(it.applied[-1].edit, uri) == SCALE
            searched = await it.command("kernelmate.optimize", uri=uri, prompt="make it faster", author="recipes")
            names = {one["author"].removeprefix("recipe:") for one in searched["candidates"]}
            labels = [one["label"] for one in (await it.command("kernelmate.history", uri=uri))["lines"]]
            assert names <= {label.partition(":")[0] for label in labels}
            assert "no version 99" in (await it.command("kernelmate.restore", uri=uri, version=99))["error"]["message"]

            it.change(uri, SCALE.replace("a * x[i]", "a * z[i]"))
            await it.problems(uri)
            assert "does not compile" in (await it.command("kernelmate.sass", uri=uri))["error"]["message"]

    run(scenario())


def test_the_machine_is_examined_with_and_without_a_document(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with editor(tmp_path) as it:
            uri = it.open(tmp_path / "scale.cu", SCALE)
            await it.problems(uri)
            for given in ({}, {"uri": uri}):
                answer = await it.command("kernelmate.doctor", **given)
                names = [one["name"] for one in answer["checks"]]
                assert names[:2] == ["python", "compiler"]
                assert all(name in answer["text"] for name in names)

    run(scenario())
