"""The emulator against Numba's CUDA simulator, and, where PoCL is installed, against OpenCL twins of saxpy and matmul.

CPU seconds of one launch of a compiled, loaded kernel, native code included. At the sizes that the simulator can finish in
seconds both are timed and the ratio is given (goal: over 100 times faster); the larger sizes have goals of their own,
without counting, with counters (twice that), and with counters and all checks (five times that), and a goal of 500 MB
for the most memory that the process took. Each large kernel runs in a process of its own.
"""

from __future__ import annotations

import json
import os
import resource
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.machine import cpu_seconds
from kernelmate.backends.base import ArrayArgument, Module, Run, ScalarArgument
from kernelmate.backends.emulator import EmulatorBackend
from kernelmate.backends.emulator.jit.native_choice import Mode
from kernelmate.compiler import compile_kernel, find_target
from kernelmate.records import CompileOptions, LaunchShape
from kernelmate.source import load_kernel

HERE = Path(__file__).resolve().parent
SMALL = {"saxpy": 65536, "matmul": 64, "softmax": [32, 1024]}
LARGE = {
    "saxpy 1M": ("saxpy", 1 << 20, 0.03),
    "matmul 256": ("matmul", 256, 0.05),
    "softmax 512x1024": ("softmax", [512, 1024], 0.05),
    "matmul 1024": ("matmul", 1024, 2.5),
}
"""Kernel, size, and the goal in CPU seconds without counting."""
ALLOWANCE = {"plain": 1, "counters": 2, "checks": 5}
MODES = {"plain": (False, False), "counters": (True, False), "checks": (True, True)}


def loaded(name: str, jit: Mode = "auto") -> Module:
    """The kernel of that name in kernels.cu, compiled and loaded."""
    target = find_target(None)
    kernel = load_kernel(f"{HERE / 'kernels.cu'}::{name}")
    compiled = compile_kernel(kernel, (), instance=None, target=target, options=CompileOptions())
    return EmulatorBackend(jit).load(compiled, target)


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


def large(label: str) -> None:
    """Print one large kernel's figures as JSON: CPU seconds by mode, and the process's peak memory in MB."""
    name, size, _ = LARGE[label]
    module = loaded(name, "always")
    figures = {
        mode: seconds_of(module, launch(name, size, count=count, check=check), 3)
        for mode, (count, check) in MODES.items()
    }
    print(json.dumps({**figures, "peak": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}))


def run_module(name: str, *arguments: str, **environment: str) -> Any:
    """The JSON that a module of this package prints."""
    done = subprocess.run(
        [sys.executable, "-m", name, *arguments], check=True, capture_output=True, text=True,
        env={**os.environ, **environment},
    )  # fmt: skip
    return json.loads(done.stdout)


def main() -> None:
    """Print the ratios to the simulator, then the large sizes with goals, then the ratios to PoCL."""
    simulator = run_module("benchmarks.numba_simulator", json.dumps(SMALL), NUMBA_ENABLE_CUDASIM="1")
    for name, size in SMALL.items():
        ours = seconds_of(loaded(name, "always"), launch(name, size))
        ratio = simulator[name] / ours
        print(
            f"{name:<8} {size!s:<12} simulator {simulator[name]:8.2f} s   emulator {ours:8.4f} s   {ratio:6.0f} times"
        )
    twins = run_module("benchmarks.opencl_twin", json.dumps({"saxpy": 1 << 20, "matmul": [256, 1024]}))
    for label, (name, size, goal) in LARGE.items():
        figures = run_module("benchmarks.emulator", label)
        row = [f"{mode} {figures[mode]:.3f} s (goal {goal * ALLOWANCE[mode]:.3g})" for mode in MODES]
        twin = twins.get(name if name == "saxpy" else f"{name} {size}")
        beside = "" if twin is None else f"   PoCL {twin:.4f} s, {figures['plain'] / twin:.1f} times that"
        print(f"{label:<17} " + "   ".join(row) + f"   peak {figures['peak']:.0f} MB{beside}", flush=True)
    if not twins:
        print("no OpenCL twin: pyopencl or PoCL is not installed")


if __name__ == "__main__":
    large(sys.argv[1])
