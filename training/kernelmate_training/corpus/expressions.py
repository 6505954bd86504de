"""Random expressions that kernels compute, as CUDA C++ and as NumPy, with values that stay finite."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Literal

Real = Literal["float", "double", "int"]

CONSTANTS = (
    0.5,
    2.0,
    1.5,
    0.25,
    0.1,
    3.0,
    0.7,
    0.01,
    1.25,
    0.3,
    4.0,
    0.9,
    0.125,
    6.0,
    0.05,
    0.044715,
    1.702,
    0.8,
    2.5,
    1.1,
)
WHOLE = (2, 3, 5, 7, 4, 9, 1, 6)


@dataclass(frozen=True, slots=True)
class Expr:
    """One node of an expression: `var` (by `name`), `const` (by `value`), or an operation on `args`."""

    op: str
    args: tuple[Expr, ...] = ()
    name: str = ""
    value: float = 0.0

    def __add__(self, other: Expr) -> Expr:
        return Expr("add", (self, other))

    def __sub__(self, other: Expr) -> Expr:
        return Expr("sub", (self, other))

    def __mul__(self, other: Expr) -> Expr:
        return Expr("mul", (self, other))

    def __truediv__(self, other: Expr) -> Expr:
        return Expr("div", (self, other))

    def __neg__(self) -> Expr:
        return Expr("neg", (self,))


def var(name: str) -> Expr:
    """Returns a named value."""
    return Expr("var", name=name)


def const(value: float) -> Expr:
    """Returns a literal."""
    return Expr("const", value=value)


def call(op: str, *args: Expr) -> Expr:
    """Returns a function call; `op` is a key of the tables below."""
    return Expr(op, args)


FUNCTIONS: Mapping[str, tuple[str, str]] = {
    "exp": ("exp", "np.exp"),
    "log": ("log", "np.log"),
    "log1p": ("log1p", "np.log1p"),
    "sqrt": ("sqrt", "np.sqrt"),
    "tanh": ("tanh", "np.tanh"),
    "sin": ("sin", "np.sin"),
    "cos": ("cos", "np.cos"),
    "abs": ("fabs", "np.abs"),
    "atan": ("atan", "np.arctan"),
    "floor": ("floor", "np.floor"),
}
"""Functions of one argument: CUDA's name for double, and NumPy's name."""

COMPOSED: Mapping[str, tuple[Callable[[Expr], Expr], str]] = {
    "sigmoid": (lambda v: const(1) / (const(1) + call("exp", -v)), "1 / (1 + np.exp(-t))"),
    "silu": (lambda v: v / (const(1) + call("exp", -v)), "t / (1 + np.exp(-t))"),
    "quick_gelu": (lambda v: v / (const(1) + call("exp", const(-1.702) * v)), "t / (1 + np.exp(-1.702 * t))"),
    "gelu": (
        lambda v: const(0.5) * v * (const(1) + call("tanh", const(0.7978845608) * (v + const(0.044715) * v * v * v))),
        "0.5 * t * (1 + np.tanh(0.7978845608 * (t + 0.044715 * t * t * t)))",
    ),
    "softplus": (lambda v: call("max", v, const(0)) + call("log1p", call("exp", -call("abs", v))), "np.maximum(t, 0) + np.log1p(np.exp(-np.abs(t)))"),
    "relu": (lambda v: call("max", v, const(0)), "np.maximum(t, 0)"),
    "leaky": (lambda v: Expr("above", (v, const(0), v, const(0.1) * v)), "np.where(t > 0, t, 0.1 * t)"),
    "elu": (lambda v: Expr("above", (v, const(0), v, call("exp", v) - const(1))), "np.where(t > 0, t, np.exp(np.minimum(t, 0)) - 1)"),
    "hard_sigmoid": (lambda v: call("min", call("max", v / const(6) + const(0.5), const(0)), const(1)), "np.clip(t / 6 + 0.5, 0, 1)"),
    "hard_swish": (lambda v: v * call("min", call("max", v + const(3), const(0)), const(6)) / const(6), "t * np.clip(t + 3, 0, 6) / 6"),
    "softsign": (lambda v: v / (const(1) + call("abs", v)), "t / (1 + np.abs(t))"),
    "square": (lambda v: v * v, "t * t"),
    "cube": (lambda v: v * v * v, "t * t * t"),
    "gauss": (lambda v: call("exp", -(v * v)), "np.exp(-t * t)"),
    "rnorm": (lambda v: const(1) / call("sqrt", v * v + const(1)), "1 / np.sqrt(t * t + 1)"),
    "magnitude": (lambda v: call("sqrt", call("abs", v)), "np.sqrt(np.abs(t))"),
    "log_size": (lambda v: call("log1p", call("abs", v)), "np.log1p(np.abs(t))"),
    "clip": (lambda v: call("min", call("max", v, const(-1)), const(1)), "np.clip(t, -1, 1)"),
    "tanhshrink": (lambda v: v - call("tanh", v), "t - np.tanh(t)"),
}  # fmt: skip
"""Functions without a CUDA equivalent: their expression, and their NumPy text as a function of `t`."""

_STRENGTH = {"add": 1, "sub": 1, "mul": 2, "div": 2, "mod": 2, "and": 0, "xor": 0, "shr": 0}
_SIGNS = {"add": "+", "sub": "-", "mul": "*", "div": "/", "mod": "%", "and": "&", "xor": "^", "shr": ">>"}


def numpy_text(expr: Expr, names: Mapping[str, str]) -> str:
    """Returns the expression over NumPy arrays; `names` gives the spelling of each value."""
    if expr.op == "var":
        return names.get(expr.name, expr.name)
    if expr.op == "const":
        return _number(expr.value)
    parts = [numpy_text(arg, names) for arg in expr.args]
    if expr.op in _SIGNS:
        sign = "//" if expr.op == "div" and expr.name == "whole" else _SIGNS[expr.op]
        return f"({parts[0]} {sign} {parts[1]})"
    if expr.op == "power":
        return f"({parts[0]} ** {parts[1]})"
    if expr.op == "neg":
        return f"(-{parts[0]})"
    if expr.op in ("min", "max"):
        return f"np.{expr.op}imum({', '.join(parts)})"
    if expr.op == "above":
        return f"np.where({parts[0]} > {parts[1]}, {parts[2]}, {parts[3]})"
    if expr.op in COMPOSED:
        body = COMPOSED[expr.op][1]
        return f"(lambda t: {body})({parts[0]})"
    return f"{FUNCTIONS[expr.op][1]}({parts[0]})"


def _number(value: float) -> str:
    return repr(int(value)) if float(value).is_integer() and abs(value) < 1e6 else repr(value)


@dataclass
class Emitter:
    """Writer of expressions as CUDA C++; operands that are used more than once become statements.

    Attributes:
        real: the type of the computation.
        doubles: True for literals without suffix and double functions in float arithmetic.
        powers: True to write squares and cubes by `powf`.
        divides: True to divide by a literal; False to multiply by its inverse.
        names: spelling of each value.
        prefix: prefix of temporaries.
        statements: statements that must precede the expression.
    """

    real: Real
    doubles: bool = False
    powers: bool = False
    divides: bool = True
    names: Mapping[str, str] = field(default_factory=dict)
    prefix: str = "t"
    const_word: str = "const "
    statements: list[str] = field(default_factory=list)
    _count: int = 0

    def text(self, expr: Expr) -> str:
        """Returns the expression, without parentheses around it."""
        return self._write(expr)[0]

    def bracketed(self, expr: Expr) -> str:
        """Returns the expression, in parentheses unless it has the highest precedence."""
        return self._bracketed(expr, 3)

    def literal(self, value: float) -> str:
        """Returns a number in the type of the computation."""
        if self.real == "int":
            return str(int(value))
        text = f"{value:.10g}"
        if "." not in text and "e" not in text:
            text += ".0"
        return text if self.doubles or self.real == "double" else f"{text}f"

    def function(self, name: str) -> str:
        """Returns a function's name for the type of the computation."""
        if self.real == "int":
            return {"fabs": "abs", "fmin": "min", "fmax": "max"}[name]
        # A float beside a double literal would leave functions of two arguments ambiguous.
        return name if self.real == "double" or (self.doubles and name not in ("pow", "fmin", "fmax")) else f"{name}f"

    def _write(self, expr: Expr) -> tuple[str, int]:
        """Returns the text and its precedence (3: never needs parentheses)."""
        if expr.op == "var":
            text = self.names.get(expr.name, expr.name)
            return text, 3
        if expr.op == "const":
            text = self.literal(expr.value)
            return text, 2 if expr.value < 0 else 3
        if expr.op == "div" and not self.divides and expr.args[1].op == "const" and self.real != "int":
            return self._write(expr.args[0] * const(1 / expr.args[1].value))
        if expr.op in _SIGNS:
            return self._binary(expr)
        if expr.op == "neg":
            return f"-{self._bracketed(expr.args[0], 3)}", 2
        if expr.op == "power":
            return f"{self.function('pow')}({self.text(expr.args[0])}, {self.text(expr.args[1])})", 3
        if expr.op in ("min", "max"):
            one, other = (self.text(arg) for arg in expr.args)
            return f"{self.function('f' + expr.op)}({one}, {other})", 3
        if expr.op == "above":
            first, limit, yes, no = (self._bracketed(arg, 1) for arg in expr.args)
            return f"({first} > {limit} ? {yes} : {no})", 3
        if expr.op in COMPOSED:
            return self._composed(expr)
        return f"{self.function(FUNCTIONS[expr.op][0])}({self.text(expr.args[0])})", 3

    def _composed(self, expr: Expr) -> tuple[str, int]:
        inner = expr.args[0]
        if self.powers and expr.op in ("square", "cube") and self.real != "int":
            power = self.literal(2.0 if expr.op == "square" else 3.0)
            return f"{self.function('pow')}({self.text(inner)}, {power})", 3
        if inner.op != "var" or not self.names.get(inner.name, inner.name).isidentifier():
            inner = self.kept(inner)
        return self._write(COMPOSED[expr.op][0](inner))

    def kept(self, expr: Expr) -> Expr:
        """Returns the expression as a variable of its own, computed once."""
        text = self.text(expr)
        self._count += 1
        name = f"{self.prefix}{self._count}"
        self.statements.append(f"{self.const_word}{self.real} {name} = {text};")
        return var(name)

    def _binary(self, expr: Expr) -> tuple[str, int]:
        strength = _STRENGTH[expr.op]
        left = self._bracketed(expr.args[0], strength or 3)
        right = self._bracketed(expr.args[1], strength + (expr.op in ("sub", "div", "mod")) if strength else 3)
        return f"{left} {_SIGNS[expr.op]} {right}", strength

    def _bracketed(self, expr: Expr, strength: int) -> str:
        text, own = self._write(expr)
        return text if own >= strength else f"({text})"


