"""Outputs of every example on the emulator and on the GPU: `python -m benchmarks.gpu_parity [FOLDER or FILE ...]`.

Needs an NVIDIA GPU and CuPy. Prints, for each listed size, how many elements are bit for bit the same and the largest
difference in units in the last place; anything beyond rounding is marked, and the exit code is then 1. Kernels that add
floating-point values by atomics have no order to reproduce; they are compared with the reference by the verdicts.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

from benchmarks.launches import listed_launches
from benchmarks.machine import describe
from kernelmate.backends.cuda.backend import CudaBackend
from kernelmate.backends.emulator import EmulatorBackend
from kernelmate.compiler import find_target
from kernelmate.source import numpy_dtype

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
ROUNDING = 256
"""Units in the last place of the largest element that pass: functions like `expf` differ by one or two in each use."""


def main(arguments: list[str]) -> int:
    """Print the table; 1 where any output differs beyond rounding."""
    places = [Path(a) for a in arguments] or [EXAMPLES]
    paths = [p for place in places for p in (sorted(place.glob("*.cu")) if place.is_dir() else [place])]
    emulator, cuda = EmulatorBackend(), CudaBackend()
    print(describe(), f"\n{cuda.device.attributes['MultiProcessorCount']} SMs, {cuda.device.mem_info[1] >> 30} GiB")
    target, bad = find_target(None), 0
    for listed in listed_launches(paths, target):
        ours = emulator.load(listed.compiled, target).run(listed.run)
        theirs = cuda.load(listed.compiled, target).launch(listed.run)
        problems = [f"{f.code}: {f.message}" for f in (*ours.findings, *theirs.findings) if f.severity == "error"]
        words = []
        for argument in listed.contract.args:
            if argument.direction not in ("out", "inout"):
                continue
            same, off = difference(ours.arrays[argument.name], theirs.arrays[argument.name], argument.dtype)
            words.append(f"{argument.name}: {same:7.2%} equal, {off:.3g} ulp")
            if off > ROUNDING:
                problems.append(f"{argument.name} differs by {off:.3g} ulp of its largest element")
        bad += bool(problems)
        print(f"{listed.name:<40} {listed.size_words:<34} {'; '.join(words)}  {'WRONG ' + '; '.join(problems) if problems else 'ok'}", flush=True)  # fmt: skip
        if cuda.poisoned:
            print("the GPU's context is lost; the rest was not run")
            return 1
    print(f"{bad} launches differ" if bad else "every output is the same within rounding")
    return 1 if bad else 0


def difference(ours: np.ndarray, theirs: np.ndarray, dtype: str) -> tuple[float, float]:
    """The share of equal elements, and the largest difference in ulps of the largest element (exact types: any is infinite)."""
    same = (ours.view(np.uint8).reshape(ours.size, -1) == theirs.view(np.uint8).reshape(ours.size, -1)).all(axis=-1)
    if ours.size == 0 or same.all():
        return 1.0, 0.0
    kind = numpy_dtype(dtype)
    if kind.kind in "biu":
        return float(same.mean()), float("inf")
    a, b = ours.astype(np.float64), theirs.astype(np.float64)
    both = np.isfinite(a) & np.isfinite(b)
    if not (np.isnan(a) == np.isnan(b)).all() or not (a[~both & ~np.isnan(a)] == b[~both & ~np.isnan(a)]).all():
        return float(same.mean()), float("inf")
    import ml_dtypes

    unit = float(ml_dtypes.finfo(kind).eps) * max(float(np.abs(a[both]).max(initial=0.0)), 1e-300)
    return float(same.mean()), float(np.abs(a - b)[both].max(initial=0.0)) / unit


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
