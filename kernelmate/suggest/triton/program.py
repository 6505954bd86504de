"""The text of a Triton kernel as recipes read and edit it: definitions of names, calls of triton.language, program axes.

Edits are of single expressions and statements, by the positions of Python's syntax tree, so that comments and layout stay.
"""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from kernelmate.errors import KernelmateError, SourceError
from kernelmate.records import Argument, Contract, Kernel, Target
from kernelmate.source import Edit, apply_edits, argument_shapes, launch_shape, parse_contract
from kernelmate.source.dtypes import ITEM_BYTES
from kernelmate.source.expressions import evaluate
from kernelmate.source.python import PythonFile
from kernelmate.source.triton import function_definitions, function_of
from kernelmate.source.triton_contract import values_of
from kernelmate.source.triton_modules import library_names
from kernelmate.suggest.triton.settings import with_key, with_values

LOAD = ("pointer", "mask", "other", "boundary_check", "padding_option", "cache_modifier", "eviction_policy", "volatile")
"""Parameters of `tl.load` in order (triton/language/core.py)."""

STORE = ("pointer", "value", "mask", "boundary_check", "cache_modifier", "eviction_policy")
"""Parameters of `tl.store` in order (triton/language/core.py)."""


@dataclass(frozen=True, slots=True)
class TritonRewrite:
    """Edits of a kernel's file and its contract.

    Attributes:
        edits: replacements in the unit's text.
        why: the reason, a sentence with numbers of the headline size.
        options: other values of constants and settings.
        grid: another grid; None for the same one.
        require: conditions that the contract gets in addition.
    """

    edits: Sequence[Edit]
    why: str
    options: Mapping[str, str] = field(default_factory=dict)
    grid: tuple[str, ...] | None = None
    require: tuple[str, ...] = ()


