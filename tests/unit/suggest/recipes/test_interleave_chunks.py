from __future__ import annotations

from collections.abc import Callable

import pytest

from kernelmate.suggest.recipes.interleave_chunks import RECIPE


@pytest.fixture
def chunks(x_to_y) -> Callable[[str], str]:
    """`chunks(body)`: every thread has a run of PER elements."""

    def made(body: str) -> str:
        text = f"""
  int t = blockIdx.x * blockDim.x + threadIdx.x;
  for (int j = 0; j < PER; j++) {{
    {body}
  }}
"""
        return x_to_y(
            text, head="\n#define PER 4", n=(3000, 5, 1), grid="cdiv(n, 256)", block=64, reference="x + 1"
        )  # fmt: skip

    return made


def test_neighbouring_lanes_get_neighbouring_elements(judged, chunks) -> None:
    body = "int i = t * PER + j;\n    if (i < n) y[i] = x[i] + 1.0f;"
    (one,) = judged(chunks(body), RECIPE, "less global traffic")
    assert "int i = j * (gridDim.x * blockDim.x) + t;" in one.candidate.kernel.source
    assert one.verdict.counters.global_load_requests <= 3000 // 32 + 2


@pytest.mark.parametrize(
    "body",
    [
        "int i = t * PER + j;\n    if (i < n) y[i] = x[i] + j;",
        "int i = t * 8 + j;\n    if (i < n) y[i] = x[i];",
        "int i = t * PER + j;\n    if (i < n) y[0] += x[i];",
        "int i = t * PER + j;\n    if (i >= n) return;\n    y[i] = x[i];",
        "int i = n * PER + j;\n    if (i < n) y[i] = x[i];",
    ],
)
def test_other_runs_stay(ask, chunks, body: str) -> None:
    assert list(RECIPE.candidates(ask(chunks(body)))) == []
