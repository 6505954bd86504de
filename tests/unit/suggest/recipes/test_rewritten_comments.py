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
        ("Layer norm, one block per row. Mean and variance in two passes (no E[x^2] - E[x]^2).", "Layer norm."),
        ("A gate per channel, in half storage, as in DiT blocks.", "A gate per channel, in half storage, as in DiT blocks."),
        ("Scales x. Mapping: one warp per row.", "Scales x."),
        ("Scales x.\n//   x     [n] inputs\n// One thread per element.", "Scales x.\n//   x     [n] inputs"),
        ("Doubles each element; n may be 0.", "Doubles each element; n may be 0."),
        ("Copyright 2026 the block authors, one thread per row.", "Copyright 2026 the block authors, one thread per row."),
    ],
)  # fmt: skip
def test_a_comment_keeps_what_is_computed(before: str, after: str) -> None:
    old, new = (find_kernels(text_unit(f"// {before}\n{text}"))[0] for text in (OLD, NEW))
    assert without_stale_comments(old, new, REWRITTEN).unit.text == f"// {after}\n{NEW}"
