"""SARIF 2.1.0 of `ci`: failures at their lines, for display in code review.

Source: Static Analysis Results Interchange Format (SARIF) Version 2.1.0, OASIS Standard, 27 March 2020.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

from kernelmate.records import Finding, Gate, GatedKernel, GateMetric
from kernelmate.report.gate import figure_sentence
from kernelmate.version import VERSION

SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/os/schemas/sarif-schema-2.1.0.json"
PAGE = "https://github.com/kernelmate/kernelmate"
GATES: dict[GateMetric, tuple[str, str]] = {
    "registers": ("more-registers", "The kernel takes more registers per thread than before."),
    "spill_bytes": ("more-spills", "The kernel spills more bytes per thread than before."),
    "shared_bytes": ("more-shared-memory", "A block takes more shared memory than before."),
    "sectors": ("more-sectors", "The kernel moves more sectors of global memory than before."),
    "findings": ("more-findings", "The judge finds more than before."),
    "time": ("slower", "The kernel is slower than before, beyond the interval of the measurement."),
}
"""Rule and description of each metric."""
OTHER = ("not-judged", "The kernel cannot be judged, or is wrong.")
_LEVELS = {"error": "error", "warning": "warning", "note": "note"}


def sarif(gate: Gate) -> str:
    """Returns the log as text: one result for each failure, and for each new finding that does not fail the kernel."""
    results = [result for one in gate.kernels for result in _results(one)]
    rules = {result["ruleId"]: None for result in results}
    for result in results:
        result["ruleIndex"] = list(rules).index(result["ruleId"])
    driver = {
        "name": "KernelMate",
        "version": VERSION,
        "semanticVersion": VERSION,
        "informationUri": PAGE,
        "rules": [_rule(name) for name in rules],
    }
    run = {
        "tool": {"driver": driver},
        "automationDetails": {"id": f"kernelmate-ci/{gate.target}/"},
        "columnKind": "unicodeCodePoints",
        "invocations": [{"executionSuccessful": True, "exitCode": 0 if gate.passed else 1}],
        "results": results,
    }
    return json.dumps({"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}, indent=2) + "\n"


def _rule(name: str) -> dict[str, Any]:
    words = dict([*GATES.values(), OTHER]).get(name, f"{name.replace('-', ' ').capitalize()}.")
    return {
        "id": name,
        "name": "".join(part.capitalize() for part in name.split("-")),
        "shortDescription": {"text": words},
        "fullDescription": {"text": words},
        "helpUri": f"{PAGE}/blob/main/docs/ci.md",
        "defaultConfiguration": {"level": "error"},
    }


def _results(one: GatedKernel) -> Iterator[dict[str, Any]]:
    failed = one.outcome == "failed"
    told = set()
    for finding in one.fresh:
        told.add(f"{finding.severity} {finding.code}: {finding.message}")
        yield _of_finding(one, finding, "error" if failed else _LEVELS[finding.severity])
    for figure in one.figures:
        if figure.worse and figure.metric != "findings":
            sentence = figure_sentence(figure)
            told.add(sentence)
            yield _result(one, GATES[figure.metric][0], f"{_name(one)}: {sentence}", "error", one.path, one.line, None)
    for failure in one.failures:
        if failure not in told:
            yield _result(one, OTHER[0], f"{_name(one)}: {failure}", "error", one.path, one.line, None)


def _of_finding(one: GatedKernel, finding: Finding, level: str) -> dict[str, Any]:
    message = f"{_name(one)}: {finding.message}"
    return _result(
        one, finding.code, message, level, finding.file or one.path, finding.line or one.line, finding.column
    )


def _result(
    one: GatedKernel, rule: str, message: str, level: str, path: str, line: int | None, column: int | None
) -> dict[str, Any]:
    region: dict[str, int] = {"startLine": max(line or 1, 1)}
    if line is not None and column is not None and column >= 1:
        region["startColumn"] = column
    place = {"artifactLocation": {"uri": _uri(path), "uriBaseId": "%SRCROOT%"}, "region": region}
    print_of = "\0".join((rule, path, one.kernel, one.instance or ""))
    return {
        "ruleId": rule,
        "level": level,
        "message": {"text": message},
        "locations": [{"physicalLocation": place, "logicalLocations": [{"name": one.kernel, "kind": "function"}]}],
        "partialFingerprints": {"kernelmate/v1": hashlib.sha256(print_of.encode("utf-8", "surrogatepass")).hexdigest()},
        "baselineState": "new",
    }


def _name(one: GatedKernel) -> str:
    return one.instance or one.kernel


def _uri(path: str) -> str:
    """Returns a relative reference as of RFC 3986, also for file names that are not UTF-8."""
    return quote(path.encode("utf-8", "surrogateescape"), safe="/-._~")
