"""The state that bound operations share: one launch's memory, registers, monitors and limits."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from kernelmate.backends.base import LaunchEnvironment
from kernelmate.backends.emulator.contention import Contention
from kernelmate.backends.emulator.findings import Findings
from kernelmate.backends.emulator.happens_before import Order
from kernelmate.backends.emulator.lanes import Group, Lanes
from kernelmate.backends.emulator.memory import GlobalMemory
from kernelmate.backends.emulator.operations import AsyncGroup
from kernelmate.backends.emulator.program import Position
from kernelmate.backends.emulator.register_order import RegisterOrder
from kernelmate.backends.emulator.registers import Registers
from kernelmate.backends.emulator.spaces import PART_MASK, parts_of
from kernelmate.backends.emulator.types import Array
from kernelmate.backends.launch_objects import Texture


@dataclass(slots=True)
class MemoryInstruction:
    """One memory instruction.

    Attributes:
        action: `load`, `store` or `atomic`.
        size: bytes that one lane accesses; `count` elements of `size // count`.
        returns: an atomic whose old value is used.
        scope: the scope of a strong access, as `order.SCOPES` numbers them; 0 for a weak one.
        volatile: True if it is strong because it is volatile.
        acquires, releases: True if it acquires or releases by itself, without a fence.
        asynchronous: True if it is complete only once it is waited for (`cp.async`, `wgmma`).
        proxy: of the async proxy: `copy` for bytes of bulk copies, `barrier` for their completion at an mbarrier, `product` for
            operands of `wgmma`; else empty.
        served: bytes that the hardware is expected to access at once with it (`merging`), 0 if another access does it.
        read_only: a load through the cache for what no thread of the launch writes.
        unused: True if nothing uses the value that it reads.
        guess: a plain load whose value an atomic of the same thread checks again.
    """

    number: int
    action: str
    size: int
    count: int
    position: Position | None
    poison: int = 0
    returns: bool = False
    synchronizing: bool = False
    scope: int = 0
    volatile: bool = False
    acquires: bool = False
    releases: bool = False
    read_only: bool = False
    unused: bool = False
    guess: bool = False
    asynchronous: bool = False
    proxy: str = ""
    served: int | None = None

    @property
    def synchronises(self) -> bool:
        """True if its thread may publish or learn by it."""
        return self.scope > 0 and not self.proxy


class Monitor(Protocol):
    """Watches accesses to one state space.

    `offsets` are addresses (global), offsets in the thread's window (local), or addresses in the window of shared memory,
    those of the other blocks of a cluster included (`spaces`).
    """

    def access(self, site: MemoryInstruction, lanes: Array, offsets: Array, values: Array | None) -> None:
        """Called when lanes access memory, before a store takes effect and with its values."""
        ...


class Windowed:
    """Memory with a window per block (shared) or thread (local): `owners` windows of `limit` bytes.

    Attributes:
        peers: returns the owners of windows by rank in the clusters of lanes; None where no lane accesses another window.
    """

    def __init__(self, name: str, owners: int, limit: int, owner_of_lane: Array, fill: int) -> None:
        self.name = name
        self.limit = limit
        self.stride = -(-limit // 16) * 16
        self.fill = fill
        self.data = np.full(owners * self.stride + 16, fill, np.uint8)
        self._owner = owner_of_lane
        self._bases: dict[int, Array] = {}
        self._views: dict[tuple[np.dtype[np.generic], int], Array] = {}
        self.monitors: list[Monitor] = []
        self.names: Callable[[int], str | None] = lambda offset: None
        self.peers: Callable[[Array, Array], Array] | None = None

    def bases(self, size: int) -> Array:
        """Returns the first element of each lane's window, in units of `size` bytes."""
        found = self._bases.get(size)
        if found is None:
            found = self._bases[size] = self._owner.astype(np.int64) * (self.stride // size)
        return found

    def locate(self, lanes: Array, offsets: Array) -> Array:
        """Returns the offsets of bytes in `data`, by the lanes that address them."""
        own = self.bases(1)[lanes]
        parts = parts_of(offsets) if self.peers is not None else None
        if parts is None or not parts.any():
            return np.asarray(offsets.astype(np.int64) + own)
        assert self.peers is not None
        theirs = self.peers(lanes, np.maximum(parts - 1, 0)) * self.stride
        return np.asarray(np.where(parts > 0, theirs, own) + (offsets.astype(np.int64) & PART_MASK))

    def rows(self, dtype: np.dtype[np.generic], count: int) -> Array:
        """Returns the memory as elements, or rows of them."""
        key = (dtype, count)
        found = self._views.get(key)
        if found is None:
            whole = self.data[: self.data.size // (dtype.itemsize * count) * dtype.itemsize * count].view(dtype)
            found = self._views[key] = whole if count == 1 else whole.reshape(-1, count)
        return found

    def reset(self) -> None:
        """Resets the contents to those of a fresh block or thread."""
        self.data.fill(self.fill)


class PhaseRecords:
    """Bytes that mbarriers expect and have got in their present phase, and the barrier that each lane waits for.

    A barrier is named by its index among the 8-byte words of the batch's shared memory. Only messages use the records.
    """

    def __init__(self, lanes: int) -> None:
        self.expected: Counter[int] = Counter()
        self.arrived: Counter[int] = Counter()
        self.awaited = np.full(lanes, -1, np.int64)

    def begin(self) -> None:
        """Starts a batch."""
        self.expected.clear()
        self.arrived.clear()
        self.awaited.fill(-1)

    def turned(self, barriers: Iterable[int]) -> None:
        """Records that phases of some barriers are complete."""
        for barrier in barriers:
            self.expected.pop(barrier, None)
            self.arrived.pop(barrier, None)


@dataclass(slots=True)
class Machine:
    """One launch.

    Attributes:
        live: lanes with a running thread.
        barrier_watchers: called with the block slots (as booleans) of which all threads pass a barrier.
        copy_watchers: called with the lanes that close or await groups of asynchronous copies, and the operation.
        changes: number of events that may release a waiting thread: stores, atomics, exits, barriers.
        ticks: issued instructions, the clock that kernels read.
        some_ended: True if some thread of the batch has ended.
        order: happens-before order; None if not needed.
        register_order: the same for registers of `wgmma`.
        environment: the launch's chosen environment, if any.
        contention: order of atomics; None for the natural one.
        outcomes: outcomes of watched conditions.
        replicated: as `Run.replicated`.
        phases: descriptions of mbarriers for messages.
        textures: texture and surface objects by handle, each with the address of its array.
        unusual: divisions and square roots with an operand outside its `ranges`; None if not needed.
    """

    lanes: Lanes
    registers: Registers
    memory: GlobalMemory
    shared: Windowed
    local: Windowed
    parameters: Array
    findings: Findings
    live: Array
    global_monitors: list[Monitor] = field(default_factory=list)
    barrier_watchers: list[Callable[[Array], None]] = field(default_factory=list)
    copy_watchers: list[Callable[[Array, AsyncGroup], None]] = field(default_factory=list)
    printed: list[str] = field(default_factory=list)
    printed_bytes: int = 0
    changes: int = 0
    ticks: int = 0
    barriers: int = 0
    some_ended: bool = False
    order: Order | None = None
    register_order: RegisterOrder | None = None
    unusual: set[int] | None = None
    environment: LaunchEnvironment | None = None
    contention: Contention | None = None
    outcomes: dict[int, set[bool]] = field(default_factory=dict)
    replicated: bool = False
    textures: Mapping[int, tuple[Texture, int]] = field(default_factory=dict)
    phases: PhaseRecords = field(init=False)

    def __post_init__(self) -> None:
        self.phases = PhaseRecords(self.lanes.count)

    def pass_barrier(self, blocks: Array, whole: Array) -> None:
        """Records that threads of some block slots have passed a barrier.

        Args:
            blocks: True for these block slots.
            whole: True for those of them of which all threads waited there.
        """
        self.changes += 1
        self.barriers += int(np.count_nonzero(blocks))
        if whole.any():
            for watcher in self.barrier_watchers:
                watcher(whole)

    def lanes_of(self, active: Group) -> Array:
        """Returns the lane numbers of a group."""
        return active if isinstance(active, np.ndarray) else self.lanes.iota[active]
