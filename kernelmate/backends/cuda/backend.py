"""The CUDA backend: kernels run on the GPU, with the emulator beside it for checks that hardware cannot make."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, cast

import numpy as np

from kernelmate.backends.base import MOST_PRINTED, ArrayArgument, Module, Run, RunResult, UnsupportedInstruction
from kernelmate.backends.cuda.arena import Arena, LargeArena, Take
from kernelmate.backends.cuda.driver import read_driver, require_gpu
from kernelmate.backends.cuda.emulated_checks import EarlierLaunches, EmulatedChecks
from kernelmate.backends.cuda.exchange import is_large
from kernelmate.backends.cuda.gpu_lock import GpuLock
from kernelmate.backends.cuda.initial_state import prepared_gpu
from kernelmate.backends.cuda.launching import launch_in_clusters, launched_arguments
from kernelmate.backends.cuda.loading import CodeCopy, fault_of, load_failure, load_function
from kernelmate.backends.cuda.memory import bound_memory, fill_variables
from kernelmate.backends.cuda.pipeline_timing import ReplayedVersion
from kernelmate.backends.cuda.printing import Printed, captured_output
from kernelmate.backends.cuda.textures import TextureObjects
from kernelmate.backends.cuda.timing_device import CudaTimingDevice, prepare_timing
from kernelmate.backends.emulator import EmulatorBackend
from kernelmate.backends.emulator_pool import EmulatorPool
from kernelmate.compiler import occupancy
from kernelmate.errors import BackendUnavailable, DeviceFailed
from kernelmate.records import BackendName, Compiled, Finding, FindingCode, LaunchShape, Resources, Target


def resource_disagreements(compiled: Compiled, target: Target, function: Any) -> Iterator[str]:
    """Returns differences of registers, memory or largest block from the attributes of a loaded cupy.RawKernel.

    The driver's largest block is one whose registers fit, so ours is computed with the target's register file.
    """
    ours = compiled.resources
    if ours is None:
        return
    pairs = (
        ("registers", ours.registers, function.num_regs),
        ("static shared bytes", ours.shared_bytes, function.shared_size_bytes),
        ("local bytes per thread", ours.local_bytes, function.local_size_bytes),
        ("largest block", _largest_block(target, ours), function.max_threads_per_block),
    )
    for name, read, told in pairs:
        if read != told:
            yield f"{name}: {read} by the compiled code, {told} by the driver"


def _largest_block(target: Target, resources: Resources) -> int:
    """Returns the maximum threads, in whole warps, of a block that a multiprocessor can hold.

    If the occupancy of no block is known, it is the maximum that the kernel's launch bounds allow.
    """
    sizes = range(resources.max_threads, 0, -32)
    fitting = (
        size for size in sizes if occupancy(target, resources, LaunchShape((1, 1, 1), (size, 1, 1))).blocks_per_sm
    )
    return next(fitting, resources.max_threads)


def occupancy_disagreement(
    compiled: Compiled, target: Target, function: Any, shape: LaunchShape, sms: int
) -> str | None:
    """Returns the difference of the blocks per SM from the driver's count.

    The result is None if both counts are equal, or if the target is another GPU.

    Args:
        compiled: the kernel.
        target: the target of the computed occupancy.
        function: the loaded cupy.RawKernel, whose limit of shared memory permits the launch.
        shape: the launch.
        sms: multiprocessors of this GPU.
    """
    import cupy

    if compiled.resources is None or target.sms != sms:
        return None
    ours = occupancy(target, compiled.resources, shape).blocks_per_sm
    told = int(
        cupy.cuda.driver.occupancyMaxActiveBlocksPerMultiprocessor(
            function.kernel.ptr, shape.threads, shape.shared_bytes
        )
    )
    if ours == told:
        return None
    return f"blocks on an SM at {shape.threads} threads: {ours} by our arithmetic, {told} by the driver"


_TRAP = re.compile(r"^\s*(?:@!?%p\d+\s+)?trap;", re.MULTILINE)

STATIC_SHARED_LIMIT = 48 << 10
"""Bytes of shared memory above which a kernel must opt in to more dynamic shared memory (CUDA C++ Programming Guide, 5.4)."""


class CudaBackend:
    """Runs kernels on one GPU, in this process.

    Small launches with checks run in the emulator first: it names the lines of errors (races, out-of-bounds reads), and
    a faulty launch never reaches the GPU, where one bad address destroys the context.

    Args:
        device: the GPU's number, as CUDA counts them.
        memory_limit: bytes of its memory that launches may use; None for most of the free memory.
        emulators: processes that emulate beside this one; None if there are none.

    Attributes:
        gpu: the GPU's properties, as the driver reports them.
        memory: limits on the memory of the GPU that may be used.
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
            # Opening a context disturbs timings of other processes.
            with self.turns.shared():
                self.device = cupy.cuda.Device(device)
                self.device.use()
                self.memory = bound_memory(self.device, memory_limit)
                self.stream = cupy.cuda.Stream(non_blocking=True)
                with self.stream:
                    # The first copies in each direction are slow, and the first verdict need not wait for them.
                    cupy.asarray(np.zeros(1 << 20, np.uint8)).get()
                prepare_timing(device, self.gpu.uuid)
        except (cupy.cuda.runtime.CUDARuntimeError, cupy.cuda.memory.OutOfMemoryError) as error:
            raise BackendUnavailable(
                f"GPU {device} ({self.gpu.name}) cannot be opened: {error}.",
                hint="Run nvidia-smi to see which processes use it, and whether it is in exclusive mode.",
            ) from None
        self.multiprocessors = int(self.device.attributes["MultiProcessorCount"])
        self.poisoned = False
        self._remarks: dict[str, None] = {}
        self._emulator, self._emulators, self._earlier = EmulatorBackend(), emulators, EarlierLaunches()

    @contextmanager
    def timer(
        self, versions: Sequence[tuple[Module | ReplayedVersion, LaunchShape]], run: Run, restored: frozenset[str]
    ) -> Iterator[CudaTimingDevice]:
        """Returns a timer of loaded versions for the arguments of `run`.

        Args:
            versions: each with its launch.
            run: the arguments, the same for all.
            restored: names of arrays that are read and written, and get their contents back before every launch.

        Raises:
            TimedFault: the GPU's memory does not suffice.
        """
        timer = CudaTimingDevice(
            self, [(cast("CudaModule | ReplayedVersion", module), shape) for module, shape in versions], run, restored
        )
        try:
            yield timer
        finally:
            if not self.poisoned:
                timer.close()

    def load(self, compiled: Compiled, target: Target, *, emulated: bool = True) -> CudaModule:
        """Loads the compiled code without recompiling.

        Args:
            compiled: the code.
            target: its target.
            emulated: True to run the emulator beside it.

        Raises:
            UnsupportedInstruction: the driver cannot load it, for example because it was compiled for another
            architecture.
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
                for disagreement in resource_disagreements(compiled, target, function):
                    self.remark(f"{compiled.lowered_name}: {disagreement}")
        except cupy.cuda.driver.CUDADriverError as error:
            raise UnsupportedInstruction(load_failure(compiled, int(error.status), str(error))) from None
        companion = self.companion(compiled, target) if emulated else None
        return CudaModule(self, compiled, target, function, companion)

    def companion(self, compiled: Compiled, target: Target) -> EmulatedChecks | None:
        """Returns the emulator's module of the same code; None if the emulator cannot run it."""
        try:
            return EmulatedChecks(
                self._emulator.load(compiled, target), compiled, target, self._emulators, self._earlier
            )
        except UnsupportedInstruction:
            return None

    def fault(self, status: int, words: str, *, traps: bool) -> Finding:
        """Returns the finding of a failed launch; marks the context as lost if it is.

        Raises:
            DeviceFailed: the machine is to blame; the context is lost as well.
        """
        try:
            fault = fault_of(status, words, traps=traps)
        except DeviceFailed:
            self.poisoned = True
            raise
        self.poisoned |= fault.sticky
        return fault.finding

    def remark(self, disagreement: str) -> None:
        """Records a disagreement with the driver for the verdict's notes."""
        self._remarks[f"the driver disagrees on {disagreement}"] = None

    def take_remarks(self) -> tuple[str, ...]:
        """Returns remarks since the last call, each once, and permanent ones."""
        taken = (*((MPS_REMARK,) if self.gpu.mps else ()), *self._remarks)
        self._remarks.clear()
        return taken


