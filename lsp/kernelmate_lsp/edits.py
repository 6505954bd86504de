"""Converts a changed kernel to a minimal edit of the document version it was derived from."""

from __future__ import annotations

from difflib import SequenceMatcher

from lsprotocol import types

from kernelmate.records import Kernel
from kernelmate.source import file_text
from kernelmate_lsp.reading import Reading
from kernelmate_lsp.texts import lines_of

ANNOTATION = "kernelmate"


def document_text(reading: Reading, kernel: Kernel) -> str:
    """Returns the text of the whole document with a kernel's changed unit.

    Raises:
        SourceError: the unit is a Python string literal that cannot represent its text.
    """
    changed = file_text(kernel)
    if kernel.unit.language != "text":
        return changed
    first = next((spot.kernel.unit.file_text for spot in reading.spots), None) or ""
    return reading.text.removesuffix(first) + changed


def text_edits(reading: Reading, changed: str) -> list[types.TextEdit]:
    """Returns edits of whole lines that turn the document into a changed text."""
    old, new = lines_of(reading.text), lines_of(changed)
    matcher = SequenceMatcher(None, old, new, autojunk=False)
    edits = []
    for kind, first, last, new_first, new_last in matcher.get_opcodes():
        if kind != "equal":
            span = types.Range(_start(reading, first), _start(reading, last))
            edits.append(types.TextEdit(span, "".join(new[new_first:new_last])))
    return edits


def workspace_edit(
    reading: Reading, changed: str, label: str, description: str, *, annotated: bool
) -> types.WorkspaceEdit:
    """Returns an edit of one document version, which the client confirms with the user if it can.

    Args:
        reading: the version to edit.
        changed: the whole new text.
        label: a short name of the edit.
        description: the reason, and the verdict.
        annotated: True if the client supports change annotations.
    """
    document = types.OptionalVersionedTextDocumentIdentifier(reading.uri, reading.version)
    if not annotated:
        plain = text_edits(reading, changed)
        return types.WorkspaceEdit(document_changes=[types.TextDocumentEdit(document, list(plain))])
    edits = [types.AnnotatedTextEdit(ANNOTATION, one.range, one.new_text) for one in text_edits(reading, changed)]
    return types.WorkspaceEdit(
        document_changes=[types.TextDocumentEdit(document, list(edits))],
        change_annotations={
            ANNOTATION: types.ChangeAnnotation(label, needs_confirmation=True, description=description)
        },
    )


def _start(reading: Reading, row: int) -> types.Position:
    positions = reading.positions
    if row >= len(positions.lines):
        return positions.end()
    return types.Position(row, 0)
