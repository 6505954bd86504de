"""A kernel keeps its history when it is renamed, edited, or moved; a copy begins one of its own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from kernelmate.history import History
from kernelmate.records import JudgementEntry, Kernel

Kernels = Callable[..., Kernel]
Judgements = Callable[..., JudgementEntry]

OTHER = "__global__ void other(int *p) { p[0] = 1; }\n"


def names(history: History) -> list[tuple[str, int]]:
    return sorted((known.name, known.versions) for known in history.kernels())


def test_an_edited_kernel_is_the_same(history: History, in_file: Kernels, judged: Judgements) -> None:
    kernel = in_file()
    history.record(kernel, judged())
    history.record(in_file(kernel.unit.text.replace("2.0f", "4.0f")), judged())
    assert names(history) == [("scale", 2)]


def test_a_moved_file_takes_its_history_along(
    history: History, in_file: Kernels, judged: Judgements, tmp_path: Path
) -> None:
    kernel = in_file()
    history.record(kernel, judged())
    Path(kernel.unit.path).unlink()
    moved = in_file(kernel.unit.text, "deeper/moved.cu")
    history.record(moved, judged())
    (known,) = history.kernels()
    assert (known.path, known.judgements) == (str(tmp_path / "deeper" / "moved.cu"), 2)
    assert history.find(moved) == known.number


def test_a_copy_has_a_history_of_its_own(history: History, in_file: Kernels, judged: Judgements) -> None:
    kernel = in_file()
    history.record(kernel, judged())
    history.record(in_file(kernel.unit.text, "copy.cu"), judged())
    assert names(history) == [("scale", 1), ("scale", 1)]


def test_a_renamed_kernel_is_the_same(history: History, in_file: Kernels, judged: Judgements) -> None:
    kernel = in_file()
    history.record(kernel, judged())
    history.record(in_file("// twice\n" + kernel.unit.text.replace("scale", "twice")), judged())
    assert names(history) == [("twice", 2)]


def test_a_kernel_renamed_and_edited_at_once_is_the_same(
    history: History, in_file: Kernels, judged: Judgements
) -> None:
    kernel = in_file()
    history.record(kernel, judged())
    changed = kernel.unit.text.replace("scale", "twice").replace("2.0f", "9.0f")
    history.record(in_file(changed), judged())
    assert names(history) == [("twice", 2)]


def test_a_new_kernel_beside_the_old_one_is_another(history: History, in_file: Kernels, judged: Judgements) -> None:
    kernel = in_file()
    history.record(kernel, judged())
    history.record(in_file(kernel.unit.text + OTHER, kernel="other"), judged())
    assert names(history) == [("other", 1), ("scale", 1)]


def test_which_of_two_lost_kernels_was_renamed_is_not_guessed(
    history: History, in_file: Kernels, judged: Judgements
) -> None:
    kernel = in_file()
    both = kernel.unit.text + OTHER
    history.record(in_file(both), judged())
    history.record(in_file(both, kernel="other"), judged())
    history.record(in_file("__global__ void third(float *q) { q[1] = 0; }\n"), judged())
    assert names(history) == [("other", 1), ("scale", 1), ("third", 1)]


def test_kernels_of_cells_go_by_their_name(history: History, cell: Kernels, judged: Judgements) -> None:
    history.record(cell("__global__ void k(float *x) { x[0] = 1; }\n"), judged())
    history.record(cell("__global__ void k(float *x) { x[0] = 2; }\n"), judged())
    assert names(history) == [("k", 2)]


def test_two_strings_of_a_python_file_are_two_kernels(history: History, in_file: Kernels, judged: Judgements) -> None:
    source = (
        "import cupy\n"
        "a = cupy.RawKernel(r'''\nextern \"C\" __global__ void first(float *x) { x[0] = 1; }\n''', 'first')\n"
        "b = cupy.RawKernel(r'''\nextern \"C\" __global__ void second(float *x) { x[0] = 1; }\n''', 'second')\n"
    )
    history.record(in_file(source, "ops.py", kernel="first"), judged())
    history.record(in_file(source, "ops.py", kernel="second"), judged())
    assert names(history) == [("first", 1), ("second", 1)]
