"""Files of `ci`: Markdown for a comment on a pull request, JUnit XML for build servers, SARIF 2.1.0 for code review.

Source of SARIF: Static Analysis Results Interchange Format (SARIF) Version 2.1.0, OASIS Standard, 27 March 2020.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote
from xml.etree import ElementTree as ET

from kernelmate.records import Finding, Gate, GatedKernel, GateMetric, MetricChange
from kernelmate.report.gate import (
    CHANGES,
    COLUMNS,
    columns,
    figure_sentence,
    figure_words,
    name_of,
    provenance,
    summary,
)
from kernelmate.report.words import printable
from kernelmate.version import VERSION

MOST = 60_000
"""Maximum number of characters; GitHub accepts 65,536 in one comment."""
_RESULTS = {"passed": "passed", "failed": "**failed**", "removed": "removed", "moved": "moved, unchanged"}
_SPECIAL = re.compile(r"([\\`*_{}\[\]<>()#+!|~&@-])")


def markdown(gate: Gate) -> str:
    """Returns the comment: a table, reasons of failures, and folded remarks; truncated if too long to post."""
    parts = [
        f"### {'Kernels pass' if gate.passed else 'Kernels fail'}: {_plain(summary(gate))}",
        _plain(provenance(gate)),
    ]
    if gate.kernels:
        parts.append(_table(gate))
    failures = [_failures(one) for one in gate.kernels if one.failures]
    parts += failures
    remarks = [*(f"- {_code(name_of(one))}: {_plain(note)}" for one in gate.kernels for note in _notes(one)), *(f"- {_plain(note)}" for note in gate.notes)]  # fmt: skip
    if remarks:
        parts.append("\n".join(["<details><summary>Notes</summary>", "", *remarks, "", "</details>"]))
    return _cut("\n\n".join(parts) + "\n")


def _table(gate: Gate) -> str:
    shown = columns(gate)
    heads = ["kernel", "change", *(COLUMNS[metric] for metric in shown), "result"]
    rows = [f"| {' | '.join(heads)} |", f"|{'|'.join([' --- ', ' --- ', *(' ---: ' for _ in shown), ' --- '])}|"]
    for one in gate.kernels:
        figures = {figure.metric: figure for figure in one.figures}
        cells = [_cell(figures.get(metric)) for metric in shown]
        rows.append(f"| {' | '.join([_code(name_of(one)), CHANGES[one.change], *cells, _RESULTS[one.outcome]])} |")
    return "\n".join(rows)


def _cell(figure: MetricChange | None) -> str:
    if figure is None:
        return ""
    words = _plain(figure_words(figure, "→"))
    return f"**{words}**" if figure.worse else words


def _failures(one: GatedKernel) -> str:
    place = f"{one.path}:{one.line}" if one.line is not None else one.path
    return "\n".join(
        [f"{_code(one.instance or one.kernel)} in {_code(place)}:", *(f"- {_plain(text)}" for text in one.failures)]
    )


def _notes(one: GatedKernel) -> list[str]:
    return ([f"was {one.was}"] if one.was is not None else []) + list(one.notes)


def _plain(text: str) -> str:
    """Escapes text for Markdown: no links, mentions or HTML."""
    return _SPECIAL.sub(r"\\\1", " ".join(printable(text, keep="").split())).replace("\\@", "@\N{ZERO WIDTH SPACE}")


def _code(text: str) -> str:
    """Formats a name as code; escapes backticks and bars."""
    shown = printable(text, keep="").replace("|", "\\|")
    fence = "`" * (max((len(run) for run in re.findall("`+", shown)), default=0) + 1)
    return f"{fence} {shown} {fence}" if "`" in shown else f"{fence}{shown}{fence}"


def _cut(text: str) -> str:
    if len(text) <= MOST:
        return text
    whole = text[:MOST].rpartition("\n")[0]
    return f"{whole}\n\n... cut: the whole is in the terminal's output.\n"


_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Characters that XML 1.0 cannot hold, not even escaped (Extensible Markup Language 1.0, section 2.2)."""


def junit(gate: Gate) -> str:
    """Returns the XML document. A removed or merely moved kernel is a skipped case."""
    failed = sum(one.outcome == "failed" for one in gate.kernels)
    skipped = sum(one.outcome in {"removed", "moved"} for one in gate.kernels)
    counts = {"tests": str(len(gate.kernels)), "failures": str(failed), "errors": "0", "skipped": str(skipped)}
    root = ET.Element("testsuites", {"name": "kernelmate ci", **counts})
    suite = ET.SubElement(root, "testsuite", {"name": _clean(f"kernels against {gate.base}"), **counts})
    properties = ET.SubElement(suite, "properties")
    for name, value in (
        ("base", gate.base),
        ("commit", gate.commit),
        ("target", gate.target),
        ("backend", gate.backend),
    ):
        ET.SubElement(properties, "property", {"name": name, "value": _clean(value)})
    for one in gate.kernels:
        _case(suite, one)
    output = ET.SubElement(suite, "system-out")
    output.text = _clean("\n".join([summary(gate), provenance(gate), *gate.notes]))
    ET.indent(root)
    return '<?xml version="1.0" encoding="utf-8"?>\n' + ET.tostring(root, encoding="unicode") + "\n"


def _case(suite: ET.Element, one: GatedKernel) -> None:
    place = {"classname": _clean(one.path), "name": _clean(one.instance or one.kernel), "file": _clean(one.path)}
    case = ET.SubElement(suite, "testcase", place | ({} if one.line is None else {"line": str(one.line)}))
    if one.outcome == "failed":
        failure = ET.SubElement(case, "failure", {"message": _clean(one.failures[0]), "type": "gate"})
        failure.text = _clean("\n".join(one.failures))
    elif one.outcome != "passed":
        ET.SubElement(case, "skipped", {"message": "removed" if one.outcome == "removed" else "moved, unchanged"})
    said = [f"{COLUMNS[figure.metric]}: {figure_words(figure)}" for figure in one.figures]
    said += [f"was {one.was}"] if one.was is not None else []
    output = ET.SubElement(case, "system-out")
    output.text = _clean("\n".join([*said, *one.notes]))


def _clean(text: str) -> str:
    return _NOT_XML.sub("\N{REPLACEMENT CHARACTER}", text)


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
