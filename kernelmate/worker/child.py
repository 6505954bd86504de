"""The worker process, `python -m kernelmate.worker.child`: judges tasks until its input ends.

It starts by moving the protocol's streams away from descriptors that code may print to, tying its life to the parent's,
and reducing the environment to an allow-list. Only then it loads heavy packages.
"""

from __future__ import annotations

import contextlib
import faulthandler
import io
import os
import queue
import signal
import sys
import tempfile
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, TypeAlias

from kernelmate.backends.processes import IDLE_S, die_with_parent, keep_freed_memory, return_freed_memory
from kernelmate.confinement import SCRATCH, harden, kill_descendants
from kernelmate.environment import allowed
from kernelmate.errors import KernelmateError
from kernelmate.worker import protocol
from kernelmate.worker.task_server import TaskServer, is_exhausted, opened_gpu, own_of
from kernelmate.worker.unpacking import UnpackedFiles

if TYPE_CHECKING:
    from kernelmate.backends.cuda.isolated import Runner
    from kernelmate.backends.emulator_pool import EmulatorPool

_ADDRESS_SPACE, _DATA = 0, 5
"""Columns of `/proc/self/statm` (Linux, proc(5))."""

HAND_OVER_S = 0.0005
"""Thread switch interval in seconds: computing threads yield to one that hands over launches; Python's default is 5 ms."""

LIBRARY_THREADS = "2"
"""Number of threads of NumPy's linear algebra library."""


_Request: TypeAlias = "protocol.JudgeRequest | protocol.TraceRequest | protocol.PrefetchRequest"


def main(folder: Path | None = None) -> None:
    """Serve one session over the standard streams until it ends, or until a task has made this process unusable.

    Args:
        folder: folder for the user's files that come with tasks, for a session on another machine.
    """
    requests, answers = _take_streams()
    die_with_parent()
    _prepare_environment()
    keep_freed_memory()
    voice = _MessageSender(answers)
    hello = protocol.read_to_child(requests)
    if not isinstance(hello, protocol.Hello):
        return
    if hello.backend != "cuda":
        harden()
    runner, emulators = None, None
    if hello.version == protocol.VERSION:
        # Forked first, so that it shares none of the memory that the other processes share.
        _evaluator(hello, requests, answers, folder)
        runner = _runner(hello, requests, answers)
        emulators = _emulators(hello, requests, answers, runner)
    tasks: queue.SimpleQueue[_Request] = queue.SimpleQueue()
    announced: queue.SimpleQueue[protocol.PrefetchRequest] = queue.SimpleQueue()
    threading.Thread(target=_receive, args=(requests, tasks, announced, voice), daemon=True).start()
    ready = protocol.ReadyMessage(protocol.VERSION)
    if hello.version == protocol.VERSION:
        ready = _load(hello, emulators, runner)
        if hello.backend == "cuda":
            harden()
        _limit(hello.memory_limit, cuda=hello.backend == "cuda")
    voice.send(ready)
    server = TaskServer(
        hello,
        None if folder is None or not hello.remote else UnpackedFiles(folder),
        voice.send,
        emulators,
        runner,
        announced,
    )
    while True:
        request = _next(tasks)
        if isinstance(request, protocol.PrefetchRequest):
            if request.launches:
                with voice.thinking_ahead():
                    server.begin(request)
            elif tasks.empty():
                with voice.thinking_ahead():
                    server.work_ahead(request, lambda: not tasks.empty())
            if is_exhausted() and tasks.empty():
                break
        elif not server.serve(request):
            break
    sys.stdout.flush()
    # A regular exit would wait for locks that the receiving thread holds while it reads.
    _end_group()


def _next(tasks: queue.SimpleQueue[_Request]) -> _Request:
    """Returns the next request; while there is none, the memory that was kept is returned."""
    try:
        return tasks.get(timeout=IDLE_S)
    except queue.Empty:
        return_freed_memory()
        return tasks.get()


