"""A search on a GPU: quick evaluations first, and a second judgement of the best version on other inputs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from kernelmate.backends.cuda.driver import missing_for_gpu
from kernelmate.config import load_settings
from kernelmate.decide.objective import read_objective
from kernelmate.records import SearchState
from kernelmate.session import Session
from kernelmate.source import apply_edits, find_kernels, text_unit

_missing = missing_for_gpu()
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(_missing is not None, reason=f"no GPU can be used: {_missing and _missing[0]}"),
]

TRANSPOSE = """// /// kernelmate
// sizes = [{ rows = 1024, cols = 1024 }, { rows = 37, cols = 53 }]
// grid = ["cdiv(cols, block_x)", "cdiv(rows, block_y)"]
// block = [32, 8]
// reference = "x.T"
// [args]
// x = "in float32[rows, cols]"
// y = "out float32[cols, rows]"
// rows = "int32"
// cols = "int32"
// ///
__global__ void transpose(const float* x, float* y, int rows, int cols) {
  int c = blockIdx.x * blockDim.x + threadIdx.x;
  int r = blockIdx.y * blockDim.y + threadIdx.y;
  if (r < rows && c < cols) y[(size_t)c * rows + r] = x[(size_t)r * cols + c];
}
"""


@pytest.fixture(scope="module")
def session() -> Iterator[Session]:
    with Session(load_settings(seed=3, backend="cuda")) as session:
        yield session


def test_a_quick_evaluation_times_the_headline_warm_beside_the_baseline_and_makes_the_small_case(
    session: Session,
) -> None:
    kernel = find_kernels(text_unit(TRANSPOSE, "transpose.cu"))[0]
    context = session._context(kernel, (), None)
    (baseline,) = context.baselines()
    objective = read_objective("make it faster")
    turned = replace(context.contract, block=("8", "32"))
    right = context.quick_evaluation(context.preparer.prepare_candidate(kernel, turned, None), baseline, objective)
    assert right.verdict.correct is True
    assert [case.size for case in right.verdict.cases] == list(context.contract.sizes)
    (headline,) = right.metrics
    assert headline.timing is not None
    assert headline.timing.kind == "measured"
    assert (headline.timing.cold_l2_us, headline.timing.replay_period_us) == (None, None)
    assert headline.beside is not None
    assert right.verdict.speedup is not None
    assert right.verdict.counters is None
    wrong = apply_edits(kernel, [(kernel.end - 2, kernel.end - 2, "\n  if (rows == 37) y[0] = 1e9f;\n")])
    small = context.quick_evaluation(
        context.preparer.prepare_candidate(wrong, context.contract, None), baseline, objective
    )
    assert small.verdict.correct is False
    assert small.verdict.timing is None


def test_a_search_accepts_a_faster_version_and_judges_it_on_other_inputs(session: Session) -> None:
    kernel = find_kernels(text_unit(TRANSPOSE, "transpose.cu"))[0]
    told: list[SearchState] = []
    found = session.optimize(kernel, "make it faster", budget_s=60, on_trying=told.append)
    assert found.best == 0
    best = found.candidates[0].verdict
    assert best.accepted is True
    assert best.seed != found.baseline.seed
    assert best.speedup is not None
    assert best.speedup.kind == "measured"
    assert any(state.quick for state in told)
    assert any(not state.quick for state in told)
