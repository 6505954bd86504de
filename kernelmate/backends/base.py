"""Interface of backends, which run all kernels.

A backend gets compiled code and plain arrays, runs one launch, and gives the arrays back with what it noticed. It knows
nothing of contracts, references or tolerances.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from kernelmate.records import BackendName, Compiled, Counters, Finding, LaunchShape, LineCounters, Target

GUARD_BYTES = 4096
"""Bytes of guard band on each side of every buffer."""

MOST_PRINTED = 64 * 1024
"""Bytes of a launch's output that are kept; more is the finding `output-flood`."""


@dataclass(frozen=True, slots=True)
class ArrayArgument:
    """An array the kernel gets a pointer to.

    Attributes:
        name: the kernel's parameter, for messages.
        data: contents before the launch, C-contiguous; never written by the backend.
        misalign: elements by which the pointer is moved off its 256-byte alignment.
        written: the kernel may write it; a write to another one is the finding `input-mutated`.
        output: it is there to be written only, so that nobody owns what it holds before.
        device: contents are given and returned as CuPy's arrays, in the memory of this process's own CUDA context.
    """

    name: str
    data: npt.NDArray[Any]
    misalign: int = 0
    written: bool = True
    output: bool = False
    device: bool = False


@dataclass(frozen=True, slots=True)
class ScalarArgument:
    """A scalar passed by value, already of the dtype that the kernel takes (a NumPy or ml_dtypes scalar)."""

    name: str
    value: np.generic


@dataclass(frozen=True, slots=True)
class Surroundings:
    """State around a launch that it must not depend on, if it is chosen (emulator only).

    Attributes:
        specials: by special register, (first, step, limit): block number b reads (first + b * step) % limit; of
            `%warpid`, warp number b of each block.
        clock: what the first read of a clock gives, and how much later each further one is.
        first_slot: where in the address space arrays begin, in places for arrays.
        fill: byte that registers and local memory hold before they are written.
        forced: outcome of some conditions, by instruction. watched: instructions whose outcomes are noted.
    """

    specials: Mapping[str, tuple[int, int, int]] = field(default_factory=dict)
    clock: tuple[int, int] = (0, 1)
    first_slot: int = 0
    fill: int = 0
    forced: Mapping[int, bool] = field(default_factory=dict)
    watched: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class Run:
    """One launch to make.

    Attributes:
        arguments: in the kernel's parameter order.
        schedule_seed: permutes the order of blocks and warps, and where buffers lie in memory; 0 is the natural order.
        step_limit: instructions one thread may take before the finding `hang`. limited_by: what sets it, for messages.
        count: fill in `RunResult.counters`.
        check: look for what costs time to look for (races, uninitialised reads, wrapped indices); out-of-bounds
            accesses are always found.
        native: whether the same launch of an earlier version was worth compiling to native code, where that is known;
            what it gives does not hang on it, only how soon (emulator only).
        surroundings: what else the launch finds around it; None for the usual (emulator only).
        executed: where it is counted, count the machine instructions that it executes too, which takes a disassembler.
        total_limit: instructions all threads together may take; more raises `EmulationTooLarge` (emulator only).
        key: names the launch among those of one module: equal keys, equal launches. None where nobody names it.
        wary: its inputs may lead to bad addresses, so that the emulator makes it before a GPU does, where it is `small`.
    """

    shape: LaunchShape
    arguments: tuple[ArrayArgument | ScalarArgument, ...]
    schedule_seed: int = 0
    step_limit: int = 20_000_000
    count: bool = False
    check: bool = True
    total_limit: int = 20_000_000_000
    limited_by: str = "step_limit in the settings"
    key: Hashable = None
    executed: bool = False
    native: bool | None = None
    surroundings: Surroundings | None = None
    wary: bool = False


CHECKED_BYTES = 1 << 20
CHECKED_THREADS = 1 << 16


def small(shape: LaunchShape, array_bytes: int) -> bool:
    """The emulator may make such a launch before a GPU does: it has few threads and bytes of arrays."""
    return array_bytes <= CHECKED_BYTES and shape.threads * shape.blocks <= CHECKED_THREADS


@dataclass(frozen=True, slots=True)
class CacheSample:
    """Contents of one SM's L1, by a model of it, for the accesses of that SM's blocks; a sample of a launch.

    Attributes:
        cache_bytes: the size of the modelled cache.
        loads, stores: by instruction, the sectors it asked for and how many of them the cache held.
    """

    cache_bytes: int
    loads: Mapping[int, tuple[int, int]]
    stores: Mapping[int, tuple[int, int]]

    @property
    def load_hits(self) -> float | None:
        """Share of loaded sectors that L1 gives; None without loads."""
        return _share(self.loads)

    @property
    def store_hits(self) -> float | None:
        """Share of stored sectors that were in L1; they are written through all the same."""
        return _share(self.stores)


def _share(sites: Mapping[int, tuple[int, int]]) -> float | None:
    asked = sum(asked for asked, _ in sites.values())
    return sum(held for _, held in sites.values()) / asked if asked else None


