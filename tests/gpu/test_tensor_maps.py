"""Bulk copies and tensor maps on a real GPU, as the emulator computes them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from kernelmate.backends.base import ArrayArgument, Run, ScalarArgument
from kernelmate.backends.cuda.driver import missing_for_gpu, read_driver
from kernelmate.backends.emulator import EmulatorBackend
from kernelmate.backends.launch_objects import TENSOR_MAP_BYTES, TensorMap
from kernelmate.compiler import compile_kernel, find_target
from kernelmate.config import load_settings
from kernelmate.records import CompileOptions, LaunchShape
from kernelmate.session import Session
from kernelmate.source import find_kernels, load_kernel, numpy_dtype, text_unit

_missing = missing_for_gpu()
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(_missing is not None, reason=f"no GPU can be used: {_missing and _missing[0]}"),
    pytest.mark.skipif(
        _missing is None and read_driver().gpus[0].capability < (9, 0),
        reason="no bulk copies before sm_90",
    ),
]
DATA = Path(__file__).resolve().parents[1] / "data" / "bulk"

COPY = """
#include <cuda.h>
#include <cuda/ptx>
namespace ptx = cuda::ptx;
__global__ void copy(const __grid_constant__ CUtensorMap x, unsigned char* y, const __grid_constant__ CUtensorMap z, int c0, int c1,
                     int d0, int d1, int bytes, int held) {
  __shared__ alignas(1024) unsigned char tile[4096];
  __shared__ uint64_t full;
  if (threadIdx.x == 0) { ptx::mbarrier_init(&full, 1); ptx::fence_mbarrier_init(ptx::sem_release, ptx::scope_cluster); }
  for (int i = threadIdx.x; i < held; i += blockDim.x) tile[i] = 0;
  ptx::fence_proxy_async(ptx::space_shared);
  __syncthreads();
  const int32_t at[2] = {c0, c1}, to[2] = {d0, d1};
  if (threadIdx.x == 0) {
    ptx::mbarrier_arrive_expect_tx(ptx::sem_release, ptx::scope_cta, ptx::space_shared, &full, bytes);
    ptx::cp_async_bulk_tensor(ptx::space_cluster, ptx::space_global, tile, &x, at, &full);
  }
  while (!ptx::mbarrier_try_wait_parity(&full, 0)) {}
  for (int i = threadIdx.x; i < held; i += blockDim.x) y[i] = tile[i];
  ptx::fence_proxy_async(ptx::space_shared);
  __syncthreads();
  if (threadIdx.x == 0) {
    ptx::cp_async_bulk_tensor(ptx::space_global, ptx::space_shared, &z, to, tile);
    ptx::cp_async_bulk_commit_group();
    ptx::cp_async_bulk_wait_group(ptx::n32_t<0>{});
  }
}
"""


@pytest.mark.parametrize("name", ["transpose", "row_sums"])
def test_kernels_with_bulk_copies_are_judged_right(name: str) -> None:
    with Session(load_settings(seed=5, backend="cuda", timeout_s=300)) as session:
        (verdict,) = session.bench(load_kernel(str(DATA / f"{name}.cu")))
    assert verdict.correct is True
    assert not [finding for finding in verdict.findings if finding.severity == "error"]


@pytest.mark.parametrize("corner", [(0, 0), (-16, 5), (32, -7), (64, 40)])
@pytest.mark.parametrize(
    ("dtype", "box", "options"),
    [
        ("float32", (32, 16), {"swizzle": 128}), ("float32", (16, 16), {"swizzle": 64}), ("float32", (8, 16), {"swizzle": 32}),
        ("float16", (32, 16), {"nan_fill": True}), ("uint8", (64, 8), {}), ("float64", (16, 12), {"steps": (1, 3)}),
        ("float32", (16, 16), {"nan_fill": True}), ("float64", (8, 16), {"nan_fill": True}),
        ("bfloat16", (8, 16), {"swizzle": 128}), ("bfloat16", (64, 16), {"swizzle": 128, "nan_fill": True}),
    ],
)  # fmt: skip
def test_the_emulator_copies_boxes_as_the_gpu_does(
    backend, dtype: str, box: tuple[int, int], options: dict, corner: tuple[int, int]
) -> None:
    """`box` and `corner` are columns and rows. Only loads may begin at negative coordinates."""
    stored = [max(one, 0) for one in corner]
    kernel = find_kernels(text_unit(COPY, "k.cu"))[0]
    compiled = compile_kernel(kernel, (), instance=None, target=find_target(None), options=CompileOptions())
    assert compiled.ok, compiled.diagnostics
    x = (1 + np.arange(50 * 80) % 97).astype(numpy_dtype(dtype)).reshape(50, 80)
    steps = options.get("steps", (1, 1))
    nbytes = box[0] * -(-box[1] // steps[1]) * x.dtype.itemsize
    held = max(nbytes, options.get("swizzle", 0) * box[1])
    fields = {"swizzle": 0, "nan_fill": False, **options, "steps": steps}
    maps = [TensorMap(name, dtype, (80, 50), box, **fields) for name in ("x", "z")]
    empty = np.void(bytes(TENSOR_MAP_BYTES))
    arguments = (
        ArrayArgument("x", x, written=False, passed=False),
        ScalarArgument("x_map", empty, tensor_map=maps[0]),
        ArrayArgument("y", np.zeros(held, np.uint8)),
        ArrayArgument("z", np.zeros_like(x), passed=False),
        ScalarArgument("z_map", empty, tensor_map=maps[1]),
        *(
            ScalarArgument(name, np.int32(value))
            for name, value in zip(
                ("c0", "c1", "d0", "d1", "bytes", "held"), (*corner, *stored, nbytes, held), strict=True
            )
        ),
    )
    run = Run(LaunchShape((1, 1, 1), (128, 1, 1)), arguments)
    there, here = (one.load(compiled, find_target(None)).run(run) for one in (backend, EmulatorBackend()))
    assert not there.findings
    assert not here.findings
    for name in ("y", "z"):
        assert there.arrays[name].tobytes() == here.arrays[name].tobytes(), name
