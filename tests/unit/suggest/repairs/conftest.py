"""Repairs held to the judge: what they make of broken kernels is compiled, run on the emulator and compared with the reference."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from kernelmate.config import load_settings
from kernelmate.records import Candidate, Judged, Optimization
from kernelmate.session import Session
from kernelmate.source import load_kernel
from kernelmate.suggest.base import SuggestRequest
from kernelmate.suggest.repairing import RepairSequences
from kernelmate.suggest.repairs import Repair

ROW_CONTRACT = """\
// /// kernelmate
// sizes = [{ rows = 4, cols = 1000 }, { rows = 3, cols = 37 }]
// grid = "rows"
// block = 128
// reference = "x.sum(axis=1)"
// [args]
// x = "in float32[rows, cols]"
// y = "out float32[rows]"
// rows = "int32"
// cols = "int32"
// ///
"""
MAP_CONTRACT = """\
// /// kernelmate
// sizes = [{ n = 1000 }, { n = 1 }, { n = 256 }]
// grid = "cdiv(n, block)"
// block = 256
// reference = "x * 2"
// [args]
// x = "in float32[n]"
// y = "out float32[n]"
// n = "int32"
// ///
"""
ROW_SUM = """\
__global__ void row_sum(const float *x, float *y, int rows, int cols) {
    __shared__ float part[128];
    float s = 0.0f;
    for (int c = threadIdx.x; c < cols; c += blockDim.x) s += x[blockIdx.x * cols + c];
    part[threadIdx.x] = s;
    __syncthreads();
    for (int k = blockDim.x / 2; k > 0; k /= 2) {
        if (threadIdx.x < k) part[threadIdx.x] += part[threadIdx.x + k];
        __syncthreads();
    }
    if (threadIdx.x == 0) y[blockIdx.x] = part[0];
}
"""


class Alone:
    """A suggester that is one repair."""

    name = "alone"

    def __init__(self, repair: Repair) -> None:
        self.repair = repair

    def propose(self, request: SuggestRequest) -> Iterator[Candidate]:
        return self.repair.candidates(request)


@pytest.fixture(scope="session")
def emulated() -> Iterator[Session]:
    """One warm session on the emulator for all repairs."""
    with Session(load_settings(seed=11, backend="emulator", timeout_s=300, history=False)) as session:
        yield session


@pytest.fixture
def search(emulated: Session, tmp_path: Path) -> Callable[..., Optimization]:
    """`search(source, repair)`: what one repair, or with none all of them, make of a broken kernel."""

    def run(source: str, repair: Repair | None = None) -> Optimization:
        path = tmp_path / "kernel.cu"
        path.write_text(source)
        author = RepairSequences() if repair is None else Alone(repair)
        return emulated.optimize(load_kernel(str(path)), "fix it", suggesters=[author], objective="correct")

    return run


@pytest.fixture
def mended(search: Callable[..., Optimization]) -> Callable[..., Judged]:
    """`mended(source, repair)`: the right version; fails where the kernel was right before or there is none."""

    def run(source: str, repair: Repair | None = None) -> Judged:
        found = search(source, repair)
        assert found.baseline.accepted is False, "it is right as it is"
        assert found.best is not None, [(one.candidate.kernel.source, one.verdict.reasons) for one in found.candidates]
        best = found.candidates[found.best]
        assert best.verdict.accepted is True, best.verdict.reasons
        assert best.verdict.correct is True
        assert not [finding for finding in best.verdict.findings if finding.severity == "error"]
        return best

    return run


@pytest.fixture
def lines() -> Callable[[Judged, str], Sequence[str]]:
    """Lines that a version has and the text did not, stripped."""

    def added(judged: Judged, source: str) -> Sequence[str]:
        before = source.split("\n")
        return [line.strip() for line in judged.candidate.kernel.unit.text.split("\n") if line not in before]

    return added


@pytest.fixture
def texts() -> dict[str, str]:
    """A right kernel of each kind to be broken, contract included, and the contracts alone."""
    return {"row": ROW_CONTRACT + ROW_SUM, "row contract": ROW_CONTRACT, "map contract": MAP_CONTRACT}
