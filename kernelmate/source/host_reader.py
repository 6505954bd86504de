"""Translates launch expressions of C++ host code to contract expressions; variables are replaced by their values."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping, Sequence

from kernelmate.source.dtypes import ITEM_BYTES, c_type_dtype
from kernelmate.source.expressions import RESERVED, ExpressionError, parse_expression
from kernelmate.source.host_code import Untranslatable, strip_parentheses
from kernelmate.source.signature import spell
from kernelmate.source.tokens import Token, closing, lex, split_list

_ROUND_UP = re.compile(r"(?i)(?:i?ceil_?div|c_?div|i?div_?(?:round_?)?up|divide_?up|ceildivide|updiv)\Z")
_DEEPEST = 6
_MOST_FREE = 2


class HostReader:
    """Translates one launch's grid, block and shared bytes.

    Args:
        tokens: tokens of the whole text.
        before: only assignments before this offset count.
        names: the size that each host identifier stands for; None if it is passed for several sizes.
        block: the launch's block as written; if it is a variable, that name means the block in the other expressions too.

    Attributes:
        free: host variables of unknown value, which become sizes of their own, in order of appearance.
    """

    def __init__(self, tokens: Sequence[Token], before: int, names: Mapping[str, str | None], block: str) -> None:
        self.tokens = [token for token in tokens if token.start < before]
        self.names = names
        self.block = block
        self.free: list[str] = []

    def block_sides(self) -> tuple[str, ...]:
        """Return the block as one to three contract expressions without new sizes.

        Raises:
            Untranslatable: something in it is beyond plain arithmetic over known names.
        """
        variable, self.block = self.block, ""
        sides = self._sides(lex(variable).tokens, 0)
        self.block = variable
        if self.free:
            raise Untranslatable(f"the value of {self.free[0]} is not plain to see")
        return sides

    def grid_sides(self, text: str) -> tuple[str, ...]:
        """Return the grid as one to three contract expressions.

        Raises:
            Untranslatable: as `block_sides`.
        """
        return self._sides(lex(text).tokens, 0)

    def expression(self, text: str) -> str:
        """Translate one expression of a launch.

        Raises:
            Untranslatable: as `block_sides`.
        """
        return strip_parentheses(self._convert(lex(text).tokens, 0))

    def _sides(self, tokens: Sequence[Token], depth: int) -> tuple[str, ...]:
        if depth > _DEEPEST:
            raise Untranslatable("variables refer to each other too deeply")
        listed = _constructor(tokens)
        if listed is not None:
            return tuple(strip_parentheses(self._convert(part, depth)) for part in listed)
        if len(tokens) == 1 and tokens[0].kind == "word" and tokens[0].text not in self.names:
            value = self._value_of(tokens[0].text)
            if value is not None and (_constructor(value) is not None or len(value) == 1):
                return self._sides(value, depth + 1)
        return (strip_parentheses(self._convert(tokens, depth)),)

    def _value_of(self, name: str) -> Sequence[Token] | None:
        """Returns the tokens of the last value assigned to a variable or macro before the launch; None without one."""
        tokens = self.tokens
        for index in range(len(tokens) - 2, -1, -1):
            if tokens[index].text != name or tokens[index].kind != "word":
                continue
            before = tokens[index - 1].text if index else ""
            following = tokens[index + 1]
            if before == "define" and tokens[index].directive and following.text != "(":
                return [t for t in tokens[index + 1 :] if t.directive == tokens[index].directive]
            if following.text == "=" and before not in (".", "->"):
                return tokens[index + 2 : _value_end(tokens, index + 2)]
            if following.text in ("(", "{") and before in ("dim3", ",") and self._declares_dim3(index):
                end = closing(tokens, index + 1)
                if end is not None:
                    return [_DIM3, *tokens[index + 1 : end + 1]]
        return None

    def _declares_dim3(self, index: int) -> bool:
        start = index
        while start and self.tokens[start - 1].text not in (";", "{", "}"):
            start -= 1
            if self.tokens[start].text == "dim3":
                return True
        return False

    def _named(self, name: str, depth: int) -> str:
        """Returns the value of a host identifier."""
        if name in self.names:
            size = self.names[name]
            if size is None:
                raise Untranslatable(f"{name} is passed for several sizes")
            return size
        if name == self.block:
            return "block"
        value = self._value_of(name)
        if value is not None:
            try:
                return self._convert(value, depth + 1)
            except Untranslatable:
                if name.isupper():
                    raise
        usable = name.isascii() and not name.isupper() and name not in RESERVED
        if name not in self.free:
            if not usable or len(self.free) >= _MOST_FREE:
                raise Untranslatable(f"the value of {name} is not plain to see")
            self.free.append(name)
        return name

    def _member(self, name: str, axis: str, depth: int) -> str:
        """Returns a component of a `dim3` variable."""
        if name == self.block:
            return f"block_{axis}"
        value = self._value_of(name)
        if value is None or axis not in "xyz":
            raise Untranslatable(f"the value of {name}.{axis} is not plain to see")
        sides = (*self._sides(value, depth + 1), "1", "1")
        return f"({sides['xyz'.index(axis)]})"

    def _convert(self, tokens: Sequence[Token], depth: int) -> str:
        if depth > _DEEPEST:
            raise Untranslatable("variables refer to each other too deeply")
        out: list[str] = []
        index = 0
        while index < len(tokens):
            text, index = self._piece(tokens, index, depth)
            out.append(text)
        joined = "".join(out).strip()
        try:
            parse_expression(joined)
        except ExpressionError as error:
            raise Untranslatable(error.message) from None
        return f"({joined})" if len(tokens) > 1 else joined

    def _piece(self, tokens: Sequence[Token], index: int, depth: int) -> tuple[str, int]:
        token = tokens[index]
        following = tokens[index + 1].text if index + 1 < len(tokens) else ""
        if token.kind == "number":
            return _number(token.text), index + 1
        if token.text in ("std", "::"):
            return "", index + 1
        if token.text == "sizeof" and following == "(":
            return self._size_of(tokens, index)
        if token.kind == "word" and following in ("(", "{"):
            return self._call(tokens, index, depth)
        if token.kind == "word" and following == "." and index + 2 < len(tokens):
            return self._member(token.text, tokens[index + 2].text, depth), index + 3
        if token.kind == "word":
            return self._named(token.text, depth), index + 1
        if token.text in ("+", "-", "*", "%", "(", ")", ","):
            return f" {token.text} " if token.text in "+-*%" else token.text, index + 1
        if token.text == "/":
            return " // ", index + 1
        raise Untranslatable(f"{token.text} is beyond plain arithmetic")

    def _size_of(self, tokens: Sequence[Token], index: int) -> tuple[str, int]:
        end = closing(tokens, index + 1)
        dtype, vector = c_type_dtype(spell(tokens[index + 2 : end])) if end is not None else (None, 1)
        if dtype is None or end is None:
            raise Untranslatable("sizeof of a type that is not known")
        return str(ITEM_BYTES[dtype] * vector), end + 1

    def _call(self, tokens: Sequence[Token], index: int, depth: int) -> tuple[str, int]:
        end = closing(tokens, index + 1)
        if end is None:
            raise Untranslatable("a parenthesis is not closed")
        parts = [tokens[first:last] for first, last in split_list(tokens, index + 2, end)]
        name = tokens[index].text
        if _ROUND_UP.match(name) and len(parts) == 2:
            name = "cdiv"
        if name not in ("cdiv", "min", "max"):
            if name in ("int", "unsigned", "size_t", "dim3") and len(parts) == 1:
                return self._convert(parts[0], depth), end + 1
            raise Untranslatable(f"{name}() is not known")
        inside = ", ".join(strip_parentheses(self._convert(part, depth)) for part in parts)
        return f"{name}({inside})", end + 1


def _constructor(tokens: Sequence[Token]) -> list[Sequence[Token]] | None:
    """Returns the arguments of `dim3(a, b)`, `dim3{a, b}` or `{a, b}`; None for anything else."""
    start = 1 if tokens and tokens[0].text == "dim3" else 0
    if len(tokens) <= start or tokens[start].text not in (("(", "{") if start else ("{",)):
        return None
    end = closing(tokens, start)
    if end != len(tokens) - 1:
        return None
    parts = [tokens[first:last] for first, last in split_list(tokens, start + 1, end)]
    return parts if 1 <= len(parts) <= 3 else None


def _value_end(tokens: Sequence[Token], start: int) -> int:
    index = start
    while index < len(tokens) and tokens[index].text not in (";", ","):
        end = closing(tokens, index) if tokens[index].text in ("(", "{", "[") else None
        index = index + 1 if end is None else end + 1
    return index


def _number(text: str) -> str:
    try:
        return str(int(text.replace("'", "").rstrip("uUlLzZ"), 0))
    except ValueError:
        raise Untranslatable(f"{text} is no whole number") from None


_DIM3 = Token("word", "dim3", 0, 0, 0)


def tidied(expression: str, threads: int | None = None) -> str:
    """Rewrite the usual spellings of a rounded-up quotient as `cdiv`.

    Args:
        expression: over contract names.
        threads: threads of a one-dimensional block; an equal number, as a divisor or factor, is taken to mean the
            block.
    """
    tree = _Tidying(threads).visit(parse_expression(expression))
    return ast.unparse(tree)


class _Tidying(ast.NodeTransformer):
    def __init__(self, threads: int | None) -> None:
        self.threads = threads

    def visit_BinOp(self, node: ast.BinOp) -> ast.expr:
        left, right = self.visit(node.left), self.visit(node.right)
        numerator = _rounded_up(left, right) if isinstance(node.op, ast.FloorDiv) else None
        if numerator is not None:
            return ast.Call(ast.Name("cdiv"), [numerator, self._block_or(right)], [])
        if isinstance(node.op, ast.Mult):
            return ast.BinOp(self._block_or(left), node.op, self._block_or(right))
        return ast.BinOp(left, node.op, right)

    def visit_Call(self, node: ast.Call) -> ast.expr:
        operands = [self.visit(operand) for operand in node.args]
        if isinstance(node.func, ast.Name) and node.func.id == "cdiv":
            operands[1] = self._block_or(operands[1])
        return ast.Call(node.func, operands, [])

    def _block_or(self, node: ast.expr) -> ast.expr:
        is_block = isinstance(node, ast.Constant) and self.threads is not None and node.value == self.threads
        return ast.Name("block") if is_block else node


def _rounded_up(left: ast.expr, divisor: ast.expr) -> ast.expr | None:
    """Returns the `a` of `(a + d - 1) // d` in its usual spellings; None for any other quotient."""
    match left:
        case ast.BinOp(left=ast.BinOp(left=a, op=ast.Add(), right=d), op=ast.Sub(), right=ast.Constant(value=1)):
            return a if ast.dump(d) == ast.dump(divisor) else None
        case ast.BinOp(left=a, op=ast.Add(), right=ast.BinOp(left=d, op=ast.Sub(), right=ast.Constant(value=1))):
            return a if ast.dump(d) == ast.dump(divisor) else None
        case ast.BinOp(left=a, op=ast.Add(), right=ast.Constant(value=int() as less)):
            return a if isinstance(divisor, ast.Constant) and divisor.value == less + 1 else None
    return None
