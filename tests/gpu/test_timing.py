"""Timing on a GPU: plausible figures, distinguished versions, and only launches that do their work."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from kernelmate.backends.base import ArrayArgument, Run, ScalarArgument
from kernelmate.backends.cuda.driver import missing_for_gpu
from kernelmate.backends.cuda.memory import variables_of
from kernelmate.backends.timed import CannotCapture
from kernelmate.compiler import compile_kernel, find_target
from kernelmate.compiler.ptx_text import names_of
from kernelmate.config import load_settings
from kernelmate.measure.timing import measure, settle
from kernelmate.records import CompileOptions, LaunchShape
from kernelmate.session import Session
from kernelmate.source import find_kernels, text_unit

_missing = missing_for_gpu()
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(_missing is not None, reason=f"no GPU can be used: {_missing and _missing[0]}"),
]

HEAD = """// /// kernelmate
// sizes = [{ n = 1000000 }, { n = 1000 }]
// grid = "cdiv(n, 256)"
// block = 256
// reference = "2 * x"
// [args]
// x = "in float32[n]"
// y = "out float32[n]"
// n = "int32"
// ///
"""
TWICE = "__global__ void twice(const float* x, float* y, int n) {\n  int i = blockIdx.x * 256 + threadIdx.x;\n"
RIGHT = HEAD + TWICE + "  if (i < n) y[i] = 2 * x[i];\n}\n"
SLOW = (
    HEAD
    + TWICE
    + "  float v = 0; if (i < n) { for (int k = 0; k < 64; ++k) v += __sinf(x[i] + k); y[i] = 2 * x[i] + 0 * v; }\n}\n"
)


@pytest.fixture(scope="module")
def session() -> Iterator[Session]:
    with Session(load_settings(seed=11, backend="cuda", timeout_s=120)) as session:
        yield session


def loaded(backend, text):
    target = find_target("sm_90") if int(backend.device.compute_capability) == 90 else find_target(None)
    kernel = find_kernels(text_unit(text, "k.cu"))[0]
    compiled = compile_kernel(kernel, (), instance=None, target=target, options=CompileOptions())
    assert compiled.ok, compiled.diagnostics
    return backend.load(compiled, target)


def launch_of(n: int, written: bool = True) -> tuple[LaunchShape, Run]:
    shape = LaunchShape((-(-n // 256), 1, 1), (256, 1, 1))
    x = np.linspace(0, 1, n, dtype=np.float32)
    arguments = (
        ArrayArgument("x", x, written=False),
        ArrayArgument("y", np.zeros_like(x), written=written),
        ScalarArgument("n", np.int32(n)),
    )
    return shape, Run(shape, arguments)


def test_durations_are_there_and_cold_ones_are_longer(backend) -> None:
    shape, run = launch_of(1_000_000)
    with backend.turns.alone(), backend.timer([(loaded(backend, RIGHT), shape)], run, frozenset()) as timer:
        settle(timer.condition)
        warm, cold = timer.durations([0] * 40), timer.durations([0] * 20, cold=True)
        period = min(timer.period(0, 100) for _ in range(5))
    assert (len(warm), len(cold)) == (40, 20)
    assert 1 < np.median(warm) < 50
    assert np.median(cold) > np.median(warm)
    assert 0.3 * np.median(warm) < period < 3 * np.median(warm) + 3


def test_tracing_leaves_what_comes_after_it_as_it_was(backend) -> None:
    shape, run = launch_of(4096)
    with backend.turns.alone(), backend.timer([(loaded(backend, RIGHT), shape)], run, frozenset()) as timer:
        settle(timer.condition)
        before = np.median(timer.durations([0] * 90))
        for _ in range(3):
            traced = timer.traced([0] * 20)
            timer.condition()
            assert len(timer.durations([0] * 100, cold=True)) == 100
            assert timer.period(0, 10) > 0
        after = np.median(timer.durations([0] * 90))
    assert len(traced) == 20
    assert 0.2 < np.median(traced) < before
    assert after == pytest.approx(before, rel=0.1)


def test_the_clock_is_one_that_a_gpu_can_have(backend) -> None:
    shape, run = launch_of(32)
    with backend.timer([(loaded(backend, RIGHT), shape)], run, frozenset()) as timer:
        settle(timer.condition)
        clocks = [timer.condition().sm_clock_mhz for _ in range(5)]
    limit = backend.device.attributes["ClockRate"] / 1e3
    assert all(clock is not None and 200 < clock < 1.03 * limit for clock in clocks)


def test_arrays_that_are_read_and_written_are_restored_before_every_launch(backend) -> None:
    text = "__global__ void add(const float* x, float* y, int n) { int i = blockIdx.x * 256 + threadIdx.x; if (i < n) y[i] += x[i]; }\n"
    shape, run = launch_of(5000)
    with backend.turns.alone(), backend.timer([(loaded(backend, text), shape)] * 2, run, frozenset({"y"})) as timer:
        seen = measure(timer, 0.05, full=True)
    assert np.array_equal(seen.outputs["y"], run.arguments[0].data)
    assert seen.timings[1].replay_period_us is None or seen.timings[1].replay_period_us < 10


def test_cooperative_and_clustered_launches_are_timed(backend) -> None:
    if int(backend.device.compute_capability) < 90:
        pytest.skip("this GPU has no clusters")
    _, run = launch_of(5000)
    for more in ({"cooperative": True}, {"cluster": (2,)}):
        shape = LaunchShape((20, 1, 1), (256, 1, 1), **more)
        with backend.turns.alone(), backend.timer([(loaded(backend, RIGHT), shape)], run, frozenset()) as timer:
            (timing,) = measure(timer, 0.05, full=True).timings
        assert 1 < timing.median_us < 50


def test_of_a_module_s_variables_only_those_that_its_code_uses_are_reset(backend) -> None:
    head = "__device__ int calls = 3;\n__device__ int spare = 4;\n"
    body = "  if (i < n) y[i] = 2 * x[i];\n  if (i == 0) atomicAdd(&calls, 1);\n}\n"
    module = loaded(backend, head + HEAD + TWICE + body)
    assert set(names_of(module.compiled.ptx)) == {"calls", "spare"}
    shape, _ = launch_of(1024)
    used = variables_of(module.ready(shape), module.compiled.ptx)
    assert [(one.name, one.size) for one in used] == [("calls", 4)]


def test_a_graph_that_cannot_be_made_leaves_the_rig_of_use(backend) -> None:
    shape, run = launch_of(1000)
    with backend.turns.alone(), backend.timer([(loaded(backend, RIGHT), shape)], run, frozenset()) as timer:
        good = timer._launches[0][0]

        def synchronizes(stream: int) -> None:
            import cupy

            good(stream)
            cupy.cuda.runtime.streamSynchronize(stream)

        timer._launches[0][0] = synchronizes
        with pytest.raises(CannotCapture):
            timer.period(0, 3)
        timer._launches[0][0] = good
        assert timer.period(0, 3) > 0
        assert len(timer.durations([0] * 3)) == 3


def test_a_verdict_has_a_measured_time_at_every_listed_size(session) -> None:
    (verdict,) = session.bench(find_kernels(text_unit(RIGHT, "k.cu"))[0])
    assert verdict.correct is True
    timing = verdict.timing
    assert timing is not None
    assert timing.kind == "measured"
    assert timing.cupti_us is not None
    assert timing.cupti_us < timing.median_us
    assert timing.ci95_us[0] <= timing.median_us <= timing.ci95_us[1]
    assert timing.cold_l2_us is not None
    assert timing.sm_clock_mhz is not None
    assert [case.median_us is not None for case in verdict.cases if case.origin == "contract"] == [True, True]


def test_a_faster_candidate_is_measured_beside_its_baseline_and_accepted(session) -> None:
    slow, fast = (find_kernels(text_unit(text, "k.cu"))[0] for text in (SLOW, RIGHT))
    (verdict,) = session.compare(slow, fast, "make it faster").candidate
    assert verdict.accepted is True
    assert verdict.speedup is not None
    assert verdict.speedup.kind == "measured"
    assert verdict.speedup.ci95[0] > 1
    assert verdict.objective is not None
    assert verdict.objective.basis == "measured"
    (other,) = session.compare(fast, slow, "make it faster").candidate
    assert other.accepted is False


def test_a_kernel_that_stops_working_after_some_launches_is_found(session) -> None:
    lazy = (
        HEAD
        + "__device__ int calls;\n"
        + TWICE
        + ("  int seen = calls;\n  if (i == 0) atomicAdd(&calls, 1);\n  if (i < n && seen < 60) y[i] = 2 * x[i];\n}\n")
    )
    right, wrong = (find_kernels(text_unit(text, "k.cu"))[0] for text in (RIGHT, lazy))
    (verdict,) = session.compare(right, wrong, "make it faster").candidate
    assert verdict.accepted is False
    assert verdict.correct is False
    assert {finding.code for finding in verdict.findings if finding.severity == "error"} & {
        "stateful",
        "global-race",
        "nondeterministic",
    }


def test_a_kernel_of_over_a_second_is_timed_a_few_times_and_labelled(session) -> None:
    text = (
        HEAD.replace("sizes = [{ n = 1000000 }, { n = 1000 }]", "sizes = [{ n = 200000 }]")
        + TWICE
        + (
            # The emulator refuses calls of `free`; it would take a while to count this loop.
            "  if (n < 0) free((void*)x);\n"
            "  long long t = clock64(); if (n == 200000 && i < 256) while (clock64() - t < 2200000000ll);\n"
            "  if (i < n) y[i] = 2 * x[i];\n}\n"
        )
    )
    (verdict,) = session.bench(find_kernels(text_unit(text, "k.cu"))[0])
    assert verdict.timing is not None
    assert verdict.timing.median_us > 1e6
    assert any(note.startswith("over a second") for note in verdict.timing.notes)
    assert verdict.timing.cold_l2_us is None


def test_a_kernel_that_prints_is_timed_without_flooding_and_labelled(session) -> None:
    text = "#include <cstdio>\n" + HEAD + TWICE + '  if (i == 0) printf("here\\n");\n  if (i < n) y[i] = 2 * x[i];\n}\n'
    (verdict,) = session.bench(find_kernels(text_unit(text, "k.cu"))[0])
    assert verdict.correct is True
    assert verdict.timing is not None
    assert any("prints" in note for note in verdict.timing.notes)
