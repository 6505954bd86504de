"""Recognises convolutions in a graph of windows: one sum over channels and taps, whatever the reference's form.

Loops over taps, stacked shifts and sliding windows all become a list of products, each of an element of the input and
one of the weights. Their positions are sums of result positions, the channel `__c`, and tap numbers.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from kernelmate.synthesis.index_maps import Linear, existing
from kernelmate.synthesis.plan import Key, Refused
from kernelmate.synthesis.window_plan import Windows, parsed

MOST_TAPS = 128
"""Maximum number of taps that are examined: enough for 11 x 11."""

CHANNEL = "__c"


@dataclass(frozen=True, slots=True)
class Spatial:
    """An axis along which windows move.

    Attributes:
        variable: the variable of the result's position.
        axis: the axis of the input.
        stride: the distance between adjacent windows.
        first: the position of the earliest tap in the first window.
        span: the distance from the earliest to the last tap.
        steps: the distance between adjacent taps, for each axis of the taps.
    """

    variable: str
    axis: int
    stride: int
    first: int
    span: int
    steps: tuple[int, ...]

    def tap(self, taps: Sequence[int]) -> Linear:
        """Returns the offset of a tap from the earliest one, in terms of `__k0`, `__k1`, ... along the tap axes."""
        before = sum(min(0, step * (count - 1)) for step, count in zip(self.steps, taps, strict=True))
        return Linear.sum(((f"__k{axis}", step) for axis, step in enumerate(self.steps)), -before)


@dataclass(frozen=True, slots=True)
class Convolution:
    """A sum over channels and taps.

    Attributes:
        root: the key of the sum in the plan.
        rest: further values that are added to it.
        source: the key of the input.
        weights: the key of the weights.
        channel: the input's axis of channels.
        out: the variable of the results' channels.
        batch: variables of the results along which each result has its own input.
        spatial: the axes along which windows move, in the input's order.
        taps: the number of taps along each of their axes.
        at: the index of the weights, as sums of `__c`, result variables and tap numbers.
    """

    root: Key
    rest: tuple[Key, ...]
    source: Key
    weights: Key
    channel: int
    out: str
    batch: tuple[str, ...]
    spatial: tuple[Spatial, ...]
    taps: tuple[int, ...]
    at: tuple[Linear, ...]


@dataclass(frozen=True, slots=True)
class _Read:
    """A read of an array element, with the guards outside of which the value is zero."""

    key: Key
    at: tuple[Linear, ...]
    guards: frozenset[str]


def convolution_of(plan: Windows) -> Convolution:
    """Returns the convolution that a plan's outputs are computed from.

    Raises:
        Refused: there is none, or there are several, or its taps are not a regular grid.
    """
    roots = _roots(plan)
    if len(roots) != 1:
        raise Refused("it has several sums over products" if roots else "it reduces more than the elements of a window")
    (root,) = roots
    terms = list(_flat(plan, root))
    sums = [one for one in terms if plan.node(one).op == "reduce"]
    pairs = [pair for one in sums for pair in _products(plan, one)]
    rest = tuple(one for one in terms if one not in sums)
    if not pairs:
        raise Refused("none of its taps is within the input")
    reason = Refused("")
    for turned in (False, True):
        try:
            return _convolution(plan, root, rest, [pair[::-1] if turned else pair for pair in pairs])
        except Refused as error:
            reason = error
    raise reason


def _roots(plan: Windows) -> list[Key]:
    """Returns sums with a reduction among their terms, outermost first; reductions inside them are skipped."""
    found: dict[Key, None] = {}
    seen: set[Key] = set()
    stack = list(plan.outputs)
    while stack:
        key = bare(plan, stack.pop())
        if key in seen:
            continue
        seen.add(key)
        if any(plan.node(one).op == "reduce" for one in _flat(plan, key)):
            found[key] = None
        else:
            stack += plan.operands(key)
    return list(found)


def bare(plan: Windows, key: Key) -> Key:
    """Returns the key of the operand of any views and casts between floats."""
    while not plan.is_leaf(key):
        node = plan.node(key)
        floating = node.op == "cast" and node.dtype in ("float32", "float64")
        if not floating and node.op not in ("view", "reshape"):
            break
        key = plan.operands(key)[0]
    return key


def _flat(plan: Windows, key: Key) -> Iterator[Key]:
    """Yields the terms of a sum, without zeros."""
    key = bare(plan, key)
    node = plan.node(key)
    if node.op == "map" and node.data[0] == "add" and node.dtype.startswith("float"):
        for one in plan.operands(key):
            yield from _flat(plan, one)
    elif node.op != "constant" or node.data[0] != 0:
        yield key


def _products(plan: Windows, key: Key) -> list[tuple[_Read, _Read]]:
    """Returns the products that a reduction over channels, and possibly taps, sums: one for each tap."""
    variables: list[str] = []
    while plan.node(key).op == "reduce" and plan.node(key).data[0] == "sum":
        (inner,) = plan.operands(key)
        variables.append(f"__r{key[0]}")
        key = bare(plan, inner)
    long = [one for one in variables if plan.ranges[one].terms]
    if len(long) > 1:
        raise Refused("it sums products over several long axes")
    reason = Refused("it reduces more than the elements of a window")
    for channel in long or sorted(variables, key=lambda one: -plan.ranges[one].constant):
        try:
            return [
                pair for one in _flat(plan, key) for pair in _by_taps(plan, one, channel, [*{*variables} - {channel}])
            ]
        except Refused as error:
            reason = error
    raise reason


def _by_taps(plan: Windows, key: Key, channel: str, taps: list[str]) -> Iterator[tuple[_Read, _Read]]:
    """Yields the reads of a product for each combination of tap numbers."""
    counts = [plan.ranges[one].constant for one in taps]
    if math.prod(counts) > MOST_TAPS:
        raise Refused(f"its windows have more than {MOST_TAPS} elements")
    for numbers in itertools.product(*map(range, counts)):
        index = [str(one) for one in key[1]]
        for tap, number in zip(taps, numbers, strict=True):
            index = [re.sub(rf"\b{tap}\b", str(number), one) for one in index]
        one = key[0], tuple(parsed(entry).text() for entry in index)
        node = plan.node(one)
        if node.op != "map" or node.data[0] != "multiply":
            raise Refused("it sums other than products of two arrays")
        first, second = (_read(plan, operand, channel) for operand in plan.operands(one))
        if first is not None and second is not None:
            yield first, second


def _read(plan: Windows, key: Key, channel: str) -> _Read | None:
    """Returns the array element that a value equals where its guards hold, zero elsewhere; None if it is always zero."""
    guards: list[str] = []
    while not plan.is_leaf(key := bare(plan, key)):
        if plan.node(key).op == "map":
            several = list(_flat(plan, key))
            if len(several) != 1 or several[0] == key:
                raise Refused("it computes with what it multiplies before it does")
            key = several[0]
            continue
        if plan.node(key).op != "window":
            raise Refused("it sums other than products of two arrays")
        found = plan.guards(key)
        if found is None and _is_zero(plan, plan.operands(key)[0]):
            return None
        if found and not _is_zero(plan, plan.operands(key)[1]):
            raise Refused("its input is not zero beyond the border")
        guards += [re.sub(rf"\b{channel}\b", CHANNEL, one) for one in found or ()]
        key = plan.operands(key)[0]
    at = tuple(parsed(re.sub(rf"\b{channel}\b", CHANNEL, str(one))) for one in key[1])
    plan.ranges[CHANNEL] = plan.ranges[channel]
    return _Read(key, at, frozenset(guards))


def _is_zero(plan: Windows, key: Key) -> bool:
    node = plan.node(bare(plan, key))
    return node.op == "constant" and node.data[0] == 0


def _convolution(plan: Windows, root: Key, rest: tuple[Key, ...], pairs: list[tuple[_Read, _Read]]) -> Convolution:
    """Returns the convolution of products whose first factors come from the input.

    Raises:
        Refused: the factors are not elements of an input and of weights.
    """
    inputs, weights = [one for one, _ in pairs], [one for _, one in pairs]
    if len({one.key[0] for one in inputs}) > 1 or len({one.key[0] for one in weights}) > 1:
        raise Refused("its taps are of several arrays")
    own = {f"__{place}" for place in range(len(plan.domain))}
    plain, numbers = _weights(weights)
    places = {name: axis for axis, name in plain.items()}
    sides = _input(inputs, own)
    met = {name for name, _ in sides.values()}
    out = [one for one in places if one in own and one not in met]
    if len(out) != 1 or CHANNEL not in places or CHANNEL not in met or own - {*places} - met:
        raise Refused("it sums products of arrays other than an input and weights of each channel")
    channel = next(axis for axis, (name, _) in sides.items() if name == CHANNEL)
    moving = [axis for axis in sides if axis != channel and not _is_plain(inputs, axis, sides[axis])]
    last = max(axis for axis in sides if axis != channel)
    if sides[last][0] not in places:
        moving += [last] if last not in moving else []
    if not moving or len(moving) > 3 or any(sides[axis][0] in places for axis in moving):
        raise Refused("its windows move along no axis of the results, or along many")
    _refuse_other_guards(plan, inputs)
    taps, tap_axes = _grid(numbers, len(pairs))
    offsets = {axis: [one.at[axis].constant for one in inputs] for axis in moving}
    spatial = tuple(_spatial(sides[axis], axis, offsets[axis], tap_axes, taps) for axis in sorted(moving))
    if any(sum(one.steps[axis] != 0 for one in spatial) != 1 for axis in range(len(taps))):
        raise Refused("its taps lie along no axis of the input, or along several")
    if sum(step != 0 for step in spatial[-1].steps) > 1 or len(taps) > 3:
        raise Refused("several axes of taps lie along one of the input")
    batch = [name for axis, (name, _) in sides.items() if axis not in (*moving, channel)]
    return Convolution(
        root, rest, inputs[0].key, weights[0].key, channel, out[0], tuple(sorted(batch, key=lambda one: int(one[2:]))),
        spatial, taps, _at(plain, numbers, tap_axes),
    )  # fmt: skip


def _weights(reads: Sequence[_Read]) -> tuple[dict[int, str], dict[int, list[int]]]:
    """Returns the variable along each axis of the weights, and the tap numbers along the other axes."""
    plain: dict[int, str] = {}
    numbers: dict[int, list[int]] = {}
    for axis, entries in enumerate(zip(*(one.at for one in reads), strict=True)):
        terms = {entry.terms for entry in entries}
        if terms == {()}:
            numbers[axis] = [entry.constant for entry in entries]
            continue
        ((name, factor), *more), *others = terms
        if others or more or factor != 1 or any(entry.constant for entry in entries):
            raise Refused("its weights differ from place to place")
        plain[axis] = name
    if any(one.guards for one in reads) or len(set(plain.values())) != len(plain):
        raise Refused("its weights differ from place to place")
    return plain, numbers


def _at(plain: dict[int, str], numbers: dict[int, list[int]], taps: list[list[int]]) -> tuple[Linear, ...]:
    """Returns the index of a tap's weights, in terms of tap numbers."""
    at = []
    for axis in range(len(plain) + len(numbers)):
        if axis in plain:
            at.append(Linear(((plain[axis], 1),)))
            continue
        varied = [place for place, one in enumerate(taps) if one is numbers[axis]]
        at.append(Linear(tuple((f"__k{place}", 1) for place in varied), min(numbers[axis])))
    return tuple(at)


