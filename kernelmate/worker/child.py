"""The worker's own process: `python -m kernelmate.worker.child`, judging tasks until its input ends.

What must happen first happens first: the protocol's streams are moved out of the way of anything that prints, the
process is tied to its parent's life, and secrets leave the environment. Only then is anything heavy loaded.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import faulthandler
import functools
import io
import os
import queue
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, cast

from kernelmate.environment import looks_secret
from kernelmate.errors import KernelmateError
from kernelmate.worker import protocol
from kernelmate.worker.arrival import Arrival

if TYPE_CHECKING:
    from kernelmate.backends.base import Backend
    from kernelmate.backends.cuda.backend import CudaBackend
    from kernelmate.backends.emulators import Emulators
    from kernelmate.backends.helped import HelpedEmulator
    from kernelmate.records import Judgement, JudgeTask

PROGRESS_INTERVAL_S = 0.05
"""Least time between two progress messages of one stage; a new stage is always told at once."""

_ADDRESS_SPACE, _DATA = 0, 5
"""Columns of `/proc/self/statm` (Linux, proc(5))."""

AHEAD_STEP_S = 0.5
"""Longest step of a user's reference that is taken ahead of a task: what a task may have to wait for."""

HAND_OVER_S = 0.0005
"""Seconds after which a thread that computes lets another one go on that hands launches over; Python's own are 5 ms."""

LIBRARY_THREADS = "2"
"""Threads that NumPy's linear algebra may use here."""

_PR_SET_PDEATHSIG = 1
"""Linux, `<linux/prctl.h>`: the signal this process gets when its parent ends."""


def main(folder: Path | None = None) -> None:
    """Serve one session over the standard streams until it ends, or until a task has made this process unfit.

    Args:
        folder: where files of the user's that come with tasks are kept, for a session on another machine.
    """
    requests, answers = _take_streams()
    _die_with_parent()
    _prepare_environment()
    voice = _Voice(answers)
    hello = protocol.read_to_child(requests)
    if not isinstance(hello, protocol.Hello):
        return
    emulators = _emulators(hello, requests, answers) if hello.version == protocol.VERSION else None
    tasks: queue.SimpleQueue[protocol.Judge | protocol.Ahead] = queue.SimpleQueue()
    threading.Thread(target=_receive, args=(requests, tasks, voice), daemon=True).start()
    ready = protocol.Ready(protocol.VERSION)
    if hello.version == protocol.VERSION:
        ready = _load(hello, emulators)
        _limit(hello.memory_limit, cuda=hello.backend == "cuda")
    voice.send(ready)
    desk = _Desk(hello, None if folder is None or not hello.remote else Arrival(folder), voice.send, emulators)
    while True:
        request = tasks.get()
        if isinstance(request, protocol.Ahead):
            if request.task.glance:
                with voice.thinking_ahead():
                    desk.begin(request)
            elif tasks.empty():
                with voice.thinking_ahead():
                    desk.work_ahead(request, lambda: not tasks.empty())
        elif not desk.serve(request):
            break
    sys.stdout.flush()
    # An ordinary exit would wait for locks that the receiving thread holds while it reads.
    _end_group()


def _take_streams() -> tuple[BinaryIO, io.RawIOBase]:
    """The protocol's two streams, kept from everything else in this process.

    Descriptor 0 reads nothing from now on, and 1 is a second way to 2, which the session drains and counts: `print`,
    `printf` and a careless `os.write(1, ...)` cannot reach the protocol. The new descriptors are not inherited.
    """
    requests = os.fdopen(os.dup(0), "rb")
    answers = io.FileIO(os.dup(1), "wb")
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    for stream in (sys.stdout, sys.stderr):
        # What was printed just before a crash is worth the most.
        stream.reconfigure(line_buffering=True, errors="backslashreplace")  # type: ignore[union-attr]
    # The thread that crashed is what matters; the others only wait.
    faulthandler.enable(all_threads=False)
    return requests, answers


def _die_with_parent() -> None:
    """Ask the system to end this process with its parent, however that ends.

    Only Linux has this; elsewhere, and behind a remote launcher, the end of the input does the same as long as Python
    code gets to run.
    """
    if not sys.platform.startswith("linux"):
        return
    parent = os.getppid()
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)


def _prepare_environment() -> None:
    """Take secrets out, and keep linear algebra libraries from taking every core of the user's machine."""
    for name in [name for name in os.environ if looks_secret(name)]:
        del os.environ[name]
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS"):
        os.environ[name] = LIBRARY_THREADS


