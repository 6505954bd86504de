"""The compiler process, `python -m kernelmate.compiler.child`.

NVRTC cannot be interrupted, so the parent kills the process instead. The process exits when its input is closed, even
during a compilation, because a separate thread reads the input.
"""

from __future__ import annotations

import os
import queue
import sys
import threading
from collections.abc import Callable
from typing import BinaryIO

import msgspec

from kernelmate.compiler.frames import CompileJob, CompileOutput, pack, read_frame
from kernelmate.compiler.library import load_library


def main() -> int:
    """Serves NVRTC jobs until the input ends."""
    return serve(_compile)


def serve(compile_job: Callable[[CompileJob], CompileOutput]) -> int:
    """Answers each job that arrives; the process exits at the end of the input."""
    # Line information contains the working folder, and code must not depend on where it was compiled.
    os.chdir(os.path.abspath(os.sep))
    requests, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    # Output of NVRTC or a library must not corrupt the frames.
    os.dup2(2, 1)
    jobs: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    threading.Thread(target=_read_jobs, args=(requests, jobs), daemon=True).start()
    while True:
        answers.write(pack(compile_job(msgspec.msgpack.decode(jobs.get(), type=CompileJob))))
        answers.flush()


def _read_jobs(requests: BinaryIO, jobs: queue.SimpleQueue[bytes]) -> None:
    """Queues incoming jobs; exits the process at the end of the stream, which closes when the parent dies."""
    try:
        while True:
            jobs.put(read_frame(requests))
    except (EOFError, OSError):
        os._exit(0)


def _compile(job: CompileJob) -> CompileOutput:
    try:
        library = load_library()
    except Exception as error:  # noqa: BLE001 -- a missing library shows in many ways, and all mean the same
        return CompileOutput(False, "", missing=f"{type(error).__name__}: {error}")
    return library.compile(job)


if __name__ == "__main__":
    sys.exit(main())
