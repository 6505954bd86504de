"""The emulator's counts against an H100's on thirteen kernels: `python -m benchmarks.counter_table`. Needs no GPU.

The hardware's figures are those of ncu, kept in `tests/data/counters/h100.json`; they are for the same launches, of which
addresses alone matter, so that inputs are drawn again.
"""

from __future__ import annotations

import ast
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.machine import describe
from kernelmate.backends.base import ArrayArgument, Run, ScalarArgument
from kernelmate.backends.emulator import EmulatorBackend
from kernelmate.compiler import compile_kernel, find_target
from kernelmate.records import CompileOptions, Counters, LaunchShape
from kernelmate.source import load_kernels

DATA = Path(__file__).resolve().parents[1] / "tests" / "data" / "counters"
FIGURES = {
    "load rq": "global_load_requests", "load sectors": "global_load_sectors", "store rq": "global_store_requests",
    "store sectors": "global_store_sectors", "shared loads": "shared_load_wavefronts",
    "shared stores": "shared_store_wavefronts",
}  # fmt: skip
ARGUMENTS: dict[str, tuple[Any, ...]] = {
    "saxpy": (1 << 20, 2.5, (1 << 20,), (1 << 20,)),
    "strided_copy": (1 << 14, 8, (1 << 17,), (1 << 14,)),
    "stencil2d": ((512, 512), (512, 512), 512, 512),
    "matmul_naive": ((128, 128), (128, 128), (128, 128), 128, 128, 128),
    "matmul_tiled": ((128, 128), (128, 128), (128, 128), 128, 128, 128),
    "transpose_naive": ((512, 512), (512, 512), 512, 512),
    "transpose_unpadded": ((512, 512), (512, 512), 512, 512),
    "transpose_padded": ((512, 512), (512, 512), 512, 512),
    "reduce_shared": ((1 << 14,), (128,), 1 << 14),
    "reduce_shfl": ((1 << 14,), (128,), 1 << 14),
    "softmax_f4": ((64, 1024), (64, 1024), 1024),
    "hist": ("bytes", 1 << 16, "bins"),
    "layernorm": ((64, 1000), (1000,), (1000,), (64, 1000), 1000, 1e-5),
}
"""Sizes of arrays, and scalars, in the kernels' order of parameters."""
DYNAMIC_SHARED = {"reduce_shared": 1024}


def arguments(described: tuple[Any, ...]) -> Iterator[ArrayArgument | ScalarArgument]:
    """Arrays and scalars of what `ARGUMENTS` says."""
    random = np.random.default_rng(0)
    for index, item in enumerate(described):
        name = f"p{index}"
        if item == "bytes":
            yield ArrayArgument(name, random.integers(0, 256, 1 << 16).astype(np.uint8))
        elif item == "bins":
            yield ArrayArgument(name, np.zeros(256, np.uint32))
        elif isinstance(item, tuple):
            yield ArrayArgument(name, random.random(item).astype(np.float32))
        else:
            yield ScalarArgument(name, np.int32(item) if isinstance(item, int) else np.float32(item))


def emulated(measured: list[dict[str, Any]]) -> Iterator[Counters]:
    """The counters of the same launches, in order."""
    target = find_target("sm_90")
    kernels = {kernel.name: kernel for kernel in load_kernels(DATA / "kernels.cu")}
    for row in measured:
        name = row["kernel"]
        compiled = compile_kernel(kernels[name], (), instance=None, target=target, options=CompileOptions())
        grid, block = (ast.literal_eval(row[key]) for key in ("grid", "block"))
        shape = LaunchShape(grid, block, DYNAMIC_SHARED.get(name, 0))
        run = Run(shape, tuple(arguments(ARGUMENTS[name])), count=True, check=False, executed=True)
        counters = EmulatorBackend().load(compiled, target).run(run).counters
        assert counters is not None, "a counted launch has counters"
        yield counters


def main() -> int:
    """Print the table; 1 where a figure differs."""
    document = json.loads((DATA / "h100.json").read_text())
    print(f"measured on {document['device']}, {document['compiler']}, {document['tool']}; emulated on {describe()}")
    print(f"{'kernel':<20}" + "".join(f"{head:>22}" for head in FIGURES))
    equal = dict.fromkeys(FIGURES, 0)
    for row, counters in zip(document["kernels"], emulated(document["kernels"]), strict=True):
        cells = []
        for head, figure in FIGURES.items():
            ours, theirs = getattr(counters, figure), row[figure]
            equal[head] += ours == theirs
            cells.append(f"{ours:,}" if ours == theirs else f"{ours:,} not {theirs:,}")
        print(f"{row['kernel']:<20}" + "".join(f"{cell:>22}" for cell in cells))
    total = len(document["kernels"])
    print(f"{'equal':<20}" + "".join(f"{f'{count} of {total}':>22}" for count in equal.values()))
    return 0 if all(count == total for count in equal.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
