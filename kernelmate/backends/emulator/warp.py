"""Shuffles, votes, matches and reductions among the active lanes of a warp."""

from __future__ import annotations

from typing import Any

import numpy as np

from kernelmate.backends.emulator.lanes import Group
from kernelmate.backends.emulator.machine import Machine
from kernelmate.backends.emulator.operations import ActiveMask, ElectLane, Match, Shuffle, Vote, WarpReduce
from kernelmate.backends.emulator.program import Operand, Position
from kernelmate.backends.emulator.registers import Bound, ConstantOperand, LaneOperand, spread
from kernelmate.backends.emulator.types import DTYPES, Array
from kernelmate.records import FindingCode

_WHOLE_WARP = 0xFFFFFFFF
_REDUCE: dict[str, np.ufunc] = {
    "add": np.add,
    "min": np.minimum,
    "max": np.maximum,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
}


def warp_masks(machine: Machine, lanes: Array) -> Array:
    """Returns, per warp of the batch, the bit mask of the given lanes."""
    bits = np.zeros(machine.lanes.count, bool)
    bits[lanes] = True
    return np.packbits(bits, bitorder="little").view(np.uint32)


class Members:
    """The lanes in each lane's mask operand; lanes of one warp may have different masks."""

    def __init__(self, machine: Machine, mask: Operand | None) -> None:
        self._mask = machine.registers.read(mask, "b32") if mask is not None else None
        self.everyone = self._mask is None or (
            isinstance(self._mask, ConstantOperand) and int(self._mask.value) == _WHOLE_WARP
        )

    def masks(self, active: Group, count: int) -> Array:
        """Returns the mask of each active lane."""
        if self._mask is None:
            return np.full(count, _WHOLE_WARP, np.uint32)
        return spread(self._mask, active, count)


def bind_shuffle(operation: Shuffle, machine: Machine, position: Position | None) -> Bound:
    """`shfl.sync` (PTX ISA, shfl: segments of a warp by the clamp operand)."""
    registers = machine.registers
    value = registers.read(operation.value, "b32")
    operands = [registers.read(operand, "u32") for operand in (operation.lane, operation.clamp)]
    target = registers.target(operation.result, "b32")
    predicate = registers.target(operation.predicate, "pred") if operation.predicate else None
    members = Members(machine, operation.mask)
    lane_of = machine.lanes.lane.astype(np.int64)
    warp_start = machine.lanes.iota & ~31
    whole = slice(0, machine.lanes.count)
    fixed: tuple[Array, Array] | None = None
    if all(isinstance(operand, ConstantOperand) for operand in operands):
        numbers = [np.asarray(operand.value, np.int64) for operand in operands if isinstance(operand, ConstantOperand)]
        fixed = _sources(operation.mode, lane_of, *numbers)

    def run(group: Group | None, active: Group) -> None:
        del group
        lanes = machine.lanes_of(active)
        own = lane_of[active]
        if fixed is not None:
            source, valid = fixed[0][active], fixed[1][active]
        else:
            lane, clamp = (spread(operand, active, len(lanes)).astype(np.int64) for operand in operands)
            source, valid = _sources(operation.mode, own, lane, clamp)
        from_lane = warp_start[active] + source
        if len(lanes) != machine.lanes.count or not members.everyone:
            named = (members.masks(active, len(lanes)) >> source.astype(np.uint32)) & np.uint32(1) == 1
            _check_sources(machine, lanes, from_lane, valid, named, position)
        everything = spread(value, whole, machine.lanes.count)
        result = everything.take(from_lane)
        if predicate is not None:
            predicate[active] = valid
        if target is not None:
            target[active] = result

    return run


def _sources(mode: str, own: Array, lane: Array, clamp: Array) -> tuple[Array, Array]:
    """Returns the source lane of each lane (itself if outside its segment), and whether it is within."""
    lane = lane & 31
    bound, segment = clamp & 31, (clamp >> 8) & 31
    highest = (own & segment) | (bound & ~segment)
    lowest = own & segment
    if mode == "up":
        source = own - lane
        valid = source >= highest
    elif mode == "down":
        source = own + lane
        valid = source <= highest
    elif mode == "bfly":
        source = own ^ lane
        valid = source <= highest
    else:
        source = lowest | (lane & ~segment)
        valid = source <= highest
    return np.where(valid, source, own), np.broadcast_to(valid, own.shape)


