"""A child process of this program connected by a pipe: single-threaded, without handling of Ctrl-C, and killable."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
from collections.abc import Callable, Iterator, Mapping
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess

QUIET = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS"), "1")
"""Environment of such processes: one process runs per core, so none uses several threads."""


class Spawned:
    """A child process started by `spawn`.

    Args:
        serve: function of a module that the process runs with its end of the pipe and `args`.

    Attributes:
        pipe: the parent's end of the pipe.
        process: the process.
    """

    def __init__(self, serve: Callable[..., None], *args: object) -> None:
        context = multiprocessing.get_context("spawn")
        self.pipe: Connection
        self.pipe, theirs = context.Pipe()
        self.process: BaseProcess = context.Process(target=_live, args=(serve, theirs, *args), daemon=True)
        with _environment(QUIET):
            self.process.start()
        theirs.close()

    def kill(self) -> None:
        """Kills the process."""
        with contextlib.suppress(OSError):
            self.process.kill()
        self.process.join(5)
        self.pipe.close()


def _live(serve: Callable[..., None], pipe: Connection, *args: object) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    serve(pipe, *args)


@contextlib.contextmanager
def _environment(extra: Mapping[str, str]) -> Iterator[None]:
    """Context manager that sets environment variables for processes started within it."""
    before = {name: os.environ.get(name) for name in extra}
    os.environ.update(extra)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
