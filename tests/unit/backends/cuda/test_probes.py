"""The kernels that measure roofs do as much as the figures are worked out with: counted by the emulator."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest

from kernelmate.backends.base import ArrayArgument, Run, RunResult, ScalarArgument
from kernelmate.backends.cuda.driver import missing_for_gpu
from kernelmate.backends.cuda.probes import BLOCK, OLD_TENSOR_FLOPS, RATES, Rate, _power_below, calibrate, source
from kernelmate.backends.emulator import EmulatorBackend
from kernelmate.compiler import compile_kernel, find_target
from kernelmate.compiler.cuda_toolkit import find_tool
from kernelmate.compiler.disassembly import class_of
from kernelmate.compiler.listing import read_listing
from kernelmate.errors import BackendUnavailable
from kernelmate.measure.predict import operations
from kernelmate.records import Compiled, CompileOptions, LaunchShape
from kernelmate.source import find_kernels, text_unit

BLOCKS, ROUNDS = 2, 3


@cache
def compiled(name: str, arch: str = "sm_90") -> Compiled:
    kernel = next(one for one in find_kernels(text_unit(source(), "probes.cu")) if one.name == name)
    done = compile_kernel(kernel, (), instance=None, target=find_target(arch), options=CompileOptions())
    assert done.ok, done.diagnostics
    return done


def run(name: str, *arguments: Any, arch: str = "sm_90") -> RunResult:
    target = find_target(arch)
    shape = LaunchShape((BLOCKS, 1, 1), (BLOCK, 1, 1))
    return EmulatorBackend().load(compiled(name, arch), target).run(Run(shape, arguments, count=True, check=False))


def array(name: str, count: int, dtype: Any = np.float32) -> ArrayArgument:
    return ArrayArgument(name, np.zeros(count, dtype))


def rate_run(rate: Rate, arch: str = "sm_90") -> RunResult:
    kind, a, b = rate.values
    out = array(
        "out", BLOCK, np.uint32 if rate.precision == "fp16" else np.float64 if rate.precision == "fp64" else np.float32
    )
    return run(
        rate.kernel, out, ScalarArgument("rounds", np.int32(ROUNDS)), ScalarArgument("a", kind(a)),
        ScalarArgument("b", kind(b)), arch=arch,
    )  # fmt: skip


@pytest.mark.parametrize("rate", RATES, ids=lambda rate: rate.kernel)
def test_arithmetic_is_as_much_as_is_counted_on_and_stays_finite(rate: Rate) -> None:
    result = rate_run(rate)
    assert not result.findings
    flops = operations(compiled(rate.kernel), result)
    threads = BLOCKS * BLOCK
    # Beside the chains there are conversions and the last sums, which long runs make nothing of.
    assert rate.flops * ROUNDS * threads <= flops[rate.precision] <= (rate.flops * ROUNDS + 64) * threads
    assert not result.arrays["out"].any()


def test_matrices_before_sm_80_are_half_as_deep() -> None:
    tensor = next(rate for rate in RATES if rate.precision == "tensor")
    flops = operations(compiled(tensor.kernel, "sm_75"), rate_run(tensor, "sm_75"))
    assert flops["tensor"] == OLD_TENSOR_FLOPS * ROUNDS * BLOCKS * BLOCK


@pytest.mark.parametrize(("name", "extra"), [("read_l2", 0), ("read_l1", 0)])
def test_caches_are_asked_for_all_bytes_that_are_counted_on(name, extra) -> None:
    count = 1024
    result = run(
        name, array("in", 4 * count), array("out", BLOCK), ScalarArgument("n", np.int32(count)),
        ScalarArgument("rounds", np.int32(ROUNDS)),
    )  # fmt: skip
    assert result.counters is not None
    assert result.counters.global_load_sectors * 32 == 16 * 8 * ROUNDS * BLOCKS * BLOCK
    assert result.footprint_bytes is not None
    assert result.footprint_bytes <= 16 * count


@pytest.mark.parametrize("count", [1, 777, 5000])
def test_memory_is_read_and_written_once(count) -> None:
    number = ScalarArgument("n", np.int64(count))
    read = run("read_once", array("in", 4 * count), array("out", BLOCK), number)
    assert read.counters.global_load_sectors == -(-16 * count // 32)
    assert not read.findings
    given = ArrayArgument("in", np.arange(4 * count, dtype=np.float32))
    copied = run("copy_once", given, array("out", 4 * count), number)
    assert np.array_equal(copied.arrays["out"], given.data)


@pytest.mark.skipif(find_tool("nvdisasm") is None, reason="needs nvdisasm (nvidia-cuda-nvdisasm)")
@pytest.mark.parametrize("arch", ["sm_75", "sm_80", "sm_90", "sm_120"])
def test_the_code_is_nearly_all_of_what_it_measures(arch) -> None:
    wanted = {"fma_fp32": "fp32", "fma_fp64": "fp64", "fma_fp16": "fp16", "mma_fp16": "tensor"}
    units = text_unit(source(), "probes.cu")
    for name, kind in wanted.items():
        code = read_listing(compiled(name, arch), units).sass
        assert sum(one.kind == kind for one in code) > 0.6 * len(code) or kind == "tensor", (name, arch)
        assert any(class_of(one.opcode) == kind for one in code)
        assert not any(one.kind == "local" for one in code), name


def test_buffers_of_caches_are_powers_of_two() -> None:
    assert [_power_below(size) for size in (0, 20_000, 13 << 20)] == [16384, 16384, 8 << 20]


@pytest.mark.skipif(missing_for_gpu() is None, reason="there is a GPU here")
def test_without_a_gpu_it_says_what_is_missing() -> None:
    with pytest.raises(BackendUnavailable):
        calibrate()
