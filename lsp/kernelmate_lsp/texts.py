r"""Documents with the protocol's line ends, and conversion of positions.

In LSP, a line ends at `\n`, `\r\n` or `\r` and nowhere else; `str.splitlines` also splits at form feeds, which old CUDA
files contain, and at Unicode's line separators, which comments may contain. Counting lines differently would misplace
every edit below one of them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from urllib.parse import unquote

from lsprotocol import types
from pygls.workspace import PositionCodec, TextDocument, Workspace

_LINE = re.compile(r"[^\r\n]*(?:\r\n|\n|\r|\Z)")


def lines_of(text: str) -> list[str]:
    """Returns the lines of a text with their line ends; after a final line end, the last line is empty."""
    lines = _LINE.findall(text)
    # At the end of the text the pattern matches once more, emptily, after a last line without an end.
    return lines[:-1] if len(lines) > 1 and not lines[-2].endswith(("\n", "\r")) else lines


class ExactDocument(TextDocument):
    """A text document whose lines are those of the protocol."""

    @property
    def lines(self) -> Sequence[str]:
        """The lines with their ends."""
        return tuple(lines_of(self.source))

    @property
    def source(self) -> str:
        """Returns the text; empty for a document that is not open, since its file may differ from the client's text."""
        return self._source or ""


class ExactWorkspace(Workspace):
    """A workspace of `ExactDocument`s."""

    def _create_text_document(
        self, doc_uri: str, source: str | None = None, version: int | None = None, language_id: str | None = None
    ) -> TextDocument:
        return ExactDocument(
            doc_uri,
            source=source,
            version=version,
            language_id=language_id,
            sync_kind=self._sync_kind,
            position_codec=self._position_codec,
        )

    def update_text_document(
        self, text_doc: types.VersionedTextDocumentIdentifier, change: types.TextDocumentContentChangeEvent
    ) -> None:
        """Changes a document; ignores one that is not open."""
        if unquote(text_doc.uri) in self._text_documents:
            super().update_text_document(text_doc, change)

    def update_notebook_document(self, params: types.DidChangeNotebookDocumentParams) -> None:
        """Changes a notebook and its cells; ignores one that is not open."""
        if unquote(params.notebook_document.uri) in self._notebook_documents:
            super().update_notebook_document(params)


class TextPositions:
    """The lines of one text, for conversion between the project's positions and the client's.

    The project counts lines and columns from 1, columns in characters; the client counts from 0, columns in the
    negotiated code units (UTF-16 by default).

    Args:
        text: the whole document.
        codec: codec of the negotiated units.
    """

    def __init__(self, text: str, codec: PositionCodec) -> None:
        self.lines = lines_of(text)
        self._codec = codec

    def position(self, line: int, column: int | None) -> types.Position:
        """Returns the client's position of a line and column; positions outside the text are clamped."""
        row = min(max(line, 1), len(self.lines)) - 1
        text = self.lines[row].rstrip("\r\n")
        characters = 0 if column is None else min(max(column - 1, 0), len(text))
        return types.Position(row, self._codec.client_num_units(text[:characters]))

    def place(self, position: types.Position) -> tuple[int, int]:
        """Returns line and column, from 1, of a client's position."""
        row = min(position.line, len(self.lines) - 1)
        text = self.lines[row].rstrip("\r\n")
        if position.line > row:
            return row + 1, len(text) + 1
        units = 0
        for index, character in enumerate(text):
            if units >= position.character:
                return row + 1, index + 1
            units += self._codec.client_num_units(character)
        return row + 1, len(text) + 1

    def word(self, line: int, column: int | None) -> types.Range:
        """Returns the range of the word or character at a position.

        Without a column, it is the range of the line without its indentation.
        """
        row = min(max(line, 1), len(self.lines)) - 1
        text = self.lines[row].rstrip("\r\n")
        if column is None:
            start, end = len(text) - len(text.lstrip()), len(text.rstrip())
        else:
            start = min(max(column - 1, 0), len(text))
            word = re.compile(r"\w+").match(text, start)
            end = word.end() if word else min(start + 1, len(text))
        return types.Range(self.position(row + 1, start + 1), self.position(row + 1, max(start, end) + 1))

    def end(self) -> types.Position:
        """Returns the position of the end of the text."""
        return self.position(len(self.lines), len(self.lines[-1]) + 1)
