"""Serves a session's tasks one after another: selects the backend, reports progress, and turns failures into messages.

Nothing heavy is loaded with this module: it is imported before the process is tied to its parent's life.
"""

from __future__ import annotations

import errno
import functools
import queue
import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, cast

from kernelmate.errors import BackendUnavailable, DeviceFailed, KernelmateError
from kernelmate.worker import protocol
from kernelmate.worker.unpacking import UnpackedFiles

if TYPE_CHECKING:
    from kernelmate.backends.base import Backend
    from kernelmate.backends.cuda.backend import CudaBackend
    from kernelmate.backends.cuda.emulated_checks import EmulatedChecks
    from kernelmate.backends.cuda.isolated import IsolatedCuda, Runner
    from kernelmate.backends.emulator_pool import EmulatorPool
    from kernelmate.backends.parallel_emulator import ParallelEmulator
    from kernelmate.records import Judgement, JudgeTask

PROGRESS_INTERVAL_S = 0.05
"""Minimum interval between two progress messages of one stage; a new stage is always reported at once."""

AHEAD_STEP_S = 0.5
"""Longest step of a user's reference that is prefetched, since a task may have to wait for it."""


MOST_BEGUN = 2
"""Maximum number of announced tasks whose launches are kept until they are judged."""


class TaskServer:
    """Serves tasks, one after another.

    Args:
        hello: the session's first message.
        arrival: folder of the user's files that come with tasks; None if they are on this machine.
        send: sends a message to the session.
        emulators: processes that emulate in parallel.
        runner: the process that runs kernels under judgement on a GPU; None to run them here.
        announced: requests to start launches of coming tasks during the current one, with a GPU.
    """

    def __init__(
        self,
        hello: protocol.Hello,
        arrival: UnpackedFiles | None,
        send: Callable[[protocol.FromChild], None],
        emulators: EmulatorPool | None,
        runner: Runner | None = None,
        announced: queue.SimpleQueue[protocol.PrefetchRequest] | None = None,
    ) -> None:
        self._hello, self._arrival, self._send, self._emulators = hello, arrival, send, emulators
        self._runner = runner
        self._announced: queue.SimpleQueue[protocol.PrefetchRequest] = announced or queue.SimpleQueue()
        self._begun: list[tuple[JudgeTask, EmulatedChecks]] = []
        self._slowest_reference_s = 0.0
        self._helped: ParallelEmulator | None = None

    def serve(self, request: protocol.JudgeRequest | protocol.TraceRequest) -> bool:
        """Serves one task; returns False if this process must not serve another one."""
        report = _Reporter(request.number, self._send)
        number = request.number
        backend: Backend | None = None
        try:
            task = self._settled(request.task, request.files)
            if isinstance(request, protocol.TraceRequest):
                self._send(protocol.TraceResult(number, _trace(task, report)))
                return True
            backend = self._backend(task)
            if self._runner is not None and backend.name == "cuda":
                cast("IsolatedCuda", backend).meanwhile = functools.partial(self._begin_announced, task, report)
            judgement = _judge(task, backend, report)
            self._send(protocol.TaskResult(number, judgement, last=is_exhausted(backend)))
        except KernelmateError as error:
            if self._arrival is not None:
                error = self._arrival.homeward(error, request.task)
            self._send(protocol.refusal(number, error, last=is_exhausted(backend)))
        except MemoryError as error:
            self._send(protocol.OutOfMemory(number, str(error) or "an allocation failed"))
            return False
        except BaseException as error:  # noqa: BLE001 -- whatever it is, the session must hear of it
            if _ran_out_of_memory(error):
                self._send(protocol.OutOfMemory(number, str(error)))
                return False
            traceback.print_exc()
            self._send(protocol.ChildFailed(number, f"{type(error).__name__}: {error}"[:2000]))
            return False
        self._slowest_reference_s = report.slowest_reference_s
        return not is_exhausted(backend)

    def work_ahead(self, request: protocol.PrefetchRequest, interrupted: Callable[[], bool]) -> None:
        """Prefetch what a task may need, until a task arrives; errors are left to the task.

        A reference with long calls is not prefetched, because another task would have to wait for the call's end.
        """
        if self._slowest_reference_s > AHEAD_STEP_S:
            return
        from kernelmate.checks.prefetch import work_ahead

        try:
            work_ahead(self._settled(request.task, {}), interrupted)
        except Exception:  # noqa: BLE001 -- nobody has asked for anything yet
            traceback.print_exc()

    def begin(self, request: protocol.PrefetchRequest) -> None:
        """Starts work for the next quick evaluation during the present one; errors are left to that evaluation."""
        if self._slowest_reference_s > AHEAD_STEP_S or request.task.backend != "emulator":
            return
        from kernelmate.checks.prefetch import begin_glance

        try:
            begin_glance(self._settled(request.task, {}), self._backend(request.task))
        except Exception:  # noqa: BLE001 -- nobody has asked for anything yet
            traceback.print_exc()

    def _begin_announced(self, current: JudgeTask, report: Callable[[str, int, int], None]) -> None:
        """Starts emulating the launches of one announced task, if there is any, while the current one is timed.

        Errors are left to the announced task. The user's Python may run, which is reported with its stage and its time limit.
        """
        from kernelmate.backends.cuda.isolated import EmulationAhead
        from kernelmate.checks.judge import TIMING_STAGE, start_launches

        try:
            task = self._announced.get_nowait().task
        except queue.Empty:
            return
        if _judges_the_same(task, current):
            return
        try:
            ahead = EmulationAhead(cast("IsolatedCuda", self._gpu()))
            start_launches(self._settled(task, {}), ahead, report)
        except Exception:  # noqa: BLE001 -- nobody has asked for anything yet
            traceback.print_exc()
        else:
            if ahead.companion is not None:
                self._begun = [*self._begun, (task, ahead.companion)][-MOST_BEGUN:]
        report(TIMING_STAGE, 0, 1)

    def _take_begun(self, task: JudgeTask) -> EmulatedChecks | None:
        """Returns the emulated launches that were started for this task; None if there are none."""
        found = [one for one in self._begun if _judges_the_same(one[0], task)]
        self._begun = [one for one in self._begun if one not in found]
        return found[0][1] if found else None

    def _settled(self, task: JudgeTask, files: Mapping[str, bytes]) -> JudgeTask:
        if self._arrival is None:
            return task
        self._arrival.unpack(files)
        return self._arrival.settle(task)

    def _backend(self, task: JudgeTask) -> Backend:
        """Returns the backend that the task names.

        Raises:
            BackendUnavailable: the GPU cannot be used.
        """
        if task.backend == "emulator":
            from kernelmate.backends.emulator import EmulatorBackend

            if self._emulators is None:
                return EmulatorBackend()
            from kernelmate.backends.parallel_emulator import ParallelEmulator

            self._helped = self._helped or ParallelEmulator(self._emulators)
            return self._helped
        gpu = self._gpu()
        if self._runner is not None:
            isolated = cast("IsolatedCuda", gpu)
            isolated.limit(task.timeout_s)
            isolated.foreseen = self._take_begun(task)
        return gpu

    def _gpu(self) -> CudaBackend | IsolatedCuda:
        return opened_gpu(self._hello.device, self._hello.device_memory_limit, self._emulators, self._runner)


