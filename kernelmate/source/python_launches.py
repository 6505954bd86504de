"""Launches of a kernel from Python: `kernel((grid,), (block,), args)` of CuPy, `kernel(*args, block=..., grid=...)` of PyCUDA."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from kernelmate.records import Unit
from kernelmate.source.expressions import ExpressionError, parse_expression
from kernelmate.source.host_code import Untranslatable
from kernelmate.source.line_ends import normal_text
from kernelmate.source.python import PythonFile, argument, literal_at, literal_text, unit_literal

_CONVERSIONS = frozenset(f"{sign}int{bits}" for sign in ("", "u") for bits in ("", 8, 16, 32, 64)) | {"intc", "uintc"}
_CONVERSIONS |= {"float16", "float32", "float64", "single", "double"}
_HANDLERS = frozenset({"In", "Out", "InOut"})
"""PyCUDA's wrappers of an argument whose copies the launch makes."""

_DEEPEST = 6


@dataclass(frozen=True, slots=True)
class PythonLaunch:
    r"""One call of a kernel; offsets are into the file's text with `\n` line ends.

    Attributes:
        arguments: source text of each argument, without conversions such as `np.int32(n)`; None if the call does not
            pass a tuple.
        nodes: the same as expressions.
        pycuda: True for a call of PyCUDA, whose block has three sides, and whose grid is one block unless it is given.
        end: offset of the call's closing parenthesis.
    """

    grid: ast.expr | None
    block: ast.expr | None
    shared: ast.expr | None
    arguments: tuple[str, ...] | None
    line: int
    column: int
    end: int
    nodes: tuple[ast.expr, ...] = ()
    pycuda: bool = False


def find_python_launches(unit: Unit, name: str) -> tuple[PythonFile, tuple[PythonLaunch, ...]]:
    """Returns the calls in a unit's file that launch the kernel `name` of its string, and the file.

    A kernel that is passed on, stored in a container or called in another file is not followed.

    Raises:
        SourceError: the file is not Python, or has lost the string.
    """
    file = PythonFile(unit.path, normal_text(unit.file_text or ""))
    bindings = _Bindings(file, unit_literal(unit).start, name)
    found = []
    for node in file.nodes:
        if isinstance(node, ast.Call) and bindings.is_kernel(node.func):
            found.append(_launch(file, node))
    return file, tuple(sorted(found, key=lambda launch: launch.end))


def calls_of(file: PythonFile, name: str) -> tuple[PythonLaunch, ...]:
    """Returns the calls of an expression, written as `name`, that lie outside of functions.

    These are calls of CuPy that pass a tuple of arguments, and `name[grid, block](...)` of Numba.

    Args:
        file: a Python file, or the cells of a notebook one below the other.
        name: the kernel as the calls write it: `scale`, `kernels.scale`.
    """
    found = []
    for node in file.nodes:
        if not isinstance(node, ast.Call) or file.in_function(node):
            continue
        if ast.unparse(node.func) == name:
            found.append(_launch(file, node))
        elif isinstance(node.func, ast.Subscript) and ast.unparse(node.func.value) == name:
            found.append(_configured(file, node, node.func.slice))
    return tuple(sorted((one for one in found if one.arguments is not None), key=lambda launch: launch.end))


