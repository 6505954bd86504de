"""Threads of a block: exchanged values are represented by sets of threads whose values are combined."""

from __future__ import annotations

from dataclasses import replace
from functools import reduce
from itertools import combinations
from typing import Any

import numpy as np

from kernelmate.synthesis.lift.flattening import fresh
from kernelmate.synthesis.lift.polynomials import NotLifted, Poly, Space
from kernelmate.synthesis.lift.values import (
    REDUCTION_OF,
    Index,
    Op,
    Spread,
    Substitution,
    fold,
    free,
    is_neutral,
    operation,
)

LONGEST = 60
"""Maximum number of threads for which an exchanged value is also kept as an expression."""


class ThreadBlock:
    """The threads of one block in hardware order.

    Attributes:
        names: variables of the threads; if the block consists of warps, those along x are `%w` (warp) and `%l` (lane).
    """

    def __init__(self, sides: tuple[int, int, int], space: Space, *, warps: bool) -> None:
        self.sides, self.space, self.warps = sides, space, warps
        self.count = sides[0] * sides[1] * sides[2]
        number = np.arange(self.count)
        x, y, z = number % sides[0], number // sides[0] % sides[1], number // sides[0] // sides[1]
        self.values: dict[str, Any] = {}
        pairs = [("%w", x // 32, sides[0] // 32), ("%l", x % 32, 32)] if warps else [("%tx", x, sides[0])]
        for name, values, extent in [*pairs, ("%ty", y, sides[1]), ("%tz", z, sides[2])]:
            if extent > 1:
                self.values[name] = values
                space.extents[name] = Poly.number(extent)
        self.x = self._name("%w") * 32 + self._name("%l") if warps else self._name("%tx")
        self.y, self.z = self._name("%ty"), self._name("%tz")
        self._folds: dict[Any, Any] = {}

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the threads' variables."""
        return tuple(self.values)

    def _name(self, name: str) -> Poly:
        return Poly.name(name) if name in self.values else Poly.number(0)

    def integers(self, poly: Poly) -> Any:
        """Returns a polynomial's value for each thread; None if it depends on more than the thread."""
        total = np.zeros(self.count, dtype=np.int64)
        for key, scale in poly.terms:
            part = np.full(self.count, scale)
            for factor in key:
                values = self._factor(factor)
                if values is None:
                    return None
                part = part * values
            total = total + part
        return total

    def _factor(self, factor: Any) -> Any:
        if isinstance(factor, str):
            return self.values.get(factor)
        if factor.kind not in ("quotient", "remainder"):
            return None
        first, second = (self.integers(one) for one in factor.args)
        if first is None or second is None:
            return None
        return first // second if factor.kind == "quotient" else first % second

    def truth(self, condition: Any) -> Any:
        """Returns a condition's value for each thread; None if it is unknown."""
        match condition:
            case Op(name="negative?" | "zero?", args=(Index(poly=poly),)):
                values = self.integers(poly)
                if values is None:
                    return None
                return values < 0 if condition.name == "negative?" else values == 0
            case Op(name="logical_and", args=(first, second)):
                both = self.truth(first), self.truth(second)
                return None if both[0] is None or both[1] is None else both[0] & both[1]
            case Op(name="logical_not", args=(inner,)):
                values = self.truth(inner)
                return None if values is None else ~values
        return None

    def active(self, path: tuple[Any, ...]) -> Any:
        """Returns the mask of threads for which those conditions hold that depend only on the thread."""
        known = [one for one in map(self.truth, path) if one is not None]
        return reduce(np.logical_and, known, np.ones(self.count, dtype=bool))

    def own(self) -> tuple[int, ...]:
        """Returns, for each thread, the set that contains only that thread."""
        return tuple(1 << thread for thread in range(self.count))

    # -------------------------------------------------------------------------------------------- exchanged values

    def spread(self, value: Any, base: Any, op: str) -> Spread | None:
        """Returns a value as a combination of `base` over threads; None if it is not one."""
        if isinstance(value, Spread):
            same = value.base == base and (not value.op or not op or value.op == op)
            return value if same else None
        if value == base:
            return Spread("", base, self.own(), value, value.kind)
        if op and is_neutral(value, op):
            return Spread(op, base, (0,) * self.count, value, base.kind)
        return None

    def combined(self, name: str, first: Any, second: Any) -> Spread | None:
        """Combines threads' values by the operation `name`; None if it is no reduction, or the values have different bases."""
        op = REDUCTION_OF.get(name)
        base = first.base if isinstance(first, Spread) else second.base
        left, right = (None, None) if op is None else (self.spread(first, base, op), self.spread(second, base, op))
        if op is None or left is None or right is None:
            return None
        once = op in ("sum", "prod")
        pairs = zip(left.members, right.members, strict=True)
        members = tuple(-1 if a < 0 or b < 0 or (once and a & b) else a | b for a, b in pairs)
        plain = None
        if left.plain is not None and right.plain is not None and _length(left) + _length(right) <= LONGEST:
            plain = Op(name, (left.plain, right.plain), base.kind)
        return Spread(op, base, members, plain, base.kind)

    def chosen(self, condition: Any, first: Any, second: Any) -> Spread | None:
        """Returns `condition ? first : second` with the condition evaluated per thread; None if that is impossible."""
        truth = self.truth(condition)
        spread = first if isinstance(first, Spread) else second
        op = next((one.op for one in (first, second) if isinstance(one, Spread) and one.op), "")
        sides = [
            self.spread(one, spread.base, op or "sum") or self.spread(one, spread.base, "max")
            for one in (first, second)
        ]
        if truth is None or sides[0] is None or sides[1] is None:
            return None
        members = tuple(a if t else b for t, a, b in zip(truth, sides[0].members, sides[1].members, strict=True))
        plain = None
        if sides[0].plain is not None and sides[1].plain is not None and _length(sides[0]) <= LONGEST:
            plain = operation("select", (condition, sides[0].plain, sides[1].plain), spread.base.kind, self.space)
        return Spread(op, spread.base, members, plain, spread.base.kind)

    def shuffled(self, value: Any, sources: Any, path: tuple[Any, ...]) -> Any:
        """Returns another lane's value for each thread; `sources` has the lane for each thread."""
        if not isinstance(value, Spread):
            if not free(value) & set(self.values):
                return value
            value = Spread("", value, self.own(), value, value.kind)
        threads = np.arange(self.count)
        width = min(32, self.count)
        inside = (sources >= 0) & (sources < width)
        source = np.where(inside, threads // 32 * 32 + sources, threads)
        return replace(value, members=tuple(value.members[thread] for thread in source), plain=None)

    def resolved(self, value: Any, path: tuple[Any, ...]) -> Any:
        """Returns an exchanged value as an expression: a reduction over threads of the block, or an equal expression.

        Raises:
            NotLifted: the threads' values are not of this form.
        """
        if not isinstance(value, Spread):
            return value
        active = self.active(path)
        wanted = [members for members, on in zip(value.members, active, strict=True) if on]
        if not value.op and len(set(wanted)) == 1 and wanted[0] > 0:
            return self._of_thread(value.base, wanted[0].bit_length() - 1)
        for amount in range(len(self.values), 0, -1):
            for names in combinations(self.values, amount):
                if value.op and wanted == [m for m, on in zip(self._groups(names), active, strict=True) if on]:
                    return self._folded(value.op, names, value.base)
        if value.plain is not None:
            return value.plain
        if any(members < 0 for members in wanted):
            raise NotLifted("threads add some values of others twice")
        raise NotLifted("threads combine values of some others, but not of all in the block, a row of it or a warp")

    def _groups(self, names: tuple[str, ...]) -> list[int]:
        """Returns, for each thread, the set of threads that differ from it only in some variables."""
        keys = (
            list(zip(*(self.values[name] for name in self.values if name not in names), strict=True))
            or [()] * self.count
        )
        sets: dict[Any, int] = {}
        for thread, key in enumerate(keys):
            sets[key] = sets.get(key, 0) | 1 << thread
        return [sets[key] for key in keys]

    def _folded(self, op: str, names: tuple[str, ...], base: Any) -> Any:
        key = (op, names, base)
        if key not in self._folds:
            renamed = {name: fresh(self.space, self.space.extents[name], "t") for name in names}
            body = Substitution(self.space, {old: Poly.name(new) for old, new in renamed.items()}).value(base)
            self._folds[key] = fold(op, tuple(renamed.values()), body, base.kind)
        return self._folds[key]

    def _of_thread(self, base: Any, thread: int) -> Any:
        known = {name: Poly.number(int(values[thread])) for name, values in self.values.items()}
        return Substitution(self.space, known).value(base)


def _length(value: Spread) -> int:
    return max(one.bit_count() if one >= 0 else LONGEST for one in value.members)