UNARY = (*COMPOSED, "tanh", "sin", "cos", "abs", "atan")
SMOOTH = ("sigmoid", "tanh", "softsign", "gauss", "rnorm", "atan", "clip", "hard_sigmoid", "sin", "cos")
"""Functions whose absolute value is at most slightly above 1."""


def grow(
    rng: Random, leaves: Sequence[Expr], *, extra: int = 1, unary: Iterable[str] = UNARY, whole: bool = False
) -> Expr:
    """Returns a random expression that uses every leaf: joined in pairs in random order, with functions and literals.

    Args:
        rng: the random generator.
        leaves: values that it uses.
        extra: approximate number of steps beyond joining.
        unary: functions that may occur.
        whole: True for integer expressions.
    """
    parts = list(leaves)
    rng.shuffle(parts)
    functions = tuple(unary)
    for _ in range(extra):
        place = rng.randrange(len(parts))
        parts[place] = _whole_step(rng, parts[place]) if whole else _step(rng, parts[place], functions)
    while len(parts) > 1:
        one, other = parts.pop(rng.randrange(len(parts))), parts.pop(rng.randrange(len(parts)))
        joined = _join(rng, one, other, whole=whole)
        if not whole and functions and rng.random() < 0.3:
            joined = _step(rng, joined, functions)
        parts.append(joined)
    return parts[0]


