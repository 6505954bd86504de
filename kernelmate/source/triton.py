"""Triton functions in Python files: kernels by `@triton.jit`, read by `ast` without running the file.

A Triton kernel's unit is its whole file, so that positions are equal. `kernelmate.source.triton_modules` takes out of it what
its compilation needs.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice, product

from kernelmate.caching import text_cache
from kernelmate.errors import SourceError
from kernelmate.records import Kernel, Parameter, Signature, Unit
from kernelmate.source.line_ends import normal_text
from kernelmate.source.python import parse_python
from kernelmate.source.tokens import line_starts

DEFAULTS = {"num_warps": "4", "num_stages": "3"}
SETTINGS = (*DEFAULTS, "maxnreg")
"""Options of a launch that are not parameters, and Triton's defaults (triton/backends/nvidia/compiler.py, CUDAOptions)."""

_ADDRESSES = {
    "load": ("read",),
    "store": ("written",),
    "make_block_ptr": ("read", "written"),
    "make_tensor_descriptor": ("read", "written"),
}
"""How functions of triton.language use the address that is their first argument; those of atomics do both."""


@dataclass(frozen=True, slots=True)
class TritonParameter:
    """A parameter: its name, whether it is a `tl.constexpr`, and its default as Python text, or None."""

    name: str
    constexpr: bool
    default: str | None


@dataclass(frozen=True, slots=True)
class TritonFunction:
    """A jitted function of a file.

    Attributes:
        name: its name.
        parameters: in order.
        start: offset of its first decorator.
        end: offset past its last character.
        line: line of its `def`, from 1.
        column: column of its name, from 1.
        configurations: the constants of each `triton.Config` of its `autotune` decorator, settings included.
        accesses: parameters whose values are addresses, by the function's text, each with `read` or `written`.
        derived: constants that a `heuristics` decorator sets by a lambda, each with its expression: `k % BLOCK == 0`.
        flags: parameters that are tested as truth values.
    """

    name: str
    parameters: tuple[TritonParameter, ...]
    start: int
    end: int
    line: int
    column: int
    configurations: tuple[tuple[tuple[str, str], ...], ...]
    accesses: frozenset[tuple[str, str]]
    derived: tuple[tuple[str, str], ...]
    flags: frozenset[str]

    @property
    def pointers(self) -> frozenset[str]:
        """Returns the parameters whose values are addresses."""
        return frozenset(name for name, _ in self.accesses)

    def defaults(self) -> dict[str, str]:
        """Returns the values of constexpr parameters and settings that hold without a contract's options."""
        found = {one.name: one.default for one in self.parameters if one.constexpr and one.default is not None}
        return found | dict(self.configurations[0] if self.configurations else ())


def triton_unit(path: str, file_text: str) -> Unit | None:
    """Returns a Python file as a unit of Triton kernels; None if it has none, or is not Python."""
    text = normal_text(file_text)
    if "triton" not in text or not _kernels(text):  # the word first: numba's functions are jitted too
        return None
    return Unit(path=path, text=text, language="triton", file_text=file_text)


def triton_kernels(unit: Unit) -> tuple[Kernel, ...]:
    """Returns the jitted functions of a file that no other one calls and that return no value, in order."""
    return tuple(
        Kernel(
            unit,
            one.name,
            Signature(tuple(_parameter(one, parameter) for parameter in one.parameters if not parameter.constexpr)),
            one.start,
            one.end,
            one.line,
            one.column,
        )
        for one in _kernels(unit.text)
    )


def _parameter(function: TritonFunction, parameter: TritonParameter) -> Parameter:
    pointer = parameter.name in function.pointers
    kind = "pointer" if pointer else "scalar"
    return Parameter(parameter.name, kind, "", None, 1, pointer, False, False, function.line, function.column)


