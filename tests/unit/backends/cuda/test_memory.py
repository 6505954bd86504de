"""GPU memory that a kernel takes before it accesses an array."""

from __future__ import annotations

import pytest

from kernelmate.backends.cuda.memory import DeviceMemory, variable_bytes
from kernelmate.compiler import compile_kernel, find_target
from kernelmate.records import CompileOptions
from kernelmate.source import find_kernels, text_unit


def ptx_of(text: str) -> str:
    kernel = find_kernels(text_unit(text, "k.cu"))[0]
    compiled = compile_kernel(kernel, (), instance=None, target=find_target(None), options=CompileOptions())
    assert compiled.ok, compiled.diagnostics
    return compiled.ptx


@pytest.mark.parametrize(
    ("declared", "size"),
    [
        ("__device__ char a[1 << 30];", 1 << 30),
        ("__device__ double a[3][5];", 120),
        ("__device__ int a = 7;", 4),
        ("__device__ short b[10]; __device__ long long a[2] = {1, 2};", 36),
        ("", 0),
    ],
)
def test_variables_of_a_module_are_counted(declared: str, size: int) -> None:
    uses = "y[0] = (float)*(char*)&a;" if declared else "y[0] = 1;"
    both = "y[1] = (float)b[3];" if " b[" in declared else ""
    assert variable_bytes(ptx_of(f"{declared}\n__global__ void k(float* y) {{ {uses} {both} }}\n")) == size


def test_stacks_and_variables_beyond_the_limit_are_refused_with_the_setting_to_raise() -> None:
    memory = DeviceMemory(limit=1 << 30, resident_threads=132 * 2048)
    assert memory.refusal("", 1024) is None
    refused = memory.refusal("", 64 << 10)
    assert refused is not None
    assert "65536 bytes of local memory for each of 270336 resident threads" in refused
    assert "device_memory_mb" in refused
    variables = memory.refusal(".global .align 4 .b8 a[2147483648];\n", 0)
    assert variables is not None
    assert "2048 MB; 1024 MB may be taken" in variables
