"""Comments above a kernel that was written anew: what it computes stays, how it did that goes."""

from __future__ import annotations

import pytest

from kernelmate.source import find_kernels, text_unit
from kernelmate.suggest.recipes.comments import without_stale_comments
from kernelmate.suggest.recipes.techniques import REWRITTEN

OLD = "__global__ void k(float* x, int n) {\n  const int i = threadIdx.x;\n  if (i < n) x[i] = 2 * x[i];\n}\n"
NEW = OLD.replace("2 * x[i]", "x[i] + x[i]")


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("Sum of each line, one block per line: a tree in shared memory, then one atomic addition.", "Sum of each line."),
        ("Matrix transpose through a 32 x 32 tile in shared memory: loads and stores both walk along rows.", "Matrix transpose."),
        ("Softmax over rows. Three passes over the row, each reduction as a tree in shared memory of one float per thread.", "Softmax over rows."),
        ("Naive matrix product, one thread per output. C = A * B.", "Matrix product. C = A * B."),
        ("Stores the log-sum-exp of each row for the backward pass.", "Stores the log-sum-exp of each row for the backward pass."),
        ("Averages neighbouring pixels; borders stay as they are.", "Averages neighbouring pixels; borders stay as they are."),
        ("Exclusive scan of each block of 256 elements. Two passes, barriers between them.", "Exclusive scan of each block of 256 elements."),
        ("Layer norm, one block per row. Mean and variance in two passes (no E[x^2] - E[x]^2).", "Layer norm. Mean and variance in two passes (no E[x^2] - E[x]^2)."),
        ("A gate per channel, in half storage, as in DiT blocks.", "A gate per channel, in half storage, as in DiT blocks."),
        ("Scales x. Mapping: one warp per row.", "Scales x."),
        ("Scales x. The literals are doubles, as they come out of a port from Python.", "Scales x."),
        ("Scales x.\n//   x     [n] inputs\n// One thread per element.", "Scales x.\n//   x     [n] inputs"),
        ("Doubles each element; n may be 0.", "Doubles each element; n may be 0."),
        ("Row sums. Used by the loss; every row is handled by one thread because there were few columns.", "Row sums. Used by the loss."),
        ("Row sums. Each row is processed by one block.", "Row sums."),
        ("Row sums. TODO(ann): try a warp per row once there are few rows.", "Row sums. TODO(ann): try a warp per row once there are few rows."),
        ("Row sums. Each thread handles one row; simple but slow.", "Row sums."),
        ("Scans each line. A single thread does a whole line, because each sum needs the one before it.", "Scans each line."),
        ("Layer norm. The first thread computes mean and variance alone.", "Layer norm."),
        ("Layer norm. Thread 0 sums the row.", "Layer norm."),
        ("C = A * B, one thread per element; also the reference of the tiled kernel below.", "C = A * B; also the reference of the tiled kernel below."),
        ("Copyright 2026 the block authors, one thread per row.", "Copyright 2026 the block authors, one thread per row."),
    ],
)  # fmt: skip
def test_a_comment_keeps_what_is_computed(before: str, after: str) -> None:
    old, new = (find_kernels(text_unit(f"// {before}\n{text}"))[0] for text in (OLD, NEW))
    assert without_stale_comments(old, new, REWRITTEN).unit.text == f"// {after}\n{NEW}"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("Softmax over rows, one block per row. Three passes.", "Softmax over rows. One warp per row."),
        ("One block per row.", "One warp per row."),
        ("Softmax over rows.\n//\n// One block per row.", "Softmax over rows.\n//\n// One warp per row."),
        ("Softmax over rows.", "Softmax over rows."),
    ],
)
def test_a_comment_that_told_of_the_old_method_tells_of_the_new_one(before: str, after: str) -> None:
    old, new = (find_kernels(text_unit(f"// {before}\n{text}"))[0] for text in (OLD, NEW))
    assert without_stale_comments(old, new, REWRITTEN, "One warp per row.").unit.text == f"// {after}\n{NEW}"


def test_a_comment_at_the_top_of_a_file_with_one_kernel_names_no_kernel() -> None:
    old, new = (
        find_kernels(text_unit(f"// Softmax, one block per row.\n#include <cfloat>\n\n{text}"))[0]
        for text in (OLD, NEW)
    )
    changed = without_stale_comments(old, new, REWRITTEN, "One warp per row.").unit.text
    assert changed.startswith("// Softmax. One warp per row.\n#include")


def test_moments_that_are_joined_are_no_second_pass() -> None:
    joined = NEW.replace("int i", "int i = 0;\n  Moments found;\n  const int unused")
    old, new = (find_kernels(text_unit(f"// Variance in two passes.\n{text}"))[0] for text in (OLD, joined))
    assert "two passes" not in without_stale_comments(old, new, REWRITTEN, "A warp per row.").unit.text


def test_a_comment_on_two_kernels_keeps_their_names_and_what_is_said_of_the_other() -> None:
    head = "// Two products. The naive one gives neighbouring threads neighbouring rows; the tiled one is judged against it.\n"
    other = "\n__global__ void k_tiled(float* x) {}\n"
    old, new = (
        find_kernels(text_unit(head + text.replace("void k", "void k_naive") + other))[0] for text in (OLD, NEW)
    )
    changed = without_stale_comments(old, new, REWRITTEN, "One warp per row.").unit.text
    said = " ".join(line.removeprefix("// ") for line in changed.split("\n") if line.startswith("//"))
    assert said == "Two products. The tiled one is judged against k_naive. In k_naive, one warp per row."


def test_a_sentence_on_the_new_method_fills_lines_though_the_old_comment_had_short_ones() -> None:
    text = "/// Sum of each row.\n/// One thread per row: simple.\n"
    old, new = (find_kernels(text_unit(f"{text}{one}"))[0] for one in (OLD, NEW))
    method = "One warp per row, whose lanes read neighbouring elements and combine their sums."
    changed = without_stale_comments(old, new, REWRITTEN, method).unit.text
    assert changed.startswith(f"/// Sum of each row.\n/// {method}\n__global__")
