"""Frozen records that cross the seams of the house.

Lines and columns count from 1, columns in characters (not bytes, not UTF-16 units). Sizes in memory are bytes, times
are microseconds unless a name says otherwise. `Verdict` and what hangs below it is the JSON schema that every front
end shows: field names and their order are that schema's, and `kernelmate.report.json` writes them out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

Severity = Literal["error", "warning", "note"]
Direction = Literal["in", "out", "inout"]
BackendName = Literal["cuda", "emulator"]
MetricName = Literal["time", "shared_bytes", "registers", "local_bytes", "global_bytes", "occupancy", "accuracy"]
Size = Mapping[str, int]

# ---------------------------------------------------------------------------------------------------- source


@dataclass(frozen=True, slots=True)
class Anchor:
    """From (`unit_line`, `unit_column`) on, the unit's text stands at (`file_line`, `file_column`) of the file."""

    unit_line: int
    unit_column: int
    file_line: int
    file_column: int


@dataclass(frozen=True, slots=True)
class Unit:
    r"""One compilation unit: CUDA text, and where it stands in the user's file.

    Attributes:
        path: the user's file, or a name in angle brackets (`<cell>`) for text without one.
        text: the CUDA text with `\n` line ends.
        language: what the file is: `cuda` (.cu, .cuh), `python` (a string in a .py file), or `text` (a cell).
        anchors: sorted by unit position; empty when the unit is the file itself, position for position.
        contract_text: for a Python string, the contract block written as `#` comments above the statement that holds
            the string, with `contract_line` its first line in the file; else None (the block is in `text`).
        file_text: the whole file as read, for edits; equal to `text` for .cu files with `\n` line ends.
    """

    path: str
    text: str
    language: Literal["cuda", "python", "text"] = "cuda"
    anchors: tuple[Anchor, ...] = ()
    contract_text: str | None = None
    contract_line: int | None = None
    file_text: str | None = None

    def locate(self, line: int, column: int | None) -> tuple[int, int | None]:
        """The file position of a position in the unit's text."""
        best: Anchor | None = None
        for anchor in self.anchors:
            if (anchor.unit_line, anchor.unit_column) > (line, column or 1):
                break
            best = anchor
        if best is None:
            return line, column
        if line != best.unit_line:
            return best.file_line + (line - best.unit_line), column
        return best.file_line, None if column is None else best.file_column + (column - best.unit_column)


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter of a kernel.

    Attributes:
        name: as in the source.
        type: the C++ type as written, without qualifiers of the pointer itself: `const float *`, `int`, `dim3`.
        base: the pointed-to or scalar type without qualifiers: `float`, `unsigned int`, `__half2`, `T`.
        dtype: NumPy's name of the element type (ml_dtypes names included) with vectors taken apart (`float4` gives
            `float32`), or None where there is none (structs, template types, handles).
        vector: elements in one `base` (4 for float4, 2 for __half2, else 1).
        pointer: it is a pointer (one level).
        const: the pointed-to data is const.
        restrict: it is declared `__restrict__`.
    """

    name: str
    type: str
    base: str
    dtype: str | None
    vector: int
    pointer: bool
    const: bool
    restrict: bool
    line: int
    column: int


@dataclass(frozen=True, slots=True)
class Signature:
    """What a kernel's declaration says.

    `template_parameters` are names only, in order. `launch_bounds` holds the literal integers of `__launch_bounds__`
    (empty when absent or not literal).
    """

    parameters: tuple[Parameter, ...]
    template_parameters: tuple[str, ...] = ()
    launch_bounds: tuple[int, ...] = ()
    extern_c: bool = False


@dataclass(frozen=True, slots=True)
class LaunchSite:
    """One `kernel<<<grid, block, shared, stream>>>(...)` in the same file; offsets are into the unit's text.

    `grid_span`, `block_span`, `shared_span` are (start, end) offsets of the expressions; `shared_span` is None when
    not written.
    """

    kernel: str
    start: int
    end: int
    grid: str
    block: str
    shared: str | None
    grid_span: tuple[int, int]
    block_span: tuple[int, int]
    shared_span: tuple[int, int] | None
    line: int
    column: int


@dataclass(frozen=True, slots=True)
class Kernel:
    """One `__global__` function of a unit.

    Attributes:
        unit: the text that is compiled.
        name: with its namespaces: `ns::softmax`.
        start: offset of the definition's first character in `unit.text` (template line and attributes included).
        end: offset just past its closing brace.
        line: line of the name in the unit's text.
        column: column of the name.
        contract_span: offsets of the contract block that belongs to it in `unit.text` (whole lines), or None.
    """

    unit: Unit
    name: str
    signature: Signature
    start: int
    end: int
    line: int
    column: int
    launches: tuple[LaunchSite, ...] = ()
    contract_span: tuple[int, int] | None = None

    @property
    def source(self) -> str:
        """The text of the definition alone."""
        return self.unit.text[self.start : self.end]


# -------------------------------------------------------------------------------------------------- contract


@dataclass(frozen=True, slots=True)
class Argument:
    """One entry of a contract's `[args]`, in the kernel's parameter order.

    Attributes:
        name: the parameter's name.
        direction: `in`, `out` or `inout` for arrays; None for a scalar.
        dtype: NumPy or ml_dtypes name.
        shape: one expression per dimension for arrays, None for a scalar.
        distribution: the declared distribution's text after `~`, stripped, or None.
        value: for a scalar, its expression; None means that it takes the size of its own name.
    """

    name: str
    direction: Direction | None
    dtype: str
    shape: tuple[str, ...] | None = None
    distribution: str | None = None
    value: str | None = None


@dataclass(frozen=True, slots=True)
class Tolerance:
    """A tolerance the contract fixes: |got - want| <= atol + rtol * |want|."""

    rtol: float
    atol: float


@dataclass(frozen=True, slots=True)
class Contract:
    """What a kernel takes, how it is launched, and what it must compute. Expressions are text, already checked.

    Attributes:
        sizes: at least one; every one is checked and timed, the first is the headline.
        grid: one to three expressions. block: likewise. shared: dynamic shared bytes.
        reference: as written: `path:function`, another kernel's name, or a NumPy expression; None when absent.
        reference_kind: how `reference` is to be read.
        inferred: guessed from the signature; nothing judged with it is accepted automatically.
        line: first line of the block in the user's file; None when inferred.
    """

    kernel: str
    sizes: tuple[Mapping[str, int], ...]
    grid: tuple[str, ...]
    block: tuple[str, ...]
    args: tuple[Argument, ...]
    shared: str = "0"
    reference: str | None = None
    reference_kind: Literal["function", "kernel", "expression"] | None = None
    tolerance: Tolerance | None = None
    instances: tuple[str, ...] = ()
    options: tuple[str, ...] = ()
    require: tuple[str, ...] = ()
    inputs: str | None = None
    accumulate: str | None = None
    deterministic: bool = False
    cooperative: bool = False
    cluster: tuple[int, ...] | None = None
    inferred: bool = False
    line: int | None = None


@dataclass(frozen=True, slots=True)
class LaunchShape:
    """One concrete launch: numbers only."""

    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared_bytes: int = 0
    cooperative: bool = False
    cluster: tuple[int, ...] | None = None

    @property
    def threads(self) -> int:
        """Threads in one block."""
        return self.block[0] * self.block[1] * self.block[2]

    @property
    def blocks(self) -> int:
        """Blocks in the grid."""
        return self.grid[0] * self.grid[1] * self.grid[2]


# -------------------------------------------------------------------------------------------------- compiler


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """One message of the compiler, in the user's file. `code` is the front end's number or name, where it gave one."""

    severity: Severity
    message: str
    file: str | None
    line: int | None
    column: int | None
    code: str | None = None


@dataclass(frozen=True, slots=True)
class Resources:
    """What one block of the kernel takes. Bytes; `local_bytes` and `spill_bytes` per thread, shared per block."""

    registers: int
    shared_bytes: int
    dynamic_shared_bytes: int
    local_bytes: int
    spill_bytes: int | None
    max_threads: int
    code_bytes: int


@dataclass(frozen=True, slots=True)
class Occupancy:
    """Theoretical occupancy: active warps over the most that the target's SM holds.

    `limiter` is one of `registers`, `shared`, `blocks`, `threads`, or `launch` when the block cannot be launched at
    all. `waves` is the number of rounds in which the grid's blocks go through the GPU.
    """

    theoretical: float
    limiter: str
    blocks_per_sm: int
    waves: float | None


@dataclass(frozen=True, slots=True)
class CompileOptions:
    """How device code is compiled, beyond what a contract's `options` ask for.

    `flags` are NVRTC spellings, passed as they are after the others.
    """

    std: str = "c++17"
    defines: tuple[str, ...] = ()
    include_paths: tuple[str, ...] = ()
    fast_math: bool = False
    max_registers: int | None = None
    flags: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Compiled:
    """One kernel (one instance of it) compiled for one target, or why it is not.

    Attributes:
        name: the kernel's name, for people. instance: the template instance's text, or None.
        lowered_name: the symbol in PTX and CUBIN; empty when compilation failed.
        arch: `sm_90`. compiler: `NVRTC 13.0.88 --std=c++17 ...`, version and flags.
        binary: `sha256:` and the CUBIN's hash; None when compilation failed.
        resources: with `dynamic_shared_bytes` 0: the launch decides those. None when compilation failed.
    """

    name: str
    instance: str | None
    lowered_name: str
    arch: str
    compiler: str
    ok: bool
    diagnostics: tuple[Diagnostic, ...]
    ptx: str = ""
    cubin: bytes = b""
    binary: str | None = None
    resources: Resources | None = None


@dataclass(frozen=True, slots=True)
class Target:
    """One GPU of the table: what compiling, occupancy and prediction are for. Source of each figure beside it there.

    Attributes:
        arch: `sm_90`. capability: (9, 0).
        sms: streaming multiprocessors. clock_mhz: boost clock of an SM.
        memory_gbps: DRAM bandwidth, 10^9 bytes/s. l2_bytes: L2 size.
        fp32_tflops: peak of FMA lanes outside tensor cores; likewise fp64, fp16 (packed, outside tensor cores).
    """

    name: str
    arch: str
    capability: tuple[int, int]
    sms: int
    clock_mhz: int
    memory_bytes: int
    memory_gbps: float
    l2_bytes: int
    fp32_tflops: float
    fp64_tflops: float
    fp16_tflops: float
    source: str


# --------------------------------------------------------------------------------------------------- verdict


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing wrong or suspicious, at the user's line. `threads` are flat thread numbers in their block."""

    code: str
    severity: Severity
    message: str
    file: str | None = None
    line: int | None = None
    column: int | None = None
    buffer: str | None = None
    offset: int | None = None
    threads: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class FirstWrong:
    """The first element that is wrong: argument, index, what was wanted, what was there."""

    argument: str
    index: tuple[int, ...]
    want: float | None
    got: float | None


