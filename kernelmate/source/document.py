"""A block's TOML, with the place of every key and value in the user's file."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn

from kernelmate.errors import ContractError
from kernelmate.source.blocks import ContractBlock
from kernelmate.source.expressions import ExpressionError, check_names
from kernelmate.source.launch import SizeError
from kernelmate.source.toml_positions import KeySpan, Path, toml_spans

KEYS = (
    "kernel",
    "sizes",
    "grid",
    "block",
    "shared",
    "reference",
    "tolerance",
    "instances",
    "options",
    "require",
    "inputs",
    "torch",
    "accumulate",
    "deterministic",
    "cooperative",
    "cluster",
    "weights",
    "slowdown",
    "args",
    "symbols",
    "pipeline",
    "stages",
)
"""Every key that a contract may have."""

_TOML_PLACE = re.compile(r"\s*\(at (?:line (\d+), column (\d+)|end of document)\)\s*\Z")


@dataclass(frozen=True, slots=True)
class Document:
    """The parsed TOML of a block.

    `inner` holds the offset, in the value's text, of parts without a key of their own (a dimension of a shape, a
    scalar's value), and `moved` the keys of arguments that are fields or variables.
    """

    block: ContractBlock
    text: str
    data: dict[str, Any]
    spans: dict[Path, KeySpan]
    inner: dict[Path, int] = field(default_factory=dict)
    moved: dict[Path, Path] = field(default_factory=dict)

    @classmethod
    def read(cls, block: ContractBlock) -> Document:
        """Parses a block.

        Raises:
            ContractError: its TOML is invalid, at the place where the parser stopped.
        """
        text = block.toml
        try:
            data = tomllib.loads(text)
        except RecursionError:
            line, column = block.place(1, 1)
            message = "The contract's TOML is nested too deeply."
            raise ContractError(message, file=block.unit.path, line=line, column=column, hint="Flatten it.") from None
        except ValueError as error:
            raise _toml_error(block, text, str(error)) from None
        return cls(block, text, data, toml_spans(text))

    def value(self, path: Path) -> Any:
        """Returns the value that a path of keys and indices leads to; None if there is none."""
        found: Any = self.data
        for part in path:
            try:
                found = found[part]
            except (KeyError, IndexError, TypeError):
                return None
        return found

    def required(self, key: str, hint: str) -> Any:
        """Returns the value of a required key.

        Raises:
            ContractError: the key is missing; the error is at the block's first line.
        """
        if key in self.data:
            return self.data[key]
        line, column = self.block.file_position(self.block.opening.line, self.block.opening.column)
        raise ContractError(
            f"The contract has no {key}.", file=self.block.unit.path, line=line, column=column, hint=hint
        )

    def fail(self, path: Path, message: str, hint: str, *, key: bool = False, offset: int | None = None) -> NoReturn:
        """Reports an error at a key's value, at a character of its text, or at the key itself.

        Raises:
            ContractError: always.
        """
        line, column = self.place(path, key=key, offset=offset)
        raise ContractError(message, file=self.block.unit.path, line=line, column=column, hint=hint)

    def fail_at(self, error: SizeError) -> NoReturn:
        """Reports an expression without a usable value at its place.

        Raises:
            ContractError: always.
        """
        path: Path = error.path
        offset = error.offset + self.inner.get(path, 0)
        path = (*self.moved.get(path[:2], path[:2]), *path[2:])
        while path not in self.spans and len(path) > 1:
            path = path[:-1]
        self.fail(path, error.message, error.hint or "", offset=offset)

    def expression(self, path: Path, text: str, names: Iterable[str], offset: int = 0) -> None:
        """Checks that a value, or the part of it that starts at `offset`, is an expression over `names`.

        Raises:
            ContractError: at the place of the mistake.
        """
        try:
            check_names(text, names)
        except ExpressionError as error:
            self.fail(path, error.message, error.hint or "", offset=offset + error.offset)

    def place(self, path: Path, *, key: bool = False, offset: int | None = None) -> tuple[int, int | None]:
        """Returns the file's line and column of a key or of a character of its value."""
        span = self.spans.get(path)
        if span is None:
            return self.block.file_position(self.block.opening.line, self.block.opening.column)
        start = span.key if key else span.value + self._inside(path, span, offset)
        line = self.text.count("\n", 0, start) + 1
        return self.block.place(line, start - (self.text.rfind("\n", 0, start) + 1) + 1)

    def _inside(self, path: Path, span: KeySpan, offset: int | None) -> int:
        """Returns the offset in the file's text of a character of a string value; 0 if escapes make it uncertain."""
        if offset is None:
            return 0
        value: Any = self.data
        for part in path:
            value = value[part]
        written = self.text[span.value : span.end]
        if not isinstance(value, str) or written[1:-1] != value:
            return 0
        return 1 + offset


def read_sides(document: Document, path: Path, value: object, names: Sequence[str], example: str) -> tuple[str, ...]:
    """Returns the one to three expressions of a grid or a block.

    Raises:
        ContractError: at the mistake.
    """
    if not isinstance(value, list):
        return (read_expression(document, path, value, names),)
    if not 1 <= len(value) <= 3:
        key = path[-1]
        document.fail(path, f"{key} has {len(value)} sides.", f"Give one to three, or write {example}.")
    return tuple(read_expression(document, (*path, axis), side, names) for axis, side in enumerate(value))


def read_expression(document: Document, path: Path, value: object, names: Iterable[str]) -> str:
    """Returns an expression over `names`; the TOML value may be a string or an integer.

    Raises:
        ContractError: at the mistake.
    """
    if isinstance(value, bool) or not isinstance(value, int | str):
        key = next(part for part in reversed(path) if isinstance(part, str))
        document.fail(path, f"{key} must be a whole number or an expression in quotes.", 'Write 256, or "n // 4".')
    text = str(value)
    document.inner[path] = len(text) - len(text.lstrip())
    document.expression(path, text, names)
    return text.strip()


def _toml_error(block: ContractBlock, text: str, message: str) -> ContractError:
    match = _TOML_PLACE.search(message)
    lines = text.split("\n")
    if match and match.group(1):
        row, column = int(match.group(1)), int(match.group(2))
    else:
        row, column = len(lines), len(lines[-1]) + 1
    said = message[: match.start()] if match else message
    if "'\\n'" in said:
        said = "a string is not closed"
    if "overwrite" in said:
        said, column = "a key is written twice", _first_column(lines[row - 1])
    line, at = block.place(row, column)
    return ContractError(
        f"The contract is not TOML here: {said[:1].lower()}{said[1:]}.",
        file=block.unit.path,
        line=line,
        column=at,
        hint=_toml_hint(lines[row - 1] if 0 < row <= len(lines) else "", said),
    )


def _first_column(line: str) -> int:
    return len(line) - len(line.lstrip()) + 1


def _toml_hint(line: str, said: str) -> str:
    bare = re.match(r"\s*([\w-]+)\s*=\s*([A-Za-z_(][^\"'#]*?)\s*(?:#.*)?\Z", line)
    if bare:
        return f'Expressions go in quotes: {bare.group(1)} = "{bare.group(2)}".'
    if "twice" in said:
        return "Write each key once."
    return "Strings and expressions go in quotes, lists in [ ], tables in { }."
