"""Sizes at which new memory of a module would have to hold more than it does."""

from __future__ import annotations

from dataclasses import replace

from kernelmate.checks.scratch import scratch_sizes
from kernelmate.compiler import compile_kernel, find_target
from kernelmate.records import Argument, CompileOptions, Contract, Version
from kernelmate.source import find_kernels, text_unit

CONTRACT = Contract(
    "k", ({"n": 256},), ("cdiv(n, block)",), ("64",), (Argument("y", "out", "float32", ("n",)),), accumulate="float32"
)


def version(above: str, body: str) -> Version:
    kernel = find_kernels(text_unit(f"{above}\n__global__ void k(float* y) {{ {body} }}\n", "k.cu"))[0]
    made = compile_kernel(kernel, (), instance=None, target=find_target(None), options=CompileOptions())
    assert made.ok, made.diagnostics
    return Version(made, CONTRACT, kernel.unit)


PLAIN = version("", "y[threadIdx.x] = 1;")
SCRATCH = version("__device__ float s[512];", "s[blockIdx.x] = 1; y[threadIdx.x] = s[threadIdx.x];")


def test_a_size_with_more_threads_and_one_with_more_blocks_than_elements_are_tried() -> None:
    assert scratch_sizes(SCRATCH, PLAIN, CONTRACT.sizes) == ({"n": 1024}, {"n": 65536})


def test_what_listed_sizes_cover_or_the_baseline_has_is_not_tried_again() -> None:
    assert scratch_sizes(SCRATCH, PLAIN, ({"n": 65536},)) == ()
    assert scratch_sizes(SCRATCH, SCRATCH, CONTRACT.sizes) == ()
    assert scratch_sizes(PLAIN, None, CONTRACT.sizes) == ()


def test_tables_and_single_variables_are_no_scratch() -> None:
    table = version("__device__ float s[3] = {1, 2, 3}; __device__ int count;", "y[0] = s[count++ % 3];")
    assert scratch_sizes(table, PLAIN, CONTRACT.sizes) == ()


def test_sizes_that_the_version_excludes_are_not_tried() -> None:
    bound = replace(SCRATCH, contract=replace(CONTRACT, require=("n <= 512",)))
    assert scratch_sizes(bound, PLAIN, CONTRACT.sizes) == ()


def test_a_size_that_makes_nothing_more_is_not_grown() -> None:
    looped = replace(CONTRACT, sizes=({"n": 256, "steps": 4096}, {"n": 16, "steps": 5}))
    sizes = scratch_sizes(replace(SCRATCH, contract=looped), PLAIN, looped.sizes)
    assert sizes == ({"n": 1024, "steps": 5}, {"n": 65536, "steps": 5})
    fixed = replace(CONTRACT, sizes=({"n": 256},), grid=("4",))
    assert all(size["n"] <= 1 << 22 for size in scratch_sizes(replace(SCRATCH, contract=fixed), PLAIN, fixed.sizes))
