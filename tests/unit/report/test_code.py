"""Display of PTX and SASS beside the source."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from rich.console import Console

from kernelmate.compiler.code_diff import compare_code
from kernelmate.records import Control, Listing, Live, PtxInstruction, SassInstruction, SourcePlace
from kernelmate.report.code import ListingView, code_view, diff_view, listing_head, setters
from kernelmate.report.console import make_console, show
from kernelmate.report.excerpt import SourceLines

SOURCE = "first\nint second;\n  third();\nfourth\n"
FILE, HEADER, SYSTEM = "k.cu", "part.cuh", "/cuda/include/cuda_fp16.hpp"


def sass(
    address: int, text: str, line: int | None, ptx: int | None, live: int, *callers: int, file: str = FILE, **more: Any
) -> SassInstruction:
    place = None if line is None else SourcePlace(file, line)
    inlined = tuple(SourcePlace(FILE, caller) for caller in callers)
    return SassInstruction(
        address, text, text.split()[0], "int", more.get("function", "_Z1k"), more.get("labels", ()), place, inlined,
        ptx, Live(live, 0, 0),
    )  # fmt: skip


LISTING = Listing(
    "k", None, (FILE, HEADER), "_Z1k", "sm_90", "NVRTC 13.5", "sha256:0", 24, 0, 128, {"int": 5},
    (PtxInstruction(10, "ld.param.u64 %rd1, [_Z1k_param_0]", SourcePlace(FILE, 2)),
     PtxInstruction(11, "add.s32 %r1, %r2, %r3", SourcePlace(FILE, 3)),
     PtxInstruction(12, "add.f16 %h1, %h2, %h3", SourcePlace(SYSTEM, 900), (SourcePlace(FILE, 3),))),
    (sass(0x00, "LDC R1, c[0x0][0x28]", 2, 10, 3),
     sass(0x10, "IADD3 R1, R2, R3, RZ", 3, 11, 7, labels=(".L_x_1",)),
     sass(0x20, "HADD2 R1, R2, R3", 900, 12, 9, 3, file=SYSTEM),
     sass(0x30, "MOV R4, 0x5", 3, 10, 4),
     sass(0x40, "SHF.R R9, RZ, 0x17, R3", None, None, 5, function="$__internal_0")),
)  # fmt: skip


def shown(**how: Any) -> str:
    view = code_view(LISTING, SourceLines({FILE: SOURCE}), ListingView(**how))
    return text_of(lambda console: show(console, view), how.get("width", 80))


def text_of(write: Callable[[Console], None], width: int = 80) -> str:
    import io

    stream = io.StringIO()
    write(make_console(stream, color=False, width=width))
    return stream.getvalue()


def test_a_line_stands_above_its_ptx_and_that_above_its_sass() -> None:
    text = shown(width=80)
    order = ["third();", "11  add.s32", "0010  IADD3"]
    assert [text.index(part) for part in order] == sorted(text.index(part) for part in order)
    assert text.index("int second;") < text.index("third();")
    assert "[param_0]" in text


def test_where_there_is_room_sass_stands_beside_its_ptx() -> None:
    row = next(line for line in shown(width=120).splitlines() if "IADD3" in line)
    above = next(line for line in shown(width=120).splitlines() if "add.s32" in line)
    assert "add.s32" in above
    assert row.index("0010") > above.index("%r3")
    assert all(len(line) <= 120 for line in shown(width=120).splitlines())
    assert all(len(line) <= 80 for line in shown(width=80).splitlines())


def test_the_peak_is_marked_at_its_instruction_and_its_line() -> None:
    marked = [line for line in shown(width=80).splitlines() if "<- peak" in line]
    assert len(marked) == 2
    assert "third();" in marked[0]
    assert "HADD2" in marked[1]
    head = text_of(lambda console: show(console, listing_head(LISTING)), 120)
    assert "at most 9 live, first at 0x0020, line 3" in head


def test_code_of_system_headers_counts_for_the_line_that_calls_it() -> None:
    text = shown(width=80)
    assert SYSTEM not in text
    assert text.index("third();") < text.index("HADD2")


def test_code_made_from_another_lines_ptx_says_so() -> None:
    assert "(ld.param.u64 %rd1, [param_0])" in shown(width=80)


def test_code_of_no_line_comes_last_under_its_function() -> None:
    text = shown(width=80)
    assert text.index("(no source line)") < text.index("$__internal_0:") < text.index("SHF.R")


def test_labels_stand_before_their_instruction() -> None:
    assert shown(width=80).index(".L_x_1:") < shown(width=80).index("IADD3")


def test_one_line_brings_what_was_inlined_there_and_nothing_else() -> None:
    text = shown(wanted=lambda line: line == 3)
    assert "IADD3" in text
    assert "HADD2" in text
    assert "LDC" not in text
    assert "SHF.R" not in text
    assert shown(wanted=lambda line: line == 4) == ""


def test_ptx_or_sass_alone() -> None:
    assert "IADD3" not in shown(sass=False)
    assert "add.s32" in shown(sass=False)
    assert "add.s32" not in shown(ptx=False)
    assert "IADD3" in shown(ptx=False)


def test_by_address_a_line_comes_back_as_often_as_the_code_returns_to_it() -> None:
    text = shown(by_address=True)
    addresses = [line.split()[0] for line in text.splitlines() if line.strip()[:2] == "00"]
    assert addresses == ["0000", "0010", "0020", "0030", "0040"]


def test_control_information_names_what_is_waited_for() -> None:
    load, use = LISTING.sass[1], LISTING.sass[3]
    code = (
        replace(load, control=Control(1, False, 2, None, ())),
        replace(use, control=Control(13, True, None, None, (2,))),
    )
    view = code_view(replace(LISTING, sass=code), SourceLines({FILE: SOURCE}), ListingView(ptx=False, control=True))
    first, second = (
        line for line in text_of(lambda console: show(console, view)).splitlines() if line.lstrip()[:2] == "00"
    )
    assert "0010  ------ 2 - -  1  IADD3" in first
    assert "0030  --2--- - - y 13  MOV" in second
    assert second.endswith("waits for IADD3 at 0010")
    assert "waits" not in first


def test_all_that_set_a_scoreboard_since_it_was_waited_for_are_named() -> None:
    def at(address: int, text: str, sets: int | None = None, waits: tuple[int, ...] = ()) -> SassInstruction:
        return replace(sass(address, text, 3, 11, 4), control=Control(1, False, sets, None, waits))

    code = (
        at(0x00, "S2R R0", sets=0), at(0x10, "S2R R1", sets=0), at(0x20, "IMAD R2", waits=(0,)),
        at(0x30, "LDG R3", sets=0), at(0x40, "FADD R4", waits=(0,)), at(0x50, "FMUL R5", waits=(0,)),
    )  # fmt: skip
    assert setters(code) == {(0x20, 0): "S2R at 0000 and 0010", (0x40, 0): "LDG at 0030", (0x50, 0): "LDG at 0030"}
    many = (*(at(16 * index, "LDG R0", sets=1) for index in range(9)), at(0x90, "FADD R1", waits=(1,)))
    assert setters(many) == {(0x90, 1): "LDG at 0000 and 0010 and 0020 and 0030 and 5 more"}


def test_text_that_steers_terminals_is_written_out() -> None:
    view = code_view(LISTING, SourceLines({FILE: SOURCE.replace("third", "\x1b[31mthird")}), ListingView())
    assert "\x1b" not in text_of(lambda console: show(console, view))


def diffed(new: Listing) -> str:
    return text_of(lambda console: show(console, *diff_view(compare_code(LISTING, new))), 100)


def test_a_diff_shows_totals_and_what_changed() -> None:
    new = replace(LISTING, sass=(*LISTING.sass[:2], *LISTING.sass[3:]), registers=32, mix={"int": 4}, code_bytes=64)
    text = diffed(new)
    assert "+33.3%" in next(line for line in text.splitlines() if "registers per thread" in line)
    removed = [line for line in text.splitlines() if line.startswith("- ")]
    assert len(removed) == 1
    assert "HADD2" in removed[0]
    assert "line 3" in removed[0]
    assert "1 instructions gone, 0 come" in text


def test_a_diff_of_the_same_says_so() -> None:
    assert "The code is the same" in diffed(LISTING)
