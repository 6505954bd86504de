"""Versions of naive kernels that were written by hand: right by the naive kernel's contract at its small listed sizes."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from benchmarks import gpu_experts
from benchmarks.gpu_experts import EXPERTS, beside_expert, judge_expert, summary
from benchmarks.gpu_synthesis import NAIVE, Task
from benchmarks.large_set import listed
from kernelmate.config import load_settings
from kernelmate.session import Session


@pytest.fixture(scope="module")
def session() -> Iterator[Session]:
    with Session(load_settings(backend="emulator", seed=7)) as one:
        yield one


@pytest.mark.exhaustive(share=0.15)
@pytest.mark.parametrize("name", sorted(path.stem for path in EXPERTS.glob("*.cu")))
def test_an_expert_version_is_right_at_small_sizes(session: Session, name: str) -> None:
    (one,) = listed(NAIVE, (name,))
    task = Task(NAIVE.name, one.kernel.unit.path, name, dict(one.contract.sizes[0]), True, 1)
    found = judge_expert(session, task)
    assert found["expert_correct"], found["expert_why"]


def test_an_exception_of_one_kernel_is_said_in_its_row(monkeypatch: pytest.MonkeyPatch, session: Session) -> None:
    def fail(session: Session, task: Task) -> dict[str, object]:
        raise ZeroDivisionError("no sizes")

    for name in ("_row", "judge_expert"):
        monkeypatch.setattr(gpu_experts, name, fail)
    row = beside_expert(session, Task(NAIVE.name, "", "matvec", {}, True, 1))
    assert (row["kernel"], row["ours_us"], row["expert_correct"]) == ("matvec", None, False)
    assert row["why"] == row["expert_why"] == "ZeroDivisionError: no sizes"


def test_a_summary_counts_a_slower_schedule_as_the_naive_kernel() -> None:
    row = {"expert_correct": True, "baseline_us": 8.0, "ours_us": 9.0, "expert_us": 2.0}
    assert "ours 1.00x, experts 4.00x" in summary([row])
    assert "0 of 1 expert versions right. Of 0 timed" in summary([{"expert_correct": False, "expert_us": None}])
