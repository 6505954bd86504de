"""Sizes chosen from a candidate's conditions: each is made true and false, and its boundary is tried."""

from __future__ import annotations

import math
import random
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from kernelmate.checks.alignment import shifted_together
from kernelmate.checks.sizes import USUAL, key_of, threads_at, usable
from kernelmate.errors import ContractError
from kernelmate.records import Contract, LaunchShape, Size
from kernelmate.source import launch_shape, scalar_values
from kernelmate.source.conditions import Condition
from kernelmate.source.size_expressions import Lookup, Value

MOST_DIRECTED = 12
"""Maximum number of sizes for one candidate's conditions."""

MOST_ELEMENTS = 1 << 20
MOST_THREADS = 1 << 19
"""Maximum number of elements over all arrays, and of threads, at such a size: a fraction of a second in the emulator.
"""

MOST_VALUES = 160
"""Maximum number of values tried for one name."""

DRAWS = 150
"""Number of value pairs tried if no single name makes the condition true or false."""

PROBED = 12
"""Maximum number of sizes per goal that are tested for a valid launch."""

SWEPT = 400
"""All values below this are tried for one name if the values suggested by constants do not suffice."""

MOST_SWEPT = 4000
"""Limit in place of `SWEPT` for a condition with a remainder: up to twice its largest constant, but at most this."""

MOST_EVALUATED = 6000
"""Maximum number of condition evaluations in one verdict: some tens of milliseconds."""

MOST_UNKNOWN = 6
"""Maximum number of sizes around constants in conditions that cannot be evaluated."""

Goal = Callable[[Lookup], bool]


@dataclass(slots=True)
class SizeLookup:
    """Evaluates names at sizes.

    Args:
        contract: defines launch and scalars.
        thread: True evaluates thread and block indices as those of the last thread; else they are unknown.
        moved: True evaluates an array's address as the smallest that its promised alignment allows; else it is unknown.
    """

    contract: Contract
    thread: bool = True
    moved: bool = False
    shapes: dict[tuple[tuple[str, int], ...], LaunchShape | None] = field(default_factory=dict)

    def at(self, size: Size) -> Lookup:
        """Returns the lookup of names at a size."""

        def value(name: str) -> Value:
            if name in size:
                return size[name]
            index, _, axis = name.partition(".")
            return self._index(index, axis, size) if axis else self._scalar(name, size)

        return value

    def _scalar(self, name: str, size: Size) -> Value:
        argument = next((a for a in self.contract.args if a.name == name.removeprefix("&")), None)
        if argument is None:
            return None
        if argument.shape is not None:
            return dict(shifted_together(self.contract))[argument.name] if self.moved else None
        if name.startswith("&"):
            return None
        try:
            return scalar_values(self.contract, size).get(name)
        except ContractError:
            return None

    def _index(self, index: str, axis: str, size: Size) -> Value:
        if index in ("threadIdx", "blockIdx") and not self.thread:
            return None
        key = key_of(size)
        if key not in self.shapes:
            try:
                self.shapes[key] = launch_shape(self.contract, size)
            except ContractError:
                self.shapes[key] = None
        shape = self.shapes[key]
        if shape is None or axis not in "xyz":
            return None
        sides = shape.grid if index in ("gridDim", "blockIdx") else shape.block
        return sides["xyz".index(axis)] - (index in ("threadIdx", "blockIdx"))


@dataclass(frozen=True, slots=True)
class DirectedSizes:
    """Sizes to try, and a sentence for each condition that only sizes above the limits would reach."""

    sizes: tuple[Size, ...]
    beyond: tuple[str, ...]


def directed_sizes(contract: Contract, tried: Sequence[Size], conditions: Sequence[Condition]) -> DirectedSizes:
    """Chooses sizes at which conditions that had one outcome at all tried sizes have the other one.

    Args:
        contract: the contract of the version under judgement; its `require` limits the sizes.
        tried: sizes that are tried anyway.
        conditions: conditions of the version's text that its baseline lacks.
    """
    if not tried or not tried[0]:
        return DirectedSizes((), ())
    return _Search(contract, list(tried)).all(conditions)


