"""`kernelmate-worker`: a worker for a session on another machine, started by ssh, and ended when the connection is.

A worker ends when its input does, as long as Python gets to notice; a reference stuck in C code would not let it, and
the process would stay on a machine where nobody looks. So a second process, which runs nothing of anybody's, watches the
connection and kills.
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

from kernelmate.worker.confinement import adopt_orphans, kill_descendants

_SIGNAL_STATUS = 128
"""Offset that shells add to a signal's number to form an exit status."""


def main() -> None:
    """Run a worker over the standard streams until it ends or the other side is gone; ends with its exit status."""
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
    """Wait for the worker, or end it when the connection ends; its exit status, signals as shells count them."""
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
    # No data is read here: it is the worker's. Only the end of the connection is of interest.
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
