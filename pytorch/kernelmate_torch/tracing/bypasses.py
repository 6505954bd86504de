"""Finds the paths in a function that bypass a name: branches, early returns, handlers and conditions taken instead."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from kernelmate_torch.tracing.loading_records import TracedCode
from kernelmate_torch.tracing.recording.sources import Scope, own_nodes, position

_BEGINNING = 4
"""Instructions at the beginning of a statement of which one is counted for it."""

_HARMLESS = {
    "print", "warn", "warning", "debug", "info", "log", "error", "empty", "empty_like", "zeros", "zeros_like", "new_empty", "new_zeros", "len", "isinstance", "format", "append", "synchronize", "add", "inc", "getLogger", "time", "perf_counter", "exit",
}  # fmt: skip
"""Last parts of the names of functions that compute nothing in place of a kernel."""


@dataclass(frozen=True, slots=True)
class Bypass:
    """A path that bypasses a name which leads to a kernel.

    Attributes:
        kind: `branch`, `return`, `except`, `suppress`, `conditional`, `skip`, `case`, `loop` or `table`.
        line: line of the guard, or of the handler.
        guard: the guard's text.
        target: line where it went.
        count: number of times that the interpreter took it.
        compiled: True if torch.compile took it while it traced.
        statements: what ran in place of the name.
        computes: True if that computes something.
        in_place: True if it gives its result in the place of the name's: the same variable, or the function's result.
        facts: the tensors of some of the calls.
        empty: calls with a tensor that has no elements.
    """

    kind: str
    line: int
    guard: str
    target: int
    count: int
    compiled: bool
    statements: tuple[ast.AST, ...]
    computes: bool
    in_place: bool
    facts: tuple[tuple[str, ...], ...] = ()
    empty: int = 0


@dataclass
class Executions:
    """Counts of the executed nodes of a function's syntax tree.

    Attributes:
        scope: the function.
        codes: its code object, and those of its lambdas and comprehensions.
    """

    scope: Scope
    codes: Sequence[TracedCode]
    _found: dict[ast.AST, list[tuple[int, int]]] = field(default_factory=dict)

    def count(self, node: ast.AST) -> int:
        """Returns how often the interpreter began to execute a statement or an expression."""
        return max((self.codes[code].counts[at] for code, at in self._instructions(node)[:_BEGINNING]), default=0)

    def compiled(self, node: ast.AST) -> bool:
        """Returns True if torch.compile visited it."""
        return any(self.codes[code].traced[at] for code, at in self._instructions(node))

    def calls(self, node: ast.Call) -> int:
        """Returns how often a call was made: its arguments evaluated without an error."""
        exact = [
            self.codes[code].counts[at]
            for code, at in self._instructions(node)
            if self.codes[code].positions[at] == position(node)
        ]
        return exact[-1] if exact else 0

    def facts(self, node: ast.AST, without: ast.AST | None = None) -> tuple[tuple[tuple[str, ...], ...], int]:
        """Returns descriptions of calls that executed a node, and not another one, and how many of all had empty tensors."""
        found: list[tuple[str, ...]] = []
        empty = 0
        wanted, unwanted = (
            self._instructions(node)[:_BEGINNING],
            [] if without is None else self._instructions(without)[:_BEGINNING],
        )
        for number, code in enumerate(self.codes):
            mine, others = {at for one, at in wanted if one == number}, {at for one, at in unwanted if one == number}
            for path in code.paths:
                executed = set(path["executed"])
                if mine & executed and not others & executed:
                    found += [tuple(one) for one in path["facts"]]
                    empty += path["empty"]
        return tuple(dict.fromkeys(found))[:3], empty

    def _instructions(self, node: ast.AST) -> list[tuple[int, int]]:
        """Returns code and index of the instructions inside a node, in their order; of the outermost code that has any."""
        if node not in self._found:
            first, last, left, right = position(node)  # type: ignore[arg-type]
            self._found[node] = []
            for number, code in enumerate(self.codes):
                inside = [
                    (number, at) for at, (a, b, c, d) in enumerate(code.positions)
                    if a > 0 and (a, c) >= (first, left) and (b, d) <= (last, right)
                ]  # fmt: skip
                if inside:
                    self._found[node] = inside
                    break
        return self._found[node]


def bypasses(executions: Executions, name: ast.AST) -> Iterator[Bypass]:
    """Yields the paths bypassing a name that were taken, the innermost first."""
    finder = _Finder(executions, name)
    for one in finder.all():
        if one.count > 0 or one.compiled:
            yield one


class _Finder:
    """Finds the paths that bypass one name."""

    def __init__(self, executions: Executions, name: ast.AST) -> None:
        self.executions, self.name = executions, name
        self.path = path_to(executions.scope, name)
        self.statement = next((one for one in reversed(self.path) if isinstance(one, ast.stmt)), None)
        scope = executions.scope
        arguments = (
            [] if isinstance(scope, ast.Module) else [*scope.args.posonlyargs, *scope.args.args, *scope.args.kwonlyargs]
        )
        self.parameters = {one.arg for one in arguments}
        self.targets = {one.id for one in _targets(self.statement)}
        self.returns = isinstance(self.statement, ast.Return) or self._is_returned()

    def all(self) -> Iterator[Bypass]:
        for parent, child in reversed(list(zip(self.path, self.path[1:], strict=False))):
            yield from self._of(parent, child)
            for block in _blocks(parent):
                if child in block:
                    yield from self._exits_before(block[: block.index(child)])

    def _of(self, parent: ast.AST, child: ast.AST) -> Iterator[Bypass]:
        if isinstance(parent, ast.If) and child is not parent.test:
            yield from self._of_if(parent, child)
        elif isinstance(parent, ast.IfExp) and child is not parent.test:
            other = parent.orelse if child is parent.body else parent.body
            yield self._made("conditional", parent.test, other, [other], computes=True, in_place=True)
        elif isinstance(parent, ast.BoolOp) and child is not parent.values[0]:
            yield self._short_circuit(parent, child)
        elif isinstance(parent, ast.Try) and (child in parent.body or child in parent.orelse):
            for handler in parent.handlers:
                leaves = isinstance(handler.body[-1], ast.Return | ast.Raise | ast.Continue | ast.Break)
                rest = [] if leaves or parent.orelse else _following(self.path, parent)
                yield self._made("except", handler, handler.body[0], [*handler.body, *rest])
        elif isinstance(parent, ast.With | ast.AsyncWith) and child in parent.body:
            yield from self._suppressed(parent)
        elif isinstance(parent, ast.Match):
            for case in parent.cases:
                if case is not child:
                    made = self._made("case", case.pattern, case.body[0], case.body)
                    yield replace(made, guard=f"match {ast.unparse(parent.subject)}: case {made.guard}")
        elif isinstance(parent, ast.For | ast.While) and child in parent.body:
            begun = self.executions.count(parent.iter if isinstance(parent, ast.For) else parent.test)
            if begun and not self.executions.count(parent.body[0]):
                yield self._counted("loop", parent, parent, begun, [], computes=False)

    def _suppressed(self, parent: ast.With | ast.AsyncWith) -> Iterator[Bypass]:
        """Yields the path that bypasses a name by `with contextlib.suppress(...)`, taken at most as often as that statement began."""
        rest = _following(self.path, parent)
        for call in (one.context_expr for one in parent.items if isinstance(one.context_expr, ast.Call)):
            if ast.unparse(call.func).rpartition(".")[2] == "suppress":
                begun = self.executions.count(self.statement or parent)
                yield self._counted("suppress", call, rest[0] if rest else parent, begun, rest)

    def _of_if(self, parent: ast.If, child: ast.AST) -> Iterator[Bypass]:
        inside, other = (parent.body, parent.orelse) if child in parent.body else (parent.orelse, parent.body)
        if other:
            yield self._made("branch", parent.test, other[0], other)
            return
        skipped = self.executions.count(parent.test) - self.executions.count(inside[0])
        rest = _following(self.path, parent)
        compiled = self.executions.compiled(parent.test) and not self.executions.compiled(inside[0])
        if isinstance(inside[-1], ast.Return | ast.Continue | ast.Break | ast.Raise) and rest:
            yield self._counted("branch", parent.test, rest[0], skipped, rest, compiled=compiled, without=inside[0])
        elif isinstance(inside[-1], ast.Return) and not isinstance(self.executions.scope, ast.Module):
            yield self._counted(
                "branch",
                parent.test,
                parent,
                skipped,
                [],
                computes=self._needs_result(),
                compiled=compiled,
                without=inside[0],
            )
        else:
            place = self._computed_elsewhere(inside)
            yield self._counted(
                "skip", parent.test, place or parent, skipped, [] if place is None else [place], computes=place is not None,
                compiled=compiled, without=inside[0],
            )  # fmt: skip

    def _short_circuit(self, parent: ast.BoolOp, child: ast.AST) -> Bypass:
        at = parent.values.index(child)  # type: ignore[arg-type]
        count = self.executions.count(parent.values[0]) - self.executions.count(parent.values[at])
        guard = ast.BoolOp(parent.op, parent.values[:at]) if at > 1 else parent.values[0]
        ast.copy_location(guard, parent.values[0])
        return self._counted(
            "conditional", guard, parent, count, [parent.values[0]], computes=isinstance(parent.op, ast.Or)
        )

    def _exits_before(self, statements: Iterable[ast.stmt]) -> Iterator[Bypass]:
        for statement in statements:
            for leaving, guard, arm in _exits(statement, None, [statement]):
                if isinstance(guard, ast.If | ast.While):
                    yield self._made("return", guard.test, leaving, arm, shown=guard)
                elif isinstance(guard, ast.ExceptHandler | ast.match_case):
                    yield self._made("except" if isinstance(guard, ast.ExceptHandler) else "case", guard, leaving, arm)

    def _made(
        self, kind: str, guard: ast.AST, target: ast.AST, statements: Sequence[ast.AST], *, computes: bool | None = None,
        in_place: bool | None = None, shown: ast.AST | None = None,
    ) -> Bypass:  # fmt: skip
        count = self.executions.count(target)
        made = self._counted(
            kind,
            guard,
            target,
            count,
            statements,
            computes=computes,
            compiled=self.executions.compiled(target),
            shown=shown,
        )
        return made if in_place is None else replace(made, in_place=in_place)

    def _counted(
        self, kind: str, guard: ast.AST, target: ast.AST, count: int, statements: Sequence[ast.AST], *, computes: bool | None = None,
        compiled: bool = False, without: ast.AST | None = None, shown: ast.AST | None = None,
    ) -> Bypass:  # fmt: skip
        facts, empty = self.executions.facts(target if without is None else guard, without)
        does = self._computes(statements) if computes is None else computes
        line = getattr(guard, "lineno", 0) or getattr(shown, "lineno", 0) or getattr(target, "lineno", 0)
        return Bypass(
            kind, line, _text(guard), getattr(target, "lineno", 0), max(count, 0), compiled, tuple(statements), does,
            self._in_place(statements), facts, empty,
        )  # fmt: skip

    def _computes(self, statements: Sequence[ast.AST]) -> bool:
        """Returns True if statements compute something in place of the kernel, or hand out a value that was computed before."""
        if any(_is_work(node) for one in statements for node in ast.walk(one) if not isinstance(one, ast.Raise)):
            return True
        for one in statements:
            if isinstance(one, ast.Return):
                value = one.value
                if value is None or (isinstance(value, ast.Constant) and value.value in (None, False)):
                    return self._needs_result()
                if isinstance(value, ast.Name) and value.id not in self.parameters:
                    return True
        if statements and not isinstance(statements[-1], ast.Return | ast.Raise | ast.Continue | ast.Break):
            return self._computed_elsewhere([self.statement] if self.statement is not None else []) is not None
        return False

    def _needs_result(self) -> bool:
        """Returns True if the function returns the name's result, so that None instead of it makes the caller take another path."""
        return self.returns and not any(isinstance(one, ast.Tuple) for one in self.path)

    def _is_returned(self) -> bool:
        returned = [one.value for one in own_nodes(self.executions.scope) if isinstance(one, ast.Return)]
        return any(
            isinstance(node, ast.Name) and node.id in self.targets
            for one in returned
            if one is not None
            for node in ast.walk(one)
        )

    def _computed_elsewhere(self, inside: Sequence[ast.AST]) -> ast.stmt | None:
        """Returns a statement that was executed and gives the name's variable a computed value without it."""
        value = getattr(self.statement, "value", None)
        if not self.targets or (
            value is not None and any(isinstance(one, ast.Name) and one.id in self.targets for one in ast.walk(value))
        ):
            return None
        own = {node for one in inside for node in ast.walk(one)}
        for node in own_nodes(self.executions.scope):
            if isinstance(node, ast.Assign | ast.AnnAssign) and node not in own and node.value is not None:
                same = {one.id for one in _targets(node)} & self.targets
                other = any(_is_work(one) for one in ast.walk(node.value)) or (_is_name(value) and _is_name(node.value))
                if same and other and self.executions.count(node):
                    return node
        return None

    def _in_place(self, statements: Sequence[ast.AST]) -> bool:
        for one in statements:
            for node in ast.walk(one):
                if isinstance(node, ast.Return) and node.value is not None and self.returns:
                    return True
                if {each.id for each in _targets(node)} & self.targets:
                    return True
                if (
                    isinstance(node, ast.Assign)
                    and isinstance(self.statement, ast.Assign)
                    and _attributes(node) & _attributes(self.statement)
                ):
                    return True
        return False


