"""Kernels on the GPU, with the emulator beside it for what hardware does not tell."""

from __future__ import annotations

import hashlib
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, cast

import numpy as np

from kernelmate.backends.base import (
    MOST_PRINTED,
    ArrayArgument,
    Module,
    Run,
    RunResult,
    ScalarArgument,
    UnsupportedInstruction,
)
from kernelmate.backends.cuda.arena import Arena
from kernelmate.backends.cuda.availability import require_gpu
from kernelmate.backends.cuda.clusters import launch_in_clusters
from kernelmate.backends.cuda.crosscheck import occupancy_disagreement, resource_disagreements
from kernelmate.backends.cuda.driver import read_driver
from kernelmate.backends.cuda.emulated_checks import EmulatedChecks, NativeCodeWorth
from kernelmate.backends.cuda.exchange import is_large
from kernelmate.backends.cuda.faults import fault_of
from kernelmate.backends.cuda.gpu_lock import GpuLock
from kernelmate.backends.cuda.initial_state import prepared
from kernelmate.backends.cuda.large_arena import LargeArena, Take
from kernelmate.backends.cuda.loading import CodeCopy, load_failure, load_function
from kernelmate.backends.cuda.memory import bound_memory
from kernelmate.backends.cuda.printing import Printed, captured
from kernelmate.backends.cuda.timing_device import CudaTimingDevice, prepare_timing
from kernelmate.backends.emulator import EmulatorBackend
from kernelmate.backends.emulator_pool import EmulatorPool
from kernelmate.errors import BackendUnavailable, DeviceFailed
from kernelmate.records import BackendName, Compiled, Finding, FindingCode, LaunchShape, Target

_TRAP = re.compile(r"^\s*(?:@!?%p\d+\s+)?trap;", re.MULTILINE)

STATIC_SHARED_LIMIT = 48 << 10
"""Bytes of shared memory above which a kernel has to ask for the dynamic part (CUDA C++ Programming Guide, 5.4)."""


