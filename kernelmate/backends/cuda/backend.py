"""Kernels on the GPU, with the emulator beside it for what hardware does not tell."""

from __future__ import annotations

import hashlib
import os
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, cast

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
from kernelmate.backends.cuda.clusters import launch_in_clusters
from kernelmate.backends.cuda.faults import fault_of
from kernelmate.backends.cuda.rig import CudaRig
from kernelmate.backends.cuda.sensors import gpu_uuid
from kernelmate.backends.cuda.turns import Turns
from kernelmate.backends.emulator import EmulatorBackend
from kernelmate.records import BackendName, Compiled, Finding, LaunchShape, Target

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
        turns: whose turn it is on the GPU, between all processes of KernelMate.

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
        self.turns = Turns(gpu_uuid(cupy.cuda.runtime.getDeviceProperties(device)["uuid"]))
        self._emulator = EmulatorBackend()

    @contextmanager
    def rig(
        self, versions: Sequence[tuple[Module, LaunchShape]], run: Run, restored: frozenset[str]
    ) -> Iterator[CudaRig]:
        """Versions that this backend has loaded, ready to be timed on the arguments of `run`.

        Args:
            versions: each with its launch.
            run: the arguments, the same for all.
            restored: names of arrays that are read and written, and get their contents back before every launch.

        Raises:
            TimedFault: the GPU's memory does not suffice.
        """
        rig = CudaRig(self, [(cast("CudaModule", module), shape) for module, shape in versions], run, restored)
        try:
            yield rig
        finally:
            if not self.poisoned:
                rig.close()

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
                functions = {together: _function(compiled, together) for together in (False, True)}
        except cupy.cuda.driver.CUDADriverError as error:
            message = f"the driver cannot load code for {compiled.arch} ({error}); choose the target of this GPU"
            raise UnsupportedInstruction(Finding("unsupported-instruction", "error", message)) from None
        try:
            emulated: Module | None = self._emulator.load(compiled, target)
        except UnsupportedInstruction:
            emulated = None
        return CudaModule(self, functions, emulated)


def _function(compiled: Compiled, cooperative: bool) -> Any:
    """The kernel in the CUBIN, as a cupy.RawKernel.

    A cooperative one silently cuts a grid down to the blocks that are on the device at once, so it is for cooperative
    launches alone.
    """
    import cupy

    handle, path = tempfile.mkstemp(suffix=".cubin")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(compiled.cubin)
        module = cupy.RawModule(path=path, enable_cooperative_groups=cooperative)
        kernel = module.get_function(compiled.lowered_name)
        kernel.compile()
        return kernel
    finally:
        os.unlink(path)


class CudaModule:
    """One kernel on the GPU. What its `__device__` variables hold stays from launch to launch."""

    def __init__(self, backend: CudaBackend, functions: Mapping[bool, Any], emulated: Module | None) -> None:
        self.backend, self._functions, self._emulated = backend, functions, emulated

    @property
    def function(self) -> Any:
        """The cupy.RawKernel of ordinary launches, with the driver's word on registers and memory."""
        return self._functions[False]

    def run(self, run: Run) -> RunResult:
        """Make one launch: in the emulator where that is cheap and checks are wanted, and unless it is faulty on the GPU.

        Pointers off their alignment, which many a right kernel does not bear, reach the GPU only where the emulator
        has borne them: there it costs nothing to find out.
        """
        seen = self._emulate(run)
        if seen is not None and any(finding.severity == "error" for finding in seen.findings):
            return seen
        result = self.launch(run if seen is not None else aligned(run))
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
            with self.backend.turns.shared(), self.backend.device, self.backend.stream:
                if run.shape.cooperative and run.shape.blocks > self._blocks_at_once(run.shape):
                    return RunResult(given, (fault_of(720, "cooperative launch too large").finding,))
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
        shape, function = run.shape, self.ready(run.shape)
        arguments = tuple(
            np.uint64(arena.address(item.name)) if isinstance(item, ArrayArgument) else plain(item)
            for item in run.arguments
        )
        if shape.cluster is None:
            function(shape.grid, shape.block, arguments, shared_mem=shape.shared_bytes)
        else:
            launch_in_clusters(function, shape, arguments, self.backend.stream.ptr)

    def ready(self, shape: LaunchShape) -> Any:
        """The cupy.RawKernel for a launch, with leave to take its shared memory."""
        function = self._functions[shape.cooperative]
        if shape.shared_bytes + function.shared_size_bytes > STATIC_SHARED_LIMIT:
            function.max_dynamic_shared_size_bytes = shape.shared_bytes
        return function

    def _blocks_at_once(self, shape: LaunchShape) -> int:
        """Blocks that the device holds at the same time, by the driver's own count."""
        import cupy

        per_sm = cupy.cuda.driver.occupancyMaxActiveBlocksPerMultiprocessor(
            self.ready(shape).kernel.ptr, shape.threads, shape.shared_bytes
        )
        return int(per_sm) * int(self.backend.device.attributes["MultiProcessorCount"])


def aligned(run: Run) -> Run:
    """The same launch with every pointer on its alignment."""
    if not any(isinstance(item, ArrayArgument) and item.misalign for item in run.arguments):
        return run
    arguments = (replace(item, misalign=0) if isinstance(item, ArrayArgument) else item for item in run.arguments)
    return replace(run, arguments=tuple(arguments))


def plain(argument: ScalarArgument) -> np.generic:
    """A scalar in a dtype of NumPy's own with the same bits: CuPy knows no bfloat16 and no float8."""
    value = argument.value
    if value.dtype.kind in "biufc":
        return value
    bits = value.tobytes()
    return np.uint8(bits[0]) if len(bits) == 1 else np.uint16(int.from_bytes(bits, sys.byteorder))
