"""Repairs of compile errors: missing tokens and includes, misspelt names."""

from __future__ import annotations

import pytest

from kernelmate.suggest.repairs.missing_include import REPAIR as MISSING_INCLUDE
from kernelmate.suggest.repairs.missing_token import REPAIR as MISSING_TOKEN
from kernelmate.suggest.repairs.misspelt_name import REPAIR as MISSPELT_NAME
from kernelmate.suggest.repairs.misspelt_name import near_names

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
    best = mended(source.replace(right, broken), MISSING_TOKEN)
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
        best = mended(source.replace(end, end[:-1], 1), MISSING_TOKEN)
        assert best.candidate.kernel.unit.text == source


def test_all_missing_semicolons_are_put_back_at_once(texts, mended) -> None:
    broken = texts["row"].replace("s = 0.0f;", "s = 0.0f").replace("] = s;", "] = s")
    best = mended(broken, MISSING_TOKEN)
    assert best.candidate.kernel.unit.text == texts["row"]
    assert "Lines 14, 16 lack" in best.candidate.why


def test_a_kernel_that_compiles_is_left_alone(texts, search) -> None:
    wrong = texts["row"].replace("k > 0", "k > 1")
    assert search(wrong, MISSING_TOKEN).candidates == ()


def test_a_brace_that_is_missing_in_the_middle_is_found_by_the_layout(texts, mended) -> None:
    best = mended(texts["row"].replace("        __syncthreads();\n    }", "        __syncthreads();"), MISSING_TOKEN)
    assert best.candidate.kernel.unit.text == texts["row"]


HALF = """\
__global__ void twice(const float *x, float *y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) { __half none = __float2half(0.0f); y[i] = x[i] * 2.0f + __half2float(none); }
}
"""
GROUPS = """\
__global__ void twice(const float *x, float *y, int n) {
    int i = cg::this_grid().thread_rank();
    if (i < n) y[i] = x[i] * 2.0f;
}
"""


def test_the_header_of_half_is_included_at_the_top(texts, mended) -> None:
    best = mended(texts["map contract"] + HALF, MISSING_INCLUDE)
    assert best.candidate.kernel.unit.text.startswith("#include <cuda_fp16.h>\n// /// kernelmate")
    assert "`__half` needs `#include <cuda_fp16.h>`" in best.candidate.why


def test_it_comes_after_the_includes_that_there_are(texts, mended) -> None:
    best = mended("#include <cstdint>\n" + texts["map contract"] + HALF, MISSING_INCLUDE)
    assert best.candidate.kernel.unit.text.startswith("#include <cstdint>\n#include <cuda_fp16.h>\n")


def test_a_short_name_gets_its_alias_with_the_header(texts, mended) -> None:
    best = mended(texts["map contract"] + GROUPS, MISSING_INCLUDE)
    assert "#include <cooperative_groups.h>\nnamespace cg = cooperative_groups;\n" in best.candidate.kernel.unit.text


def test_a_name_of_nobody_is_not_included(texts, search) -> None:
    broken = texts["map contract"] + HALF.replace("__float2half(0.0f)", "nothing(0.0f)").replace("__half ", "float ")
    found = search(broken.replace("__half2float(none)", "none"), MISSING_INCLUDE)
    assert found.candidates == ()


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("threadIdx", "threadidx"),
        ("__syncthreads", "__sync_threads"),
        ("__syncthreads", "syncthreads"),
        ("float s", "flaot s"),
        ("s += x[", "s += xx["),
        ("blockDim.x / 2", "blockDim.X / 2"),
        ("y[blockIdx.x] = part", "y[blockIdx.x] = patr"),
    ],
)
def test_the_nearest_name_is_taken(texts, mended, right: str, wrong: str) -> None:
    best = mended(texts["row"].replace(right, wrong, 1), MISSPELT_NAME)
    assert best.candidate.kernel.unit.text == texts["row"]
    assert "is not declared" in best.candidate.why or "has no" in best.candidate.why


def test_several_names_are_put_right_at_once(texts, mended) -> None:
    broken = texts["row"].replace("threadIdx.x; c", "threadidx.x; c").replace("c += blockDim", "c += blockdim")
    assert mended(broken, MISSPELT_NAME).candidate.kernel.unit.text == texts["row"]


def test_a_name_in_a_comment_or_a_string_is_not_changed(texts, mended) -> None:
    best = mended(texts["row"].replace("float s = 0.0f;", "flaot s = 0.0f;  // a flaot"), MISSPELT_NAME)
    assert "float s = 0.0f;  // a flaot" in best.candidate.kernel.unit.text


def test_case_and_underscores_count_for_less_than_letters() -> None:
    assert near_names("threadidx", {"threadIdx", "thread_x", "thread"})[0] == "threadIdx"
    assert near_names("qqqq", {"threadIdx", "blockDim"}) == []


def test_a_wrong_guess_is_judged_and_told(texts, search) -> None:
    found = search(texts["row"].replace("s += x[", "s += ys["), MISSPELT_NAME)
    assert found.candidates
    assert all(one.verdict.accepted is False for one in found.candidates)
    assert found.best is None
