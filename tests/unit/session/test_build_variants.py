"""Text that gives a reason to compile a candidate otherwise."""

from __future__ import annotations

import pytest

from kernelmate.session.build_variants import _architectures, is_unassigned
from kernelmate.source import find_kernels, text_unit


def unassigned(body: str) -> bool:
    return is_unassigned(find_kernels(text_unit(f"__global__ void k(float* y, int n) {{\n{body}\n}}\n", "k.cu"))[0])


@pytest.mark.parametrize(
    "body",
    [
        "float t; t += y[0]; y[0] = t;",
        "float t; if (n) t = 0; y[0] = t;",
        "float t; for (int i = 0; i < n; ++i) t = y[i]; y[0] = t;",
        "float t; t = t + 1; y[0] = t;",
        "float a[4]; a[0] = 1; y[0] = a[n];",
        "float a[4]; for (int i = 0; i < 3; ++i) a[i] = 0; y[0] = a[n];",
        "float a[2][4]; for (int i = 0; i < 2; ++i) for (int j = 1; j < 4; ++j) a[i][j] = 0; y[0] = a[n][n];",
        "float a[4]; for (int i = 0; i < 4; i += 2) a[i] = 0; y[0] = a[n];",
        "float a[4]; for (int i = 0; i < 4; ++i) if (n) a[i] = 0; y[0] = a[n];",
        "float4 v; v.x = 1; y[0] = v.y;",
        'float t; asm("add.f32 %0, %0, 1.0;" : "+f"(t)); y[0] = t;',
        "{ float t; y[0] = t; }",
        "struct P { float at[4]; }; P p; for (int i = 0; i < 3; ++i) p.at[i] = 0; y[0] = p.at[n];",
        "struct P { float at[4], more[4]; }; P p; for (int i = 0; i < 4; ++i) p.at[i] = 0; y[0] = p.more[n];",
        "struct P { float at[4]; int k; }; P p; for (int i = 0; i < 4; ++i) p.at[i] = 0; y[0] = p.k;",
        "struct P { float at[2]; }; P p[4]; for (int i = 0; i < 4; ++i) p[i].at[0] = 0; y[0] = p[n].at[1];",
    ],
)
def test_variables_that_may_lack_a_value_are_seen(body: str) -> None:
    assert unassigned(body)


@pytest.mark.parametrize(
    "body",
    [
        "float t = 0; t += y[0]; y[0] = t;",
        "float t; t = y[0]; y[0] = t;",
        "__shared__ float s[4]; y[0] = s[0];",
        "extern __shared__ float s[]; s[n] = 1;",
        "float a[4] = {}; y[0] = a[n];",
        "float a[4]; for (int i = 0; i < 4; ++i) a[i] = 0; y[0] = a[n];",
        "float a[4]; for (int i = 0; i < 4; ++i) { a[i] = y[i]; } y[0] = a[n];",
        'unsigned t; asm volatile("mov.u32 %0, %laneid;" : "=r"(t)); y[0] = t;',
        "float unused; y[0] = 1;",
        "float a[2][4]; for (int i = 0; i < 2; ++i) for (int j = 0; j < 4; ++j) a[i][j] = 0; y[0] = a[n][n];",
        "float a[4], b[4]; for (int i = 0; i < 4; i++) { a[i] = 0; b[i] = a[i]; } y[0] = a[n] + b[n];",
        "struct P { float at[4]; }; P p; for (int i = 0; i < 4; ++i) p.at[i] = 0; y[0] = p.at[n];",
    ],
)
def test_variables_that_are_assigned_next_are_no_reason(body: str) -> None:
    assert not unassigned(body)


def test_variables_of_host_functions_are_no_reason() -> None:
    text = "__global__ void k(float* y) { y[0] = 1; }\nint main() { float* y; cudaMalloc(&y, 4); k<<<1, 1>>>(y); }\n"
    assert not is_unassigned(find_kernels(text_unit(text, "k.cu"))[0])


def test_the_architectures_on_either_side_of_a_number_are_chosen() -> None:
    assert _architectures(frozenset({900}), "sm_90") == ["sm_89", "sm_100"]
    assert _architectures(frozenset({800}), "sm_90") == ["sm_80", "sm_75", "sm_86"]
    assert _architectures(frozenset(), "sm_90") == []
