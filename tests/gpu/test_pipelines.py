"""Pipelines on a real GPU: judged stage by stage, and timed as a whole by a graph."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kernelmate.backends.base import StageLaunch
from kernelmate.backends.cuda.driver import missing_for_gpu
from kernelmate.backends.cuda.pipeline_timing import LibraryStep, ReplayedSteps
from kernelmate.config import load_settings
from kernelmate.records import FindingCode, Kernel
from kernelmate.session import Session
from kernelmate.source import load_kernels

_missing = missing_for_gpu()
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(_missing is not None, reason=f"no GPU can be used: {_missing and _missing[0]}"),
]

ROOT = Path(__file__).resolve().parents[2]
PIPELINES = ROOT / "tests" / "pipelines"
RIGHT = [*sorted((PIPELINES / "right").glob("*.cu")), ROOT / "examples" / "pipelines" / "softmax_pipeline.cu"]


def pipeline(path: Path) -> Kernel:
    return next(one for one in load_kernels(path) if one.parts)


@pytest.fixture(scope="module")
def session() -> Iterator[Session]:
    with Session(load_settings(seed=3, backend="cuda")) as opened:
        yield opened


@pytest.mark.parametrize("path", RIGHT, ids=lambda path: path.stem)
def test_a_right_pipeline_is_right_and_measured_as_a_whole(session: Session, path: Path) -> None:
    (verdict,) = session.bench(pipeline(path))
    assert [one for one in verdict.findings if one.severity == "error"] == []
    assert verdict.correct, verdict.reasons
    assert verdict.timing.kind == "measured"
    assert verdict.timing.median_us > 0
    assert verdict.timing.replay_period_us is not None
    assert all(stage.correct is not False for stage in verdict.stages)
    assert all(stage.timing is None or stage.timing.kind == "predicted" for stage in verdict.stages)


def test_the_graph_holds_every_stage(session: Session) -> None:
    """Each of the two launches reads and writes every element, which takes its time at the GPU's bandwidth."""
    n = 1 << 26
    timing = session.bench(pipeline(PIPELINES / "right" / "blur_twice.cu"), sizes=[{"n": n}])[0].timing
    assert timing.median_us >= 2 * 2 * 4 * n / (1e3 * session.target.memory_gbps)


@pytest.mark.parametrize(
    ("name", "code", "stage"),
    [
        ("out_of_bounds", FindingCode.OUT_OF_BOUNDS_WRITE, "partial_sums"),
        ("race_in_stage_2", FindingCode.SHARED_RACE, "add_up"),
        ("never_cleared", FindingCode.UNINITIALISED_GLOBAL, "histogram"),
        ("wrong_stage", FindingCode.WRONG_VALUES, "statistics"),
    ],
)
def test_a_wrong_pipeline_is_rejected_with_its_stage(
    session: Session, name: str, code: FindingCode, stage: str
) -> None:
    verdict = session.bench(pipeline(PIPELINES / "wrong" / f"{name}.cu"))[0]
    assert (verdict.correct, verdict.accepted) == (False, False)
    assert (code, stage) in {(one.code, one.stage) for one in verdict.findings if one.severity == "error"}


def test_a_kernel_is_timed_beside_the_pipeline_that_it_replaces(session: Session) -> None:
    before = pipeline(ROOT / "examples" / "pipelines" / "softmax_pipeline.cu")
    after = load_kernels(ROOT / "examples" / "softmax.cu")[0]
    found = session.compare(before, after)
    assert found.candidate[0].correct
    assert found.candidate[0].speedup.kind == "measured"
    back = session.compare(after, before)
    assert back.candidate[0].correct
    assert back.candidate[0].speedup.kind == "measured"


def test_a_fused_kernel_is_accepted_where_it_is_faster(session: Session) -> None:
    kernel = pipeline(ROOT / "examples" / "pipelines" / "softmax_pipeline.cu")
    found = session.optimize(kernel, "make it faster", sizes=[{"rows": 4096, "cols": 1024}], max_candidates=3)
    assert found.best == 0, found.notes
    assert found.candidates[0].verdict.accepted
    assert found.candidates[0].verdict.speedup.kind == "measured"


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize(
    ("text", "shapes"),
    [
        ("a @ b", ((48, 65), (65, 31))),
        ("a @ b.T", ((48, 65), (31, 65))),
        ("a[:, ::-1][:, ::-1].T @ b", ((65, 48), (65, 31))),
        ("a @ np.swapaxes(b, 1, 2)", ((3, 17, 20), (3, 33, 20))),
        ("(a * 2) @ b", ((4, 2, 8, 5), (4, 2, 5, 9))),
    ],
)
def test_a_library_s_product_is_captured(
    backend: Any, text: str, shapes: tuple[tuple[int, ...], ...], dtype: str
) -> None:
    import cupy

    rng = np.random.default_rng(3)
    arrays = [rng.standard_normal(shape).astype(dtype) for shape in shapes]
    expected = eval(text, {"np": np, "a": arrays[0].astype(np.float64), "b": arrays[1].astype(np.float64)})
    with backend.device, backend.stream:
        held = [cupy.asarray(one) for one in (*arrays, np.zeros(expected.shape, dtype))]
        places = {name: int(one.data.ptr) for name, one in zip("aby", held, strict=True)}
        types = {name: (one.shape, one.dtype) for name, one in zip("aby", held, strict=True)}
        arguments = (("a", "a"), ("b", "b"), ("y", "y"))
        stage = StageLaunch("product", None, arguments, frozenset("ab"), frozenset("y"), text=text)
        replayed = ReplayedSteps([LibraryStep(stage, places, types)], backend.stream, held)
        assert replayed.is_graph
        held[2].fill(0)
        replayed(backend.stream.ptr)
        found = held[2].get()
    np.testing.assert_allclose(found, expected, rtol={"float16": 5e-3, "float32": 2e-5, "float64": 1e-12}[dtype], atol=1e-2 if dtype == "float16" else 1e-5)  # fmt: skip


def test_a_product_that_cannot_be_captured_is_timed_without_a_graph(session: Session, tmp_path: Path) -> None:
    text = (
        (PIPELINES / "right" / "bias_gelu.cu").read_text().replace("../reference.py", str(PIPELINES / "reference.py"))
    )
    changed = tmp_path / "einsum.cu"
    changed.write_text(text.replace('"a @ b"', "\"np.einsum('ij,jk->ik', a, b)\""))
    (verdict,) = session.bench(pipeline(changed))
    assert verdict.correct, verdict.reasons
    assert verdict.timing.replay_period_us is None
    assert any("cannot be captured in a graph" in note for note in verdict.timing.notes)
