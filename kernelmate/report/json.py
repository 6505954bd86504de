"""JSON documents of `--json`; `kernelmate.report.schema` defines their contents.

A key that does not apply is null and never missing; a number that is not finite is null. Text is written in ASCII with
escapes, so that it does not depend on the terminal's encoding.
"""

from __future__ import annotations

import dataclasses
import json
import math
import numbers
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from kernelmate.errors import KernelmateError
from kernelmate.records import (
    Calibration,
    CodeTotals,
    Confirmation,
    ConfirmationReport,
    Contract,
    Gate,
    Judged,
    JudgingInputs,
    Kernel,
    Listing,
    Optimization,
    Target,
    Tuned,
    Verdict,
)

if TYPE_CHECKING:
    from kernelmate.compiler.code_diff import CodeDiff

SCHEMA = 1
"""Version of every document. It increases when a key changes its meaning or is removed, not when one is added."""

Document = dict[str, Any]


def plain(value: object) -> Any:
    """Converts a record, or any part of one, to values that `json` can write.

    Dataclasses become objects with their fields in order, tuples become lists, NumPy scalars numbers; numbers that are
    not finite become None, and fields that hold bytes are left out.

    Raises:
        TypeError: a value has no JSON form.
    """
    if value is None or isinstance(value, (bool, str)):
        return value
    if isinstance(value, numbers.Integral):
        return int(value)
    if isinstance(value, numbers.Real):
        number = float(value)
        return number if math.isfinite(number) else None
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        pairs = ((field.name, getattr(value, field.name)) for field in dataclasses.fields(value))
        return {name: plain(item) for name, item in pairs if not isinstance(item, bytes)}
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (tuple, list)):
        return [plain(item) for item in value]
    item = getattr(value, "item", None)
    if callable(item):
        return plain(item())
    raise TypeError(f"{type(value).__name__} has no place in a JSON document")


def verdict_json(verdict: Verdict) -> Document:
    """Returns one verdict, as in every document."""
    document: Document = plain(verdict)
    return document


def verdicts_json(
    verdicts: Sequence[Verdict], given: JudgingInputs | None = None, candidate: Kernel | None = None,
    contract: Contract | None = None, prompt: str | None = None,
) -> Document:  # fmt: skip
    """JSON document of `check`, `bench` and `compare`.

    Args:
        verdicts: verdicts on the kernel, or on the candidate.
        given: inputs of judging, so that `confirm` can judge again; None for `check`.
        candidate: the version that `compare` judged.
        contract: its contract.
        prompt: the user's prompt.
    """
    carried = None
    if candidate is not None:
        carried = {"source": candidate.unit.text, "contract": plain(contract), "prompt": prompt}
    return {
        "schema": SCHEMA,
        "verdicts": [verdict_json(verdict) for verdict in verdicts],
        "given": plain(given),
        "candidate": carried,
    }


def optimization_json(optimization: Optimization, given: JudgingInputs | None = None) -> Document:
    """JSON document of `optimize`; `given` holds the inputs of judging, so that `confirm` can judge again."""
    return {
        "schema": SCHEMA,
        "objective": plain(optimization.objective),
        "baseline": verdict_json(optimization.baseline),
        "candidates": [_candidate(judged) for judged in optimization.candidates],
        "best": optimization.best,
        "notes": list(optimization.notes),
        "given": plain(given),
    }


def _candidate(judged: Judged) -> Document:
    candidate = judged.candidate
    return {
        "author": candidate.author,
        "why": candidate.why,
        "source": candidate.kernel.unit.text,
        "other_files": plain(candidate.other_files),
        "contract": plain(candidate.contract),
        "cost": plain(candidate.cost),
        "verdict": verdict_json(judged.verdict),
    }


def confirmed_json(confirmed: ConfirmationReport) -> Document:
    """JSON document of `confirm`."""
    return {
        "schema": SCHEMA,
        "objective": plain(confirmed.objective),
        "baseline": verdict_json(confirmed.baseline),
        "predicted": plain(confirmed.timing),
        "confirmations": [_confirmation(one) for one in confirmed.confirmations],
        "notes": list(confirmed.notes),
    }


def _confirmation(one: Confirmation) -> Document:
    promise = one.promise
    return {
        "author": promise.author,
        "why": promise.why,
        "source": promise.source,
        "outcome": one.outcome,
        "promised": {"accepted": promise.accepted, "objective": plain(promise.objective), "timing": plain(promise.timing), "speedup": plain(promise.speedup)},
        "verdict": verdict_json(one.verdict),
    }  # fmt: skip


def gate_json(gate: Gate) -> Document:
    """JSON document of `ci`."""
    return {"schema": SCHEMA, "gate": plain(gate) | {"passed": gate.passed}}


