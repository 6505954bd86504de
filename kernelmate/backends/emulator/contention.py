"""Orders in which the threads of a launch execute its atomics, beyond the order of blocks and warps.

A warp's consecutive atomics execute in program order, but atomics of other warps may come between them. All lanes that
wait at an atomic execute it together, so that this does not happen by itself. A schedule seed therefore chooses for each
atomic the order of its lanes, and odd seeds delay some warps in front of an atomic until all others have gone as far as
they can. Both choices depend on seed, atomic, and lane only, so that every path through the emulator makes the same ones.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from kernelmate.backends.emulator.decode import BasicBlock, DecodedKernel, registers_in
from kernelmate.backends.emulator.lanes import Lanes
from kernelmate.backends.emulator.liveness import operands_of
from kernelmate.backends.emulator.operations import Atomic, Load, Store
from kernelmate.backends.emulator.types import Array

DELAYED_SHARE = 0.25
"""Share of the warps that are delayed in front of an atomic."""
_CTA_OR_WIDER = frozenset({"global", "generic", "shared", "shared__cluster"})


class Contention:
    """The orders that one schedule seed chooses.

    Attributes:
        delays: True if warps are delayed.
    """

    def __init__(self, lanes: Lanes, seed: int) -> None:
        random = np.random.default_rng((seed, 1))
        self._lanes = random.integers(0, 1 << 32, lanes.count, dtype=np.uint32)
        self._warps = random.integers(0, 1 << 32, lanes.warps, dtype=np.uint32)
        self.delays = seed % 2 == 1
        self._last = -1, self._lanes[:0], np.zeros(0, np.int64)

    def order(self, step: int, lanes: Array) -> Array:
        """Returns the order in which lanes execute the atomic at a step, as positions in `lanes`."""
        # The checks ask for the same order as the update, and a comparison is cheaper than sorting.
        if self._last[0] != step or not np.array_equal(self._last[1], lanes):
            self._last = step, lanes.copy(), np.argsort(_mixed(self._lanes.take(lanes), step), kind="stable")
        return self._last[2]

    def delayed(self, step: int, lanes: Array) -> Array:
        """Returns for each lane whether it is delayed in front of the atomic at a step; equal for the lanes of a warp."""
        return np.asarray(_mixed(self._warps.take(lanes >> 5), step) < DELAYED_SHARE * (1 << 32))


def _mixed(keys: Array, step: int) -> Array:
    """Returns other 32-bit keys for each step (the finalizer of MurmurHash3, by Austin Appleby)."""
    mixed = keys + np.uint32(step * 0x9E3779B9 & 0xFFFFFFFF)
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35)):
        mixed = (mixed ^ (mixed >> np.uint32(shift))) * np.uint32(factor)
    return np.asarray(mixed ^ (mixed >> np.uint32(16)))


def with_contended(decoded: DecodedKernel) -> DecodedKernel:
    """Cuts basic blocks in front of atomics that other warps may disturb, and marks the blocks that start with one.

    The first part of a block keeps its label, so that it is counted like the whole.
    """
    steps = contended_atomics(decoded)
    if not steps:
        return decoded
    blocks: list[BasicBlock] = []
    for block in decoded.blocks:
        starts = sorted({block.start, *(step for step in steps if block.start < step < block.end)})
        for number, (start, end) in enumerate(zip(starts, [*starts[1:], block.end], strict=True)):
            part = replace(
                block, index=len(blocks), start=start, end=end, label=f"{block.label}/{number}" if number else block.label,
                gathers=block.gathers and not number, spins=block.spins and end == block.end,
                retries=block.retries and end == block.end, contended=start in steps,
            )  # fmt: skip
            blocks.append(part)
    return replace(decoded, blocks=tuple(blocks), block_at={block.start: block.index for block in blocks})


def contended_atomics(decoded: DecodedKernel) -> frozenset[int]:
    """Returns the atomics whose order among those of other warps may matter.

    None do in a kernel whose atomics all combine in the same way and whose old values are unused, because these commute,
    nor in one with a single access that synchronises.
    """
    atomics = {
        number: step
        for number, step in enumerate(decoded.steps)
        if isinstance(step.operation, Atomic) and step.operation.space in _CTA_OR_WIDER
    }
    strong = [
        step for step in decoded.steps if isinstance(step.operation, Load | Store) and step.operation.synchronizing
    ]
    if len(atomics) + len(strong) < 2:
        return frozenset()
    read = {name for step in decoded.steps for operand in operands_of(step.operation) for name in registers_in(operand)}
    read |= {step.guard.name for step in decoded.steps if step.guard is not None}
    actions = {step.operation.action for step in atomics.values() if isinstance(step.operation, Atomic)}
    used = any(not read.isdisjoint(step.writes) for step in atomics.values())
    if len(actions) < 2 and not used and not strong and actions.isdisjoint({"exch", "cas"}):
        return frozenset()
    return frozenset(atomics)
