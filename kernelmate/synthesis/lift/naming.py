"""Finds values that a function uses more than once, irrespective of variable names."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

from kernelmate.synthesis.lift.polynomials import Atom, Poly, Space, is_variable
from kernelmate.synthesis.lift.values import ArrayLoad, Fold, Index, Op, ScanValue, Substitution, walk

LEAST = 5
"""Minimum number of operations and operands of a repeated value that gets a name without having one in the kernel."""


def in_order(value: Any) -> list[str]:
    """Returns the variables of a value in an order that does not depend on their names."""
    found: dict[str, None] = {}
    for one in walk(value):
        poly = one.poly if isinstance(one, Index) else one.at if isinstance(one, ArrayLoad) else None
        if poly is not None:
            _note(poly, found)
    return list(found)


def _note(poly: Poly, found: dict[str, None]) -> None:
    for key, _ in sorted(poly.terms, key=lambda term: (_sizes(term[0]), term[1])):
        for factor in key:
            if is_variable(factor):
                found[str(factor)] = None
            elif isinstance(factor, Atom):
                for one in factor.args:
                    if isinstance(one, Poly):
                        _note(one, found)
                    else:
                        found.update(dict.fromkeys(in_order(one)))


def _sizes(key: Iterable[Any]) -> str:
    return " ".join(one for one in key if isinstance(one, str) and not is_variable(one))


class Repeats:
    """Counts of values that are equal up to renaming of variables."""

    def __init__(self, space: Space) -> None:
        self.space = space
        self.counts: Counter[Any] = Counter()

    def count(self, value: Any) -> None:
        """Counts the operations of a value; the operands of values counted before are skipped."""
        if isinstance(value, Op | Fold):
            key = self.key(value)[0]
            self.counts[key] += 1
            if self.counts[key] > 1:
                return
        match value:
            case Op(args=args):
                for one in args:
                    self.count(one)
            case Fold(body=body) | ScanValue(body=body):
                self.count(body)
            case Index(poly=poly) | ArrayLoad(at=poly):
                for factor in poly.factors():
                    if isinstance(factor, Atom) and factor.kind == "data":
                        self.count(factor.args[0])

    def worth_naming(self, value: Op | Fold) -> bool:
        """Returns True for named reductions, and for other repeated values that are named or long."""
        if isinstance(value, Fold) and value.hint:
            return True
        if (
            value.kind == "bool"
            or (isinstance(value, Op) and value.name == "cast")
            or self.counts[self.key(value)[0]] < 2
        ):
            return False
        return bool(value.hint) or sum(1 for _ in walk(value)) >= LEAST

    def key(self, value: Any) -> tuple[Any, list[str]]:
        """Returns the value with canonical variable names, and its own variables in order."""
        own = in_order(value)
        known = {}
        for place, name in enumerate(own):
            extent = self.space.extents.get(name)
            known[name] = Poly.name(f"%v{place}:{None if extent is None else extent.ordered()}")
        return _Canonical(known).value(value), own


class _Canonical(Substitution):
    """Renames variables without simplifying."""

    def __init__(self, known: dict[str, Poly]) -> None:
        super().__init__(Space({}), known)

    def value(self, value: Any) -> Any:
        """Renames the variables of a value."""
        if isinstance(value, Op):
            return Op(value.name, tuple(map(self.value, value.args)), value.kind)
        if isinstance(value, Fold):
            return Fold(
                value.op,
                tuple(name for one in value.over for name in self.renamed(one)),
                self.value(value.body),
                value.kind,
            )
        return super().value(value)
