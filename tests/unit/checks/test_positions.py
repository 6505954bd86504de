"""Arguments whose values become addresses or lengths of loops."""

from __future__ import annotations

import pytest

from kernelmate.checks.positions import ArgumentUses, uses_of
from kernelmate.compiler import find_target
from kernelmate.compiler.nvrtc import compile_kernel
from kernelmate.compiler.options import CompileOptions
from kernelmate.records import Compiled, Version
from kernelmate.source import contract_for, find_kernels, text_unit

HEAD = """// /// kernelmate
// sizes = [{ n = 64 }]
// grid = 1
// block = 64
// [args]
// x = "in float32[n]"
// at = "in int32[n]"
// v = "in int32[n]"
// y = "out float32[n]"
// n = "int32"
// k = "int32 = 3"
// ///
__global__ void g(const float* x, const int* at, const int* v, float* y, int n, int k) {
  const int i = threadIdx.x;
"""


def uses(body: str) -> ArgumentUses:
    kernel = find_kernels(text_unit(HEAD + body + "\n}\n", "g.cu"))[0]
    compiled = compile_kernel(kernel, (), instance=None, target=find_target(None), options=CompileOptions())
    assert compiled.ok, compiled.diagnostics
    contract = contract_for(kernel)
    return uses_of(Version(compiled, contract, kernel.unit), contract)


@pytest.mark.parametrize(
    ("body", "addresses"),
    [
        ("y[i] = x[i] * at[i] + v[i] * k;", set()),
        ("y[i] = x[at[i]] + v[i];", {"at"}),
        ("y[i] = x[(at[i] % n + n) % n] + v[i];", {"at", "n"}),
        ("__shared__ int s[64]; s[i] = at[i]; __syncthreads(); y[i] = x[s[63 - i]] + v[i];", {"at"}),
        ("atomicAdd(y + at[i], v[i] > 2 ? 1.0f : 0.0f);", {"at"}),
        ("y[i * k] = x[i];", {"k"}),
        ("y[i] = at[i] < v[i] ? 1.0f : k;", set()),
    ],
)
def test_what_goes_into_an_address_is_seen(body, addresses) -> None:
    assert uses(body).addresses == addresses


@pytest.mark.parametrize(
    ("body", "ends"),
    [
        ("float t = 0; for (int j = at[i]; j < v[i]; ++j) t += x[j & 63]; y[i] = t;", {"at", "v"}),
        ("int z = at[i]; int c = 0; while (z > 1) { z = z & 1 ? 3 * z + 1 : z / 2; ++c; } y[i] = c + v[i];", {"at"}),
        ("y[i] = at[i] > 3 ? x[i] : 0.0f;", set()),
    ],
)
def test_what_ends_a_loop_is_seen(body, ends) -> None:
    assert uses(body).loops == ends


def test_what_decides_whether_an_access_is_made_is_seen() -> None:
    assert "k" in uses("if (x[i] < 3.0f && i < k) y[i] = x[i];").guards
    assert "k" not in uses("y[i] = k * x[i];").guards


def test_code_without_ptx_shows_nothing() -> None:
    contract = contract_for(find_kernels(text_unit(HEAD + "}\n", "g.cu"))[0])
    nothing = Compiled("g", None, "g", "sm_90", "none", True, ())
    assert uses_of(Version(nothing, contract, text_unit("", "g.cu")), contract) == ArgumentUses()
