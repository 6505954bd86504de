"""Kernels on the GPU, with the emulator beside it for what hardware does not tell."""

from __future__ import annotations

import hashlib
import os
import sys
import tempfile
from dataclasses import replace
from typing import Any

import numpy as np

from kernelmate.backends.base import (
    ArrayArgument,
    EmulationTooLarge,
    Module,
    Run,
    RunResult,
    ScalarArgument,
    UnsupportedInstruction,
)
from kernelmate.backends.cuda.arena import Arena
from kernelmate.backends.cuda.availability import require_gpu
from kernelmate.backends.cuda.faults import fault_of
from kernelmate.backends.emulator import EmulatorBackend
from kernelmate.records import BackendName, Compiled, Finding, Target

CHECKED_BYTES = 1 << 20
CHECKED_THREADS = 1 << 16
CHECKED_INSTRUCTIONS = 100_000_000
"""Launches with at most so many bytes of arrays and threads are first made in the emulator, up to so many instructions."""

COUNTED_INSTRUCTIONS = 1_000_000_000
"""Instructions up to which a launch is emulated for its counters."""

STATIC_SHARED_LIMIT = 48 << 10
"""Bytes of shared memory above which a kernel has to ask for the dynamic part (CUDA C++ Programming Guide, 5.4)."""


class CudaBackend:
    """Runs kernels on one GPU, in this process.

    Small launches that are to be checked are made in the emulator first: it names the line of what is wrong (races,
    reads out of bounds), and what it finds never reaches the GPU, where one bad address costs the whole context.

    Args:
        device: the GPU's number, as CUDA counts them.

    Attributes:
        poisoned: an error has cost the context; every further launch fails until the process is replaced.

    Raises:
        BackendUnavailable: CuPy, a driver or a GPU is missing; says which and what to do.
    """

    name: BackendName = "cuda"

    def __init__(self, device: int = 0) -> None:
        require_gpu()
        import cupy

        self.device = cupy.cuda.Device(device)
        self.device.use()
        self.stream = cupy.cuda.Stream(non_blocking=True)
        self.poisoned = False
        self._emulator = EmulatorBackend()

    def load(self, compiled: Compiled, target: Target) -> CudaModule:
        """Load the compiled code as it is: nothing is compiled again.

        Raises:
            UnsupportedInstruction: the driver cannot load it, as where it was compiled for another architecture.
        """
        import cupy

        if f"sha256:{hashlib.sha256(compiled.cubin).hexdigest()}" != compiled.binary:
            raise UnsupportedInstruction(
                Finding("launch-failure", "error", "the code to load is not the code that was compiled")
            )
        try:
            with self.device:
                function = _function(compiled)
        except cupy.cuda.driver.CUDADriverError as error:
            message = f"the driver cannot load code for {compiled.arch} ({error}); choose the target of this GPU"
            raise UnsupportedInstruction(Finding("unsupported-instruction", "error", message)) from None
        try:
            emulated: Module | None = self._emulator.load(compiled, target)
        except UnsupportedInstruction:
            emulated = None
        return CudaModule(self, function, emulated)


def _function(compiled: Compiled) -> Any:
    """The kernel in the CUBIN, as a cupy.RawKernel."""
    import cupy

    handle, path = tempfile.mkstemp(suffix=".cubin")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(compiled.cubin)
        module = cupy.RawModule(path=path, enable_cooperative_groups=True)
        kernel = module.get_function(compiled.lowered_name)
        kernel.compile()
        return kernel
    finally:
        os.unlink(path)


class CudaModule:
    """One kernel on the GPU. What its `__device__` variables hold stays from launch to launch."""

    def __init__(self, backend: CudaBackend, function: Any, emulated: Module | None) -> None:
        self.backend, self.function, self._emulated = backend, function, emulated

    def run(self, run: Run) -> RunResult:
        """Make one launch: in the emulator where that is cheap and checks are wanted, and unless it is faulty on the GPU."""
        seen = self._emulate(run)
        if seen is not None and any(finding.severity == "error" for finding in seen.findings):
            return seen
        result = self.launch(run)
        if seen is None:
            return result
        return replace(seen, arrays=result.arrays, findings=(*result.findings, *seen.findings))

    def _emulate(self, run: Run) -> RunResult | None:
        if self._emulated is None:
            return None
        size = sum(item.data.nbytes for item in run.arguments if isinstance(item, ArrayArgument))
        small = size <= CHECKED_BYTES and run.shape.threads * run.shape.blocks <= CHECKED_THREADS
        if not run.count and not (run.check and small):
            return None
        limit = CHECKED_INSTRUCTIONS if small else COUNTED_INSTRUCTIONS
        try:
            return self._emulated.run(replace(run, check=run.check and small, total_limit=min(run.total_limit, limit)))
        except EmulationTooLarge:
            return None

    def launch(self, run: Run) -> RunResult:
        """Make the launch on the GPU, whatever it does to it."""
        import cupy

        arrays = [item for item in run.arguments if isinstance(item, ArrayArgument)]
        given = {item.name: item.data.copy() for item in arrays}
        if self.backend.poisoned:
            lost = Finding("launch-failure", "error", "an earlier launch has cost the GPU's context")
            return RunResult(given, (lost,))
        try:
            with self.backend.device, self.backend.stream:
                arena = Arena(arrays, run.schedule_seed)
                self._go(run, arena)
                self.backend.stream.synchronize()
                after, findings = arena.read()
        except cupy.cuda.memory.OutOfMemoryError as error:
            return RunResult(given, (Finding("out-of-memory", "error", f"the GPU's memory does not suffice: {error}"),))
        except (cupy.cuda.driver.CUDADriverError, cupy.cuda.runtime.CUDARuntimeError) as error:
            fault = fault_of(int(error.status), str(error))
            self.backend.poisoned |= fault.sticky
            return RunResult(given, (fault.finding,))
        return RunResult(after, findings)

    def _go(self, run: Run, arena: Arena) -> None:
        shape = run.shape
        if shape.shared_bytes + self.function.shared_size_bytes > STATIC_SHARED_LIMIT:
            self.function.max_dynamic_shared_size_bytes = shape.shared_bytes
        arguments = tuple(
            np.uint64(arena.address(item.name)) if isinstance(item, ArrayArgument) else plain(item)
            for item in run.arguments
        )
        self.function(shape.grid, shape.block, arguments, shared_mem=shape.shared_bytes)


def plain(argument: ScalarArgument) -> np.generic:
    """A scalar in a dtype of NumPy's own with the same bits: CuPy knows no bfloat16 and no float8."""
    value = argument.value
    if value.dtype.kind in "biufc":
        return value
    bits = value.tobytes()
    return np.uint8(bits[0]) if len(bits) == 1 else np.uint16(int.from_bytes(bits, sys.byteorder))