class TritonProgram:
    """A Triton kernel's function with its contract.

    Args:
        kernel: the kernel.
        contract: its contract.
        target: the GPU.
        resident: programs that the GPU holds at once; None if unknown.

    Raises:
        SourceError: the kernel's file is not Python, or no longer has the kernel.
    """

    def __init__(self, kernel: Kernel, contract: Contract, target: Target, resident: int | None = None) -> None:
        self.kernel, self.contract, self.target, self.resident = kernel, contract, target, resident
        self.file = PythonFile(kernel.unit.path, kernel.unit.text)
        line = function_of(kernel).line
        self.function = next(one for one in function_definitions(self.file.tree) if one.lineno == line)
        self.nodes = [node for statement in self.function.body for node in ast.walk(statement)]
        self.values = values_of(contract)
        self.arguments: dict[str, Argument] = {one.name: one for one in contract.args}
        self._parameters = {one.name for one in function_of(kernel).parameters}
        self._library = library_names(kernel)
        self._bindings = self._all_bindings()

    # ------------------------------------------------------------------------------------------------ names

    def _all_bindings(self) -> dict[str, list[tuple[str, ast.expr]]]:
        """Returns, by name, the values it is bound to, each with `set`, `turn` (of a loop) or `changed`."""
        found: dict[str, list[tuple[str, ast.expr]]] = {}
        for node in self.nodes:
            if isinstance(node, ast.Assign):
                for name, value, own in (pair for target in node.targets for pair in _pairs(target, node.value)):
                    found.setdefault(name, []).append(("set" if own else "changed", value))
            elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value is not None:
                found.setdefault(node.target.id, []).append(("set", node.value))
            elif isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
                found.setdefault(node.target.id, []).append(("changed", node.value))
            elif isinstance(node, ast.For) and isinstance(node.target, ast.Name):
                found.setdefault(node.target.id, []).append(("turn", node.iter))
        return found

    def _only(self, name: str, kind: str) -> ast.expr | None:
        """Returns the value that a name is always bound to; several equal texts are one value."""
        bound = self._bindings.get(name, [])
        if not bound or name in self._parameters or any(one != kind for one, _ in bound):
            return None
        first = bound[0][1]
        if any(isinstance(node, ast.Name) and node.id == name for node in ast.walk(first)):
            return None
        return first if all(ast.dump(value) == ast.dump(first) for _, value in bound) else None

    def definition(self, name: str) -> ast.expr | None:
        """Returns the expression that a local name stands for; None if it has several, or changes."""
        return self._only(name, "set")

    def turns(self, name: str) -> ast.expr | None:
        """Returns the iterable of the loops whose variable a name is; None if they differ, or it is bound otherwise."""
        return self._only(name, "turn")

    def bound(self, name: str) -> list[ast.expr]:
        """Returns all values that a name is bound to or changed by."""
        return [value for _, value in self._bindings.get(name, ())]

    def changed_names(self) -> frozenset[str]:
        """Returns the names with more than one value, loop variables included."""
        return frozenset(name for name in self._bindings if self.definition(name) is None)

    def is_tuned(self, constant: str) -> bool:
        """Returns True if a configuration of `autotune` sets a constant."""
        return any(name == constant for one in function_of(self.kernel).configurations for name, _ in one)

    def is_changed(self, name: str) -> bool:
        """Returns True if a parameter gets another value within the function."""
        return name in self._bindings

    def resolved(self, node: ast.expr) -> ast.expr:
        """Returns the expression that a name stands for, else the expression itself."""
        for _ in range(len(self._bindings) + 1):
            value = self.definition(node.id) if isinstance(node, ast.Name) else None
            if value is None:
                break
            node = value
        return node

    def meaning(self, node: ast.AST) -> str:
        """Returns a text that is equal for expressions equal but for names of single values."""
        if isinstance(node, ast.Name):
            value = self.resolved(node)
            return node.id if value is node else self.meaning(value)
        inner = ", ".join(self.meaning(child) for child in ast.iter_child_nodes(node))
        own = [str(value) for _, value in ast.iter_fields(node) if isinstance(value, str | int | float)]
        return f"{type(node).__name__}({' '.join(own)} {inner})"

    def closure(self, node: ast.expr) -> Iterator[ast.AST]:
        """Yields the nodes of an expression and of everything that the names in it were ever bound to."""
        waiting: list[ast.expr] = [node]
        seen: set[str] = set()
        while waiting:
            for one in ast.walk(waiting.pop()):
                yield one
                if isinstance(one, ast.Name) and one.id not in seen:
                    seen.add(one.id)
                    waiting += [value for _, value in self._bindings.get(one.id, ())]

    def pairs(self, statement: ast.stmt) -> list[tuple[str, ast.expr]]:
        """Returns the names that an assignment binds to one value each, with the values."""
        targets = statement.targets if isinstance(statement, ast.Assign) else []
        return [(name, value) for one in targets for name, value, own in _pairs(one, statement.value) if own]  # type: ignore[attr-defined]

    def fresh(self, name: str) -> str:
        """Returns a name like this one that the file does not use."""
        used = set(re.findall(r"\w+", self.kernel.unit.text))
        return next(one for one in (name, *(f"{name}_{number}" for number in range(2, 99))) if one not in used)

    def number(self, node: ast.expr | None) -> int | None:
        """Returns the value of a whole number: a literal, a constant of the contract, or a product of them."""
        if isinstance(node, ast.Constant) and type(node.value) is int:
            return node.value
        if isinstance(node, ast.Name) and not self.is_changed(node.id) and self.values.get(node.id, "").isdigit():
            return int(self.values[node.id])
        if isinstance(node, ast.Name) and self.definition(node.id) is not None:
            return self.number(self.resolved(node))
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
            left, right = self.number(node.left), self.number(node.right)
            return None if left is None or right is None else left * right
        return None

    def value(self, node: ast.expr) -> int | None:
        """Returns the value at the headline size of a number, a scalar that is passed, or `tl.cdiv` of them."""
        node = self.resolved(node)
        size = self.size(node)
        if size is not None:
            return int(evaluate(size, self.contract.sizes[0]))
        if isinstance(node, ast.Call) and self.called(node) == "cdiv" and len(node.args) == 2:
            work, length = self.value(node.args[0]), self.value(node.args[1])
            return None if work is None or not length else -(-work // length)
        return self.number(node)

    def size(self, node: ast.expr) -> str | None:
        """Returns the contract's expression of a scalar that is passed; None for other expressions."""
        argument = self.arguments.get(node.id) if isinstance(node, ast.Name) and not self.is_changed(node.id) else None
        return None if argument is None or argument.shape is not None else argument.value or argument.name

    # ------------------------------------------------------------------------------------------------ calls

    def called(self, node: ast.AST) -> str:
        """Returns the name in triton.language of a called function; empty for other calls and nodes."""
        path = ast.unparse(node.func) if isinstance(node, ast.Call) else ""
        for name, meanings in self._library.items():
            if re.fullmatch(rf"{re.escape(name)}(\.\w+)*", path):
                whole = meanings[0] + path[len(name) :]
                return whole.removeprefix("triton.language.").removeprefix("triton.")
        return ""

    def calls(self, *names: str) -> list[ast.Call]:
        """Returns the calls of these functions of triton.language, in the order of the text."""
        found = [node for node in self.nodes if isinstance(node, ast.Call) and self.called(node) in names]
        return sorted(found, key=lambda node: (node.lineno, node.col_offset))

    def function_name(self, name: str) -> str | None:
        """Returns how the file writes a function of triton.language; None if it does not import the module by a name."""
        module = self.module_name("triton.language")
        return None if module is None else f"{module}.{name}"

    def module_name(self, module: str) -> str | None:
        """Returns the name by which the file imports a module of triton; None if there is none."""
        return next((own for own, meanings in self._library.items() if module in meanings), None)

    def given(self, call: ast.Call, name: str) -> ast.expr | None:
        """Returns an argument of a load, a store or another call, by keyword or by position."""
        keyword = next((one.value for one in call.keywords if one.arg == name), None)
        order = STORE if self.called(call) == "store" else LOAD
        position = order.index(name) if name in order and self.called(call) in ("load", "store") else len(call.args)
        return keyword if keyword is not None or position >= len(call.args) else call.args[position]

    # ------------------------------------------------------------------------------------------ the contract

    def axes_used(self) -> list[int]:
        """Returns the axes of the grid with more than one program."""
        return [axis for axis, side in enumerate(self.contract.grid) if side.strip() != "1"]

    def grid_side(self, axis: int) -> int:
        """Returns the number of programs along an axis at the headline size."""
        return launch_shape(self.contract, self.contract.sizes[0]).grid[axis]

    def programs(self) -> int:
        """Returns the number of programs at the headline size."""
        shape = launch_shape(self.contract, self.contract.sizes[0])
        return math.prod(shape.grid)

    def array_bytes(self, name: str) -> int:
        """Returns the bytes of an array at the headline size."""
        shape = argument_shapes(self.contract, self.contract.sizes[0])[name]
        return math.prod(shape) * ITEM_BYTES[self.arguments[name].dtype]

    def axis(self, node: ast.AST) -> int | None:
        """Returns the axis of `tl.program_id(axis)`."""
        if not isinstance(node, ast.Call) or self.called(node) != "program_id":
            return None
        axis = node.args[0] if node.args else next((one.value for one in node.keywords if one.arg == "axis"), None)
        return self.number(axis)

    def array(self, address: ast.expr) -> str | None:
        """Returns the array that an address is in; None unless it is certain, as for an address that was loaded."""
        found = {node.id for node in self.closure(address) if isinstance(node, ast.Name)}
        arrays = [name for name in found if name in self.arguments and self.arguments[name].shape is not None]
        return arrays[0] if len(arrays) == 1 else None

    # ------------------------------------------------------------------------------------------------- edits

    def written(self, node: ast.expr) -> str:
        """Returns an expression's text."""
        return self.file.written(node)

    def replaced(self, node: ast.expr, text: str) -> Edit:
        """Returns an edit that replaces an expression."""
        return (*self.file.span(node), text)

    def edited(self, edits: Sequence[Edit]) -> TritonProgram:
        """Returns the program after edits of its kernel's text.

        Raises:
            SourceError: the edits overlap, or the kernel is gone.
        """
        return TritonProgram(apply_edits(self.kernel, sorted(set(edits))), self.contract, self.target, self.resident)

    def added(self, call: ast.Call, text: str) -> Edit:
        """Returns an edit that adds an argument at the end of a call."""
        end = self.file.span(call)[1] - 1
        before = self.kernel.unit.text[:end].rstrip()
        if before.endswith(","):
            return (len(before), len(before), f" {text},")
        return (len(before), len(before), f", {text}")

    def removed(self, call: ast.Call, name: str) -> Edit | None:
        """Returns an edit that removes an argument and the comma before it; None where comments or parentheses are there."""
        value = self.given(call, name)
        keyword = next((one for one in call.keywords if one.arg == name), None)
        if value is None:
            return None
        node = value if keyword is None else keyword
        start = self.file.offset(node.lineno, node.col_offset)
        end = self.file.offset(node.end_lineno or 0, node.end_col_offset or 0)
        text = self.kernel.unit.text
        comma = len(text[:start].rstrip()) - 1
        return (comma, end, "") if text[comma] == "," and text[end:].lstrip()[:1] in (",", ")") else None

    def line_start(self, statement: ast.stmt) -> int:
        """Returns the offset of the line on which a statement begins.

        Raises:
            SourceError: another statement, or the function's head, is before it on that line.
        """
        if self.indent(statement).strip():
            path = self.kernel.unit.path
            raise SourceError(
                "A line has several statements, which no rewrite separates.", file=path, line=statement.lineno
            )
        return self.file.starts[statement.lineno - 1]

    def indent(self, statement: ast.stmt) -> str:
        """Returns the white space before a statement."""
        return self.file.lines[statement.lineno - 1][: statement.col_offset]

    def without_line(self, statement: ast.stmt, *, comments: bool = False) -> Edit | None:
        """Returns an edit that removes the lines of a statement; None if another statement shares them.

        With `comments`, the lines of comments directly above go too.
        """
        first, last = statement.lineno, statement.end_lineno or statement.lineno
        others = (one for one in self.nodes if isinstance(one, ast.stmt) and one is not statement)
        if any(one.lineno in (first, last) or one.end_lineno == first for one in others):
            return None
        while comments and self.file.lines[first - 2].lstrip().startswith("#"):
            first -= 1
        return (self.file.starts[first - 1], self.file.starts[last], "")

    def default_edits(self, parameter: str, value: str) -> list[Edit]:
        """Returns an edit of the default of a parameter; none without a default."""
        arguments = self.function.args.args
        pairs = zip(reversed(arguments), reversed(self.function.args.defaults), strict=False)
        return [self.replaced(default, value) for one, default in pairs if one.arg == parameter]

    def new_parameter(self, text: str) -> Edit:
        """Returns an edit that adds a parameter with a default after all others."""
        arguments = self.function.args
        last = arguments.defaults[-1] if arguments.defaults else arguments.args[-1]
        end = self.file.offset(last.end_lineno or 0, last.end_col_offset or 0)
        line = self.file.lines[arguments.args[-1].lineno - 1]
        indent = line[: len(line) - len(line.lstrip())]
        own_line = line.lstrip().startswith(arguments.args[-1].arg) and indent
        return (end, end, f",\n{indent}{text}" if own_line else f", {text}")

    def applied(self, rewrite: TritonRewrite) -> tuple[Kernel, Contract] | None:
        """Returns the kernel and its contract after a rewrite; None if it cannot be written.

        Assignments to names that nothing uses any more are removed.
        """
        try:
            kernel = apply_edits(self.kernel, sorted(set(rewrite.edits)))
            if rewrite.grid is not None:
                kernel = with_key(kernel, "grid", rewrite.grid)
            if rewrite.require:
                kernel = with_key(kernel, "require", (*self.contract.require, *rewrite.require))
            used = _loaded(self.function)
            while (shorter := self._without_unused(kernel, used)) is not None:
                kernel = shorter
            if rewrite.options:
                return with_values(kernel, self.values, rewrite.options)
            contract = parse_contract(kernel)
        except KernelmateError:
            return None
        return None if contract is None else (kernel, contract)

    def _without_unused(self, kernel: Kernel, used: frozenset[str]) -> Kernel | None:
        """Returns the kernel without its first assignment to a name that was used before and no longer is; None if there is none."""
        program = TritonProgram(kernel, self.contract, self.target)
        needed = _loaded(program.function)
        for node in program.nodes:
            if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
                name = node.targets[0].id
                edit = program.without_line(node) if name in used and name not in needed else None
                if edit is not None:
                    return apply_edits(kernel, [edit])
        return None


def _loaded(function: ast.FunctionDef) -> frozenset[str]:
    """Returns the names that a function reads."""
    changed = (node.target for node in ast.walk(function) if isinstance(node, ast.AugAssign))
    read = (node for node in ast.walk(function) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load))
    return frozenset(node.id for node in (*changed, *read) if isinstance(node, ast.Name))


def _pairs(target: ast.expr, value: ast.expr) -> Iterator[tuple[str, ast.expr, bool]]:
    """Yields the names of an assignment with their values, each with True if the value is that of this name alone."""
    if isinstance(target, ast.Name):
        yield target.id, value, True
    elif isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple) and len(target.elts) == len(value.elts):
        for one, other in zip(target.elts, value.elts, strict=True):
            yield from _pairs(one, other)
    else:
        for node in ast.walk(target):
            if isinstance(node, ast.Name):
                yield node.id, value, False
