"""Writes single operations of a graph as C++: operators, functions, casts and numbers."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

import numpy as np

from kernelmate.synthesis.graph import Node
from kernelmate.synthesis.int_ranges import fits_int, is_shift_of, needs_no_cast
from kernelmate.synthesis.kernel_text import KernelText, c_type
from kernelmate.synthesis.plan import Plan, Refused
from kernelmate.synthesis.searches import search_name
from kernelmate.synthesis.size_text import ATOM, LOOSE, PRODUCT, SUM, bound

_BINARY = {"add": ("+", SUM), "subtract": ("-", SUM), "multiply": ("*", PRODUCT), "divide": ("/", PRODUCT)}
_COMPARISONS = {
    "greater": ">", "greater_equal": ">=", "less": "<", "less_equal": "<=", "equal": "==", "not_equal": "!=",
    "logical_and": "&&", "logical_or": "||",
}  # fmt: skip
_BITS = {"bitwise_and": "&", "bitwise_or": "|", "bitwise_xor": "^", "left_shift": "<<", "right_shift": ">>"}
_LOOSE = {**_COMPARISONS, **_BITS}
OF_COUNTS = {"floor_divide": ("/", PRODUCT), "remainder": ("%", PRODUCT)}
_STAYS_NARROW = frozenset(
    {
        "bitwise_and",
        "bitwise_count",
        "bitwise_or",
        "bitwise_xor",
        "right_shift",
        "floor_divide",
        "remainder",
        "maximum",
        "minimum",
        "where",
    }
)
"""Operations on narrow integers whose results fit the operands' type."""
NARROW = {"int8": "signed char", "uint8": "unsigned char", "int16": "short", "uint16": "unsigned short"}
_WRAPPED = frozenset({"add", "subtract", "multiply", "negative", "invert", "left_shift", "square"})
"""Operations whose results of a narrow integer type are truncated to its bits, as in NumPy."""
_CALLS = {
    "exp": "exp", "exp2": "exp2", "expm1": "expm1", "log": "log", "log2": "log2", "log10": "log10", "log1p": "log1p",
    "sqrt": "sqrt", "sin": "sin", "cos": "cos", "tan": "tan", "tanh": "tanh", "sinh": "sinh", "cosh": "cosh",
    "floor": "floor", "ceil": "ceil", "rint": "rint", "trunc": "trunc", "absolute": "fabs", "maximum": "fmax",
    "minimum": "fmin", "fmax": "fmax", "fmin": "fmin", "power": "pow", "arctan": "atan", "hypot": "hypot", "cbrt": "cbrt",
    "erf": "erf", "erfc": "erfc", "arctan2": "atan2", "arcsin": "asin", "arccos": "acos", "arcsinh": "asinh", "arccosh": "acosh",
    "arctanh": "atanh", "copysign": "copysign", "fmod": "fmod", "cospi": "cospi", "sinpi": "sinpi",
}  # fmt: skip
_WRITTEN_DIGITS = 12
"""Significant digits up to which a number is taken as the reference has it; a computed one has more."""
_WHOLE_POWERS = {3: 2, 4: 2}