def _take_streams() -> tuple[BinaryIO, io.RawIOBase]:
    """Returns the protocol's two streams, protected from everything else in this process.

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
        # Output printed just before a crash is the most valuable.
        stream.reconfigure(line_buffering=True, errors="backslashreplace")  # type: ignore[union-attr]
    # Only the crashed thread is of interest; the others wait.
    faulthandler.enable(all_threads=False)
    return requests, answers


def _prepare_environment() -> None:
    """Reduces the environment to the allow-list, and configures array libraries: few threads, small pages."""
    for name in os.environ.keys() - allowed(os.environ).keys():
        del os.environ[name]
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS"):
        os.environ[name] = LIBRARY_THREADS
    # A verdict's arrays are large and short-lived. Where a virtual machine gives freed pages back to its host, the kernel
    # takes six times as long for huge pages as for small ones (benchmarks/results/cpu_large.txt).
    os.environ["NUMPY_MADVISE_HUGEPAGE"] = "0"


def _runner(hello: protocol.Hello, requests: BinaryIO, answers: io.RawIOBase) -> Runner | None:
    """Returns the process that runs kernels on a GPU, forked before CUDA is opened.

    The result is None without a GPU or shared memory.
    """
    if hello.backend != "cuda":
        return None
    from kernelmate.backends.cuda.exchange import Exchange
    from kernelmate.worker.runner import forked

    def begin() -> None:
        requests.close()
        answers.close()
        _limit(hello.memory_limit, cuda=True)

    try:
        return forked(begin, Exchange())
    except OSError:
        return None


def _evaluator(hello: protocol.Hello, requests: BinaryIO, answers: io.RawIOBase, folder: Path | None) -> None:
    """Starts the reference process; if processes cannot be forked, references run in this one."""
    if not sys.platform.startswith("linux"):
        return
    from kernelmate.checks import reference_process
    from kernelmate.worker.evaluator import forked

    def begin() -> None:
        requests.close()
        answers.close()
        _limit(hello.memory_limit, cuda=False)

    given = os.environ.pop(SCRATCH, None)
    scratch = Path(given or tempfile.mkdtemp(dir=folder))
    with contextlib.suppress(OSError):
        reference_process.use(forked(begin, scratch))


def _emulators(
    hello: protocol.Hello, requests: BinaryIO, answers: io.RawIOBase, runner: Runner | None
) -> EmulatorPool | None:
    """Returns processes that emulate in parallel, forked before CUDA or a second thread exist."""
    from kernelmate.backends.emulator_pool import EmulatorPool, helper_count, process_count, warm_up

    def begin() -> None:
        # A process that holds these descriptors would hide this process's end from the session.
        requests.close()
        answers.close()
        _limit(hello.memory_limit, cuda=False)

    gpu = hello.backend == "cuda"
    count = process_count() if gpu else helper_count()
    if not count:
        return None
    if gpu:
        # With CUDA, only these processes emulate, and each loads LLVM; loading it before the fork is better.
        warm_up()
    else:
        # A finished child waits for the thread that writes to it, which waits for this process's interpreter lock.
        sys.setswitchinterval(HAND_OVER_S)
    if runner is None:
        return EmulatorPool(count, begin, hasty=gpu)
    return EmulatorPool(count, begin, hasty=gpu, resolve=partial(runner.exchange.resolved, whole=True))


def _load(hello: protocol.Hello, emulators: EmulatorPool | None, runner: Runner | None) -> protocol.ReadyMessage:
    """Imports and opens everything that judging needs, so that the first task neither waits for it nor is charged for it.

    An unusable GPU is reported now, and is the reply to every task.
    """
    import kernelmate.backends.emulator
    import kernelmate.checks.judge
    import kernelmate.worker.timers  # noqa: F401

    if hello.backend != "cuda":
        return protocol.ReadyMessage(protocol.VERSION)
    try:
        gpu = own_of(opened_gpu(hello.device, hello.device_memory_limit, emulators, runner)).gpu
    except KernelmateError as error:
        return protocol.ReadyMessage(protocol.VERSION, problem=(error.message, error.hint or ""))
    return protocol.ReadyMessage(protocol.VERSION, gpu.name, gpu.capability, gpu.mps)


def _limit(memory: int | None, *, cuda: bool) -> None:
    """Limit this process to `memory` bytes beyond its present use, and disable core files.

    The limit applies to address space. CUDA reserves address space for all memory of the machine and its GPUs, so with
    CUDA the limit applies to writable data (Linux counts private mappings since 4.7). An unsupported limit, or one
    already tighter, is not changed.
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


def _taken(column: int) -> int:
    """Returns the bytes of address space or data in use; 0 if the system does not report them."""
    try:
        with open("/proc/self/statm", encoding="ascii") as statm:
            return int(statm.read().split()[column]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError):
        return 0


class _MessageSender:
    """Sends this process's messages, one at a time, from any thread.

    A task that arrives during a prefetch call of the user's reference waits for that call, and the session is told so;
    else a hanging reference would be mistaken for a hanging kernel.
    """

    def __init__(self, answers: io.RawIOBase) -> None:
        self._answers = answers
        self._lock = threading.Lock()
        self._ahead = False

    def send(self, message: protocol.FromChild) -> None:
        """Sends one message, whole."""
        with self._lock:
            protocol.write(self._answers, message)

    @contextlib.contextmanager
    def thinking_ahead(self) -> Iterator[None]:
        """Context manager around prefetching, in which the user's reference may run."""
        with self._lock:
            self._ahead = True
        try:
            yield
        finally:
            with self._lock:
                self._ahead = False

    def has_come(self, request: protocol.JudgeRequest | protocol.TraceRequest) -> None:
        """Records that a task is waiting."""
        with self._lock:
            if self._ahead:
                protocol.write(self._answers, protocol.ProgressMessage(request.number, "reference", 0, 1))


def _receive(
    requests: BinaryIO,
    tasks: queue.SimpleQueue[protocol.JudgeRequest | protocol.TraceRequest | protocol.PrefetchRequest],
    announced: queue.SimpleQueue[protocol.PrefetchRequest],
    voice: _MessageSender,
) -> None:
    """Passes tasks on until the session has ended, then ends the process at once.

    Announced launches beside a GPU are started during the current task, so that they do not wait for others.
    """
    try:
        while isinstance(
            message := protocol.read_to_child(requests),
            protocol.JudgeRequest | protocol.TraceRequest | protocol.PrefetchRequest,
        ):
            if isinstance(message, protocol.PrefetchRequest):
                (announced if message.launches and message.task.backend == "cuda" else tasks).put(message)
            else:
                tasks.put(message)
                voice.has_come(message)
    finally:
        _end_group()


def _end_group() -> None:
    """Kills this process and those it started; if it leads a process group, the whole group."""
    kill_descendants(os.getpid())
    if sys.platform != "win32" and os.getpgrp() == os.getpid():
        os.killpg(0, signal.SIGKILL)
    os._exit(0)


if __name__ == "__main__":
    main()
