"""Parsing of compute-sanitizer's output, recorded on a GPU: `recorded/sanitizer.json` names its options and the machine."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kernelmate.worker.nvidia.sanitizer import ReportedPlace, read

OUTPUTS = json.loads((Path(__file__).parent / "recorded" / "sanitizer.json").read_text())["outputs"]


@pytest.mark.parametrize(
    ("key", "code", "severity", "line"),
    [
        ("memcheck:write_past_end", "out-of-bounds-write", "error", 15),
        ("memcheck:read_before_start", "out-of-bounds-read", "error", 15),
        ("memcheck:atomic_past_end", "out-of-bounds-write", "error", 15),
        ("memcheck:misaligned_load", "misaligned-access", "error", 16),
        ("memcheck:misaligned_shared", "misaligned-access", "error", 18),
        ("memcheck:null_pointer", "illegal-address", "error", 16),
        ("memcheck:wild_pointer", "illegal-address", "error", 15),
        ("memcheck:shared_past_end", "out-of-bounds-read", "error", 18),
        ("memcheck:dynamic_shared_too_small", "out-of-bounds-write", "error", 18),
        ("racecheck:shared_read_after_write", "shared-race", "error", 16),
        ("racecheck:shared_write_after_write", "shared-race", "error", 16),
        ("racecheck:shared_write_after_read", "shared-race", "error", 18),
        ("racecheck:copy_without_wait", "shared-race", "error", 17),
        ("racecheck:warp_exchange_without_sync", "shared-race", "warning", 16),
        ("initcheck:sum_into_unset_output", "uninitialised-global", "error", 15),
        ("synccheck:barrier_in_a_branch", "divergent-barrier", "error", 18),
        ("synccheck:syncwarp_without_itself", "shuffle-mask", "error", 17),
    ],
)
def test_every_kind_of_report_is_read_with_its_line(key: str, code: str, severity: str, line: int) -> None:
    said = read(OUTPUTS[key])
    assert said.ended
    assert said.unread == ()
    assert {(r.code, r.severity, r.place) for r in said.reports} == {(code, severity, ReportedPlace("kernel.cu", line))}


def test_the_first_thread_and_address_of_an_access_are_kept() -> None:
    first = read(OUTPUTS["memcheck:write_past_end"]).reports[0]
    assert (first.thread, first.address) == ((104, 0, 0, 7, 0, 0), 0x7F1C1EA01FA0)
    assert first.message == "writes 4 bytes of global memory out of bounds"
    assert first.doing == ("write", 4)


def test_a_race_names_both_accesses() -> None:
    (race,) = read(OUTPUTS["racecheck:shared_read_after_write"]).reports
    assert (race.place, race.other) == (ReportedPlace("kernel.cu", 16), ReportedPlace("kernel.cu", 17))
    assert race.message.startswith("write and read of one shared byte")


def test_an_output_without_reports_says_that_nothing_was_found() -> None:
    said = read(OUTPUTS["memcheck:local_past_end"])
    assert (said.reports, said.ended) == ((), True)


@pytest.mark.parametrize("key", [key for key in OUTPUTS if key != "refused"])
def test_an_output_that_breaks_off_anywhere_is_not_taken_for_an_ended_one(key: str) -> None:
    whole = OUTPUTS[key]
    summary = whole.index("SUMMARY")
    for cut in range(0, summary, 97):
        assert not read(whole[:cut]).ended


def test_a_report_of_a_kind_that_is_new_is_told() -> None:
    text = OUTPUTS["memcheck:write_past_end"].replace(
        "Invalid __global__ write of size 4 bytes", "Stale pipeline state"
    )
    assert read(text).unread == ("Stale pipeline state",)


def test_places_without_line_information_are_none() -> None:
    text = OUTPUTS["memcheck:write_past_end"].replace(" in kernel.cu:15", "")
    assert {report.place for report in read(text).reports} == {None}