def _judges_the_same(one: JudgeTask, other: JudgeTask) -> bool:
    """Returns True if both tasks make the same launches."""
    return (one.candidate, one.baseline, one.reference_version, one.sizes, one.seed, one.directory) == (
        other.candidate, other.baseline, other.reference_version, other.sizes, other.seed, other.directory,
    )  # fmt: skip


class _Reporter:
    """Sends the judge's progress as messages, at a limited rate, and remembers the last stage for failure messages.

    Attributes:
        stage: the last stage reported.
        slowest_reference_s: seconds of the longest step in which the user's Python ran.
    """

    def __init__(self, number: int, send: Callable[[protocol.FromChild], None]) -> None:
        self._number = number
        self._send = send
        self._sent = float("-inf")
        self._told = time.monotonic()
        self.stage = "start"
        self.slowest_reference_s = 0.0

    def __call__(self, stage: str, done: int, total: int) -> None:
        now = time.monotonic()
        if self.stage == "reference":
            self.slowest_reference_s = max(self.slowest_reference_s, now - self._told)
        self._told = now
        if stage == self.stage and now - self._sent < PROGRESS_INTERVAL_S:
            return
        self.stage, self._sent = stage, now
        self._send(protocol.ProgressMessage(self._number, stage, done, total))


def _trace(task: JudgeTask, report: Callable[[str, int, int], None]) -> str:
    """Returns the graph of the reference, traced in the reference process if there is one."""
    from kernelmate.checks import reference_process
    from kernelmate.synthesis.results import traced_text

    report("reference", 0, 1)
    contract, directory = task.candidate.contract, Path(task.directory)
    process = reference_process.current()
    return traced_text(contract, directory) if process is None else process.trace(contract, directory)


