from __future__ import annotations

import pytest

from kernelmate.suggest.recipes.half_storage import RECIPE

SOURCE = """
#include <cuda_fp16.h>
// /// kernelmate
// sizes = [{{ n = 700 }}, {{ n = 1 }}]
// grid = "cdiv(n, 128)"
// block = 128
// reference = "x.astype(np.float64) * 2"
// tolerance = {{ rtol = {rtol}, atol = 1e-3 }}
// [args]
// x = "in {dtype}[n] ~ uniform(0, 1)"
// y = "out float32[n]"
// n = "int32"
// ///
__global__ void k(const {type}* x, float* y, int n) {{
  __shared__ float s[128];
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) s[threadIdx.x] = {stored};  // kept
  __syncthreads();
  if (i < n) y[i] = {read};
}}
"""


def source(stored: str = "x[i]", read: str = "s[threadIdx.x] * 2.0f", rtol: str = "1e-3", half: bool = False) -> str:
    dtype, kind = ("float16", "__half") if half else ("float32", "float")
    return SOURCE.format(stored=stored, read=read, rtol=rtol, dtype=dtype, type=kind)


def test_a_loose_tolerance_lets_shared_floats_be_halves(judged) -> None:
    (one,) = judged(source(), RECIPE, "use less shared memory")
    text = one.candidate.kernel.source
    assert "__shared__ __half s[128];" in text
    assert "s[threadIdx.x] = __float2half(x[i]);  // kept" in text
    assert "__half2float(s[threadIdx.x]) * 2.0f" in text
    assert "changes numerics" in one.candidate.why
    assert (one.verdict.objective.before, one.verdict.objective.after) == (512, 256)
    assert one.verdict.accepted is True


def test_what_was_half_before_loses_nothing_whatever_the_tolerance(judged) -> None:
    (one,) = judged(source("__half2float(x[i])", rtol="1e-7", half=True), RECIPE, "use less shared memory")
    assert "nothing is lost" in one.candidate.why


def test_the_header_comes_first_where_it_is_not_included(ask) -> None:
    text = source().replace("#include <cuda_fp16.h>", "// first line\nint unrelated;")
    (one,) = RECIPE.candidates(ask(text, "use less shared memory"))
    assert one.kernel.unit.text.lstrip().startswith("// first line\n#include <cuda_fp16.h>\nint unrelated;")


@pytest.mark.parametrize(
    ("stored", "read", "rtol"),
    [
        ("x[i]", "s[threadIdx.x] * 2.0f", "1e-5"),
        ("x[i]", "*(&s[threadIdx.x]) * 2.0f", "1e-3"),
        ("x[i]", "sum_of(s) * 2.0f", "1e-3"),
        ("x[i]; s[threadIdx.x] += 1.0f", "s[threadIdx.x]", "1e-3"),
    ],
)
def test_tight_tolerances_and_arrays_that_are_passed_on_stay(ask, stored: str, read: str, rtol: str) -> None:
    assert list(RECIPE.candidates(ask(source(stored, read, rtol), "use less shared memory"))) == []
