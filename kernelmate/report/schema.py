"""JSON Schema of everything that `--json` prints, built from the records and from the types of the documents below."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Mapping
from functools import cache
from inspect import cleandoc
from typing import Any, Literal, NotRequired, TypeAlias, TypedDict

from kernelmate import records
from kernelmate.records import (
    BackendName,
    Calibration,
    Cause,
    CodeTotals,
    Contract,
    Cost,
    DispatchRule,
    FindingCode,
    JudgingInputs,
    KnownKernel,
    Listing,
    MetricName,
    Objective,
    ObjectiveResult,
    SassInstruction,
    Speedup,
    Target,
    Timing,
    Verdict,
)
from kernelmate.records.gate import GatedKernel
from kernelmate.records.portable import Outcome
from kernelmate.report.machine import Check

Version = Literal[1]
Kind = Literal["measured", "predicted"]


class CandidateDocument(TypedDict):
    """A changed kernel with its verdict.

    Attributes:
        author: recipe:NAME, synthesis:NAME, local:NAME or claude:MODEL.
        source: the whole changed CUDA text: a file's, or that of the Python string that holds the kernel.
    """

    author: str
    why: str
    source: str
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
    """The factors that limit one kernel."""

    verdict: Verdict
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


DOCUMENTS = (
    VerdictsDocument, OptimizationDocument, GateDocument, ExportedDocument, WrittenDocument, LiftedDocument,
    TunedDocument, ErrorDocument, TargetsDocument, DoctorDocument, CalibrationDocument, ConfirmedDocument,
    ListingsDocument, CodeDiffsDocument, ExplainedDocument, ModelsDocument, WhereDocument, ModelTestDocument,
    ExamDocument, ExamGoalsDocument, KernelsDocument, VersionsDocument,
)  # fmt: skip

NEVER_NEGATIVE = frozenset(
    {
        "Resources", "Occupancy", "Counters", "CacheEstimate", "LineCounters", "InstructionMix", "OpcodeCount",
        "HardwareProfile", "Timing", "Speedup", "Roofs", "Roofline", "Work", "Calibration", "Live", "Listing", "CodeTotals",
        "ClassCounts", "Cause", "OptimizationDocument", "GateResult",
    }
)  # fmt: skip
"""Definitions in which every number is 0 or more."""

SHARES = (
    "theoretical", "l1_sector_hit_rate", "l1_load_hit_rate", "l2_sector_hit_rate", "l1_hit_rate", "l2_hit_rate",
)  # fmt: skip
"""Properties that are fractions from 0 to 1."""

FIELDS: Mapping[str, Mapping[str, Any]] = {
    **{name: {"minimum": 1} for name in ("line", "column", "ptx_line")},
    **{name: {"minimum": 0, "maximum": 1} for name in SHARES},
    **{name: {"minItems": 1} for name in ("Contract.sizes", "Listing.files", "CodeTotals.files")},
    **{name: {"minItems": 1, "maxItems": 3} for name in ("Contract.grid", "Contract.block")},
    "Contract.slowdown": {"minimum": 0},
    "SassInstruction.address": {"minimum": 0},
    "arch": {"pattern": "^sm_[0-9]+[a-z]?$"},
    "binary": {"pattern": "^sha256:"},
}
"""Further keywords of properties, by their name or `Class.name`."""

MAY_BE_INFINITE = frozenset({"Timing", "Speedup"})
"""Records in which a number that is not finite becomes null."""

Definition: TypeAlias = dict[str, Any]


@cache
def schema() -> Definition:
    """Returns the JSON Schema (draft 2020-12) of every document."""
    import msgspec

    _, components = msgspec.json.schema_components(DOCUMENTS, ref_template="#/$defs/{name}")
    definitions = {_key(name): _finished(name, definition) for name, definition in components.items()}
    peak = {
        "description": "The most general registers that are live at once.",
        "anyOf": [{"type": "integer", "minimum": 0}, {"type": "null"}],
    }
    _add(definitions["listing"], peak=peak)
    instructions = {"description": "The number of SASS instructions.", "type": "integer", "minimum": 0}
    _add(definitions["code_totals"], peak=peak, instructions=instructions)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": "urn:kernelmate:schema:1",
        "title": "Documents that kernelmate --json prints",
        "oneOf": [{"$ref": f"#/$defs/{_key(document.__name__)}"} for document in DOCUMENTS],
        "$defs": definitions,
    }


def _key(name: str) -> str:
    """Converts a class name to a key: `OpcodeCount` to `opcode_count`."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower()


