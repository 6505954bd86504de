from __future__ import annotations

import pytest

from kernelmate.suggest.recipes.restrict import RECIPE

HEAD = """
// /// kernelmate
// sizes = [{ n = 100 }]
// grid = "cdiv(n, block)"
// block = 128
// [args]
// x = "in float32[n]"
// y = "out float32[n]"
// n = "int32"
// ///
"""


def signature(ask, source: str) -> str | None:
    """The one candidate's parameter list, or None."""
    found = list(RECIPE.candidates(ask(HEAD + source)))
    if not found:
        return None
    assert len(found) == 1
    text = found[0].kernel.source
    return text[text.index("(") + 1 : text.index(")")]


def test_read_only_pointers_become_const_and_all_restricted(ask) -> None:
    assert signature(ask, "__global__ void k(float* x, float *y, int n) { y[0] = x[1]; }") == (
        "const float* __restrict__ x, float *__restrict__ y, int n"
    )


@pytest.mark.parametrize(
    "use",
    [
        "y[0] = x[i] * 2.0f;",
        "y[0] = *(x + i);",
        "y[0] = __ldg(x + i);",
        "const float* row = x + i; y[0] = row[0];",
        "y[0] = fmaxf(x[i], 0.0f);",
        "y[0] += x[i];",
        "y[(int)x[i]] = 0.0f;",
        "y[0] = i < n ? x[i] : 0.0f;",
    ],
)
def test_reads_leave_a_pointer_const(ask, use: str) -> None:
    text = signature(ask, f"__global__ void k(float* x, float* y, int n) {{ int i = threadIdx.x; {use} }}")
    assert text is not None
    assert "const float* __restrict__ x" in text


@pytest.mark.parametrize(
    "use",
    [
        "x[i] = 1.0f;",
        "x[i] += 1.0f;",
        "x[i]++;",
        "++x[i];",
        "*x = 1.0f;",
        "*(x + i) = 1.0f;",
        "atomicAdd(&x[i], 1.0f);",
        "atomicAdd(x + i, 1.0f);",
        "helper(x);",
        "helper(x[i]);",
        "float* row = x + i; row[0] = 1.0f;",
        "float* row; row = x; row[0] = 1.0f;",
        "x++;",
        "float& r = x[i]; r = 1.0f;",
        "reinterpret_cast<float4*>(x)[i].x = 1.0f;",
        "((float*)x)[i] = 1.0f;",
    ],
)
def test_what_may_be_a_write_leaves_a_pointer_as_it_is(ask, use: str) -> None:
    helper = "__device__ void helper(float* p);\n__device__ void helper(float& p);\n"
    text = signature(
        ask, helper + f"__global__ void k(float* x, float* y, int n) {{ int i = threadIdx.x; y[0] = 1.0f; {use} }}"
    )
    assert text is not None
    assert "const" not in text


def test_a_kernel_that_has_both_already_gives_nothing(ask) -> None:
    assert (
        signature(ask, "__global__ void k(const float* __restrict__ x, float* __restrict__ y, int n) { y[0] = x[1]; }")
        is None
    )


def test_a_launch_with_one_array_twice_gives_nothing(ask) -> None:
    source = "__global__ void k(float* x, float* y, int n) { y[0] = x[1]; }\nvoid run(float* a, int n) { k<<<1, 128>>>(a, a, n); }\n"
    assert signature(ask, source) is None


def test_a_prototype_keeps_the_parameter_types(ask) -> None:
    source = "__global__ void k(float* x, float* y, int n) { y[0] = x[1]; }\n__global__ void k(float*, float*, int);\n"
    assert signature(ask, source) == "float* __restrict__ x, float* __restrict__ y, int n"


def test_an_array_the_contract_lets_the_kernel_write_is_never_const(ask) -> None:
    text = signature(ask, "__global__ void k(float* x, float* y, int n) { float v = y[0] + x[0]; }")
    assert text is not None
    assert "const float* __restrict__ y" not in text