@dataclass(frozen=True, slots=True)
class Case:
    """What became of one size.

    `max_error` is the largest |got - want| over its tolerance: up to 1 passes; None when nothing could be compared.
    `correct` is None when the case is degenerate or there is nothing to compare with.
    """

    size: Mapping[str, int]
    origin: Literal["contract", "own"]
    correct: bool | None
    baseline_correct: bool | None
    degenerate: bool
    max_error: float | None
    first_wrong: FirstWrong | None
    median_us: float | None


@dataclass(frozen=True, slots=True)
class Timing:
    """How long the headline size takes: measured, or predicted from counts."""

    kind: Literal["measured", "predicted"]
    median_us: float
    ci95_us: tuple[float, float]
    cold_l2_us: float | None
    replay_period_us: float | None
    runs: int | None
    sm_clock_mhz: int | None
    throttled: bool | None


@dataclass(frozen=True, slots=True)
class Speedup:
    """Baseline time over candidate time at the headline size."""

    kind: Literal["measured", "predicted"]
    median: float
    ci95: tuple[float, float]


@dataclass(frozen=True, slots=True)
class Counters:
    """What a launch asks of the memory system. None where a source cannot know it."""

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


@dataclass(frozen=True, slots=True)
class ObjectiveResult:
    """How a verdict stands to the asked-for objective. `basis` says what kind of knowledge decided."""

    name: MetricName
    basis: Literal["measured", "counted", "predicted"]
    before: float | None
    after: float | None
    met: bool | None