class _Bindings:
    """Expressions of a file whose value is the kernel of one string."""

    def __init__(self, file: PythonFile, start: int, name: str) -> None:
        self.file = file
        self.start = start
        self.name = name.rpartition("::")[2]
        self.attributes: dict[str, list[ast.expr]] = {}
        for node in file.nodes:
            if isinstance(node, ast.Assign):
                for target in node.targets:
                    if isinstance(target, ast.Attribute):
                        self.attributes.setdefault(ast.unparse(target), []).append(node.value)

    def is_kernel(self, node: ast.expr) -> bool:
        return any(self._makes_kernel(value) for value in self._values(node))

    def _values(self, node: ast.expr) -> Sequence[ast.expr]:
        if isinstance(node, ast.Attribute):
            return self.attributes.get(ast.unparse(node), [])
        return self.file.values(node)

    def _makes_kernel(self, node: ast.expr) -> bool:
        if not isinstance(node, ast.Call):
            return False
        if self.file.raw_class(node.func) == "RawKernel":
            return self._is_named(argument(node, 1, "name")) and self._has_code(node)
        if isinstance(node.func, ast.Attribute) and node.func.attr == "get_function":
            modules = [value for value in self._values(node.func.value) if isinstance(value, ast.Call)]
            return self._is_named(argument(node, 0, "name")) and any(self._has_code(module) for module in modules)
        return False

    def _is_named(self, node: ast.expr | None) -> bool:
        text = literal_text(node)
        return text is not None and text.partition("<")[0].rpartition("::")[2] == self.name

    def _has_code(self, call: ast.Call) -> bool:
        code = argument(call, 0, "code")
        literals = [] if code is None else [literal_at(self.file, node) for node in self.file.values(code)]
        return any(literal is not None and literal.start == self.start for literal in literals)


def _launch(file: PythonFile, call: ast.Call) -> PythonLaunch:
    named = {word.arg: word.value for word in call.keywords}
    pycuda = "block" in named and "args" not in named
    listed: ast.expr | None = ast.Tuple(call.args, ast.Load()) if pycuda else argument(call, 2, "args")
    arguments: tuple[str, ...] | None = None
    nodes: tuple[ast.expr, ...] = ()
    if isinstance(listed, ast.Tuple | ast.List) and not any(isinstance(e, ast.Starred) for e in listed.elts):
        nodes = tuple(_unconverted(element) for element in listed.elts)
        arguments = tuple(file.written(node) for node in nodes)
    line, column = file.position(call)
    return PythonLaunch(
        grid=named.get("grid") if pycuda else argument(call, 0, "grid"),
        block=named["block"] if pycuda else argument(call, 1, "block"),
        shared=named.get("shared") if pycuda else argument(call, 3, "shared_mem"),
        arguments=arguments,
        line=line,
        column=column,
        end=file.span(call)[1] - 1,
        nodes=nodes,
        pycuda=pycuda,
    )


def _configured(file: PythonFile, call: ast.Call, configuration: ast.expr) -> PythonLaunch:
    """Returns a launch of Numba, `kernel[grid, block, stream, shared](...)`, whose arguments decide the types by their conversions."""
    sides: list[ast.expr | None] = [*configuration.elts] if isinstance(configuration, ast.Tuple) else []
    grid, block, _, shared = [*sides, *[None] * 4][:4]
    plain = not call.keywords and not any(isinstance(one, ast.Starred) for one in call.args)
    line, column = file.position(call)
    return PythonLaunch(
        grid=grid,
        block=block,
        shared=shared,
        arguments=tuple(file.written(one) for one in call.args) if plain else None,
        line=line,
        column=column,
        end=file.span(call)[1] - 1,
        nodes=tuple(call.args) if plain else (),
    )


def _unconverted(node: ast.expr) -> ast.expr:
    """Returns the argument of `np.int32(...)`, `cuda.In(...)` and the like."""
    if isinstance(node, ast.Call) and len(node.args) == 1 and not node.keywords:
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        if name in _CONVERSIONS | _HANDLERS:
            return node.args[0]
    return node


# --------------------------------------------------------------------------------------------- contract to Python


def to_python(expression: str, names: Mapping[str, str]) -> str:
    """Translates a contract's expression to Python, over the file's own expressions for the names.

    Raises:
        Untranslatable: a name has no counterpart in the file.
    """
    try:
        tree = parse_expression(expression)
        return ast.unparse(_Substitution(names).visit(ast.parse(ast.unparse(tree), mode="eval").body))
    except ExpressionError as error:
        raise Untranslatable(error.message) from None


