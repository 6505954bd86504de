"""Scans that loops of references compute: states that each iteration only combines with one more value."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from kernelmate.synthesis.arrays import Array, Builder, cast
from kernelmate.synthesis.primitives import spread, where
from kernelmate.synthesis.ragged import reduced_rows
from kernelmate.synthesis.sizes import Untraceable
from kernelmate.synthesis.ufuncs import mapped

if TYPE_CHECKING:
    from kernelmate.synthesis.loops import TracedLoop
    from kernelmate.synthesis.recurrences import State

_COMBINING = {"add": "sum", "multiply": "prod", "maximum": "max", "minimum": "min"}


def scanned_state(loop: TracedLoop, builder: Builder, state: State) -> Array | None:
    """Converts a state that is only summed, multiplied or bounded to a scan; returns its last value.

    The result is None for any other state.
    """
    nodes, placeholder = builder.nodes, state.placeholder
    assert state.following is not None
    found = _combined(loop, builder, state)
    if loop.rows is not None:
        if (
            found is None
            or found.kind == "logaddexp"
            or _is_read(builder, placeholder.node, [state.following.node], state.following.node)
        ):
            raise Untraceable(
                "a loop over a row's elements between two offsets that does more than reduce values of these elements"
            )
        return _continued(state.start, reduced_rows(loop, found.value, found.kind), found.kind)
    if found is None:
        return None
    kind, value = found.kind, found.value
    if kind != "sum" and _is_read(builder, placeholder.node, found.inside):
        return None  # the value before a turn cannot be found from the one after it
    loops = tuple(builder.open)
    shape, place = nodes[placeholder.node].shape, loops.index(loop)
    sides = [builder.dim(text) for text in shape]
    wide = spread(cast(value, placeholder.dtype), loops, placeholder.ndim)
    if nodes[wide].shape != shape:
        zero = builder.put("constant", (), sides, placeholder.dtype, (0,), loops)
        wide = builder.put("map", [wide, zero.node], sides, placeholder.dtype, ("add",), loops).node
    scan = builder.put("scan", [wide], sides, placeholder.dtype, (kind, place, loop.backwards), loops)
    after = scan if found.anew else _continued(state.start, scan, kind)
    if kind == "sum":
        before: Array = after - value
        builder.instead[placeholder.node] = before.node, loop.number
    builder.instead[state.following.node] = after.node, loop.number
    kept = tuple(one for one in loops if one is not loop)
    if kind == "logaddexp":
        total = _log_sum(builder, wide, sides, place, kept)
    else:
        rest = sides[:place] + sides[place + 1 :]
        total = builder.put("reduce", [wide], rest, placeholder.dtype, (kind, place), kept)
    return total if found.anew else _continued(state.start, total, kind)


def _log_sum(builder: Builder, wide: int, sides: Sequence[int], place: int, kept: tuple[TracedLoop, ...]) -> Array:
    """Returns the logarithm of the sum of exponentials along an axis of a node, which is the axis of a loop."""
    dtype, loops, rest = builder.nodes[wide].dtype, tuple(builder.open), [*sides[:place], *sides[place + 1 :]]
    largest = builder.put("reduce", [wide], rest, dtype, ("max", place), kept)
    lifted = [*range(place), None, *range(place, len(rest))]
    spread_out = builder.put("view", [largest.node], [*sides[:place], 1, *sides[place + 1 :]], dtype, lifted, loops)
    shifted = builder.put("map", [wide, spread_out.node], sides, dtype, ("subtract",), loops)
    powers = builder.put("map", [shifted.node], sides, dtype, ("exp",), loops)
    total = builder.put("reduce", [powers.node], rest, dtype, ("sum", place), kept)
    logarithm = builder.put("map", [total.node], rest, dtype, ("log",), kept)
    return builder.put("map", [logarithm.node, largest.node], rest, dtype, ("add",), kept)


def _continued(start: Array, value: Array, kind: str) -> Array:
    """Returns the loop's start value combined with a value computed from all iterations."""
    if _is_neutral(start, kind):
        return value
    if kind == "logaddexp":
        continued: Array = value.builder.operations[kind](start, value)
        return continued
    return mapped(value.builder, _UFUNCS[kind], (start, value))