def exported_json(verdicts: Sequence[Verdict], files: Sequence[str], notes: Sequence[str]) -> Document:
    """JSON document of `export`: the verdicts, and the files that were written; none if the kernel was rejected."""
    return {
        "schema": SCHEMA,
        "exported": {
            "verdicts": [verdict_json(verdict) for verdict in verdicts],
            "files": list(files),
            "notes": list(notes),
        },
    }


def written_json(kernels: Sequence[Any], files: Sequence[str], notes: Sequence[str]) -> Document:
    """JSON document of `write`: every judged kernel, the best first; files are of the first, none if it is not right."""
    judged = [
        {
            "author": f"synthesis:{one.schedule}",
            "why": one.why,
            "source": one.kernel.unit.text,
            "other_files": [],
            "contract": plain(one.contract),
            "cost": None,
            "verdict": verdict_json(one.verdict),
        }
        for one in kernels
    ]
    return {"schema": SCHEMA, "written": {"kernels": judged, "files": list(files), "notes": list(notes)}}


def lifted_json(found: Any, line: str | None, place: int | None, files: Sequence[str]) -> Document:
    """JSON document of `lift`; `function` and `reference` are null if nothing is offered, and `reason` says why."""
    lifted = {
        "function": found.function.text if found.agrees else None,
        "reference": line,
        "cases": found.cases,
        "reason": found.reason,
        "line": place,
        "note": found.note,
        "files": list(files),
    }
    return {"schema": SCHEMA, "lifted": lifted}


def tuned_json(tuned: Tuned) -> Document:
    """JSON document of `tune` and `bench --sweep`."""
    versions = [
        {"author": one.author, "why": one.why, "source": one.kernel.unit.text, "times_us": plain(one.times_us)}
        for one in tuned.versions
    ]
    plainly = {name: plain(getattr(tuned, name)) for name in ("kind", "target", "sizes", "chosen", "rule", "notes")}
    return {"schema": SCHEMA, "tuned": plainly | {"versions": versions}}


def error_json(error: KernelmateError) -> Document:
    """JSON document of the error that stopped a command."""
    return error_document(error.code, error.message, error.file, error.line, error.column, error.hint)


def error_document(
    code: str,
    message: str,
    file: str | None = None,
    line: int | None = None,
    column: int | None = None,
    hint: str | None = None,
) -> Document:
    """Returns the document of an error that stopped a command, from its parts."""
    error = {"code": code, "message": message, "file": file, "line": line, "column": column, "hint": hint}
    return {"schema": SCHEMA, "error": error}


def targets_json(targets: Sequence[Target]) -> Document:
    """JSON document of `targets`."""
    return {"schema": SCHEMA, "targets": [plain(target) for target in targets]}


def listings_json(listings: Sequence[Listing]) -> Document:
    """JSON document of `sass`."""
    return {"schema": SCHEMA, "listings": [plain(listing) | {"peak": listing.peak} for listing in listings]}


def code_diffs_json(diffs: Sequence[CodeDiff]) -> Document:
    """JSON document of `sass --diff`: both versions' totals, and stretches of instructions that differ."""
    return {"schema": SCHEMA, "code_diffs": [_code_diff(diff) for diff in diffs]}


def _code_diff(diff: CodeDiff) -> Document:
    changes = [
        {
            "op": change.op,
            "old": [plain(one) for one in diff.old.sass[slice(*change.old)]],
            "new": [plain(one) for one in diff.new.sass[slice(*change.new)]],
        }
        for change in diff.changes
        if change.op != "equal"
    ]
    mix = [{"kind": kind, "old": old, "new": new} for kind, old, new in diff.mix]
    return {"old": _totals(diff.old), "new": _totals(diff.new), "same": diff.same, "mix": mix, "changes": changes}


def _totals(listing: Listing) -> Document:
    totals = {field.name: plain(getattr(listing, field.name)) for field in dataclasses.fields(CodeTotals)}
    return totals | {"peak": listing.peak, "instructions": len(listing.sass)}


def calibration_json(calibration: Calibration) -> Document:
    """JSON document of `calibrate`."""
    return {"schema": SCHEMA, "calibration": plain(calibration)}


def models_json(models: Sequence[object], current: object | None) -> Document:
    """JSON document of `model list`; a model has the fields of `kernelmate.suggest.local.library.LocalModelFile`."""
    use = None if current is None else getattr(current, "name", None)
    return {"schema": SCHEMA, "use": use, "models": [plain(model) for model in models]}


def doctor_json(checks: Sequence[object]) -> Document:
    """JSON document of `doctor`; a check has `name`, `status`, `detail` and `advice`."""
    return {"schema": SCHEMA, "checks": [plain(check) for check in checks]}


def dumps(document: Document) -> str:
    """Serialises a document with an indent of two spaces."""
    return json.dumps(document, indent=2, allow_nan=False)