_TO_HOST = 2
"""`cudaMemcpyDeviceToHost`."""

MPS_REMARK = "the GPU is shared by NVIDIA's Multi-Process Service, under which the fault of one kernel ends other programs' work too"


class CudaModule:
    """One kernel on the GPU. Its `__device__` variables keep their values between launches.

    Attributes:
        function: the cupy.RawKernel of ordinary launches, with the driver's register and memory attributes.
        prints: True if it may print, including failed asserts.
        traps: True if it contains a trap instruction.
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
        """Implements `Foresees.foresee`."""
        if self._companion is not None:
            self._companion.foresee(runs)

    def run(self, run: Run) -> RunResult:
        """Makes one launch: in the emulator first if that is cheap and checks are requested, then on the GPU unless faulty.

        Misaligned pointers, which many correct kernels do not support, reach the GPU only if the emulator accepted
        them, where a failure is harmless.
        """
        seen = None if self._companion is None or is_large(run) else self._companion.seen(run)
        if seen is not None and any(finding.severity == "error" for finding in seen.findings):
            return seen
        result = self.launch(run if seen is not None else with_aligned_pointers(run))
        if seen is None:
            return result
        return replace(
            seen,
            arrays=result.arrays,
            findings=(*result.findings, *seen.findings),
            printed=result.printed or seen.printed,
        )

    def launch(self, run: Run, take: Take | None = None, begun: Callable[[], None] | None = None) -> RunResult:
        """Makes the launch on the GPU, without the emulator before it.

        Nothing is launched if an earlier launch destroyed the context, or if a cooperative launch is too large; both are
        findings.

        Args:
            run: the launch.
            take: reads the arrays of a large launch afterwards, as in `LargeArena`.
            begun: called once this process may use the GPU, before the launch.

        Raises:
            DeviceFailed: the GPU failed, which says nothing about the kernel.
        """
        import cupy

        every = [item for item in run.arguments if isinstance(item, ArrayArgument)]
        arrays = [item for item in every if item.variable is None]
        given = {item.name: item.data for item in every}
        if self.backend.poisoned:
            lost = Finding(FindingCode.LAUNCH_FAILURE, "error", "an earlier launch destroyed the GPU's context")
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
                condition = prepared_gpu(int(self.backend.device.id), self.backend.stream, run.schedule_seed)
                with condition, captured_output(self.prints) as printed:
                    variables = self._go(run, arena)
                    self.backend.stream.synchronize()
                after, findings = arena.read()
                after.update(self._variables_after(every, variables, take))
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
        """Returns the finding of a failed launch, with the failed assert."""
        finding = self.backend.fault(status, words, traps=self.traps)
        failed = printed.failed_assert
        if failed is None:
            return finding
        condition, line = failed
        return replace(finding, line=line, message=f"assertion {condition!r} of line {line} failed ({words})")

    def _go(self, run: Run, arena: Arena | LargeArena) -> dict[str, int]:
        """Makes the launch, and returns the addresses of its variables."""
        shape, function = run.shape, self.ready(run.shape)
        places = {name: arena.address(name) for name in arena.spans}
        objects = TextureObjects(run.arguments, places)
        objects.fill(self.backend.stream)
        arguments = launched_arguments(run.arguments, objects.places)
        variables = fill_variables(function, run.arguments, places, self.backend.stream)
        if shape.cluster is None:
            function(shape.grid, shape.block, arguments, shared_mem=shape.shared_bytes)
        else:
            launch_in_clusters(function, shape, arguments, self.backend.stream.ptr)
        if objects:
            objects.collect(self.backend.stream)
            # The launch uses them until it has ended.
            self.backend.stream.synchronize()
        return variables

    def _variables_after(
        self, arguments: Sequence[ArrayArgument], variables: Mapping[str, int], take: Take | None
    ) -> dict[str, Any]:
        """Returns the contents of variables after a launch, as `LargeArena` returns those of arrays."""
        import cupy

        found: dict[str, Any] = {}
        for item in arguments:
            if item.variable is None:
                continue
            found[item.name] = item.data
            if item.name in variables and take is not None:
                found[item.name] = take(item, variables[item.name])
            elif item.name in variables:
                host = np.empty(item.data.shape, item.data.dtype)
                cupy.cuda.runtime.memcpy(host.ctypes.data, variables[item.name], host.nbytes, _TO_HOST)
                found[item.name] = cupy.asarray(host) if item.device else host
        return found

    def ready_elsewhere(self, shape: LaunchShape, place: int) -> CodeCopy:
        """Returns the kernel for a launch from a copy of the code at another address in the GPU's memory.

        Each value of `place` has a copy of its own.
        """
        if place not in self._elsewhere:
            self._elsewhere[place] = CodeCopy.loaded(self.compiled)
        twin = self._elsewhere[place]
        if shape.shared_bytes + self.function.shared_size_bytes > STATIC_SHARED_LIMIT:
            twin.take_shared(shape.shared_bytes)
        return twin

    def ready(self, shape: LaunchShape) -> Any:
        """Returns the cupy.RawKernel prepared for a launch's shared memory, after comparing occupancy with the driver's."""
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
        """Returns the number of resident blocks on the device, by the driver's count."""
        import cupy

        per_sm = cupy.cuda.driver.occupancyMaxActiveBlocksPerMultiprocessor(
            self.ready(shape).kernel.ptr, shape.threads, shape.shared_bytes
        )
        return int(per_sm) * self.backend.multiprocessors


def with_aligned_pointers(run: Run) -> Run:
    """Returns the launch with every pointer aligned."""
    if not any(isinstance(item, ArrayArgument) and item.misalign for item in run.arguments):
        return run
    arguments = (replace(item, misalign=0) if isinstance(item, ArrayArgument) else item for item in run.arguments)
    return replace(run, arguments=tuple(arguments))
