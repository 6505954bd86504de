"""Counts the iterations of a kernel's loops at a size, by which inferred sizes are bounded: a loop of unknown length counts once."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kernelmate.errors import ContractError
from kernelmate.records import Argument, Kernel, LaunchShape, Passed, Size
from kernelmate.source.expressions import evaluate_integer
from kernelmate.source.host_values import constant_value
from kernelmate.source.infer_accesses import BUILTIN, CAST, once_defined
from kernelmate.source.infer_host import host_files
from kernelmate.source.tokens import Token, closing, lex

_DEEPEST = 12
"""Maximum depth of variables within variables' definitions."""
_SIDE = re.compile(r"\b(\w+) ?\. ?size ?\( ?(\d+) ?\)")
_FIELD = re.compile(r"\b(\w+) ?(?:\.|->|- >) ?(\w+)\b(?! ?\()")
_LARGEST = 1 << 40
"""Number above which an estimate is of no further use."""


@dataclass(frozen=True, slots=True)
class _Loop:
    """The parts of a `for` as text, and the loops in its body."""

    start: str
    condition: str
    step: str
    inner: tuple[_Loop, ...]


class KernelLoops:
    """The loops of a kernel, and the names on which their bounds depend.

    Args:
        kernel: the kernel.
        args: of its contract, whose values bounds may name.
        passing: how they are passed, for the fields of structs and the sides of tensors.
        constants: values of template parameters.
    """

    def __init__(
        self, kernel: Kernel, args: Sequence[Argument], passing: Sequence[Passed], constants: Mapping[str, str]
    ) -> None:
        tokens = [token for token in lex(kernel.source).tokens if not token.directive]
        self._loops = _loops(tokens)
        self._definitions = {**constants, **once_defined(kernel)}
        self._scalars = {one.name: one.value or one.name for one in args if one.shape is None}
        self._fields = {
            (one.name, *(str(key).rstrip("_") for key in member.keys)): member.argument
            for one in passing
            for member in one.members
            if member.keys
        }
        self._kernel, self._files = kernel, host_files(kernel.unit)
        self._constants: dict[str, str] = {}

    def iterations(self, size: Size, shape: LaunchShape) -> int:
        """Returns the number of iterations of one thread at a size, nested loops included; at least 1."""
        values = dict(size)
        for name, sides in (("blockDim", shape.block), ("gridDim", shape.grid)):
            values |= {f"{name}_{axis}": side for axis, side in zip("xyz", sides, strict=False)}
        return max(_Counting(self, values).total(self._loops), 1)

    def text_of(self, name: str) -> str | None:
        """Returns the expression that a variable, a macro or a constant stands for; None where that is not known."""
        if name in self._definitions:
            return self._definitions[name]
        if name not in self._constants:
            value = constant_value(self._files, name) or ()
            self._constants[name] = " ".join(token.text for token in value)
        return self._constants[name] or None

    def scalar(self, name: str, size: Size) -> int | None:
        """Returns the value of a scalar argument at a size."""
        try:
            return evaluate_integer(self._scalars[name], size, "value") if name in self._scalars else None
        except ContractError:
            return None

    def plain(self, text: str) -> str:
        """Returns an expression with arguments in place of fields and of the sides of tensors, as Python reads it."""
        text = _SIDE.sub(lambda side: self._fields.get((side[1], "sizes", side[2]), side[0]), text)
        text = CAST.sub(" ", BUILTIN.sub(r"\1_\2", text))
        text = _FIELD.sub(lambda field: self._fields.get((field[1], field[2]), field[0]), text)
        text = re.sub(r"\b\w+ ?(?:::|: :) ?|\bstatic_cast ?< ?[\w ]+ ?>", "", text)
        return re.sub(r"\b(0x[\da-fA-F]+|\d+)[uUlL]+\b", r"\1", text).strip()


