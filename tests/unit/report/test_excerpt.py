"""Source lines with carets, and diffs that can be read and applied."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelmate.report.diff import Diff, diff_lines, line_kind
from kernelmate.report.excerpt import SourceLines


def caret_below(text: str, column: int, width: int = 76) -> str:
    """The character above the caret."""
    line, caret = SourceLines({"a.cu": text}).excerpt("a.cu", 1, column, width)
    return line[caret.index("^")]


def test_the_caret_stands_below_its_column() -> None:
    assert SourceLines({"a.cu": "int x;\nfloat why = 0;"}).excerpt("a.cu", 2, 7) == (
        "    2 | float why = 0;",
        "      |       ^",
    )


@pytest.mark.parametrize("before", ["", "\t", "\t\tif (x) ", "    "])
def test_tabs_do_not_move_the_caret(before: str) -> None:
    assert caret_below(before + "@rest", len(before) + 1) == "@"


@given(st.integers(0, 400), st.integers(0, 400))
def test_the_caret_stays_in_view_and_on_its_character(before: int, after: int) -> None:
    text = "x" * before + "@" + "y" * after
    assert caret_below(text, before + 1) == "@"
    assert all(len(line) <= 76 for line in SourceLines({"a": text}).excerpt("a", 1, before + 1))


def test_wide_characters_before_the_caret_count_for_two_cells() -> None:
    line, caret = SourceLines({"a": "// 幅 @"}).excerpt("a", 1, 6)
    assert caret.index("^") == line.index("@") + 1


def test_a_column_past_the_end_is_no_error() -> None:
    assert SourceLines({"a": "x"}).excerpt("a", 1, 50)[0] == "    1 | x"


def test_lines_are_counted_as_the_compiler_does() -> None:
    assert SourceLines({"a": "one\x0c still one\ntwo"}).line("a", 2) == "two"


def test_files_are_read_and_what_cannot_be_read_gives_nothing(tmp_path: Path) -> None:
    file = tmp_path / "a.cu"
    file.write_text("first\nsecond\n")
    sources = SourceLines()
    assert sources.line(str(file), 2) == "second"
    assert sources.excerpt(str(file), 99, 1) == ()
    assert sources.excerpt(str(tmp_path / "none.cu"), 1, 1) == ()
    assert sources.excerpt(str(tmp_path), 1, 1) == ()
    assert sources.excerpt("<cell>", 1, 1) == ()
    assert sources.excerpt(None, 1, 1) == ()


def test_escapes_of_a_source_are_written_out() -> None:
    assert "\x1b" not in "".join(SourceLines({"a": "\x1b[2J @"}).excerpt("a", 1, 6))
    assert caret_below("\x1b[2J @", 6) == "@"


@pytest.mark.parametrize(
    ("body", "found"),
    [
        ("y[i] = 1;\n    y[i + 1] = 2;", (4, 5)),
        ("y[i] += x[i];", (3, 5)),
        ("y[i] <<= 1;", (3, 5)),
        ("y[i]++;", (3, 5)),
        ("x[i] = y[i] >> 1;", None),
        ("if (y[i] == 1) x[i] = y[i];", None),
        ("if (y[i] <= 1) x[i] = 0; // y[i] = 3;", None),
        ("y[p[i]] = 1;", (3, 5)),
    ],
)
def test_the_last_store_to_an_argument_is_found(body: str, found: tuple[int, int] | None) -> None:
    text = f"__global__ void before(int* y) {{ y[0] = 1; }}\n__global__ void k(int* y) {{\n    {body}\n}}\n"
    assert SourceLines({"a.cu": text}).last_store("a.cu", "k", "y") == found
    assert SourceLines({"a.cu": text}).last_store("a.cu", "none", "y") is None


def test_equal_texts_have_no_diff() -> None:
    assert diff_lines("a\nb\n", "a\nb\n", "x.cu") == []


def test_a_removed_line_that_looks_like_a_header_is_still_removed() -> None:
    lines = diff_lines("-- x\na\n", "a\n", "x.cu")
    kinds = [line_kind(line, index) for index, line in enumerate(lines)]
    assert kinds[:3] == ["file", "file", "hunk"]
    assert kinds[lines.index("--- x")] == "removed"


@pytest.mark.skipif(shutil.which("patch") is None, reason="needs the patch program")
def test_patch_applies_it(tmp_path: Path, make: SimpleNamespace) -> None:
    after = make.source.replace("4096", "2048").replace("\tfor", "\t\tfor")
    (tmp_path / "k.cu").write_text(make.source)
    text = "\n".join(line for line, _ in Diff(make.source, after, "k.cu").lines()) + "\n"
    subprocess.run(["patch", "-p1"], input=text, text=True, cwd=tmp_path, check=True, capture_output=True)
    assert (tmp_path / "k.cu").read_text() == after


@pytest.mark.skipif(shutil.which("patch") is None, reason="needs the patch program")
@pytest.mark.parametrize("below", [True, False])
def test_patch_finds_a_file_named_from_the_root(
    below: bool, tmp_path: Path, make: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "folder" / "k.cu"
    place.parent.mkdir()
    place.write_text(make.source)
    monkeypatch.chdir(place.parent if below else "/")
    after = make.source.replace("4096", "2048")
    lines = [line for line, _ in Diff(make.source, after, str(place)).lines()]
    assert "//" not in lines[0]
    subprocess.run(["patch", "-p1"], input="\n".join(lines) + "\n", text=True, check=True, capture_output=True)
    assert place.read_text() == after