class CudaBackend:
    """Runs kernels on one GPU, in this process.

    Small launches that are to be checked are made in the emulator first: it names the line of what is wrong (races,
    reads out of bounds), and what it finds never reaches the GPU, where one bad address costs the whole context.

    Args:
        device: the GPU's number, as CUDA counts them.
        memory_limit: bytes of its memory that launches may take; None for most of what is free.
        emulators: processes that emulate beside this one; None where there are none.

    Attributes:
        gpu: what the driver says of it.
        memory: what of its memory may be taken.
        poisoned: an error has cost the context; every further launch fails until the process is replaced.
        turns: whose turn it is on the GPU, between all processes of KernelMate.

    Raises:
        BackendUnavailable: CuPy, a driver or a GPU is missing, or the GPU cannot be opened; says which and what to do.
    """

    name: BackendName = "cuda"

    def __init__(self, device: int = 0, memory_limit: int | None = None, emulators: EmulatorPool | None = None) -> None:
        require_gpu(device)
        driver = read_driver()
        assert driver is not None, "a GPU was found"
        self.gpu = driver.gpus[device]
        import cupy

        try:
            self.turns = GpuLock(self.gpu.uuid)
            # Opening a context disturbs what another process may be timing.
            with self.turns.shared():
                self.device = cupy.cuda.Device(device)
                self.device.use()
                self.memory = bound_memory(self.device, memory_limit)
                self.stream = cupy.cuda.Stream(non_blocking=True)
                with self.stream:
                    # The first copies in each direction take a while, which the first verdict need not wait for.
                    cupy.asarray(np.zeros(1 << 20, np.uint8)).get()
                prepare_timing(device, self.gpu.uuid)
        except (cupy.cuda.runtime.CUDARuntimeError, cupy.cuda.memory.OutOfMemoryError) as error:
            raise BackendUnavailable(
                f"GPU {device} ({self.gpu.name}) cannot be opened: {error}.",
                hint="See with nvidia-smi who uses it, and whether it is in exclusive mode.",
            ) from None
        self.multiprocessors = int(self.device.attributes["MultiProcessorCount"])
        self.poisoned = False
        self._remarks: dict[str, None] = {}
        self._emulator, self._emulators, self._worth = EmulatorBackend(), emulators, NativeCodeWorth()

    @contextmanager
    def timer(
        self, versions: Sequence[tuple[Module, LaunchShape]], run: Run, restored: frozenset[str]
    ) -> Iterator[CudaTimingDevice]:
        """Versions that this backend has loaded, ready to be timed on the arguments of `run`.

        Args:
            versions: each with its launch.
            run: the arguments, the same for all.
            restored: names of arrays that are read and written, and get their contents back before every launch.

        Raises:
            TimedFault: the GPU's memory does not suffice.
        """
        timer = CudaTimingDevice(
            self, [(cast("CudaModule", module), shape) for module, shape in versions], run, restored
        )
        try:
            yield timer
        finally:
            if not self.poisoned:
                timer.close()

    def load(self, compiled: Compiled, target: Target, *, emulated: bool = True) -> CudaModule:
        """Load the compiled code as it is: nothing is compiled again.

        Args:
            compiled: the code.
            target: what it is for.
            emulated: with the emulator beside it.

        Raises:
            UnsupportedInstruction: the driver cannot load it, as where it was compiled for another architecture.
            DeviceFailed: the GPU failed.
        """
        import cupy

        if f"sha256:{hashlib.sha256(compiled.cubin).hexdigest()}" != compiled.binary:
            raise UnsupportedInstruction(
                Finding(FindingCode.LAUNCH_FAILURE, "error", "the code to load is not the code that was compiled")
            )
        local_bytes = 0 if compiled.resources is None else compiled.resources.local_bytes
        too_much = self.memory.refusal(compiled.ptx, local_bytes)
        if too_much is not None:
            raise UnsupportedInstruction(Finding(FindingCode.OUT_OF_MEMORY, "error", too_much))
        try:
            with self.device:
                function = load_function(compiled)
                for disagreement in resource_disagreements(compiled, function):
                    self.remark(f"{compiled.lowered_name}: {disagreement}")
        except cupy.cuda.driver.CUDADriverError as error:
            raise UnsupportedInstruction(load_failure(compiled, int(error.status), str(error))) from None
        companion = self.companion(compiled, target) if emulated else None
        return CudaModule(self, compiled, target, function, companion)

    def companion(self, compiled: Compiled, target: Target) -> EmulatedChecks | None:
        """The emulator beside a module of this code; None where it cannot run that."""
        try:
            return EmulatedChecks(self._emulator.load(compiled, target), compiled, target, self._emulators, self._worth)
        except UnsupportedInstruction:
            return None

    def fault(self, status: int, words: str, *, traps: bool) -> Finding:
        """Report of a failed launch; a context that it cost is given up.

        Raises:
            DeviceFailed: the machine is to blame; the context is given up as well.
        """
        try:
            fault = fault_of(status, words, traps=traps)
        except DeviceFailed:
            self.poisoned = True
            raise
        self.poisoned |= fault.sticky
        return fault.finding

    def remark(self, disagreement: str) -> None:
        """Keep a disagreement with the driver, for whoever asked for the verdict."""
        self._remarks[f"the driver disagrees on {disagreement}"] = None

    def take_remarks(self) -> tuple[str, ...]:
        """Remarks since the last call, each once, and those that are always made."""
        taken = (*((MPS_REMARK,) if self.gpu.mps else ()), *self._remarks)
        self._remarks.clear()
        return taken


MPS_REMARK = "the GPU is shared by NVIDIA's Multi-Process Service, under which the fault of one kernel ends other programs' work too"


