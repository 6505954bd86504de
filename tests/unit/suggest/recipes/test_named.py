"""Names for numbers that rewrites bring."""

from __future__ import annotations

import pytest

from kernelmate.source import apply_edits, find_kernels, text_unit
from kernelmate.suggest.recipes.named import named, warps
from kernelmate.suggest.recipes.restructure import known
from kernelmate.suggest.syntax import Tree, read_tree

KERNEL = "__global__ void k(float* x) { x[0] = 1; }\n"


def tree(head: str) -> Tree:
    found = read_tree(find_kernels(text_unit(head + KERNEL, "k.cu"))[0])
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("head", "text"),
    [
        ("// Sets.\n", "constexpr int kBins = 16;  // why\n\n// Sets.\n"),
        ("constexpr int kBlock = 256;\n\n// Sets.\n", "constexpr int kBlock = 256;\nconstexpr int kBins = 16;  // why\n\n// Sets.\n"),
        ("#define TILE 8\n\n", "#define TILE 8\n#define BINS 16  // why\n\n"),
        ("const int WIDTH = 8;\nint f();\n\n", "const int WIDTH = 8;\nint f();\n\nconstexpr int BINS = 16;  // why\n\n"),
        ("int kBins;\n", "int kBins;\nconstexpr int kBins_ = 16;  // why\n\n"),
    ],
)  # fmt: skip
def test_a_constant_is_written_as_the_file_writes_its_own(head: str, text: str) -> None:
    of = tree(head)
    _, edit = named(of, "Bins", 16, "why")
    assert apply_edits(of.kernel, [edit]).unit.text == text + KERNEL


def test_constants_are_known_by_value_and_word_where_they_stand_before_the_kernel() -> None:
    of = tree("constexpr int kTile = 32, kOther = 3;\n#define ROWS 32\n")
    assert known(of, 32, "rows") == "ROWS"
    assert known(of, 32, "bins") is None
    assert known(of, 16, "rows") is None


@pytest.mark.parametrize(
    ("head", "text"),
    [("constexpr int kThreads = 256;\n", "kThreads / 32"), ("#define WARPS 8\n", "WARPS"), ("", "8")],
)
def test_the_number_of_warps_is_told_by_the_files_constants(head: str, text: str) -> None:
    assert warps(tree(head), 256) == text