def _check_sources(
    machine: Machine, lanes: Array, from_lane: Array, valid: Array, named: Array, position: Position | None
) -> None:
    here = np.zeros(machine.lanes.count, bool)
    here[lanes] = True
    absent = (~here[from_lane] | ~named) & valid
    if absent.any():
        missing = int(from_lane[absent][0])
        why = "which does not take part in it" if not here[missing] else "which its mask does not name"
        machine.findings.report(
            FindingCode.SHUFFLE_MASK,
            position,
            lanes[absent],
            lambda: f"a shuffle reads from lane {missing & 31} of its warp, {why}",
        )


def bind_vote(operation: Vote, machine: Machine) -> Bound:
    """`vote.sync`."""
    registers = machine.registers
    source = registers.read(operation.source, "pred")
    members = Members(machine, operation.mask)
    ballot = operation.mode == "ballot"
    target = registers.target(operation.result, "b32" if ballot else "pred")

    def run(group: Group | None, active: Group) -> None:
        del group
        lanes = machine.lanes_of(active)
        holds = spread(source, active, len(lanes))
        masks = members.masks(active, len(lanes))
        yes = warp_masks(machine, lanes[holds])[lanes >> 5] & masks
        if ballot:
            result: Any = yes
        else:
            everyone = warp_masks(machine, lanes)[lanes >> 5] & masks
            result = {"all": yes == everyone, "any": yes != 0, "uni": (yes == everyone) | (yes == 0)}[operation.mode]
        if target is not None:
            target[active] = result

    return run


def bind_active_mask(operation: ActiveMask, machine: Machine) -> Bound:
    """`activemask`: lanes that run together, which the hardware chooses; here all, or those of `LaunchEnvironment.apart`."""
    target = machine.registers.target(operation.result, "b32")
    apart = 1 if machine.environment is None else machine.environment.apart
    lane = np.arange(32)
    together = np.bitwise_or.reduce(np.where((lane[:, None] - lane) % apart == 0, 1 << lane, 0), axis=1).astype(
        np.uint32
    )

    def run(group: Group | None, active: Group) -> None:
        del group
        lanes = machine.lanes_of(active)
        if target is not None:
            target[active] = warp_masks(machine, lanes)[lanes >> 5] & together[lanes & 31]

    return run


def bind_match(operation: Match, machine: Machine) -> Bound:
    """`match.any.sync` and `match.all.sync`."""
    registers = machine.registers
    value = registers.read(operation.value, operation.kind)
    members = Members(machine, operation.mask)
    target = registers.target(operation.result, "b32")
    predicate = registers.target(operation.predicate, "pred") if operation.predicate else None

    def run(group: Group | None, active: Group) -> None:
        del group
        lanes = machine.lanes_of(active)
        found = spread(value, active, len(lanes))
        order = np.lexsort((found, lanes >> 5))
        warp, key = (lanes >> 5)[order], found[order]
        first = np.ones(len(lanes), bool)
        first[1:] = (warp[1:] != warp[:-1]) | (key[1:] != key[:-1])
        starts = np.flatnonzero(first)
        bits = np.left_shift(np.uint32(1), (lanes & 31).astype(np.uint32))[order]
        masks = np.bitwise_or.reduceat(bits, starts)
        result = np.empty(len(lanes), np.uint32)
        result[order] = masks[np.cumsum(first) - 1]
        named = members.masks(active, len(lanes))
        result &= named
        if operation.mode == "all":
            agreed = result == warp_masks(machine, lanes)[lanes >> 5] & named
            result = np.where(agreed, result, np.uint32(0))
            if predicate is not None:
                predicate[active] = agreed
        if target is not None:
            target[active] = result

    return run


