"""Shared memory of a block, modelled by its writes: a read has the value of the thread that wrote the element."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from kernelmate.synthesis.lift.flattening import flatten, fresh
from kernelmate.synthesis.lift.polynomials import NotLifted, Poly, Space
from kernelmate.synthesis.lift.threads import ThreadBlock
from kernelmate.synthesis.lift.values import (
    FALSE,
    MAP_OF,
    NEUTRAL,
    TRUE,
    Index,
    Number,
    Op,
    Spread,
    Substitution,
    fold,
    free,
    joined,
    operation,
    parts,
)

Place = tuple[Poly, ...]


@dataclass(frozen=True)
class Write:
    """One assignment; `op` is the reduction of an atomic operation, and `loops` are the enclosing loops."""

    at: Place
    value: Any
    path: tuple[Any, ...]
    epoch: int
    loops: tuple[str, ...]
    op: str = ""


@dataclass
class SharedArray:
    """An array in shared memory; `reads` has the indices that were read, with their epochs and guards."""

    name: str
    kind: str
    sides: tuple[int | None, ...]
    writes: list[Write] = field(default_factory=list)
    reads: list[tuple[Place, int, tuple[Any, ...]]] = field(default_factory=list)


@dataclass(frozen=True)
class _Cell:
    """Contents of an element: the threads whose values it combines, the thread that wrote it, and the epoch."""

    members: int
    thread: int
    epoch: int
    spread: Spread


class SharedAccesses:
    """Reads and writes of shared arrays, by epoch; barriers separate epochs."""

    def __init__(self, block: ThreadBlock, space: Space) -> None:
        self.block, self.space = block, space

    def write(self, array: SharedArray, write: Write) -> None:
        """Records an assignment.

        Raises:
            NotLifted: another thread reads the element with no barrier in between.
        """
        for at, epoch, path in array.reads:
            if epoch == write.epoch and at != write.at and not write.op and self._meet(at, path, write):
                raise NotLifted(f"a race: {array.name} is written and read with no barrier between")
        array.writes.append(write)

    def _meet(self, at: Place, path: tuple[Any, ...], write: Write) -> bool:
        """Returns True if another thread may read a written element."""
        read = [self.block.integers(one) for one in at]
        written = [self.block.integers(one) for one in write.at]
        if any(one is None for one in (*read, *written)):
            return True
        readers, writers = self.block.active(path), self.block.active(write.path)
        everyone = [()] * self.block.count
        cells = {
            key: thread
            for thread, key in enumerate(zip(*written, strict=True) if written else everyone)
            if writers[thread]
        }
        reading = enumerate(zip(*read, strict=True) if read else everyone)
        return any(cells.get(key, thread) != thread for thread, key in reading if readers[thread])

    def read(self, array: SharedArray, at: Place, path: tuple[Any, ...], epoch: int, loops: tuple[str, ...]) -> Any:
        """Returns the value of an element.

        Raises:
            NotLifted: it was not certainly written, threads disagree on it, or no barrier precedes the read.
        """
        array.reads.append((at, epoch, path))
        if not array.writes:
            raise NotLifted(f"{array.name} is read before it is written")
        if all(
            write.at == at and write.loops == loops[: len(write.loops)] and not write.op for write in array.writes[-1:]
        ):
            last = array.writes[-1]
            if set(last.path) <= set(path):
                return last.value
        by_thread = self._by_thread(array, at, path, epoch)
        try:
            plain = self._plain(array, at, path, epoch, loops)
        except NotLifted:
            if by_thread is None:
                raise
            plain = None
        if by_thread is None:
            return plain
        if len({m for m, on in zip(by_thread.members, self.block.active(path), strict=True) if on}) == 1:
            return self.block.resolved(by_thread, path) if self._resolves(by_thread, path) else by_thread
        return Spread(by_thread.op, by_thread.base, by_thread.members, plain, by_thread.kind)

    def _resolves(self, value: Spread, path: tuple[Any, ...]) -> bool:
        try:
            self.block.resolved(value, path)
        except NotLifted:
            return False
        return True

    # ------------------------------------------------------------------------------------------- thread by thread

    def _by_thread(self, array: SharedArray, at: Place, path: tuple[Any, ...], epoch: int) -> Spread | None:
        """Returns each thread's read as a set of threads; None if it depends on more than the thread."""
        read = [self.block.integers(one) for one in at]
        cells: dict[Any, _Cell] = {}
        spreads: list[Spread] = []
        if any(one is None for one in read):
            return None
        for write in array.writes:
            spread = self._as_spread(write, spreads)
            places = [self.block.integers(one) for one in write.at]
            known = [self.block.truth(one) for one in write.path if free(one) & set(self.block.names)]
            if spread is None or write.loops or any(one is None for one in (*places, *known)):
                return None
            active = self.block.active(write.path)
            spreads.append(spread)
            for thread, key in enumerate(zip(*places, strict=True) if places else [()] * self.block.count):
                if active[thread]:
                    members = spread.members[thread]
                    if write.op and key in cells and (cells[key].spread.base == spread.base or not cells[key].members):
                        members |= cells[key].members
                    cells[key] = _Cell(members, thread, write.epoch, spread)
        return self._gathered(array, read, cells, path, epoch)

    def _as_spread(self, write: Write, before: Sequence[Spread]) -> Spread | None:
        op = write.op
        if isinstance(write.value, Spread):
            return write.value
        for one in reversed(before):
            found = self.block.spread(write.value, one.base, op or one.op)
            if found is not None:
                return found
        if isinstance(write.value, Number | Index) and not free(write.value):
            return (
                Spread("", write.value, (0,) * self.block.count, write.value, write.value.kind) if not before else None
            )
        if not free(write.value) & set(self.block.names):
            return None
        return Spread(op, write.value, self.block.own(), write.value, write.value.kind)

    def _gathered(
        self, array: SharedArray, read: list[Any], cells: dict[Any, _Cell], path: tuple[Any, ...], epoch: int
    ) -> Spread | None:
        active = self.block.active(path)
        members: list[int] = []
        found: list[Spread] = []
        for thread, key in enumerate(zip(*read, strict=True) if read else [()] * self.block.count):
            cell = cells.get(key)
            if not active[thread] or cell is None:
                if active[thread]:
                    return None
                members.append(-1)
                continue
            if cell.epoch == epoch and cell.thread != thread:
                raise NotLifted(f"a race: {array.name} is read by other threads with no barrier after it is written")
            members.append(cell.members)
            if not any(one is cell.spread for one in found):
                found.append(cell.spread)
        if not found or any(one.base != found[0].base for one in found):
            return None
        op = next((one.op for one in found if one.op), "")
        return Spread(op, found[0].base, tuple(members), None, found[0].kind)

    # ---------------------------------------------------------------------------------------------- as expressions

    def _plain(self, array: SharedArray, at: Place, path: tuple[Any, ...], epoch: int, loops: tuple[str, ...]) -> Any:
        pieces: list[tuple[Any, Any]] = []
        for write in reversed(array.writes):
            closed = [name for name in write.loops if name not in loops]
            found = self._solved(array, write, at, path, [*self.block.names, *closed], epoch)
            if found is None:
                continue
            condition, value = found
            pieces.append((condition, value))
            if not write.op and condition == TRUE:
                break
        if not pieces:
            raise NotLifted(f"an element of {array.name} is read that nothing was written to")
        return self._layered(pieces, array)

    def _layered(self, pieces: list[tuple[Any, Any]], array: SharedArray) -> Any:
        """Combines later writes over earlier ones; the earliest applies to all remaining elements."""
        result: Any = None
        for condition, value in reversed(pieces):
            if isinstance(value, tuple):
                op, amount = value
                if result is None:
                    raise NotLifted(f"{array.name} is added to before it is set")
                neutral = (
                    isinstance(result, Number | Index)
                    and op == "sum"
                    and result in (Number(0.0), Index(Poly.number(0)))
                )
                result = amount if neutral else Op(MAP_OF[op], (result, amount), amount.kind)
            else:
                result = (
                    value if result is None else operation("select", (condition, value, result), value.kind, self.space)
                )
        return result

    def _solved(
        self, array: SharedArray, write: Write, at: Place, path: tuple[Any, ...], unknown: Sequence[str], epoch: int
    ) -> tuple[Any, Any] | None:
        """Returns the condition under which a write gives the element, and its value; None if the write cannot."""
        value = self.block.resolved(write.value, write.path)
        renamed = {name: fresh(self.space, self.space.extents.get(name), "w") for name in unknown}
        away = Substitution(self.space, {old: Poly.name(new) for old, new in renamed.items()})
        own = [one for one in write.path if one not in path or free(one) & set(unknown)]
        values = flatten(
            [away.value(one) for one in (*map(Index, write.at), value, *own)], renamed.values(), self.space
        )
        places, value, conditions = (
            [one.poly for one in values[: len(at)]],
            values[len(at)],
            joined(values[len(at) + 1 :]),
        )
        outside = free_of((*map(Index, write.at), self.block.resolved(write.value, write.path), *own)) - set(unknown)
        writers = set(free_of(values) - outside)
        known: dict[str, Poly] = {}
        for place, wanted in zip(places, at, strict=True):
            equal = self._solve(place, wanted, writers - set(known), known)
            if equal is None:
                return None
            conditions = joined([conditions, equal])
        self._fixed(conditions, writers, known)
        put = Substitution(self.space, known)
        limits = [self._within(name, poly) for name, poly in known.items()]
        condition = joined([put.value(conditions), *limits])
        if condition == FALSE:
            return None
        value = put.value(value)
        condition = joined(one for one in parts(condition) if one not in path)
        left = tuple(sorted((free(value) | free(condition)) & (writers - set(known))))
        if write.epoch == epoch and write.at != at and self._meet(at, path, write):
            raise NotLifted(f"a race: {array.name} is read by other threads with no barrier after it is written")
        if write.op:
            body = operation("select", (condition, value, Number(NEUTRAL[write.op])), value.kind, self.space)
            everyone = tuple(sorted(writers - set(known))) if left or write.op == "sum" else ()
            return TRUE, (write.op, fold(write.op, everyone, body, value.kind) if everyone else body)
        if left:
            raise NotLifted(f"a race: several threads write different values to one element of {array.name}")
        return condition, value

    def _solve(self, place: Poly, wanted: Poly, writers: set[str], known: dict[str, Poly]) -> Any | None:
        """Solves `place == wanted` for the writers' variables; returns the remaining condition, or None."""
        for name, poly in known.items():
            place = place - place.coefficient(name) * Poly.name(name) + place.coefficient(name) * poly
        mine = [str(one) for one in set(place.factors()) if one in writers]
        constant = place
        for name in mine:
            constant = constant - place.coefficient(name) * Poly.name(name)
        rest = wanted - constant
        if not mine:
            condition = operation("zero?", (Index(rest),), "bool", self.space)
            return None if condition == FALSE else condition
        ordered = sorted(mine, key=lambda name: -(place.coefficient(name).constant or 0))
        for name in ordered[:-1]:
            scale = place.coefficient(name)
            known[name], rest = self.space.quotient(rest, scale), self.space.remainder(rest, scale)
        last = ordered[-1]
        scale = place.coefficient(last)
        if scale.constant not in (1, -1):
            raise NotLifted("an index into shared memory with a stride is not inverted")
        known[last] = rest * scale
        return TRUE

    def _fixed(self, conditions: Any, writers: set[str], known: dict[str, Poly]) -> None:
        """Adds variables that an equality among the conditions determines to `known`."""
        for condition in parts(conditions):
            if not isinstance(condition, Op) or condition.name != "zero?":
                continue
            poly = condition.args[0].poly
            names = [str(one) for one in poly.factors() if one in writers and one not in known]
            for name in names:
                scale, rest = poly.coefficient(name), poly - poly.coefficient(name) * Poly.name(name)
                if len(names) == 1 and scale.constant in (1, -1):
                    known[name] = -rest * scale
                elif not rest.terms or all(v > 0 for _, v in poly.terms):
                    known[name] = Poly.number(0)

    def _within(self, name: str, poly: Poly) -> Any:
        extent = self.space.extents.get(name)
        low = operation(
            "logical_not", (operation("negative?", (Index(poly),), "bool", self.space),), "bool", self.space
        )
        if extent is None:
            return low
        return joined([low, operation("negative?", (Index(poly - extent),), "bool", self.space)])


def free_of(values: Sequence[Any]) -> frozenset[str]:
    """Returns the variables of several values."""
    return frozenset().union(*map(free, values))
