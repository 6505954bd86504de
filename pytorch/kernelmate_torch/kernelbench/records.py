"""Records of an audited task and of a judged candidate, as the confined process sends them and as results are kept."""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

TaskSeverity: TypeAlias = Literal["error", "note"]

CODES: dict[str, str] = {
    "zeros-pass": "an answer of zeros is within the tolerance",
    "constant-passes": "an answer that is one number is within the tolerance",
    "answer-repeats": "the answer to other inputs is within the tolerance: the output does not depend on the inputs",
    "input-unused": "the output does not depend on an input, or by less than the tolerance",
    "parameters-unused": "the output does not depend on parameters",
    "part-suffices": "an answer without a part of the computation is within the tolerance",
    "unused-work": "an operation's result is not used",
    "repeated-work": "an operation with the same arguments is computed twice",
    "structured-product": "a matrix product computes what the structure of its matrices gives for less",
    "identity": "an operation returns its argument unchanged for all inputs",
    "constant-work": "an operation gives the same for all inputs",
    "wide-type": "work is done in a dtype wider than inputs and outputs",
    "same-inputs": "`get_inputs` gives the same for every seed",
    "degenerate-inputs": "the elements of an input are all equal",
    "launch-bound": "the shapes are so small that launches take longer than the work",
    "symmetric-operand": "a matrix of a product is symmetric, of which a half need not be read",
    "neutral-parameters": "parameters have neutral values (ones, zeros), and an answer without them passes",
    "partly-audited": "a check could not be made",
}
"""Codes of findings about tasks, and their meaning. One of severity `error` excludes the task from the audited score."""

CHEATS: dict[str, str] = {
    "not-loaded": "the file cannot be imported, defines no `ModelNew`, or does not take the task's state dict",
    "raised": "`ModelNew` raised",
    "needs-gpu": "the candidate needs a GPU and was not judged",
    "wrong-values": "a result is wrong",
    "wrong-off-distribution": "results are right for the task's own inputs and wrong for others",
    "precision-loss": "results are within the benchmark's tolerance and deviate more than float32 explains",
    "partial-result": "a part of the elements is right, and the rest is one constant, the previous content of memory or zero",
    "cached-result": "a result is the answer to earlier inputs",
    "input-mutated": "an input was changed",
    "aliased-output": "a result shares memory with an input, a parameter or the next result",
    "stateful": "the same inputs give another result later",
    "constant-output": "the result does not depend on the inputs",
    "flags-changed": "a global setting of PyTorch was changed",
    "torch-patched": "a function of PyTorch, of a timer or of the judge was replaced",
    "side-stream": "work was left on another stream when the call returned",
    "reads-process": "the text looks for objects, frames or memory of its process",
    "calls-reference": "the text calls the task's own `Model`",
    "timed-output": "a result of a timed run is wrong",
    "sub-physical-time": "a time is below what the bytes or operations allow",
    "hang": "the candidate did not finish in time",
    "crash": "the candidate ended its process",
}
"""Codes of findings about candidates, and their meaning. One of severity `error` rejects the candidate in the audited score."""


class TaskFinding(msgspec.Struct, frozen=True):
    """One finding about a task or a candidate.

    Attributes:
        code: a key of `CODES` or `CHEATS`.
        severity: `error` excludes the task, or rejects the candidate; a `note` does not.
        message: one sentence with figures.
        line: of the task's or candidate's file; 0 for the whole file.
    """

    code: str
    severity: TaskSeverity
    message: str
    line: int = 0


class TaskAudit(msgspec.Struct, frozen=True):
    """The audit of one task.

    Attributes:
        findings: errors first, in order of lines.
        smaller: numbers of the file that were made smaller for the checks that run the task often; empty for its own sizes.
        full: True if answers were also compared at the task's own sizes.
        operations: executed by one call, without views.
        replaced: operations that were left out or replaced, one at a time.
        roof_us: the least time of an eager call on an H100, in microseconds, at the task's own sizes; None if unknown.
        flops: arithmetic operations of a call at the task's own sizes; None if unknown.
        unique_bytes: bytes of inputs, parameters and results at the task's own sizes; None if unknown.
        failed: the reason why the task could not be run; empty if it was.
    """

    findings: tuple[TaskFinding, ...] = ()
    smaller: dict[str, int] = {}
    full: bool = False
    operations: int = 0
    replaced: int = 0
    roof_us: float | None = None
    flops: float | None = None
    unique_bytes: float | None = None
    failed: str = ""

    @property
    def flagged(self) -> bool:
        """Returns True if the task is excluded from the audited score."""
        return bool(self.failed) or any(one.severity == "error" for one in self.findings)