@dataclass(frozen=True, slots=True)
class Verdict:
    """Everything found out about one version of a kernel."""

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


# ------------------------------------------------------------------------------------------- between processes


@dataclass(frozen=True, slots=True)
class Version:
    """One version of a kernel, ready to be judged: compiled code and the contract in force for it."""

    compiled: Compiled
    contract: Contract
    unit: Unit


@dataclass(frozen=True, slots=True)
class JudgeTask:
    """What the worker is asked: is `candidate` right, and what does it cost, on one backend for one target.

    Attributes:
        baseline: the version it is compared with; None when the kernel itself is judged.
        reference_version: the compiled kernel that the contract names as reference, where it names one.
        sizes: those to judge; empty means the contract's.
        own_sizes: also judge sizes of our own around them.
        directory: folder that relative `path:function` references are read from.
        step_limit: dynamic instructions one thread may take before the kernel counts as hung (emulator).
    """

    backend: BackendName
    target: Target
    candidate: Version
    baseline: Version | None
    reference_version: Version | None
    sizes: tuple[Mapping[str, int], ...]
    seed: int
    directory: str
    own_sizes: bool = True
    step_limit: int = 20_000_000
    reference_timeout_s: float = 60.0


@dataclass(frozen=True, slots=True)
class SizeMetrics:
    """Counts and time of one listed size; `launch` is the candidate's own there."""

    size: Mapping[str, int]
    launch: LaunchShape
    counters: Counters | None
    timing: Timing | None


