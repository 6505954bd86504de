"""JSON documents about machines, compiled code, models, exams and recorded versions, and of errors."""

from __future__ import annotations

from typing import Any, Literal, NotRequired, TypedDict

from kernelmate.records import (
    BackendName,
    Calibration,
    Cause,
    CodeTotals,
    Cost,
    KnownKernel,
    Listing,
    MetricName,
    SassInstruction,
    Target,
    Verdict,
)
from kernelmate.report.judged_documents import Version
from kernelmate.report.machine import Check


class ErrorDetail(TypedDict):
    """An error with its place and advice."""

    code: str
    message: str
    file: str | None
    line: int | None
    column: int | None
    hint: str | None


class ErrorDocument(TypedDict):
    """JSON document of an error that stopped a command."""

    schema: Version
    error: ErrorDetail


class TargetsDocument(TypedDict):
    """JSON document of targets."""

    schema: Version
    targets: list[Target]


class DoctorDocument(TypedDict):
    """JSON document of doctor."""

    schema: Version
    checks: list[Check]


class CalibrationDocument(TypedDict):
    """JSON document of calibrate."""

    schema: Version
    calibration: Calibration


class ListingsDocument(TypedDict):
    """JSON document of sass."""

    schema: Version
    listings: list[Listing]


class ClassCounts(TypedDict):
    """Instructions of one class in both versions."""

    kind: str
    old: int
    new: int


class CodeChange(TypedDict):
    """A run of instructions that differs."""

    op: Literal["delete", "insert", "replace"]
    old: list[SassInstruction]
    new: list[SassInstruction]


class CodeDiffDocument(TypedDict):
    """Differences in SASS, ignoring register numbers and addresses."""

    old: CodeTotals
    new: CodeTotals
    same: bool
    mix: list[ClassCounts]
    changes: list[CodeChange]


class CodeDiffsDocument(TypedDict):
    """JSON document of sass --diff."""

    schema: Version
    code_diffs: list[CodeDiffDocument]


class Explanation(TypedDict):
    """The factors that limit one kernel, and the answers to a question: a sentence for each figure that it is about."""

    verdict: Verdict
    answers: list[str]
    causes: list[Cause]


class ExplainedDocument(TypedDict):
    """JSON document of explain."""

    schema: Version
    explained: list[Explanation]


class ModelFile(TypedDict):
    """A model of the library.

    Attributes:
        size: bytes.
        cache_bytes: bytes of the key-value cache for one token.
        codec: format of its prompts and answers; null for a chat model.
        offers: fingerprint of the recipes that it was trained to choose among.
    """

    name: str
    path: str
    sha256: str
    size: int
    modified_ns: NotRequired[int]
    architecture: NotRequired[str | None]
    context: NotRequired[int | None]
    parameters: NotRequired[int | None]
    quantization: NotRequired[str | None]
    licence: NotRequired[str | None]
    source: NotRequired[str | None]
    layers: NotRequired[int | None]
    cache_bytes: NotRequired[int | None]
    codec: NotRequired[str | None]
    offers: NotRequired[str | None]


class ModelsDocument(TypedDict):
    """JSON document of model list.

    Attributes:
        use: name of the model in use.
    """

    schema: Version
    use: str | None
    models: list[ModelFile]


class WhereDocument(TypedDict):
    """JSON document of model where: folders by purpose."""

    schema: Version
    where: dict[str, str]


class ModelTest(TypedDict):
    """The answer of a model to one short question."""

    model: str
    load_s: float
    first_token_s: float
    tokens_per_s: float
    answer: str


class ModelTestDocument(TypedDict):
    """JSON document of model test."""

    schema: Version
    test: ModelTest


class ExamAttempt(TypedDict):
    """One attempt at a goal; `standing` is the stage that it reached."""

    author: Literal["recipes", "model"]
    number: int
    standing: Literal["unreadable", "unchanged", "broken", "wrong", "right", "better", "met"]
    label: str
    after: float | None
    speedup: float | None
    why: str
    seconds: float | None
    again: bool | None


class ExamGoal(TypedDict):
    """One goal with its attempts; `before` is the metric of the original kernel."""

    goal: str
    kernel: str
    metric: str
    before: float | None
    attempts: list[ExamAttempt]
    problem: str
    seconds: float


class ExamFigures(TypedDict):
    """Totals of one entrant of an exam."""

    entrant: str
    right: int
    better: int
    met: int
    goals: int


class JudgedAgain(TypedDict):
    """Accepted attempts that a second judgement found right, and the number of them that were judged again."""

    right: int
    of: int


class ExamResult(TypedDict):
    """The results of an exam, goal by goal.

    Attributes:
        version: the exam's version.
        sha256: hash of the exam's goals, kernels and references.
        whole: true if all goals were attempted.
        seed: seed of the judge's inputs.
        model: name, codec and hash of the model; null without a model.
        k: answers of the model to each goal.
        recipes: true if recipes took part.
        labels: statements about the model by the person who ran the exam.
        machine: machine, date and versions.
        figures: totals of each entrant.
    """

    schema: Version
    version: int
    sha256: str
    whole: bool
    backend: BackendName
    target: str
    seed: int
    model: dict[str, str] | None
    k: int
    recipes: bool
    goals: list[ExamGoal]
    labels: dict[str, str]
    machine: str
    figures: list[ExamFigures]
    judged_again: JudgedAgain


class ExamDocument(TypedDict):
    """JSON document of upskill examine."""

    schema: Version
    exam: ExamResult


class ListedGoal(TypedDict):
    """A goal of the exam."""

    name: str
    kernel: str
    prompt: str
    metric: str
    most: float | None


class ExamGoalsDocument(TypedDict):
    """JSON document of upskill examine --list."""

    schema: Version
    version: int
    sha256: str
    goals: list[ListedGoal]


class KernelsDocument(TypedDict):
    """JSON document of history."""

    schema: Version
    kernels: list[KnownKernel]


class RecordedVersion(TypedDict):
    """One judgement of the history, with its version.

    Attributes:
        at_us: microseconds since 1970 (UTC).
        author: user, recipe:NAME, local:NAME or claude:MODEL; "recipe:NAME, chosen by local:NAME" where a model chose it.
        steps: the author's steps to the version.
        parent: the version that this one was made from.
        launch: grid, block, shared and require in force.
        tool: the version of KernelMate that judged it.
        source: the whole CUDA text that was compiled.
        verdict: the verdict as that version of KernelMate wrote it, without counters by line.
    """

    version: int
    kernel: str
    path: str
    at_us: int
    command: str
    author: str
    prompt: str | None
    metric: MetricName | None
    why: str | None
    steps: list[str]
    parent: int | None
    launch: dict[str, Any] | None
    cost: Cost
    tool: str
    source: str
    verdict: dict[str, Any]


class VersionsDocument(TypedDict):
    """JSON document of history KERNEL and history show."""

    schema: Version
    versions: list[RecordedVersion]