def _input(reads: Sequence[_Read], own: set[str]) -> dict[int, tuple[str, int]]:
    """Returns, for each axis of the input whose position varies, the variable and its factor."""
    found: dict[int, tuple[str, int]] = {}
    for axis, entries in enumerate(zip(*(one.at for one in reads), strict=True)):
        terms = {entry.terms for entry in entries}
        if terms == {()} and not any(entry.constant for entry in entries):
            continue
        (first, *_) = terms
        if len(terms) > 1 or len(first) != 1 or first[0][1] < 1 or first[0][0] not in {*own, CHANNEL}:
            raise Refused("it reads its input other than along windows")
        if first[0][0] in {name for name, _ in found.values()}:
            raise Refused("it reads its input along a diagonal")
        found[axis] = first[0]
    return found


def _is_plain(reads: Sequence[_Read], axis: int, side: tuple[str, int]) -> bool:
    """Returns True if an axis of the input equals an axis of the results, element by element."""
    guarded = any(re.search(rf"\b{side[0]}\b", guard) for one in reads for guard in one.guards)
    return side[1] == 1 and not guarded and not any(one.at[axis].constant for one in reads)


def _refuse_other_guards(plan: Windows, reads: Sequence[_Read]) -> None:
    """Checks that the only guards are those of the input's borders.

    Raises:
        Refused: there are others.
    """
    shape = plan.node(reads[0].key).shape
    for one in reads:
        inside = set()
        for at, side in zip(one.at, shape, strict=True):
            inside |= {at.bare(), existing(side).plus(at, -1).plus(-1).bare()}
        if not one.guards <= inside:
            raise Refused("its input is zero within its border")


