"""Times a kernel beside the same computation by PyTorch: one confined process for each computation (`against_child`)."""

from __future__ import annotations

import contextlib
import math
import os
import pickle
import signal
import stat
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from kernelmate.backends.base import ArrayArgument, Run, ScalarArgument
from kernelmate.checks.precision import on_host
from kernelmate.checks.timed import MeasuredAlternative, TimedLaunch
from kernelmate.records import Alternative, Computation, Contract, JudgeTask, Size
from kernelmate.source import argument_shapes, numpy_dtype, scalar_values
from kernelmate.worker.against_child import ANSWER, JOB, AgainstAnswer, AgainstJob, TimedKernel

if TYPE_CHECKING:
    from kernelmate.backends.cuda.backend import CudaBackend, CudaModule
    from kernelmate.backends.cuda.isolated import IsolatedModule

LIMIT_S = 180.0
"""Seconds for one computation: importing torch takes about five, torch.compile up to a minute."""

LAST_PRINTED = 300
"""Bytes of the last line that the process printed with which its end is reported."""

MOST_ANSWER = 1 << 16
"""Maximum length in bytes of an answer."""


def measure_against(
    task: JudgeTask, launch: TimedLaunch, backend: CudaBackend, budget_s: float
) -> tuple[MeasuredAlternative, ...]:
    """Returns the times of a task's computations beside its candidate, whose results are still to be compared.

    Args:
        task: the task.
        launch: the headline's launch of the candidate.
        backend: the GPU.
        budget_s: seconds for timing each.
    """
    module: CudaModule | IsolatedModule = launch.module  # type: ignore[assignment]
    device = int(backend.device.id)
    kernel = TimedKernel(device, backend.gpu.uuid, module.compiled, module.target, launch.restored, budget_s)
    return tuple(
        _measured(job_of(one, launch.version.contract, launch.size, launch.run(), task.directory, kernel))
        for one in task.against
    )


def job_of(
    computation: Computation, contract: Contract, size: Size, run: Run, directory: str, kernel: TimedKernel | None
) -> AgainstJob:
    """Returns the job of one computation, with the arrays of a launch on the host."""
    arguments = tuple(replace(one, data=np.ascontiguousarray(on_host(one.data)), device=False) if isinstance(one, ArrayArgument) else one for one in run.arguments)  # fmt: skip
    given = {one.name: one.value.item() for one in run.arguments if isinstance(one, ScalarArgument)}
    scalars = {name: given.get(name, value) for name, value in scalar_values(contract, size).items()}
    shapes = argument_shapes(contract, size)
    results = [one for one in contract.args if one.direction in ("out", "inout")]
    return AgainstJob(
        computation,
        directory,
        replace(run, arguments=arguments, stages=()),
        {**size, **scalars},
        tuple(one.name for one in contract.args if one.direction in ("in", "inout")),
        tuple((one.name, shapes[one.name], one.dtype) for one in results),
        kernel,
    )


def _measured(job: AgainstJob) -> MeasuredAlternative:
    """Runs one job in a process of its own."""
    computation = job.computation
    answer, outputs = run_job(job)
    found = Alternative(
        computation.name,
        computation.words,
        answer.precision,
        None,
        None,
        answer.timing,
        answer.kernel,
        answer.speedup,
        answer.why,
    )
    return MeasuredAlternative(found, outputs)


def run_job(job: AgainstJob, limit_s: float = LIMIT_S) -> tuple[AgainstAnswer, Mapping[str, Any]]:
    """Runs a job in a confined process, and returns its answer and the results; no results if it has none.

    The files that the process leaves are untrusted: they are decoded as numbers, and never unpickled.
    """
    with tempfile.TemporaryDirectory(prefix="kernelmate-against-", ignore_cleanup_errors=True) as folder:
        scratch = Path(folder)
        (scratch / JOB).write_bytes(pickle.dumps(job))
        died = _run(scratch, limit_s)
        try:
            answer = msgspec.json.decode(_plain(scratch / ANSWER, MOST_ANSWER).read_bytes(), type=AgainstAnswer)
        except (OSError, ValueError, RecursionError, msgspec.MsgspecError):
            return AgainstAnswer(died or "its process left no answer"), {}
        return answer, _results(job, scratch)


def _run(scratch: Path, limit_s: float) -> str:
    """Runs the process to its end; returns how it ended if it left no answer."""
    with tempfile.TemporaryFile() as printed:
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "kernelmate.worker.against_child", str(scratch)],
            stdin=subprocess.DEVNULL, stdout=printed, stderr=printed, start_new_session=True,
        )  # fmt: skip
        try:
            process.wait(limit_s)
        except subprocess.TimeoutExpired:
            return f"it did not end within {limit_s:g} s"
        finally:
            with contextlib.suppress(OSError):
                if sys.platform == "win32":
                    process.kill()
                else:
                    os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        printed.seek(max(printed.seek(0, os.SEEK_END) - LAST_PRINTED, 0))
        lines = printed.read(LAST_PRINTED).decode("utf-8", "replace").split("\n")
    last = next((line.strip() for line in reversed(lines) if line.strip()), "")
    return f"its process ended with status {process.returncode}" + (f" ({last})" if last else "")


def _plain(path: Path, most: int) -> Path:
    """Returns the path of a file that the process left, which has ended and no longer changes it.

    Raises:
        OSError: there is none.
        ValueError: it is a link or a pipe, or longer than `most` bytes.
    """
    status = path.lstat()
    if not stat.S_ISREG(status.st_mode) or status.st_size > most:
        raise ValueError(f"{path.name} is longer than {most} bytes, or not a regular file")
    return path


def _results(job: AgainstJob, scratch: Path) -> dict[str, Any]:
    """Returns the results that the process left; empty if one is missing or has another length."""
    found: dict[str, Any] = {}
    for number, (name, shape, dtype) in enumerate(job.results):
        try:
            size = math.prod(shape) * numpy_dtype(dtype).itemsize
            held = np.fromfile(_plain(scratch / f"result{number}", size), np.uint8)
            found[name] = held.view(numpy_dtype(dtype)).reshape(shape)
        except (OSError, ValueError):
            return {}
    return found