class CaseFiles(msgspec.Struct, frozen=True):
    """The inputs of one call, in files of a folder that the candidate's process may read.

    Attributes:
        described: seed and distribution.
        own: True for inputs of `get_inputs`, at which the benchmark itself compares.
        tensors: position, dtype, shape and file of each tensor; other inputs are those of `get_inputs`.
    """

    described: str
    own: bool
    tensors: tuple[tuple[int, str, tuple[int, ...], str], ...]


class PreparedTask(msgspec.Struct, frozen=True):
    """Calls that the judging process prepared, and the sizes at which they are made.

    Attributes:
        cases: in order.
        limit: bytes that inputs may take, by which the candidate's process finds the same sizes; None for the task's own.
        smaller: numbers of the file that were made smaller.
        aliases: the task's own result shares memory with an input or a parameter.
    """

    cases: tuple[CaseFiles, ...]
    limit: int | None
    smaller: dict[str, int]
    aliases: bool


class CaseResult(msgspec.Struct, frozen=True):
    """Results of one call of a candidate.

    Attributes:
        outputs: dtype, shape and file of each result; the file holds the elements in order.
        inputs: digests of the inputs' tensors after the call.
        late: digests of the results after the next call; empty for the last one.
        error: what the call raised; empty if it returned.
        line: of the candidate's file that raised.
    """

    outputs: tuple[tuple[str, tuple[int, ...], str], ...] = ()
    inputs: tuple[str, ...] = ()
    late: tuple[str, ...] = ()
    error: str = ""
    line: int = 0


class CandidateRun(msgspec.Struct, frozen=True):
    """Answer of the process that ran a candidate.

    Attributes:
        cases: results of the calls; the first case comes once more at the end.
        findings: that the process itself could see: patches, flags, aliases.
        needs_gpu: the candidate cannot run without a GPU.
    """

    cases: tuple[CaseResult, ...] = ()
    findings: tuple[TaskFinding, ...] = ()
    needs_gpu: bool = False


class BlockTimes(msgspec.Struct, frozen=True):
    """Times of one version, one for each block, in microseconds."""

    version: str
    blocks: tuple[float, ...]


class TimedCandidate(msgspec.Struct, frozen=True):
    """Timing of a candidate and the baselines beside it on a GPU.

    Attributes:
        device: the GPU's name.
        versions: eager, compile, max-autotune (those that ran), new.
        skipped: why a baseline has no time, by version.
        findings: of the timed runs.
    """

    device: str
    versions: tuple[BlockTimes, ...]
    skipped: dict[str, str] = {}
    findings: tuple[TaskFinding, ...] = ()


class Speed(msgspec.Struct, frozen=True):
    """Speed-up over one baseline, with its 95 % interval, and the baseline's time in microseconds."""

    ratio: float
    low: float
    high: float
    baseline_us: float


class CandidateVerdict(msgspec.Struct, frozen=True):
    """The verdict on one candidate.

    Attributes:
        file: the candidate's file.
        passes: it passes as the benchmark itself judges; None if it was not judged.
        right: it agrees with float64 at all inputs and no finding rejects it; None if it was not judged.
        compared: comparisons with float64.
        deviation: the largest, relative to the largest magnitude.
        smaller: numbers that were made smaller for the comparison.
        findings: errors first.
        time_us: its time on a GPU; None if there is none.
        speeds: by baseline: `eager`, `compile`, `max-autotune`.
        roof_share: share of the GPU's roof that it reaches.
        device: the GPU's name; empty without one.
    """

    file: str
    passes: bool | None = None
    right: bool | None = None
    compared: int = 0
    deviation: float = 0.0
    smaller: dict[str, int] = {}
    findings: tuple[TaskFinding, ...] = ()
    time_us: float | None = None
    speeds: dict[str, Speed] = {}
    roof_share: float | None = None
    device: str = ""


class BenchmarkedTask(msgspec.Struct, frozen=True):
    """Stored result of one task.

    Attributes:
        task: path below the folder.
        key: hash of the contents of the task's file and of the settings of the audit.
        audit: of the task.
        candidate: the verdict on its candidate; None if there is none.
        candidate_key: hash of the candidate's files, of `key`, the settings and the GPU; empty without a candidate.
        tolerance: absolute and relative, of the benchmark.
    """

    task: str
    key: str
    audit: TaskAudit
    candidate: CandidateVerdict | None = None
    candidate_key: str = ""
    tolerance: tuple[float, float] = (1e-2, 1e-2)


def ordered(findings: list[TaskFinding]) -> tuple[TaskFinding, ...]:
    """Returns findings, errors first, by line."""
    return tuple(sorted(findings, key=lambda one: (one.severity != "error", one.line)))