def _grid(numbers: dict[int, list[int]], count: int) -> tuple[tuple[int, ...], list[list[int]]]:
    """Returns the number of taps along each axis of the taps, and their positions; each combination occurs once."""
    axes = [several for several in numbers.values() if len(set(several)) > 1]
    counts = tuple(max(several) - min(several) + 1 for several in axes)
    if len(set(_places(axes, count))) != math.prod(counts) or count != math.prod(counts):
        raise Refused("its taps are not a regular grid")
    return counts, axes


def _places(axes: Sequence[Sequence[int]], count: int) -> list[tuple[int, ...]]:
    """Returns the position of each tap along the tap axes, from zero."""
    return [tuple(several[tap] - min(several) for several in axes) for tap in range(count)]


def _spatial(
    side: tuple[str, int], axis: int, offsets: Sequence[int], axes: Sequence[Sequence[int]], taps: Sequence[int]
) -> Spatial:
    """Returns an axis along which windows move, from the offset of each tap."""
    places = _places(axes, len(offsets))
    known = dict(zip(places, offsets, strict=True))
    start = known[tuple(0 for _ in taps)]
    steps = tuple(known[tuple(int(one == place) for one in range(len(taps)))] - start for place in range(len(taps)))
    for place, offset in zip(places, offsets, strict=True):
        if offset != start + sum(step * one for step, one in zip(steps, place, strict=True)):
            raise Refused("its taps are not evenly spaced")
    ends = [step * (count - 1) for step, count in zip(steps, taps, strict=True)]
    span = sum(map(abs, ends))
    return Spatial(side[0], axis, side[1], start + sum(min(0, end) for end in ends), span, steps)
