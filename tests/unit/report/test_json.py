"""Documents: key order, nulls, finite numbers, and the schema they obey."""

from __future__ import annotations

import dataclasses
import json
from types import SimpleNamespace
from typing import Any

import jsonschema
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelmate import records
from kernelmate.errors import ContractError
from kernelmate.records import Compiled, Optimization, Target, Verdict
from kernelmate.report.history import verdict_of
from kernelmate.report.json import (
    doctor_json,
    dumps,
    error_json,
    optimization_json,
    plain,
    targets_json,
    verdict_json,
    verdicts_json,
)
from kernelmate.report.machine import Check
from kernelmate.report.schema import schema

DESIGN_KEYS = [
    "kernel",
    "instance",
    "backend",
    "target",
    "arch",
    "compiler",
    "binary",
    "seed",
    "compiled",
    "diagnostics",
    "resources",
    "occupancy",
    "correct",
    "cases",
    "findings",
    "timing",
    "speedup",
    "counters",
    "objective",
    "accepted",
    "reasons",
    "trade_offs",
    "lines",
    "predicted",
    "roofline",
    "hardware",
    "assumes",
    "stages",
    "against",
]


def valid(document: dict[str, Any]) -> dict[str, Any]:
    parsed: dict[str, Any] = json.loads(dumps(document))
    jsonschema.Draft202012Validator(schema()).validate(parsed)
    return parsed


def test_the_schema_is_one() -> None:
    jsonschema.Draft202012Validator.check_schema(schema())


def test_a_verdict_has_every_key_in_the_order_of_the_design(verdict: Verdict, broken: Verdict) -> None:
    for one in (verdict, broken):
        assert list(verdict_json(one)) == DESIGN_KEYS


@pytest.mark.parametrize("name", ["verdict", "measured", "wrong", "broken"])
def test_verdicts_obey_the_schema(name: str, request: pytest.FixtureRequest) -> None:
    assert valid(verdicts_json([request.getfixturevalue(name)]))["schema"] == 1


def test_hardware_counters_obey_the_schema(verdict: Verdict) -> None:
    assert verdict.counters is not None
    counters = dataclasses.replace(verdict.counters, source="hardware")
    profile = records.HardwareProfile("ncu 2025.3", counters, 14.2, 1024, None, 0.25, None, 0.7, 0.3, None)
    document = valid(verdicts_json([dataclasses.replace(verdict, hardware=profile)]))
    shown = document["verdicts"][0]["hardware"]
    assert (shown["counters"]["source"], shown["duration_us"], shown["l2_hit_rate"]) == ("hardware", 14.2, None)


def test_numbers_that_are_not_finite_become_null(wrong: Verdict) -> None:
    case = valid(verdicts_json([wrong]))["verdicts"][0]["cases"][1]
    assert case["max_error"] is None
    assert case["first_wrong"] == {"argument": "y", "index": [0, 852], "want": 0.0011, "got": None}


def test_an_optimization_obeys_the_schema_and_holds_the_changed_text(optimization: Optimization) -> None:
    document = valid(optimization_json(optimization))
    assert list(document) == ["schema", "objective", "baseline", "candidates", "best", "notes", "given"]
    assert list(document["candidates"][0]) == ["author", "why", "source", "other_files", "contract", "cost", "verdict"]
    assert "tile[2048]" in document["candidates"][0]["source"]
    assert document["best"] == 0


def test_an_optimization_without_a_best_says_null(optimization: Optimization) -> None:
    assert valid(optimization_json(dataclasses.replace(optimization, best=None)))["best"] is None


def test_an_error_has_every_key() -> None:
    error = ContractError("block = 2048 is over 1024", file="a.cu", line=3, column=9, hint="Set it to 1024.")
    document = valid(error_json(error))
    assert document["error"] == {
        "code": "contract", "message": "block = 2048 is over 1024", "file": "a.cu", "line": 3, "column": 9,
        "hint": "Set it to 1024.",
    }  # fmt: skip
    assert list(document["error"]) == ["code", "message", "file", "line", "column", "hint"]


def test_targets_and_checks_obey_the_schema() -> None:
    target = Target("H100 SXM", "sm_90", (9, 0), 132, 1980, 80 << 30, 3350.0, 50 << 20, 66.9, 33.5, 133.8, "datasheet")
    (shown,) = valid(targets_json([target]))["targets"]
    assert (shown["name"], shown["arch"], shown["capability"], shown["sms"]) == ("H100 SXM", "sm_90", [9, 0], 132)
    document = valid(doctor_json([Check("python", "ok", "3.11"), Check("gpu", "missing", "none", "None is needed.")]))
    assert [list(check.values())[:2] for check in document["checks"]] == [["python", "ok"], ["gpu", "missing"]]


