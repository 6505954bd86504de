"""Predictions against launches that were timed on an H100: `h100/*.cu`, each with its time in its first line."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

import numpy as np
import pytest

from kernelmate.backends.base import ArrayArgument, Run, ScalarArgument
from kernelmate.backends.emulator import EmulatorBackend
from kernelmate.compiler import compile_kernel, find_target
from kernelmate.measure.predict import ALONE_US, predict
from kernelmate.measure.statistics import faster, slower, speedup
from kernelmate.records import CompileOptions, Contract, Timing
from kernelmate.source import argument_shapes, contract_for, launch_shape, load_kernel, numpy_dtype, scalar_values

KERNELS = sorted((Path(__file__).parent / "h100").glob("*.cu"))
BASES = [path for path in KERNELS if path.stem.endswith("_base")]


def measured_us(path: Path) -> float:
    """Of a launch from its start to its end; the files tell its period among launches like it."""
    match = re.match(r"// ([\d.]+) us on an H100", path.read_text())
    assert match is not None, path
    return float(match[1]) + ALONE_US


def arguments(contract: Contract) -> tuple[ArrayArgument | ScalarArgument, ...]:
    size = contract.sizes[0]
    random = np.random.default_rng(0)
    shapes, scalars = argument_shapes(contract, size), scalar_values(contract, size)
    made: list[ArrayArgument | ScalarArgument] = []
    for argument in contract.args:
        dtype = numpy_dtype(argument.dtype)
        if argument.shape is None:
            made.append(ScalarArgument(argument.name, dtype.type(scalars[argument.name])))
        else:
            data = random.uniform(0.1, 1, shapes[argument.name]).astype(dtype)
            made.append(ArrayArgument(argument.name, data, written=argument.direction != "in"))
    return tuple(made)


@lru_cache
def predicted(path: Path) -> Timing:
    kernel = load_kernel(str(path))
    contract = contract_for(kernel)
    target = find_target("H100 SXM")
    compiled = compile_kernel(kernel, contract.options, instance=None, target=target, options=CompileOptions())
    assert compiled.ok, compiled.diagnostics
    shape = launch_shape(contract, contract.sizes[0])
    run = Run(shape, arguments(contract), count=True, check=False)
    result = EmulatorBackend().load(compiled, target).run(run)
    assert not result.findings
    return predict(target, compiled, shape, result)


@pytest.mark.parametrize("path", KERNELS, ids=lambda path: path.stem)
def test_the_measured_time_is_in_the_predicted_interval(path: Path) -> None:
    timing = predicted(path)
    low, high = timing.ci95_us
    assert low <= measured_us(path) <= high, timing


def test_most_predictions_are_far_better_than_the_interval() -> None:
    errors = sorted(abs(math.log(predicted(path).median_us / measured_us(path))) for path in KERNELS)
    assert errors[len(errors) // 2] < math.log(1.15)


def changed(base: Path) -> list[Path]:
    """The other versions of a kernel."""
    return [path for path in KERNELS if path != base and path.stem.startswith(base.stem.removesuffix("base"))]


def test_what_is_called_faster_or_slower_was() -> None:
    called = 0
    for base in BASES:
        for other in changed(base):
            ratio = speedup(predicted(base), predicted(other))
            was = measured_us(base) / measured_us(other)
            called += faster(ratio) or slower(ratio)
            assert not (faster(ratio) and was <= 1), other
            assert not (slower(ratio) and was >= 1), other
    assert called


def test_versions_that_really_differ_are_put_in_order() -> None:
    right = {
        (base.stem, other.stem): (was > 1) == (predicted(base).median_us > predicted(other).median_us)
        for base in BASES
        for other in changed(base)
        if abs(math.log(was := measured_us(base) / measured_us(other))) > math.log(1.1)
    }
    assert len(right) >= 8
    assert sum(right.values()) >= 0.85 * len(right), right


def test_a_padded_tile_is_predicted_faster() -> None:
    base, padded = (next(p for p in KERNELS if p.stem.startswith(f"transpose_{name}")) for name in ("base", "pad"))
    assert predicted(base).median_us - ALONE_US > 1.2 * (predicted(padded).median_us - ALONE_US)


def test_a_slower_gpu_is_predicted_slower() -> None:
    path = next(path for path in KERNELS if path.stem == "guidance_base")
    kernel = load_kernel(str(path))
    contract = contract_for(kernel)
    target = find_target("H100 SXM")
    compiled = compile_kernel(kernel, (), instance=None, target=target, options=CompileOptions())
    shape = launch_shape(contract, contract.sizes[0])
    result = EmulatorBackend().load(compiled, target).run(Run(shape, arguments(contract), count=True, check=False))
    half = replace(target, sms=target.sms // 2, memory_gbps=target.memory_gbps / 2, fp32_tflops=target.fp32_tflops / 2)
    assert predict(half, compiled, shape, result).median_us > predict(target, compiled, shape, result).median_us
