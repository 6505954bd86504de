"""On a GPU listed cases are launched again under changed conditions; the GPU is one of Python functions here."""

from __future__ import annotations

import numpy as np
import pytest

from kernelmate.checks.case_launches import REPEATED_ELEMENTS, REPEATED_SCHEDULES
from kernelmate.checks.judge import judge
from kernelmate.compiler import find_target
from kernelmate.records import JudgeTask

BLOCK = """
sizes = [{ n = 1000 }]
grid = "cdiv(n, 256)"
block = 256
reference = "2 * x"
[args]
x = "in float32[n]"
y = "out float32[n]"
n = "int32"
"""


def honest(x, y, n, schedule):
    y[:] = 2 * x


def lost_when_busy(x, y, n, schedule):
    y[:] = 2 * x
    if schedule == REPEATED_SCHEDULES[2] and n == 1000:
        y[7] = 0


def last_bit_when_busy(x, y, n, schedule):
    y[:] = 2 * x
    if schedule in REPEATED_SCHEDULES:
        y[:] = np.nextafter(y, np.float32(np.inf))


@pytest.fixture
def judged(python_backend, contract_of, tmp_path):
    def on(backend: str, body, block: str = BLOCK):
        python_backend.name = backend
        version = python_backend.version(contract_of(block), lambda: body, "candidate")
        task = JudgeTask(backend, find_target(None), version, None, None, (), 7, str(tmp_path))
        judgement = judge(task, python_backend, lambda *_: None, lambda *_: None)
        return judgement, python_backend.runs[version.compiled.binary]

    return on


def repeated(runs) -> list[int]:
    return [run.schedule_seed for run in runs if run.schedule_seed in REPEATED_SCHEDULES]


def test_listed_sizes_are_launched_again_on_a_gpu_and_looked_at_no_closer(judged) -> None:
    judgement, runs = judged("cuda", honest)
    assert judgement.correct is True
    assert repeated(runs) == list(REPEATED_SCHEDULES)
    assert not any(run.check for run in runs if run.schedule_seed in REPEATED_SCHEDULES)


def test_the_emulator_which_chooses_the_order_itself_does_without(judged) -> None:
    _, runs = judged("emulator", honest)
    assert repeated(runs) == []


def test_large_arrays_are_not_launched_again(judged) -> None:
    _, runs = judged("cuda", honest, BLOCK.replace("n = 1000", f"n = {REPEATED_ELEMENTS}"))
    assert repeated(runs) == []


def test_an_update_that_is_lost_now_and_then_is_nondeterministic(judged) -> None:
    judgement, runs = judged("cuda", lost_when_busy)
    assert judgement.correct is False
    assert [(f.code, f.severity) for f in judgement.findings] == [("nondeterministic", "error")]
    assert repeated(runs) == list(REPEATED_SCHEDULES)[:3]


def test_a_last_bit_is_a_warning_unless_the_contract_is_deterministic(judged) -> None:
    judgement, _ = judged("cuda", last_bit_when_busy)
    assert judgement.correct is True
    assert [(f.code, f.severity) for f in judgement.findings] == [("nondeterministic", "warning")]
    strict, _ = judged("cuda", last_bit_when_busy, BLOCK.replace("[args]", "deterministic = true\n[args]"))
    assert [(f.code, f.severity) for f in strict.findings] == [("nondeterministic", "error")]
