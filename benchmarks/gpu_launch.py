"""Make the listed launches of files once each, and nothing else: what profilers and sanitizers are put in front of.

`python -m benchmarks.gpu_launch FILE...`. Every array is an allocation of its own of its exact size, and outputs are
left as the driver gives them, so that a sanitizer sees what the kernel does and nothing that KernelMate does.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

from benchmarks.launches import Listed, listed_launches
from kernelmate.backends.base import ArrayArgument
from kernelmate.backends.cuda.backend import CudaBackend, CudaModule
from kernelmate.backends.cuda.launching import numpy_scalar
from kernelmate.compiler import find_target


def launch_alone(module: CudaModule, listed: Listed) -> None:
    """One launch with separate allocations."""
    import cupy

    outputs = {argument.name for argument in listed.contract.args if argument.direction == "out"}
    kept, values = [], []
    for item in listed.run.arguments:
        if not isinstance(item, ArrayArgument):
            values.append(numpy_scalar(item, {}))
            continue
        memory = cupy.cuda.Memory(max(item.data.nbytes, 1))
        if item.name not in outputs:
            host = np.ascontiguousarray(item.data)
            cupy.cuda.runtime.memcpy(memory.ptr, host.ctypes.data, item.data.nbytes, 1)
        kept.append(memory)
        values.append(np.uint64(memory.ptr))
    shape = listed.run.shape
    module.ready(shape)(shape.grid, shape.block, tuple(values), shared_mem=shape.shared_bytes)
    cupy.cuda.runtime.deviceSynchronize()


def main(files: list[str]) -> None:
    """Launch; the first error of CUDA ends the process with its traceback."""
    target = find_target("sm_90")
    backend = CudaBackend()
    for listed in listed_launches([Path(file) for file in files], target):
        launch_alone(backend.load(listed.compiled, target), listed)


if __name__ == "__main__":
    main(sys.argv[1:])
