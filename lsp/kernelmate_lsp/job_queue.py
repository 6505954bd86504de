"""Queue of background jobs: one thread runs them in order, and only the newest job of each key is kept."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from concurrent.futures import Future, InvalidStateError
from dataclasses import dataclass, field
from typing import Any, TypeVar

T = TypeVar("T")

PATIENCE_S = 0.25
"""Seconds that an unwanted job may continue before it is killed.

Most jobs end sooner, and killing one costs a new child process.
"""


class JobUnwanted(Exception):
    """Raised in a job whose result is no longer needed."""


@dataclass(slots=True, eq=False)
class QueuedJob:
    """One job.

    Attributes:
        key: identifies the job's purpose; a later job of the same key replaces this one.
        unwanted: set when the result is no longer needed; the job checks it between its steps.
    """

    key: Hashable
    work: Callable[[QueuedJob], Any]
    future: Future[Any] = field(default_factory=Future)
    unwanted: threading.Event = field(default_factory=threading.Event)

    def check(self) -> None:
        """Checks that the result is still needed.

        Raises:
            JobUnwanted: it is not.
        """
        if self.unwanted.is_set():
            raise JobUnwanted


class JobQueue:
    """A thread that runs jobs in order of arrival.

    Args:
        name: the thread's name.
        kill: function that ends the operation of the running job; called from another thread.
        patience_s: seconds before `kill` is called for an unwanted running job; 0 calls it immediately.
    """

    def __init__(self, name: str, kill: Callable[[], None], patience_s: float = PATIENCE_S) -> None:
        self._kill = kill
        self._patience_s = patience_s
        self._waiting: OrderedDict[Hashable, QueuedJob] = OrderedDict()
        self._running: QueuedJob | None = None
        self._closed = False
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._serve, name=name, daemon=True)
        self._thread.start()

    @property
    def busy(self) -> bool:
        """Returns True if a job is running or waiting."""
        with self._changed:
            return self._running is not None or bool(self._waiting)

    def submit(self, key: Hashable, work: Callable[[QueuedJob], T]) -> asyncio.Future[T]:
        """Submits work; a waiting or running job of the same key is dropped. Cancelling the future drops this job."""
        job = QueuedJob(key, work)
        with self._changed:
            self._drop(key)
            self._waiting[key] = job
            self._changed.notify()
        outcome = asyncio.wrap_future(job.future)
        outcome.add_done_callback(lambda done: self.drop(job) if done.cancelled() else None)
        return outcome

    def cancel(self, key: Hashable) -> None:
        """Drops the waiting or running job of a key."""
        with self._changed:
            self._drop(key)

    def drop(self, job: QueuedJob) -> None:
        """Drops a job, waiting or running."""
        with self._changed:
            if self._waiting.get(job.key) is job:
                del self._waiting[job.key]
                _forget(job)
            elif self._running is job:
                self._stop(job)

    def close(self) -> None:
        """Drops all jobs and ends the thread."""
        with self._changed:
            self._closed = True
            for key in tuple(self._waiting):
                self._drop(key)
            if self._running is not None:
                self._stop(self._running)
            self._changed.notify()

    def _drop(self, key: Hashable) -> None:
        waiting = self._waiting.pop(key, None)
        if waiting is not None:
            _forget(waiting)
        if self._running is not None and self._running.key == key:
            self._stop(self._running)

    def _stop(self, job: QueuedJob) -> None:
        """Marks a running job as unwanted, and kills its current operation if it does not end soon."""
        if job.unwanted.is_set():
            return
        job.unwanted.set()
        if self._patience_s == 0:
            self._kill()
            return
        timer = threading.Timer(self._patience_s, self._end, (job,))
        timer.daemon = True
        timer.start()

    def _end(self, job: QueuedJob) -> None:
        with self._changed:
            if self._running is job:
                self._kill()

    def _serve(self) -> None:
        while True:
            with self._changed:
                while not self._waiting and not self._closed:
                    self._changed.wait()
                if self._closed:
                    return
                _, job = self._waiting.popitem(last=False)
                self._running = job
            self._do(job)
            with self._changed:
                self._running = None

    @staticmethod
    def _do(job: QueuedJob) -> None:
        if not job.future.set_running_or_notify_cancel():
            return
        try:
            result = job.work(job)
        except BaseException as error:  # noqa: BLE001 -- handed to whoever waits
            _settle(job, error)
        else:
            _settle(job, None, result)


def _forget(job: QueuedJob) -> None:
    """Cancels the future of a job that was never started."""
    job.unwanted.set()
    _settle(job, None)


def _settle(job: QueuedJob, error: BaseException | None, result: object = None) -> None:
    if job.unwanted.is_set():
        error = JobUnwanted()
    # The event loop may be gone, or the future cancelled.
    with contextlib.suppress(RuntimeError, InvalidStateError):
        if error is not None:
            job.future.set_exception(error)
        else:
            job.future.set_result(result)
