"""Writes values as NumPy expressions, with the variables along their axes."""

from __future__ import annotations

import builtins
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from kernelmate.checks.reference import spelled
from kernelmate.synthesis.lift.loading import Loading
from kernelmate.synthesis.lift.naming import Repeats
from kernelmate.synthesis.lift.polynomials import Atom, NotLifted, Poly, is_variable
from kernelmate.synthesis.lift.values import ArrayLoad, Fold, Index, Number, Op, Scalar, ScanValue, free, negation, walk

ATOM, POWER, UNARY, PRODUCT, SUM, SHIFT, BITS, COMPARED = 9.0, 8.0, 7.0, 6.0, 5.0, 4.0, 3.0, 2.0
_SIGNS = {
    "add": ("+", SUM), "subtract": ("-", SUM), "multiply": ("*", PRODUCT), "divide": ("/", PRODUCT),
    "floor_divide": ("//", PRODUCT), "remainder": ("%", PRODUCT), "left_shift": ("<<", SHIFT), "right_shift": (">>", SHIFT),
    "bitwise_and": ("&", BITS), "bitwise_or": ("|", BITS - 0.5), "bitwise_xor": ("^", BITS - 0.25), "less": ("<", COMPARED),
    "less_equal": ("<=", COMPARED), "greater": (">", COMPARED), "greater_equal": (">=", COMPARED), "equal": ("==", COMPARED),
    "not_equal": ("!=", COMPARED), "logical_and": ("&", BITS), "logical_or": ("|", BITS - 0.5),
}  # fmt: skip
_PADDED = {"edge": ', mode="edge"', "wrap": ', mode="wrap"', "constant": ""}


@dataclass(frozen=True)
class NumpyText:
    """An expression, the variables along its axes, and its binding strength."""

    code: str
    axes: tuple[str, ...] = ()
    binds: float = ATOM

    def within(self, binds: float) -> str:
        """Returns the text, in parentheses if the context binds more strongly."""
        return self.code if self.binds >= binds else f"({self.code})"


