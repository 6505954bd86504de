"""Everything found out about one version; field names and their order are the JSON schema's."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from kernelmate.records.compiled import Diagnostic, Occupancy, Resources
from kernelmate.records.findings import Finding
from kernelmate.records.lines import LineCounters
from kernelmate.records.roofline import Roofline

BackendName = Literal["cuda", "emulator"]
MetricName = Literal[
    "time", "shared_bytes", "registers", "local_bytes", "global_bytes", "occupancy", "accuracy", "correct"
]  # fmt: skip
"""Metrics that a prompt can name; `correct` is for kernels that do not compile or are wrong."""


@dataclass(frozen=True, slots=True)
class FirstWrong:
    """The first element that is wrong: argument, index, what was wanted, what was there."""

    argument: str
    index: tuple[int, ...]
    want: float | None
    got: float | None


@dataclass(frozen=True, slots=True)
class Case:
    """Result of one size.

    `max_error` is the largest |got - want| over its tolerance: up to 1 passes; None when nothing could be compared.
    `correct` is None when the case is degenerate or there is nothing to compare with.

    Attributes:
        tolerance_origin: `contract` where the contract fixes the tolerance, `derived` where it was derived at this size,
            `carried` where it was derived at smaller sizes and carried over; None where nothing was compared.
        held_against: what the outputs were compared with: `reference` or `baseline`; None where nothing was compared.
        weight: of this size in the contract's `weights`; None without them, and for sizes of our own.
        speedup: the baseline's time over this version's at this size; None where either has no time.
        scalars: scalars that had another value than the contract's at one of the launches, and that value; None where
            none had.
    """

    size: Mapping[str, int]
    origin: Literal["contract", "own"]
    correct: bool | None
    baseline_correct: bool | None
    degenerate: bool
    max_error: float | None
    first_wrong: FirstWrong | None
    median_us: float | None
    tolerance_origin: Literal["derived", "carried", "contract"] | None = None
    held_against: Literal["reference", "baseline"] | None = None
    weight: float | None = None
    speedup: Speedup | None = None
    scalars: Mapping[str, float] | None = None


@dataclass(frozen=True, slots=True)
class Timing:
    """Time of one launch: measured, or predicted from counts. Times are microseconds.

    Attributes:
        median_us: of a measured one, the Hodges-Lehmann median over blocks of a launch's duration, by the GPU's time stamps before and
            after it, less what they show with no launch between: Nsight Compute's `gpu__time_duration`.
        cold_l2_us: the same with nothing in L2.
        replay_period_us: how much later the next launch of a graph begins, less that of an empty kernel.
        runs: launches that were counted.
        sm_clock_mhz: as a kernel counted it beside the blocks.
        throttled: clocks were held down in blocks that repeating did not help.
        cupti_us: from the first block's start to the last one's end by CUPTI's records, as Nsight Systems shows it;
            None where CUPTI is absent. Tracing slows kernels down that write much.
        temperature_c: the highest of the GPU meanwhile.
        notes: what a reader of the figures must know, in phrases.
    """

    kind: Literal["measured", "predicted"]
    median_us: float
    ci95_us: tuple[float, float]
    cold_l2_us: float | None
    replay_period_us: float | None
    runs: int | None
    sm_clock_mhz: int | None
    throttled: bool | None
    cupti_us: float | None = None
    temperature_c: int | None = None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Speedup:
    """Baseline time over candidate time at one size, in a verdict the headline.

    `weighted`: over the sizes of the contract's `weights` instead, as their weighted geometric mean.
    """

    kind: Literal["measured", "predicted"]
    median: float
    ci95: tuple[float, float]
    weighted: bool = False


@dataclass(frozen=True, slots=True)
class CacheEstimate:
    """Estimate of a launch with empty caches, by a model of the target's caches; never counted.

    Attributes:
        l1_bytes: what an SM's L1 has left beside shared memory.
        l1_sector_hit_rate: of global loads and stores, as Nsight Compute's l1tex__t_sector_hit_rate; l1_load_hit_rate: of
            loads alone. None without any.
        l2_sectors: that L1 passes on, stores and atomics among them; l2_sector_hit_rate: as lts__t_sector_hit_rate.
        dram_bytes_read: as dram__bytes_read.
    """

    l1_bytes: int
    l1_sector_hit_rate: float | None
    l1_load_hit_rate: float | None
    l2_sectors: int
    l2_sector_hit_rate: float | None
    dram_bytes_read: int


@dataclass(frozen=True, slots=True)
class OpcodeCount:
    """Number of executions of one SASS opcode in a launch.

    Attributes:
        opcode: without modifiers, `LDG`. kind: the class that it belongs to, `global_load`.
        warps: as Nsight Compute's sass__inst_executed_per_opcode; threads: over the active threads of those warps, whatever
            the instruction's own predicate says.
    """

    opcode: str
    kind: str
    warps: int
    threads: int


@dataclass(frozen=True, slots=True)
class InstructionMix:
    """The SASS instructions that one launch executes, the most frequent opcode first.

    `warps` is what Nsight Compute calls smsp__inst_executed, `threads` smsp__thread_inst_executed.
    """

    warps: int
    threads: int
    opcodes: tuple[OpcodeCount, ...]


@dataclass(frozen=True, slots=True)
class Counters:
    """Memory requests of a launch. None if a source cannot know the number.

    Attributes:
        global_bytes_asked: what threads wanted of global memory; what is moved are sectors.
        global_atomic_sectors: as L2 gets them.
        footprint_bytes: different bytes of global memory touched, in whole sectors.
        barriers: how often blocks came to a barrier.
        caches: by a model, not counted.
        thread_instructions: of SASS.
        instruction_mix: of SASS; None where what ptxas made of the branches cannot be followed, and `instruction_mix_unknown`
            says why.
    """

    source: Literal["emulated", "hardware"]
    global_load_requests: int | None
    global_load_sectors: int | None
    global_store_requests: int | None
    global_store_sectors: int | None
    global_atomic_requests: int | None
    global_bytes_asked: int | None
    shared_load_wavefronts: int | None
    shared_store_wavefronts: int | None
    bank_conflicts: int | None
    local_sectors: int | None
    divergent_branches: int | None
    thread_instructions: int | None
    global_atomic_sectors: int | None = None
    footprint_bytes: int | None = None
    barriers: int | None = None
    caches: CacheEstimate | None = None
    instruction_mix: InstructionMix | None = None
    instruction_mix_unknown: str | None = None


@dataclass(frozen=True, slots=True)
class HardwareProfile:
    """One launch at the headline size as hardware counters saw it. None where the profiler gave nothing.

    Attributes:
        tool: `ncu 2025.3.1.0`.
        counters: named as ours, of source `hardware`. Its instructions are those of SASS.
        duration_us: from the first block's start to the last one's end, with caches emptied before.
        dram_read_bytes: from DRAM to L2; `dram_written_bytes` the other way.
        l1_hit_rate: share of the sectors asked of L1 that were there; `l2_hit_rate` likewise of L2.
        achieved_occupancy: active warps over the most that an SM holds, on average.
        sm_busy: share of the peak of what is busiest inside an SM; `dram_busy` of DRAM's bandwidth.
    """

    tool: str
    counters: Counters
    duration_us: float | None
    dram_read_bytes: int | None
    dram_written_bytes: int | None
    l1_hit_rate: float | None
    l2_hit_rate: float | None
    achieved_occupancy: float | None
    sm_busy: float | None
    dram_busy: float | None


@dataclass(frozen=True, slots=True)
class ObjectiveResult:
    """Comparison of a verdict with its objective. `basis` names the kind of evidence that decided.

    `weighted`: `before` and `after` are weighted geometric means over the sizes of the contract's `weights`, and not of
    the headline.
    """

    name: MetricName
    basis: Literal["measured", "counted", "predicted"]
    before: float | None
    after: float | None
    met: bool | None
    weighted: bool = False


@dataclass(frozen=True, slots=True)
class Verdict:
    """Everything found out about one version of a kernel.

    `trade_offs` are sentences about what got worse than the baseline's and is not held against the version.
    `lines` are the headline size's counters by source line, `roofline` is where that size stands, and `predicted` what the
    model says of its time where `timing` is measured, `hardware` what hardware counters say of it.
    """

    kernel: str
    instance: str | None
    backend: BackendName
    target: str
    arch: str
    compiler: str
    binary: str | None
    seed: int
    compiled: bool
    diagnostics: tuple[Diagnostic, ...]
    resources: Resources | None
    occupancy: Occupancy | None
    correct: bool | None
    cases: tuple[Case, ...]
    findings: tuple[Finding, ...]
    timing: Timing | None
    speedup: Speedup | None
    counters: Counters | None
    objective: ObjectiveResult | None
    accepted: bool | None
    reasons: tuple[str, ...]
    trade_offs: tuple[str, ...] = ()
    lines: tuple[LineCounters, ...] | None = None
    predicted: Timing | None = None
    roofline: Roofline | None = None
    hardware: HardwareProfile | None = None

    @property
    def undecided(self) -> bool:
        """Nothing speaks against it, and whether it meets the objective is within the prediction's own error."""
        asked = self.objective
        return self.accepted is None and asked is not None and asked.basis == "predicted" and asked.met is None

    @property
    def unreached(self) -> bool:
        """It was to be judged and is neither right nor wrong, though it has a reference, or has not one case.

        Judging was cut short then, or what judged it was interfered with. Cases that are all degenerate were judged: they
        cannot tell right from wrong.
        """
        open_cases = any(case.held_against == "reference" and not case.degenerate for case in self.cases)
        return self.compiled and self.correct is None and (open_cases or not self.cases)

    @property
    def clean(self) -> bool:
        """Judged by itself, nothing speaks against it, and what there was to find out was found out."""
        return self.accepted is not False and not self.unreached

    @property
    def worth_taking(self) -> bool:
        """It is accepted, or promising: as good as can be told where it was judged."""
        return self.clean and not self.undecided
