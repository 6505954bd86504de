"""Versions of naive kernels that were written by hand: right by the naive kernel's contract at its small listed sizes."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import numpy as np
import pytest

from benchmarks import gpu_experts
from benchmarks.gpu_experts import EXPERTS, beside_expert, judge_expert, summary, torch_inputs
from benchmarks.gpu_synthesis import NAIVE, Task
from benchmarks.large_set import listed
from kernelmate.checks.reference import python_reference
from kernelmate.config import load_settings
from kernelmate.session import Session


@pytest.fixture(scope="module")
def session() -> Iterator[Session]:
    with Session(load_settings(backend="emulator", seed=7)) as one:
        yield one


WIDE = {
    "avgpool": {"n": 2, "height": 4, "width": 72},
    "batched_matmul": {"batch": 2, "rows": 20, "cols": 24, "depth": 12},
    "column_cumsum": {"rows": 520, "cols": 8},
    "column_max": {"rows": 300, "cols": 16},
    "conv_line": {"batch": 1, "depth": 10, "width": 3, "length": 140},
    "decode_attention": {"positions": 132, "heads": 1, "dim": 8},
    "exclusive_scan": {"rows": 3, "cols": 1172},
    "heads_first": {"batch": 2, "tokens": 70, "heads": 2, "dim": 8},
    "instance_norm": {"images": 1, "channels": 2, "pixels": 1100},
    "linear_relu": {"batch": 5, "outs": 8, "ins": 20},
    "log_softmax": {"rows": 3, "cols": 148},
    "matvec": {"rows": 3, "cols": 1172},
    "nchw_to_nhwc": {"images": 2, "channels": 68, "pixels": 100},
    "residual_rmsnorm": {"rows": 2, "cols": 1040},
    "row_argmax": {"rows": 3, "cols": 1172},
}
"""Sizes at which the 16-byte or looped path of the headline runs; the small listed sizes of these take the other one."""


def _task(name: str, size: dict[str, int] | None = None) -> Task:
    (one,) = listed(NAIVE, (name,))
    return Task(NAIVE.name, one.kernel.unit.path, name, size or dict(one.contract.sizes[0]), size is None, 1)


@pytest.mark.exhaustive(share=0.15)
@pytest.mark.parametrize("name", sorted(path.stem for path in EXPERTS.glob("*.cu")))
def test_an_expert_version_is_right_at_small_sizes(session: Session, name: str) -> None:
    found = judge_expert(session, _task(name))
    assert found["expert_correct"], found["expert_why"]


@pytest.mark.exhaustive(share=0.15)
@pytest.mark.parametrize("name", WIDE)
def test_an_expert_version_is_right_where_rows_are_whole_packs(session: Session, name: str) -> None:
    found = judge_expert(session, _task(name, WIDE[name]))
    assert found["expert_correct"], found["expert_why"]


@pytest.mark.parametrize("name", sorted(path.stem for path in EXPERTS.glob("*.cu")))
def test_a_torch_version_computes_the_reference(name: str) -> None:
    torch = pytest.importorskip("torch")
    from benchmarks.experts.torch_versions import VERSIONS

    (one,) = listed(NAIVE, (name,))
    size = dict(one.contract.sizes[1])
    arrays = torch_inputs(name, size)
    found = VERSIONS[name](**{key: torch.from_numpy(array) for key, array in arrays.items()})
    reference = python_reference(one.contract, NAIVE)
    assert reference is not None
    wanted = reference(arrays, size).values()
    results = found if isinstance(found, tuple) else (found,)
    for result, want in zip(results, wanted, strict=True):
        assert tuple(result.shape) == want.shape
        np.testing.assert_allclose(result.numpy().astype(float), np.asarray(want, float), rtol=2e-3, atol=2e-3)


def test_without_torch_the_table_says_so(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setitem(sys.modules, "benchmarks.experts.torch_versions", None)
    monkeypatch.delattr("benchmarks.experts.torch_versions", raising=False)
    gpu_experts.add_torch([{"kernel": "matvec", "expert_us": 1.0}])
    assert capsys.readouterr().out.startswith("No times of torch: ")


def test_an_exception_of_one_kernel_is_said_in_its_row(monkeypatch: pytest.MonkeyPatch, session: Session) -> None:
    def fail(session: Session, task: Task) -> dict[str, object]:
        raise ZeroDivisionError("no sizes")

    for name in ("row_of", "judge_expert"):
        monkeypatch.setattr(gpu_experts, name, fail)
    row = beside_expert(session, Task(NAIVE.name, "", "matvec", {}, True, 1))
    assert (row["kernel"], row["ours_us"], row["expert_correct"]) == ("matvec", None, False)
    assert row["why"] == row["expert_why"] == "ZeroDivisionError: no sizes"


def test_a_summary_counts_a_slower_schedule_as_the_naive_kernel() -> None:
    row = {"expert_correct": True, "baseline_us": 8.0, "ours_us": 9.0, "expert_us": 2.0}
    assert "ours 1.00x, experts 4.00x" in summary([row])
    assert "0 of 1 expert versions right. Of 0 timed" in summary([{"expert_correct": False, "expert_us": None}])
