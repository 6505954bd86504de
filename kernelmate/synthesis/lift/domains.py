"""Converts a kernel's stores to results: the written elements of an argument, and the variables they depend on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from kernelmate.records import Contract
from kernelmate.source import evaluate
from kernelmate.synthesis.lift.file import ArrayStore
from kernelmate.synthesis.lift.flattening import flatten, fresh
from kernelmate.synthesis.lift.polynomials import (
    Atom,
    NeedsSplit,
    NotLifted,
    Poly,
    Space,
    is_variable,
    multiples,
    size_expression,
)
from kernelmate.synthesis.lift.values import (
    NEUTRAL,
    ArrayLoad,
    Fold,
    Index,
    Number,
    Op,
    ScanValue,
    Substitution,
    fold,
    free,
    hinted,
    is_neutral,
    joined,
    operation,
    parts,
    walk,
)


@dataclass(frozen=True)
class LiftedResult:
    """The elements that a store writes.

    Attributes:
        axes: an index for each axis of `shape`; `shape` may have more axes than the argument.
        condition: the condition of the store, apart from the variables' extents.
        op: the reduction of an atomic operation; empty for a plain store.
    """

    array: str
    shape: tuple[Poly, ...]
    axes: tuple[Poly, ...]
    value: Any
    condition: Any
    line: int
    op: str = ""


class Domains:
    """Finds the variables of stores and their extents."""

    def __init__(self, contract: Contract, space: Space, threads: Sequence[str]) -> None:
        self.contract, self.space, self.threads = contract, space, threads
        sizes = Substitution(space, multiples(contract.require))
        self.shapes = {
            one.name: tuple(sizes.poly(size_expression(side)) for side in one.shape)
            for one in contract.args
            if one.shape is not None
        }
        self.numbers = [self._numbers(size) for size in contract.sizes]

    def _numbers(self, size: Mapping[str, int]) -> dict[str, int]:
        found = dict(size)
        for one in self.contract.args:
            if one.shape is None and one.value is not None and one.name not in found:
                value = evaluate(one.value, size)
                found[one.name] = int(value)
        for by in multiples(self.contract.require).values():
            for name in (str(one) for one in by.factors() if "//" in str(one)):
                first, second = name.split(" // ")
                found[name] = found[first] // max(1, found[second] if second in found else int(second))
        return found

    # ----------------------------------------------------------------------------------------------------- extents

    def at_sizes(self, poly: Poly) -> list[int]:
        """Returns a polynomial's values at the listed sizes."""
        return [_evaluated(poly, numbers) for numbers in self.numbers]

    def limited(self, name: str, bound: Poly) -> None:
        """Records a guard's upper bound of a variable as its extent."""
        extent = self.space.extents.get(name)
        if extent is not None and extent != bound:
            pairs = list(zip(self.at_sizes(bound), self.at_sizes(extent), strict=True))
            if all(mine >= theirs for mine, theirs in pairs):
                return
            if not all(mine <= theirs for mine, theirs in pairs):
                raise NotLifted("the grid or the block covers all elements at some sizes only")
        self.space.extents[name] = bound

    def tightened(self, value: Any) -> Any:
        """Returns a value whose reductions have guards converted to extents, as far as possible."""
        match value:
            case Op():
                tight = operation(value.name, tuple(map(self.tightened, value.args)), value.kind, self.space)
                return hinted(tight, value.hint)
            case Fold():
                value = fold(
                    value.op,
                    value.over,
                    _hoisted(self.tightened(value.body), value.op, self.space),
                    value.kind,
                    value.hint,
                )
                value = flatten([value], value.over, self.space)[0]
                return self._reduced(value) if isinstance(value, Fold) else value
            case ScanValue():
                return replace(value, body=self.tightened(value.body))
        return value

    def _reduced(self, value: Fold) -> Any:
        match value.body:
            case Op(name="select", args=(condition, inner, neutral)) if is_neutral(neutral, value.op):
                left = self.guards(condition, value.over)
                body = operation("select", (left, inner, Number(NEUTRAL[value.op])), inner.kind, self.space)
                value = replace(value, body=Substitution(self.space, {}).value(body))
        lone = tuple(name for name in value.over if self.space.extents.get(name) != Poly.number(1))
        if any(self.space.extents.get(name) is None for name in lone):
            raise NotLifted("a reduction without a bound that is known")
        return value if lone else value.body

    def guards(self, condition: Any, names: Sequence[str]) -> Any:
        """Returns the part of a condition that remains after bounds of variables have become extents."""
        left = []
        for part in parts(condition):
            bound = _bound(part, names)
            if bound is None:
                left.append(part)
                continue
            name, limit = bound
            if free(Index(limit)):
                left.append(part)
                greatest = self.space.greatest(limit)
                if self.space.extents.get(name) is None and greatest is not None:
                    self.space.extents[name] = greatest
                continue
            self.limited(name, limit)
        return joined(left)

    # ------------------------------------------------------------------------------------------------------ stores

    def solved(self, store: ArrayStore) -> LiftedResult:
        """Returns the result of a store: the written elements, and their values.

        Raises:
            NotLifted: the store is not supported; the error has its line.
        """
        values = [Index(store.at), store.value, joined(store.path)]
        try:
            values = self._summed(store, self._fixed(values)) if store.op else values
            for _ in range(30):
                try:
                    return self._attempt(store, values)
                except NeedsSplit as needed:
                    values = self._split(self._last, needed)
            raise NotLifted("its indices are not decomposed")
        except NotLifted as reason:
            reason.line = reason.line or store.line
            raise

    def _split(self, values: list[Any], needed: NeedsSplit) -> list[Any]:
        extent = self.space.extents.get(needed.variable)
        if extent is None:
            raise NotLifted("an index whose extent is not known is decomposed")
        outer, rest = extent.divided(needed.by)
        if rest.terms:
            if not all(
                value % by == 0 for value, by in zip(self.at_sizes(extent), self.at_sizes(needed.by), strict=True)
            ):
                raise NotLifted("an index is decomposed into parts that do not match")
            outer = self.space.quotient(extent, needed.by)
        names = fresh(self.space, outer, "q"), fresh(self.space, needed.by, "r")
        self.space.apart.update(names)
        put = Poly.name(names[0]) * needed.by + Poly.name(names[1])
        return [Substitution(self.space, {needed.variable: put}).value(one) for one in values]

    def _attempt(self, store: ArrayStore, values: list[Any]) -> LiftedResult:
        for _ in range(3):
            values = self._fixed([self.tightened(one) for one in values])
            names = frozenset().union(*map(free, values))
            values = flatten(values, names, self.space)
            names = frozenset().union(*map(free, values))
            values[2] = self.guards(values[2], sorted(names))
            again = Substitution(self.space, {})
            values = [again.value(one) for one in values]
        self._last = values
        at, value, condition = values
        for one in values:
            self._look_for_parts(one)
        shape, axes = self.placed(store.array, at.poly)
        for load in walk(value):
            if isinstance(load, ArrayLoad):
                self.placed(load.array, load.at)
        self._refuse_several(store, at, value, condition)
        return LiftedResult(store.array, shape, axes, value, condition, store.line, store.op)

    def _summed(self, store: ArrayStore, values: list[Any]) -> list[Any]:
        """Returns the reduction that the atomic operations of many threads perform."""
        at, value, condition = values
        before = free(joined(store.path))
        idle = {name for name in self.threads if name not in before} - free(Index(store.at))
        over = tuple(sorted((free(value) | free(condition) | idle) - free(at)))
        outside = joined(part for part in parts(condition) if not free(part) & set(over))
        inside = joined(part for part in parts(condition) if free(part) & set(over))
        guarded = operation("select", (inside, value, Number(NEUTRAL[store.op])), value.kind, self.space)
        return [at, fold(store.op, over, guarded, value.kind) if over else guarded, outside]

    def _refuse_several(self, store: ArrayStore, at: Any, value: Any, condition: Any) -> None:
        several = (free(value) | free(condition)) - free(at)
        if several:
            raise NotLifted(f"a race: several threads write different values to one element of {store.array}")
        for name in free(at):
            if self.space.extents.get(name) is None:
                raise NotLifted("it is not known how far an index goes: no guard bounds it")

    def _fixed(self, values: list[Any]) -> list[Any]:
        """Substitutes variables that an equality in the condition determines."""
        for part in parts(values[2]):
            if not isinstance(part, Op) or part.name != "zero?":
                continue
            poly = part.args[0].poly
            names = sorted(free(Index(poly)))
            if len(names) > 0 and set(names) <= free(values[0]):
                continue
            known = {}
            for name in names:
                scale, rest = poly.coefficient(name), poly - poly.coefficient(name) * Poly.name(name)
                if scale.constant in (1, -1) and not free(Index(rest)):
                    known[name] = -rest * scale
                elif all(size > 0 for _, size in poly.terms) and scale.terms:
                    known[name] = Poly.number(0)
            if known:
                put = Substitution(self.space, known)
                return self._fixed([put.value(one) for one in values])
        return values

    def _look_for_parts(self, value: Any) -> None:
        """Splits variables of which a quotient or a remainder is taken."""
        for one in walk(value):
            poly = one.poly if isinstance(one, Index) else one.at if isinstance(one, ArrayLoad) else None
            for factor in () if poly is None else _atoms(poly):
                if factor.kind not in ("quotient", "remainder"):
                    continue
                inner, by = factor.args
                lone = inner.lone
                if isinstance(lone, str) and is_variable(lone) and not free(Index(by)):
                    extent = self.space.extents.get(lone)
                    if extent is not None and self._divides(extent, by):
                        raise NeedsSplit(lone, by)

    def _divides(self, extent: Poly, by: Poly) -> bool:
        pairs = zip(self.at_sizes(extent), self.at_sizes(by), strict=True)
        return not extent.divided(by)[1].terms or all(by and value % by == 0 for value, by in pairs)

    # ------------------------------------------------------------------------------------------------------- axes

    def placed(self, array: str, at: Poly) -> tuple[tuple[Poly, ...], tuple[Poly, ...]]:
        """Returns the shape of an array, and an index for each axis, for an offset in memory.

        Raises:
            NeedsSplit: a variable runs over several axes and must be split.
        """
        shape = self.shapes[array]
        sides: list[Poly] = []
        axes: list[Poly] = []
        rest = at
        for place, side in enumerate(shape):
            stride = Poly.number(1)
            for later in shape[place + 1 :]:
                stride = stride * later
            index, rest = rest.divided(stride) if place + 1 < len(shape) else (rest, Poly.number(0))
            more_sides, more_axes = self._expanded(side, index)
            sides += more_sides
            axes += more_axes
        return tuple(sides), tuple(axes)

    def _expanded(self, side: Poly, index: Poly) -> tuple[list[Poly], list[Poly]]:
        """Splits an axis into several if its index is a sum of several variables with strides."""
        names = [str(one) for one in set(index.factors()) if is_variable(one)]
        if len(names) == 1 and index.coefficient(names[0]) == Poly.number(1):
            extent = self.space.extents.get(names[0])
            if extent is not None and extent != side:
                outer, rest = extent.divided(side)
                if not rest.terms and outer.constant != 1 and extent.constant is None:
                    raise NeedsSplit(names[0], side)
        strided = [(name, index.coefficient(name)) for name in names]
        if len(names) < 2 or any(len(one.terms) != 1 for _, one in strided):
            return [side], [index]
        for name, stride in strided:
            outer, rest = side.divided(stride)
            inner = [other for other, small in strided if other != name and not stride.divided(small)[1].terms]
            if stride.constant == 1 or rest.terms or not inner:
                continue
            whole, left = index.divided(stride)
            if self.space.not_negative(left) and self.space.not_negative(stride - 1 - left):
                first, second = self._expanded(outer, whole), self._expanded(stride, left)
                return [*first[0], *second[0]], [*first[1], *second[1]]
        return [side], [index]


