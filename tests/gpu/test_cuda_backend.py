"""The cuda backend on a GPU: launches, faults, and recovery from them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

from kernelmate.backends.base import ArrayArgument, Run, ScalarArgument
from kernelmate.backends.cuda.driver import missing_for_gpu, read_driver
from kernelmate.compiler import compile_kernel, find_target, occupancy
from kernelmate.config import load_settings
from kernelmate.records import CompileOptions, LaunchShape
from kernelmate.session import Session
from kernelmate.source import find_kernels, text_unit

_missing = missing_for_gpu()
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(_missing is not None, reason=f"no GPU can be used: {_missing and _missing[0]}"),
]

HEAD = """// /// kernelmate
// sizes = [{ n = 400000 }]
// grid = "cdiv(n, 256)"
// block = 256
// reference = "2 * x"
// [args]
// x = "in float32[n]"
// y = "out float32[n]"
// n = "int32"
// ///
__global__ void twice(const float* x, float* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
"""
# The emulator refuses calls of `free`, so that what holds one goes to the GPU without having been seen by it.
UNSEEN = "  if (n < 0) free((void*)x);\n"
RIGHT = HEAD + "  if (i < n) y[i] = 2 * x[i];\n}\n"


@pytest.fixture(scope="module")
def session() -> Iterator[Session]:
    with Session(load_settings(seed=3, backend="cuda", timeout_s=120)) as opened:
        yield opened


def loaded(backend, text):
    kernel = find_kernels(text_unit(text, "k.cu"))[0]
    compiled = compile_kernel(kernel, (), instance=None, target=find_target(None), options=CompileOptions())
    assert compiled.ok, compiled.diagnostics
    return backend.load(compiled, find_target(None))


def test_a_kernel_runs_and_its_guard_bands_hold(backend) -> None:
    x = np.arange(1000, dtype=np.float32)
    arguments = (
        ArrayArgument("x", x, written=False),
        ArrayArgument("y", np.zeros_like(x), misalign=1),
        ScalarArgument("n", np.int32(1000)),
    )
    result = loaded(backend, RIGHT).launch(Run(LaunchShape((4, 1, 1), (256, 1, 1)), arguments, schedule_seed=5))
    assert result.findings == ()
    assert np.array_equal(result.arrays["y"], 2 * x)
    assert np.array_equal(result.arrays["x"], x)


def test_a_write_behind_an_array_is_found_with_its_place(backend) -> None:
    x = np.ones(1000, np.float32)
    arguments = (ArrayArgument("x", x), ArrayArgument("y", np.zeros_like(x)), ScalarArgument("n", np.int32(1001)))
    result = loaded(backend, RIGHT).launch(Run(LaunchShape((4, 1, 1), (256, 1, 1)), arguments))
    (finding,) = result.findings
    assert (finding.code, finding.buffer, finding.offset) == ("out-of-bounds-write", "y", 4000)


def test_over_48_kb_of_dynamic_shared_memory_is_asked_for(backend) -> None:
    text = """extern __shared__ int s[];
__global__ void big(int* y) { s[40000 + threadIdx.x] = threadIdx.x; __syncthreads(); y[threadIdx.x] = s[40000 + 31 - threadIdx.x]; }
"""
    run = Run(LaunchShape((1, 1, 1), (32, 1, 1), shared_bytes=200_000), (ArrayArgument("y", np.zeros(32, np.int32)),))
    result = loaded(backend, text).launch(run)
    assert result.findings == ()
    assert result.arrays["y"].tolist() == list(range(31, -1, -1))


def test_a_bfloat16_scalar_reaches_the_kernel(backend) -> None:
    import ml_dtypes

    text = "#include <cuda_bf16.h>\n__global__ void k(float* y, __nv_bfloat16 a) { *y = __bfloat162float(a); }\n"
    arguments = (ArrayArgument("y", np.zeros(1, np.float32)), ScalarArgument("a", ml_dtypes.bfloat16(1.5)))
    result = loaded(backend, text).launch(Run(LaunchShape((1, 1, 1), (1, 1, 1)), arguments))
    assert result.arrays["y"].tolist() == [1.5]


CLUSTERED = """__global__ void sizes(unsigned* y) {
  unsigned rank, count;
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  asm("mov.u32 %0, %%cluster_nctarank;" : "=r"(count));
  y[blockIdx.x] = count * 100 + rank;
}
"""


@pytest.mark.parametrize("cluster", [2, 8, 16])
def test_a_cluster_has_as_many_blocks_as_the_launch_asks_for(backend, cluster: int) -> None:
    if int(backend.device.compute_capability) < 90:
        pytest.skip("this GPU has no clusters")
    arguments = (ArrayArgument("y", np.zeros(16, np.uint32)),)
    run = Run(LaunchShape((16, 1, 1), (32, 1, 1), cluster=(cluster,)), arguments)
    result = loaded(backend, CLUSTERED).launch(run)
    assert result.findings == ()
    assert result.arrays["y"].tolist() == [cluster * 100 + block % cluster for block in range(16)]


def test_a_cluster_that_does_not_divide_the_grid_is_refused_and_costs_nothing(backend) -> None:
    if int(backend.device.compute_capability) < 90:
        pytest.skip("this GPU has no clusters")
    arguments = (ArrayArgument("y", np.zeros(16, np.uint32)),)
    result = loaded(backend, CLUSTERED).launch(Run(LaunchShape((15, 1, 1), (32, 1, 1), cluster=(2,)), arguments))
    assert [finding.code for finding in result.findings] == ["launch-failure"]
    assert not backend.poisoned


@pytest.mark.parametrize("threads", [32, 128, 256, 1024])
@pytest.mark.parametrize("shared_bytes", [0, 10_000, 100_000])
def test_occupancy_is_that_of_the_driver(backend, threads: int, shared_bytes: int) -> None:
    import cupy

    kernel = find_kernels(text_unit(RIGHT, "k.cu"))[0]
    driver = read_driver()
    assert driver is not None
    major, minor = driver.gpus[0].capability
    target = find_target(f"sm_{major}{minor}")
    compiled = compile_kernel(kernel, (), instance=None, target=target, options=CompileOptions())
    shape = LaunchShape((1000, 1, 1), (threads, 1, 1), shared_bytes)
    ours = occupancy(target, replace(compiled.resources, dynamic_shared_bytes=shared_bytes), shape)
    function = backend.load(compiled, target).ready(shape)
    theirs = cupy.cuda.driver.occupancyMaxActiveBlocksPerMultiprocessor(function.kernel.ptr, threads, shared_bytes)
    assert ours.blocks_per_sm == theirs


def test_resources_are_those_the_driver_tells(backend) -> None:
    module = loaded(backend, RIGHT)
    kernel = find_kernels(text_unit(RIGHT, "k.cu"))[0]
    compiled = compile_kernel(kernel, (), instance=None, target=find_target(None), options=CompileOptions())
    function = module.function
    assert function.num_regs == compiled.resources.registers
    assert function.shared_size_bytes == compiled.resources.shared_bytes
    assert function.local_size_bytes == compiled.resources.local_bytes
    assert function.max_threads_per_block == compiled.resources.max_threads


@pytest.mark.parametrize(
    ("statement", "code"),
    [
        ("y[(size_t)i + (1ull << 40)] = x[i];", "illegal-address"),
        ('if (n == 400000) { asm volatile("trap;"); } y[i] = 2 * x[i];', "trap"),
        ("*(double*)((char*)y + 4) = x[i];", "misaligned-access"),
    ],
)
def test_a_fault_at_a_large_size_costs_one_worker_and_the_next_verdict_is_right(
    session: Session, statement: str, code: str
) -> None:
    kernel = find_kernels(text_unit(HEAD + f"{UNSEEN}  if (i < n) {{ {statement} }}\n}}\n", "k.cu"))[0]
    (wrong,) = session.bench(kernel)
    assert wrong.correct is False
    assert code in {finding.code for finding in wrong.findings}
    (right,) = session.bench(find_kernels(text_unit(RIGHT, "k.cu"))[0])
    assert right.correct is True
    assert right.accepted is True
    assert right.timing is not None
    assert right.timing.kind == "measured"


PASSED = """struct Params { const float* x; float* y; int n; float a; };
__constant__ float taps[3];
__device__ unsigned positive;
// /// kernelmate
// sizes = [{ n = %d }]
// grid = "cdiv(n, 256)"
// block = 256
// reference = "(a * (taps[0] * x + taps[1] * A[0] + taps[2] * A[1]), x[:n // 2] + 0, np.array([np.sum(x > 0)]))"
// [args]
// p = { x = "in float32[n] ~ normal", y = "out float32[n]", n = "int32", a = "float32 = 3" }
// A = "in float32*[2][n] ~ normal"
// z = "out float32[n // 2]"
// w = "alias x"
// [symbols]
// taps = "in float32[3] ~ normal"
// positive = "inout uint32[1] ~ zeros"
// ///
__global__ void passed(Params p, const float* const* A, float* z, const float* w) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= p.n) return;
  p.y[i] = p.a * (taps[0] * p.x[i] + taps[1] * A[0][i] + taps[2] * A[1][i]);
  if (i < p.n / 2) z[i] = w[i];
  if (p.x[i] > 0) atomicAdd(&positive, 1u);
}
"""


@pytest.mark.parametrize("n", [1000, 3_000_000])
def test_structs_pointers_aliases_and_variables_reach_the_kernel(session, n: int) -> None:
    (verdict,) = session.bench(find_kernels(text_unit(PASSED % n, "k.cu"))[0])
    assert verdict.correct is True, verdict.findings
    assert any("the variable positive is read and written" in finding.message for finding in verdict.findings)
    assert all(finding.severity != "error" for finding in verdict.findings)


def test_structs_pointers_and_constants_are_timed(session) -> None:
    text = PASSED.replace(', np.array([np.sum(x > 0)]))"', ')"').replace(
        '// positive = "inout uint32[1] ~ zeros"\n', ""
    )
    text = text.replace("  if (p.x[i] > 0) atomicAdd(&positive, 1u);\n", "") % 1_000_000
    (verdict,) = session.bench(find_kernels(text_unit(text, "k.cu"))[0])
    assert verdict.correct is True, verdict.findings
    assert verdict.timing is not None
    assert verdict.timing.kind == "measured"
