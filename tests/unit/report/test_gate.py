"""A gate in each of its forms: terminal, JUnit, SARIF, Markdown."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from typing import Any
from xml.etree import ElementTree as ET

import jsonschema
import pytest

from kernelmate.records import Finding, FindingCode, Gate, GatedKernel, MetricChange
from kernelmate.report.console import make_console, show
from kernelmate.report.excerpt import SourceLines
from kernelmate.report.gate import figure_sentence, gate_line, gate_view, summary
from kernelmate.report.gate_files import MOST, junit, markdown, sarif
from kernelmate.report.json import gate_json
from kernelmate.report.schema import schema

FIGURES = (
    MetricChange("registers", 32, 40, 32, True),
    MetricChange("spill_bytes", 0, 0, 0, False),
    MetricChange("shared_bytes", 512, 512, 512, False),
    MetricChange("sectors", 1000, 1004, 1005, False),
    MetricChange("findings", 0, 1, 0, True),
    MetricChange("time", 12.0, 14.0, None, False, "predicted, not gated"),
)
RACE = Finding(FindingCode.SHARED_RACE, "error", "thread 0 reads `tile` | <b>@all</b>", "ops/a b.cu", 12, 5)
FAILED = GatedKernel(
    "softmax", "softmax<float>", "ops/a b.cu", 10, "old.cu::soft", "changed", "failed", FIGURES,
    ("error shared-race: thread 0 reads `tile` | <b>@all</b>", "more registers per thread: 32 before, 40 now"),
    ("a note",), (RACE,),
)  # fmt: skip
PASSED = replace(FAILED, kernel="rope", instance=None, was=None, outcome="passed", failures=(), notes=(), fresh=(), figures=FIGURES[1:4])  # fmt: skip
REMOVED = GatedKernel("gone", None, "gone.cu", None, None, "removed", "removed")
MOVED = GatedKernel("there", None, "there.cu", 3, "here.cu::there", "moved", "moved")
GATE = Gate("origin/main", "0" * 40, "/repo", "H100 SXM", "emulator", (FAILED, PASSED, MOVED, REMOVED), 2, ("x.cu cannot be read: no.",))  # fmt: skip

TEXT = {"type": "object", "properties": {"text": {"type": "string", "minLength": 1}}, "required": ["text"], "additionalProperties": False}  # fmt: skip
SARIF: dict[str, Any] = {
    "type": "object",
    "properties": {
        "$schema": {"type": "string", "format": "uri"},
        "version": {"const": "2.1.0"},
        "runs": {"type": "array", "minItems": 1, "maxItems": 1, "items": {"$ref": "#/$defs/run"}},
    },
    "required": ["version", "runs"],
    "additionalProperties": False,
    "$defs": {
        "run": {
            "type": "object",
            "properties": {
                "tool": {
                    "type": "object",
                    "properties": {"driver": {"$ref": "#/$defs/driver"}},
                    "required": ["driver"],
                    "additionalProperties": False,
                },
                "automationDetails": {
                    "type": "object",
                    "properties": {"id": {"type": "string"}},
                    "additionalProperties": False,
                },
                "columnKind": {"enum": ["utf16CodeUnits", "unicodeCodePoints"]},
                "invocations": {
                    "type": "array",
                    "items": {
                        "type": "object",
                        "properties": {"executionSuccessful": {"type": "boolean"}, "exitCode": {"type": "integer"}},
                        "required": ["executionSuccessful"],
                        "additionalProperties": False,
                    },
                },
                "results": {"type": "array", "items": {"$ref": "#/$defs/result"}},
            },
            "required": ["tool", "results"],
            "additionalProperties": False,
        },
        "driver": {
            "type": "object",
            "properties": {
                "name": {"type": "string", "minLength": 1},
                "version": {"type": "string"},
                "semanticVersion": {"type": "string", "pattern": r"^\d+\.\d+\.\d+"},
                "informationUri": {"type": "string", "pattern": "^https://"},
                "rules": {"type": "array", "uniqueItems": True, "items": {"$ref": "#/$defs/rule"}},
            },
            "required": ["name"],
            "additionalProperties": False,
        },
        "rule": {
            "type": "object",
            "properties": {
                "id": {"type": "string", "minLength": 1},
                "name": {"type": "string"},
                "shortDescription": TEXT,
                "fullDescription": TEXT,
                "helpUri": {"type": "string", "pattern": "^https://"},
                "defaultConfiguration": {
                    "type": "object",
                    "properties": {"level": {"enum": ["none", "note", "warning", "error"]}},
                    "additionalProperties": False,
                },
            },
            "required": ["id"],
            "additionalProperties": False,
        },
        "result": {
            "type": "object",
            "properties": {
                "ruleId": {"type": "string"},
                "ruleIndex": {"type": "integer", "minimum": 0},
                "level": {"enum": ["none", "note", "warning", "error"]},
                "message": TEXT,
                "locations": {"type": "array", "minItems": 1, "items": {"$ref": "#/$defs/location"}},
                "partialFingerprints": {"type": "object", "additionalProperties": {"type": "string"}},
                "baselineState": {"enum": ["new", "unchanged", "updated", "absent"]},
            },
            "required": ["message"],
            "additionalProperties": False,
        },
        "location": {
            "type": "object",
            "properties": {
                "physicalLocation": {
                    "type": "object",
                    "properties": {
                        "artifactLocation": {
                            "type": "object",
                            "properties": {
                                "uri": {"type": "string", "pattern": r"^[A-Za-z0-9/._~%-]+$"},
                                "uriBaseId": {"type": "string"},
                            },
                            "required": ["uri"],
                            "additionalProperties": False,
                        },
                        "region": {
                            "type": "object",
                            "properties": {
                                "startLine": {"type": "integer", "minimum": 1},
                                "startColumn": {"type": "integer", "minimum": 1},
                            },
                            "required": ["startLine"],
                            "additionalProperties": False,
                        },
                    },
                    "required": ["artifactLocation"],
                    "additionalProperties": False,
                },
                "logicalLocations": {
                    "type": "array",
                    "items": {
                        "type": "object",
                        "properties": {"name": {"type": "string"}, "kind": {"type": "string"}},
                        "additionalProperties": False,
                    },
                },
            },
            "additionalProperties": False,
        },
    },
}
"""Schema of the properties that are written, from SARIF 2.1.0 (OASIS Standard, 27 March 2020); it allows no others."""


def shown(gate: Gate, width: int = 100) -> str:
    stream = io.StringIO()
    show(make_console(stream, color=False, width=width), *gate_view(gate, SourceLines()))
    return stream.getvalue()


def log(gate: Gate) -> Any:
    document = json.loads(sarif(gate))
    jsonschema.Draft202012Validator(SARIF).validate(document)
    return document


@pytest.mark.parametrize("width", [72, 80, 120])
def test_the_terminal_shows_figures_before_and_after_and_what_fails(width: int) -> None:
    text = shown(GATE, width)
    assert "4 kernels differ from origin/main: 1 of 2 judged fails FAILED" in " ".join(text.split())
    assert "40 !" in text
    assert "ops/a b.cu:10: softmax<float>  FAILED" in text
    assert "more registers per thread: 32 before, 40 now" in text
    assert "was old.cu::soft" in text
    assert "x.cu cannot be read: no." in text
    assert all(len(line.rstrip()) <= width for line in text.split("\n"))


def test_a_predicted_time_is_not_shown_beside_what_is_gated_and_a_measured_one_is() -> None:
    text = shown(GATE)
    assert " us" not in text.split("\n\n")[1]
    assert "without a GPU no time is gated" in " ".join(text.split())
    measured = replace(
        FAILED, figures=(*FIGURES[:5], MetricChange("time", 12.0, 14.0, 12.2, True, "measured 0.9x as fast"))
    )
    assert "-> 14 us !" in shown(replace(GATE, backend="cuda", kernels=(measured,)))


def test_a_metric_that_is_zero_everywhere_has_no_column() -> None:
    head = shown(GATE).split("\n\n")[1].split("\n")[0]
    assert "spills" not in head
    assert {"regs", "shared", "sectors", "findings"} <= set(head.split())


def test_a_terminal_escape_in_a_name_is_written_out() -> None:
    text = shown(replace(GATE, kernels=(replace(FAILED, path="a\x1b[2J.cu"),)))
    assert "\x1b" not in text
    assert "\\x1b" in text


@pytest.mark.parametrize(
    ("kernels", "words"),
    [
        ((), "no kernel differs from origin/main"),
        ((PASSED,), "1 kernel differs from origin/main: it passes"),
        ((PASSED, PASSED), "2 kernels differ from origin/main: all 2 judged pass"),
        ((FAILED, FAILED), "2 kernels differ from origin/main: 2 of 2 judged fail"),
        ((REMOVED,), "1 kernel differs from origin/main: none had to be judged"),
    ],
)
def test_the_summary_counts_what_was_judged(kernels: tuple[GatedKernel, ...], words: str) -> None:
    assert summary(replace(GATE, kernels=kernels)) == words


def test_a_gate_passes_where_no_kernel_fails() -> None:
    assert not GATE.passed
    assert replace(GATE, kernels=(PASSED, MOVED, REMOVED)).passed
    assert replace(GATE, kernels=()).passed


def test_quiet_says_the_first_reason() -> None:
    assert gate_line(FAILED).plain == f"ops/a b.cu::softmax<float>  FAILED, {FAILED.failures[0]}"


def test_what_is_allowed_stands_in_the_sentence_where_anything_is() -> None:
    assert figure_sentence(replace(FIGURES[0], most=34)) == "more registers per thread: 32 before, 40 now, at most 34 allowed"  # fmt: skip
    assert figure_sentence(MetricChange("time", 1, 2, 1, True, "measured 0.5x [0.4, 0.6] as fast")) == "slower: measured 0.5x [0.4, 0.6] as fast"  # fmt: skip


def test_the_document_obeys_the_schema() -> None:
    document = gate_json(GATE)
    jsonschema.Draft202012Validator(schema()).validate(document)
    assert document["gate"]["passed"] is False


def test_junit_has_a_case_for_each_kernel() -> None:
    root = ET.fromstring(junit(GATE))
    assert {name: root.get(name) for name in ("tests", "failures", "errors", "skipped")} == {
        "tests": "4", "failures": "1", "errors": "0", "skipped": "2",
    }  # fmt: skip
    cases = {case.get("name"): case for case in root.iter("testcase")}
    failure = cases["softmax<float>"].find("failure")
    assert failure is not None
    assert failure.text == "\n".join(FAILED.failures)
    assert cases["softmax<float>"].get("line") == "10"
    assert cases["rope"].find("failure") is None
    assert cases["gone"].find("skipped") is not None


def test_junit_stays_xml_with_characters_that_xml_cannot_hold() -> None:
    odd = replace(FAILED, path="a\x00\x1b\ud800.cu", failures=("\x07 & < > ]]> \ufffe",))
    root = ET.fromstring(junit(replace(GATE, kernels=(odd,), notes=("\x01",))))
    assert next(root.iter("testcase")).get("classname") == "a\ufffd\ufffd\ufffd.cu"


def test_sarif_places_findings_at_their_line_and_figures_at_the_kernel() -> None:
    (run,) = log(GATE)["runs"]
    race, registers = run["results"]
    assert (race["ruleId"], race["level"]) == ("shared-race", "error")
    assert race["locations"][0]["physicalLocation"]["region"] == {"startLine": 12, "startColumn": 5}
    assert race["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] == "ops/a%20b.cu"
    assert (registers["ruleId"], registers["locations"][0]["physicalLocation"]["region"]) == ("more-registers", {"startLine": 10})  # fmt: skip
    rules = [rule["id"] for rule in run["tool"]["driver"]["rules"]]
    assert [rules[result["ruleIndex"]] for result in run["results"]] == ["shared-race", "more-registers"]
    assert run["invocations"] == [{"executionSuccessful": True, "exitCode": 1}]


def test_sarif_of_a_gate_that_passes_has_no_results() -> None:
    assert log(replace(GATE, kernels=(PASSED, MOVED, REMOVED)))["runs"][0]["results"] == []


def test_sarif_tells_why_a_kernel_could_not_be_judged() -> None:
    broken = replace(FAILED, figures=(), fresh=(), failures=("line 3: grid is wrong",))
    (result,) = log(replace(GATE, kernels=(broken,)))["runs"][0]["results"]
    assert (result["ruleId"], result["message"]["text"]) == ("not-judged", "softmax<float>: line 3: grid is wrong")


def test_the_same_failure_keeps_its_fingerprint_when_lines_move() -> None:
    moved = replace(FAILED, line=99, fresh=(replace(RACE, line=70),))
    before, after = (log(replace(GATE, kernels=(one,)))["runs"][0]["results"] for one in (FAILED, moved))
    assert [one["partialFingerprints"] for one in before] == [one["partialFingerprints"] for one in after]


def test_markdown_cannot_be_broken_out_of() -> None:
    text = markdown(GATE)
    assert "| `ops/a b.cu::softmax<float>` | changed | **32 → 40** |" in text
    assert "<b>" not in text
    assert "@all" not in text
    rows = [line for line in text.split("\n") if line.startswith("|")]
    assert len(rows) == 2 + len(GATE.kernels)
    assert len({row.count("|") - row.count("\\|") for row in rows}) == 1
    odd = replace(FAILED, path="a`|b\n.cu")
    assert "`` a`\\|b\\x0a.cu::softmax<float> ``" in markdown(replace(GATE, kernels=(odd,)))


def test_a_comment_that_is_too_long_is_cut() -> None:
    many = replace(GATE, kernels=tuple(replace(FAILED, path=f"{number}.cu") for number in range(2000)))
    text = markdown(many)
    assert len(text) < MOST + 200
    assert text.endswith("... cut: the whole is in the terminal's output.\n")
