"""Verdicts, times and counts as small as a test of a decision or a suggestion needs them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from kernelmate.records import Case, Counters, Finding, Occupancy, Resources, Timing, Verdict

RESOURCES = Resources(32, 4096, 0, 0, 0, 1024, 2048)
COUNTERS = Counters(
    source="emulated",
    global_load_requests=100,
    global_load_sectors=400,
    global_store_requests=100,
    global_store_sectors=400,
    global_atomic_requests=0,
    global_bytes_asked=25600,
    shared_load_wavefronts=0,
    shared_store_wavefronts=0,
    bank_conflicts=0,
    local_sectors=None,
    divergent_branches=0,
    thread_instructions=1000,
)


def make_timing(median: float, width: float = 1.01, kind: str = "measured") -> Timing:
    return Timing(kind, median, (median / width, median * width), None, None, 100, 1980, False)  # type: ignore[arg-type]


@pytest.fixture
def timing() -> Callable[..., Timing]:
    """`timing(median, width=1.01, kind="measured")`: an interval of that factor around the median."""
    return make_timing


@pytest.fixture
def counters() -> Callable[..., Counters]:
    """`counters(**changes)`: of a launch that loads and stores 400 sectors each."""
    return lambda **changes: replace(COUNTERS, **changes)


@pytest.fixture
def verdict() -> Callable[..., Verdict]:
    """`verdict(**changes)`: a right kernel on the emulator; keys of resources, and time_us, max_error, error, as well."""

    def make(
        *,
        time_us: float | None = None,
        kind: str = "predicted",
        max_error: float = 0.1,
        error: str | None = None,
        occupancy: float = 0.5,
        **changes: object,
    ) -> Verdict:
        resources = {key: changes.pop(key) for key in list(changes) if hasattr(RESOURCES, key)}
        width = 2.0 if kind == "predicted" else 1.01
        made = Verdict(
            kernel="k",
            instance=None,
            backend="emulator",
            target="H100 SXM",
            arch="sm_90",
            compiler="NVRTC",
            binary=None,
            seed=0,
            compiled=True,
            diagnostics=(),
            resources=replace(RESOURCES, **resources),
            occupancy=Occupancy(occupancy, "threads", 4, 1.0),
            correct=error is None,
            cases=(Case({"n": 1}, "contract", error is None, True, False, max_error, None, None),),
            findings=() if error is None else (Finding(error, "error", "wrong"),),
            timing=None if time_us is None else make_timing(time_us, width, kind),
            speedup=None,
            counters=COUNTERS,
            objective=None,
            accepted=None,
            reasons=(),
        )
        return replace(made, **changes)  # type: ignore[arg-type]

    return make
