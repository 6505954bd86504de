"""Interface of backends, which run kernels.

A backend gets compiled code and plain arrays, runs one launch, and returns the arrays with its findings. It knows
nothing about contracts, references or tolerances.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, fields, replace
from typing import Any, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from kernelmate.backends.launch_objects import TensorMap, Texture
from kernelmate.records import (
    BackendName,
    Compiled,
    Counters,
    Finding,
    FindingCode,
    LaunchShape,
    LineCounters,
    Target,
)

GUARD_BYTES = 4096
"""Bytes of guard band on each side of every buffer."""

MOST_PRINTED = 64 * 1024
"""Maximum bytes of a launch's printed output that are kept; more is the finding `output-flood`."""


STOPPING = frozenset(
    {
        FindingCode.HANG,
        FindingCode.TRAP,
        FindingCode.ILLEGAL_ADDRESS,
        FindingCode.LAUNCH_FAILURE,
        FindingCode.OUT_OF_MEMORY,
        FindingCode.DIVERGENT_BARRIER,
        FindingCode.UNSUPPORTED_INSTRUCTION,
    }
)
"""Codes of errors after which a launch's outputs are meaningless."""


@dataclass(frozen=True, slots=True)
class HeldAddress:
    """Eight bytes of an argument that hold the device address of an array: at `offset`, the address plus `start` bytes."""

    offset: int
    array: str
    start: int = 0


@dataclass(frozen=True, slots=True)
class ArrayArgument:
    """An array argument, passed to the kernel as a pointer.

    Attributes:
        name: the kernel's parameter, for messages.
        data: contents before the launch, C-contiguous; never written by the backend.
        misalign: elements by which the pointer is moved off its 256-byte alignment.
        written: True if the kernel may write it; a write to another array is the finding `input-mutated`.
        output: True if it is only written, so that its initial contents are meaningless.
        device: True if contents are passed and returned as CuPy arrays, in this process's CUDA context.
        passed: False for an array that is not a parameter: it is reached by an address in another argument, or is a variable.
        variable: the name in PTX of the module's variable that holds it.
        addresses: where its contents are addresses of other arrays.
    """

    name: str
    data: npt.NDArray[Any]
    misalign: int = 0
    written: bool = True
    output: bool = False
    device: bool = False
    passed: bool = True
    variable: str | None = None
    addresses: tuple[HeldAddress, ...] = ()


@dataclass(frozen=True, slots=True)
class ScalarArgument:
    """A scalar passed by value, already of the dtype that the kernel takes (a NumPy or ml_dtypes scalar).

    A struct is one too, of bytes (`numpy.void`), with the addresses that it contains. With a `tensor_map`, each backend
    encodes the bytes itself, and with a `texture` it makes the object and passes its handle.
    """

    name: str
    value: np.generic
    addresses: tuple[HeldAddress, ...] = ()
    tensor_map: TensorMap | None = None
    texture: Texture | None = None


def with_addresses(content: npt.NDArray[np.uint8], addresses: Iterable[HeldAddress], places: Mapping[str, int]) -> None:
    """Writes device addresses into an argument's bytes; `places` maps each array to its address."""
    for one in addresses:
        held = np.array([places[one.array] + one.start], np.uint64).view(np.uint8)
        content[one.offset : one.offset + held.size] = held


@dataclass(frozen=True, slots=True)
class LaunchEnvironment:
    """Environment of a launch, on which its results must not depend; can be chosen in the emulator only.

    Attributes:
        specials: by special register, (first, step, limit): block number b reads (first + b * step) % limit; for
            `%warpid`, warp number b of each block.
        clock: value of the first clock read, and the increment of each further one.
        first_slot: number of the first array slot in the address space.
        fill: initial byte of registers and local memory.
        forced: forced outcomes of conditions, by instruction.
        watched: instructions whose outcomes are recorded.
        apart: lanes of a warp run together, as `activemask` shows, only if their numbers are equal modulo this.
    """

    specials: Mapping[str, tuple[int, int, int]] = field(default_factory=dict)
    clock: tuple[int, int] = (0, 1)
    first_slot: int = 0
    fill: int = 0
    forced: Mapping[int, bool] = field(default_factory=dict)
    watched: frozenset[int] = frozenset()
    apart: int = 1


LibraryCall = Callable[[Mapping[str, npt.NDArray[Any]]], Mapping[str, npt.NDArray[Any]]]
"""A step of a pipeline that is not a kernel: from the arrays and scalars that it names to those that it gives."""


