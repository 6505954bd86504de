"""Merges variables that occur only in one linear combination, such as block and thread index."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import count
from typing import Any

from kernelmate.synthesis.lift.polynomials import Atom, Poly, Space
from kernelmate.synthesis.lift.values import ArrayLoad, Fold, Index, Op, ScanValue, hinted, operation, to_poly, walk

_NUMBERS = count()


def fresh(space: Space, extent: Poly | None, stem: str = "i") -> str:
    """Returns a new variable with the given extent."""
    name = f"%{stem}{next(_NUMBERS)}"
    space.extents[name] = extent
    return name


class _CannotFlatten(Exception):
    """The two variables to be merged also occur separately."""


class _Merged:
    """Replaces `scale * outer + inner` by a single variable throughout a value."""

    def __init__(self, space: Space, outer: str, inner: str, scale: Poly, name: str) -> None:
        self.space, self.outer, self.inner, self.scale, self.name = space, outer, inner, scale, name

    def poly(self, value: Poly) -> Poly:
        outer, inner = value.coefficient(self.outer), value.coefficient(self.inner)
        if outer != self.scale * inner:
            raise _CannotFlatten
        rest = value - outer * Poly.name(self.outer) - inner * Poly.name(self.inner)
        total = inner * Poly.name(self.name)
        for key, scale in rest.terms:
            part = Poly.number(scale)
            for factor in key:
                part = part * (Poly.name(factor) if isinstance(factor, str) else self._atom(factor))
            total = total + part
        return total

    def _atom(self, atom: Atom) -> Poly:
        if atom.kind == "data":
            return to_poly(self.value(atom.args[0]))
        return self.space.atom(atom.kind, tuple(self.poly(one) for one in atom.args))

    def value(self, value: Any) -> Any:
        match value:
            case Index():
                return Index(self.poly(value.poly))
            case ArrayLoad():
                return replace(value, at=self.poly(value.at))
            case Op():
                return hinted(
                    operation(value.name, tuple(map(self.value, value.args)), value.kind, self.space), value.hint
                )
            case Fold():
                return replace(value, over=self._over(value.over), body=self.value(value.body))
            case ScanValue():
                if value.at in (self.outer, self.inner):
                    raise _CannotFlatten
                return replace(value, body=self.value(value.body))
        return value

    def _over(self, over: tuple[str, ...]) -> tuple[str, ...]:
        mine = {self.outer, self.inner} & set(over)
        if not mine:
            return over
        if len(mine) == 1:
            raise _CannotFlatten
        return tuple(self.name if one == self.outer else one for one in over if one != self.inner)


def polynomials(values: Iterable[Any]) -> list[Poly]:
    """Returns the polynomials in some values, except those inside atoms."""
    found = []
    for value in values:
        for one in walk(value):
            if isinstance(one, Index):
                found.append(one.poly)
            elif isinstance(one, ArrayLoad):
                found.append(one.at)
    return found


def flatten(values: Sequence[Any], names: Iterable[str], space: Space) -> list[Any]:
    """Merges variables, so that the values depend on as few as possible."""
    current, wanted = list(values), set(names) - space.apart
    for _ in range(40):
        step = _step(current, wanted, space)
        if step is None:
            return current
        current, gone, name = step
        wanted = (wanted - gone) | {name}
    return current


def _step(values: list[Any], names: set[str], space: Space) -> tuple[list[Any], set[str], str] | None:
    found = polynomials(values)
    for inner in sorted(names):
        extent = space.extents.get(inner)
        if extent is None:
            continue
        for outer in sorted(names - {inner}):
            pairs = ((one.coefficient(outer), one.coefficient(inner)) for one in _all_levels(found))
            first = next(((o, i) for o, i in pairs if o.terms and i.terms), None)
            if first is None or first[0] != extent * first[1]:
                continue
            whole = space.extents.get(outer)
            name = fresh(space, None if whole is None else whole * extent, "g")
            merged = _Merged(space, outer, inner, extent, name)
            try:
                return [merged.value(one) for one in values], {outer, inner}, name
            except _CannotFlatten:
                continue
    return None


def _all_levels(found: Iterable[Poly]) -> Iterable[Poly]:
    for poly in found:
        yield poly
        for factor in poly.factors():
            if isinstance(factor, Atom) and factor.kind != "data":
                yield from _all_levels(factor.args)