def _add(definition: Definition, **properties: Definition) -> None:
    """Add required properties to a definition."""
    definition["properties"] |= properties
    definition["required"] += properties


def _finished(name: str, definition: Definition) -> Definition:
    """Completes a record's definition; a document has exactly its keys."""
    if name == FindingCode.__name__:
        codes = [{"const": code.value, "description": code.meaning} for code in FindingCode]
        return {"description": "The code of a finding; of several that fit one cause, the first.", "oneOf": codes}
    kind = globals().get(name) or getattr(records, name)
    described: dict[str, str] = {}
    bases = [base.__doc__ or "" for base in reversed(kind.__mro__[1:]) if dataclasses.is_dataclass(base)]
    for docstring in (*bases, definition.get("description", "")):
        described |= _described(cleandoc(docstring), definition["properties"])
    properties = {
        key: _property(name, key, _referring(value), described.get(key))
        for key in _fields(kind)
        if (value := definition["properties"][key]).get("contentEncoding") != "base64"
    }
    required = properties if dataclasses.is_dataclass(kind) else definition["required"]
    return {
        "description": described[""],
        "type": "object",
        "properties": properties,
        "required": [key for key in properties if key in required],
        "additionalProperties": False,
    }


def _fields(kind: type) -> Iterable[str]:
    """Returns the names of a record's fields, or of a document's keys."""
    return (
        [field.name for field in dataclasses.fields(kind)] if dataclasses.is_dataclass(kind) else kind.__annotations__
    )


def _property(owner: str, name: str, value: Definition, description: str | None) -> Definition:
    value.pop("default", None)
    for one in (value, *value.get("anyOf", ()), *value.get("prefixItems", ())):
        if one.get("type") in ("integer", "number") and owner in NEVER_NEGATIVE:
            one["minimum"] = 0
        if one.get("type") in ("integer", "number", "string", "array"):
            one.update(FIELDS.get(f"{owner}.{name}", FIELDS.get(name, {})))
        if one.get("type") == "number" and owner in MAY_BE_INFINITE:
            one["type"] = ["number", "null"]
    return value if description is None else {"description": description, **value}


def _referring(value: Any) -> Any:
    """Returns a schema's value with its references to definitions by their keys."""
    if isinstance(value, dict):
        return {
            key: re.sub(r"\w+$", lambda found: _key(found[0]), item) if key == "$ref" else _referring(item)
            for key, item in value.items()
        }
    return [_referring(item) for item in value] if isinstance(value, list) else value


def _described(docstring: str, fields: Iterable[str]) -> dict[str, str]:
    """Returns a class docstring's text under the key "", and the text of each field in its section `Attributes`."""
    text, _, attributes = docstring.partition("Attributes:\n")
    attributes = " ".join(attributes.split())
    starts = [
        (found.start(), found.end(), field)
        for field in fields
        if (found := re.search(rf"(?:^|(?<=[.;] ))`?{field}`?: ", attributes))
    ]
    starts.sort()
    ends = [start for start, _, _ in starts[1:]] + [len(attributes)] * bool(starts)
    told = {field: attributes[after:end] for (_, after, field), end in zip(starts, ends, strict=True)}
    return {key: _json_words(words) for key, words in {"": text, **told}.items()}


def _json_words(text: str) -> str:
    words = re.sub(r"\bNone\b", "null", " ".join(text.split())).rstrip("; ")
    return words[:1].upper() + words[1:]