@dataclass(frozen=True, slots=True)
class StageLaunch:
    """One step of a pipeline's run.

    Attributes:
        name: the stage.
        shape: its launch; None for a step of a library.
        arguments: for each parameter in order, its name and the array of the run that it takes, or a scalar.
        reads, writes: arrays of the run that the step may read, and may write.
        library: computes a step without a launch.
        text: the expression of such a step, for a GPU's array library; its names have been checked.
        sizes: the sizes that it may use.
        observe: called with the arrays before a counted step and after it, by parameter.
    """

    name: str
    shape: LaunchShape | None
    arguments: tuple[tuple[str, str] | ScalarArgument, ...]
    reads: frozenset[str]
    writes: frozenset[str]
    library: LibraryCall | None = None
    text: str | None = None
    sizes: Mapping[str, int] = field(default_factory=dict)
    observe: Callable[[Mapping[str, npt.NDArray[Any]], Mapping[str, npt.NDArray[Any]]], None] | None = None


@dataclass(frozen=True, slots=True)
class Run:
    """One launch to make, or one run of a pipeline.

    Attributes:
        arguments: those that are passed in the kernel's parameter order, and arrays that they point to.
        schedule_seed: permutes the order of blocks and warps, and where buffers lie in memory; 0 is the natural order.
        step_limit: instructions one thread may take before the finding `hang`.
        limited_by: source of that limit, for messages.
        count: fill in `RunResult.counters`.
        check: make the slow checks (races, uninitialised reads, wrapped indices); out-of-bounds
            accesses are always found.
        native: whether the same launch of an earlier version was worth compiling to native code, where that is known;
            it affects the time, not the result (emulator only).
        environment: the launch's environment, such as special registers and addresses; None for the usual one (emulator only).
        executed: where it is counted, count the machine instructions that it executes too, which takes a disassembler.
        total_limit: instructions all threads together may take; more raises `EmulationTooLarge` (emulator only).
        key: names the launch among those of one module: equal keys, equal launches. None if nobody names it.
        wary: its inputs may lead to bad addresses, so that the emulator makes it before a GPU does, where it is
            `is_small_launch`.
        replicated: the compiler stores one value by all lanes that hold it, so that stores of one instruction to one
            address of shared memory are not reported (emulator only).
        stages: of a pipeline, its steps in order. Its temporaries are arguments too, and `shape` is not used.
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
    environment: LaunchEnvironment | None = None
    wary: bool = False
    replicated: bool = False
    stages: tuple[StageLaunch, ...] = ()


CHECKED_BYTES = 1 << 20
CHECKED_THREADS = 1 << 16


def array_bytes(run: Run) -> int:
    """Returns the bytes of a launch's arrays."""
    return sum(item.data.nbytes for item in run.arguments if isinstance(item, ArrayArgument))


def is_small_launch(shape: LaunchShape, array_bytes: int) -> bool:
    """Returns True if the emulator may make such a launch before a GPU does: few threads, and few bytes of arrays."""
    return array_bytes <= CHECKED_BYTES and shape.threads * shape.blocks <= CHECKED_THREADS


@dataclass(frozen=True, slots=True)
class CacheSample:
    """Sampled contents of one SM's L1, by a model, for the accesses of that SM's blocks.

    Attributes:
        cache_bytes: the size of the modelled cache.
        loads, stores: by instruction, requested sectors and hits.
        atomics: by instruction, the number of warps' atomics, and the sum over them of the lanes that update the most
            frequent address.
    """

    cache_bytes: int
    loads: Mapping[int, tuple[int, int]]
    stores: Mapping[int, tuple[int, int]]
    atomics: Mapping[int, tuple[int, int]] = field(default_factory=dict)

    @property
    def load_hits(self) -> float | None:
        """Returns L1's hit rate of load sectors; None without loads."""
        return _share(self.loads)

    @property
    def store_hits(self) -> float | None:
        """Share of stored sectors that were in L1; they are written through all the same."""
        return _share(self.stores)


def _share(sites: Mapping[int, tuple[int, int]]) -> float | None:
    asked = sum(asked for asked, _ in sites.values())
    return sum(held for _, held in sites.values()) / asked if asked else None


@dataclass(frozen=True, slots=True)
class StageResult:
    """Counts of one step of a pipeline.

    Attributes:
        name: the stage.
        shape: its launch; None for a step of a library.
        result: result of the launch, without arrays; None for a step of a library.
        moved_bytes: bytes of the arrays that a library's step takes and gives; 0 for a launch.
        written_bytes: bytes of temporaries whose contents the step changed.
        read_bytes: bytes of temporaries that earlier steps had written, in those that the step read.
    """

    name: str
    shape: LaunchShape | None
    result: RunResult | None
    moved_bytes: int
    written_bytes: int
    read_bytes: int