def bind_elect(operation: ElectLane, machine: Machine) -> Bound:
    """`elect.sync`: which lane is the hardware's choice, always the same for a mask; here it is the first."""
    registers = machine.registers
    members = Members(machine, operation.mask)
    target = registers.target(operation.result, "b32") if operation.result else None
    predicate = registers.target(operation.predicate, "pred")

    def run(group: Group | None, active: Group) -> None:
        del group
        lanes = machine.lanes_of(active)
        masks = members.masks(active, len(lanes)) & warp_masks(machine, lanes)[lanes >> 5]
        chosen = np.bitwise_count(masks ^ (masks - np.uint32(1))).astype(np.uint32) - np.uint32(1)
        if target is not None:
            target[active] = chosen
        if predicate is not None:
            predicate[active] = chosen == (lanes & 31)

    return run


def bind_reduce(operation: WarpReduce, machine: Machine) -> Bound:
    """`redux.sync`."""
    registers = machine.registers
    value = registers.read(operation.value, operation.kind)
    target = registers.target(operation.result, operation.kind)
    members = Members(machine, operation.mask)
    ufunc = _REDUCE[operation.action]

    def run(group: Group | None, active: Group) -> None:
        del group
        lanes = machine.lanes_of(active)
        found = spread(value, active, len(lanes)).astype(DTYPES[operation.kind])
        # Lanes with the same mask in the same warp reduce together.
        key = ((lanes >> 5) << 32) | members.masks(active, len(lanes)).astype(np.int64)
        order = np.argsort(key, kind="stable")
        ordered = key[order]
        first = np.ones(len(lanes), bool)
        first[1:] = ordered[1:] != ordered[:-1]
        totals = ufunc.reduceat(found[order], np.flatnonzero(first))
        result = np.empty(len(lanes), DTYPES[operation.kind])
        result[order] = totals[np.cumsum(first) - 1]
        if target is not None:
            target[active] = result

    return run


class Gathering:
    """Arrival of the lanes that an operation's mask names. `is_barrier`: it exchanges no data."""

    spans_warps = False
    """True if it waits for lanes of other warps."""

    def __init__(
        self, machine: Machine, mask: Operand | None, position: Position | None, *, is_barrier: bool = False
    ) -> None:
        self.is_barrier = is_barrier
        self.awaits = "waits in a warp operation for lanes of its mask that never reach it"
        self._machine = machine
        self.position = position
        self._mask = machine.registers.read(mask, "b32") if mask is not None else None
        self.names_all = self._mask is None or (
            isinstance(self._mask, ConstantOperand) and int(self._mask.value) == _WHOLE_WARP
        )
        """True if every thread's mask includes all lanes."""

    def missing(self, lanes: Array) -> Array:
        """Returns for each lane whether its warp still waits for a live lane of its mask."""
        if self._mask is None:
            return np.zeros(len(lanes), bool)
        present = warp_masks(self._machine, lanes)[lanes >> 5]
        living = np.packbits(self._machine.live, bitorder="little").view(np.uint32)[lanes >> 5]
        return np.asarray((self.masks(lanes) & living & ~present) != 0)

    def ended(self, lanes: Array) -> Array:
        """Returns True for each lane whose mask names a thread that has ended."""
        if self._mask is None:
            return np.zeros(len(lanes), bool)
        machine = self._machine
        gone = machine.lanes.real & ~machine.live
        return np.asarray((self.masks(lanes) & np.packbits(gone, bitorder="little").view(np.uint32)[lanes >> 5]) != 0)

    def masks(self, lanes: Array) -> Array:
        """Returns the mask operand of each lane."""
        mask = self._mask
        if isinstance(mask, LaneOperand):
            return mask.array.take(lanes)
        return np.full(len(lanes), mask.value if mask is not None else 0, np.uint32)

    def outside(self, lanes: Array) -> Array:
        """Returns for each lane whether its own bit is missing from its mask."""
        if self._mask is None:
            return np.zeros(len(lanes), bool)
        return np.asarray((self.masks(lanes) >> (lanes & 31).astype(np.uint32)) & np.uint32(1) == 0)
