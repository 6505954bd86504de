"""Outputs of timed launches, and work that is shared by many candidates."""

from __future__ import annotations

import numpy as np

from kernelmate.checks.judge import judge
from kernelmate.checks.timed import LaunchTimes
from kernelmate.records import Finding, FindingCode, Timing
from tests.unit.checks.judging import DOUBLE, body, honest, task_of


def test_listed_sizes_are_counted_once_and_timed(python_backend, contract_of, tmp_path) -> None:
    timing = Timing("predicted", 3.5, (3.0, 4.0), None, None, None, None, None)
    asked = []

    def timer(launch):
        asked.append((launch.shape.blocks, launch.headline, launch.sizes, launch.sound, launch.baseline))
        return LaunchTimes(timing)

    version = python_backend.version(contract_of(DOUBLE), body(honest), "timed")
    judgement = judge(task_of(version, None, tmp_path), python_backend, lambda *_: None, timer)
    assert [(m.size["n"], m.launch.blocks, m.timing) for m in judgement.metrics] == [(1000, 4, timing), (33, 1, timing)]
    assert asked == [(4, True, 2, True, None), (1, False, 2, True, None)]
    assert [case.median_us for case in judgement.cases[:3]] == [3.5, 3.5, None]
    assert sum(run.count for run in python_backend.runs[version.compiled.binary]) == 2


def timed_with(python_backend, contract_of, tmp_path, block, leave, candidate=honest, baseline=honest):
    """Judge with a timer whose launches leave what `leave` makes of the arguments."""
    contract = contract_of(block)
    launches = []

    def timer(launch):
        launches.append(launch)
        arrays = {item.name: item.data.copy() for item in launch.run().arguments if hasattr(item, "data")}
        leave(arrays)
        return LaunchTimes(Timing("measured", 3.5, (3.4, 3.6), None, None, 40, 1980, False), outputs=arrays)

    version = python_backend.version(contract, body(candidate), "candidate")
    other = None if baseline is None else python_backend.version(contract, body(baseline), "baseline")
    return judge(task_of(version, other, tmp_path), python_backend, lambda *_: None, timer), launches


def test_timed_launches_that_do_the_work_change_nothing(python_backend, contract_of, tmp_path) -> None:
    def works(arrays):
        arrays["y"][:] = 2 * arrays["x"]

    judgement, launches = timed_with(python_backend, contract_of, tmp_path, DOUBLE, works)
    assert judgement.correct is True
    assert [launch.baseline is not None for launch in launches] == [True, True]
    assert [launch.restored for launch in launches] == [frozenset(), frozenset()]


def test_timed_launches_that_leave_something_else_reject_the_version(python_backend, contract_of, tmp_path) -> None:
    def idles(arrays):
        arrays["y"][:] = 0

    judgement, _ = timed_with(python_backend, contract_of, tmp_path, DOUBLE, idles)
    assert judgement.correct is False
    found = [f for f in judgement.findings if f.severity == "error"]
    assert [(f.code, f.buffer) for f in found] == [("stateful", "y")]
    assert "n = 1000" in found[0].message
    assert "not each launch does the work" in found[0].message


def test_timed_launches_may_round_otherwise_within_the_tolerance(python_backend, contract_of, tmp_path) -> None:
    def rounds(arrays):
        arrays["y"][:] = np.nextafter(2 * arrays["x"], np.float32(np.inf))

    judgement, _ = timed_with(python_backend, contract_of, tmp_path, DOUBLE, rounds)
    assert judgement.correct is True


def test_what_is_wrong_is_handed_over_as_not_sound(python_backend, contract_of, tmp_path) -> None:
    def wrong(x, y, n, schedule):
        y[:] = 3 * x

    _, launches = timed_with(python_backend, contract_of, tmp_path, DOUBLE, lambda arrays: None, wrong)
    assert [launch.sound for launch in launches] == [False, False]


def test_arrays_that_are_read_and_written_are_to_be_restored(python_backend, contract_of, tmp_path) -> None:
    block = DOUBLE.replace('"out float32', '"inout float32').replace("2 * x", "y + x")

    def adds(x, y, n, schedule):
        y[:] = y + x

    def works(arrays):
        arrays["y"][:] = arrays["y"] + arrays["x"]

    judgement, launches = timed_with(python_backend, contract_of, tmp_path, block, works, adds, None)
    assert judgement.correct is True
    assert [(launch.restored, launch.baseline) for launch in launches] == [(frozenset({"y"}), None)] * 2


def test_a_launch_that_fails_when_it_is_timed_rejects_the_version(python_backend, contract_of, tmp_path) -> None:
    fault = Finding(FindingCode.ILLEGAL_ADDRESS, "error", "the kernel accessed memory that nothing is mapped at")
    version = python_backend.version(contract_of(DOUBLE), body(honest), "faulty")
    judgement = judge(
        task_of(version, None, tmp_path), python_backend, lambda *_: None, lambda _: LaunchTimes(None, finding=fault)
    )
    assert judgement.correct is False
    assert "when it was timed" in judgement.findings[0].message
    assert judgement.metrics[0].timing is None


def test_the_baseline_runs_once_for_many_candidates(python_backend, contract_of, tmp_path) -> None:
    contract = contract_of(DOUBLE)
    baseline = python_backend.version(contract, body(honest), "kept baseline")
    for name in ("one", "two"):
        version = python_backend.version(contract, body(honest), name)
        judge(task_of(version, baseline, tmp_path), python_backend, lambda *_: None, lambda *_: None)
        runs = len(python_backend.runs[baseline.compiled.binary])
    assert runs == len(python_backend.runs[version.compiled.binary])


def test_outputs_are_poisoned_differently_and_schedules_vary(python_backend, contract_of, tmp_path) -> None:
    version = python_backend.version(contract_of(DOUBLE), body(honest), "watched")
    judge(task_of(version, None, tmp_path), python_backend, lambda *_: None, lambda *_: None)
    runs = [r for r in python_backend.runs[version.compiled.binary] if r.arguments[1].data.shape == (1000,)]
    assert len({r.arguments[1].data.tobytes() for r in runs}) == 2
    assert len({r.schedule_seed for r in runs}) >= 3
    assert {r.arguments[1].misalign for r in runs} == {0, 1}


def test_progress_tells_when_the_users_python_runs(python_backend, contract_of, tmp_path) -> None:
    told = []
    version = python_backend.version(contract_of(DOUBLE), body(honest), "told")
    judge(task_of(version, None, tmp_path), python_backend, lambda *step: told.append(step), lambda *_: None)
    assert {stage for stage, _, _ in told} == {"reference", "cases", "guards", "timing"}
    assert told[-1][1] == told[-1][2]
