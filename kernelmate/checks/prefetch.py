"""Prefetch: expected outputs of the next verdict, computed while the worker is idle."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

from kernelmate.backends.base import Backend, SupportsBackgroundLaunch, UnsupportedInstruction
from kernelmate.checks.case_launches import Bench, bench_of, elements_of, plan
from kernelmate.checks.cases import CaseJudge
from kernelmate.checks.input_selection import other_style
from kernelmate.checks.oracle import Oracle
from kernelmate.checks.scalars import loops
from kernelmate.checks.size_plan import PlannedSize, tried_sizes
from kernelmate.checks.styles import NORMAL, WIDE_INTEGERS
from kernelmate.errors import KernelmateError
from kernelmate.records import JudgeTask
from kernelmate.source import argument_shapes, size_allowed


class Interrupted(Exception):
    """Raised when another request is waiting."""


def work_ahead(task: JudgeTask, interrupted: Callable[[], bool]) -> int:
    """Computes and stores inputs and expected outputs of a task that may follow.

    Expected outputs depend on the contract, the reference and the seed, not on the kernel, so a changed kernel with the
    same contract reuses them. A reference kernel is not evaluated in advance.

    Args:
        task: the expected task; its kernel is ignored.
        interrupted: called between calls of the user's reference; True stops the work immediately.

    Returns:
        The number of launches whose inputs and expected outputs are stored.
    """
    contract = (task.baseline or task.candidate).contract
    if contract.reference_kind not in ("function", "expression"):
        return 0

    def tell(*_: object) -> None:
        if interrupted():
            raise Interrupted

    done = 0
    with contextlib.suppress(Interrupted, KernelmateError):
        oracle = Oracle(task, None, None, tell)
        listed = task.sizes or contract.sizes
        sizes = (
            tried_sizes(contract, listed, task.seed)[0]
            if task.own_sizes
            else [PlannedSize(s, "contract") for s in listed]
        )
        other = other_style(contract, oracle.directory)
        whole = task.baseline is not None and not loops(contract, oracle.directory)
        for number, (size, origin, once, styled, shifts, *_) in enumerate(sizes):
            if not size_allowed(contract, size):
                continue
            elements, large = elements_of(argument_shapes(contract, size).values()), oracle.large(size)
            shots = plan(
                contract, elements, number, listed=origin == "contract", large=large, once=once, styled=styled, shifts=shifts,
                other=NORMAL if large else other,
            )  # fmt: skip
            for shot in shots:
                tell()
                if shot.style == WIDE_INTEGERS and not whole:
                    continue
                # Failures of a reference on unusual inputs are ignored, as in the verdict.
                with contextlib.suppress(KernelmateError):
                    oracle.answer(size, shot, oracle.inputs(size, shot), None)
                    done += 1
    return done


def begin_glance(task: JudgeTask, backend: Backend) -> None:
    """Starts the launch of a quick evaluation that may follow, if the backend can launch in parallel.

    Errors are left to the quick evaluation itself. Nothing is started if the reference is a kernel.
    """
    if not isinstance(backend, SupportsBackgroundLaunch) or task.reference_version is not None:
        return
    if task.candidate.stages:
        return  # its launches hang on one another
    with contextlib.suppress(UnsupportedInstruction, KernelmateError):
        bench, baseline = Bench(backend, task, task.candidate), bench_of(backend, task, task.baseline)
        oracle = Oracle(task, baseline, None, lambda *_: None)
        case = CaseJudge(bench, oracle, compared=baseline is not None, glance=True)
        for run in case.launches([PlannedSize(size, "contract") for size in task.sizes[:1]]):
            backend.begin(task.candidate.compiled, task.target, run)