class Operations:
    """Writer of a kernel's operations, given the texts of their operands.

    Args:
        plan: the graph.
        kernel: the kernel, whose arithmetic decides the type of numbers.
    """

    def __init__(self, plan: Plan, kernel: KernelText) -> None:
        self.plan, self.real = plan, kernel.real
        self._kernel, self._infinity = kernel, kernel.infinity
        self._ints: set[str] = set()

    def applied(self, node: Node, args: list[tuple[str, int]]) -> tuple[str, int]:
        """Returns the text of an operation on operands.

        Raises:
            Refused: C++ has no operation with this meaning.
        """
        if node.op == "cast":
            return self._cast(node, args[0])
        if any(self.plan.graph.nodes[arg].dtype.startswith("float") for arg in node.args) or node.dtype.startswith(
            "float"
        ):
            args = [self._as_real(arg, text) for arg, text in zip(node.args, args, strict=True)]
        if node.mapped == "searchsorted":
            return self._searched(node, args[0][0]), ATOM
        name, kinds = str(node.data[0]), [self.plan.graph.nodes[arg].dtype for arg in node.args]
        args = [self._as_wide(node, arg, text) for arg, text in zip(node.args, args, strict=True)]
        self._refuse_other_meaning(node, name)
        if name in _BINARY and node.dtype.startswith("float"):
            args = self._converted(args, kinds)
        if name == "divide" and self._is_inverse_root(args):
            return f"r{args[1][0]}", ATOM
        text = self._added_to_zero(name, args, kinds) or self._mapped(node, name, args, kinds)
        if node.dtype in NARROW and name in _WRAPPED:
            return f"static_cast<{NARROW[node.dtype]}>({text[0]})", ATOM
        return text

    def _repeats_first(self, node: Node) -> bool:
        """Returns True for a bound written as a comparison, which repeats its operand and keeps NaN, unlike `fmaxf`."""
        bounded = node.op == "map" and node.data[0] in ("maximum", "minimum") and node.dtype.startswith("float")
        given = bounded and (self._kernel.keeps_nan or self._is_given(node.args[1]))
        return given and not self._kernel.drops_nan and not self._is_number(node.args[0])

    def _is_number(self, index: int) -> bool:
        """Returns True if a value depends only on positions, sizes and constants, and is therefore never NaN."""
        node = self.plan.graph.nodes[index]
        if node.op == "map" and node.data[0] == "divide":
            by = self.plan.graph.nodes[node.args[1]]
            return self._is_number(node.args[0]) and by.op == "constant" and bool(by.data[0])
        kept = ("add", "subtract", "multiply", "maximum", "minimum", "floor", "ceil", "rint", "trunc")
        if node.op == "constant":
            return math.isfinite(float(node.data[0] or 0))
        whole = node.op in ("view", "reshape", "cast") or (node.op == "map" and node.data[0] in kept)
        return node.op in ("iota", "size") or (whole and all(map(self._is_number, node.args)))

    def _is_given(self, index: int) -> bool:
        """Returns True if a value is a constant, a scalar argument or a size, and is therefore never NaN."""
        node = self.plan.graph.nodes[index]
        while node.op in ("view", "reshape", "cast"):
            node = self.plan.graph.nodes[node.args[0]]
        return node.op in ("constant", "scalar", "size")

    def _whole_power(self, node: Node) -> int | None:
        if node.op != "map" or node.data[0] != "power":
            return None
        exponent = self.plan.graph.nodes[node.args[1]]
        value = exponent.data[0] if exponent.op == "constant" else None
        return int(value) if isinstance(value, int | float) and value in _WHOLE_POWERS else None

    def _viewed(self, index: int) -> Node:
        node = self.plan.graph.nodes[index]
        return self._viewed(node.args[0]) if node.op == "view" else node

    def _constant(self, node: Node) -> tuple[str, int]:
        value = node.data[0]
        if node.dtype == "bool":
            return "true" if value else "false", ATOM
        text = self.number(float(value or 0)) if node.dtype.startswith("float") else str(value)
        return text, PRODUCT if text.startswith("-") else ATOM

    def number(self, value: float) -> str:
        """Returns a number as a literal in the type of the arithmetic.

        Raises:
            Refused: the number overflows the type.
        """
        if math.isnan(value):
            return self._kernel.not_a_number
        if math.isinf(value):
            return self._infinity if value > 0 else f"-{self._infinity}"
        with np.errstate(over="ignore"):
            short = str(np.float32(value))
        digits = len(re.sub(r"e.*|\D", "", repr(value)).lstrip("0"))
        text = repr(value) if self.real != "float" or digits <= _WRITTEN_DIGITS else short
        if self.real == "float" and "inf" in short:
            raise Refused(f"its constant {value:g} is not a float")
        if not re.search(r"[.e]", text):
            text += ".0"
        text = re.sub(r"e([-+])0", r"e\1", text) + ("f" if self.real == "float" else "")
        return self._kernel.numbers.get(value if self.real == "double" else float(np.float32(value)), text)

    def _is_inverse_root(self, args: Sequence[tuple[str, int]]) -> bool:
        """Returns True for the reciprocal of a square root, if the baseline calls `rsqrt` for it."""
        over = re.fullmatch(r"1\.0f?", args[0][0]) is not None and args[1][1] == ATOM
        return over and self._kernel.uses_rsqrt and re.match(r"sqrtf?\(", args[1][0]) is not None

    def _refuse_other_meaning(self, node: Node, name: str) -> None:
        """Checks that C++ defines an integer operation as NumPy does.

        Raises:
            Refused: it does not.
        """
        if node.dtype.startswith("float"):
            return
        narrow = node.dtype in NARROW and name not in (*_STAYS_NARROW, *_WRAPPED)
        if narrow or name == "power" or (node.dtype == "bool" and name in _BINARY):
            raise Refused(f"{name} of {node.dtype} wraps or rounds otherwise in C++")
        shifts = name in ("left_shift", "right_shift")
        if shifts and not is_shift_of(self.plan.graph, node.args[1], 8 * np.dtype(node.dtype).itemsize):
            raise Refused("it shifts by a number of bits that is not known")

    def _is_counting(self, index: int) -> bool:
        """Returns True if an integer cannot be negative."""
        node = self.plan.graph.nodes[index]
        if node.dtype.startswith("uint") or node.op in ("iota", "size"):
            return True
        if node.op in ("view", "reshape", "cast"):
            return self._is_counting(node.args[0]) and not node.dtype.startswith("float")
        if node.mapped == "maximum":
            return any(self._is_counting(one) or self.plan.graph.nodes[one].data == (0,) for one in node.args)
        return self._is_positive(index) or (
            node.op == "map"
            and node.data[0] in ("add", "multiply", "floor_divide", "remainder", "right_shift", "bitwise_and")
            and all(map(self._is_counting, node.args))
        )

    def _divides_counts(self, node: Node) -> bool:
        """Returns True if a quotient of integers is one of a number by a positive one, which C++ rounds as NumPy does."""
        return self._is_counting(node.args[0]) and self._is_positive(node.args[1])

    def _is_positive(self, index: int) -> bool:
        node = self.plan.graph.nodes[index]
        return node.op == "size" or (node.op == "constant" and not node.dtype.startswith("float") and int(node.data[0] or 0) > 0)  # fmt: skip

    def _as_real(self, index: int, text: tuple[str, int]) -> tuple[str, int]:
        """Returns an integer operand of a floating operation, written as a float if it is a constant."""
        node = self.plan.graph.nodes[index]
        position = re.fullmatch(r"static_cast<long long>\((\w+)\)", text[0])
        if position is not None and not node.dtype.startswith("float") and not self._truncates(node):
            return position[1], ATOM
        if node.op != "constant" or node.dtype == "bool" or node.dtype.startswith("float"):
            return text
        written = self.number(float(node.data[0] or 0))
        return written, PRODUCT if written.startswith("-") else ATOM

    def _truncates(self, node: Node) -> bool:
        """Returns True for a whole number that a cast makes of a floating one."""
        while node.op in ("cast", "view", "reshape"):
            node = self.plan.graph.nodes[node.args[0]]
            if node.dtype.startswith("float"):
                return True
        return False

    def _as_wide(self, node: Node, index: int, text: tuple[str, int]) -> tuple[str, int]:
        """Returns an operand widened to the 64 bits that NumPy computes in.

        Comparisons of signed with unsigned integers are refused.
        """
        arg = self.plan.graph.nodes[index]
        others = {self.plan.graph.nodes[one].dtype for one in node.args if self.plan.graph.nodes[one].op != "constant"}
        if node.dtype == "bool" and any(one.startswith("uint") for one in others) and len(others) > 1:
            raise Refused("it compares numbers with and without a sign")
        narrow_product = self._viewed(index).op == "iota" and node.data[0] in ("multiply", "square")
        if narrow_product and not text[0].isdigit() and not re.fullmatch(r"static_cast<long long>\(\w+\)", text[0]):
            return f"static_cast<long long>({text[0]})", ATOM
        wide = node.dtype in ("int64", "uint64") and not fits_int(self.plan.graph, self.plan.graph.nodes.index(node))
        narrower = wide and arg.dtype not in (node.dtype, "bool") and arg.op != "constant"
        return (f"static_cast<{c_type(node.dtype, self.real)}>({text[0]})", ATOM) if narrower else text

    def _as_int(self, text: str) -> str:
        """Returns a sum of `int` locals, `int` arguments and constants without casts; an empty string for another text."""
        plain = re.sub(r"static_cast<long long>\(([\w +-]+)\)", r"\1", text)
        words = re.findall(r"[A-Za-z_]\w*", plain)
        known = all(one in self._ints or self._is_int_argument(one) for one in words)
        return plain if known and re.fullmatch(r"\w+( [+-] \d+)?", plain) else ""

    def _is_int_argument(self, name: str) -> bool:
        argument = self._kernel.arguments.get(name)
        return argument is not None and argument.shape is None and argument.dtype == "int32"

    def _extreme(self, node: Node, name: str, args: list[tuple[str, int]]) -> str:
        """Returns a call of `min` or `max` for integers, whose overloads need operands of equal types."""
        narrow = [self._as_int(text) for text, _ in args]
        if "" not in narrow:
            return f"{name}({', '.join(narrow)})"
        return f"{name}({', '.join(self._as_long(node, *pair) for pair in zip(node.args, args, strict=True))})"

    def _as_long(self, node: Node, index: int, text: tuple[str, int]) -> str:
        """Returns an operand of `min` or `max`, cast to `long long` if the other operand may be one."""
        named = re.fullmatch(r"\w+|static_cast<long long>\(.*\)", text[0]) and text[1] == ATOM
        wide = named and self.plan.graph.nodes[index].op not in ("size", "iota", "constant")
        return text[0] if wide or node.dtype != "int64" else f"static_cast<long long>({text[0]})"

    def _converted(self, args: list[tuple[str, int]], kinds: Sequence[str]) -> list[tuple[str, int]]:
        """Returns operands without casts of integers next to floats, which C++ converts implicitly."""
        whole = [re.fullmatch(rf"static_cast<{self.real}>\(([\w.\[\]]+)\)", text) for text, _ in args]
        place = next((one for one in (1, 0) if whole[one] is not None and kinds[1 - one].startswith("float")), None)
        found = None if place is None else whole[place]
        if place is None or found is None:
            return args
        return [(found[1], ATOM) if one == place else arg for one, arg in enumerate(args)]

    def _added_to_zero(self, name: str, args: list[tuple[str, int]], kinds: list[str]) -> tuple[str, int] | None:
        """Returns the other operand of a floating sum with zero; None for other operations."""
        zeros = [one for one in (0, 1) if name == "add" and args[one][0] == self.number(0.0)]
        return args[1 - zeros[0]] if zeros and all(kind.startswith("float") for kind in kinds) else None

    def _mapped(self, node: Node, name: str, args: list[tuple[str, int]], kinds: list[str]) -> tuple[str, int]:
        """Returns the text of a ufunc's call on operands."""
        real = node.dtype.startswith("float")
        if name == "divide" and not any(kind.startswith("float") for kind in kinds):
            args = [(f"static_cast<{self.real}>({args[0][0]})", ATOM), args[1]]
        if name in OF_COUNTS and not real and not self._divides_counts(node):
            divisor = self.plan.graph.nodes[node.args[1]]
            sign = "+" if self._is_positive(node.args[1]) else "" if divisor.dtype.startswith("uint") else "-"
            return _rounded_down(name, args, sign)
        if name in _BINARY or (name in OF_COUNTS and not real):
            return _binary(args, *(_BINARY.get(name) or OF_COUNTS[name]))
        if name in _LOOSE:
            if name in _COMPARISONS and all(self._viewed(one).op == "iota" for one in node.args):
                args = [_uncast(*arg) for arg in args]
            level = ATOM if name in _BITS else SUM
            chained = (name.startswith("logical") or name in _BITS) and self._viewed(node.args[0]).data == node.data
            first = args[0][0] if chained else bound(args[0], level)
            return f"{first} {_LOOSE[name]} {bound(args[1], level)}", LOOSE
        if name == "where":
            test = bound(args[0], SUM) if "?" in args[0][0] else args[0][0]
            other = args[2][0] if self._viewed(node.args[2]).data == node.data else bound(args[2], SUM)
            return f"{test} ? {bound(args[1], SUM)} : {other}", LOOSE
        if name == "square" or (name == "power" and self._whole_power(node) is not None):
            count = 2 if name == "square" else self._whole_power(node) or 2
            return " * ".join([bound(args[0], ATOM)] * count), PRODUCT
        if name in ("negative", "logical_not", "invert"):
            sign = {"negative": "-", "logical_not": "!", "invert": "~"}[name]
            return f"{sign}{bound(args[0], ATOM)}", PRODUCT
        if name in ("reciprocal", "isnan"):
            divided = f"{self.number(1.0)} / {bound(args[0], ATOM)}", PRODUCT
            return divided if name == "reciprocal" else (f"isnan({args[0][0]})", ATOM)
        if name in ("maximum", "minimum") and real and self._repeats_first(node):
            sign = "<" if name == "maximum" else ">"
            first, second = bound(args[0], SUM), bound(args[1], SUM)
            test = f"{first} {sign} {second}" + ("" if self._is_given(node.args[1]) else f" || isnan({args[1][0]})")
            return f"{test} ? {second} : {first}", LOOSE
        if name in ("maximum", "minimum") and not real:
            return self._extreme(node, name[:3], args), ATOM
        return self._called(node, name, args), ATOM

    def _called(self, node: Node, name: str, args: list[tuple[str, int]]) -> str:
        """Returns a call of the CUDA function for a ufunc.

        Raises:
            Refused: there is none.
        """
        if name == "absolute" and node.dtype in ("int32", "int64"):
            return f"abs({args[0][0]})"
        if name == "bitwise_count":
            return f"{self._population(node)}({args[0][0]})"
        if name not in _CALLS or not node.dtype.startswith("float"):
            raise Refused(f"{name} of {node.dtype} cannot be written here")
        suffix, texts = "f" if self.real == "float" else "", [text for text, _ in args]
        if self.real == "double":  # whose functions have overloads for float and double alone
            whole = [not self.plan.graph.nodes[one].dtype.startswith("float") for one in node.args]
            texts = [f"static_cast<double>({text})" if cast else text for text, cast in zip(texts, whole, strict=True)]
        return f"{_CALLS[name]}{suffix}({', '.join(texts)})"

    def _searched(self, node: Node, value: str) -> str:
        """Returns the number of elements of an ascending argument before a value."""
        _, table, side, length = map(str, node.data)
        if self._kernel.arguments[table].direction != "in":
            raise Refused(f"it searches {table}, which it changes")
        return f"{search_name(side, self._kernel)}({table}, {self._kernel.size(length)}, {value})"

    def _population(self, node: Node) -> str:
        """Returns the CUDA function that counts the bits of an unsigned operand.

        Raises:
            Refused: the operand is signed; NumPy counts the bits of its magnitude.
        """
        given = np.dtype(self.plan.graph.nodes[node.args[0]].dtype)
        if given.kind != "u":
            raise Refused(f"it counts the bits of {given}")
        return "__popcll" if given.itemsize == 8 else "__popc"

    def _cast(self, node: Node, arg: tuple[str, int]) -> tuple[str, int]:
        source = self.plan.graph.nodes[node.args[0]].dtype
        if node.dtype == "float16" and source != "bool":
            if not source.startswith("float"):
                raise Refused(f"it converts intermediate values from {source} to {node.dtype}")
            narrow = f"{'__double2half' if self.real == 'double' else '__float2half'}({arg[0]})"
            wide = f"__half2float({narrow})"
            return (f"static_cast<double>({wide})" if self.real == "double" else wide), ATOM
        if node.dtype in NARROW and source not in ("bool", node.dtype) and not source.startswith("float"):
            return f"static_cast<{NARROW[node.dtype]}>({arg[0]})", ATOM
        if node.dtype == "bool":
            return f"{bound(arg, SUM)} != 0", LOOSE
        if node.dtype in ("int64", "uint64") and needs_no_cast(self.plan.graph, self.plan.graph.nodes.index(node)):
            return arg
        return f"static_cast<{c_type(node.dtype, self.real)}>({arg[0]})", ATOM