def _emulators(hello: protocol.Hello, requests: BinaryIO, answers: io.RawIOBase) -> Emulators | None:
    """Processes that emulate beside this one, forked while there is neither CUDA nor a second thread."""
    from kernelmate.backends.emulators import Emulators, fitting, helping, warm_up

    def begin() -> None:
        # Who holds these keeps the session from seeing this process's end.
        requests.close()
        answers.close()
        _limit(hello.memory_limit, cuda=False)

    gpu = hello.backend == "cuda"
    count = fitting() if gpu else helping()
    if not count:
        return None
    if gpu:
        # Beside CUDA, launches are emulated by these alone, so that LLVM is loaded in each: better once, before.
        warm_up()
    else:
        # A helper that is done waits for the thread that feeds it, and that one for its turn in this process.
        sys.setswitchinterval(HAND_OVER_S)
    return Emulators(count, begin, hasty=gpu)


def _load(hello: protocol.Hello, emulators: Emulators | None) -> protocol.Ready:
    """Import and open what judging needs, so that the first task does not wait for it and no limit counts it.

    A GPU that cannot be used is told now, and is the answer to every task.
    """
    import kernelmate.backends.emulator
    import kernelmate.checks.judge
    import kernelmate.worker.timers  # noqa: F401

    if hello.backend != "cuda":
        return protocol.Ready(protocol.VERSION)
    try:
        gpu = _cuda(hello.device, hello.device_memory_limit, emulators).gpu
    except KernelmateError as error:
        return protocol.Ready(protocol.VERSION, problem=(error.message, error.hint or ""))
    return protocol.Ready(protocol.VERSION, gpu.name, gpu.capability, gpu.mps)


def _limit(memory: int | None, *, cuda: bool) -> None:
    """Cap what this process may take at `memory` bytes beyond what it has now, and leave no core files.

    Address space is what is capped. CUDA reserves that for all memory of the machine and its GPUs, so beside it only
    data that can be written counts (Linux counts private mappings since 4.7). A limit that the system does not know, or
    that is already tighter, is left as it is.
    """
    if sys.platform == "win32":
        return
    import resource

    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if memory is None:
        return
    kind, column = (resource.RLIMIT_DATA, _DATA) if cuda else (resource.RLIMIT_AS, _ADDRESS_SPACE)
    with contextlib.suppress(OSError, ValueError):
        _, hard = resource.getrlimit(kind)
        wanted = _taken(column) + memory
        if hard == resource.RLIM_INFINITY or wanted < hard:
            resource.setrlimit(kind, (wanted, wanted))


def _ran_out_of_memory(error: BaseException) -> bool:
    """Whether an error is how the system, or the loader of a library, says that there is no more memory."""
    if isinstance(error, OSError):
        return error.errno == errno.ENOMEM
    # glibc: dl-map-segments.h and dl-load.c.
    signs = ("failed to map segment", "cannot allocate memory", "cannot create shared object descriptor")
    return isinstance(error, ImportError) and any(sign in str(error).lower() for sign in signs)


def _taken(column: int) -> int:
    """Bytes of address space or of data that this process has now; 0 where the system does not tell."""
    try:
        with open("/proc/self/statm", encoding="ascii") as statm:
            return int(statm.read().split()[column]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError):
        return 0


class _Voice:
    """What this process says, one message at a time, from whichever thread.

    A task that comes while the user's reference is called ahead of it has to wait for that call; it is told so, lest a
    reference that hangs be taken for a kernel that does.
    """

    def __init__(self, answers: io.RawIOBase) -> None:
        self._answers = answers
        self._lock = threading.Lock()
        self._ahead = False

    def send(self, message: protocol.FromChild) -> None:
        """Send one message, whole."""
        with self._lock:
            protocol.write(self._answers, message)

    @contextlib.contextmanager
    def thinking_ahead(self) -> Iterator[None]:
        """The user's reference may be running within."""
        with self._lock:
            self._ahead = True
        try:
            yield
        finally:
            with self._lock:
                self._ahead = False

    def has_come(self, request: protocol.Judge) -> None:
        """A task waits."""
        with self._lock:
            if self._ahead:
                protocol.write(self._answers, protocol.Progress(request.number, "reference", 0, 1))


def _receive(requests: BinaryIO, tasks: queue.SimpleQueue[protocol.Judge | protocol.Ahead], voice: _Voice) -> None:
    """Hand tasks over until the session is gone, then end the process, whatever it is busy with."""
    try:
        while isinstance(message := protocol.read_to_child(requests), protocol.Judge | protocol.Ahead):
            tasks.put(message)
            if isinstance(message, protocol.Judge):
                voice.has_come(message)
    finally:
        _end_group()


def _end_group() -> None:
    """End this process, and those it started where it leads a process group of its own."""
    if sys.platform != "win32" and os.getpgrp() == os.getpid():
        os.killpg(0, signal.SIGKILL)
    os._exit(0)