def function_of(kernel: Kernel) -> TritonFunction:
    """Returns the function of a Triton kernel.

    Raises:
        SourceError: its file no longer has it.
    """
    for one in _functions(kernel.unit.text):
        if one.start == kernel.start:
            return one
    raise SourceError(f"{kernel.name} is no longer a Triton function of its file.", file=kernel.unit.path)


@text_cache(16)
def _functions(text: str) -> tuple[TritonFunction, ...]:
    """Returns the jitted functions of a file in order; none if it is not Python."""
    tree = parsed(text)
    if tree is None:
        return ()
    jitted = jitted_functions(tree, text)
    names = [node.name for node in jitted]
    # Which of several definitions in branches a program takes is not known.
    jitted = [node for node in jitted if node in tree.body or names.count(node.name) == 1]
    starts = line_starts(text)
    accesses = _accesses({node.name: node for node in jitted})
    lists = {
        node.targets[0].id: node.value.elts
        for node in tree.body
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and isinstance(node.value, ast.List | ast.Tuple)
    }  # fmt: skip
    return tuple(_function(text, starts, node, accesses[node.name], lists) for node in jitted)


def _kernels(text: str) -> tuple[TritonFunction, ...]:
    functions = _functions(text)
    tree = parsed(text)
    if tree is None or not functions:
        return ()
    nodes = jitted_functions(tree, text)
    giving = {node.name for node in nodes if any(isinstance(one, ast.Return) and one.value for one in ast.walk(node))}
    used = {
        name.id
        for node in nodes
        for statement in node.body
        for name in ast.walk(statement)
        if isinstance(name, ast.Name) and name.id != node.name
    }
    return tuple(one for one in functions if one.name not in used and one.name not in giving)


def parsed(text: str) -> ast.Module | None:
    """Returns the tree of a Python text; None if it is not Python."""
    try:
        return parse_python("", text)
    except SourceError:
        return None


def _function(
    text: str,
    starts: Sequence[int],
    node: ast.FunctionDef,
    accesses: frozenset[tuple[str, str]],
    lists: Mapping[str, Sequence[ast.expr]],
) -> TritonFunction:
    first = min((decorator.lineno for decorator in node.decorator_list), default=node.lineno)
    end = _offset(text, starts, node.end_lineno or node.lineno, node.end_col_offset or 0)
    arguments = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
    defaults: list[ast.expr | None] = [None] * (
        len(node.args.posonlyargs) + len(node.args.args) - len(node.args.defaults)
    )
    defaults += [*node.args.defaults, *node.args.kw_defaults]
    parameters = tuple(
        TritonParameter(argument.arg, is_constexpr(argument.annotation), literal(default))
        for argument, default in zip(arguments, defaults, strict=True)
    )
    column = node.col_offset + len("def ") + 1
    return TritonFunction(
        node.name, parameters, starts[first - 1], end, node.lineno, column, _configurations(node, lists), accesses,
        _derived(node), _flags(node) & {one.name for one in parameters if one.constexpr},
    )  # fmt: skip


def dotted_name(node: ast.expr | None) -> str:
    """Returns the dotted name that an expression is; empty for other expressions."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        before = dotted_name(node.value)
        return f"{before}.{node.attr}" if before else ""
    return ""


def jitted_functions(tree: ast.Module, text: str) -> list[ast.FunctionDef]:
    """Returns the jitted functions of a file, those of its branches included: by a decorator, or by `f = triton.jit(f)`."""
    names = {"triton.jit"}
    if re.search(r"^from triton import [^\n]*\bjit\b", text, re.MULTILINE):  # else numba's
        names.add("jit")
    called = {
        dotted_name(call.args[0])
        for node in tree.body
        if isinstance(node, ast.Assign)
        for call in ast.walk(node.value)
        if isinstance(call, ast.Call) and dotted_name(call.func) in names and call.args
    }
    return [node for node in function_definitions(tree) if node.name in called or _decorators(node) & names]


def function_definitions(tree: ast.Module) -> list[ast.FunctionDef]:
    """Returns a file's functions in order, those in branches included, and nested functions whose name is unique."""
    every = [one for one in ast.walk(tree) if isinstance(one, ast.FunctionDef)]
    outside = {id(one) for one in outside_functions(tree)}
    names = Counter(one.name for one in every)
    return sorted((one for one in every if id(one) in outside or names[one.name] == 1), key=lambda one: one.lineno)


