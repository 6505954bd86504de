"""Triton functions in Python files: kernels by `@triton.jit`, read by `ast` without running the file.

A Triton kernel's unit is its whole file, so that positions are equal. What its compilation needs of the file is taken out by
`module_text`: the kernel, the jitted functions that it calls, and constants.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

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
    """

    name: str
    parameters: tuple[TritonParameter, ...]
    start: int
    end: int
    line: int
    column: int
    configurations: tuple[tuple[tuple[str, str], ...], ...]
    accesses: frozenset[tuple[str, str]]

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
    """Returns the jitted functions of a file that no other one calls, in order."""
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
    tree = _parsed(text)
    if tree is None:
        return ()
    bare = re.search(r"^from triton import [^\n]*\bjit\b", text, re.MULTILINE) is not None
    found = [node for node in tree.body if isinstance(node, ast.FunctionDef)]
    jitted = [node for node in found if _is_jitted(node) and (bare or not _is_jitted(node, ("jit",)))]
    starts = line_starts(text)
    accesses = _accesses({node.name: node for node in jitted})
    return tuple(_function(text, starts, node, accesses[node.name]) for node in jitted)


def _kernels(text: str) -> tuple[TritonFunction, ...]:
    functions = _functions(text)
    tree = _parsed(text)
    if tree is None or not functions:
        return ()
    names = {one.name for one in functions}
    used = {
        name.id
        for node in tree.body
        if isinstance(node, ast.FunctionDef) and node.name in names
        for statement in node.body
        for name in ast.walk(statement)
        if isinstance(name, ast.Name) and name.id != node.name
    }
    return tuple(one for one in functions if one.name not in used)


def _parsed(text: str) -> ast.Module | None:
    try:
        return parse_python("", text)
    except SourceError:
        return None


def _function(
    text: str, starts: Sequence[int], node: ast.FunctionDef, accesses: frozenset[tuple[str, str]]
) -> TritonFunction:
    first = min((decorator.lineno for decorator in node.decorator_list), default=node.lineno)
    end = _offset(text, starts, node.end_lineno or node.lineno, node.end_col_offset or 0)
    arguments = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
    defaults: list[ast.expr | None] = [None] * (
        len(node.args.posonlyargs) + len(node.args.args) - len(node.args.defaults)
    )
    defaults += [*node.args.defaults, *node.args.kw_defaults]
    parameters = tuple(
        TritonParameter(argument.arg, _is_constexpr(argument.annotation), _literal(default))
        for argument, default in zip(arguments, defaults, strict=True)
    )
    column = node.col_offset + len("def ") + 1
    return TritonFunction(
        node.name, parameters, starts[first - 1], end, node.lineno, column, _configurations(node), accesses
    )


def _name(node: ast.expr | None) -> str:
    """Returns the dotted name that an expression is; empty for other expressions."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        before = _name(node.value)
        return f"{before}.{node.attr}" if before else ""
    return ""


def _is_jitted(node: ast.FunctionDef, decorators: Sequence[str] = ("triton.jit", "jit")) -> bool:
    names = [_name(one.func if isinstance(one, ast.Call) else one) for one in node.decorator_list]
    return any(name in decorators for name in names)


def _is_constexpr(annotation: ast.expr | None) -> bool:
    if isinstance(annotation, ast.Constant) and isinstance(annotation.value, str):
        return annotation.value.endswith("constexpr")
    return _name(annotation).rpartition(".")[2] == "constexpr"


def _literal(node: ast.expr | None) -> str | None:
    """Returns the text of a number, a string or a truth value; None for any other expression."""
    if node is None:
        return None
    try:
        value = ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return None
    return repr(value) if isinstance(value, bool | int | float | str) or value is None else None


def _configurations(node: ast.FunctionDef) -> tuple[tuple[tuple[str, str], ...], ...]:
    """Returns the constants of each `triton.Config` of an `autotune` decorator whose values are literals."""
    found = []
    for call in (one for decorator in node.decorator_list for one in ast.walk(decorator)):
        if not (isinstance(call, ast.Call) and _name(call.func).rpartition(".")[2] == "Config" and call.args):
            continue
        values: dict[str, str] = {}
        if isinstance(call.args[0], ast.Dict):
            for key, value in zip(call.args[0].keys, call.args[0].values, strict=True):
                text = _literal(value)
                if isinstance(key, ast.Constant) and isinstance(key.value, str) and text is not None:
                    values[key.value] = text
        for keyword in call.keywords:
            text = _literal(keyword.value)
            if keyword.arg in SETTINGS and text is not None:
                values[keyword.arg or ""] = text
        found.append(tuple(values.items()))
    return tuple(found)


# ------------------------------------------------------------------------------------------------------ addresses


def _accesses(functions: Mapping[str, ast.FunctionDef]) -> dict[str, frozenset[tuple[str, str]]]:
    """Returns, for each function, the parameters that are addresses, each with `read` or `written`.

    Those are the first term of a sum that is loaded from or stored to, and what is passed to another function's address.
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
        last = _name(call.func).rpartition(".")[2]
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
        inner = node.args[:1] if not isinstance(node.func, ast.Attribute) or _name(node.func) else [node.func.value]
        for value in inner:
            yield from _bases(value, parameters, values, seen)
    elif isinstance(node, ast.IfExp):
        yield from _bases(node.body, parameters, values, seen)
        yield from _bases(node.orelse, parameters, values, seen)