class _Reporter:
    """The judge's progress as messages, thinned out, and the last stage for what is said after a failure.

    Attributes:
        stage: the last that was told.
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
        self._send(protocol.Progress(self._number, stage, done, total))


class _Desk:
    """Answers tasks, one after another.

    Args:
        hello: what the session wants opened.
        arrival: where files of the user's that come with tasks are kept; None where they lie where the task says.
        send: to the session.
        emulators: processes that emulate beside this one.
    """

    def __init__(
        self,
        hello: protocol.Hello,
        arrival: Arrival | None,
        send: Callable[[protocol.FromChild], None],
        emulators: Emulators | None,
    ) -> None:
        self._hello, self._arrival, self._send, self._emulators = hello, arrival, send, emulators
        self._slowest_reference_s = 0.0
        self._helped: HelpedEmulator | None = None

    def serve(self, request: protocol.Judge) -> bool:
        """Answer one task; False when this process is not to be trusted with another one."""
        report = _Reporter(request.number, self._send)
        number = request.number
        backend: Backend | None = None
        try:
            task = self._settled(request.task, request.files)
            backend = self._backend(task)
            judgement = _judge(task, backend, report)
            self._send(protocol.Result(number, judgement, last=backend.poisoned))
        except KernelmateError as error:
            if self._arrival is not None:
                error = self._arrival.homeward(error, request.task)
            self._send(protocol.refusal(number, error, last=backend is not None and backend.poisoned))
        except MemoryError as error:
            self._send(protocol.OutOfMemory(number, str(error) or "an allocation failed"))
            return False
        except BaseException as error:  # noqa: BLE001 -- whatever it is, the session must hear of it
            if _ran_out_of_memory(error):
                self._send(protocol.OutOfMemory(number, str(error)))
                return False
            traceback.print_exc()
            self._send(protocol.Broken(number, f"{type(error).__name__}: {error}"[:2000]))
            return False
        self._slowest_reference_s = report.slowest_reference_s
        return backend is None or not backend.poisoned

    def work_ahead(self, request: protocol.Ahead, interrupted: Callable[[], bool]) -> None:
        """Work out what a task may need, until there is one; what goes wrong is the task's to tell.

        Not where a call of the reference takes so long that another task would have to wait for its end.
        """
        if self._slowest_reference_s > AHEAD_STEP_S:
            return
        from kernelmate.checks.ahead import work_ahead

        try:
            work_ahead(self._settled(request.task, {}), interrupted)
        except Exception:  # noqa: BLE001 -- nobody has asked for anything yet
            traceback.print_exc()

    def begin(self, request: protocol.Ahead) -> None:
        """Begin what a glance may need while the one before it is taken; what goes wrong is the glance's to tell."""
        if self._slowest_reference_s > AHEAD_STEP_S or request.task.backend != "emulator":
            return
        from kernelmate.checks.ahead import begin_glance

        try:
            begin_glance(self._settled(request.task, {}), self._backend(request.task))
        except Exception:  # noqa: BLE001 -- nobody has asked for anything yet
            traceback.print_exc()

    def _settled(self, task: JudgeTask, files: Mapping[str, bytes]) -> JudgeTask:
        if self._arrival is None:
            return task
        self._arrival.unpack(files)
        return self._arrival.settle(task)

    def _backend(self, task: JudgeTask) -> Backend:
        """The backend that the task names.

        Raises:
            BackendUnavailable: the GPU cannot be used.
        """
        if task.backend == "emulator":
            from kernelmate.backends.emulator import EmulatorBackend

            if self._emulators is None:
                return EmulatorBackend()
            from kernelmate.backends.helped import HelpedEmulator

            self._helped = self._helped or HelpedEmulator(self._emulators)
            return self._helped
        return _cuda(self._hello.device, self._hello.device_memory_limit, self._emulators)


def _judge(task: JudgeTask, backend: Backend, report: Callable[[str, int, int], None]) -> Judgement:
    from kernelmate.checks.judge import judge
    from kernelmate.worker.timers import model_for, timer_for

    judgement = judge(task, backend, report, timer_for(task, backend), model_for(task, backend))
    if backend.name != "cuda":
        return judgement
    gpu = cast("CudaBackend", backend)
    judgement = replace(judgement, reasons=judgement.reasons + gpu.take_remarks())
    if not (task.sanitize or task.profile):
        return judgement
    from kernelmate.worker.nvidia.examine import examine

    return examine(task, judgement, int(gpu.device.id), report)


@functools.cache
def _cuda(device: int, memory_limit: int | None, emulators: Emulators | None) -> CudaBackend:
    from kernelmate.backends.cuda.backend import CudaBackend

    return CudaBackend(device, memory_limit, emulators)


if __name__ == "__main__":
    main()