class _Search:
    def __init__(self, contract: Contract, tried: list[Size]) -> None:
        self.contract, self.tried, self.found = contract, tried, list[Size]()
        self.names = list(tried[0])
        self.lookups, self.around = SizeLookup(contract), SizeLookup(contract, thread=False)
        self.most_threads = max(MOST_THREADS, min(threads_at(contract, size) for size in tried))
        self.base: Size = {name: min(min(USUAL, size[name]) for size in tried[:1]) for name in self.names}
        self.beyond: dict[str, str] = {}
        self.left = MOST_EVALUATED
        lookup = self.lookups.at(tried[0])
        sides = [lookup(f"blockDim.{axis}") for axis in "xyz"]
        self.threads = math.prod(int(side) for side in sides if side is not None)

    def all(self, conditions: Sequence[Condition]) -> DirectedSizes:
        usual = [one for one in conditions if self._support(one)]
        for kinds in (_truths, _boundaries):
            for condition in usual:
                for goal in kinds(condition):
                    self._reach(condition, goal)
        self._unknown([one for one in conditions if self._unseen(one)])
        return DirectedSizes(tuple(self.found), tuple(self.beyond.values()))

    def _support(self, condition: Condition) -> list[str]:
        """Returns the size names that a condition depends on: all if it uses the grid or a derived scalar."""
        used: frozenset[str] = frozenset() if condition.expression is None else condition.expression.names
        if any(name.startswith(("gridDim", "blockIdx")) for name in used):
            return self.names
        scalars = {a.name for a in self.contract.args if a.shape is None and a.name not in self.names}
        return self.names if used & scalars else [name for name in self.names if name in used]

    def _unseen(self, condition: Condition) -> bool:
        """Returns True if the condition cannot be evaluated at a size and is not a constant."""
        if condition.expression is None:
            return True
        known = condition.holds(self.lookups.at(self.tried[0])) is not None
        return not known and bool(condition.expression.names)

    def _reach(self, condition: Condition, goal: Goal) -> None:
        def reached(size: Size) -> bool:
            # The last thread often returns early, while another thread reaches the condition.
            return goal(self.lookups.at(size)) and condition.reached(self.around.at(size)) is not False

        if len(self.found) >= MOST_DIRECTED or any(reached(size) for size in (*self.tried, *self.found)):
            return
        probed, seen = 0, set[tuple[tuple[str, int], ...]]()
        for size in self._candidates(condition):
            self.left -= 1
            if self.left < 0:
                break
            key = key_of(size)
            if key in seen or not reached(size):
                continue
            seen.add(key)
            if self._fits(size):
                self.found.append({name: size[name] for name in self.names})
                return
            probed += 1
            if probed == PROBED:
                break
        if seen and condition.text not in self.beyond:
            smallest = min((dict(key) for key in seen), key=lambda size: sum(size.values()))
            at = ", ".join(f"{name} = {smallest[name]}" for name in self.names)
            self.beyond[condition.text] = f"`{condition.text}` goes another way at {at}, which was not tried"

    def _fits(self, size: Size) -> bool:
        return usable(self.contract, size, self.most_threads, MOST_ELEMENTS)

    def _candidates(self, condition: Condition) -> Iterator[Size]:
        assert condition.expression is not None
        constants = set(condition.expression.constants)
        for guard, _ in condition.guards:
            constants |= set() if guard is None else guard.constants
        support = self._support(condition)
        if any(name.partition(".")[0] in ("gridDim", "blockIdx", "threadIdx") for name in condition.expression.names):
            constants.add(self.threads)
        values = _values(constants)
        for value in values:
            for name in support:
                yield {**self.base, name: value}
        for value in values:
            yield {**self.base, **dict.fromkeys(support, value)}
        swept = min(2 * max(constants, default=0), MOST_SWEPT) if "%" in condition.text else 0
        for value in range(2, max(SWEPT, swept)):
            for name in support:
                yield {**self.base, name: value}
        if len(self.names) > 1:
            draw = random.Random(len(values))  # noqa: S311 -- places to look at, no secrets
            pool = [*values, *range(2, 40)]
            for _ in range(DRAWS):
                yield {**self.base, **{name: draw.choice(pool) for name in self.names}}

    def _unknown(self, conditions: Sequence[Condition]) -> None:
        """Adds sizes at and above constants in conditions that cannot be evaluated."""
        most = min(MOST_DIRECTED, len(self.found) + MOST_UNKNOWN)
        numbers = {int(word) for one in conditions for word in re.findall(r"(?<![\w.])\d{1,10}(?![\w.])", one.text)}
        for number in sorted(number for number in numbers if number > 2):
            for value in (number + 1, number):
                for name in self.names:
                    size = {**self.base, name: value}
                    known = any(other[name] == value for other in (*self.tried, *self.found))
                    if len(self.found) < most and not known and self._fits(size):
                        self.found.append(size)


def _truths(condition: Condition) -> Iterator[Goal]:
    """Yields the goals of making the condition true and false; an unknown outcome also meets a goal.

    An assumption need only be made false.
    """
    for truth in (False,) if condition.assumed else (True, False):

        def goal(lookup: Lookup, truth: bool = truth) -> bool:
            found = condition.holds(lookup)
            return found is truth or (found is None and not condition.assumed)

        yield goal


def _boundaries(condition: Condition) -> Iterator[Goal]:
    """Yields goals for each comparison with a constant: equal sides, and sides that differ by 1 and by -1."""
    if condition.expression is None or condition.assumed:
        return
    for left, right in condition.expression.sides:
        if left.names and right.names:
            continue
        for apart in (0, 1, -1):

            def goal(lookup: Lookup, left=left, right=right, apart: int = apart) -> bool:  # type: ignore[no-untyped-def]
                first, second = left.value(lookup), right.value(lookup)
                return first is not None and second is not None and first - second == apart

            yield goal


def _values(constants: set[int]) -> list[int]:
    """Returns values for a name: numbers near a condition's constants and their products, and remainders by them."""
    some = sorted(one for one in constants if one > 0)[:16]
    around = {one + step for one in some for step in (-1, 0, 1)}
    around |= {one * other + step for one in some for other in some for step in (-1, 0, 1)}
    for modulus in some:
        if 2 <= modulus <= 4096:
            rests = {0, 1, modulus - 1, *(one for one in constants if 0 <= one < modulus)}
            for start in (1, USUAL + 1, *some, *(modulus * one for one in some)):
                around |= {(start // modulus + step) * modulus + rest for rest in rests for step in (0, 1)}
    return sorted(one for one in around | set(range(2, 20)) if 0 < one < 2**31)[:MOST_VALUES]