def test_bytes_are_left_out_and_numpy_numbers_are_numbers() -> None:
    compiled = Compiled("k", None, "k", "sm_90", "NVRTC", True, (), cubin=b"\x7fELF")
    assert "cubin" not in plain(compiled)
    assert plain({"a": np.float32(0.5), "b": np.int64(3), "c": np.bool_(True), "d": (1, np.float64("inf"))}) == {
        "a": 0.5, "b": 3, "c": True, "d": [1, None],
    }  # fmt: skip


def test_what_no_document_may_hold_is_refused() -> None:
    with pytest.raises(TypeError, match="object"):
        plain(object())


def test_the_schema_refuses_a_missing_key_and_an_unknown_one(verdict: Verdict) -> None:
    check = jsonschema.Draft202012Validator(schema()).is_valid
    document = verdicts_json([verdict])
    assert check(document)
    missing = json.loads(dumps(document))
    del missing["verdicts"][0]["timing"]
    assert not check(missing)
    assert not check(document | {"extra": 1})


@pytest.mark.parametrize(
    ("record", "name"),
    [
        (records.Verdict, "verdict"),
        (records.Diagnostic, "diagnostic"),
        (records.Resources, "resources"),
        (records.Occupancy, "occupancy"),
        (records.Case, "case"),
        (records.FirstWrong, "first_wrong"),
        (records.Finding, "finding"),
        (records.Timing, "timing"),
        (records.Speedup, "speedup"),
        (records.Counters, "counters"),
        (records.CacheEstimate, "cache_estimate"),
        (records.LineCounters, "line_counters"),
        (records.HardwareProfile, "hardware_profile"),
        (records.ObjectiveResult, "objective_result"),
        (records.Objective, "objective"),
        (records.Target, "target"),
        (Check, "check"),
    ],
)
def test_schema_and_records_name_the_same_keys(record: type, name: str) -> None:
    definition = schema()["$defs"][name]
    keys = [field.name for field in dataclasses.fields(record)]
    assert list(definition["properties"]) == keys
    assert definition["required"] == keys
    assert definition["additionalProperties"] is False


@given(st.floats(allow_nan=True, allow_infinity=True), st.text(alphabet=st.characters(codec=None), max_size=20))
def test_any_text_and_any_number_become_ascii_json(number: float, text: str) -> None:
    shown = dumps({"number": plain(number), "text": plain(text)})
    assert shown.isascii()
    assert json.loads(shown)["text"] == text


def test_two_runs_print_the_same_text(make: SimpleNamespace) -> None:
    assert dumps(verdicts_json([make.verdict()])) == dumps(verdicts_json([make.verdict()]))


def test_what_acceptance_adds_obeys_the_schema(verdict: Verdict) -> None:
    ratio = records.Speedup("measured", 1.4, (1.3, 1.5))
    case = dataclasses.replace(
        verdict.cases[0], tolerance_origin="carried", held_against="baseline", weight=0.0, speedup=ratio
    )
    weighted = dataclasses.replace(ratio, weighted=True)
    result = records.ObjectiveResult("time", "measured", 12.0, 8.0, True, weighted=True)
    traded = dataclasses.replace(
        verdict, cases=(case,), speedup=weighted, objective=result, trade_offs=("slower at n=1",)
    )
    (written,) = valid(verdicts_json([traded]))["verdicts"]
    assert written["cases"][0]["speedup"] == {"kind": "measured", "median": 1.4, "ci95": [1.3, 1.5], "weighted": False}
    assert (written["cases"][0]["tolerance_origin"], written["cases"][0]["weight"]) == ("carried", 0.0)
    assert written["trade_offs"] == ["slower at n=1"]


def test_a_kept_verdict_reads_back_and_one_of_before_acceptance_by_weights_does_too(verdict: Verdict) -> None:
    case = dataclasses.replace(verdict.cases[0], held_against="reference", weight=2.0)
    kept = dataclasses.replace(verdict, cases=(case,), trade_offs=("slower at n=1",))
    document = verdict_json(kept)
    assert verdict_of(document) == kept
    del document["trade_offs"]
    for key in ("tolerance_origin", "held_against", "weight", "speedup"):
        del document["cases"][0][key]
    old = verdict_of(document)
    assert old is not None
    assert (old.trade_offs, old.cases[0].held_against, old.cases[0].weight) == ((), None, None)