def _decorators(node: ast.FunctionDef) -> set[str]:
    return {dotted_name(one.func if isinstance(one, ast.Call) else one) for one in node.decorator_list}


def outside_functions(node: ast.AST) -> Iterator[ast.stmt]:
    """Yields the statements of a module, those of its conditions and `try` blocks included."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.stmt):
            yield child
        if isinstance(child, ast.stmt | ast.excepthandler) and not isinstance(child, ast.FunctionDef | ast.ClassDef):
            yield from outside_functions(child)


def is_constexpr(annotation: ast.expr | None) -> bool:
    """Returns True for the name `constexpr` of triton.language, also as a string."""
    if isinstance(annotation, ast.Constant) and isinstance(annotation.value, str):
        return annotation.value.endswith("constexpr")
    return dotted_name(annotation).rpartition(".")[2] == "constexpr"


def literal(node: ast.expr | None) -> str | None:
    """Returns the text of a number, a string or a truth value; None for any other expression."""
    if node is None:
        return None
    try:
        value = ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return None
    return repr(value) if isinstance(value, bool | int | float | str) or value is None else None


MOST_CONFIGURATIONS = 64
"""Maximum number of configurations of one kernel that are read; comprehensions over several lists may have more."""


def _configurations(
    node: ast.FunctionDef, lists: Mapping[str, Sequence[ast.expr]]
) -> tuple[tuple[tuple[str, str], ...], ...]:
    """Returns the constants of each `triton.Config` of an `autotune` decorator whose values are literals.

    Comprehensions are followed over lists of literals, also those that `lists` has by name; of a list that only running the
    file gives, the values stay unknown.
    """
    calls = (one for decorator in node.decorator_list for one in _config_calls(decorator, {}, lists))
    found = dict.fromkeys(_configuration(call, values) for call, values in islice(calls, MOST_CONFIGURATIONS))
    return tuple(found)


def _config_calls(
    node: ast.AST, values: Mapping[str, ast.expr], lists: Mapping[str, Sequence[ast.expr]]
) -> Iterator[tuple[ast.Call, Mapping[str, ast.expr]]]:
    """Yields calls of `triton.Config`, each with the values of the variables of the comprehensions around it."""
    if isinstance(node, ast.Call) and dotted_name(node.func).rpartition(".")[2] == "Config" and node.args:
        yield node, values
    elif isinstance(node, ast.ListComp | ast.GeneratorExp):
        if any(one.ifs for one in node.generators):
            return  # which configurations are left is not known
        names = [dotted_name(one.target) for one in node.generators]
        choices = [_elements(one.iter, lists) or [ast.Name("")] for one in node.generators]
        for chosen in islice(product(*choices), MOST_CONFIGURATIONS):
            yield from _config_calls(node.elt, {**values, **dict(zip(names, chosen, strict=True))}, lists)
    else:
        for child in ast.iter_child_nodes(node):
            yield from _config_calls(child, values, lists)


def _elements(node: ast.expr, lists: Mapping[str, Sequence[ast.expr]]) -> Sequence[ast.expr]:
    if isinstance(node, ast.List | ast.Tuple):
        return node.elts
    return lists.get(dotted_name(node), ())


def _configuration(call: ast.Call, values: Mapping[str, ast.expr]) -> tuple[tuple[str, str], ...]:
    def text_of(value: ast.expr) -> str | None:
        return literal(values.get(value.id, value) if isinstance(value, ast.Name) else value)

    found: dict[str, str] = {}
    if isinstance(call.args[0], ast.Dict):
        for key, value in zip(call.args[0].keys, call.args[0].values, strict=True):
            text = text_of(value)
            if isinstance(key, ast.Constant) and isinstance(key.value, str) and text is not None:
                found[key.value] = text
    for keyword in call.keywords:
        text = text_of(keyword.value)
        if keyword.arg in SETTINGS and text is not None:
            found[keyword.arg or ""] = text
    return tuple(found.items())


def _derived(node: ast.FunctionDef) -> tuple[tuple[str, str], ...]:
    """Returns the constants that `heuristics` set by `lambda args: args["k"] % args["BLOCK"] == 0`, each with `k % BLOCK == 0`."""
    found = []
    for key, value in (
        pair
        for decorator in node.decorator_list
        for table in ast.walk(decorator)
        if isinstance(table, ast.Dict)
        for pair in zip(table.keys, table.values, strict=True)
    ):
        if isinstance(key, ast.Constant) and isinstance(value, ast.Lambda):
            argument = next((one.arg for one in value.args.args), "")
            text = re.sub(rf"\b{argument}\[(['\"])([^\W\d]\w*)\1\]", r"\2", ast.unparse(value.body))
            found.append((str(key.value), text))
    return tuple(found)


def _flags(node: ast.FunctionDef) -> frozenset[str]:
    """Returns the names that the function tests as truth values."""
    tests = [one.test for one in ast.walk(node) if isinstance(one, ast.If | ast.IfExp)]
    found: set[str] = set()
    while tests:
        test = tests.pop()
        if isinstance(test, ast.Name):
            found.add(test.id)
        elif isinstance(test, ast.BoolOp):
            tests += test.values
        elif isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
            tests.append(test.operand)
    return frozenset(found)


# ------------------------------------------------------------------------------------------------------ addresses


def _accesses(functions: Mapping[str, ast.FunctionDef]) -> dict[str, frozenset[tuple[str, str]]]:
    """Returns, for each function, the parameters that are addresses, each with `read` or `written`.

    These are first terms of a sum at which the function loads or stores, and arguments for a parameter of another
    function that is an address.
    """
    found: dict[str, frozenset[tuple[str, str]]] = dict.fromkeys(functions, frozenset())
    for _ in range(len(functions) + 1):
        after = {name: _accesses_of(node, functions, found) for name, node in functions.items()}
        if after == found:
            break
        found = after
    return found


def _accesses_of(
    node: ast.FunctionDef, functions: Mapping[str, ast.FunctionDef], known: Mapping[str, frozenset[tuple[str, str]]]
) -> frozenset[tuple[str, str]]:
    parameters = [one.arg for one in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)]
    values: dict[str, list[ast.expr]] = {}
    for one in ast.walk(node):
        if isinstance(one, ast.Assign) and len(one.targets) == 1 and isinstance(one.targets[0], ast.Name):
            values.setdefault(one.targets[0].id, []).append(one.value)
    addresses: list[tuple[ast.expr, str]] = []
    for call in (one for one in ast.walk(node) if isinstance(one, ast.Call)):
        last = dotted_name(call.func).rpartition(".")[2]
        if last in _ADDRESSES or last.startswith("atomic_"):
            ways = _ADDRESSES.get(last, ("read", "written"))
            given = call.args[:1] or [one.value for one in call.keywords if one.arg in ("pointer", "base")]
            addresses += [(address, way) for address in given for way in ways]
        elif last in functions and isinstance(call.func, ast.Name):
            takes = [one.arg for one in functions[last].args.args]
            passed = [*zip(takes, call.args, strict=False), *((one.arg or "", one.value) for one in call.keywords)]
            addresses += [(value, way) for name, value in passed for other, way in known[last] if other == name]
    return frozenset((base, way) for address, way in addresses for base in _bases(address, parameters, values, set()))


def _bases(
    node: ast.expr, parameters: Sequence[str], values: Mapping[str, Sequence[ast.expr]], seen: set[str]
) -> Iterator[str]:
    """Yields the parameters that an address starts from: the first term of its sum, through local variables."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Sub):
        left = list(_bases(node.left, parameters, values, seen))
        yield from left or _bases(node.right, parameters, values, seen)
    elif isinstance(node, ast.Name) and node.id in values and node.id not in seen:
        seen.add(node.id)
        for value in values[node.id]:
            yield from _bases(value, parameters, values, seen)
        if node.id in parameters:
            yield node.id
    elif isinstance(node, ast.Name) and node.id in parameters:
        yield node.id
    elif isinstance(node, ast.Subscript):
        yield from _bases(node.value, parameters, values, seen)
    elif isinstance(node, ast.Call):
        inner = (
            node.args[:1] if not isinstance(node.func, ast.Attribute) or dotted_name(node.func) else [node.func.value]
        )
        for value in inner:
            yield from _bases(value, parameters, values, seen)
    elif isinstance(node, ast.IfExp):
        yield from _bases(node.body, parameters, values, seen)
        yield from _bases(node.orelse, parameters, values, seen)