@dataclass(frozen=True, slots=True)
class RunResult:
    """Result of one launch, or of one run of a pipeline.

    Attributes:
        arrays: contents of every array argument afterwards, same dtype and shape. Meaningless where `findings` holds
            an error that stopped the launch.
        findings: with positions in the *unit's* text; the judge maps them to the user's file.
        checked: races, uninitialised reads and wrapped indices were looked for.
        unwatched: exceptions from `checked`: a clause for each part that was not examined, with the reason.
        counters: the counters of this launch, if they were requested.
        reads: names of arrays the kernel loaded from before it had written the same bytes itself.
        lasting: variables of the module that were loaded from before the kernel had stored there, and are changed now
            (emulator only).
        block_counts: how often each PTX basic block was entered, in threads, by label; for instruction mixes.
        footprint_bytes: unique global bytes touched, in whole 32-byte sectors; None when not counted.
        lines: counters by source line of the *unit's* text, if they were requested (emulator only).
        atomic_sectors: different sectors of global memory that atomics touched; None when not counted.
        l1: results of the model of L1 for the accesses of one SM; None when not counted, or if it does not apply.
        printed: what the kernel printed, at most 64 KiB.
        ptx_instructions: thread-level PTX instructions executed (emulator only; hardware runs SASS).
        native: True if the launch was long enough for native code, False if it was not; None while that is undecided
            (emulator only).
        longest_thread: upper bound on the PTX instructions of any one thread, for choosing `Run.step_limit`.
        outcomes: by instruction that `Run.environment` watches, the outcomes of its condition.
        counting: if counters are still being counted in another process: returns a result that has them, or None.
        stages: of a pipeline, the counted steps in order; `counters` are their sums.
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
    stages: tuple[StageResult, ...] = ()

    def with_counters(self) -> RunResult:
        """Returns the result with the counters that were collected beside the launch, if they are ready."""
        if self.stages:
            stages = tuple(
                one if one.result is None else replace(one, result=one.result.with_counters()) for one in self.stages
            )
            return replace(self, stages=stages, counters=total_counters(stages))
        seen = None if self.counting is None else self.counting()
        if seen is None:
            return replace(self, counting=None)
        return replace(
            self,
            counters=seen.counters,
            block_counts=seen.block_counts,
            footprint_bytes=seen.footprint_bytes,
            barriers=seen.barriers,
            ptx_instructions=seen.ptx_instructions,
            longest_thread=seen.longest_thread,
            lines=seen.lines,
            atomic_sectors=seen.atomic_sectors,
            l1=seen.l1,
            counting=None,
        )


def total_counters(stages: Iterable[StageResult]) -> Counters | None:
    """Returns the sums of a pipeline's counters; None unless every launch was counted.

    Figures that cannot be summed are None: the memory that all steps touch together, caches, and the mix of instructions.
    """
    counted = [one.result.counters for one in stages if one.result is not None]
    if not counted or None in counted:
        return None

    def total(name: str) -> int | None:
        values = [getattr(one, name) for one in counted]
        return None if None in values else sum(values)

    summed = [one.name for one in fields(Counters) if one.name not in _NOT_SUMMED]
    return Counters(source="emulated", **{name: total(name) for name in summed})  # type: ignore[arg-type]


_NOT_SUMMED = frozenset({"source", "footprint_bytes", "caches", "instruction_mix", "instruction_mix_unknown"})


class Module(Protocol):
    """One compiled kernel, loaded, or the kernels of a pipeline."""

    def run(self, run: Run) -> RunResult:
        """Makes one launch. Errors of the kernel are findings, not exceptions.

        Raises:
            EmulationTooLarge: the launch exceeds the emulator's limits, which says nothing about the kernel.
        """
        ...


@runtime_checkable
class SupportsPrefetch(Protocol):
    """A module that runs faster if it knows coming launches."""

    def foresee(self, runs: Iterable[Run]) -> None:
        """Announces launches in the order in which they will be requested; replaces earlier announcements."""
        ...


@runtime_checkable
class SupportsBackgroundLaunch(Protocol):
    """A backend that can launch in the background."""

    def begin(self, compiled: Compiled, target: Target, run: Run) -> None:
        """Starts a launch that will probably be requested soon, without waiting."""
        ...


@runtime_checkable
class SupportsArrayComputing(Protocol):
    """A backend whose GPU can compute arrays, isolated from kernels under judgement."""

    @property
    def trusted(self) -> Backend:
        """Returns the backend for references and baselines, in the context in which arrays are computed."""
        ...

    def computing(self) -> AbstractContextManager[Any]:
        """Context manager that gives CuPy with the GPU current and no timing in progress."""
        ...


class Backend(Protocol):
    """Runs kernels.

    `poisoned` is True if an earlier launch destroyed the device context; its process must then be replaced.
    """

    @property
    def name(self) -> BackendName:
        """Name of the backend in verdicts."""
        ...

    @property
    def poisoned(self) -> bool:
        """True if the backend has lost its context, as described for the class."""
        ...

    def load(self, compiled: Compiled, target: Target) -> Module:
        """Loads compiled code.

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
    """The launch needs more instructions or memory than the emulator allows.

    Attributes:
        limit: the exceeded limit.
        advice: the remedy beside judging smaller sizes.
        longest_thread: instructions of the longest thread of the batch when it was stopped, if it ran.
    """

    def __init__(
        self, message: str, limit: int, advice: str = "raise instruction_limit in the settings",
        longest_thread: int | None = None,
    ) -> None:  # fmt: skip
        super().__init__(message)
        self.limit = limit
        self.advice = advice
        self.longest_thread = longest_thread