def _atoms(poly: Poly) -> list[Atom]:
    found = []
    for factor in poly.factors():
        if isinstance(factor, Atom):
            found.append(factor)
            for one in factor.args:
                found += _atoms(one) if isinstance(one, Poly) else []
    return found


def _bound(part: Any, names: Sequence[str]) -> tuple[str, Poly] | None:
    """Returns the variable that a condition bounds, and its bound."""
    if not isinstance(part, Op) or part.name != "negative?":
        return None
    poly = part.args[0].poly
    for name in names:
        if poly.coefficient(name) == Poly.number(1):
            limit = Poly.name(name) - poly
            if name not in free(Index(limit)):
                return name, limit
    return None


def _hoisted(value: Any, op: str, space: Space) -> Any:
    """Merges nested guards, and guards of factors into a guard of their product, which is zero if a factor is."""
    match value:
        case Op(name="select", args=(condition, inner, neutral)) if is_neutral(neutral, op):
            inner = _hoisted(inner, op, space)
            match inner:
                case Op(name="select", args=(other, held, nothing)) if is_neutral(nothing, op):
                    condition, inner = joined([condition, other]), held
            return operation("select", (condition, inner, Number(NEUTRAL[op])), value.kind, space)
    if op != "sum" or not isinstance(value, Op) or value.name != "multiply":
        return value
    first, second = (_hoisted(one, op, space) for one in value.args)
    for one, other in ((first, second), (second, first)):
        match one:
            case Op(name="select", args=(condition, inner, zero)) if is_neutral(zero, "sum"):
                factors = (inner, other) if one is first else (other, inner)
                product = _hoisted(Op("multiply", factors, value.kind), op, space)
                if isinstance(product, Op) and product.name == "select":
                    condition = joined([condition, product.args[0]])
                    product = product.args[1]
                return operation("select", (condition, product, Number(0.0)), value.kind, space)
    return Op("multiply", (first, second), value.kind)


def _evaluated(poly: Poly, numbers: Mapping[str, int]) -> int:
    total = 0
    for key, scale in poly.terms:
        part = scale
        for factor in key:
            part *= _factor(factor, numbers)
        total += part
    return total


def _factor(factor: Any, numbers: Mapping[str, int]) -> int:
    if isinstance(factor, str):
        if factor not in numbers:
            raise NotLifted("an extent depends on more than sizes")
        return numbers[factor]
    if factor.kind == "data":
        raise NotLifted("an extent depends on values of an array")
    first, second = (_evaluated(one, numbers) for one in factor.args)
    if factor.kind in ("quotient", "remainder"):
        if not second:
            return 0
        return first // second if factor.kind == "quotient" else first % second
    return min(first, second) if factor.kind == "least" else max(first, second)
