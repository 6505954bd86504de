"""`kernelmate-worker`: runs a worker for a session on another machine; ssh starts it, and it ends with the connection.

A worker ends with its input if Python can notice the end; with a reference stuck in C code it cannot, and the process
would remain on the other machine. Therefore a second process, which runs no user code, watches the connection and kills
the worker.
"""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import signal
import sys
import tempfile
import threading
from pathlib import Path

from kernelmate.confinement import adopt_orphans, kill_descendants

_SIGNAL_STATUS = 128
"""Offset that shells add to a signal's number to form an exit status."""


def main() -> None:
    """Runs a worker over the standard streams until it ends or the connection is closed; exits with its status."""
    folder = tempfile.mkdtemp(prefix="kernelmate-worker-")
    adopt_orphans()
    child = os.fork()
    if child == 0:
        os.setpgid(0, 0)
        from kernelmate.worker.child import main as work

        work(Path(folder))
        os._exit(0)
    status = _watch(child)
    kill_descendants(os.getpid())
    shutil.rmtree(folder, ignore_errors=True)
    sys.exit(status)


def _watch(child: int) -> int:
    """Waits for the worker, or kills it when the connection ends; returns its exit status, signals as in shells."""
    ended: list[int] = []
    told, tell = os.pipe()

    def reap() -> None:
        ended.append(os.waitpid(child, 0)[1])
        os.write(tell, b"e")

    for number in (signal.SIGHUP, signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: os.write(tell, b"s"))
    threading.Thread(target=reap, daemon=True).start()
    events = select.poll()
    events.register(told, select.POLLIN)
    # The data belongs to the worker; only the end of the connection matters here.
    events.register(0, getattr(select, "POLLRDHUP", 0))
    events.poll()
    with contextlib.suppress(OSError):
        os.killpg(child, signal.SIGKILL)
    while not ended:
        os.read(told, 1)
    code = os.waitstatus_to_exitcode(ended[0])
    return code if code >= 0 else _SIGNAL_STATUS - code


if __name__ == "__main__":
    main()
