"""Converts a changed kernel to a minimal edit of the document version it was derived from."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import SequenceMatcher
from pathlib import Path

from lsprotocol import types
from pygls.uris import from_fs_path, to_fs_path
from pygls.workspace import Workspace

from kernelmate.records import Contract, Kernel
from kernelmate.source import contract_for, file_text
from kernelmate.source.other_files import following_changes, launching_files, read_file
from kernelmate_lsp.reading import DocumentKernels
from kernelmate_lsp.texts import TextPositions, lines_of

ANNOTATION = "kernelmate"


def document_text(reading: DocumentKernels, kernel: Kernel) -> str:
    """Returns the text of the whole document with a kernel's changed unit.

    Raises:
        SourceError: the unit is a Python string literal that cannot represent its text.
    """
    changed = file_text(kernel)
    if kernel.unit.language != "text":
        return changed
    first = next((spot.kernel.unit.file_text for spot in reading.spots), None) or ""
    return reading.text.removesuffix(first) + changed


def text_edits(positions: TextPositions, changed: str) -> list[types.TextEdit]:
    """Returns edits of whole lines that turn a text into a changed one.

    Args:
        positions: the text as it is.
        changed: the changed text.
    """
    old, new = positions.lines, lines_of(changed)
    matcher = SequenceMatcher(None, old, new, autojunk=False)
    edits = []
    for kind, first, last, new_first, new_last in matcher.get_opcodes():
        if kind != "equal":
            span = types.Range(_start(positions, first), _start(positions, last))
            edits.append(types.TextEdit(span, "".join(new[new_first:new_last])))
    return edits


def workspace_edit(
    reading: DocumentKernels,
    changed: str,
    label: str,
    description: str,
    *,
    annotated: bool,
    others: Sequence[types.TextDocumentEdit] = (),
) -> types.WorkspaceEdit:
    """Returns an edit of one document version, which the client confirms with the user if it can.

    Args:
        reading: the version to edit.
        changed: the whole new text.
        label: a short name of the edit.
        description: the reason, and the verdict.
        annotated: True if the client supports change annotations.
        others: edits of other documents that belong to it.
    """
    document = types.OptionalVersionedTextDocumentIdentifier(reading.uri, reading.version)
    edits = [types.TextDocumentEdit(document, list(text_edits(reading.positions, changed))), *others]
    if not annotated:
        return types.WorkspaceEdit(document_changes=list(edits))
    marked = [
        types.TextDocumentEdit(
            one.text_document,
            [
                types.AnnotatedTextEdit(ANNOTATION, edit.range, edit.new_text)
                for edit in one.edits
                if isinstance(edit, types.TextEdit)
            ],
        )
        for one in edits
    ]
    return types.WorkspaceEdit(
        document_changes=list(marked),
        change_annotations={
            ANNOTATION: types.ChangeAnnotation(label, needs_confirmation=True, description=description)
        },
    )


def other_edits(workspace: Workspace, kernel: Kernel, contract: Contract) -> list[types.TextDocumentEdit]:
    """Returns the edits by which launches in other files follow a candidate: of open documents, saved or not, else of files.

    Args:
        workspace: the open documents.
        kernel: the kernel as it is.
        contract: the candidate's contract.
    """
    opened = {to_fs_path(uri): document for uri, document in workspace.text_documents.items()}

    def read(path: Path) -> str:
        document = opened.get(str(path))
        return read_file(path) if document is None else document.source

    changes, _ = following_changes(kernel, launching_files(kernel), contract_for(kernel), contract, read)
    edits = []
    for change in changes:
        document = opened.get(change.path)
        uri = from_fs_path(change.path) or change.path if document is None else document.uri
        identifier = types.OptionalVersionedTextDocumentIdentifier(uri, None if document is None else document.version)
        positions = TextPositions(change.before, workspace.position_codec)
        edits.append(types.TextDocumentEdit(identifier, list(text_edits(positions, change.after))))
    return edits


def _start(positions: TextPositions, row: int) -> types.Position:
    if row >= len(positions.lines):
        return positions.end()
    return types.Position(row, 0)
