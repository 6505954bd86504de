from __future__ import annotations

import json
from pathlib import Path

import pytest

from kernelmate.records import Finding, FindingCode, Judgement, Unit
from kernelmate.worker.nvidia.examine import with_findings
from kernelmate.worker.nvidia.sanitizer import TOOLS, LaunchBuffer, conclude, findings_of, read
from kernelmate.worker.nvidia.tool import ToolOutput

OUTPUTS = json.loads((Path(__file__).parent / "recorded" / "sanitizer.json").read_text())["outputs"]
UNIT = Unit("faulty.cu", "\n" * 40)
CLEAN = ToolOutput(OUTPUTS["memcheck:local_past_end"], "", 0)


def answer(key: str, errors: str = "") -> ToolOutput:
    return ToolOutput(OUTPUTS[key], errors, 1)


def test_many_threads_are_one_finding_at_the_users_line_and_buffer() -> None:
    placed_at = "kernelmate buffer x 0x7f1c1ea00000 4000\nkernelmate buffer y 0x7f1c1ea01000 4000\n"
    findings, lines = conclude({"memcheck": answer("memcheck:write_past_end", placed_at)}, UNIT, 1)
    (finding,) = findings
    assert (finding.code, finding.severity, finding.file, finding.line) == (
        "out-of-bounds-write",
        "error",
        "faulty.cu",
        15,
    )
    assert (finding.buffer, finding.offset, finding.threads) == ("y", 4000, (104,))
    assert "0 bytes behind the end of y (4000 bytes)" in finding.message
    assert "thread (104, 0, 0) of block (7, 0, 0), the first of 4 reported" in finding.message
    assert finding.message.endswith("[compute-sanitizer memcheck]")
    assert lines == ()


def test_the_line_is_where_the_text_stands_in_the_users_file() -> None:
    from kernelmate.records import Anchor

    unit = Unit("model.py", "\n" * 40, "python", (Anchor(1, 1, 101, 5),))
    ((finding,), _) = conclude({"racecheck": answer("racecheck:shared_read_after_write")}, unit, 1)
    assert (finding.file, finding.line) == ("model.py", 116)
    assert "the other access is at line 117" in finding.message


def test_a_report_from_a_header_names_the_header() -> None:
    text = OUTPUTS["memcheck:write_past_end"].replace("kernel.cu:15", "tiles.cuh:7")
    (finding,) = findings_of(read(text).reports, "memcheck", (LaunchBuffer("y", 0x7F1C1EA01000, 4000),), UNIT)
    assert finding.line is None
    assert "(in tiles.cuh:7)" in finding.message


def test_an_access_far_from_every_array_has_no_buffer() -> None:
    (finding,) = findings_of(
        read(OUTPUTS["memcheck:null_pointer"]).reports, "memcheck", (LaunchBuffer("x", 0x7EF9EAA00000, 4000),), UNIT
    )
    assert (finding.code, finding.buffer, finding.offset) == ("illegal-address", None, None)


def test_tools_that_find_nothing_are_one_line_together() -> None:
    findings, lines = conclude(dict.fromkeys(TOOLS, CLEAN), UNIT, 3)
    assert findings == ()
    assert lines == ("compute-sanitizer finds nothing: memcheck, racecheck, initcheck, synccheck, 3 sizes",)


@pytest.mark.parametrize(
    ("given", "line"),
    [
        ("compute-sanitizer is not installed here (why)", "compute-sanitizer is not installed here (why)"),
        (
            ToolOutput(OUTPUTS["refused"], "", 255),
            "compute-sanitizer (memcheck) refuses: Target application doesn't exist or is not a valid executable",
        ),
        (
            ToolOutput("========= COMPUTE-SANITIZER\n========= Error: Device not supported\n", "", 1),
            "compute-sanitizer (memcheck) refuses: Device not supported",
        ),
        (
            ToolOutput("========= COMPUTE-SANITIZER\n", "kernelmate buffer y 0x10 4\nSegmentation fault\n", 139),
            "compute-sanitizer (memcheck) did not finish (exit code 139): Segmentation fault",
        ),
    ],
)
def test_a_tool_without_an_answer_is_one_clear_line(given: ToolOutput | str, line: str) -> None:
    assert conclude({"memcheck": given}, UNIT, 1) == ((), (line,))


def test_a_tool_that_is_absent_for_all_four_is_told_once() -> None:
    assert len(conclude(dict.fromkeys(TOOLS, "compute-sanitizer is not installed here (why)"), UNIT, 1)[1]) == 1


def test_a_fault_with_a_line_takes_the_place_of_the_one_without() -> None:
    bare = Finding(
        FindingCode.ILLEGAL_ADDRESS, "error", "the kernel accessed memory that nothing is mapped at", file="faulty.cu"
    )
    other = Finding(FindingCode.SHARED_RACE, "error", "a race", file="faulty.cu", line=3)
    judgement = Judgement(True, (), (bare, other), (), reasons=("seen",))
    findings, lines = conclude({"memcheck": answer("memcheck:wild_pointer")}, UNIT, 1)
    after = with_findings(judgement, findings, ("said",))
    assert after.correct is False
    assert [(f.code, f.line) for f in after.findings] == [("illegal-address", 15), ("shared-race", 3)]
    assert after.reasons == ("seen", "said")
    assert lines == ()


def test_a_warning_of_a_tool_rejects_nothing() -> None:
    findings, _ = conclude({"racecheck": answer("racecheck:warp_exchange_without_sync")}, UNIT, 1)
    after = with_findings(Judgement(True, (), (), ()), findings, ())
    assert after.correct is True
    assert [f.severity for f in after.findings] == ["warning"]


def test_a_whole_answer_as_the_launching_process_gives_it_is_one_finding() -> None:
    recorded = json.loads((Path(__file__).parent / "recorded" / "sanitizer.json").read_text())["through_launch"]
    given = recorded["memcheck:write_past_end"]
    ((finding,), lines) = conclude({"memcheck": ToolOutput(given["text"], given["errors"], given["code"])}, UNIT, 1)
    assert (finding.code, finding.line, finding.buffer, finding.offset) == ("out-of-bounds-write", 15, "y", 4000)
    assert "the first of 24 reported" in finding.message
    assert lines == ()
