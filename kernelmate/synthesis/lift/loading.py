"""Converts a kernel's loads to NumPy expressions: slices, padded arrays, and arrays indexed by arrays."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from kernelmate.checks.reference import spelled
from kernelmate.synthesis.lift.domains import Domains
from kernelmate.synthesis.lift.polynomials import Atom, NotLifted, Poly
from kernelmate.synthesis.lift.values import ArrayLoad, Fold, Index, free, walk


@dataclass(frozen=True)
class Axis:
    """Access to one axis of an array.

    Attributes:
        variable: the variable along the axis; None for a single element.
        stride, offset: the index is `stride * variable + offset`; the offset may contain taps.
        mode: mode of `np.pad` if the index leaves the array.
        data: an index that is not a slice.
    """

    side: Poly
    variable: str | None
    stride: Poly
    offset: Poly
    mode: str = ""
    data: Poly | None = None


Pad = tuple[Poly, Poly]


class Loading:
    """Converts reads of arrays to NumPy slices. `taps` are the variables of loops in the lifted function."""

    def __init__(self, domains: Domains) -> None:
        self.domains, self.space = domains, domains.space
        self.taps: dict[str, str] = {}
        self.pads: dict[tuple[str, tuple[Poly, ...]], tuple[str, list[Pad]]] = {}

    def find_taps(self, value: Any) -> None:
        """Determines the reductions that become loops, and the padding that arrays need."""
        for one in walk(value):
            if isinstance(one, Fold):
                for load in walk(one.body):
                    if isinstance(load, ArrayLoad):
                        self._shared_axes(one, load)

    def _shared_axes(self, one: Fold, load: ArrayLoad) -> None:
        for index in self.domains.placed(load.array, load.at)[1]:
            names = free(Index(index))
            mine = [name for name in one.over if name in names]
            if len(names) < 2 or not mine or any(isinstance(f, Atom) and f.kind == "data" for f in index.factors()):
                continue
            for name in sorted(mine, key=lambda n: (self.space.extents[n] or Poly.number(0)).constant or 10**9)[
                : len(names) - 1
            ]:
                if name not in self.taps:
                    self.taps[name] = "kji"[len(self.taps) % 3] + ("" if len(self.taps) < 3 else str(len(self.taps)))

    def find_pads(self, value: Any) -> None:
        """Records the padding that the loads of a value need."""
        for one in walk(value):
            if isinstance(one, ArrayLoad):
                shape, axes = self.axes(one)
                self._note(one.array, shape, axes)

    def _note(self, array: str, shape: tuple[Poly, ...], axes: Sequence[Axis]) -> None:
        if any(axis.data is not None for axis in axes):
            return
        wanted = [self._pad(axis) for axis in axes]
        modes = {axis.mode for axis, pad in zip(axes, wanted, strict=True) if any(one.terms for one in pad)}
        if not modes:
            return
        if len(modes) > 1:
            raise NotLifted(f"{array} is continued beyond its ends in two ways")
        mode = modes.pop()
        key = (array, shape)
        before = self.pads.get(key)
        if before is not None and before[0] != mode:
            raise NotLifted(f"{array} is continued beyond its ends in two ways")
        old = [(Poly.number(0), Poly.number(0))] * len(axes) if before is None else before[1]
        self.pads[key] = (
            mode,
            [(self._greater(a[0], b[0]), self._greater(a[1], b[1])) for a, b in zip(old, wanted, strict=True)],
        )

    def _greater(self, first: Poly, second: Poly) -> Poly:
        if self.space.not_negative(first - second):
            return first
        if self.space.not_negative(second - first):
            return second
        raise NotLifted("two distances from an element of which neither is known to be the larger")

    def axes(self, load: ArrayLoad) -> tuple[tuple[Poly, ...], list[Axis]]:
        """Returns the shape that an array is read in, and the access to each axis."""
        shape, indices = self.domains.placed(load.array, load.at)
        return shape, [self._axis(side, index) for side, index in zip(shape, indices, strict=True)]

    def _axis(self, side: Poly, index: Poly) -> Axis:
        lone = index.lone
        if isinstance(lone, Atom) and lone.kind in ("least", "most", "remainder"):
            inner = _clipped(index, side)
            if inner is not None:
                found = self._axis(side, inner[1])
                return Axis(side, found.variable, found.stride, found.offset, inner[0], found.data)
        if any(isinstance(one, Atom) and free(Index(Poly.name(one))) for one in index.factors()):
            return Axis(side, None, Poly.number(0), Poly.number(0), data=index)
        names = [name for name in sorted(free(Index(index))) if name not in self.taps]
        if not names:
            return Axis(side, None, Poly.number(0), index, "constant")
        stride = index.coefficient(names[0])
        offset = index - stride * Poly.name(names[0])
        if len(names) > 1 or names[0] in free(Index(offset)) or free(Index(stride)):
            return Axis(side, None, Poly.number(0), Poly.number(0), data=index)
        if (stride.constant or 1) < 0 and not (
            stride.constant == -1 and offset == side - 1 and self.space.extents[names[0]] == side
        ):
            return Axis(side, None, Poly.number(0), Poly.number(0), data=index)
        return Axis(side, names[0], stride, offset, "constant")

    def _pad(self, axis: Axis) -> Pad:
        """Returns the padding that an index needs before and after an axis."""
        zero = Poly.number(0)
        if axis.variable is None and not free(Index(axis.offset)):
            return zero, zero
        if axis.stride.constant is not None and axis.stride.constant < 0:
            return zero, zero
        low, high = self._ends(axis.offset)
        extent = Poly.number(1) if axis.variable is None else self.space.extents[axis.variable]
        if extent is None:
            raise NotLifted("it is not known how far an index goes")
        last = high + axis.stride * (extent - 1) + 1 - axis.side
        return self._missing(-low), self._missing(last)

    def _missing(self, amount: Poly) -> Poly:
        if self.space.not_negative(-amount):
            return Poly.number(0)
        if self.space.not_negative(amount):
            return amount
        if all(one <= 0 for one in self.domains.at_sizes(amount)):
            return Poly.number(0)
        raise NotLifted("an index that leaves its array at some sizes only")

    def _ends(self, offset: Poly) -> tuple[Poly, Poly]:
        low = high = offset
        for name in free(Index(offset)):
            scale, extent = offset.coefficient(name), self.space.extents[name]
            if extent is None or (scale.constant is None and not self.space.not_negative(scale)):
                raise NotLifted("a distance that has no bound")
            far = scale * (extent - 1)
            low, high = low - scale * Poly.name(name), high - scale * Poly.name(name)
            if (scale.constant or 1) > 0:
                high = high + far
            else:
                low = low + far
        return low, high

    def sliced(self, load: ArrayLoad, text: Callable[[Poly], str]) -> tuple[str, tuple[str, ...]]:
        """Returns the text that reads an array by slices, and the variables along its axes."""
        shape, axes = self.axes(load)
        base = self.base(load.array, shape, text)
        pads = self.pads.get((load.array, shape), ("", [(Poly.number(0), Poly.number(0))] * len(axes)))[1]
        pieces = [self._piece(axis, pad, text) for axis, pad in zip(axes, pads, strict=True)]
        variables = tuple(axis.variable for axis in axes if axis.variable is not None)
        while pieces and pieces[-1] == ":":
            pieces.pop()
        return f"{base}[{', '.join(pieces)}]" if pieces else base, variables

    def base(self, array: str, shape: tuple[Poly, ...], text: Callable[[Poly], str]) -> str:
        """Returns the text of an array, padded or reshaped if needed."""
        name = spelled(array)
        if (array, shape) in self.pads:
            return (
                f"padded_{name}"
                if len([one for one in self.pads if one[0] == array]) == 1
                else f"padded_{name}_{len(shape)}"
            )
        return name if shape == self.domains.shapes[array] else f"{name}.reshape({', '.join(map(text, shape))})"

    def _piece(self, axis: Axis, pad: Pad, text: Callable[[Poly], str]) -> str:
        start, whole = axis.offset + pad[0], axis.side + pad[0] + pad[1]
        if axis.variable is None:
            return text(start)
        extent = self.space.extents[axis.variable]
        assert extent is not None
        if axis.stride.constant == -1:
            return "::-1"
        first = text(start) if start.terms else ""
        if axis.stride.constant == 1:
            return f"{first}:" if start + extent == whole else f"{first}:{text(start + extent)}"
        end = start + axis.stride * (extent - 1) + 1
        fits = start.constant is not None and axis.stride * extent == whole
        return f"{first}:{'' if fits else text(end)}:{text(axis.stride)}"


def _clipped(index: Poly, side: Poly) -> tuple[str, Poly] | None:
    """Returns the index inside clamps or a remainder of an axis, and the corresponding mode of `np.pad`; else None."""
    lone = index.lone
    if not isinstance(lone, Atom):
        return None
    if lone.kind == "remainder":
        return ("wrap", lone.args[0]) if lone.args[1] == side else None
    for one, other in (lone.args, lone.args[::-1]):
        if one == (side - 1 if lone.kind == "least" else Poly.number(0)):
            inner = _clipped(other, side)
            return ("edge", other) if inner is None else inner
    return None
