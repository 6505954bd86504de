"""Instructions that a GPU executes in a launch: against an H100's counters and counts by hand, and unknown if data decides."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.instruction_mix import MEASURED, figures
from benchmarks.launches import listed_launches
from benchmarks.variant_set import run_arguments, variants
from kernelmate.backends.base import ArrayArgument, Run, RunResult, ScalarArgument
from kernelmate.backends.emulator import EmulatorBackend
from kernelmate.backends.emulator.sass import mix as mixing
from kernelmate.compiler import compile_kernel, find_target
from kernelmate.errors import CompilerUnavailable
from kernelmate.measure.predict import explain, operations
from kernelmate.records import Compiled, CompileOptions, Counters, InstructionMix, LaunchShape
from kernelmate.source import find_kernels, text_unit

BRANCHY = """
__global__ void branchy(const float* x, float* y, int n, unsigned m, long long last) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  int step = gridDim.x * blockDim.x;
  float sum = 0;
  for (int k = i; k < n; k += step) if (k % 3 == 0 || k % m == 1u) sum += x[k];
  #pragma unroll 1
  for (int k = 0; k < (threadIdx.x & 7) + blockIdx.x; ++k) sum = sum * x[k] + 1;
  for (long long k = threadIdx.x; k <= last; k += 97) sum += x[k];
  if (threadIdx.x >= 50) return;
  __shared__ float kept[64];
  kept[threadIdx.x] = sum;
  y[i] = kept[threadIdx.x ^ 1];
}
"""


def counted(compiled: Compiled, target: Any, *values: Any, grid: int = 1, block: int = 32) -> Counters:
    arguments = tuple(
        ArrayArgument(f"a{place}", value) if value.ndim else ScalarArgument(f"a{place}", value[()])
        for place, value in enumerate(map(np.asarray, values))
    )
    run = Run(LaunchShape((grid, 1, 1), (block, 1, 1)), arguments, count=True, check=False, executed=True)
    counters = EmulatorBackend().load(compiled, target).run(run).counters
    assert counters is not None
    return counters


def opcode(mix: InstructionMix, name: str) -> tuple[int, int]:
    return next(((one.warps, one.threads) for one in mix.opcodes if one.opcode == name), (0, 0))


@pytest.mark.parametrize("family", ["reduce", "scan", "gemv"])
def test_instructions_equal_those_that_an_h100_counts(family: str) -> None:
    hardware = {one["name"]: one["warm"] for one in json.loads(Path(MEASURED).read_text())["variants"]}
    target = find_target("H100 SXM")
    for variant in variants([family]):
        run = Run(variant.shape, run_arguments(variant.arguments()), count=True, check=False, executed=True)
        counters = EmulatorBackend("auto").load(variant.compile(target), target).run(run).counters
        assert counters is not None
        assert counters.instruction_mix is not None, variant.name
        ours = figures(counters.instruction_mix)
        assert ours == {name: hardware[variant.name][name] for name in ours}, variant.name
        assert counters.thread_instructions == counters.instruction_mix.threads


@pytest.mark.parametrize("arch", ["sm_80", "sm_89", "sm_90", "sm_100", "sm_120"])
@pytest.mark.parametrize(("n", "m", "last"), [(1000, 7, 500), (0, 1, -1), (97, 64, 97)])
def test_branches_of_every_architecture_are_followed(arch: str, n: int, m: int, last: int) -> None:
    """The stores and barriers of SASS agree with those of PTX, else there would be no mix."""
    target = find_target(arch)
    (kernel,) = find_kernels(text_unit(BRANCHY))
    compiled = compile_kernel(kernel, (), instance=None, target=target, options=CompileOptions())
    x, y = np.ones(2000, np.float32), np.zeros(600, np.float32)
    counters = counted(compiled, target, x, y, np.int32(n), np.uint32(m), np.int64(last), grid=5, block=96)
    assert counters.instruction_mix_unknown is None
    assert counters.instruction_mix is not None
    stores = opcode(counters.instruction_mix, "STG")
    assert stores == (5 * 2, 5 * 50)


def test_lanes_that_leave_a_loop_early_wait_for_the_others(cuda: Callable[..., Compiled], gpu: Any) -> None:
    code = cuda(
        "__global__ void k(const float* x, float* y) { float s = 0;\n"
        '_Pragma("unroll 1") for (int i = 0; i < threadIdx.x % 32; ++i) s = s * x[i] + 1;\n y[threadIdx.x] = s; }'
    )
    counters = counted(code, gpu, np.ones(64, np.float32), np.zeros(64, np.float32), grid=3, block=64)
    assert counters.instruction_mix is not None
    # The longest lane of each of 6 warps goes round 31 times; all lanes together 31 * 32 / 2.
    assert opcode(counters.instruction_mix, "FFMA") == (6 * 31, 6 * 496)
    assert opcode(counters.instruction_mix, "STG") == (6, 192)
    # Every lane but the first leaves at another time, and each such part of a warp comes to the barrier by itself.
    assert opcode(counters.instruction_mix, "BSYNC")[0] == 6 * 32


def test_part_of_a_warp_is_a_warp(cuda: Callable[..., Compiled], gpu: Any) -> None:
    code = cuda("__global__ void k(float* y) { y[blockIdx.x * blockDim.x + threadIdx.x] = 1; }")
    counters = counted(code, gpu, np.zeros(480, np.float32), grid=10, block=48)
    assert counters.instruction_mix is not None
    assert opcode(counters.instruction_mix, "STG") == (20, 480)
    assert counters.instruction_mix.threads == sum(one.threads for one in counters.instruction_mix.opcodes)
    assert counters.instruction_mix.warps == sum(one.warps for one in counters.instruction_mix.opcodes)


def test_where_data_decides_there_is_no_mix_but_a_reason(cuda: Callable[..., Compiled], gpu: Any) -> None:
    code = cuda(
        "__global__ void k(const int* n, float* y) { float s = 0; for (int i = 0; i < n[threadIdx.x]; ++i) s = sinf(s) + i;"
        " y[threadIdx.x] = s; }"
    )
    counters = counted(code, gpu, np.arange(32, dtype=np.int32), np.zeros(32, np.float32))
    assert counters.instruction_mix is None
    assert counters.thread_instructions is None
    assert "SASS depends on" in (counters.instruction_mix_unknown or "")


DIVISIONS = """
__global__ void k(const float* a, const float* b, const double* d, float* y, int n) {
  for (int i = threadIdx.x; i < n; i += 32)
    y[i] = a[i] / b[i] + sqrtf(b[i]) + __frcp_rn(b[i]) + (float)(1.0 / d[i] + sqrt(d[i]) + a[i] / d[i]);
}
"""


@pytest.mark.parametrize("jit", ["never", "always"])
@pytest.mark.parametrize(
    ("array", "place", "value", "says"),
    [
        (None, 0, 0.0, None), ("b", 200, 1e-40, "div.rn.f32"), ("a", 3, 0.0, "div.rn.f32"), ("b", 5, np.inf, "div.rn.f32"),
        ("b", 9, -1.0, "sqrt.rn.f32"), ("d", 63, 0.0, "f64"), ("d", 7, np.nan, "f64"),
    ],
)  # fmt: skip
def test_slow_paths_of_divisions_and_roots_are_known_not_to_be_taken(
    cuda: Callable[..., Compiled], gpu: Any, jit: Any, array: str | None, place: int, value: float, says: str | None
) -> None:
    random = np.random.default_rng(3)
    arrays = {name: random.uniform(0.1, 4, 256).astype(kind) for name, kind in (("a", "f4"), ("b", "f4"), ("d", "f8"))}
    if array is not None:
        arrays[array][place] = value
    arguments = tuple(ArrayArgument(name, data) for name, data in arrays.items())
    shape = LaunchShape((1, 1, 1), (32, 1, 1))
    run = Run(
        shape, (*arguments, ArrayArgument("y", np.zeros(256, np.float32)), ScalarArgument("n", np.int32(256))),
        count=True, check=False, executed=True,
    )  # fmt: skip
    counters = EmulatorBackend(jit).load(cuda(DIVISIONS), gpu).run(run).counters
    assert counters is not None
    assert (counters.instruction_mix is None) == (says is not None), counters.instruction_mix_unknown
    assert (says or "") in (counters.instruction_mix_unknown or "")


def test_a_disagreement_with_ptx_leaves_the_mix_open(
    cuda: Callable[..., Compiled], gpu: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = cuda("__global__ void k(float* y, int n) { if (threadIdx.x < n) y[threadIdx.x] = n; }")
    constants = mixing.Sass._constants

    def one_more(self: Any, shape: LaunchShape, parameters: bytes) -> dict[int, int]:
        words = constants(self, shape, parameters)
        words[max(words)] += 1
        return words

    assert counted(code, gpu, np.zeros(32, np.float32), np.int32(20)).instruction_mix is not None
    monkeypatch.setattr(mixing.Sass, "_constants", one_more)
    counters = counted(code, gpu, np.zeros(32, np.float32), np.int32(20))
    assert counters.instruction_mix is None
    assert "21 times" in (counters.instruction_mix_unknown or "")
    assert "20 times" in (counters.instruction_mix_unknown or "")


def test_without_a_disassembler_the_rest_is_counted(
    cuda: Callable[..., Compiled], gpu: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(compiled: Compiled) -> None:
        raise CompilerUnavailable("nvdisasm is not installed.", hint="Run: pip install nvidia-cuda-nvdisasm")

    monkeypatch.setattr(mixing, "reading_code", missing)
    counters = counted(cuda("__global__ void k(float* y) { y[threadIdx.x] = 1; }"), gpu, np.zeros(32, np.float32))
    assert counters.global_store_requests == 1
    assert "nvdisasm is not installed" in (counters.instruction_mix_unknown or "")


def test_what_is_too_long_to_follow_is_given_up(
    cuda: Callable[..., Compiled], gpu: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from kernelmate.backends.emulator.sass import walk

    monkeypatch.setattr(walk, "_MOST_WORK", 100_000)
    code = cuda("__global__ void k(float* y, int n) { for (int i = threadIdx.x; i < n; i += 3) y[i % 32] = i; }")
    counters = counted(code, gpu, np.zeros(32, np.float32), np.int32(5000))
    assert counters.instruction_mix_unknown == "the launch takes too long to follow"


def test_plain_launches_ask_for_no_mix(run_cuda: Callable[..., RunResult], cuda: Callable[..., Compiled]) -> None:
    code = cuda("__global__ void k(float* y) { y[threadIdx.x] = 1; }")
    assert run_cuda(code, ("y", np.zeros(32, np.float32))).counters is None


def test_products_of_warpgroups_are_counted_by_warps() -> None:
    target = find_target("sm_90a")
    path = Path(__file__).resolve().parents[4] / "data" / "warpgroups" / "wgmma_f16.cu"
    (headline,) = listed_launches([path], target, headline_only=True)
    run = replace(headline.run, count=True, check=False, executed=True)
    result = EmulatorBackend().load(headline.compiled, target).run(run)
    assert result.counters is not None
    mix = result.counters.instruction_mix
    assert mix is not None
    blocks, products = headline.run.shape.blocks, headline.size["k"] // 16
    assert opcode(mix, "HGMMA") == (4 * blocks * products, 128 * blocks * products)
    assert {one.kind for one in mix.opcodes if one.opcode == "HGMMA"} == {"tensor"}
    flops = operations(headline.compiled, result)["tensor"]
    assert flops == 2 * math.prod(headline.size[name] for name in "mnk")
    busy_us = explain(target, headline.compiled, headline.run.shape, result).parts_us["tensor"]
    at_peak = 2 * 64 * 32 * headline.size["k"] / (target.tensor_tflops * 1e6 / target.sms)
    assert busy_us == pytest.approx(at_peak)
