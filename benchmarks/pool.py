"""Work spread over processes, each with a session of its own, under a limit of seconds that keeps what was done."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from kernelmate.config import load_settings
from kernelmate.session import Session
from kernelmate.source import find_kernels, text_unit

_Task = TypeVar("_Task")
_Result = TypeVar("_Result")

SMALL = """
// /// kernelmate
// sizes = [{ n = 4096 }]
// grid = "cdiv(n, block)"
// block = 128
// reference = "x * 2.0"
// [args]
// x = "in float32[n]"
// y = "out float32[n]"
// n = "int32"
// ///
__global__ void twice(const float* x, float* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = 2.0f * x[i];
}
"""

_session: list[Session] = []
"""This process's session, once it has one."""


def spread(
    work: Callable[[Session, _Task], _Result],
    tasks: Sequence[_Task],
    settings: Mapping[str, Any],
    *,
    jobs: int,
    limit_s: float,
) -> Iterator[_Result]:
    """Results as they come; ends after the limit, what is still under way then is ended and left out.

    Args:
        work: done for each task; both must be picklable where there are several jobs.
        tasks: what is to be done.
        settings: of every session.
        jobs: processes at a time; with one, work is done in this process, and the limit is looked at between tasks.
        limit_s: seconds for all of it.
    """
    ends = time.monotonic() + limit_s
    if jobs <= 1:
        with Session(load_settings(**settings)) as session:
            warm(session)
            for task in tasks:
                if time.monotonic() > ends:
                    return
                yield work(session, task)
        return
    with multiprocessing.get_context("spawn").Pool(min(jobs, len(tasks) or 1), _open, (dict(settings),)) as pool:
        found = pool.imap_unordered(_call, [(work, task) for task in tasks])
        for _ in tasks:
            try:
                yield found.next(timeout=max(ends - time.monotonic(), 0.001))
            except multiprocessing.TimeoutError:
                return


def _open(settings: Mapping[str, Any]) -> None:
    _session.append(Session(load_settings(**settings)))
    warm(_session[0])


def warm(session: Session) -> None:
    """Judge and rewrite something small, so that compiler, worker and what they load are there before the first task."""
    (kernel,) = find_kernels(text_unit(SMALL))
    session.optimize(kernel, "make it faster", max_candidates=1)


def _call(job: tuple[Callable[[Session, Any], Any], Any]) -> Any:
    work, task = job
    return work(_session[0], task)
