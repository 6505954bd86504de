from __future__ import annotations

import pytest

from kernelmate.checks.guards.own_launches import find
from kernelmate.compiler import compile_kernel, find_target
from kernelmate.records import CompileOptions
from kernelmate.source import find_kernels, text_unit


def ptx(text: str) -> str:
    made = compile_kernel(
        find_kernels(text_unit(text, "k.cu"))[0], (), instance=None, target=find_target(None), options=CompileOptions()
    )
    assert made.ok, made.diagnostics
    return made.ptx


def test_a_graph_launched_from_the_device_is_named() -> None:
    text = 'extern "C" __device__ int cudaGraphLaunch(void*, void*);\n__global__ void k(float* y) { cudaGraphLaunch(y, 0); }\n'
    said = find(ptx(text))
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
    assert find(ptx(f"__global__ void k(float* y) {{ {body} }}\n")) is None
