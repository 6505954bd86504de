from __future__ import annotations

from kernelmate.suggest.repairs.missing_include import REPAIR

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
    best = mended(texts["map contract"] + HALF, REPAIR)
    assert best.candidate.kernel.unit.text.startswith("#include <cuda_fp16.h>\n// /// kernelmate")
    assert "`__half` needs `#include <cuda_fp16.h>`" in best.candidate.why


def test_it_comes_after_the_includes_that_there_are(texts, mended) -> None:
    best = mended("#include <cstdint>\n" + texts["map contract"] + HALF, REPAIR)
    assert best.candidate.kernel.unit.text.startswith("#include <cstdint>\n#include <cuda_fp16.h>\n")


def test_a_short_name_gets_its_alias_with_the_header(texts, mended) -> None:
    best = mended(texts["map contract"] + GROUPS, REPAIR)
    assert "#include <cooperative_groups.h>\nnamespace cg = cooperative_groups;\n" in best.candidate.kernel.unit.text


def test_a_name_of_nobody_is_not_included(texts, search) -> None:
    broken = texts["map contract"] + HALF.replace("__float2half(0.0f)", "nothing(0.0f)").replace("__half ", "float ")
    found = search(broken.replace("__half2float(none)", "none"), REPAIR)
    assert found.candidates == ()
