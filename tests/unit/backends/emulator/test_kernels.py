"""Twenty kernels of the kind that people write, compared with NumPy; thirteen of them with an H100's counters."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kernelmate.backends.base import ArrayArgument, Run, RunResult, ScalarArgument
from kernelmate.backends.emulator import EmulatorBackend
from kernelmate.compiler import compile_kernel
from kernelmate.records import CompileOptions, LaunchShape, Target
from kernelmate.source import find_kernels, text_unit

DATA = Path(__file__).resolve().parents[3] / "data" / "counters"
UNIT = text_unit((DATA / "kernels.cu").read_text(), str(DATA / "kernels.cu"))
HARDWARE = {entry["kernel"]: entry for entry in json.loads((DATA / "h100.json").read_text())["kernels"]}
i32, f32 = np.int32, np.float32


@pytest.fixture(scope="module")
def run(gpu: Target) -> Callable[..., RunResult]:
    kernels = {kernel.name: kernel for kernel in find_kernels(UNIT)}
    modules: dict[str, Any] = {}

    def launch(
        name: str,
        grid: tuple[int, ...],
        block: tuple[int, ...],
        *values: Any,
        shared: int = 0,
        instance: str | None = None,
        **options: Any,
    ) -> RunResult:
        if name not in modules:
            code = compile_kernel(kernels[name], (), instance=instance, target=gpu, options=CompileOptions())
            assert code.ok, code.diagnostics
            modules[name] = EmulatorBackend().load(code, gpu)
        arguments = tuple(
            ArrayArgument(f"p{index}", value) if isinstance(value, np.ndarray) else ScalarArgument(f"p{index}", value)
            for index, value in enumerate(values)
        )
        shape = LaunchShape((*grid, *(1,) * (3 - len(grid))), (*block, *(1,) * (3 - len(block))), shared)
        return modules[name].run(Run(shape, arguments, **options))

    return launch


def floats(rng: np.random.Generator, *shape: int) -> np.ndarray:
    return rng.random(shape).astype(f32)


LAUNCHES: dict[str, Callable[[Callable[..., RunResult], np.random.Generator], RunResult]] = {
    "saxpy": lambda run, rng: run(
        "saxpy", (4096,), (256,), i32(1 << 20), f32(2.5), floats(rng, 1 << 20), floats(rng, 1 << 20), count=True
    ),
    "strided_copy": lambda run, rng: run(
        "strided_copy", (64,), (256,), i32(1 << 14), i32(8), floats(rng, 1 << 17), floats(rng, 1 << 14), count=True
    ),
    "stencil2d": lambda run, rng: run(
        "stencil2d", (32, 32), (16, 16), floats(rng, 512, 512), floats(rng, 512, 512), i32(512), i32(512), count=True
    ),
    "matmul_naive": lambda run, rng: run(
        "matmul_naive", (8, 8), (16, 16), *(floats(rng, 128, 128) for _ in range(3)), *[i32(128)] * 3, count=True
    ),
    "matmul_tiled": lambda run, rng: run(
        "matmul_tiled", (8, 8), (16, 16), *(floats(rng, 128, 128) for _ in range(3)), *[i32(128)] * 3, count=True
    ),
    **{
        name: lambda run, rng, name=name: run(
            name, (16, 16), (32, 8), floats(rng, 512, 512), floats(rng, 512, 512), i32(512), i32(512), count=True
        )
        for name in ("transpose_naive", "transpose_unpadded", "transpose_padded")
    },
    "reduce_shared": lambda run, rng: run(
        "reduce_shared", (4,), (256,), floats(rng, 1 << 14), floats(rng, 128), i32(1 << 14), shared=1024, count=True
    ),
    "reduce_shfl": lambda run, rng: run(
        "reduce_shfl", (4,), (256,), floats(rng, 1 << 14), floats(rng, 128), i32(1 << 14), count=True
    ),
    "softmax_f4": lambda run, rng: run(
        "softmax_f4", (64,), (128,), floats(rng, 64, 1024), floats(rng, 64, 1024), i32(1024), count=True
    ),
    "hist": lambda run, rng: run(
        "hist",
        (16,),
        (256,),
        rng.integers(0, 256, 1 << 16).astype(np.uint8),
        i32(1 << 16),
        np.zeros(256, np.uint32),
        count=True,
    ),
    "layernorm": lambda run, rng: run(
        "layernorm",
        (64,),
        (256,),
        floats(rng, 64, 1000),
        floats(rng, 1000),
        floats(rng, 1000),
        floats(rng, 64, 1000),
        i32(1000),
        f32(1e-5),
        count=True,
    ),
}


@pytest.mark.parametrize("name", sorted(HARDWARE))
def test_counters_equal_the_hardwares(name: str, run: Callable[..., RunResult], rng: np.random.Generator) -> None:
    result = LAUNCHES[name](partial(run, executed=True), rng)
    counters = result.counters
    assert not result.findings
    assert counters is not None
    for figure in ("global_load_requests", "global_load_sectors", "global_store_requests", "global_store_sectors"):
        assert getattr(counters, figure) == HARDWARE[name][figure], figure
    for figure in ("shared_load_wavefronts", "shared_store_wavefronts"):
        assert getattr(counters, figure) == HARDWARE[name][figure], figure
    assert counters.source == "emulated"
    assert counters.thread_instructions == HARDWARE[name]["thread_instructions"], counters.instruction_mix_unknown
    assert result.ptx_instructions > 0


def test_figures_of_a_copy_are_those_that_can_be_worked_out_by_hand(
    run: Callable[..., RunResult], rng: np.random.Generator
) -> None:
    result = LAUNCHES["saxpy"](run, rng)
    assert result.footprint_bytes == 2 * 4 * (1 << 20)
    assert result.counters.global_bytes_asked == 3 * 4 * (1 << 20)
    assert result.counters.divergent_branches == 0
    assert result.barriers == 0
    assert sum(result.block_counts.values()) >= 1 << 20


def test_bank_conflicts_of_an_unpadded_tile(run: Callable[..., RunResult], rng: np.random.Generator) -> None:
    assert LAUNCHES["transpose_unpadded"](run, rng).counters.bank_conflicts == 256 * 8 * 4 * 31
    assert LAUNCHES["transpose_padded"](run, rng).counters.bank_conflicts == 0


def test_saxpy_is_exact(run: Callable[..., RunResult], rng: np.random.Generator) -> None:
    x, y = floats(rng, 1000), floats(rng, 1000)
    found = run("saxpy", (4,), (256,), i32(1000), f32(2.5), x, y).arrays["p3"]
    assert np.array_equal(found, (np.float64(2.5) * x + y).astype(f32))


def test_strided_copy(run: Callable[..., RunResult], rng: np.random.Generator) -> None:
    x = floats(rng, 3000)
    assert np.array_equal(
        run("strided_copy", (4,), (256,), i32(1000), i32(3), x, np.zeros(1000, f32)).arrays["p3"], x[::3]
    )


def test_stencil(run: Callable[..., RunResult], rng: np.random.Generator) -> None:
    x = floats(rng, 50, 70)
    found = run("stencil2d", (5, 4), (16, 16), x, np.zeros_like(x), i32(70), i32(50)).arrays["p1"]
    want = x.astype(np.float64)
    want[1:-1, 1:-1] = 0.2 * (want[1:-1, 1:-1] + x[1:-1, :-2] + x[1:-1, 2:] + x[:-2, 1:-1] + x[2:, 1:-1])
    assert np.allclose(found, want, rtol=1e-6)


@pytest.mark.parametrize("name", ["matmul_naive", "matmul_tiled"])
def test_matrix_products_of_odd_sizes(name: str, run: Callable[..., RunResult], rng: np.random.Generator) -> None:
    a, b = floats(rng, 37, 45), floats(rng, 45, 29)
    result = run(name, (2, 3), (16, 16), a, b, np.zeros((37, 29), f32), i32(37), i32(29), i32(45))
    assert not result.findings
    assert np.allclose(result.arrays["p2"], a.astype(np.float64) @ b, rtol=1e-5)


@pytest.mark.parametrize("name", ["transpose_naive", "transpose_unpadded", "transpose_padded"])
@pytest.mark.parametrize("seed", [0, 5])
def test_transposes(name: str, seed: int, run: Callable[..., RunResult], rng: np.random.Generator) -> None:
    x = floats(rng, 45, 70)
    result = run(name, (3, 2), (32, 8), x, np.zeros((70, 45), f32), i32(70), i32(45), schedule_seed=seed)
    assert not result.findings
    assert np.array_equal(result.arrays["p1"], x.T)


@pytest.mark.parametrize(("name", "total"), [("reduce_shared", 1), ("reduce_shfl", 6)])
def test_reductions(name: str, total: int, run: Callable[..., RunResult], rng: np.random.Generator) -> None:
    x = floats(rng, 5001)
    result = run(name, (6,), (128,), x, np.zeros(total, f32), i32(5001), shared=512)
    assert not result.findings
    assert np.isclose(result.arrays["p1"].sum(dtype=np.float64), x.sum(dtype=np.float64), rtol=1e-6)


def test_softmax(run: Callable[..., RunResult], rng: np.random.Generator) -> None:
    x = (floats(rng, 9, 516) * 20).astype(f32)
    found = run("softmax_f4", (9,), (128,), x, np.zeros_like(x), i32(516)).arrays["p1"]
    want = np.exp(x.astype(np.float64) - x.max(1, keepdims=True))
    assert np.allclose(found, want / want.sum(1, keepdims=True), rtol=2e-6)


def test_histogram(run: Callable[..., RunResult], rng: np.random.Generator) -> None:
    data = rng.integers(0, 256, 10001).astype(np.uint8)
    found = run("hist", (7,), (256,), data, i32(10001), np.zeros(256, np.uint32)).arrays["p2"]
    assert np.array_equal(found, np.bincount(data, minlength=256))


def test_layer_norm(run: Callable[..., RunResult], rng: np.random.Generator) -> None:
    x, gain, bias = floats(rng, 5, 333), floats(rng, 333), floats(rng, 333)
    found = run("layernorm", (5,), (256,), x, gain, bias, np.zeros_like(x), i32(333), f32(1e-5)).arrays["p3"]
    wide = x.astype(np.float64)
    want = (wide - wide.mean(1, keepdims=True)) / np.sqrt(wide.var(1, keepdims=True) + 1e-5) * gain + bias
    assert np.allclose(found, want, rtol=1e-4, atol=1e-5)


def test_halves_in_pairs(run: Callable[..., RunResult], rng: np.random.Generator) -> None:
    x, y = (rng.standard_normal(2000).astype(np.float16) for _ in range(2))
    scale = np.array([1.5, -0.5], np.float16).view(np.uint32)[0]
    found = (
        run("half2_axpy", (4,), (128,), i32(1000), scale, x, y, instance="half2_axpy<2>")
        .arrays["p3"]
        .astype(np.float64)
    )
    powers = np.exp(y.astype(np.float64)).astype(np.float16).astype(np.float64)
    want = np.tile([1.5, -0.5], 1000) * x + powers
    assert np.all(np.abs(found - want) <= 2.0**-10 * (np.abs(powers) + np.abs(want)) + 1e-4)


def test_halves_widened(run: Callable[..., RunResult], rng: np.random.Generator) -> None:
    x, y = (rng.standard_normal(600).astype(np.float16) for _ in range(2))
    found = run("half2_dot", (3,), (128,), i32(300), x, y, np.zeros(300, f32)).arrays["p3"]
    a, b = x.reshape(-1, 2), y.reshape(-1, 2)
    want = (a.astype(np.float64) * b).sum(1) + (a[:, 0] + np.float16(1.5)).astype(np.float64)
    assert np.allclose(found, want, rtol=1e-5, atol=1e-6)


def test_cooperative_groups(run: Callable[..., RunResult], rng: np.random.Generator) -> None:
    x = rng.integers(0, 100, 1000).astype(i32)
    found = run("cg_reduce", (4,), (256,), x, np.zeros(2, i32), i32(1000)).arrays["p1"]
    assert found.tolist() == [x.sum(), (x > 50).sum()]


def test_functions_of_the_mathematical_library(run: Callable[..., RunResult], rng: np.random.Generator) -> None:
    x = (rng.standard_normal(2000) * 3).astype(f32)
    found = run("mathk", (8,), (256,), x, np.zeros_like(x), i32(2000)).arrays["p1"]
    v = x.astype(np.float64)
    size = np.abs(v)
    want = (
        np.exp(v)
        + 1 / np.sqrt(v * v + 1)
        + np.sin(v)
        + np.log(size + 1)
        + np.sqrt(size)
        + np.tanh(v)
        + (size + f32(0.1)) ** 1.5 / v
    )
    assert np.all(np.abs(found - want) <= 2e-6 * (np.abs(want) + 1))


def test_loops_of_very_different_length(run: Callable[..., RunResult]) -> None:
    found = run("mandel", (4, 3), (16, 16), np.zeros((40, 60), i32), i32(60), i32(40), i32(60)).arrays["p0"]
    for row in range(0, 40, 7):
        for column in range(0, 60, 5):
            a, b, k = f32(0), f32(0), 0
            real, imaginary = f32(-2) + f32(3) * f32(column) / f32(60), f32(-1) + f32(2) * f32(row) / f32(40)
            while k < 60 and a * a + b * b < 4:
                a, b, k = a * a - b * b + real, 2 * a * b + imaginary, k + 1
            assert abs(int(found[row, column]) - k) <= 1


def test_planted_faults_are_found(run: Callable[..., RunResult]) -> None:
    def line_of(text: str) -> int:
        return next(number for number, line in enumerate(UNIT.text.splitlines(), 1) if text in line)

    result = run("oob", (4,), (256,), np.zeros(1000, f32), np.zeros(1000, f32), i32(1000))
    assert [(f.code, f.buffer, f.line, f.offset, f.threads) for f in result.findings] == [
        ("out-of-bounds-read", "p0", line_of("off by one"), 4000, (232,)),
        ("out-of-bounds-write", "p1", line_of("off by one"), 4000, (232,)),
    ]
    result = run("uninit_sh", (1,), (64,), np.zeros(64, f32))
    assert [(f.code, f.buffer, f.line) for f in result.findings] == [
        ("uninitialised-shared", "s", line_of("y[threadIdx.x]=s[threadIdx.x];"))
    ]


def test_launches_of_other_grids_run_one_native_program(
    cuda: Callable[..., Any], run_cuda: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    from kernelmate.backends.emulator.jit.program import forget, loaded_keys

    monkeypatch.setenv("KERNELMATE_EMULATOR_JIT", "always")
    forget()
    code = cuda("__global__ void k(float* y) { y[blockIdx.x * 32 + threadIdx.x] = blockIdx.x; }")
    for blocks in (1, 3):
        done = run_cuda(code, ("y", np.zeros(32 * blocks, np.float32)), grid=(blocks,))
        np.testing.assert_array_equal(done.arrays["y"], np.repeat(np.arange(blocks), 32))
    assert len(loaded_keys()) == 1