class ExpressionWriter(ABC):
    """Writer of a function's statements."""

    def __init__(self, loading: Loading, taken: set[str], *, exact: bool) -> None:
        self.loading, self.space, self.taken, self.exact = loading, loading.space, taken, exact
        self.lines: list[str] = []
        self.known: dict[Any, NumpyText] = {}
        self.repeats = Repeats(self.space)
        self.indent = 1
        self.sizes: set[str] = set()

    def line(self, text: str) -> None:
        """Appends a statement."""
        self.lines.append("    " * self.indent + text)

    def name(self, wanted: str) -> str:
        """Returns an unused name."""
        wanted = {"sum": "total", "max": "largest", "min": "smallest"}.get(wanted, wanted)
        wanted = f"{wanted}_" if hasattr(builtins, wanted) else wanted
        name, number = wanted or "value", 2
        while name in self.taken:
            name, number = f"{wanted or 'value'}{number}", number + 1
        self.taken.add(name)
        return name

    def pads(self) -> None:
        """Writes the assignments of padded arrays."""
        for (array, shape), (mode, pads) in self.loading.pads.items():
            name = self.loading.base(array, shape, self.size)
            held = shape if shape == self.loading.domains.shapes[array] else None
            source = spelled(array) if held else f"{spelled(array)}.reshape({', '.join(map(self.size, shape))})"
            widths = [f"({self.size(low)}, {self.size(high)})" for low, high in pads]
            width = widths[0] if len(widths) == 1 else f"({', '.join(widths)})"
            self.taken.add(name)
            self.line(f"{name} = np.pad({source}, {width}{_PADDED[mode]})")

    # ------------------------------------------------------------------------------------------------------- sizes

    def size(self, poly: Poly) -> str:
        """Returns a polynomial over sizes and taps as text."""
        return self._size(poly).code

    def _size(self, poly: Poly) -> NumpyText:
        code, binds = "", float(ATOM)
        lone = poly.lone
        if isinstance(lone, str) and "//" in lone:
            self.sizes.update(one for one in lone.split(" // ") if not one.isdigit())
            return NumpyText(lone, (), PRODUCT)
        for key, scale in poly.ordered():
            key, scale = _joined(key, scale)
            factors = [self._factor(one) for one in key]
            amount = abs(scale)
            if amount != 1 or not factors:
                factors.insert(0, str(amount))
            term = " * ".join(factors)
            plain = term.isidentifier() or term.isdigit()
            binds = SUM if code else ATOM if plain else PRODUCT
            if scale < 0:
                binds = min(binds, SUM if code else UNARY - 1.5)
            code += (" - " if scale < 0 else " + ") + term if code else ("-" if scale < 0 else "") + term
        return NumpyText(code or "0", (), binds)

    def _factor(self, factor: Any) -> str:
        if isinstance(factor, str):
            if factor in self.loading.taps:
                return self.loading.taps[factor]
            if is_variable(factor):
                raise NotLifted("an extent depends on an index")
            self.sizes.update(one for one in factor.split(" // ") if not one.isdigit())
            return f"({factor})" if "//" in factor else spelled(factor)
        if factor.kind in ("quotient", "remainder"):
            sign = "//" if factor.kind == "quotient" else "%"
            return f"({self._size(factor.args[0]).within(PRODUCT)} {sign} {self._size(factor.args[1]).within(POWER)})"
        if factor.kind == "data":
            raise NotLifted("an extent depends on values of an array")
        name = "min" if factor.kind == "least" else "max"
        return f"{name}({', '.join(map(self.size, factor.args))})"

    # ------------------------------------------------------------------------------------------------------ values

    def aligned(self, text: NumpyText, axes: Sequence[str]) -> str:
        """Returns the text of an operand, transposed and expanded to these axes."""
        code, own = text.code, text.axes
        order = tuple(one for one in axes if one in own)
        binds = text.binds
        if order != own:
            code = self._turned(text, order)
            binds = ATOM
        inner = list(axes[axes.index(order[0]) :]) if order else []
        if any(one not in order for one in inner):
            code = code if binds >= ATOM else f"({code})"
            code += f"[{', '.join(':' if one in order else 'None' for one in inner)}]"
            binds = ATOM
        return NumpyText(code, (), binds).code if binds == text.binds else NumpyText(code, (), ATOM).code

    def _turned(self, text: NumpyText, order: tuple[str, ...]) -> str:
        code = text.within(ATOM)
        if order == text.axes[::-1]:
            return f"{code}.T"
        return f"{code}.transpose({', '.join(str(text.axes.index(one)) for one in order)})"

    def operand(self, text: NumpyText, axes: Sequence[str], binds: float) -> str:
        """Returns the aligned text of an operand, in parentheses if needed."""
        code = self.aligned(text, axes)
        return NumpyText(code, (), text.binds if code == text.code else ATOM).within(binds)

    def union(self, texts: Sequence[NumpyText], order: Sequence[str]) -> tuple[str, ...]:
        """Returns the axes of an operation's result, in a given order."""
        several = [text.axes for text in texts if text.axes]
        if several and all(one == several[0] for one in several):
            return several[0]
        found = {axis for text in texts for axis in text.axes}
        return tuple(one for one in order if one in found)

    def value(self, value: Any, order: tuple[str, ...]) -> NumpyText:
        """Returns a value as text, along the axes of `order` that it depends on."""
        again = isinstance(value, Op | Fold) and self.repeats.worth_naming(value)
        if again and self.indent == 1 and not free(value) & set(self.loading.taps):
            return self._named(value, order)
        return self._text(value, order)

    def _named(self, value: Fold | Op, order: tuple[str, ...]) -> NumpyText:
        """Returns the name of a value that a statement assigns; equal values share one name."""
        key, own = self.repeats.key(value)
        if key not in self.known:
            natural = self._natural(value, (), order)
            text = self._text(value, natural if isinstance(value, Op) else order)
            if text.code.isidentifier():
                return text
            name = self.name("" if is_variable(value.hint) else value.hint)
            self.line(f"{name} = {text.code}")
            self.known[key] = NumpyText(name, tuple(str(own.index(one)) for one in text.axes))
        found = self.known[key]
        return NumpyText(found.code, tuple(own[int(one)] for one in found.axes))

    def _text(self, value: Any, order: tuple[str, ...]) -> NumpyText:
        match value:
            case Number(value=number):
                return self._number(number)
            case Index(poly=poly):
                return self.index(poly, order)
            case Scalar(name=name):
                return NumpyText(spelled(name))
            case ArrayLoad():
                return self._load(value, order)
            case Fold():
                return self._fold(value, order)
            case ScanValue():
                return self._scan(value, order)
            case Op():
                return self._operation(value, order)
        raise NotLifted("a value that is carried from one iteration to the next")

    def _number(self, number: float) -> NumpyText:
        if number in (float("inf"), float("-inf")):
            return NumpyText("np.inf") if number > 0 else NumpyText("-np.inf", (), UNARY)
        if number != number:
            return NumpyText("np.nan")
        code = repr(int(number)) if float(number).is_integer() and abs(number) < 1e15 else repr(number)
        return NumpyText(code, (), ATOM if number >= 0 else UNARY)

    def index(self, poly: Poly, order: tuple[str, ...]) -> NumpyText:
        """Returns a polynomial of variables as an index array."""
        lone = poly.lone
        if isinstance(lone, Atom) and free(Index(poly)):
            return self._atom(lone, order)
        if not any(is_variable(one) and one not in self.loading.taps for one in poly.factors()) and not free(
            Index(poly)
        ) - set(self.loading.taps):
            return self._size(poly)
        total: NumpyText | None = None
        for key, scale in poly.ordered():
            term = NumpyText(str(abs(scale))) if abs(scale) != 1 or not key else None
            for factor in key:
                one = self._position(factor, order)
                term = one if term is None else self.infix("multiply", term, one, order)
            assert term is not None
            if total is None:
                total = term if scale > 0 else NumpyText(f"-{term.within(UNARY)}", term.axes, UNARY)
            else:
                total = self.infix("add" if scale > 0 else "subtract", total, term, order)
        assert total is not None
        return total

    def _position(self, factor: Any, order: tuple[str, ...]) -> NumpyText:
        if isinstance(factor, Atom):
            return self._atom(factor, order) if free(Index(Poly.name(factor))) else NumpyText(self._factor(factor))
        if not is_variable(factor) or factor in self.loading.taps:
            return NumpyText(self._factor(factor))
        extent = self.space.extents[factor]
        if extent is None:
            raise NotLifted("it is not known how far an index goes")
        return NumpyText(f"np.arange({self.size(extent)})", (factor,))

    def _atom(self, atom: Atom, order: tuple[str, ...]) -> NumpyText:
        if atom.kind == "data":
            return self.value(atom.args[0], order)
        first, second = (self.index(one, order) for one in atom.args)
        if atom.kind in ("quotient", "remainder"):
            return self.infix("floor_divide" if atom.kind == "quotient" else "remainder", first, second, order)
        return self._called("minimum" if atom.kind == "least" else "maximum", [first, second], order)

    def infix(self, name: str, first: NumpyText, second: NumpyText, order: tuple[str, ...]) -> NumpyText:
        """Applies a binary operator."""
        sign, binds = _SIGNS[name]
        axes = self.union([first, second], order)
        left = self.operand(first, axes, binds if binds > COMPARED else SUM)
        right = self.operand(second, axes, binds + 0.1 if name not in ("add", "multiply") else binds)
        return NumpyText(f"{left} {sign} {right}", axes, binds)

    def _called(self, name: str, texts: Sequence[NumpyText], order: tuple[str, ...]) -> NumpyText:
        axes = self.union(texts, order)
        return NumpyText(f"np.{name}({', '.join(self.operand(one, axes, 0) for one in texts)})", axes)

    def _operation(self, value: Op, order: tuple[str, ...]) -> NumpyText:
        name, args = value.name, value.args
        if name in ("negative?", "zero?"):
            return self._compared(name, args[0].poly, order)
        if name == "logical_not" and isinstance(args[0], Op) and args[0].name == "zero?":
            return self._compared("nonzero", args[0].args[0].poly, order)
        if name == "logical_not" and isinstance(args[0], Op) and args[0].name == "logical_and":
            texts = [self.value(negation(one), order) for one in args[0].args]
            return self.infix("logical_or", texts[0], texts[1], order)
        if (
            name == "multiply"
            and isinstance(args[1], Op)
            and args[1].name == "divide"
            and args[1].args[0] == Number(1.0)
            and not self.repeats.worth_naming(args[1])
        ):
            return self._operation(Op("divide", (args[0], args[1].args[1])), order)
        if name == "cast":
            return self._cast(args[0], value.kind, order)
        if name == "select":
            return self._select(value, order)
        texts = [self.value(one, order) for one in args]
        if name == "multiply" and texts[0] == texts[1]:
            return NumpyText(f"{texts[0].within(ATOM)} ** 2", texts[0].axes, POWER)
        if name in _SIGNS:
            return self.infix(name, texts[0], texts[1], order)
        if name in ("negative", "logical_not", "invert"):
            sign = "-" if name == "negative" else "~"
            return NumpyText(f"{sign}{texts[0].within(UNARY)}", texts[0].axes, UNARY)
        if name in ("erf", "erfc"):
            return NumpyText(f"special.{name}({texts[0].code})", texts[0].axes)
        return self._called(name, texts, order)

    def _compared(self, name: str, poly: Poly, order: tuple[str, ...]) -> NumpyText:
        moving = Poly.of({key: scale for key, scale in poly.terms if free(Index(Poly.of({key: 1})))})
        rest = moving - poly
        sign = {"negative?": "less", "zero?": "equal", "nonzero": "not_equal"}[name]
        if moving.terms and all(scale < 0 for _, scale in moving.terms):
            moving, rest = -moving, -rest
            sign = {"less": "greater"}.get(sign, sign)
        if sign == "greater" and rest.constant is not None:
            sign, rest = "greater_equal", rest + 1
        return self.infix(sign, self.index(moving, order), self.index(rest, order), order)

    def _cast(self, inner: Any, kind: str, order: tuple[str, ...]) -> NumpyText:
        text = self.value(inner, order)
        if isinstance(inner, Index) and (kind == "float" or not text.axes):
            return text
        if kind == "float" and inner.kind == "float":
            return text
        dtype = {"float": "np.float64", "bool": "bool"}.get(kind, f"np.{kind}")
        return NumpyText(f"{text.within(ATOM)}.astype({dtype})", text.axes)

    def _select(self, value: Op, order: tuple[str, ...]) -> NumpyText:
        condition, first, second = value.args
        match condition:
            case Op(name=sign, args=(left, right)) if {first, second} == {left, right} and sign in ("less", "greater"):
                if second == left:
                    return self._called(
                        "maximum" if sign == "less" else "minimum",
                        [self.value(left, order), self.value(right, order)],
                        order,
                    )
                if isinstance(right, Number | Scalar):
                    return self._called(
                        "fmin" if sign == "less" else "fmax", [self.value(left, order), self.value(right, order)], order
                    )
        return self._called("where", [self.value(one, order) for one in value.args], order)

    # ------------------------------------------------------------------------------------------------------- arrays

    def _load(self, load: ArrayLoad, order: tuple[str, ...]) -> NumpyText:
        shape, axes = self.loading.axes(load)
        names = [axis.variable for axis in axes if axis.variable is not None]
        if all(axis.data is None for axis in axes) and len(set(names)) == len(names):
            code, variables = self.loading.sliced(load, self.size)
            return NumpyText(code, variables)
        base = self.loading.base(load.array, shape, self.size)
        rest = [axis for axis in axes[1:] if axis.data is None and axis.variable is not None and self._whole(axis)]
        if axes[0].data is not None and len(rest) == len(axes) - 1:
            first = self.index(axes[0].data, order)
            if not set(first.axes) & {one.variable for one in rest}:
                return NumpyText(f"{base}[{first.code}]", (*first.axes, *(str(one.variable) for one in rest)))
        indices = self.loading.domains.placed(load.array, load.at)[1]
        texts = [self.index(one, order) for one in indices]
        union = self.union(texts, order)
        return NumpyText(f"{base}[{', '.join(self.aligned(one, union) for one in texts)}]", union)

    def _whole(self, axis: Any) -> bool:
        extent = self.space.extents[axis.variable]
        return not axis.offset.terms and axis.stride.constant == 1 and extent == axis.side

    def _natural(self, body: Any, over: Sequence[str], order: tuple[str, ...]) -> tuple[str, ...]:
        """Returns the axis order of an array in the body that has all needed axes; else the order of the result."""
        wanted = [one for one in (*order, *over) if one in free(body) and one not in self.loading.taps]
        best: tuple[str, ...] = ()
        for load in walk(body):
            if isinstance(load, ArrayLoad):
                names = tuple(axis.variable for axis in self.loading.axes(load)[1] if axis.variable is not None)
                best = names if len(names) > len(best) else best
        return best if set(best) == set(wanted) else tuple(wanted)

    @abstractmethod
    def _fold(self, fold: Fold, order: tuple[str, ...]) -> NumpyText:
        """Returns the text of a reduction."""

    def _scan(self, scan: ScanValue, order: tuple[str, ...]) -> NumpyText:
        kind = {"sum": "cumsum", "prod": "cumprod", "max": "maximum.accumulate", "min": "minimum.accumulate"}[scan.op]
        text = self.value(scan.body, self._natural(scan.body, (), order))
        if scan.at not in text.axes:
            raise NotLifted("a running result of what does not change")
        code = f"np.{kind}({text.code}, axis={text.axes.index(scan.at)})"
        if not scan.exclusive:
            return NumpyText(code, text.axes)
        if scan.op != "sum":
            raise NotLifted("a running product, minimum or maximum without its own element")
        return NumpyText(f"{code} - {text.within(PRODUCT)}", text.axes, SUM)


def _joined(key: tuple[Any, ...], scale: int) -> tuple[tuple[Any, ...], int]:
    """Returns a term in which `b * (a // b)` is simplified to `a` if possible."""
    factors = list(key)
    for factor in key:
        if not isinstance(factor, str) or " // " not in factor:
            continue
        size, by = factor.split(" // ")
        if by in factors:
            factors.remove(by)
        elif by.isdigit() and scale % int(by) == 0:
            scale //= int(by)
        else:
            continue
        factors[factors.index(factor)] = size
    return tuple(factors), scale
