"""Some blocks of a launch whose arrays would not fit into memory: the contents of large arrays repeat.

All addresses of an array exist, and the arithmetic that leads to them is checked as usual, but an element is held once
for all places at the same distance modulo a period.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from kernelmate.backends.base import ArrayArgument, Run
from kernelmate.backends.emulator.bind import Binder, fold_constants
from kernelmate.backends.emulator.bound import InstructionCounts, InstructionLimits, Overrun
from kernelmate.backends.emulator.decode import DecodedKernel
from kernelmate.backends.emulator.facts import Facts, facts_of
from kernelmate.backends.emulator.findings import LaunchStopped
from kernelmate.backends.emulator.lanes import Lanes
from kernelmate.backends.emulator.launch import Launch
from kernelmate.backends.emulator.machine import MemoryInstruction
from kernelmate.backends.emulator.memory import Buffer
from kernelmate.backends.emulator.operations import (
    Atomic,
    BulkCopy,
    SurfaceAccess,
    TensorCopy,
    TextureFetch,
)
from kernelmate.backends.emulator.schedule import Scheduler
from kernelmate.backends.emulator.shadow import Shadows
from kernelmate.backends.emulator.spaces import BUFFER_SPACING
from kernelmate.backends.emulator.types import Array
from kernelmate.records import Finding, LaunchShape, Target

PERIOD = 32 * 131_071
"""Bytes after which contents repeat: a prime number of sectors, so that a wrong index selects another element."""

MOST_BYTES = BUFFER_SPACING // 4
"""Maximum bytes of one array: a wrong address must not reach the next one."""

_ISSUED = 4_000
"""Instructions issued one after another, after which blocks are left."""


@dataclass(frozen=True, slots=True)
class SampledBlocksResult:
    """Result of some blocks of a launch.

    Attributes:
        findings: with positions in the unit's text.
        ended: True if all blocks ended within the limit of instructions.
        stored: by array, the indices of elements that plain stores wrote, and the values left there.
        shared: by array, the number of elements that several threads wrote.
        coverage: by array, the share of its elements that all blocks would store if they stored as many as these.
    """

    findings: tuple[Finding, ...]
    ended: bool
    stored: Mapping[str, tuple[Array, Array]]
    shared: Mapping[str, int]
    coverage: Mapping[str, float]


def is_foldable(decoded: DecodedKernel) -> bool:
    """Returns True if all accesses of a kernel can be made to arrays whose contents repeat."""
    others = BulkCopy | TensorCopy | TextureFetch | SurfaceAccess
    return not any(isinstance(step.operation, others) for step in decoded.steps)


def has_atomics(decoded: DecodedKernel) -> bool:
    """Returns True if blocks may combine their results by atomics, so that some of them have no complete one."""
    return any(isinstance(step.operation, Atomic) and step.operation.space != "shared" for step in decoded.steps)


def run_blocks(
    decoded: DecodedKernel, target: Target, run: Run, sizes: Mapping[str, int], blocks: Sequence[int]
) -> SampledBlocksResult | None:
    """Runs some blocks; returns None if they may wait for others.

    Args:
        decoded: the kernel.
        target: the GPU to emulate.
        run: the launch; of a larger array, the data are the first `PERIOD` bytes.
        sizes: the bytes of each array.
        blocks: linear indices of the blocks.
    """
    facts = facts_of(decoded)
    if facts.waits or facts.clusters or run.shape.cooperative or run.shape.cluster is not None:
        return None
    with np.errstate(all="ignore"):
        return _FarBlocks(decoded, target, run, facts, sizes, blocks).result()


class _FewLanes(Lanes):
    def __init__(self, shape: LaunchShape, mine: Sequence[int]) -> None:
        self._mine = mine
        super().__init__(shape, len(mine) * -(-shape.threads // 32) * 32, 0)

    def batches(self) -> int:
        return 1

    def order(self, number: int) -> Array:
        del number
        return np.array(self._mine)


class _StoreLog:
    """The addresses that plain stores wrote, with the lanes."""

    def __init__(self) -> None:
        self.written: list[tuple[Array, Array, int]] = []

    def access(self, site: MemoryInstruction, lanes: Array, offsets: Array, values: Array | None) -> None:
        """Records one instruction of some lanes."""
        del values
        if site.action == "store":
            self.written.append((offsets.copy(), lanes.copy(), site.size))


class _FarBlocks(Launch):
    def __init__(
        self,
        decoded: DecodedKernel,
        target: Target,
        run: Run,
        facts: Facts,
        sizes: Mapping[str, int],
        blocks: Sequence[int],
    ) -> None:
        self._sizes, self._mine = sizes, blocks
        super().__init__(decoded, target, run, facts, {})

    def _lanes(self) -> Lanes:
        return _FewLanes(self.shape, self._mine)

    def _allocate_arguments(self) -> None:
        for argument in self.run.arguments:
            if isinstance(argument, ArrayArgument):
                content, size = argument.data.view(np.uint8), self._sizes[argument.name]
                repeats = size if size > content.size else None
                buffer = self.memory.add(argument.name, content, writable=argument.written, visible=True, size=repeats)
                self.arguments[argument.name] = (argument, buffer)

    def result(self) -> SampledBlocksResult:
        machine, log = self.machine, _StoreLog()
        machine.global_monitors.append(log)
        fold_constants(self.facts.foldable, self.decoded, machine)
        shadows = Shadows(self.decoded, machine, self.facts.addresses)
        limits = InstructionLimits(self.run.step_limit, self.run.limited_by, self.run.total_limit, issued=_ISSUED)
        tally = InstructionCounts(np.zeros(len(self.decoded.blocks), np.int64))
        scheduler = Scheduler(machine, self.decoded, Binder(self.decoded, machine, shadows).blocks(), limits, tally)
        ended = False
        try:
            scheduler.run(self._fresh(0))
            ended = True
        except (LaunchStopped, Overrun):
            pass  # pass: the findings so far are the result
        stored, shared, coverage = dict[str, tuple[Array, Array]](), dict[str, int](), dict[str, float]()
        try:
            for name, (argument, buffer) in self.arguments.items() if ended else ():
                dtype = argument.data.dtype
                elements, lanes = self._written(log, buffer, dtype.itemsize)
                if len(elements):
                    stored[name] = _left(buffer, elements, dtype)
                    shared[name] = _by_several(elements, lanes)
                    blocks = self.shape.blocks / len(self._mine)
                    coverage[name] = len(np.unique(elements)) * blocks * dtype.itemsize / buffer.size
            return SampledBlocksResult(machine.findings.finish(), ended, stored, shared, coverage)
        finally:
            self.memory.close()

    def _written(self, log: _StoreLog, buffer: Buffer, itemsize: int) -> tuple[Array, Array]:
        """Returns the elements that were stored into an array, and the lanes that stored them."""
        places, owners = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
        for addresses, lanes, size in log.written:
            if self.memory.at(int(addresses[0])) is buffer and size >= itemsize:
                first = ((addresses - np.uint64(buffer.origin)) // np.uint64(itemsize)).astype(np.int64)
                count = size // itemsize
                places.append((first[:, None] + np.arange(count)).ravel())
                owners.append(np.repeat(lanes, count))
        return np.concatenate(places), np.concatenate(owners)


def _left(buffer: Buffer, elements: Array, dtype: np.dtype[np.generic]) -> tuple[Array, Array]:
    """Returns stored elements and their values, except those that share their storage with others."""
    written = np.unique(elements)
    held = written if buffer.period is None else written % (buffer.period // dtype.itemsize)
    _, back, times = np.unique(held, return_inverse=True, return_counts=True)
    alone = times[back] == 1
    whole = buffer.data[: buffer.data.size // dtype.itemsize * dtype.itemsize].view(dtype)
    return written[alone], whole[held[alone]]


def _by_several(elements: Array, lanes: Array) -> int:
    """Returns the number of elements that more than one lane stored."""
    pairs = np.unique(elements * (int(lanes.max()) + 1) + lanes)
    return len(pairs) - len(np.unique(elements))
