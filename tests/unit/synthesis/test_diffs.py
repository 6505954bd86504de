"""Written kernels as a diff shows them: no needless guards, grids and names that the file has, and true comments."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from kernelmate.session import Session
from kernelmate.synthesis.trace import trace
from kernelmate.synthesis.write import kernels_for
from tests.unit.synthesis.judging import assert_judged_right

COLUMNS = {"x": "in float32[rows, cols]", "y": "out float32[cols]", "rows": "int32", "cols": "int32"}
VARIANCE_BODY = "  int c = blockIdx.x * blockDim.x + threadIdx.x;\n  if (c >= cols) return;\n  float m = 0.0f, s = 0.0f;\n  for (int r = 0; r < rows; ++r) m += x[r * cols + c] / rows;\n  for (int r = 0; r < rows; ++r) s += (x[r * cols + c] - m) * (x[r * cols + c] - m);\n  y[c] = s / rows;"  # fmt: skip
COLUMN_BODY = "  int c = blockIdx.x * blockDim.x + threadIdx.x;\n  if (c >= cols) return;\n  float s = 0.0f;\n  for (int r = 0; r < rows; ++r) s += x[r * cols + c];\n  y[c] = s;"  # fmt: skip


@pytest.mark.parametrize(
    "reference", ["x.sum(axis=0)", "x.argmax(axis=0).astype(np.float32)", "x.var(axis=0)"], ids=["sum", "argmax", "var"]
)
def test_a_warp_with_a_column_for_each_lane_tests_no_lane_and_shuffles_nothing(
    reference: str, make: Any, tmp_path: Path
) -> None:
    made = make(COLUMNS, reference, sizes="{ rows = 4096, cols = 64 }", grid="cdiv(cols, block)", body=COLUMN_BODY)
    texts = [one for one in kernels_for(trace(made[1], tmp_path), *made) if one.schedule.startswith("columns-32")]
    assert texts
    for one in texts:
        assert "if (threadIdx.x % 32 < " not in one.helpers, one.helpers
        assert "__shfl" not in one.helpers + one.definition
        assert "shuffle" not in one.why + one.definition


def test_columns_of_a_warp_are_right(make: Any, session: Session) -> None:
    sizes = "{ rows = 256, cols = 40 }, { rows = 3, cols = 7 }"
    made = make(COLUMNS, "x.var(axis=0)", sizes=sizes, grid="cdiv(cols, block)", body=VARIANCE_BODY)
    assert any("columns" in one for one in assert_judged_right(session, made[0]))


def test_a_reason_names_the_shuffles_of_narrow_columns(make: Any, tmp_path: Path) -> None:
    made = make(COLUMNS, "x.sum(axis=0)", sizes="{ rows = 512, cols = 64 }", grid="cdiv(cols, block)")
    for one in kernels_for(trace(made[1], tmp_path), *made):
        assert ("shuffles" in one.why) == ("__shfl" in one.helpers), one.why
        assert not re.search(r"% 32 < 32", one.helpers)