@dataclass(frozen=True, slots=True)
class _Combined:
    """A state that each iteration combines with one more value.

    Attributes:
        kind: the kind of the scan.
        value: what an iteration adds.
        inside: the nodes of the next state that may read the state.
        anew: True if the first iteration takes its value without the start value.
    """

    kind: str
    value: Array
    inside: Sequence[int]
    anew: bool = False


def _combined(loop: TracedLoop, builder: Builder, state: State) -> _Combined | None:
    """Returns the scan that a state is, and the value that each iteration adds; None for other states."""
    assert state.following is not None
    top, chosen = state.following.node, None
    node = builder.nodes[top]
    if (
        node.op == "map"
        and node.data[0] == "where"
        and loop.peeled
        and _of_view(builder, node.args[0]) == loop.is_first().node
    ):
        chosen = Array(builder, node.args[1])
        top = node.args[2]
        node = builder.nodes[top]
    inside = [state.following.node, *(_log_sum_nodes(builder, top, state) or [top])]
    kind = "logaddexp" if len(inside) > 2 else _COMBINING.get(str(node.data[0]), "") if node.op == "map" else ""
    operands = builder.nodes[inside[2]].args if len(inside) > 2 else node.args
    others = [one for one in operands if one != state.placeholder.node]
    if not kind or len(others) != 1 or len(operands) != 2 or builder.depends(others[0], loop.number):
        return None
    if kind in ("max", "min") and state.placeholder.dtype.kind != "f":
        return None
    if chosen is not None and loop.peeled > 1:
        return None  # in the first turns it is the sum itself that is chosen
    value = Array(builder, others[0])
    if chosen is not None and chosen.node != value.node:
        value = where(loop.is_first(), chosen, value)
    return _Combined(kind, value, inside, chosen is not None)


def _of_view(builder: Builder, index: int) -> int:
    """Returns the node that a node is a view of, or the node itself."""
    node = builder.nodes[index]
    return node.args[0] if node.op == "view" else index


def _log_sum_nodes(builder: Builder, top: int, state: State) -> list[int]:
    """Returns the nodes of a `logaddexp` of the state and another value; none for another operation.

    They are the sum, its operand `maximum`, and its other operand's nodes down to the difference.
    """
    nodes = builder.nodes
    if nodes[top].op != "map" or nodes[top].data != ("add",):
        return []
    larger, smaller = nodes[top].args
    chain = [smaller]
    for name in ("log1p", "exp", "negative", "absolute"):
        if nodes[chain[-1]].op != "map" or nodes[chain[-1]].data != (name,):
            return []
        chain.append(nodes[chain[-1]].args[0])
    pair = nodes[chain[-1]]
    names = nodes[larger].op, nodes[larger].data, pair.op, pair.data
    if names != ("map", ("maximum",), "map", ("subtract",)) or {*pair.args} != {*nodes[larger].args}:
        return []
    return [top, larger, *chain] if state.placeholder.node in pair.args else []


_UFUNCS = {"sum": np.add, "prod": np.multiply, "max": np.maximum, "min": np.minimum}


def _is_read(builder: Builder, placeholder: int, inside: Sequence[int], *more: int) -> bool:
    """Returns True if a value other than the next state, or those computed on the way to it, depends on the state."""
    values = {placeholder, *more}
    return any(values & {*node.args} and index not in inside for index, node in enumerate(builder.nodes))


_NEUTRAL = {"sum": 0, "prod": 1, "max": -np.inf, "min": np.inf, "logaddexp": -np.inf}


def _is_neutral(start: Array, kind: str) -> bool:
    nodes = start.builder.nodes
    node = nodes[start.node]
    if (
        node.op == "map"
        and node.mapped == "add"
        and nodes[node.args[1]].op == "constant"
        and not nodes[node.args[1]].data[0]
    ):
        node = nodes[node.args[0]]  # a number for all elements, as `np.full` makes it
    return node.op == "constant" and node.data[0] == _NEUTRAL[kind]
