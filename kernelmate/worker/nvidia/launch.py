"""Makes a version's listed launches, once each, and nothing else, so that a sanitizer or a profiler can wrap it.

`python -P -m kernelmate.worker.nvidia.launch TASK`, where TASK is a file that `tool.run` has written. Each array has
its own allocation of exact size, and outputs are not initialised, so that a tool's reports concern the kernel. Array
addresses are printed on standard error, because tools report addresses only.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from kernelmate.errors import KernelmateError
from kernelmate.records import JudgeTask

if TYPE_CHECKING:
    from kernelmate.backends.base import Run
    from kernelmate.backends.cuda.backend import CudaModule

BUFFER = "kernelmate buffer"
"""Prefix of a line on standard error: name, address in hexadecimal, bytes."""

_PR_SET_PDEATHSIG = 1
"""Linux, `<linux/prctl.h>`: the signal this process gets when its parent ends."""

_TO_DEVICE = 1
"""`cudaMemcpyHostToDevice` of `driver_types.h`."""


class LaunchJob(msgspec.Struct, frozen=True):
    """Launches to be made: the candidate of a task at some of its sizes, on one GPU.

    Attributes:
        headline_only: launch only at the first size.
    """

    task: JudgeTask
    device: int
    headline_only: bool


def main(path: str) -> int:
    """Launches; returns 1 if CUDA refused or stopped a launch, 2 if nothing can be launched, with the reason on standard error."""
    if sys.platform.startswith("linux"):
        # The tool is this process's parent; this process must end if the tool is killed.
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    job = msgspec.msgpack.decode(Path(path).read_bytes(), type=LaunchJob)
    try:
        failed = _launch_all(job)
    except KernelmateError as error:
        print(error.message, file=sys.stderr, flush=True)
        return 2
    sys.stdout.flush()
    sys.stderr.flush()
    # Freeing arrays of a lost context would print an error for each.
    os._exit(1 if failed else 0)


def _launch_all(job: LaunchJob) -> bool:
    from kernelmate.backends.cuda.backend import CudaBackend
    from kernelmate.checks.case_launches import FIRST, Bench, PlannedLaunch, inputs_for
    from kernelmate.checks.styles import NORMAL

    task = job.task
    backend = CudaBackend(job.device)
    import cupy

    contract = (task.baseline or task.candidate).contract
    sizes = task.sizes or contract.sizes
    bench = Bench(backend, task, task.candidate)
    module = backend.load(task.candidate.compiled, task.target)
    shot = PlannedLaunch(FIRST, NORMAL, 0, 0)
    kept: list[Any] = []
    failed = False
    for size in sizes[: 1 if job.headline_only else None]:
        given = inputs_for(contract, size, shot, task.seed, Path(task.directory))
        try:
            _launch(module, bench.launch(size, shot, given), kept)
        except (cupy.cuda.driver.CUDADriverError, cupy.cuda.runtime.CUDARuntimeError) as error:
            failed = True
            print(f"kernelmate launch failed: {error}", file=sys.stderr, flush=True)
    return failed


def _launch(module: CudaModule, run: Run, kept: list[Any]) -> None:
    """Launches once with separate allocations, which are added to `kept` so that addresses are not reused."""
    import cupy
    import numpy as np

    from kernelmate.backends.base import ArrayArgument
    from kernelmate.backends.cuda.launching import content_of, launch_in_clusters, launched_arguments
    from kernelmate.backends.cuda.memory import fill_variables

    places: dict[str, int] = {}
    # Arrays that contain addresses are filled last, when all arrays are allocated.
    arrays = [item for item in run.arguments if isinstance(item, ArrayArgument) and item.variable is None]
    for item in sorted(arrays, key=lambda one: bool(one.addresses)):
        memory = cupy.cuda.Memory(max(item.data.nbytes, 1))
        kept.append(memory)
        if not item.output:
            host = np.ascontiguousarray(content_of(item, places))
            cupy.cuda.runtime.memcpy(memory.ptr, host.ctypes.data, item.data.nbytes, _TO_DEVICE)
        print(f"{BUFFER} {item.name} {memory.ptr:#x} {item.data.nbytes}", file=sys.stderr, flush=True)
        places[item.name] = memory.ptr
    shape, function = run.shape, module.ready(run.shape)
    values = launched_arguments(run.arguments, places)
    fill_variables(function, run.arguments, places, cupy.cuda.get_current_stream())
    if shape.cluster is None:
        function(shape.grid, shape.block, values, shared_mem=shape.shared_bytes)
    else:
        launch_in_clusters(function, shape, values, 0)
    cupy.cuda.runtime.deviceSynchronize()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