@dataclass(frozen=True, slots=True)
class RunResult:
    """Result of one launch.

    Attributes:
        arrays: contents of every array argument afterwards, same dtype and shape. Meaningless where `findings` holds
            an error that stopped the launch.
        findings: with positions in the *unit's* text; the judge maps them to the user's file.
        checked: races, uninitialised reads and wrapped indices were looked for.
        unwatched: where they were not looked for all the same, and why: one clause for each part.
        counters: of this launch, when asked for.
        reads: names of arrays the kernel loaded from before it had written the same bytes itself.
        lasting: variables of the module that were loaded from before the kernel had stored there, and are changed now
            (emulator only).
        block_counts: how often each PTX basic block was entered, in threads, by label; for instruction mixes.
        footprint_bytes: unique global bytes touched, in whole 32-byte sectors; None when not counted.
        lines: counters by source line of the *unit's* text, when asked for (emulator only).
        atomic_sectors: different sectors of global memory that atomics touched; None when not counted.
        l1: what a model of L1 makes of the accesses of one SM; None when not counted, or where it cannot be told.
        printed: what the kernel printed, at most 64 KiB.
        ptx_instructions: thread-level PTX instructions executed (emulator only; hardware runs SASS).
        native: it took so long that native code was made for it, or none was needed; None where neither has shown
            (emulator only).
        longest_thread: upper bound on the PTX instructions of any one thread, for choosing `Run.step_limit`.
        outcomes: by instruction that `Run.surroundings` watches, the outcomes of its condition.
        counting: where counters are still being counted beside: gives a result that has them, or None.
    """

    arrays: Mapping[str, npt.NDArray[Any]]
    findings: tuple[Finding, ...] = ()
    checked: bool = False
    unwatched: tuple[str, ...] = ()
    counters: Counters | None = None
    reads: frozenset[str] = frozenset()
    lasting: frozenset[str] = frozenset()
    block_counts: Mapping[str, int] = field(default_factory=dict)
    footprint_bytes: int | None = None
    barriers: int | None = None
    printed: str = ""
    ptx_instructions: int | None = None
    longest_thread: int | None = None
    lines: tuple[LineCounters, ...] = ()
    atomic_sectors: int | None = None
    l1: CacheSample | None = None
    native: bool | None = None
    outcomes: Mapping[int, frozenset[bool]] = field(default_factory=dict)
    counting: Callable[[], RunResult | None] | None = None


class Module(Protocol):
    """One compiled kernel, loaded."""

    def run(self, run: Run) -> RunResult:
        """Make one launch. Raises nothing for what the kernel does wrong: that is a finding.

        Raises:
            EmulationTooLarge: the launch is beyond what the emulator takes on, which says nothing of the kernel.
        """
        ...


@runtime_checkable
class SupportsPrefetch(Protocol):
    """A module that is the quicker for knowing which launches it will be asked for."""

    def foresee(self, runs: Iterable[Run]) -> None:
        """Take note of launches, in the order in which they will be asked for; what was foreseen before is forgotten."""
        ...


@runtime_checkable
class SupportsBackgroundLaunch(Protocol):
    """A backend that makes launches beside what it is asked for."""

    def begin(self, compiled: Compiled, target: Target, run: Run) -> None:
        """Begin a launch that a module of this code will probably be asked for soon; nobody waits for it."""
        ...


@runtime_checkable
class SupportsArrayComputing(Protocol):
    """A backend on whose GPU arrays can be computed beside launches, out of the reach of the kernels under judgement."""

    @property
    def trusted(self) -> Backend:
        """The backend for references and baselines, in the context that arrays are computed in."""
        ...

    def computing(self) -> AbstractContextManager[Any]:
        """CuPy, with the GPU current and nobody timing on it."""
        ...


class Backend(Protocol):
    """Runs kernels.

    `poisoned`: an earlier launch has cost the backend its device; it says nothing any more, and its process must go.
    """

    @property
    def name(self) -> BackendName:
        """As verdicts call it."""
        ...

    @property
    def poisoned(self) -> bool:
        """See the class."""
        ...

    def load(self, compiled: Compiled, target: Target) -> Module:
        """Load compiled code.

        Raises:
            UnsupportedInstruction: the backend cannot run this code; carries the finding to report.
        """
        ...


class UnsupportedInstruction(Exception):
    """The backend refuses code by name rather than run it wrongly."""

    def __init__(self, finding: Finding) -> None:
        super().__init__(finding.message)
        self.finding = finding


class EmulationTooLarge(Exception):
    """The launch takes more instructions or memory than the emulator takes on.

    Attributes:
        limit: the one it ran into. advice: what to change for it to fit, beside judging smaller sizes.
        longest_thread: instructions that the longest thread of the batch had taken when it was stopped, where it ran.
    """

    def __init__(
        self, message: str, limit: int, advice: str = "raise instruction_limit in the settings",
        longest_thread: int | None = None,
    ) -> None:  # fmt: skip
        super().__init__(message)
        self.limit = limit
        self.advice = advice
        self.longest_thread = longest_thread
