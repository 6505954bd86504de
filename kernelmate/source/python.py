"""Kernels in Python files: the strings passed to `cupy.RawKernel`, `cupy.RawModule`, torch's `load_inline` and PyCUDA's `SourceModule`.

The file is not executed: `ast` reads the strings. A computed string (an f-string, `%`, `.format`, concatenation with
`+`) cannot be compiled or edited; `refused_strings` lists it.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass

from kernelmate.errors import SourceError
from kernelmate.records import Unit
from kernelmate.source.line_ends import normal_text, restored
from kernelmate.source.literals import Literal, anchors_of, read_literal, replace_literal
from kernelmate.source.python_syntax import PythonFile, argument, literal_text


@dataclass(frozen=True, slots=True)
class RefusedString:
    """A call whose code is not a plain literal: the kernel it names, its place, and the kind of expression."""

    kernel: str | None
    line: int
    column: int
    what: str


@dataclass(frozen=True, slots=True)
class _Found:
    """One literal with CUDA text, and the lines of the statements that contain it and use it."""

    literal: Literal
    statement_line: int
    call_line: int


def read_python(path: str, file_text: str) -> tuple[Unit, ...]:
    """Return one unit per literal that is passed to RawKernel or RawModule, in order.

    Raises:
        SourceError: the file is not Python.
    """
    text = normal_text(file_text)
    lines = text.split("\n")
    units = []
    for found in _find(path, text)[0]:
        block = _comments_above(lines, found.statement_line) or _comments_above(lines, found.call_line)
        units.append(
            Unit(
                path=path,
                text=found.literal.value,
                language="python",
                anchors=anchors_of(text, found.literal),
                contract_text=block[1] if block else None,
                contract_line=block[0] if block else None,
                file_text=file_text,
            )
        )
    return tuple(units)


def refused_strings(path: str, file_text: str) -> tuple[RefusedString, ...]:
    """Return the calls of RawKernel and RawModule whose code is computed.

    Raises:
        SourceError: the file is not Python.
    """
    return _find(path, normal_text(file_text))[1]


def with_python_text(unit: Unit, value: str) -> Unit:
    """Return the unit with changed CUDA text, and its whole file with it; the rest of the file is unchanged.

    Raises:
        SourceError: the literal cannot be found again or cannot hold the text.
    """
    file_text = unit.file_text or ""
    text = normal_text(file_text)
    number = _number_of(unit)
    literal = _find(unit.path, text)[0][number].literal
    for changed in (
        replace_literal(text, literal, value),
        text[: literal.start] + repr(value) + text[literal.end :],
    ):
        new_file = restored(file_text, changed)
        try:
            units = read_python(unit.path, new_file)
        except SourceError:
            continue
        if len(units) > number and units[number].text == value:
            return units[number]
    line, column = unit.locate(1, 1)
    raise SourceError(
        "The changed CUDA text cannot be written into this string.",
        file=unit.path,
        line=line,
        column=column,
        hint="Put the code into one triple-quoted string.",
    )


def with_python_file(unit: Unit, text: str) -> Unit:
    r"""Return the unit of a changed file at the same position among its kernel strings; `text` has `\n` line ends.

    Raises:
        SourceError: the changed file is not Python, or no longer has the string.
    """
    number = _number_of(unit)
    units = read_python(unit.path, restored(unit.file_text or "", text))
    if number >= len(units):
        raise SourceError("The string with the kernel is gone from the changed file.", file=unit.path)
    return units[number]


def unit_literal(unit: Unit) -> Literal:
    """Return the string literal of a unit.

    Raises:
        SourceError: the file no longer has it.
    """
    return _find(unit.path, normal_text(unit.file_text or ""))[0][_number_of(unit)].literal


def _number_of(unit: Unit) -> int:
    """Returns the index of a unit among its file's strings."""
    for number, other in enumerate(read_python(unit.path, unit.file_text or "")):
        if other.anchors[:1] == unit.anchors[:1]:
            return number
    raise SourceError("The string with the kernel is not in its file.", file=unit.path, hint="Read the file again.")


# --------------------------------------------------------------------------------------------- finding strings


def _find(path: str, text: str) -> tuple[list[_Found], tuple[RefusedString, ...]]:
    file = PythonFile(path, text)
    found: dict[int, _Found] = {}
    refused: list[RefusedString] = []
    for call, code in file.code_arguments():
        nodes = file.values(code)
        literals = [(node, literal_at(file, node)) for node in nodes]
        for node, literal in literals:
            if literal is not None:
                lines = (file.statement(node).lineno, file.statement(call).lineno)
                found.setdefault(literal.start, _Found(literal, *lines))
        if all(literal is None for _, literal in literals):
            line, column = file.position(code)
            kernel = literal_text(argument(call, 1, "name"))
            refused.append(RefusedString(kernel, line, column, _what(nodes[0] if nodes else None, code)))
    return sorted(found.values(), key=lambda item: item.literal.start), tuple(refused)


def literal_at(file: PythonFile, node: ast.expr) -> Literal | None:
    """Returns an expression's string literal, mapped to the file; None for other expressions."""
    value = literal_text(node)
    if value is None:
        return None
    start, end = file.span(node)
    return read_literal(file.text, start, end, value)


def _what(node: ast.expr | None, code: ast.expr) -> str:
    match node:
        case None:
            return f"the value of {ast.unparse(code)} is not a literal in this file"
        case ast.JoinedStr():
            return "it is an f-string"
        case ast.BinOp(op=ast.Mod()):
            return "it is formatted with %"
        case ast.BinOp():
            return "it is put together with an operator"
        case ast.Call(func=ast.Attribute(attr="format")):
            return "it is made by .format()"
        case _:
            return "it is computed"


# ------------------------------------------------------------------------------------------- contract comments


def _comments_above(lines: Sequence[str], statement_line: int) -> tuple[int, str] | None:
    """Returns first line and text of the comment lines above a statement if they contain a contract block."""
    first = statement_line - 1
    while first > 0 and (not lines[first - 1].strip() or lines[first - 1].lstrip().startswith("#")):
        first -= 1
    text = "\n".join(lines[first : statement_line - 1])
    return (first + 1, text) if "/// kernelmate" in text else None