class CudaModule:
    """One kernel on the GPU. What its `__device__` variables hold stays from launch to launch.

    Attributes:
        function: the cupy.RawKernel of ordinary launches, with the driver's word on registers and memory.
        prints: it may print, if only that an assert failed.
        traps: it holds an instruction that ends it.
    """

    def __init__(
        self, backend: CudaBackend, compiled: Compiled, target: Target, function: Any, companion: EmulatedChecks | None
    ) -> None:
        self.backend, self.compiled, self.target, self.function = backend, compiled, target, function
        self._companion = companion
        self._cooperative: Any = None
        self.prints = any(word in compiled.ptx for word in ("vprintf", "__assertfail"))
        self.traps = _TRAP.search(compiled.ptx) is not None
        self._checked: set[tuple[int, int]] = set()
        self._elsewhere: dict[int, CodeCopy] = {}

    def foresee(self, runs: Iterable[Run]) -> None:
        """As `Foresees.foresee`."""
        if self._companion is not None:
            self._companion.foresee(runs)

    def run(self, run: Run) -> RunResult:
        """Make one launch: in the emulator where that is cheap and checks are wanted, and unless it is faulty on the GPU.

        Pointers off their alignment, which many a right kernel does not bear, reach the GPU only where the emulator
        has borne them: there it costs nothing to find out.
        """
        seen = None if self._companion is None or is_large(run) else self._companion.seen(run)
        if seen is not None and any(finding.severity == "error" for finding in seen.findings):
            return seen
        result = self.launch(run if seen is not None else aligned(run))
        if seen is None:
            return result
        return replace(
            seen,
            arrays=result.arrays,
            findings=(*result.findings, *seen.findings),
            printed=result.printed or seen.printed,
        )

    def launch(self, run: Run, take: Take | None = None, begun: Callable[[], None] | None = None) -> RunResult:
        """Make the launch on the GPU, whatever it does to it.

        Args:
            run: the launch.
            take: how arrays of a large launch are read afterwards, as of `LargeArena`.
            begun: called once no other process keeps the GPU to itself.

        Raises:
            DeviceFailed: the GPU failed, which says nothing of the kernel.
        """
        import cupy

        arrays = [item for item in run.arguments if isinstance(item, ArrayArgument)]
        given = {item.name: item.data for item in arrays}
        if self.backend.poisoned:
            lost = Finding(FindingCode.LAUNCH_FAILURE, "error", "an earlier launch has cost the GPU's context")
            return RunResult(given, (lost,))
        printed = Printed()
        try:
            with self.backend.turns.shared(), self.backend.device, self.backend.stream:
                if begun is not None:
                    begun()
                if run.shape.cooperative and run.shape.blocks > self._blocks_at_once(run.shape):
                    return RunResult(given, (fault_of(720, "cooperative launch too large", traps=False).finding,))
                large = take is not None or is_large(run)
                arena = LargeArena(arrays, run.schedule_seed, take) if large else Arena(arrays, run.schedule_seed)
                condition = prepared(int(self.backend.device.id), self.backend.stream, run.schedule_seed)
                with condition, captured(self.prints) as printed:
                    self._go(run, arena)
                    self.backend.stream.synchronize()
                after, findings = arena.read()
                arena.scrub()
        except cupy.cuda.memory.OutOfMemoryError as error:
            return RunResult(
                given, (Finding(FindingCode.OUT_OF_MEMORY, "error", f"the GPU's memory does not suffice: {error}"),)
            )
        except (cupy.cuda.driver.CUDADriverError, cupy.cuda.runtime.CUDARuntimeError) as error:
            return RunResult(given, (self._fault(int(error.status), str(error), printed),), printed=printed.text)
        if printed.flooded:
            findings += (Finding(FindingCode.OUTPUT_FLOOD, "error", f"prints more than {MOST_PRINTED} bytes"),)
        return RunResult(after, findings, printed=printed.text)

    def _fault(self, status: int, words: str, printed: Printed) -> Finding:
        """The finding of a failed launch, with the assert that failed."""
        finding = self.backend.fault(status, words, traps=self.traps)
        failed = printed.failed_assert
        if failed is None:
            return finding
        condition, line = failed
        return replace(finding, line=line, message=f"assertion {condition!r} of line {line} failed ({words})")

    def _go(self, run: Run, arena: Arena | LargeArena) -> None:
        shape, function = run.shape, self.ready(run.shape)
        arguments = tuple(
            np.uint64(arena.address(item.name)) if isinstance(item, ArrayArgument) else plain(item)
            for item in run.arguments
        )
        if shape.cluster is None:
            function(shape.grid, shape.block, arguments, shared_mem=shape.shared_bytes)
        else:
            launch_in_clusters(function, shape, arguments, self.backend.stream.ptr)

    def ready_elsewhere(self, shape: LaunchShape, place: int) -> CodeCopy:
        """The kernel for a launch from a copy of the code at another place of the GPU's memory; one for each number."""
        if place not in self._elsewhere:
            self._elsewhere[place] = CodeCopy.loaded(self.compiled)
        twin = self._elsewhere[place]
        if shape.shared_bytes + self.function.shared_size_bytes > STATIC_SHARED_LIMIT:
            twin.take_shared(shape.shared_bytes)
        return twin

    def ready(self, shape: LaunchShape) -> Any:
        """The cupy.RawKernel for a launch, with leave to take its shared memory, and held against our occupancy."""
        function = self.function
        if shape.cooperative:
            self._cooperative = self._cooperative or load_function(self.compiled, cooperative=True)
            function = self._cooperative
        if shape.shared_bytes + function.shared_size_bytes > STATIC_SHARED_LIMIT:
            function.max_dynamic_shared_size_bytes = shape.shared_bytes
        key = (shape.threads, shape.shared_bytes)
        if key not in self._checked:
            self._checked.add(key)
            sms = self.backend.multiprocessors
            disagreement = occupancy_disagreement(self.compiled, self.target, function, shape, sms)
            if disagreement is not None:
                self.backend.remark(f"{self.compiled.lowered_name}: {disagreement}")
        return function

    def _blocks_at_once(self, shape: LaunchShape) -> int:
        """Blocks that the device holds at the same time, by the driver's own count."""
        import cupy

        per_sm = cupy.cuda.driver.occupancyMaxActiveBlocksPerMultiprocessor(
            self.ready(shape).kernel.ptr, shape.threads, shape.shared_bytes
        )
        return int(per_sm) * self.backend.multiprocessors


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
