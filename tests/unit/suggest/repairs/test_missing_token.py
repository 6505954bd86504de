from __future__ import annotations

import pytest

from kernelmate.suggest.repairs.missing_token import REPAIR

TWICE = """\
__global__ void twice(const float *x, float *y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        y[i] = fmaf(x[i], 2.0f, 0.0f);
    }
}
"""


@pytest.mark.parametrize(
    ("right", "broken"),
    [
        ("threadIdx.x;\n", "threadIdx.x\n"),
        ("0.0f);", "0.0f)"),
        ("0.0f);", "0.0f;"),
        ("if (i < n) {", "if (i < n {"),
        ("y[i] = ", "y[i = "),
        ("    }\n}", "}"),
        ("    }\n}\n", "    }\n"),
    ],
)
def test_what_is_missing_is_put_back(texts, mended, right: str, broken: str) -> None:
    source = texts["map contract"] + TWICE
    assert right in source
    best = mended(source.replace(right, broken), REPAIR)
    assert "".join(best.candidate.kernel.unit.text.split()) == "".join(source.split())
    assert best.candidate.author == "recipe:missing-token"


def test_what_could_go_on_in_the_next_line_is_ended(texts, mended) -> None:
    source = (
        texts["map contract"]
        + """\
__global__ void twice(const float *x, float *y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    const float factor = 2.0f;
    __shared__ float tile[256];
    tile[threadIdx.x] = x[i];
    y[i] = tile[threadIdx.x] * factor;
}
"""
    )
    for end in ("return;", "= 2.0f;"):
        best = mended(source.replace(end, end[:-1], 1), REPAIR)
        assert best.candidate.kernel.unit.text == source


def test_all_missing_semicolons_are_put_back_at_once(texts, mended) -> None:
    broken = texts["row"].replace("s = 0.0f;", "s = 0.0f").replace("] = s;", "] = s")
    best = mended(broken, REPAIR)
    assert best.candidate.kernel.unit.text == texts["row"]
    assert "Lines 14, 16 lack" in best.candidate.why


def test_a_kernel_that_compiles_is_left_alone(texts, search) -> None:
    wrong = texts["row"].replace("k > 0", "k > 1")
    assert search(wrong, REPAIR).candidates == ()


def test_a_brace_that_is_missing_in_the_middle_is_found_by_the_layout(texts, mended) -> None:
    best = mended(texts["row"].replace("        __syncthreads();\n    }", "        __syncthreads();"), REPAIR)
    assert best.candidate.kernel.unit.text == texts["row"]
