"""Missing headers: finds folders of the workspace that contain one, and offers to add them to the include path."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

from lsprotocol import types

from kernelmate.compiler.nvrtc import MISSING_HEADER, missing_names
from kernelmate.compiler.project_headers import distance
from kernelmate.errors import UsageError
from kernelmate.files import project_folders
from kernelmate_lsp.document_state import DocumentState
from kernelmate_lsp.features.commands import demand_trust, register_command
from kernelmate_lsp.features.diagnostics import schedule
from kernelmate_lsp.reading import DocumentKernel, path_of
from kernelmate_lsp.server import KernelmateServer

OFFERED = 3
"""Number of folders that are offered for a header."""


async def actions(
    server: KernelmateServer,
    known: DocumentState,
    spots: Sequence[DocumentKernel],
    diagnostics: Sequence[types.Diagnostic],
) -> list[types.CodeAction]:
    """Returns an action for each folder with a header that kernels include and that was not found, nearest first.

    Args:
        server: the server.
        known: the document.
        spots: the kernels.
        diagnostics: the diagnostics that the actions may resolve; they include undefined names, which the header may
            declare.
    """
    checked = [known.checked[spot.id] for spot in spots if spot.id in known.checked]
    found = [one for result in checked for verdict in result.verdicts for one in verdict.diagnostics]
    missing = dict.fromkeys(name for one in found if one.code == MISSING_HEADER for name in missing_names(one.message))
    roots = _roots(server, known.uri)
    made = []
    for header in missing:
        for folder in await asyncio.to_thread(_folders_with, header, known.uri, roots):
            given = {"uri": known.uri, "folder": str(folder)}
            command = types.Command("Add", "kernelmate.addIncludePath", arguments=[given])
            title = f"KernelMate: Add {_shown(folder, roots)} to the include path, which has {header}"
            action = types.CodeAction(title, types.CodeActionKind.QuickFix, diagnostics=list(diagnostics))
            action.command, action.is_preferred = command, True
            made.append(action)
    return made


async def add(server: KernelmateServer, given: Mapping[str, Any]) -> Any:
    """Adds a folder to the include path until the server ends; VS Code stores it in its settings instead.

    Raises:
        UsageError: the workspace is not trusted, or there is no such folder.
    """
    demand_trust(server)
    folder, uri = given.get("folder"), given.get("uri")
    if not isinstance(folder, str) or not isinstance(uri, str) or not Path(folder).is_dir():
        raise UsageError(f"There is no folder {folder!r}.", hint="The command takes {uri, folder}.")
    server.include(folder)
    server.say(f"{folder} is on the include path until this server ends. Set kernelmate.includePaths to keep it.")
    for other in tuple(server.known):
        schedule(server, other, delay_s=0)
    return {"included": folder}


def _roots(server: KernelmateServer, uri: str) -> list[Path]:
    """Returns the folders that are searched: the workspace's, else the document's."""
    folders = [Path(path_of(one.uri)) for one in server.workspace.folders.values()]
    root = server.workspace.root_path
    return folders or [Path(root) if root else Path(path_of(uri)).parent]


def _folders_with(header: str, uri: str, roots: Sequence[Path]) -> list[Path]:
    wanted = PurePosixPath(header).parts
    if not wanted or ".." in wanted or PurePosixPath(header).is_absolute():
        return []
    own = Path(path_of(uri)).parent

    found = {folder for root in roots for folder, _ in project_folders(root) if folder.joinpath(*wanted).is_file()}
    return sorted(found, key=lambda folder: (distance(own, folder), str(folder)))[:OFFERED]


def _shown(folder: Path, roots: Sequence[Path]) -> str:
    root = next((root for root in roots if folder.is_relative_to(root)), None)
    return str(folder) if root is None or folder == root else folder.relative_to(root).as_posix()


def register(server: KernelmateServer) -> None:
    """Registers the command; `actions` provides the code actions."""
    register_command(server, "kernelmate.addIncludePath", add)
