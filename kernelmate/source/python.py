"""Kernels in Python files: the strings passed to `cupy.RawKernel`, `cupy.RawModule`, torch's `load_inline` and PyCUDA's `SourceModule`.

The file is not executed: `ast` reads the strings. A computed string (an f-string, `%`, `.format`, concatenation with
`+`) cannot be compiled or edited; `refused_strings` lists it.
"""

from __future__ import annotations

import ast
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from kernelmate.caching import text_cache
from kernelmate.errors import SourceError
from kernelmate.records import Unit
from kernelmate.source.line_ends import normal_text, restored
from kernelmate.source.literals import Literal, anchors_of, read_literal, replace_literal

_CLASSES = ("RawKernel", "RawModule")
_CODE = {
    "RawKernel": (0, "code"),
    "RawModule": (0, "code"),
    "load_inline": (2, "cuda_sources"),
    "SourceModule": (0, "source"),
}
"""Position and name of the argument that holds CUDA text, by class or function."""

_DISTINCT = frozenset({"load_inline", "SourceModule"})
"""Names that are recognised whatever they are imported from."""

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)


class PythonFile:
    r"""The tree of a file, with positions in characters and name lookup by assignment.

    Args:
        path: for messages.
        text: with `\n` line ends.

    Raises:
        SourceError: it is not Python.
    """

    def __init__(self, path: str, text: str) -> None:
        self.path = path
        self.text = text
        self.tree = parse_python(path, text)
        self.lines = text.split("\n")
        self.starts = [0]
        for line in self.lines:
            self.starts.append(self.starts[-1] + len(line) + 1)
        self.nodes = list(ast.walk(self.tree))
        self.parents = {child: parent for parent in self.nodes for child in ast.iter_child_nodes(parent)}
        self._modules = {"cupy", "cp"}
        self._classes: dict[str, str] = {}
        self._read_imports()

    def _read_imports(self) -> None:
        for node in self.nodes:
            if isinstance(node, ast.Import):
                self._modules |= {alias.asname or alias.name for alias in node.names if alias.name == "cupy"}
            elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "cupy":
                named = {alias.asname or alias.name: alias.name for alias in node.names if alias.name in _CLASSES}
                self._classes.update(named)

    # ---------------------------------------------------------------------------------------------- places

    def offset(self, line: int, byte_column: int) -> int:
        """Returns the offset in characters of a line and column as `ast` counts them (UTF-8 bytes from 0)."""
        return self.starts[line - 1] + len(self.lines[line - 1].encode()[:byte_column].decode(errors="ignore"))

    def span(self, node: ast.expr) -> tuple[int, int]:
        """Returns the offsets of an expression."""
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        return self.offset(node.lineno, node.col_offset), self.offset(node.end_lineno, node.end_col_offset)

    def written(self, node: ast.expr) -> str:
        """Returns an expression's source text."""
        start, end = self.span(node)
        return self.text[start:end]

    def position(self, node: ast.expr) -> tuple[int, int]:
        """Returns line and column, from 1, of an expression."""
        return node.lineno, self.offset(node.lineno, node.col_offset) - self.starts[node.lineno - 1] + 1

    def statement(self, node: ast.AST) -> ast.stmt:
        """Returns the statement that contains an expression."""
        while not isinstance(node, ast.stmt):
            node = self.parents[node]
        return node

    def code_arguments(self) -> Iterator[tuple[ast.Call, ast.expr]]:
        """Yields each of the calls with the expressions of its CUDA text: one, or the elements of a list."""
        for call, name in self.calls():
            code = argument(call, *_CODE[name])
            for one in code.elts if isinstance(code, ast.List | ast.Tuple) else [code]:
                if one is not None:
                    yield call, one

    # ----------------------------------------------------------------------------------------------- names

    def calls(self) -> Iterator[tuple[ast.Call, str]]:
        """Yields every call of one of them with its name, in order."""
        found = [(node, self.raw_class(node.func)) for node in self.nodes if isinstance(node, ast.Call)]
        for node, name in sorted(found, key=lambda pair: (pair[0].lineno, pair[0].col_offset)):
            if name is not None:
                yield node, name

    def raw_class(self, function: ast.expr) -> str | None:
        """Returns the function's name, such as `RawKernel`, if an expression is one of them, else None."""
        last = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
        if last in _DISTINCT:
            return last
        if isinstance(function, ast.Name):
            return self._classes.get(function.id)
        is_module = isinstance(function, ast.Attribute) and isinstance(function.value, ast.Name)
        if is_module and function.value.id in self._modules and function.attr in _CLASSES:  # type: ignore[attr-defined]
            return function.attr  # type: ignore[attr-defined, no-any-return]
        return None

    def values(self, node: ast.expr) -> list[ast.expr]:
        """Returns the possible values of an expression: itself, or for a name its assignments above.

        The last assignment in the innermost scope with one counts; if it is in a branch or a loop, earlier ones count
        too. A name that is bound otherwise (a parameter, an unpacking, `+=`) gives a non-literal node; a name without
        assignment gives nothing.
        """
        if not isinstance(node, ast.Name):
            return [node]
        for scope in self._scopes(node):
            assigned = self._assigned(scope, node.id)
            above = [pair for pair in assigned if pair[0].lineno <= node.lineno]
            if assigned:
                return self._reaching(scope, above or assigned[-1:])
        return []

    def in_function(self, node: ast.AST) -> bool:
        """Returns True if a node lies in a function or a lambda, whose names may differ from the file's."""
        return next(self._scopes(node)) is not self.tree

    def _scopes(self, node: ast.AST) -> Iterator[ast.AST]:
        while node in self.parents:
            node = self.parents[node]
            if isinstance(node, _FUNCTIONS):
                yield node
        yield self.tree

    def _assigned(self, scope: ast.AST, name: str) -> list[tuple[ast.arg | ast.Name, ast.expr]]:
        """Returns direct assignments to a name in a scope, with the values, in order."""
        found: list[tuple[ast.arg | ast.Name, ast.expr]] = []
        pending: list[ast.AST] = list(ast.iter_child_nodes(scope))
        while pending:
            node = pending.pop()
            if isinstance(node, ast.arg) and node.arg == name:
                found.append((node, ast.Name(name, ast.Store(), lineno=node.lineno, col_offset=node.col_offset)))
            if isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Store):
                found.append((node, self._value_of(node)))
            if not isinstance(node, (*_FUNCTIONS, ast.ClassDef)):
                pending.extend(ast.iter_child_nodes(node))
        return sorted(found, key=lambda pair: (pair[0].lineno, pair[0].col_offset))

    def _value_of(self, target: ast.Name) -> ast.expr:
        parent = self.parents[target]
        plain = isinstance(parent, ast.Assign | ast.AnnAssign | ast.NamedExpr)
        value = parent.value if plain else None  # type: ignore[attr-defined]
        return value if value is not None else target

    def _reaching(self, scope: ast.AST, assigned: list[tuple[ast.arg | ast.Name, ast.expr]]) -> list[ast.expr]:
        values = []
        for target, value in reversed(assigned):
            values.append(value)
            if isinstance(target, ast.arg) or self.parents[self.statement(target)] is scope:
                break
        return values


