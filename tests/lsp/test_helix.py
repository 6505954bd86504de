"""The documented set-up for Helix, played by a client that says and answers what Helix does.

No registry for Python or JavaScript has Helix, and Debian has none either, so the editor itself cannot be played here.
Capabilities, and the answer to `workspace/configuration`, are those of `helix-lsp/src/client.rs` and
`helix-term/src/application.rs` of July 2026; a message's buttons are a list of choices there, in older ones an error.
"""

from __future__ import annotations

import re
import shutil
import tomllib
from pathlib import Path
from typing import Any

from lsprotocol import types

from tests.lsp.client import BROKEN, STORE_LINE, Editor, editor, run, until

ROOT = Path(__file__).resolve().parents[2]
LANGUAGE = "cpp"
"""The language that Helix gives `.cu` and `.cuh` files."""


def documented() -> dict[str, Any]:
    found = re.search(r"## Helix.*?```toml\n(.*?)```", (ROOT / "docs" / "editor.md").read_text(), re.DOTALL)
    assert found
    return tomllib.loads(found[1])


def helix() -> types.ClientCapabilities:
    """Helix counts columns in bytes if a server can, asks for no lenses, and knows no annotations of changes."""
    kinds = types.ClientCodeActionKindOptions(["", "quickfix", "refactor", "refactor.rewrite", "source"])
    return types.ClientCapabilities(
        workspace=types.WorkspaceClientCapabilities(
            apply_edit=True,
            configuration=True,
            workspace_folders=True,
            did_change_configuration=types.DidChangeConfigurationClientCapabilities(dynamic_registration=False),
            execute_command=types.ExecuteCommandClientCapabilities(dynamic_registration=False),
            workspace_edit=types.WorkspaceEditClientCapabilities(document_changes=True),
            inlay_hint=types.InlayHintWorkspaceClientCapabilities(refresh_support=False),
            did_change_watched_files=types.DidChangeWatchedFilesClientCapabilities(
                dynamic_registration=True, relative_pattern_support=True
            ),
        ),
        text_document=types.TextDocumentClientCapabilities(
            hover=types.HoverClientCapabilities(content_format=[types.MarkupKind.Markdown]),
            code_action=types.CodeActionClientCapabilities(
                code_action_literal_support=types.ClientCodeActionLiteralOptions(kinds),
                data_support=True,
                resolve_support=types.ClientCodeActionResolveOptions(["edit", "command"]),
            ),
            inlay_hint=types.InlayHintClientCapabilities(dynamic_registration=False),
            publish_diagnostics=types.PublishDiagnosticsClientCapabilities(version_support=True),
        ),
        window=types.WindowClientCapabilities(work_done_progress=True),
        general=types.GeneralClientCapabilities(position_encodings=["utf-8", "utf-32", "utf-16"]),
    )


async def accepted(it: Editor, uri: str, line: int) -> str:
    """Runs the action that reduces memory usage, as `space a` does, and agrees; returns the text with the edit."""
    it.answers = ["Apply"]
    offered = {one.title: one for one in await it.actions(uri, line)}
    asked = offered["KernelMate: Reduce memory usage"].command
    assert asked is not None
    asked_of = types.ExecuteCommandParams(asked.command, asked.arguments)
    await it.client.workspace_execute_command_async(asked_of)
    edit = it.applied[-1].edit
    assert edit.change_annotations is None
    assert all(isinstance(one, types.TextEdit) for change in edit.document_changes or [] for one in change.edits)
    return it.after(edit, uri)


def test_the_documented_languages_start_the_documented_server() -> None:
    config = documented()
    assert config["language-server"]["kernelmate"]["command"] == "kernelmate-lsp"
    of_language = {one["name"]: one["language-servers"] for one in config["language"]}
    assert LANGUAGE in of_language
    assert all("kernelmate" in servers for servers in of_language.values())


def test_the_documented_setup_shows_hover_actions_and_mistakes_and_takes_a_candidate(tmp_path: Path) -> None:
    config = documented()["language-server"]["kernelmate"]["config"]
    for name in ("softmax.cu", "reference.py"):
        shutil.copy(ROOT / "examples" / name, tmp_path / name)
    text = (tmp_path / "softmax.cu").read_text()
    line = next(number for number, one in enumerate(text.splitlines()) if "__global__" in one)
    broken = BROKEN.replace("    if (i < n) y[i]", "    /* größer */ if (i < n) y[i]")
    where = broken.splitlines()[STORE_LINE].encode()

    async def scenario() -> None:
        async with editor(tmp_path, settings=config["kernelmate"], options=config, able=helix()) as it:
            assert it.told is not None
            assert it.told.position_encoding == "utf-8"
            uri = it.open(tmp_path / "softmax.cu", text, LANGUAGE)
            assert await it.problems(uri) == []
            assert it.sections == {"kernelmate"}, "which Helix answers from its configuration"
            shown = await it.hover(uri, line, text.splitlines()[line].index("softmax"))
            assert shown is not None
            assert config["kernelmate"]["target"] in shown
            assert "__shfl" in await accepted(it, uri, line)
            wrong = it.open(tmp_path / "scale.cu", broken, LANGUAGE)
            [problem] = [one for one in await it.problems(wrong) if one.range.start.line == STORE_LINE]
            assert problem.range.start.character == where.index(b"z[i]"), "columns are counted in bytes"
            plain = it.open(tmp_path / "plain.cpp", "int main() { return none; }\n", LANGUAGE)
            assert await it.problems(plain) == []

    run(scenario())


def test_a_client_that_asks_its_user_nothing_has_the_candidate_among_the_actions(tmp_path: Path) -> None:
    for name in ("softmax.cu", "reference.py"):
        shutil.copy(ROOT / "examples" / name, tmp_path / name)
    text = (tmp_path / "softmax.cu").read_text()

    async def scenario() -> None:
        async with editor(tmp_path, able=helix()) as it:
            del it.client.protocol.fm.features[types.WINDOW_SHOW_MESSAGE_REQUEST]
            uri = it.open(tmp_path / "softmax.cu", text, LANGUAGE)
            await it.problems(uri)
            prompt = "reduce memory usage"
            document = await it.command("kernelmate.optimize", uri=uri, kernel="softmax", prompt=prompt)
            number = document["best"] + 1
            assert it.applied == []
            await until(lambda: any(f"Take candidate {number}" in one for one in it.messages), "the action's name")
            assert [one for one in await it.actions(uri, 20) if one.title.startswith(f"Take candidate {number}")]

    run(scenario())
