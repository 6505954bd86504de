"""Diffs that can be read and applied."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest

from kernelmate.report.diff import Diff, diff_lines, line_kind


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