class _Counting:
    """Counts at the values of one size."""

    def __init__(self, loops: KernelLoops, values: Mapping[str, int]) -> None:
        self._loops, self._values = loops, values

    def total(self, loops: Sequence[_Loop]) -> int:
        """Returns the iterations of loops that follow each other."""
        return min(sum(self._trips(one) * max(self.total(one.inner), 1) for one in loops), _LARGEST)

    def _trips(self, loop: _Loop) -> int:
        """Returns the iterations of one loop: 1 where its bound is not known."""
        name, _, start = loop.start.rpartition("=") if "=" in loop.start else ("", "", "")
        name = name.split()[-1] if name else (re.findall(r"[A-Za-z_]\w*", loop.condition) or [""])[0]
        first = self._value(start) if start else None
        found = [trips for part in loop.condition.split("&&") if (trips := self._until(part, name, first, loop.step))]
        return max(min(found), 1) if found else 1

    def _until(self, condition: str, name: str, first: int | None, step: str) -> int | None:
        word = re.escape(name)
        up = re.fullmatch(rf"{word}(?:<|!(?==))(=?)(.+)", condition)
        turned = re.fullmatch(rf"(?=.*>(=?))(.+?)>=?{word}", condition) if up is None else None
        down = re.fullmatch(rf"{word}>(=?)(.+)", condition)
        least = up or turned
        if down is not None or condition == name:
            last, begin = first, 0 if down is None else self._value(down[2]) or 0
        elif least is not None:
            last, begin = self._value(least[2]), first or 0
        else:
            return None
        closed = next((one[1] for one in (least, down) if one is not None), "")
        last = last + 1 if last is not None and closed and not condition.startswith(f"{name}!") else last
        if last is None or (first is None and re.search(r"[+-]=", step)):
            return None  # from an index on by a stride: threads share its iterations
        if re.search(r"[*/]=|<<=|>>=", step):
            return max(last, 1).bit_length()
        by = re.search(r"[+-]=(.+)|=\w+[+-](.+)", step)
        stride = self._value(next(part for part in by.groups() if part is not None)) if by is not None else 1
        return -(-max(last - begin, 0) // max(abs(stride or 1), 1))

    def _value(self, text: str, depth: int = 0) -> int | None:
        try:
            tree = ast.parse(self._loops.plain(text), mode="eval").body
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return None
        return self._node(tree, depth)

    def _node(self, node: ast.expr, depth: int) -> int | None:
        """Returns the largest value that an expression may have by known bounds; unknown terms are left out."""
        if isinstance(node, ast.Constant):
            return node.value if isinstance(node.value, int) else None
        if isinstance(node, ast.Name):
            return self._name(node.id, depth)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            values = [value for one in node.args if (value := self._node(one, depth)) is not None]
            if not values or len(values) < len(node.args) > 2:
                return None
            smallest, quotient = "min" in node.func.id.lower(), re.search(r"(?i)div|up", node.func.id)
            if quotient and len(values) == 2:
                return -(-values[0] // max(values[1], 1))
            return min(values) if smallest else max(values)
        if not isinstance(node, ast.BinOp):
            return None
        left, right = self._node(node.left, depth), self._node(node.right, depth)
        return left if right is None else _combined(node.op, left, right)

    def _name(self, name: str, depth: int) -> int | None:
        if name in self._values:
            return self._values[name]
        value = self._loops.scalar(name, self._values)
        text = self._loops.text_of(name) if value is None and depth < _DEEPEST else None
        return value if text is None else self._value(text, depth + 1)


def _combined(operator: ast.operator, left: int | None, right: int) -> int | None:
    if left is None:
        return right if isinstance(operator, ast.Add) else None
    found = {
        ast.Add: left + right,
        ast.Sub: left - right,
        ast.Mult: left * right,
        ast.Div: left // right if right else None,
        ast.Mod: left % right if right else None,
        ast.LShift: left << right if 0 <= right < 32 else None,
        ast.RShift: left >> right if 0 <= right < 64 else None,
    }.get(type(operator))
    return None if found is None or abs(found) > _LARGEST else found


def _loops(tokens: Sequence[Token]) -> tuple[_Loop, ...]:
    """Returns the `for` loops of a text, each with those in its body."""
    found: list[_Loop] = []
    at = 0
    while at + 1 < len(tokens):
        end = closing(tokens, at + 1) if tokens[at].text == "for" and tokens[at + 1].text == "(" else None
        if end is None:
            at += 1
            continue
        last = _statement(tokens, end + 1)
        text = " ".join(token.text for token in tokens[at + 2 : end])
        head = re.sub(r" ?([<>=+\-*/&|!]) ?", r"\1", text).split(";")
        if len(head) == 3:
            start, condition, step = (part.strip() for part in head)
            found.append(_Loop(start.partition(",")[0].strip(), condition, step, _loops(tokens[end + 1 : last])))
        at = last
    return tuple(found)


def _statement(tokens: Sequence[Token], start: int) -> int:
    """Returns the index after the statement that begins at a token."""
    if start < len(tokens) and tokens[start].text == "{":
        return (closing(tokens, start) or len(tokens) - 1) + 1
    at = start
    while at < len(tokens) and tokens[at].text != ";":
        end = closing(tokens, at) if tokens[at].text in ("(", "{", "[") else None
        braces = end is not None and tokens[at].text == "{" and tokens[at - 1].text == ")"
        at = (at if end is None else end) + 1
        if braces:
            return at
    return at + 1
