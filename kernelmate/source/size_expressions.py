"""Integer expressions of CUDA text, evaluated if their names have values.

The parser covers expressions such as `n % 4 == 2 && cols > LIMIT`, with local variables and constants; any other
expression has the value None. Logic is three-valued: `a && b` is false if `a` is false and `b` unknown.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from kernelmate.source.expansion import ExpressionToken
from kernelmate.source.tokens import Token

Value = int | float | None
Lookup = Callable[[str], Value]
"""Function that returns the value of a name such as `cols` or `blockDim.x`; None if unknown."""

COMPARISONS = ("==", "!=", "<=", ">=", "<", ">")
ASSIGNMENTS = ("=", "+=", "-=", "*=", "/=", "%=", "&=", "|=", "^=")
_JOINED = {"&&", "||", "!=", ">>", "++", "--", *ASSIGNMENTS[1:]}
_PRECEDENCE = {
    "||": 1, "&&": 2, "|": 3, "^": 4, "&": 5, "==": 6, "!=": 6, "<": 7, ">": 7, "<=": 7, ">=": 7, "<<": 8, ">>": 8,
    "+": 9, "-": 9, "*": 10, "/": 10, "%": 10,
}  # fmt: skip
TYPE_WORDS = frozenset({
    "int", "unsigned", "long", "short", "char", "size_t", "bool", "signed", "const", "std", "::", "float", "double",
    "int32_t", "uint32_t", "int64_t", "uint64_t", "ptrdiff_t", "constexpr", "auto", "uint",
})  # fmt: skip
_INDICES = frozenset({"blockDim", "gridDim", "threadIdx", "blockIdx"})
_NUMBER = re.compile(r"(0[xX][0-9a-fA-F]+|0[bB][01]+|\d+)[uUlLzZ]*$")
LARGEST_SHIFT = 62
DEEPEST = 60


@dataclass(frozen=True, slots=True)
class SizeExpression:
    """An expression: the names it uses, its evaluation, and its constants."""

    value: Callable[[Lookup], Value]
    names: frozenset[str] = frozenset()
    constants: frozenset[int] = frozenset()
    sides: tuple[tuple[SizeExpression, SizeExpression], ...] = ()


def pieces(tokens: Sequence[Token]) -> list[ExpressionToken]:
    """Returns the tokens, with two-character operators joined."""
    found: list[ExpressionToken] = []
    for token in tokens:
        last = found[-1] if found else None
        if (
            last
            and last.end == token.start
            and last.kind == token.kind == "symbol"
            and last.text + token.text in _JOINED
        ):
            found[-1] = ExpressionToken(last.text + token.text, "symbol", last.start, token.end, token.directive)
        else:
            found.append(ExpressionToken(token.text, token.kind, token.start, token.end, token.directive))
    return found


class _Unread(Exception):
    """The expression contains something that this parser does not know."""


class _ExpressionReader:
    """Parses one expression by precedence climbing."""

    def __init__(self, some: Sequence[ExpressionToken], definitions: Mapping[str, SizeExpression | None]) -> None:
        self.pieces, self.at, self.definitions, self.depth = some, 0, definitions, 0

    def read(self) -> SizeExpression:
        found = self.binary(1)
        if self.at != len(self.pieces):
            raise _Unread
        return found

    def peek(self, ahead: int = 0) -> str:
        place = self.at + ahead
        return self.pieces[place].text if place < len(self.pieces) else ""

    def binary(self, lowest: int) -> SizeExpression:
        self.depth += 1
        if self.depth > DEEPEST:
            raise _Unread
        left = self.unary()
        while (word := self.peek()) in _PRECEDENCE and _PRECEDENCE[word] >= lowest:
            self.at += 1
            left = combined(word, left, self.binary(_PRECEDENCE[word] + 1))
        self.depth -= 1
        return left

    def unary(self) -> SizeExpression:
        word = self.peek()
        if word in ("!", "-", "+", "~"):
            self.at += 1
            return with_sign(word, self.unary())
        if word == "(" and self.cast():
            return self.unary()
        return self.primary()

    def cast(self) -> bool:
        """Skips a cast to an integer type."""
        end = self.at + 1
        while end < len(self.pieces) and self.pieces[end].text in TYPE_WORDS:
            end += 1
        if end == self.at + 1 or end >= len(self.pieces) or self.pieces[end].text != ")":
            return False
        self.at = end + 1
        return True

    def primary(self) -> SizeExpression:
        if self.at >= len(self.pieces):
            raise _Unread
        piece = self.pieces[self.at]
        self.at += 1
        if piece.text == "(":
            return self.bracketed()
        if piece.kind == "number":
            match = _NUMBER.match(piece.text.replace("'", ""))
            if match is None:
                raise _Unread
            return constant(int(match[1], 8 if re.match(r"0\d", match[1]) else 0))
        if piece.kind != "word":
            raise _Unread
        if piece.text == "static_cast" or (piece.text in TYPE_WORDS and self.peek() == "("):
            while self.peek() and self.peek() != "(":
                self.at += 1
            self.at += 1
            return self.bracketed()
        return self.name(piece.text)

    def bracketed(self) -> SizeExpression:
        found = self.binary(1)
        if self.peek() != ")":
            raise _Unread
        self.at += 1
        return found

    def name(self, word: str) -> SizeExpression:
        if word in ("true", "false"):
            return constant(int(word == "true"))
        if word in _INDICES and self.peek() == ".":
            word = f"{word}.{self.peek(1)}"
            self.at += 2
        if self.peek() in ("(", "[", ".", "->", "::", "++", "--"):
            raise _Unread
        if word in self.definitions:
            found = self.definitions[word]
            if found is None:
                raise _Unread
            return found
        return SizeExpression(lambda lookup: lookup(word), frozenset({word}))


def read_expression(
    some: Sequence[ExpressionToken], definitions: Mapping[str, SizeExpression | None]
) -> SizeExpression | None:
    """Returns the expression that the tokens are, with the values of defined names; None if not understood."""
    try:
        return _ExpressionReader(some, definitions).read()
    except (_Unread, ValueError):
        return None


def constant(number: int) -> SizeExpression:
    """Returns the expression of a number."""
    return SizeExpression(lambda _: number, frozenset(), frozenset({number}))


def with_sign(word: str, inner: SizeExpression) -> SizeExpression:
    """Returns the operand of a unary operator."""

    def value(lookup: Lookup) -> Value:
        found = inner.value(lookup)
        if found is None:
            return None
        if word == "~":
            return ~int(found)
        return int(not found) if word == "!" else -found if word == "-" else found

    return SizeExpression(value, inner.names, inner.constants, inner.sides)


def combined(word: str, left: SizeExpression, right: SizeExpression) -> SizeExpression:
    """Returns the expression of a binary operator."""
    names = left.names | right.names
    sides = (*left.sides, *right.sides, *(((left, right),) if word in COMPARISONS and names else ()))
    constants = left.constants | right.constants
    apply = _logical(word, left, right) if word in ("&&", "||") else _arithmetic(word, left, right)
    if not names:
        folded = apply(lambda _: None)
        constants |= {int(folded)} if folded is not None else set()
    return SizeExpression(apply, names, constants, sides)


def _logical(word: str, left: SizeExpression, right: SizeExpression) -> Callable[[Lookup], Value]:
    deciding = word == "||"

    def value(lookup: Lookup) -> Value:
        first = left.value(lookup)
        if first is not None and bool(first) is deciding:
            return int(deciding)
        second = right.value(lookup)
        if second is not None and bool(second) is deciding:
            return int(deciding)
        return None if first is None or second is None else int(not deciding)

    return value


def _arithmetic(word: str, left: SizeExpression, right: SizeExpression) -> Callable[[Lookup], Value]:
    operation = _OPERATIONS[word]

    def value(lookup: Lookup) -> Value:
        first, second = left.value(lookup), right.value(lookup)
        return None if first is None or second is None else operation(first, second)

    return value


def _divided(first: Value, second: Value) -> Value:
    assert first is not None
    if not second:
        return None
    if isinstance(first, float) or isinstance(second, float):
        return first / second
    return abs(first) // abs(second) * (1 if (first < 0) == (second < 0) else -1)


def _remainder(first: Value, second: Value) -> Value:
    whole = _divided(first, second)
    return None if whole is None or isinstance(whole, float) else first - second * whole  # type: ignore[operator]


def _shifted(left: bool) -> Callable[[Value, Value], Value]:
    def value(first: Value, second: Value) -> Value:
        if not isinstance(first, int) or not isinstance(second, int) or not 0 <= second <= LARGEST_SHIFT:
            return None
        return first << second if left else first >> second

    return value


_OPERATIONS: dict[str, Callable[[int | float, int | float], Value]] = {
    "+": lambda a, b: a + b, "-": lambda a, b: a - b, "*": lambda a, b: a * b, "/": _divided, "%": _remainder,
    "<<": _shifted(left=True), ">>": _shifted(left=False),
    "&": lambda a, b: int(a) & int(b), "|": lambda a, b: int(a) | int(b), "^": lambda a, b: int(a) ^ int(b),
    "==": lambda a, b: int(a == b), "!=": lambda a, b: int(a != b), "<": lambda a, b: int(a < b),
    ">": lambda a, b: int(a > b), "<=": lambda a, b: int(a <= b), ">=": lambda a, b: int(a >= b),
}  # fmt: skip
