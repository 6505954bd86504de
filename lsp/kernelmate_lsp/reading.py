"""Kernels of one document version, and calls that cannot be read as kernels; no code of the document is executed."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from urllib.parse import unquote, urlsplit

from pygls.uris import to_fs_path
from pygls.workspace import PositionCodec

from kernelmate.errors import SourceError
from kernelmate.records import Anchor, Kernel, Unit
from kernelmate.source.blocks import find_kernels, find_pipelines
from kernelmate.source.cuda import unclosed_heads
from kernelmate.source.line_ends import normal_text
from kernelmate.source.literals import anchors_of
from kernelmate.source.python import PythonFile, RefusedString, literal_at, literal_text, read_python, refused_strings
from kernelmate.source.triton import triton_unit
from kernelmate_lsp.texts import TextPositions

CUDA_LANGUAGES = frozenset({"cuda", "cuda-cpp", "cpp", "c++", "cuda-c++"})
"""Language ids of documents that consist of CUDA text."""

_CELL_MAGIC = re.compile(r"\s*%%kernelmate\b[^\n]*(?:\n|\Z)")
_VIRTUAL_MAGIC = "run_cell_magic"
"""Name of the call that replaces a cell's magic line in JupyterLab's documents; the cell is its string argument."""


@dataclass(frozen=True, slots=True)
class DocumentKernel:
    """One kernel of a document.

    Attributes:
        id: its identifier within the document: the number of its unit and its name, with a further number if that is
            not unique.
    """

    id: str
    kernel: Kernel


@dataclass(frozen=True)
class DocumentKernels:
    """One version of one document.

    Attributes:
        uri: the document's URI.
        version: the client's version number.
        text: the whole text.
        path: path for messages and relative paths: the file's; for a cell, the notebook's.
        spots: its kernels in order of position.
        refused: calls of RawKernel whose code is not a string literal.
        unclosed: line and column of each `__global__` whose parameter list is not closed.
    """

    uri: str
    version: int
    text: str
    path: str
    codec: PositionCodec
    spots: tuple[DocumentKernel, ...] = ()
    refused: tuple[RefusedString, ...] = ()
    unclosed: tuple[tuple[int, int | None], ...] = ()

    @cached_property
    def positions(self) -> TextPositions:
        """Converter between lines and columns and the client's positions."""
        return TextPositions(self.text, self.codec)

    def spot(self, spot_id: str) -> DocumentKernel | None:
        """Returns the kernel with an id; None if this version has none."""
        return next((spot for spot in self.spots if spot.id == spot_id), None)

    def spot_at(self, line: int, column: int) -> DocumentKernel | None:
        """Returns the kernel whose definition or contract block contains a position."""
        for spot in self.spots:
            first, last = span_lines(spot.kernel)
            if first <= line <= last:
                return spot
        return None


def span_lines(kernel: Kernel) -> tuple[int, int]:
    """Returns the first and last line, in the document, of a kernel with its contract block.

    A contract block outside the kernel's unit is not included.
    """
    unit = kernel.unit
    start = kernel.start if kernel.contract_span is None else min(kernel.start, kernel.contract_span[0])
    first = unit.text.count("\n", 0, start) + 1
    last = unit.text.count("\n", 0, kernel.end) + 1
    return unit.locate(first, 1)[0], unit.locate(last, 1)[0]


def has_contract(kernel: Kernel) -> bool:
    """Returns True if a contract is written for a kernel."""
    return kernel.contract_span is not None or kernel.unit.contract_text is not None


def name_position(kernel: Kernel) -> tuple[int, int | None]:
    """Returns line and column, in the document, of a kernel's name."""
    return kernel.unit.locate(kernel.line, kernel.column)


def path_of(uri: str) -> str:
    """Returns the path for messages about a document: the file's; for a cell, the notebook's."""
    return to_fs_path(uri) or unquote(urlsplit(uri).path) or uri


def is_cuda(path: str, language: str | None) -> bool:
    """Returns True if a document consists of CUDA text."""
    if Path(path).suffix in {".cu", ".cuh"}:
        return True
    return language in CUDA_LANGUAGES and Path(path).suffix not in {".cpp", ".cc", ".cxx", ".c", ".h", ".hpp"}


def read(uri: str, version: int, language: str | None, text: str, codec: PositionCodec) -> DocumentKernels:
    """Finds the kernels and pipelines of a document; incomplete CUDA or Python text has none.

    Errors in the text are not raised.
    """
    path = path_of(uri)
    refused: tuple[RefusedString, ...] = ()
    try:
        units = _units(path, language, text)
        if language == "python" and all(one.language != "text" for one in units):
            refused = refused_strings(path, text)
    except SourceError:
        units = ()
    unclosed = [
        unit.locate(line, column)
        for unit in units
        if unit.language in ("cuda", "text")
        for line, column in unclosed_heads(unit.text)
    ]
    return DocumentKernels(uri, version, text, path, codec, _spots(units), refused, tuple(unclosed))


def _units(path: str, language: str | None, text: str) -> Sequence[Unit]:
    cell = _CELL_MAGIC.match(text)
    if cell is not None:
        return (_below_magic(path, text, cell.end()),)
    if is_cuda(path, language):
        return (Unit(path=path, text=normal_text(text), language="cuda", file_text=text),)
    if language == "python":
        found = triton_unit(path, text)
        return (*read_python(path, text), *_magic_strings(path, text), *([] if found is None else [found]))
    return ()


def _magic_strings(path: str, text: str) -> Iterator[Unit]:
    """Yields the cells of a notebook sent as one document, each as a unit at its string literal."""
    if _VIRTUAL_MAGIC not in text:
        return
    file = PythonFile(path, normal_text(text))
    for node in file.nodes:
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and len(node.args) == 3):
            continue
        if node.func.attr == _VIRTUAL_MAGIC and literal_text(node.args[0]) == "kernelmate":
            literal = literal_at(file, node.args[2])
            if literal is not None:
                anchors = anchors_of(file.text, literal)
                yield Unit(path=path, text=literal.value, language="python", anchors=anchors, file_text=text)


def _below_magic(path: str, text: str, start: int) -> Unit:
    """Returns a cell's text below its magic line."""
    first = text.count("\n", 0, start) + 1
    return Unit(
        path=path,
        text=normal_text(text[start:]),
        language="text",
        anchors=(Anchor(1, 1, first, 1),),
        file_text=text[start:],
    )


def _spots(units: Sequence[Unit]) -> tuple[DocumentKernel, ...]:
    spots: list[DocumentKernel] = []
    taken: set[str] = set()
    for number, unit in enumerate(units):
        for kernel in sorted((*find_kernels(unit), *find_pipelines(unit)), key=lambda one: one.start):
            name, count = f"{number}:{kernel.name}", 1
            while name in taken:
                count += 1
                name = f"{number}:{kernel.name}#{count}"
            taken.add(name)
            spots.append(DocumentKernel(name, kernel))
    return tuple(spots)