def path_to(scope: ast.AST, wanted: ast.AST) -> list[ast.AST]:
    """Returns the nodes from a scope to one inside it, both included; empty if it is not inside."""
    if scope is wanted:
        return [scope]
    for child in ast.iter_child_nodes(scope):
        found = path_to(child, wanted)
        if found:
            return [scope, *found]
    return []


def _blocks(node: ast.AST) -> list[list[ast.stmt]]:
    return [held for name in ("body", "orelse", "finalbody") if isinstance(held := getattr(node, name, None), list)]


def _following(path: Sequence[ast.AST], statement: ast.AST) -> list[ast.stmt]:
    """Returns the statements that run after one: the rest of its block, or else of the enclosing blocks."""
    at = list(path).index(statement)
    for parent, child in zip(reversed(path[:at]), reversed(path[: at + 1]), strict=False):
        if isinstance(parent, ast.For | ast.While):
            return []
        for block in _blocks(parent):
            if child in block and block[block.index(child) + 1 :]:
                return block[block.index(child) + 1 :]
    return []


def _exits(
    node: ast.AST, guard: ast.AST | None, arm: Sequence[ast.AST], *, loop: bool = False
) -> Iterator[tuple[ast.stmt, ast.AST | None, Sequence[ast.AST]]]:
    """Yields returns, breaks and continues that leave a statement, with the condition or handler above them and its statements."""
    if isinstance(node, ast.Return) or (isinstance(node, ast.Continue | ast.Break) and not loop):
        yield node, guard, arm
        return
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda):
        return
    for block in _blocks(node):
        mine = node if isinstance(node, ast.If | ast.While | ast.ExceptHandler | ast.match_case) else guard
        for one in block:
            yield from _exits(
                one, mine, block if mine is node else arm, loop=loop or isinstance(node, ast.For | ast.While)
            )
    for inner in (*getattr(node, "handlers", ()), *getattr(node, "cases", ())):
        yield from _exits(inner, guard, arm, loop=loop)


