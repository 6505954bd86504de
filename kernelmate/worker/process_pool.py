"""Starts and ends worker processes, and keeps one ready if starting is slow."""

from __future__ import annotations

import concurrent.futures
import contextlib
import functools
import threading
from collections.abc import Callable
from typing import TypeAlias

from kernelmate.worker.process import Process

Started: TypeAlias = "concurrent.futures.Future[Process]"


class ProcessPool:
    """Starts processes, and ends them in the background.

    Ending a process on a GPU takes as long as the driver needs to stop its kernels and free its memory; starting one
    takes as long as creating CUDA's context. With a spare process the next task waits for neither.

    Args:
        start: starts a process; called in a thread that lives as long as this program, since the system ties a child's
            life to the thread that started it.
        greet: called with each new process.
        spare: True keeps one more process ready.
    """

    def __init__(self, start: Callable[[], Process], greet: Callable[[Started], None], *, spare: bool) -> None:
        self._start, self._greet, self._spare = start, greet, spare
        self._waiting: Started | None = None
        self._leaving: list[threading.Thread] = []
        self._closed = False

    def take(self) -> Started:
        """Returns a process for the next tasks: the spare one if it is alive, else a new one."""
        waiting, self._waiting = self._waiting, None
        if waiting is not None:
            if not waiting.done() or (not waiting.exception() and waiting.result().lives()):
                return waiting
            self.see_off(waiting)
        return self._new()

    def prepare(self) -> None:
        """Starts the spare process in the background, if one is to be kept."""
        if self._spare and not self._closed and self._waiting is None:
            self._waiting = self._new()

    def see_off(self, process: Started) -> None:
        """Kills a process now, and waits for its end in the background."""
        with contextlib.suppress(OSError):
            if process.done():
                process.result().stop()
        thread = threading.Thread(target=_kill, args=(process,), daemon=True, name="kernelmate-worker-end")
        thread.start()
        self._leaving = [one for one in self._leaving if one.is_alive()] + [thread]

    def close(self) -> None:
        """Ends the spare process, and waits until all killed processes are gone."""
        self._closed = True
        waiting, self._waiting = self._waiting, None
        if waiting is not None:
            self.see_off(waiting)
        for thread in self._leaving:
            thread.join()
        self._leaving = []

    def _new(self) -> Started:
        process = _spawner().submit(self._start)
        process.add_done_callback(self._greet)
        return process


def _kill(process: Started) -> None:
    with contextlib.suppress(OSError):
        process.result().kill()


@functools.cache
def _spawner() -> concurrent.futures.ThreadPoolExecutor:
    return concurrent.futures.ThreadPoolExecutor(max_workers=1, thread_name_prefix="kernelmate-spawner")