class _Substitution(ast.NodeTransformer):
    def __init__(self, names: Mapping[str, str]) -> None:
        self.names = names

    def visit_Name(self, node: ast.Name) -> ast.expr:
        if node.id not in self.names:
            raise Untranslatable(f"the call does not say what {node.id} is")
        return ast.parse(f"({self.names[node.id]})", mode="eval").body

    def visit_Call(self, node: ast.Call) -> ast.expr:
        operands = [self.visit(operand) for operand in node.args]
        if isinstance(node.func, ast.Name) and node.func.id == "cdiv":
            numerator, divisor = operands
            less = ast.BinOp(divisor, ast.Sub(), ast.Constant(1))
            if isinstance(divisor, ast.Constant) and isinstance(divisor.value, int):
                return ast.BinOp(
                    ast.BinOp(numerator, ast.Add(), ast.Constant(divisor.value - 1)), ast.FloorDiv(), divisor
                )
            return ast.BinOp(ast.BinOp(numerator, ast.Add(), less), ast.FloorDiv(), divisor)
        return ast.Call(node.func, operands, [])


# --------------------------------------------------------------------------------------------- Python to contract


SideOf = Callable[[ast.expr, Mapping[str, str]], "str | None"]


class PythonReader:
    """Translates a call's grid, block and shared bytes to contract expressions.

    Args:
        file: the call's file.
        names: the size of each Python expression.
        side: gives the value of an attribute such as `x.size` or of `x.shape[0]`, where it is known.
    """

    def __init__(self, file: PythonFile, names: Mapping[str, str], side: SideOf | None = None) -> None:
        self.file = file
        self.names = names
        self.side = side

    def sides(self, node: ast.expr | None) -> tuple[str, ...]:
        """Translates a tuple of one to three integers.

        Raises:
            Untranslatable: something in it is not arithmetic over known names.
        """
        node = None if node is None else self._followed(node, 0)
        elements = node.elts if isinstance(node, ast.Tuple | ast.List) else [node] if node is not None else []
        if not 1 <= len(elements) <= 3:
            raise Untranslatable("the launch has no plain sides")
        return tuple(self.expression(element) for element in elements)

    def expression(self, node: ast.expr) -> str:
        """Translates one integer.

        Raises:
            Untranslatable: as `sides`.
        """
        text = self._text(node, 0)
        try:
            return ast.unparse(parse_expression(text))
        except ExpressionError as error:
            raise Untranslatable(error.message) from None

    def _followed(self, node: ast.expr, depth: int) -> ast.expr:
        if not isinstance(node, ast.Name) or depth > _DEEPEST:
            return node
        values = self.file.values(node)
        if len(values) != 1:
            raise Untranslatable(f"the value of {node.id} cannot be determined")
        return self._followed(values[0], depth + 1)

    def _text(self, node: ast.expr, depth: int) -> str:
        node = _unconverted(node)
        written = self.file.written(node)
        if written in self.names:
            return self.names[written]
        match node:
            case ast.Constant(value=int()):
                return written
            case ast.BinOp(
                left=left, op=ast.Add() | ast.Sub() | ast.Mult() | ast.FloorDiv() | ast.Mod() as op, right=r
            ):
                sign = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.FloorDiv: "//", ast.Mod: "%"}[type(op)]
                return f"({self._text(left, depth)} {sign} {self._text(r, depth)})"
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                return f"(-{self._text(operand, depth)})"
            case ast.Call(func=ast.Name(id="min" | "max" | "cdiv" as name), args=operands, keywords=[]):
                return f"{name}({', '.join(self._text(operand, depth) for operand in operands)})"
            case ast.Call(func=ast.Attribute(attr="ceil"), args=[ast.BinOp(left=left, op=ast.Div(), right=r)]):
                return f"cdiv({self._text(left, depth)}, {self._text(r, depth)})"
            case ast.Name() if depth < _DEEPEST:
                return self._text(self._followed(node, 0), depth + 1)
            case ast.Attribute() | ast.Subscript() if self.side is not None and depth < _DEEPEST:
                known = self.side(node, self.names)
                if known is not None:
                    return known
        raise Untranslatable(f"{written} is not supported in a launch")