# ------------------------------------------------------------------------------------------------------- launches


def with_launch_values(text: str, name: str, values: Mapping[str, str]) -> str:
    """Returns a file's text with other literals for keyword arguments of its launches `name[grid](..., BLOCK=128)`."""
    tree = parsed(text)
    if tree is None:
        return text
    starts, edits = line_starts(text), []
    for call in ast.walk(tree):
        if not (
            isinstance(call, ast.Call) and isinstance(call.func, ast.Subscript) and dotted_name(call.func.value) == name
        ):
            continue
        for keyword in call.keywords:
            new = values.get(keyword.arg or "")
            if new is not None and literal(keyword.value) not in (None, new):
                node = keyword.value
                edits.append((_offset(text, starts, node.lineno, node.col_offset),
                              _offset(text, starts, node.end_lineno or 0, node.end_col_offset or 0), new))  # fmt: skip
    for start, end, new in sorted(edits, reverse=True):
        text = text[:start] + new + text[end:]
    return text


def same_elsewhere(before: Kernel, after: Kernel) -> bool:
    """Returns True if two versions of a file differ in one kernel, its contract, and literals and limits of its launches alone."""
    first, second = (_without(kernel) for kernel in (before, after))
    return first is not None and first == second


def _without(kernel: Kernel) -> str | None:
    """Returns a file's tree as text, without a kernel's definition, literals of its launches and limits of their grids."""
    tree = parsed(kernel.unit.text)
    if tree is None:
        return None
    for node in (tree, *outside_functions(tree)):
        for name in ("body", "orelse"):
            block = getattr(node, name, [])
            kept = [one for one in block if not (isinstance(one, ast.FunctionDef) and one.lineno == kernel.line)]
            if len(kept) < len(block):
                setattr(node, name, kept)
    for call in ast.walk(tree):
        if (
            isinstance(call, ast.Call)
            and isinstance(call.func, ast.Subscript)
            and dotted_name(call.func.value) == kernel.name
        ):
            for keyword in call.keywords:
                if literal(keyword.value) is not None:
                    keyword.value = ast.Constant(None)
            if isinstance(call.func.slice, ast.Tuple):
                call.func.slice.elts = [_unlimited(one) for one in call.func.slice.elts]
    return ast.dump(tree)


def _unlimited(side: ast.expr) -> ast.expr:
    """Returns a grid side without an enclosing `cdiv` or `min` with a number, which candidates with fewer programs add."""
    name = dotted_name(side.func) if isinstance(side, ast.Call) else ""
    if isinstance(side, ast.Call) and name in ("triton.cdiv", "min") and len(side.args) == 2 and literal(side.args[1]):
        return _unlimited(side.args[0])
    return side


def _offset(text: str, starts: Sequence[int], line: int, column: int) -> int:
    """Returns the offset in characters of a position of `ast`, whose columns count bytes of UTF-8."""
    whole = text[starts[line - 1] :].partition("\n")[0]
    return starts[line - 1] + len(whole.encode()[:column].decode(errors="replace"))