def _step(rng: Random, expr: Expr, functions: Sequence[str]) -> Expr:
    kind = rng.random()
    value = const(rng.choice(CONSTANTS))
    if kind < 0.45 and functions:
        return call(rng.choice(functions), expr)
    if kind < 0.65:
        return expr * value if rng.random() < 0.5 else value * expr
    if kind < 0.8:
        return expr / value
    if kind < 0.9:
        return expr + value
    return rng.choice((value - expr, expr - value))


def _whole_step(rng: Random, expr: Expr) -> Expr:
    value = const(rng.choice(WHOLE))
    return rng.choice(
        (expr * value, expr + value, expr - value, call("max", expr, const(0)), call("min", expr, const(20)),
         call("abs", expr), Expr("and", (expr, const(15))), Expr("xor", (expr, value)), Expr("shr", (expr, const(1))))
    )  # fmt: skip


def _join(rng: Random, one: Expr, other: Expr, *, whole: bool) -> Expr:
    kind = rng.random()
    if kind < 0.35:
        return one + other
    if kind < 0.55:
        return one - other
    if kind < 0.85:
        return one * other
    if kind < 0.92 and not whole:
        return one / (call("abs", other) + const(rng.choice((0.5, 1.0, 2.0))))
    return call(rng.choice(("min", "max")), one, other)


def names_of(expr: Expr) -> frozenset[str]:
    """Returns the names of the values that an expression uses."""
    if expr.op == "var":
        return frozenset((expr.name,))
    return frozenset[str]().union(*(names_of(arg) for arg in expr.args))


def divides(expr: Expr) -> bool:
    """Returns True if an expression contains a division by a literal."""
    if expr.op == "div" and expr.args[1].op == "const":
        return True
    if expr.op in ("hard_sigmoid", "hard_swish"):
        return True
    return any(divides(arg) for arg in expr.args)


def has(expr: Expr, *ops: str) -> bool:
    """Returns True if any of these operations occurs."""
    return expr.op in ops or any(has(arg, *ops) for arg in expr.args)


def has_literals(expr: Expr) -> bool:
    """Returns True if it contains a literal, so that the literal's type matters."""
    return expr.op == "const" or expr.op in COMPOSED or any(has_literals(arg) for arg in expr.args)