def argument(call: ast.Call, position: int, name: str) -> ast.expr | None:
    """Returns an argument of a call by position or name; None if it is not passed directly."""
    for word in call.keywords:
        if word.arg == name:
            return word.value
    if len(call.args) > position and not any(isinstance(a, ast.Starred) for a in call.args[: position + 1]):
        return call.args[position]
    return None


def literal_text(node: ast.expr | None) -> str | None:
    """Returns the value of a string literal, else None."""
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else None


def parse_python(path: str, text: str) -> ast.Module:
    """Returns the tree of a Python text; its warnings are not shown.

    Raises:
        SourceError: it is not Python.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.parse(text)
    except SyntaxError as error:
        raise SourceError(
            f"This is not Python: {error.msg}.",
            file=path,
            line=error.lineno,
            column=error.offset,
            hint="Correct the file first.",
        ) from None
    except (ValueError, RecursionError, MemoryError):
        raise SourceError("This file is nested too deeply to be read.", file=path, hint="Split it.") from None


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
    """Returns one unit per literal that is passed to RawKernel or RawModule, in order.

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
    """Returns the calls of RawKernel and RawModule whose code is computed.

    Raises:
        SourceError: the file is not Python.
    """
    return _find(path, normal_text(file_text))[1]


def with_python_text(unit: Unit, value: str) -> Unit:
    """Returns the unit with changed CUDA text, and its whole file with it; the rest of the file is unchanged.

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
    r"""Returns the unit of a changed file at the same position among its kernel strings; `text` has `\n` line ends.

    Raises:
        SourceError: the changed file is not Python, or no longer has the string.
    """
    number = _number_of(unit)
    units = read_python(unit.path, restored(unit.file_text or "", text))
    if number >= len(units):
        raise SourceError("The string with the kernel is gone from the changed file.", file=unit.path)
    return units[number]


def unit_literal(unit: Unit) -> Literal:
    """Returns the string literal of a unit.

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


@text_cache(16)
def lines_of_texts(text: str) -> tuple[tuple[int, int], ...]:
    """Returns the first and last lines whose contracts belong to kernels in strings, whether those are read or not.

    They are the comments above a statement that contains a kernel's text, or above the call that receives it.
    """
    file = _file_of(text)
    if file is None:
        return ()
    nodes = [node for call, code in file.code_arguments() for node in (call, *file.values(code))]
    nodes += [node for node in file.nodes if isinstance(node, ast.Constant) and "__global__" in str(node.value)]
    lines = {file.statement(node).lineno for node in nodes}
    found = ((last, _comments_above(file.lines, last)) for last in sorted(lines))
    return tuple((block[0], last) for last, block in found if block is not None)


@text_cache(16)
def lines_of_functions(text: str) -> tuple[tuple[int, int], ...]:
    """Returns the first and last line of each function of a Python text."""
    file = _file_of(text)
    nodes = [] if file is None else file.nodes
    return tuple(
        (node.lineno, node.end_lineno or node.lineno)
        for node in nodes
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    )


def _file_of(text: str) -> PythonFile | None:
    try:
        return PythonFile("", text)
    except SourceError:
        return None


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
