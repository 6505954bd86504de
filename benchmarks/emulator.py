"""The emulator against Numba's CUDA simulator on saxpy, tiled matmul and softmax. Goal: over 100 times faster.

CPU seconds of one launch of a compiled, loaded kernel. At the sizes that the simulator can finish in seconds both are
timed and the ratio is given; at the larger sizes the emulator stands alone, without counting, with counters, and with
all checks.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

import numpy as np

from benchmarks.machine import cpu_seconds
from kernelmate.backends.base import ArrayArgument, Module, Run, ScalarArgument
from kernelmate.backends.emulator import EmulatorBackend
from kernelmate.compiler import compile_kernel, find_target
from kernelmate.records import CompileOptions, LaunchShape
from kernelmate.source import load_kernel

HERE = Path(__file__).resolve().parent
SMALL = {"saxpy": 65536, "matmul": 64, "softmax": [32, 1024]}
LARGE = {"saxpy": 1 << 20, "matmul": 256, "softmax": [512, 1024]}
MODES = {"plain": (False, False), "counters": (True, False), "checks": (True, True)}


def loaded(name: str) -> Module:
    """The kernel of that name in kernels.cu, compiled and loaded."""
    target = find_target(None)
    kernel = load_kernel(f"{HERE / 'kernels.cu'}::{name}")
    compiled = compile_kernel(kernel, (), instance=None, target=target, options=CompileOptions())
    return EmulatorBackend().load(compiled, target)


def launch(name: str, size: int | list[int], *, count: bool = False, check: bool = False) -> Run:
    """The launch of a kernel at a size, as in numba_simulator.py."""
    rng = np.random.default_rng(0)

    def array(label: str, *shape: int) -> ArrayArgument:
        return ArrayArgument(label, rng.standard_normal(shape).astype(np.float32))

    if name == "saxpy":
        arguments = (
            ScalarArgument("a", np.float32(2.5)),
            array("x", size),
            array("y", size),
            ScalarArgument("n", np.int32(size)),
        )
        shape = LaunchShape((-(-size // 256), 1, 1), (256, 1, 1))
    elif name == "matmul":
        arguments = (
            *(array(label, size, size) for label in ("left", "right", "out")),
            ScalarArgument("n", np.int32(size)),
        )
        shape = LaunchShape((size // 16, size // 16, 1), (16, 16, 1))
    else:
        rows, columns = size
        arguments = (array("x", rows, columns), array("y", rows, columns), ScalarArgument("columns", np.int32(columns)))
        shape = LaunchShape((rows, 1, 1), (128, 1, 1))
    return Run(shape, arguments, count=count, check=check)


def seconds_of(module: Module, run: Run, rounds: int = 5) -> float:
    """Median CPU seconds of a launch; the first, which warms up, does not count."""
    result = module.run(run)
    if result.findings:
        raise RuntimeError(f"the emulator found {result.findings[0].code}: {result.findings[0].message}")
    return statistics.median(cpu_seconds(lambda: module.run(run)) for _ in range(rounds))


def main() -> None:
    """Print the ratios, then the emulator alone at larger sizes."""
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.numba_simulator", json.dumps(SMALL)],
        check=True, capture_output=True, text=True, env={**os.environ, "NUMBA_ENABLE_CUDASIM": "1"},
    )  # fmt: skip
    simulator = json.loads(done.stdout)
    modules = {name: loaded(name) for name in SMALL}
    for name, size in SMALL.items():
        ours = seconds_of(modules[name], launch(name, size))
        ratio = simulator[name] / ours
        print(
            f"{name:<8} {size!s:<12} simulator {simulator[name]:8.2f} s   emulator {ours:8.4f} s   {ratio:6.0f} times"
        )
    for name, size in LARGE.items():
        row = [
            f"{mode} {seconds_of(modules[name], launch(name, size, count=count, check=check), 3):.3f} s"
            for mode, (count, check) in MODES.items()
        ]
        print(f"{name:<8} {size!s:<12} " + "   ".join(row))
