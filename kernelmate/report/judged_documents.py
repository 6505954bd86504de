"""JSON documents of judged kernels: bench, compare, optimize, confirm, ci, export, write, tune and lift."""

from __future__ import annotations

from typing import Literal, TypeAlias, TypedDict

from kernelmate.records import (
    BackendName,
    Contract,
    Cost,
    DispatchRule,
    FileChange,
    JudgingInputs,
    Objective,
    ObjectiveResult,
    Speedup,
    Timing,
    Verdict,
)
from kernelmate.records.gate import GatedKernel
from kernelmate.records.portable import Outcome

Version: TypeAlias = Literal[1]
Kind: TypeAlias = Literal["measured", "predicted"]


class CandidateDocument(TypedDict):
    """A changed kernel with its verdict.

    Attributes:
        author: recipe:NAME, synthesis:NAME, local:NAME or claude:MODEL.
        source: the whole changed CUDA text: a file's, or that of the Python string that holds the kernel.
        other_files: files that launch the kernel, with the launches that follow the candidate's.
    """

    author: str
    why: str
    source: str
    other_files: list[FileChange]
    contract: Contract
    cost: Cost | None
    verdict: Verdict


class ComparedText(TypedDict):
    """The version that `compare` judged.

    Attributes:
        source: its whole CUDA text.
        prompt: the user's words.
    """

    source: str
    contract: Contract
    prompt: str | None


class VerdictsDocument(TypedDict):
    """JSON document of check, bench and compare (the candidate's verdicts); one verdict for each instance.

    Attributes:
        given: the inputs of the judgement, for confirm; null for check.
        candidate: null if a kernel was judged by itself.
    """

    schema: Version
    verdicts: list[Verdict]
    given: JudgingInputs | None
    candidate: ComparedText | None


class OptimizationDocument(TypedDict):
    """JSON document of optimize and fix.

    Attributes:
        best: index into candidates; null when none is worth taking.
        notes: skipped suggesters, applied checks, and the reason that the search ended.
        given: the inputs of the judgement, for confirm.
    """

    schema: Version
    objective: Objective
    baseline: Verdict
    candidates: list[CandidateDocument]
    best: int | None
    notes: list[str]
    given: JudgingInputs | None


class PromisedFigures(TypedDict):
    """Figures of a version from a machine without a GPU."""

    accepted: bool | None
    objective: ObjectiveResult | None
    timing: Timing | None
    speedup: Speedup | None


class ConfirmationDocument(TypedDict):
    """A version judged without a GPU, with its verdict on the GPU."""

    author: str
    why: str
    source: str
    outcome: Outcome
    promised: PromisedFigures
    verdict: Verdict


class ConfirmedDocument(TypedDict):
    """JSON document of confirm.

    Attributes:
        predicted: the kernel's own time without a GPU.
        confirmations: the versions judged again, the best first.
    """

    schema: Version
    objective: Objective | None
    baseline: Verdict
    predicted: Timing | None
    confirmations: list[ConfirmationDocument]
    notes: list[str]


class GateResult(TypedDict):
    """Effect of a change on all kernels, relative to a revision.

    Attributes:
        unchanged: number of kernels of touched files that did not change.
    """

    base: str
    commit: str
    root: str
    target: str
    backend: BackendName
    kernels: list[GatedKernel]
    unchanged: int
    notes: list[str]
    passed: bool


class GateDocument(TypedDict):
    """JSON document of ci."""

    schema: Version
    gate: GateResult


class ExportResult(TypedDict):
    """An exported kernel.

    Attributes:
        files: files that were written; none if the kernel was rejected.
    """

    verdicts: list[Verdict]
    files: list[str]
    notes: list[str]


class ExportedDocument(TypedDict):
    """JSON document of export."""

    schema: Version
    exported: ExportResult


class WriteResult(TypedDict):
    """Kernels that were written from a reference.

    Attributes:
        kernels: the judged kernels, the best first.
        files: files that were written; none if no kernel is right.
        notes: reasons for missing kernels.
    """

    kernels: list[CandidateDocument]
    files: list[str]
    notes: list[str]


class WrittenDocument(TypedDict):
    """JSON document of write."""

    schema: Version
    written: WriteResult


class TimedVersion(TypedDict):
    """A version with its time at each size.

    Attributes:
        author: null for the kernel itself.
        source: the whole text of its file.
        times_us: times in the order of the sizes; null at a size without one.
    """

    author: str | None
    why: str
    source: str
    times_us: list[float | None]


class TuneResult(TypedDict):
    """A table of versions by size.

    Attributes:
        kind: the kind of all times.
        target: the GPU that times refer to.
        sizes: from the smallest problem to the largest.
        chosen: the version to launch at each size; null if none has a time.
        rule: a dispatch rule that makes these choices; null if no single measure separates the versions.
        versions: the kernel itself first.
    """

    kind: Kind
    target: str
    sizes: list[dict[str, int]]
    chosen: list[int | None]
    rule: DispatchRule | None
    notes: list[str]
    versions: list[TimedVersion]


class TunedDocument(TypedDict):
    """JSON document of tune and of bench --sweep."""

    schema: Version
    tuned: TuneResult


class LiftResult(TypedDict):
    """A reference that was read from a kernel.

    Attributes:
        function: its text; null if nothing is offered.
        reference: the contract's line; null if nothing is offered.
        cases: number of cases at which the kernel was compared with the function.
        reason: the reason that nothing is offered.
        line: the source line that the reason refers to.
        note: the reason that synthesis cannot use the function.
        files: files that were written.
    """

    function: str | None
    reference: str | None
    cases: int
    reason: str | None
    line: int | None
    note: str | None
    files: list[str]


class LiftedDocument(TypedDict):
    """JSON document of lift."""

    schema: Version
    lifted: LiftResult
