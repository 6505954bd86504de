from __future__ import annotations

import pytest

from kernelmate.checks.guards.launch_registers import find, read
from kernelmate.compiler import compile_kernel, find_target
from kernelmate.records import CompileOptions
from kernelmate.source import find_kernels, text_unit


def ptx(body: str) -> str:
    made = compile_kernel(
        find_kernels(text_unit(f"__global__ void k(unsigned long long* y) {{ {body} }}\n", "k.cu"))[0],
        (),
        instance=None,
        target=find_target(None),
        options=CompileOptions(),
    )
    assert made.ok, made.diagnostics
    return made.ptx


@pytest.mark.parametrize(
    ("body", "name"),
    [
        ('asm volatile("mov.u64 %0, %%gridid;" : "=l"(y[0]));', "gridid"),
        ('asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(y[0]));', "globaltimer"),
        ('unsigned v; asm volatile("mov.u32 %0, %%globaltimer_lo;" : "=r"(v)); y[0] = v;', "globaltimer"),
        ("y[0] = clock64();", "clock"),
        ("y[0] = clock();", "clock"),
        ('unsigned v; asm volatile("mov.u32 %0, %%smid;" : "=r"(v)); y[0] = v;', "smid"),
        ('unsigned v; asm volatile("mov.u32 %0, %%envreg3;" : "=r"(v)); y[0] = v;', "envreg"),
    ],
)
def test_what_tells_launches_apart_is_named(body: str, name: str) -> None:
    text = ptx(body)
    assert read(text) == {name}
    said = find(text, None)
    assert said is not None
    assert said.startswith(f"reads %{name} (")


def test_where_a_thread_is_in_its_grid_tells_nothing() -> None:
    assert find(ptx("y[blockIdx.x * blockDim.x + threadIdx.x] = gridDim.x + warpSize;"), None) is None


def test_what_the_baseline_reads_as_well_is_not_told() -> None:
    text = ptx("y[0] = clock64();")
    assert find(text, text) is None