@dataclass(frozen=True, slots=True)
class Judgement:
    """What the worker found out; the session joins it with what the compiler knows into a `Verdict`.

    Attributes:
        metrics: one per listed size that ran, the headline first; empty when nothing ran.
        only_written: names of `inout` arguments that no run read before writing (settles an inferred contract).
        printed: what the kernel printed, cut to a stated length.
    """

    correct: bool | None
    cases: tuple[Case, ...]
    findings: tuple[Finding, ...]
    metrics: tuple[SizeMetrics, ...]
    only_written: tuple[str, ...] = ()
    printed: str = ""
    reasons: tuple[str, ...] = ()


# --------------------------------------------------------------------------------------------------- suggest


@dataclass(frozen=True, slots=True)
class Objective:
    """What a prompt asks for: a metric, and which way is better.

    Attributes:
        metric: what is measured. direction: `decrease`, or `increase` for occupancy and accuracy.
        prompt: the user's words. reading: one sentence that says how they were understood, shown to the user.
        limits: the most that another metric may get worse, as a fraction (0.02: two per cent); metrics not named keep
            the default.
    """

    metric: MetricName
    direction: Literal["decrease", "increase"]
    prompt: str
    reading: str
    limits: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Candidate:
    """A changed kernel and who proposes it.

    Attributes:
        author: `recipe:pad-shared-tile`, `local:NAME`, `claude:MODEL`.
        why: one sentence. kernel: the changed kernel within its whole changed unit.
        contract: the contract in force for it (the baseline's with grid, block, shared, require perhaps changed).
    """

    author: str
    why: str
    kernel: Kernel
    contract: Contract


@dataclass(frozen=True, slots=True)
class Judged:
    """A candidate with its verdict."""

    candidate: Candidate
    verdict: Verdict


@dataclass(frozen=True, slots=True)
class Optimization:
    """All that one prompt led to. `best` indexes `candidates`; None when none is worth taking."""

    objective: Objective
    baseline: Verdict
    candidates: tuple[Judged, ...]
    best: int | None
    notes: tuple[str, ...] = ()
