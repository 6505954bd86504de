"""Verdicts as they come from real runs, by hand."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from kernelmate.records import (
    Argument,
    Candidate,
    Case,
    Contract,
    Counters,
    Diagnostic,
    Finding,
    FindingCode,
    FirstWrong,
    Judged,
    Kernel,
    Objective,
    ObjectiveResult,
    Occupancy,
    Optimization,
    Resources,
    Signature,
    Speedup,
    Timing,
    Unit,
    Verdict,
)

SOURCE = """\
#include <cuda_runtime.h>

__global__ void softmax(const float *x, float *y, int rows, int cols)
{
    __shared__ float tile[4096];
    int row = blockIdx.x;
\tfor (int i = threadIdx.x; i < cols; i += blockDim.x) tile[i] = x[row * cols + i];
    y[row * cols + threadIdx.x] = tile[threadIdx.x];
}
"""


def make_case(size: dict[str, int], origin: str = "own", **changes: Any) -> Case:
    case = Case(size, origin, True, True, False, 0.021, None, None)
    return replace(case, **changes)


def make_verdict(**changes: Any) -> Verdict:
    verdict = Verdict(
        kernel="softmax",
        instance=None,
        backend="emulator",
        target="H100 SXM",
        arch="sm_90",
        compiler="NVRTC 13.0.88 --std=c++17",
        binary="sha256:" + "0" * 64,
        seed=7,
        compiled=True,
        diagnostics=(),
        resources=Resources(40, 16384, 0, 0, 0, 1024, 2048),
        occupancy=Occupancy(0.75, "registers", 6, 15.5),
        correct=True,
        cases=(
            make_case({"rows": 4096, "cols": 1024}, "contract", median_us=12.1),
            make_case({"rows": 37, "cols": 853}, "contract", median_us=3.1),
            make_case({"rows": 1, "cols": 1}, "contract", median_us=2.2),
            make_case({"rows": 0, "cols": 1024}, degenerate=True, correct=None, baseline_correct=None, max_error=None),
            make_case({"rows": 31, "cols": 257}),
        ),
        findings=(),
        timing=Timing("predicted", 12.1, (6.05, 24.2), None, None, None, None, None),
        speedup=None,
        counters=Counters("emulated", 8192, 32000, 2048, 8000, 0, 1280000, 4096, 1024, 0, None, 12, None),
        objective=None,
        accepted=True,
        reasons=("no race seen in 4 schedules and 5 sizes",),
    )
    return replace(verdict, **changes)


@pytest.fixture
def verdict() -> Verdict:
    return make_verdict()


@pytest.fixture
def measured() -> Verdict:
    return make_verdict(
        backend="cuda",
        timing=Timing("measured", 12.1, (12.0, 12.2), 14.0, 12.6, 400, 1980, False),
        speedup=Speedup("measured", 1.42, (1.40, 1.44)),
        counters=None,
    )


@pytest.fixture
def wrong() -> Verdict:
    cases = list(make_verdict().cases)
    cases[1] = replace(
        cases[1], correct=False, max_error=float("inf"), first_wrong=FirstWrong("y", (0, 852), 0.0011, float("nan"))
    )
    return make_verdict(
        correct=False,
        cases=tuple(cases),
        findings=(
            Finding(FindingCode.WRONG_AT_SIZE, "error", "the last 85 columns of each row are never written", "softmax.cu", 8, 5),
            Finding(
                FindingCode.SHARED_RACE, "error", "tile is written and read by two threads with no barrier between them",
                "softmax.cu", 7, 55, "tile", 128, (3, 35),
            ),
        ),
        accepted=False,
        reasons=("wrong-at-size: the last 85 columns of each row are never written",),
    )  # fmt: skip


@pytest.fixture
def broken() -> Verdict:
    return make_verdict(
        compiled=False,
        diagnostics=(Diagnostic("error", 'identifier "colz" is undefined', "softmax.cu", 7, 41, "20"),),
        binary=None,
        resources=None,
        occupancy=None,
        correct=None,
        cases=(),
        findings=(Finding(FindingCode.COMPILE_ERROR, "error", 'identifier "colz" is undefined', "softmax.cu", 7, 41),),
        timing=None,
        counters=None,
        accepted=False,
        reasons=('does not compile: identifier "colz" is undefined',),
    )


@pytest.fixture
def kernel() -> Kernel:
    return make_kernel(SOURCE)


def make_kernel(text: str) -> Kernel:
    start = text.index("__global__")
    return Kernel(Unit("softmax.cu", text, file_text=text), "softmax", Signature(()), start, len(text) - 1, 3, 17)


@pytest.fixture
def contract() -> Contract:
    return Contract(
        "softmax",
        ({"rows": 4096, "cols": 1024},),
        ("rows",),
        ("256",),
        (Argument("x", "in", "float32", ("rows", "cols")), Argument("y", "out", "float32", ("rows", "cols"))),
    )


@pytest.fixture
def optimization(kernel: Kernel, contract: Contract, wrong: Verdict, broken: Verdict) -> Optimization:
    def judged(author: str, why: str, text: str, verdict: Verdict) -> Judged:
        return Judged(Candidate(author, why, make_kernel(text), contract), verdict)

    met = ObjectiveResult("shared_bytes", "counted", 16384.0, 8192.0, True)
    timed = ObjectiveResult("time", "predicted", 12.1, 8.4, True)
    good = make_verdict(
        resources=Resources(38, 8192, 0, 0, 0, 1024, 1990),
        occupancy=Occupancy(1.0, "threads", 8, 11.6),
        objective=met,
        speedup=Speedup("predicted", 1.1, (0.9, 1.3)),
        trade_offs=("registers per thread: 38 before, 40 after",),
    )
    promising = make_verdict(
        objective=timed,
        accepted=None,
        timing=Timing("predicted", 8.4, (4.2, 16.8), None, None, None, None, None),
        speedup=Speedup("predicted", 1.44, (1.1, 1.9)),
        reasons=("the time is predicted for H100 SXM, not measured: promising, confirm on a GPU",),
    )
    return Optimization(
        Objective("shared_bytes", "decrease", "reduce memory usage", "Memory means shared memory per block.", {}),
        make_verdict(),
        (
            judged(
                "recipe:shrink-shared-tile",
                "Half of tile is never read, so half of it is enough.",
                SOURCE.replace("4096", "2048"),
                good,
            ),
            judged("recipe:block-size", "Fewer threads leave room for more blocks.", SOURCE + "\n", promising),
            judged(
                "recipe:drop-barrier",
                "The barrier costs time.",
                SOURCE.replace("tile[4096]", "tile[64]"),
                replace(wrong, objective=replace(met, met=False)),
            ),
            judged("local:some-model", "Uses another index.", SOURCE.replace("i < cols", "i < colz"), broken),
        ),
        0,
        ("no model is set up, so only the built-in recipes were tried",),
    )


@pytest.fixture
def make() -> SimpleNamespace:
    """Makers, for tests that need a variation."""
    makers: dict[str, Callable[..., Any]] = {"verdict": make_verdict, "case": make_case, "kernel": make_kernel}
    return SimpleNamespace(**makers, source=SOURCE)
