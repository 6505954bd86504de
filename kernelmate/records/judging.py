"""Records of the worker's tasks and results."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kernelmate.records.compiled import Compiled, Target
from kernelmate.records.contract import Contract, LaunchShape
from kernelmate.records.findings import Finding
from kernelmate.records.kernels import Unit
from kernelmate.records.lines import LineCounters
from kernelmate.records.verdict import (
    Alternative,
    AlternativeName,
    BackendName,
    Case,
    Counters,
    HardwareProfile,
    Speedup,
    StageVerdict,
    Timing,
    Work,
)

MOSTLY_LAUNCHING = "mostly launching"
"""Prefix of the note on a time that consists mostly of launch overhead."""

AS_BASELINE = "agrees with the baseline"
"""Beginning of a reason for a version that was compared with nothing else."""

NO_RACE_SEEN = "no race seen in"
"""Prefix of the reason that states how extensively races were searched for; nearly every version has it."""


@dataclass(frozen=True, slots=True)
class Version:
    """One version of a kernel, ready to be judged: compiled code and its contract.

    Attributes:
        stages: of a pipeline, the kernels of its stages in order; its own code is empty. Steps of a library have none.
    """

    compiled: Compiled
    contract: Contract
    unit: Unit
    stages: tuple[Version, ...] = ()

    @property
    def texts(self) -> str:
        """Returns the PTX of the version, of a pipeline that of all its kernels."""
        return "\n".join(one.compiled.ptx for one in self.stages) or self.compiled.ptx


@dataclass(frozen=True, slots=True)
class BuildVariant:
    """The version under judgement, compiled in another way: without optimisation if `arch` is None, else for that architecture."""

    compiled: Compiled
    arch: str | None = None


@dataclass(frozen=True, slots=True)
class Computation:
    """A kernel's computation in PyTorch, to be timed beside the kernel.

    Attributes:
        name: whether it is called as it is, or compiled.
        words: what is called, for people.
        source: text of a Python file with the function `computation`; None if `function` names one.
        function: a function of the user, as `path:function`.
        tf32: products of float32 arrays may round their operands to TF32.
    """

    name: AlternativeName
    words: str
    source: str | None = None
    function: str | None = None
    tf32: bool = False


@dataclass(frozen=True, slots=True)
class JudgeTask:
    """A task of the worker: judge and time `candidate` on one backend for one target.

    Attributes:
        baseline: the version that the candidate is compared with; None when the kernel itself is judged.
        reference_version: the compiled kernel that the contract names as reference, where it names one.
        sizes: sizes to judge; empty for the contract's.
        own_sizes: also judge generated sizes around the contract's.
        directory: folder that relative `path:function` references are read from.
        step_limit: dynamic instructions one thread may take before the kernel counts as hung (emulator).
        timeout_s: seconds until the client gives up, None for never; generated sizes are skipped to finish in time.
        instruction_limit: dynamic instructions all threads of one launch may take together (emulator).
        timing_budget_s: seconds that timing all sizes should take (cuda).
        sanitize: run compute-sanitizer around the listed launches as well (GPU).
        profile: read hardware counters of the headline launch as well (GPU).
        executed: also count the SASS instructions of listed launches, which needs a disassembler.
        twins: differently compiled builds of the candidate, which the emulator runs beside it.
        count: count the memory requests of listed launches; with a GPU backend the emulator does the counting.
        glance: make only the first launch of each size. A wrong candidate is then recognised, a right one is not yet
            proved; only the first size is timed, and only with a warm L2.
        written: the candidate was written from the reference and has no baseline, so that it must give NaN where the
            reference does.
        against: computations that are timed beside the candidate at the headline size (cuda).
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
    instruction_limit: int = 20_000_000_000
    reference_timeout_s: float = 60.0
    timing_budget_s: float = 0.2
    timeout_s: float | None = None
    sanitize: bool = False
    profile: bool = False
    executed: bool = False
    count: bool = True
    glance: bool = False
    twins: tuple[BuildVariant, ...] = ()
    written: bool = False
    against: tuple[Computation, ...] = ()


@dataclass(frozen=True, slots=True)
class SizeMetrics:
    """Counts and time of one listed size.

    `launch` is the candidate's own launch there, `lines` are lines of the user's file.

    For measured times, `beside` is the baseline's time from the same timing blocks, and `speedup` the ratio over those
    blocks. If the emulator counted the launch, `work` holds its operations and traffic, and `predicted` the model's
    time next to a measured one. `stages` are those of a pipeline, as far as the worker knows them. `against` are
    computations by libraries beside the candidate, at the headline size.
    """

    size: Mapping[str, int]
    launch: LaunchShape
    counters: Counters | None
    timing: Timing | None
    lines: tuple[LineCounters, ...] | None = None
    beside: Timing | None = None
    speedup: Speedup | None = None
    work: Work | None = None
    predicted: Timing | None = None
    stages: tuple[StageVerdict, ...] = ()
    against: tuple[Alternative, ...] = ()


@dataclass(frozen=True, slots=True)
class Judgement:
    """The worker's result; the session joins it with the compiler's results into a `Verdict`.

    Attributes:
        metrics: one entry per listed size that ran, the headline first; empty if nothing ran.
        only_written: names of `inout` arguments that no run read before writing; an inferred contract may call them
            `out`.
        printed: the kernel's printed output, truncated.
        hardware: hardware counters of the headline launch; None unless requested and permitted.
        assumes: conditions over sizes without which it fails, as `require` has them.
    """

    correct: bool | None
    cases: tuple[Case, ...]
    findings: tuple[Finding, ...]
    metrics: tuple[SizeMetrics, ...]
    only_written: tuple[str, ...] = ()
    printed: str = ""
    reasons: tuple[str, ...] = ()
    hardware: HardwareProfile | None = None
    assumes: tuple[str, ...] = ()
