"""One process of this program at the other end of a pipe: it takes one thread, leaves Ctrl-C to who started it, and can be killed."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
from collections.abc import Callable, Iterator, Mapping
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess

QUIET = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS"), "1")
"""Environment of such processes: there are as many as cores, so none needs threads of its own."""


class Spawned:
    """A process that is started afresh.

    Args:
        serve: what it does with its end of the pipe, and with `args`; a function of a module, which the process imports.

    Attributes:
        pipe: our end. process: the process.
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
        """End it at once."""
        with contextlib.suppress(OSError):
            self.process.kill()
        self.process.join(5)
        self.pipe.close()


def _live(serve: Callable[..., None], pipe: Connection, *args: object) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    serve(pipe, *args)


@contextlib.contextmanager
def _environment(extra: Mapping[str, str]) -> Iterator[None]:
    """Variables for processes started meanwhile."""
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