# --------------------------------------------------------------------------------------------- what is compiled


def module_text(kernel: Kernel) -> str:
    """Returns Python text that defines a kernel and what it uses, with each line where it stands in the file.

    Jitted functions and constants stay, as far as the kernel uses them; imports (see `library_names`), decorators other than
    `triton.jit` and defaults that are not literals do not. All else of the file is left out, so that defining the kernel runs
    none of the user's code.

    Raises:
        SourceError: the kernel uses a name of triton that compilations may not, or its file is not Python.
    """
    text = kernel.unit.text
    tree = _parsed(text)
    if tree is None:
        raise SourceError("This is not Python.", file=kernel.unit.path)
    defined: dict[str, ast.stmt] = {}
    for node in tree.body:
        for name in _defines(node):
            defined[name] = node
    wanted: set[int] = set()
    waiting = [kernel.name]
    while waiting:
        found = defined.get(waiting.pop())
        if found is None or id(found) in wanted:
            continue
        wanted.add(id(found))
        waiting += [one.id for one in ast.walk(found) if isinstance(one, ast.Name)]
    lines: dict[int, str] = {}
    source = text.split("\n")
    for node in tree.body:
        kept = _kept(node, source) if id(node) in wanted else {}
        for number, line in kept.items():
            lines[number] = f"{lines[number]}; {line}" if number in lines else line
    _check_names([node for node in tree.body if id(node) in wanted], kernel)
    return "\n".join(lines.get(number, "") for number in range(1, len(source) + 1)) + "\n"


def _defines(node: ast.stmt) -> Sequence[str]:
    if isinstance(node, ast.FunctionDef):
        return [node.name]
    if isinstance(node, ast.Assign):
        return [target.id for target in node.targets if isinstance(target, ast.Name)]
    if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
        return [node.target.id]
    return []


def _kept(node: ast.stmt, source: Sequence[str]) -> dict[int, str]:
    """Returns the lines of a statement that the compilation needs; none for a statement that it must not run."""
    if isinstance(node, ast.FunctionDef):
        return _kept_function(node, source) if _is_jitted(node) else {}
    value = node.value if isinstance(node, ast.Assign | ast.AnnAssign) else None
    inner = value.args[0] if isinstance(value, ast.Call) and _is_constexpr(value.func) and value.args else value
    if _literal(inner) is None or not isinstance(node, ast.Assign | ast.AnnAssign):
        return {}
    targets = ", ".join(_defines(node))
    wrapped = f"{_name(value.func)}({_literal(inner)})" if isinstance(value, ast.Call) else _literal(inner)
    return {node.lineno: f"{targets} = {wrapped}"} if targets else {}


def _kept_function(node: ast.FunctionDef, source: Sequence[str]) -> dict[int, str]:
    """Returns a jitted function's lines, with one decorator and without defaults and annotations that would be run."""
    arguments = [*node.args.posonlyargs, *node.args.args]
    parameters = [one.arg + (": _kernelmate_constexpr" if _is_constexpr(one.annotation) else "") for one in arguments]
    offset = len(arguments) - len(node.args.defaults)
    for number, default in enumerate(node.args.defaults):
        text = _literal(default)
        parameters[offset + number] += f" = {text if text is not None else 'None'}"
    if node.args.kwonlyargs:
        parameters.append("*")
        for one, value in zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True):
            text = _literal(value)
            kind = ": _kernelmate_constexpr" if _is_constexpr(one.annotation) else ""
            parameters.append(f"{one.arg}{kind}" + ("" if value is None else f" = {text}"))
    head = f"def {node.name}({', '.join(parameters)}):"
    decorator = {min(one.lineno for one in node.decorator_list): "@_kernelmate_jit"}
    first = node.body[0]
    if source[first.lineno - 1].encode()[: first.col_offset].strip():
        # The body begins on the last line of the head, so that all of it is on that line.
        return decorator | {node.lineno: f"{head} " + "; ".join(ast.unparse(one) for one in node.body)}
    body = {number: source[number - 1] for number in range(first.lineno, (node.end_lineno or first.lineno) + 1)}
    return decorator | body | {node.lineno: head}


