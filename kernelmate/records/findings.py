"""Findings of a verdict and their codes."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from kernelmate.records.compiled import Severity


class FindingCode(StrEnum):
    """Every code of a finding, with its meaning; of several that fit one cause, the first is reported.

    Codes are added, never renamed. Each finding has its own severity: a race that the baseline has too is a warning.
    """

    meaning: str
    """A phrase for tables of the documentation."""
    precedence: int
    """Place in this list, from 0."""

    def __new__(cls, value: str, meaning: str = "") -> FindingCode:
        """Makes a member that equals its code."""
        member = str.__new__(cls, value)
        member._value_ = value
        member.meaning = meaning
        member.precedence = len(cls.__members__)
        return member

    FORBIDDEN_SOURCE = (
        "forbidden-source",
        "the text uses files, host code or compiler-dependent macros that a candidate may not use",
    )
    COMPILE_ERROR = "compile-error", "NVRTC rejects the text, or was killed at the time limit"
    UNSUPPORTED_INSTRUCTION = "unsupported-instruction", "the backend does not know an instruction"
    LAUNCH_FAILURE = "launch-failure", "the launch needs more threads, shared memory or blocks than the target has"
    HANG = "hang", "a thread exceeded the step limit or can never end, or the GPU did not answer"
    TIME_LIMIT = "time-limit", "the emulator reached its own limit; `correct` is null"
    TRAP = "trap", "the kernel ended by a trap or a failed assertion"
    WORKER_CRASH = "worker-crash", "the process that ran the kernel died"
    OUT_OF_MEMORY = "out-of-memory", "the run needed more memory than the worker may take"
    OUTPUT_FLOOD = "output-flood", "the run printed more than is kept"
    ILLEGAL_ADDRESS = "illegal-address", "an access far from every buffer"
    OUT_OF_BOUNDS_WRITE = "out-of-bounds-write", "a store just outside a buffer"
    OUT_OF_BOUNDS_READ = "out-of-bounds-read", "a load just outside a buffer"
    MISALIGNED_ACCESS = "misaligned-access", "an address that is not a multiple of the width of the access"
    INDEX_OVERFLOW = "index-overflow", "32-bit arithmetic that wraps in the computation of an address"
    SHARED_RACE = "shared-race", "unordered accesses of two threads to one byte of shared memory, at least one a write"
    GLOBAL_RACE = "global-race", "the same in global memory, also between blocks"
    REGISTER_RACE = (
        "register-race",
        "a register of `wgmma` accessed before the product was waited for, or used by it without a fence",
    )
    DIVERGENT_BARRIER = "divergent-barrier", "a barrier that only some threads of the block reach"
    SHUFFLE_MASK = "shuffle-mask", "a shuffle or vote that reads a lane outside its mask"
    UNINITIALISED_SHARED = "uninitialised-shared", "a load of shared memory that was never written"
    UNINITIALISED_LOCAL = "uninitialised-local", "a load of local memory or a register that was never written"
    UNINITIALISED_GLOBAL = "uninitialised-global", "a load of an output before it was written"
    INPUT_MUTATED = "input-mutated", "an input array that changed during the run"
    STATEFUL = "stateful", "a launch whose result depends on earlier launches"
    ALIASING = "aliasing", "a result that depends on how buffers lie relative to each other"
    STALE_OUTPUT = "stale-output", "elements of an output that must be written and are not"
    CONSTANT_OUTPUT = "constant-output", "an output that does not depend on the inputs although it must"
    WRONG_AT_SIZE = "wrong-at-size", "wrong at some sizes, correct at others"
    NAN_HANDLING = "nan-handling", "NaN or infinity where the reference has another value, or the reverse"
    PRECISION_LOSS = "precision-loss", "values near the reference, beyond the tolerance"
    WRONG_VALUES = "wrong-values", "wrong at every size"
    NONDETERMINISTIC = "nondeterministic", "equal launches that give different results"
    SUB_PHYSICAL_TIME = "sub-physical-time", "a time below what the bytes or operations allow"
    SUSPICIOUS_SPEEDUP = "suspicious-speedup", "a speed-up larger than the change explains"


WRONG_OUTPUTS = frozenset(
    {
        FindingCode.STALE_OUTPUT,
        FindingCode.CONSTANT_OUTPUT,
        FindingCode.WRONG_AT_SIZE,
        FindingCode.NAN_HANDLING,
        FindingCode.PRECISION_LOSS,
        FindingCode.WRONG_VALUES,
    }
)
"""Codes of outputs that differ from the reference's."""

WITH_VALUES = WRONG_OUTPUTS - {FindingCode.STALE_OUTPUT, FindingCode.CONSTANT_OUTPUT}
"""Codes of findings whose message states a wrong element, its value and the expected one."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing wrong or suspicious, at the user's line.

    `threads` are flat thread numbers in their block; `stage` is the stage of a pipeline that the finding is about.
    """

    code: FindingCode
    severity: Severity
    message: str
    file: str | None = None
    line: int | None = None
    column: int | None = None
    buffer: str | None = None
    offset: int | None = None
    threads: tuple[int, ...] | None = None
    stage: str | None = None
