"""Records of the worker's tasks and answers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kernelmate.records.compiled import Compiled, Target
from kernelmate.records.contract import Contract, LaunchShape
from kernelmate.records.findings import Finding
from kernelmate.records.kernels import Unit
from kernelmate.records.lines import LineCounters
from kernelmate.records.roofline import Work
from kernelmate.records.verdict import BackendName, Case, Counters, HardwareProfile, Speedup, Timing

MOSTLY_LAUNCHING = "mostly launching"
"""Prefix of the note on a time that consists mostly of the launch itself."""

NO_RACE_SEEN = "no race seen in"
"""Prefix of the reason that states how much was searched for races; nearly every version has it."""


@dataclass(frozen=True, slots=True)
class Version:
    """One version of a kernel, ready to be judged: compiled code and the contract in force for it."""

    compiled: Compiled
    contract: Contract
    unit: Unit


@dataclass(frozen=True, slots=True)
class BuildVariant:
    """The version under judgement compiled otherwise: without optimisation where `arch` is None, else for that one."""

    compiled: Compiled
    arch: str | None = None


@dataclass(frozen=True, slots=True)
class JudgeTask:
    """A task of the worker: judge and time `candidate` on one backend for one target.

    Attributes:
        baseline: the version it is compared with; None when the kernel itself is judged.
        reference_version: the compiled kernel that the contract names as reference, where it names one.
        sizes: those to judge; empty means the contract's.
        own_sizes: also judge sizes of our own around them.
        directory: folder that relative `path:function` references are read from.
        step_limit: dynamic instructions one thread may take before the kernel counts as hung (emulator).
        timeout_s: seconds until whoever asked gives up, None for never: sizes of our own are left out in time.
        instruction_limit: dynamic instructions all threads of one launch may take together (emulator).
        timing_budget_s: seconds that timing all sizes should take (cuda).
        sanitize: run compute-sanitizer around the listed launches as well (GPU).
        profile: read hardware counters of the headline launch as well (GPU).
        executed: count the machine instructions of listed launches as well, which takes a disassembler.
        twins: the candidate compiled otherwise, to be run beside it in the emulator.
        count: count what listed launches ask of the memory system; beside a GPU, that takes the emulator.
        glance: make only the first launch of each size, so that what is wrong shows, and what is right does not yet; only
            the first size is timed, and its warm durations alone.
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


@dataclass(frozen=True, slots=True)
class SizeMetrics:
    """Counts and time of one listed size; `launch` is the candidate's own there, `lines` are of the user's file.

    Where it was measured, `beside` is the baseline's time of the same blocks, and `speedup` the ratio by those blocks.
    Where counts of the emulator allow it, `work` says what the launch computes and moves, and `predicted` is the model's
    time beside a measured one.
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


@dataclass(frozen=True, slots=True)
class Judgement:
    """The worker's result; the session joins it with the compiler's results into a `Verdict`.

    Attributes:
        metrics: one per listed size that ran, the headline first; empty when nothing ran.
        only_written: names of `inout` arguments that no run read before writing (settles an inferred contract).
        printed: what the kernel printed, cut to a stated length.
        hardware: the headline launch as the GPU's counters saw it, where that was asked for and allowed.
    """

    correct: bool | None
    cases: tuple[Case, ...]
    findings: tuple[Finding, ...]
    metrics: tuple[SizeMetrics, ...]
    only_written: tuple[str, ...] = ()
    printed: str = ""
    reasons: tuple[str, ...] = ()
    hardware: HardwareProfile | None = None