def _targets(node: ast.AST | None) -> list[ast.Name]:
    if isinstance(node, ast.Assign):
        held = node.targets
    elif isinstance(node, ast.AnnAssign | ast.AugAssign):
        held = [node.target]
    else:
        return []
    return [
        one
        for target in held
        for one in ast.walk(target)
        if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store)
    ]


def _attributes(node: ast.Assign) -> set[str]:
    return {ast.unparse(one) for one in node.targets if isinstance(one, ast.Attribute)}


def _is_work(node: ast.AST) -> bool:
    if isinstance(node, ast.Call):
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        return name not in _HARMLESS
    if isinstance(node, ast.Subscript):
        return isinstance(node.ctx, ast.Load)
    return isinstance(node, ast.BinOp) and not isinstance(node.left, ast.Constant)


def _is_name(node: ast.AST | None) -> bool:
    return isinstance(node, ast.Name | ast.Attribute)


def _text(guard: ast.AST) -> str:
    if isinstance(guard, ast.ExceptHandler):
        return f"except {ast.unparse(guard.type)}" if guard.type is not None else "except"
    if isinstance(guard, ast.match_case):
        return f"case {ast.unparse(guard.pattern)}"
    if isinstance(guard, ast.For):
        return f"for {ast.unparse(guard.target)} in {ast.unparse(guard.iter)}"
    if isinstance(guard, ast.While):
        return f"while {ast.unparse(guard.test)}"
    return ast.unparse(guard)


__all__: list[Any] = ["Bypass", "Executions", "bypasses", "path_to"]
