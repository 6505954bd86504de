from __future__ import annotations

import pytest

from kernelmate.compiler import compile_kernel, find_target
from kernelmate.compiler.ptx_text import names_of, own_launches, used_names_of, variable_bytes
from kernelmate.records import CompileOptions
from kernelmate.source import find_kernels, text_unit


def ptx(text: str) -> str:
    made = compile_kernel(
        find_kernels(text_unit(text, "k.cu"))[0], (), instance=None, target=find_target(None), options=CompileOptions()
    )
    assert made.ok, made.diagnostics
    return made.ptx


def test_every_variable_that_outlives_a_launch_is_named() -> None:
    text = """__device__ unsigned long long* last;
__device__ int counts[16] = {1, 2};
static __device__ float kept;
namespace deep { __device__ double sum; }
__constant__ int table[4];
__device__ __managed__ int shared_with_host;
__device__ float4 wide;
__global__ void k(unsigned long long* y) {
  static __device__ int visits;
  __shared__ int tile[32];
  tile[threadIdx.x] = table[threadIdx.x % 4];
  if (last == y) return;
  last = y;
  visits += 1;
  kept += deep::sum + wide.x + shared_with_host;
  wide.y = kept;
  y[0] = atomicAdd(counts, visits) + tile[3];
}
"""
    found = names_of(ptx(text))
    assert {"last", "counts", "kept", "_ZN4deep3sumE", "wide", "shared_with_host"} <= set(found)
    assert any("visits" in name for name in found)
    assert not any("table" in name or "tile" in name for name in found)


def test_a_kernel_that_keeps_nothing_has_no_variables() -> None:
    assert (
        names_of(ptx("__global__ void k(float* y) { __shared__ float s[4]; s[threadIdx.x] = 1; y[0] = s[0]; }\n")) == ()
    )


def test_a_constant_that_code_does_not_read_from_memory_is_defined_but_not_used() -> None:
    head = ".global .align 4 .u32 kTile = 32;\n.global .align 4 .u32 calls;\n"
    code = ".visible .entry k()\n{\n  atom.global.add.u32 %r1, [calls], 1;\n  mov.u32 %r2, kTile_2;\n  ret;\n}\n"
    assert names_of(head + code) == ("kTile", "calls")
    assert used_names_of(head + code) == ("calls",)
    assert used_names_of(head + ".global .align 8 .u64 where = generic(kTile);\n" + code) == ("kTile", "calls")


def test_a_graph_launched_from_the_device_is_named() -> None:
    text = 'extern "C" __device__ int cudaGraphLaunch(void*, void*);\n__global__ void k(float* y) { cudaGraphLaunch(y, 0); }\n'
    said = own_launches(ptx(text))
    assert said is not None
    assert said.startswith("it calls cudaGraphLaunch: ")


@pytest.mark.parametrize(
    "body",
    [
        'printf("%f", y[0]);',
        "y[0] = threadIdx.x;",
        "float* p = static_cast<float*>(malloc(4)); if (p) { *p = y[0]; y[1] = *p; free(p); }",
    ],
)
def test_what_launches_nothing_is_left_alone(body: str) -> None:
    assert own_launches(ptx(f"__global__ void k(float* y) {{ {body} }}\n")) is None


def test_managed_variables_have_a_size() -> None:
    text = ".global .attribute(.managed) .align 4 .b8 table[64];\n.visible .global .attribute(.managed) .align 4 .u32 counter;\n"
    assert variable_bytes(text) == {"table": 64, "counter": 4}
