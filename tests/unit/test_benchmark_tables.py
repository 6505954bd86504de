"""Counts in the tables of benchmarks: accepted versions, and wrong candidates."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.acceptance_table import (
    Entry,
    entry_of,
    judgeable,
    ladder,
    outcome_of,
    reason_of,
    side_by_side,
    table,
    without_keys,
)
from benchmarks.wrong_candidates import Became, Judged, summary

TEXT = """// /// kernelmate
// sizes = [{ n = 4 }]
// require = [
//   "n % 4 == 0",
// ]
// grid = 1
// tolerance = { rtol = 1e-5, atol = 1e-6 }
// block = 32
// ///
__global__ void __launch_bounds__(32) one(const float* x) {}
// require = ["this is no contract"]
"""


def verdict(accepted: bool | None, *reasons: str, **more: object) -> dict[str, object]:
    return {"accepted": accepted, "reasons": list(reasons), "findings": [], "compiled": True, "correct": True, "speedup": None, **more}  # fmt: skip


def test_keys_are_dropped_from_contracts_alone_with_all_their_lines() -> None:
    left = without_keys(TEXT, ("require", "tolerance"))
    assert [line for line in left.splitlines() if line.startswith("//")] == [
        "// /// kernelmate", "// sizes = [{ n = 4 }]", "// grid = 1", "// block = 32", "// ///",
        '// require = ["this is no contract"]',
    ]  # fmt: skip


def test_kernels_with_a_contract_are_named() -> None:
    assert judgeable("__global__ void no() {}\n" + TEXT) == ["one"]
    assert judgeable(TEXT.replace("// grid", '// kernel = "other"\n// grid')) == ["other"]


def test_a_ladder_is_copied_without_what_is_dropped(tmp_path: Path) -> None:
    folder = tmp_path / "softmax"
    folder.mkdir()
    (folder / "kernel.cu").write_text(TEXT)
    (folder / "v2.cu").write_text(TEXT)
    (folder / "headline.json").write_text(json.dumps({"size": "n=8"}))
    name, kernel, size, versions = ladder(folder, tmp_path / "copy")
    assert (name, size, [path.name for path in versions]) == ("softmax", "n=8", ["v2.cu"])
    assert "tolerance" not in Path(kernel).read_text() + versions[0].read_text()
    assert "tolerance" in (folder / "kernel.cu").read_text()


@pytest.mark.parametrize(
    ("given", "outcome", "reason"),
    [
        (verdict(True), "accepted", "no reason given"),
        (verdict(None, "no race seen in 3 schedules"), "promising", "no reason given"),
        (verdict(None, "undecided: predicted 1.0x"), "undecided", "undecided: predicted 1.0x"),
        (verdict(False, "no race seen in 3 schedules", "slower at n=1"), "rejected", "slower at n=1"),
        (verdict(False, "slower", findings=[{"code": "hang", "severity": "error"}]), "rejected", "hang"),
        (verdict(False, compiled=False), "rejected", "compile-error"),
        (verdict(False, correct=False), "rejected", "wrong"),
    ],
)
def test_a_verdict_has_an_outcome_and_a_reason(given: dict[str, object], outcome: str, reason: str) -> None:
    assert (outcome_of(given), reason_of(given)) == (outcome, reason)


def test_entries_are_counted_by_kernel_and_author_with_totals() -> None:
    entries = [
        entry_of("a", "recipe:x", "optimize", verdict(True, speedup={"median": 2.0})),
        entry_of("a", "recipe:y", "optimize", verdict(False, "slower: 0.91x")),
        entry_of("a", "recipe:z", "optimize", verdict(False, "slower: 0.88x")),
        entry_of("a", "v2", "people", verdict(None)),
    ]
    lines = table(entries)
    assert lines[2:] == [
        "| a | optimize | 1 | 0 | 0 | 2 | 0 | 0 | 2x | 2 slower: Nx |",
        "| a | people | 0 | 1 | 0 | 0 | 0 | 0 | - |  |",
        "| all | optimize | 1 | 0 | 0 | 2 | 0 | 0 | | 2 slower: Nx |",
        "| all | people | 0 | 1 | 0 | 0 | 0 | 0 | |  |",
    ]


def test_two_runs_stand_side_by_side() -> None:
    before = [Entry("a", "recipe:x", "optimize", "rejected", "slower at n=1", 4.8)]
    after = [Entry("a", "recipe:x", "optimize", "accepted", "", 4.8), Entry("b", "v1", "people", "accepted", "", None)]
    lines = side_by_side(before, after)
    assert (
        "| a | optimize | 0 -> 1 | 0 -> 0 | 0 -> 0 | 1 -> 0 | 0 -> 0 | 0 -> 0 | - -> 4.8x | 1 slower at n=N |  |"
        in lines
    )
    assert [line.split("|")[1].strip() for line in lines[2:]] == ["a", "b", "all", "all"]


def test_the_script_needs_nothing_of_the_package(tmp_path: Path) -> None:
    script = Path(__file__).resolve().parents[2] / "benchmarks" / "acceptance_table.py"
    run = tmp_path / "run.json"
    run.write_text(json.dumps({"entries": []}))
    done = subprocess.run(
        [sys.executable, "-I", str(script), "--compare", str(run), str(run)], capture_output=True, text=True, check=True
    )
    assert done.stdout.startswith("| kernel | by |")


def judged(kind: str, became: Became, *, ran: bool = True) -> Judged:
    return Judged(kind, "some", became, ran, "")


@pytest.mark.parametrize(
    ("rows", "good"),
    [
        ([judged("wrong", "rejected")], True),
        ([judged("wrong", "accepted")], False),
        ([*[judged("wrong", "rejected")] * 24, judged("wrong", "accepted")], True),
        ([judged("wrong", "no verdict")], False),
        ([judged("honest", "accepted")], True),
        ([judged("honest", "rejected")], False),
        ([judged("honest", "no verdict")], False),
        ([judged("honest", "not tried", ran=False)], True),
    ],
)
def test_what_is_as_it_must_be(rows: list[Judged], *, good: bool) -> None:
    assert summary(rows, "emulator")[1] is good


def test_candidates_that_did_not_run_on_the_backend_are_named() -> None:
    text, good = summary([judged("wrong", "rejected", ran=False), judged("wrong", "rejected")], "cuda")
    assert good
    assert "wrong: 2, ran on cuda: 1, 2 rejected\n  some: did not run there" in text