_REFUSED_NAMES = frozenset(
    {
        "open", "eval", "exec", "compile", "getattr", "setattr", "delattr", "globals", "locals", "vars", "input", "breakpoint",
        "help", "memoryview", "object", "type", "super", "dir",
    }
)  # fmt: skip


def _check_names(nodes: Sequence[ast.stmt], kernel: Kernel) -> None:
    """Refuses names that lead from values to Python's own objects: the compiler evaluates attributes and calls.

    Raises:
        SourceError: at the name.
    """
    for node in (one for statement in nodes for one in ast.walk(statement)):
        name = node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
        private = name.startswith("_") and (isinstance(node, ast.Attribute) or name.startswith("__"))
        if private or (isinstance(node, ast.Name) and name in _REFUSED_NAMES):
            assert isinstance(node, ast.Attribute | ast.Name)
            raise SourceError(
                f"{name} may not be used by a kernel that is compiled here.",
                file=kernel.unit.path,
                line=node.lineno,
                column=node.col_offset + 1,
                hint="Use functions of triton.language and jitted functions of this file.",
            )


def library_names(kernel: Kernel) -> dict[str, tuple[str, ...]]:
    """Returns what names of the file mean by its imports of triton: `tl` is `triton.language`.

    A name that is imported in several branches, as for different versions of triton, has several meanings.
    """
    tree = _parsed(kernel.unit.text)
    found: dict[str, dict[str, None]] = {}
    for node in [] if tree is None else _outside_functions(tree):
        if isinstance(node, ast.Import):
            for one in node.names:
                if one.name.partition(".")[0] == "triton":
                    found.setdefault(one.asname or "triton", {})[one.name if one.asname else "triton"] = None
        elif isinstance(node, ast.ImportFrom) and not node.level and (node.module or "").partition(".")[0] == "triton":
            for one in node.names:
                found.setdefault(one.asname or one.name, {})[f"{node.module}.{one.name}"] = None
    return {name: tuple(meanings) for name, meanings in found.items()}


def _outside_functions(node: ast.AST) -> Iterator[ast.AST]:
    """Yields the statements of a module, those of its conditions and `try` blocks included."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.stmt | ast.excepthandler) and not isinstance(child, ast.FunctionDef | ast.ClassDef):
            yield child
            yield from _outside_functions(child)


# ------------------------------------------------------------------------------------------------------- launches


def with_launch_values(text: str, name: str, values: Mapping[str, str]) -> str:
    """Returns a file's text with other literals for keyword arguments of its launches `name[grid](..., BLOCK=128)`."""
    tree = _parsed(text)
    if tree is None:
        return text
    starts, edits = line_starts(text), []
    for call in ast.walk(tree):
        if not (isinstance(call, ast.Call) and isinstance(call.func, ast.Subscript) and _name(call.func.value) == name):
            continue
        for keyword in call.keywords:
            new = values.get(keyword.arg or "")
            if new is not None and _literal(keyword.value) not in (None, new):
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
    tree = _parsed(kernel.unit.text)
    if tree is None:
        return None
    tree.body = [node for node in tree.body if not (isinstance(node, ast.FunctionDef) and node.lineno == kernel.line)]
    for call in ast.walk(tree):
        if (
            isinstance(call, ast.Call)
            and isinstance(call.func, ast.Subscript)
            and _name(call.func.value) == kernel.name
        ):
            for keyword in call.keywords:
                if _literal(keyword.value) is not None:
                    keyword.value = ast.Constant(None)
            if isinstance(call.func.slice, ast.Tuple):
                call.func.slice.elts = [_unlimited(one) for one in call.func.slice.elts]
    return ast.dump(tree)


def _unlimited(side: ast.expr) -> ast.expr:
    """Returns a side of a grid without a `cdiv` or `min` with a number around it, as candidates with fewer programs have it."""
    name = _name(side.func) if isinstance(side, ast.Call) else ""
    if isinstance(side, ast.Call) and name in ("triton.cdiv", "min") and len(side.args) == 2 and _literal(side.args[1]):
        return _unlimited(side.args[0])
    return side


def _offset(text: str, starts: Sequence[int], line: int, column: int) -> int:
    """Returns the offset of a place of `ast`, whose columns count bytes of UTF-8."""
    whole = text[starts[line - 1] :].partition("\n")[0]
    return starts[line - 1] + len(whole.encode()[:column].decode(errors="replace"))
