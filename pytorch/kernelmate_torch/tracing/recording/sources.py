"""Syntax trees of the user's files, and the expressions in them that may name a kernel."""

from __future__ import annotations

import ast
import linecache
from collections.abc import Iterator
from dataclasses import dataclass, field
from types import CodeType

Function = ast.FunctionDef | ast.AsyncFunctionDef
Scope = ast.FunctionDef | ast.AsyncFunctionDef | ast.Module
Position = tuple[int, int, int, int]
"""First line, last line, first column and last column of an expression; columns are bytes."""


@dataclass
class SourceFile:
    """A file of the user's program.

    Attributes:
        name: its file name, as in `code.co_filename`.
        text: its text; empty if it cannot be read.
        tree: its syntax tree.
        scopes: functions by first line (of their first decorator) and name, and the module.
        classes: the class that a function is defined in, by its node.
    """

    name: str
    text: str
    tree: ast.Module
    scopes: dict[tuple[int, str], Scope] = field(default_factory=dict)
    classes: dict[Scope, ast.ClassDef] = field(default_factory=dict)


_FILES: dict[str, SourceFile] = {}


def source_file(name: str) -> SourceFile:
    """Returns a file's syntax tree; an empty one if it cannot be read."""
    if name not in _FILES:
        _FILES[name] = parse_source(name, "".join(linecache.getlines(name)))
    return _FILES[name]


def parse_source(name: str, text: str) -> SourceFile:
    """Returns the syntax tree of a text; an empty one if it is not Python, as a cell with magics."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError):
        tree, text = ast.Module([], []), ""
    made = SourceFile(name, text, tree)
    made.scopes[0, "<module>"] = tree
    _index(made, tree, None)
    return made


def _index(file: SourceFile, node: ast.AST, inside: ast.ClassDef | None) -> None:
    for one in ast.iter_child_nodes(node):
        if isinstance(one, Function):
            line = min([one.lineno, *(decorator.lineno for decorator in one.decorator_list)])
            file.scopes[line, one.name] = one
            if inside is not None:
                file.classes[one] = inside
            _index(file, one, None)
        else:
            _index(file, one, one if isinstance(one, ast.ClassDef) else inside)


def scope_of(code: CodeType) -> Scope | None:
    """Returns the function or module of a code object; None for a comprehension, a lambda or a class body."""
    file = source_file(code.co_filename)
    if code.co_name == "<module>":
        return file.tree
    return file.scopes.get((code.co_firstlineno, code.co_name))


def position(node: ast.expr | ast.stmt) -> Position:
    """Returns the position of a node, in the form of `code.co_positions()`."""
    return node.lineno, node.end_lineno or node.lineno, node.col_offset, node.end_col_offset or 0


def chains(scope: ast.AST) -> Iterator[tuple[ast.expr, list[str]]]:
    """Yields each outermost dotted name that a scope reads, with its parts: `torch.ops.my.softmax`, `self.norm`.

    Functions and classes that it defines are scopes of their own; lambdas and comprehensions belong to it.
    """
    for node in own_nodes(scope):
        if isinstance(node, ast.Attribute | ast.Name) and isinstance(node.ctx, ast.Load):
            parts = _parts(node)
            if parts:
                yield node, parts


def imports(scope: ast.AST) -> Iterator[tuple[ast.ImportFrom, str, str]]:
    """Yields each `from MODULE import NAME` of a scope, with the module's name as it is written and the name."""
    for node in own_nodes(scope):
        if isinstance(node, ast.ImportFrom):
            for alias in node.names:
                yield node, "." * node.level + (node.module or ""), alias.name


def defines(scope: ast.AST) -> bool:
    """Returns True if a scope imports names or defines decorated functions."""
    return any(
        isinstance(one, ast.Import | ast.ImportFrom) or bool(getattr(one, "decorator_list", ()))
        for one in own_nodes(scope)
    )


def own_nodes(scope: ast.AST) -> Iterator[ast.AST]:
    """Yields the nodes of a scope in the order of the text; of nested definitions only decorators, of dotted names no parts."""
    waiting = list(reversed(_children(scope)))
    while waiting:
        node = waiting.pop()
        yield node
        if isinstance(node, Function | ast.ClassDef):
            waiting.extend(reversed(node.decorator_list))
        elif not (isinstance(node, ast.Attribute) and _parts(node)):
            waiting.extend(reversed(list(ast.iter_child_nodes(node))))


def _children(scope: ast.AST) -> list[ast.AST]:
    if isinstance(scope, Function):
        return list(scope.body)
    if isinstance(scope, ast.Attribute | ast.Name):
        return [scope]
    return list(ast.iter_child_nodes(scope))


def definitions(tree: ast.Module) -> Iterator[tuple[str, Function, list[ast.AST]]]:
    """Yields the functions of a module and the methods of its classes: name of the class or empty, and the nodes above."""
    waiting: list[tuple[str, ast.AST, list[ast.AST]]] = [("", one, []) for one in tree.body]
    while waiting:
        owner, node, above = waiting.pop()
        if isinstance(node, Function):
            yield owner, node, above
        elif isinstance(node, ast.ClassDef):
            waiting += [(node.name, one, [*above, node]) for one in node.body]
        elif isinstance(node, ast.If | ast.Try | ast.With | ast.ExceptHandler):
            waiting += [(owner, one, [*above, node]) for one in ast.iter_child_nodes(node)]


def _parts(node: ast.expr) -> list[str]:
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name):
        return []
    return [node.id, *reversed(parts)]


def assigned_to_self(file: SourceFile, scope: Scope, attribute: str) -> list[ast.expr]:
    """Returns the expressions that methods of the scope's class assign to `self.ATTRIBUTE`."""
    owner = file.classes.get(scope)
    if owner is None:
        return []
    found = []
    for node in ast.walk(owner):
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            if any(_parts(one)[1:] == [attribute] for one in targets if isinstance(one, ast.Attribute)):
                found.append(node.value)
    return found
