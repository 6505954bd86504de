"""Subscripts that are linear in the index of a loop over a size."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from kernelmate.synthesis.arrays import Array, Builder
from kernelmate.synthesis.index_maps import Linear, linear
from kernelmate.synthesis.loops import TracedLoop

Axes: TypeAlias = "list[int | None]"


@dataclass(frozen=True, slots=True)
class LoopPlace:
    """An integer that is linear in a loop's index: `offset + step * index`."""

    loop: TracedLoop
    offset: Linear
    step: int


def place_of(key: Any) -> LoopPlace | None:
    """Returns an index as a linear function of a loop's index; None for other keys."""
    if not isinstance(key, Array) or key.ndim or not key.loops or key.dtype.kind not in "iu":
        return None
    found = linear_of(key.builder, key.node)
    if found is None or found[0] is None or len(key.loops) != 1:
        return None
    return LoopPlace(found[0], found[1], found[2])


def linear_of(builder: Builder, index: int) -> tuple[TracedLoop | None, Linear, int] | None:
    """Returns the loop, offset and step of an integer that is linear in at most one loop's index; None for others."""
    node = builder.nodes[index]
    match node.op:
        case "iota" if builder.batches.get(index):
            return builder.batches[index][0], Linear(), 1
        case "size":
            return None, linear(str(node.data[0])), 0
        case "constant" if not node.dtype.startswith("float"):
            return None, Linear((), int(node.data[0] or 0)), 0
        case "view" | "cast":
            return linear_of(builder, node.args[0])
        case "map" if node.data[0] in ("add", "subtract", "multiply"):
            first, second = (linear_of(builder, one) for one in node.args)
            if first is None or second is None:
                return None
            if node.data[0] == "multiply":
                for one, other in ((first, second), (second, first)):
                    if other[0] is None and not other[1].terms:
                        return one[0], one[1].times(other[1].constant), one[2] * other[1].constant
                return None
            sign = 1 if node.data[0] == "add" else -1
            if first[0] is not None and second[0] is not None and first[0] is not second[0]:
                return None
            return first[0] or second[0], first[1].plus(second[1], sign), first[2] + sign * second[2]
    return None


def depends(keys: Sequence[Any]) -> bool:
    """Returns True if an index or a slice's bound varies between iterations."""
    bounds = [bound for one in keys for bound in ((one.start, one.stop) if isinstance(one, slice) else (one,))]
    return any(isinstance(one, Array) and one.loops and not one.ndim for one in bounds)


def loops_of(key: Any) -> Iterator[TracedLoop]:
    """Yields the loops on which an index or a slice's bounds depend."""
    for one in (key.start, key.stop) if isinstance(key, slice) else (key,):
        if isinstance(one, Array):
            yield from one.loops


def signature_in(loop: TracedLoop, keys: Sequence[Any]) -> tuple[tuple[int, int | str], ...]:
    """Returns the keys that depend on a loop, with their positions."""
    return tuple((place, signature(one)) for place, one in enumerate(keys) if loop in loops_of(one))


def others_in(loop: TracedLoop, keys: Sequence[Any]) -> tuple[int | str, ...]:
    """Returns the keys that do not depend on a loop."""
    return tuple(signature(one) for one in keys if loop not in loops_of(one))


def signature(key: Any) -> int | str:
    """Returns the identity of a key: its node, or its text."""
    return key.node if isinstance(key, Array) else str(key)