def _uncast(text: str, level: int) -> tuple[str, int]:
    """Returns the text of a position without its cast to a signed type."""
    cast = re.fullmatch(r"\(?static_cast<long long>\((\w+|\(?\w+ \+ \w+\)?)\)\)?", text)
    return (text, level) if cast is None else (cast[1], ATOM if cast[1].isidentifier() else SUM)


def _binary(args: Sequence[tuple[str, int]], sign: str, level: int) -> tuple[str, int]:
    """Returns the text of a binary operation; sums and products of literals are evaluated."""
    if sign in ("+", "*") and all(text.isdigit() for text, _ in args):
        numbers = [int(text) for text, _ in args]
        return str(sum(numbers) if sign == "+" else math.prod(numbers)), ATOM
    return f"{bound(args[0], level)} {sign} {bound(args[1], level + 1)}", level


def _rounded_down(name: str, args: list[tuple[str, int]], sign: str) -> tuple[str, int]:
    """Returns the quotient or remainder of integers rounded down as in NumPy, where both are 0 for a divisor of 0.

    C++ rounds towards zero. The divisor's sign is `+` if it is positive, `-` if it may be negative, or empty if it has none.
    """
    value, by = bound(args[0], PRODUCT), bound(args[1], ATOM)
    plain = f"{value} {'/' if name == 'floor_divide' else '%'} {by}"
    if sign == "+":
        return (
            (f"{plain} - ({value} % {by} < 0)", SUM)
            if name == "floor_divide"
            else (f"({plain} + {by}) % {by}", PRODUCT)
        )
    if not sign:
        return f"{by} == 0 ? 0 : {plain}", LOOSE
    differ = f"{value} % {by} != 0 && ({value} < 0) != ({by} < 0)"
    rounded = f"{plain} - ({differ})" if name == "floor_divide" else f"{plain} + ({differ} ? {by} : 0)"
    return f"{by} == 0 ? 0 : {rounded}", LOOSE