def is_exhausted(backend: Backend | None = None) -> bool:
    """Returns True if no more tasks can be served: the GPU's context, or the reference process, has failed."""
    from kernelmate.checks import reference_process

    process = reference_process.current()
    return (backend is not None and backend.poisoned) or (process is not None and process.ended is not None)


def _judge(task: JudgeTask, backend: Backend, report: Callable[[str, int, int], None]) -> Judgement:
    from kernelmate.checks.judge import judge
    from kernelmate.worker.timers import model_for, timer_for

    judgement = judge(task, backend, report, timer_for(task, backend), model_for(task, backend))
    if backend.name != "cuda":
        return judgement
    gpu = cast("CudaBackend | IsolatedCuda", backend)
    judgement = replace(judgement, reasons=judgement.reasons + gpu.take_remarks())
    if not (task.sanitize or task.profile):
        return judgement
    if task.candidate.stages:
        line = "NVIDIA's tools were not run: they start one kernel, and this is a pipeline"
        return replace(judgement, reasons=(*judgement.reasons, line))
    from kernelmate.worker.nvidia.examine import examine

    return examine(task, judgement, int(own_of(gpu).device.id), report)


def _ran_out_of_memory(error: BaseException) -> bool:
    """Returns True if an error means that the system, or a library loader, ran out of memory."""
    if isinstance(error, OSError):
        return error.errno == errno.ENOMEM
    # glibc: dl-map-segments.h and dl-load.c.
    signs = ("failed to map segment", "cannot allocate memory", "cannot create shared object descriptor")
    return isinstance(error, ImportError) and any(sign in str(error).lower() for sign in signs)


def own_of(gpu: CudaBackend | IsolatedCuda) -> CudaBackend:
    """Returns the backend in this process."""
    from kernelmate.backends.cuda.isolated import IsolatedCuda

    return gpu.own if isinstance(gpu, IsolatedCuda) else gpu


@functools.cache
def opened_gpu(
    device: int, memory_limit: int | None, emulators: EmulatorPool | None, runner: Runner | None
) -> CudaBackend | IsolatedCuda:
    """Returns the backend of a GPU, opened once per process, and in the runner if there is one.

    Raises:
        BackendUnavailable: the GPU cannot be used.
    """
    from kernelmate.backends.cuda.backend import CudaBackend

    if runner is None:
        return CudaBackend(device, memory_limit, emulators)
    from kernelmate.backends.cuda.isolated import IsolatedCuda

    runner.open(device, memory_limit)
    own = CudaBackend(device, memory_limit, emulators)
    # CuPy imports it, with SciPy, at the first NumPy function of one of its arrays; importing here overlaps with the
    # runner's start.
    import cupyx  # noqa: F401

    try:
        runner.receive()
    except DeviceFailed as error:
        raise BackendUnavailable(error.message, hint=error.hint) from None
    from kernelmate.checks.answers import bound_device

    bound_device(own.memory.limit)
    return IsolatedCuda(runner, own)
