"""The verdict on one version of a kernel; field names and their order are the JSON schema's."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from kernelmate.records.compiled import Diagnostic, Occupancy, Resources
from kernelmate.records.findings import Finding, FindingCode
from kernelmate.records.lines import LineCounters

Bound = Literal["memory", "compute", "latency"]


@dataclass(frozen=True, slots=True)
class Work:
    """Computation and traffic of one launch, independent of the GPU, and the limiting factor on the given GPU.

    Attributes:
        flops: floating-point operations by precision (`fp16`, `fp32`, `fp64`, `tensor`); a fused multiply-add is two.
        dram_bytes: distinct bytes touched, in whole sectors: the minimum DRAM traffic with a cold L2.
        l1_bytes: bytes that loads and stores move through L1, in whole sectors.
        l2_bytes: bytes through L2, by a model of L1.
        limiter: the part of the GPU that dominates the predicted time: `dram`, `l2`, `shared`, `fp32`, `latency`, ...
    """

    flops: Mapping[str, float]
    dram_bytes: float
    l1_bytes: float
    l2_bytes: float
    limiter: str


@dataclass(frozen=True, slots=True)
class Roofs:
    """Peak rates of a GPU.

    Attributes:
        source: the data sheet (`table`), or a measurement on such a GPU by `kernelmate calibrate`.
        dram_gbps: bandwidth between DRAM and L2, 10^9 bytes/s.
        l2_gbps: between L2 and the SMs.
        l1_gbps: of all L1 caches together.
        tflops: peak operation rate by precision, 10^12/s.
    """

    source: Literal["table", "measured"]
    dram_gbps: float
    l2_gbps: float
    l1_gbps: float
    tflops: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Roofline:
    """Position of one launch in the roofline model of one GPU. Times are microseconds.

    Attributes:
        work: its operations and traffic.
        roofs: the GPU's peak rates.
        kind: whether the time of `tflops` and of the shares was measured or predicted; None without a time.
        tflops: achieved operation rate, 10^12/s, with a warm L2.
        intensity: operations per byte of DRAM traffic; None without traffic.
        l2_intensity, l1_intensity: per byte of L2 and L1 traffic.
        peak_tflops: the peak rate for its mix of precisions.
        ridge: the ridge point: the intensity at which the DRAM roof meets the arithmetic roof.
        bound: the factor that dominates its predicted time: `memory` at any level, `compute`, or `latency` (too little
            work, or too few warps, to keep either busy).
        dram_us: time of its DRAM traffic at peak bandwidth, a lower bound with a cold L2.
        l2_us, l1_us: likewise of L2 and L1.
        compute_us: time of its operations at their peak rate.
        warm_us: its time directly after an equal launch.
        cold_us: its time with a cold L2.
        warm: achieved fraction of the roof: the longest of the times of L1, L2, arithmetic, and DRAM (for data beyond
            L2's capacity), over `warm_us`.
        cold: the longer of the times of DRAM and arithmetic, over `cold_us`.
    """

    work: Work
    roofs: Roofs
    kind: Literal["measured", "predicted"] | None
    tflops: float | None
    intensity: float | None
    l2_intensity: float | None
    l1_intensity: float | None
    peak_tflops: float
    ridge: float
    bound: Bound
    dram_us: float
    l2_us: float
    l1_us: float
    compute_us: float
    warm_us: float | None
    cold_us: float | None
    warm: float | None
    cold: float | None


BackendName = Literal["cuda", "emulator"]
MetricName = Literal[
    "time", "shared_bytes", "registers", "local_bytes", "global_bytes", "occupancy", "accuracy", "correct"
]  # fmt: skip
"""Metrics that a prompt can name; `correct` is the objective for kernels that do not compile or are wrong."""


@dataclass(frozen=True, slots=True)
class FirstWrong:
    """The first wrong element: argument, index, expected value, actual value."""

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
        tolerance_origin: `contract` where the contract fixes the tolerance, `derived` where it was derived at this
            size, `carried` where it was derived at smaller sizes and carried over; None if nothing was compared.
        held_against: what the outputs were compared with: `reference` or `baseline`; None if nothing was compared.
        weight: this size's weight in the contract; None without `weights`, and for generated sizes.
        speedup: the baseline's time over this version's at this size; None if either has no time.
        scalars: scalars that a launch varied from the contract's value, with the varied value; None without any.
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
        median_us: if measured, the Hodges-Lehmann median of the launch duration over timing blocks, from GPU time
            stamps before and after the launch, minus their difference without a launch; comparable to Nsight Compute's
            `gpu__time_duration`.
        cold_l2_us: the same with a cold L2.
        replay_period_us: period of back-to-back launches in a CUDA graph, minus that of an empty kernel.
        runs: number of timed launches.
        sm_clock_mhz: SM clock, measured by a kernel between the timing blocks.
        throttled: True if clocks were throttled in blocks even after repeating them.
        cupti_us: kernel duration from CUPTI's activity records, as Nsight Systems shows it; None without CUPTI. Tracing
            slows down kernels that write much.
        temperature_c: the GPU's highest temperature during timing.
        notes: remarks on the figures, as short phrases.
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
    """Baseline time over candidate time at one size; in a verdict, at the headline size.

    `weighted` is True for the weighted geometric mean over the contract's sizes.
    """

    kind: Literal["measured", "predicted"]
    median: float
    ci95: tuple[float, float]
    weighted: bool = False


AlternativeName = Literal["torch", "compile", "cublas"]


@dataclass(frozen=True, slots=True)
class Alternative:
    """The kernel's computation by a library, timed beside the kernel at the headline size on the same inputs.

    Attributes:
        name: `torch` in eager mode, `compile` by torch.compile, `cublas` for a matrix product by cuBLAS.
        computation: what was called: a function of the contract, or the functions of torch that the reference becomes.
        precision: settings of the library on which the precision depends.
        correct: its results agree with the expected ones within the kernel's tolerance; None if they were not compared.
        max_error: the largest error over its tolerance: up to 1 passes; None if nothing was compared.
        timing: its time; None unless its results are right.
        kernel: the kernel's time from the same blocks, both replayed as CUDA graphs.
        speedup: its time over the kernel's, from the blocks' ratios.
        why: the reason that it has no time; None if it has one.
    """

    name: AlternativeName
    computation: str
    precision: str
    correct: bool | None = None
    max_error: float | None = None
    timing: Timing | None = None
    kernel: Timing | None = None
    speedup: Speedup | None = None
    why: str | None = None


@dataclass(frozen=True, slots=True)
class CacheEstimate:
    """Estimated cache behaviour of a launch with cold caches, by a model of the target's caches; not counted.

    Attributes:
        l1_bytes: an SM's L1 capacity beside shared memory.
        l1_sector_hit_rate: of global loads and stores, like Nsight Compute's l1tex__t_sector_hit_rate.
        l1_load_hit_rate: of loads alone. None without accesses.
        l2_sectors: sectors that L1 requests from L2, stores and atomics included.
        l2_sector_hit_rate: like lts__t_sector_hit_rate.
        dram_bytes_read: like dram__bytes_read.
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
        opcode: the opcode without modifiers, such as `LDG`.
        kind: its class, such as `global_load`.
        warps: warp-level executions, like Nsight Compute's sass__inst_executed_per_opcode.
        threads: executions by active threads, whether or not the instruction's own predicate holds.
    """

    opcode: str
    kind: str
    warps: int
    threads: int


@dataclass(frozen=True, slots=True)
class InstructionMix:
    """The SASS instructions that one launch executes, the most frequent opcode first.

    `warps` corresponds to Nsight Compute's smsp__inst_executed, `threads` to smsp__thread_inst_executed.
    """

    warps: int
    threads: int
    opcodes: tuple[OpcodeCount, ...]


@dataclass(frozen=True, slots=True)
class Counters:
    """Counters of a launch: memory requests, barriers, instructions.

    A counter is None if its source does not provide it.

    Attributes:
        global_bytes_asked: bytes that threads requested of global memory; the transfers are whole sectors.
        global_atomic_sectors: sectors of atomics as L2 receives them.
        footprint_bytes: distinct global memory touched, in whole sectors.
        barriers: barrier executions, counted per block.
        caches: estimated by a model, not counted.
        thread_instructions: executed SASS instructions over all threads.
        instruction_mix: executed SASS instructions by opcode; None if the SASS branches cannot be matched to the PTX;
            `instruction_mix_unknown` then gives the reason.
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
class StageVerdict:
    """One stage of a pipeline; figures are those of the headline size.

    Attributes:
        name: the stage: its kernel, or the array that a library computes.
        expression: what a library computes, by NumPy; None for a kernel.
        grid, block: the launch; None for a step of a library.
        resources: of the kernel; None for a step of a library.
        occupancy: of the launch.
        correct: agrees with the stage's own reference at every listed size where it was compared; None if it was not.
        unjudged: the reason why it was not compared by itself; None if it was.
        max_error: the largest error over its tolerance: up to 1 passes; None if nothing was compared.
        counters: of the launch.
        timing: predicted time of the stage alone. A pipeline is measured as a whole.
        temporaries_written_bytes: bytes of temporaries whose contents the stage changed.
        temporaries_read_bytes: bytes that earlier stages had written, in the temporaries that the stage read.
    """

    name: str
    expression: str | None = None
    grid: tuple[int, int, int] | None = None
    block: tuple[int, int, int] | None = None
    resources: Resources | None = None
    occupancy: Occupancy | None = None
    correct: bool | None = None
    unjudged: str | None = None
    max_error: float | None = None
    counters: Counters | None = None
    timing: Timing | None = None
    temporaries_written_bytes: int | None = None
    temporaries_read_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class HardwareProfile:
    """Hardware counters of one launch at the headline size. A field is None if the profiler gave no value.

    Attributes:
        tool: name and version, such as `ncu 2025.3.1.0`.
        counters: the same counters as the emulator's, with source `hardware`; instructions are SASS.
        duration_us: from the first block's start to the last block's end, with cold caches.
        dram_read_bytes: from DRAM to L2; `dram_written_bytes` the other way.
        l1_hit_rate: fraction of sectors found in L1; `l2_hit_rate` likewise of L2.
        achieved_occupancy: active warps over the most that an SM holds, on average.
        sm_busy: utilisation of an SM's busiest unit, as a fraction of its peak; `dram_busy` of DRAM bandwidth.
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
    """A version's objective before and after the change. `basis` is the kind of evidence that decided.

    `weighted`: True if `before` and `after` are geometric means over the sizes, weighted by the contract's `weights`,
    instead of the headline's values.
    """

    name: MetricName
    basis: Literal["measured", "counted", "predicted"]
    before: float | None
    after: float | None
    met: bool | None
    weighted: bool = False


@dataclass(frozen=True, slots=True)
class Verdict:
    """The verdict on one version of a kernel or a pipeline.

    `trade_offs` are sentences about figures that got worse than the baseline's without rejecting the version. `assumes` are
    conditions over sizes, in the form of the contract's `require`, without which the version fails. For the headline size, `lines` are counters by source line, `roofline` its position in the roofline model, `predicted` the
    model's time if `timing` is measured, `hardware` the hardware counters, and `against` the same computation by libraries, None unless asked for.
    `stages` are those of a pipeline.
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
    assumes: tuple[str, ...] = ()
    stages: tuple[StageVerdict, ...] | None = None
    against: tuple[Alternative, ...] | None = None

    @property
    def undecided(self) -> bool:
        """Returns True if nothing rejects the version and the prediction's error leaves open whether it meets the objective."""
        asked = self.objective
        return self.accepted is None and asked is not None and asked.basis == "predicted" and asked.met is None

    @property
    def unreached(self) -> bool:
        """Returns True if the version was judged but is neither right nor wrong although it has a reference, or has no case at all.

        Judging was then cut short or interfered with. Cases that are all degenerate were judged: they
        cannot tell right from wrong.
        """
        open_cases = any(case.held_against == "reference" and not case.degenerate for case in self.cases)
        return self.compiled and self.correct is None and (open_cases or not self.cases)

    @property
    def compared(self) -> bool:
        """Returns True if a case was compared with the reference, whether or not the comparison can tell right from wrong."""
        return any(case.held_against == "reference" for case in self.cases)

    @property
    def as_baseline(self) -> bool:
        """Returns True if the version was compared with the baseline alone, which may be wrong itself."""
        return {case.held_against for case in self.cases if case.correct is not None} == {"baseline"}

    @property
    def unsupported(self) -> bool:
        """Returns True if the backend does not know a feature of the version, so that it was not judged."""
        return self.correct is None and any(one.code == FindingCode.UNSUPPORTED_INSTRUCTION for one in self.findings)

    @property
    def clean(self) -> bool:
        """Returns True if nothing rejects the version, judged by itself, and every check was completed."""
        return self.accepted is not False and not self.unreached

    @property
    def worth_taking(self) -> bool:
        """Returns True if the version is accepted or promising, the best result that its backend can give."""
        return self.clean and not self.undecided
