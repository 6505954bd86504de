"""Launches of a kernel in other files of its project, and what becomes of them with another launch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from kernelmate.errors import SourceError
from kernelmate.records import FileChange, Kernel
from kernelmate.source import apply_edits, load_kernel, parse_contract, write_back
from kernelmate.source.other_files import following_changes, launching_files
from tests.launched import LAUNCHER, ROWS

MAIN = f"__global__ void row_sum(const float* x, float* y, int rows, int cols);\n{LAUNCHER}"

Project = Callable[..., Kernel]


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """Writes a kernel and other files of its project; returns the kernel."""

    def write(**others: str) -> Kernel:
        (tmp_path / "pyproject.toml").touch()
        (tmp_path / "rows.cu").write_text(ROWS)
        for name, text in others.items():
            (tmp_path / f"{name}.cu").write_bytes(text.encode())
        return load_kernel(str(tmp_path / "rows.cu"))

    return write


def changed(kernel: Kernel, **launch: object) -> tuple[tuple[FileChange, ...], tuple[str, ...]]:
    contract = parse_contract(kernel)
    assert contract is not None
    return following_changes(kernel, launching_files(kernel), contract, replace(contract, **launch))  # type: ignore[arg-type]


def test_a_launch_in_another_file_follows_in_its_own_names(project: Project) -> None:
    kernel = project(main=MAIN)
    ((change,), left) = changed(kernel, grid=("rows",), block=("32",))
    assert left == ()
    assert (Path(change.path).name, change.lines, change.before) == ("main.cu", (3,), MAIN)
    assert change.after == MAIN.replace("<<<(n + 127) / 128, 128>>>", "<<<n, 32>>>")


def test_each_file_and_each_launch_follows_and_line_ends_are_kept(project: Project) -> None:
    twice = MAIN + "void again(float* x, float* y) {\n    row_sum<<<4, 128>>>(x, y, 512, 8);\n}\n"
    kernel = project(main=MAIN.replace("\n", "\r\n"), other=twice)
    changes, left = changed(kernel, grid=("rows",), block=("32",))
    after = {Path(one.path).name: one.after for one in changes}
    assert left == ()
    assert after["main.cu"] == MAIN.replace("(n + 127) / 128, 128", "n, 32").replace("\n", "\r\n")
    assert after["other.cu"].count("<<<n, 32>>>") == after["other.cu"].count("<<<512, 32>>>") == 1


def test_of_two_kernels_of_one_name_the_launches_of_files_that_include_this_one_follow(project: Project) -> None:
    including = '#include "rows.cu"\n' + MAIN.split("\n", 1)[1]
    kernel = project(main=MAIN, copy=ROWS + MAIN, including=including)
    assert [one.places for one in launching_files(kernel)] == [("including.cu:3",), ("main.cu:3",)]
    assert changed(kernel) == ((), ())
    ((change,), left) = changed(kernel, grid=("rows",), block=("32",))
    assert change.after == including.replace("(n + 127) / 128, 128", "n, 32")
    assert left == ("main.cu:3",)


def test_a_launch_without_the_size_that_the_grid_needs_is_left_and_named(project: Project) -> None:
    kernel = project(main=MAIN, packed="void run(Arguments a) {\n    row_sum<<<4, 128>>>(PASSED(a));\n}\n")
    changes, left = changed(kernel, grid=("rows",), block=("32",))
    assert [Path(one.path).name for one in changes] == ["main.cu"]
    assert left == ("packed.cu:2",)


def test_a_present_text_that_is_not_saved_is_the_one_that_changes(project: Project) -> None:
    kernel = project(main=MAIN)
    contract = parse_contract(kernel)
    assert contract is not None
    unsaved = "// a line more\n" + MAIN
    new = replace(contract, grid=("rows",), block=("32",))
    ((change,), _) = following_changes(kernel, launching_files(kernel), contract, new, lambda _: unsaved)
    assert (change.before, change.lines) == (unsaved, (4,))
    assert change.after.startswith("// a line more\n")
    assert "<<<n, 32>>>" in change.after


def test_several_files_are_written_together_or_not_at_all(project: Project, tmp_path: Path) -> None:
    kernel = project(main=MAIN)
    after = apply_edits(kernel, [(kernel.start, kernel.start, "// changed\n")])
    change = FileChange(str(tmp_path / "main.cu"), MAIN, MAIN.replace("128", "32"), (3,))
    write_back(kernel, after, (change,))
    assert (tmp_path / "main.cu").read_text() == change.after
    assert (tmp_path / "main.cu.kernelmate-backup").read_text() == MAIN
    assert "// changed" in (tmp_path / "rows.cu").read_text()

    again = project(main="// somebody else's\n")
    with pytest.raises(SourceError, match="The file changed after it was read") as failed:
        write_back(again, after, (change,))
    assert failed.value.file == change.path
    assert (tmp_path / "rows.cu").read_text() == ROWS
    assert (tmp_path / "main.cu").read_text() == "// somebody else's\n"
    (tmp_path / "main.cu").chmod(0o444)
    with pytest.raises(SourceError, match="read-only"):
        write_back(again, after, (change,))
    assert (tmp_path / "rows.cu").read_text() == ROWS
