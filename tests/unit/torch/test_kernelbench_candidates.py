"""Candidates of any author: right ones pass, each kind of cheating is named, and the benchmark's own rule is told apart."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kernelmate_torch.kernelbench.records import (
    CHEATS,
    BlockTimes,
    CandidateVerdict,
    TaskAudit,
    TaskFinding,
    TimedCandidate,
)
from kernelmate_torch.kernelbench.running import BenchmarkRunner, BenchmarkSettings, with_times
from kernelmate_torch.kernelbench.tasks import BenchmarkTask, candidate_of

pytestmark = pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="PyTorch is not installed: make train-tools")  # fmt: skip

DATA = Path(__file__).resolve().parents[2] / "data"
TASK = BenchmarkTask(DATA / "kernelbench" / "level1" / "2_gelu.py", "level1/2_gelu.py")
CANDIDATES = DATA / "kernelbench_candidates"
REJECTED = {
    "wrong": ("wrong-values", False),
    "imprecise": ("precision-loss", True),
    "own_inputs_only": ("wrong-off-distribution", True),
    "partial": ("partial-result", False),
    "cached": ("cached-result", False),
    "alternating_cache": ("cached-result", False),
    "mutating": ("input-mutated", True),
    "aliased": ("aliased-output", True),
    "one_buffer": ("aliased-output", True),
    "stateful": ("stateful", True),
    "constant": ("constant-output", False),
    "flags": ("flags-changed", True),
    "tf32": ("flags-changed", True),
    "patched_allclose": ("torch-patched", False),
    "patched_timer": ("torch-patched", True),
    "frames": ("reads-process", True),
    "raising": ("raised", False),
    "without_class": ("not-loaded", False),
    "exiting": ("crash", False),
}
"""Code of the finding that rejects each candidate, and True if it passes by the benchmark's own rule."""


@pytest.fixture(scope="module")
def judged() -> Iterator[Callable[[Path], CandidateVerdict]]:
    with BenchmarkRunner(BenchmarkSettings(timeout_s=300)) as runner:
        yield lambda candidate: runner.judge(TASK, candidate, TaskAudit())


def test_every_candidate_of_the_folder_is_judged_here():
    assert {one.stem for one in CANDIDATES.glob("*.py")} == {*REJECTED, "right", "right_in_place", "needs_gpu"}
    assert {code for code, _ in REJECTED.values()} <= set(CHEATS)


@pytest.mark.parametrize("name", ["right", "right_in_place"])
def test_right_candidates_are_right(name: str, judged: Callable[[Path], CandidateVerdict]):
    verdict = judged(CANDIDATES / f"{name}.py")
    assert (verdict.passes, verdict.right, verdict.findings) == (True, True, ())
    assert verdict.compared == 9
    assert 0 < verdict.deviation < 1e-5
    assert verdict.time_us is None


def test_what_kernelmate_port_writes_is_a_candidate(tmp_path: Path, judged: Callable[[Path], CandidateVerdict]):
    command = [
        sys.executable,
        "-m",
        "kernelmate",
        "port",
        str(TASK.path),
        "--to",
        str(tmp_path / "2_gelu_new"),
        "--backend",
        "emulator",
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    candidate = candidate_of(TASK, tmp_path)
    assert candidate is not None
    verdict = judged(candidate)
    assert (verdict.passes, verdict.right) == (True, True), verdict.findings
    assert [one for one in verdict.findings if one.severity == "error"] == []


@pytest.mark.exhaustive(share=0.25)
@pytest.mark.parametrize("name", sorted(REJECTED))
def test_each_kind_of_cheating_is_named(name: str, judged: Callable[[Path], CandidateVerdict]):
    code, passes = REJECTED[name]
    verdict = judged(CANDIDATES / f"{name}.py")
    assert not verdict.right
    assert code in {one.code for one in verdict.findings if one.severity == "error"}, verdict.findings
    assert verdict.passes is passes
    assert all(one.code in CHEATS and one.message for one in verdict.findings)


def test_what_needs_a_gpu_is_not_judged_without_one(judged: Callable[[Path], CandidateVerdict]):
    verdict = judged(CANDIDATES / "needs_gpu.py")
    torch = pytest.importorskip("torch")
    if torch.cuda.is_available():
        assert verdict.right
    else:
        assert (verdict.passes, verdict.right) == (None, None)
        assert "needs-gpu" in {one.code for one in verdict.findings}


def test_parameters_are_carried_over_and_another_state_dict_is_noted(tmp_path: Path):
    task = BenchmarkTask(DATA / "kernelbench" / "level2" / "1_linear_gelu.py", "level2/1_linear_gelu.py")
    text = (
        "import torch\nfrom torch import nn\n\n\nclass ModelNew(nn.Module):\n"
        "    def __init__(self, features, outputs):\n        super().__init__()\n"
        "        self.{name} = nn.Linear(features, outputs)\n\n"
        "    def forward(self, x):\n        return nn.functional.gelu(self.{name}(x))\n"
    )
    with BenchmarkRunner(BenchmarkSettings(timeout_s=300)) as runner:
        verdicts = []
        for name in ("linear", "fc"):
            path = tmp_path / f"{name}.py"
            path.write_text(text.format(name=name))
            verdicts.append(runner.judge(task, path, TaskAudit()))
    assert [one.right for one in verdicts] == [True, True]
    assert [[found.code for found in one.findings] for one in verdicts] == [[], ["not-loaded"]]


TIMED = TimedCandidate(
    "NVIDIA H100 80GB HBM3", (BlockTimes("eager", (20.0, 20.2, 19.9, 20.1, 20.0, 20.0)), BlockTimes("new", (10.0, 10.1, 9.9, 10.0, 10.1, 9.9))),
    {"compile": "it raised"},
)  # fmt: skip
RIGHT = CandidateVerdict("one.py", True, True, 9, 1e-7)


def test_times_give_speedups_with_intervals_and_the_share_of_the_roof():
    bytes_moved = 16.0 * (1 << 20)
    timed = with_times(RIGHT, TIMED, TaskAudit(flops=1e6, unique_bytes=bytes_moved))
    speed = timed.speeds["eager"]
    assert speed.low < 2.0 < speed.high
    assert speed.ratio == pytest.approx(2.0, rel=0.02)
    assert speed.baseline_us == pytest.approx(20.0, rel=0.02)
    assert timed.roof_share == pytest.approx(bytes_moved / 3352e3 / 10.0, rel=0.02)
    assert timed.right
    assert [one.message for one in timed.findings] == ["compile has no time: it raised."]


def test_a_time_below_what_the_bytes_need_rejects_a_candidate():
    timed = with_times(RIGHT, TIMED, TaskAudit(flops=1e6, unique_bytes=1e9))
    assert not timed.right
    assert [one.code for one in timed.findings if one.severity == "error"] == ["sub-physical-time"]


def test_findings_of_timed_runs_reject_a_candidate():
    found = TaskFinding("side-stream", "error", "In 24 of 24 legs the GPU was still busy.")
    timed = with_times(RIGHT, TimedCandidate(TIMED.device, TIMED.versions, {}, (found,)), TaskAudit())
    assert (timed.right, timed.passes, timed.roof_share) == (False, True, None)
