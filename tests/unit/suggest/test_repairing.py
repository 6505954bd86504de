"""Sequences of repairs, and what becomes of kernels that none of them mends."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kernelmate.config import load_settings
from kernelmate.records import Diagnostic, Finding, FindingCode, Optimization
from kernelmate.session import Session
from kernelmate.source import load_kernel
from kernelmate.suggest.offline import Offline
from kernelmate.suggest.repairing import RepairSequences, distance, is_nearer
from kernelmate.suggest.repairs import ALL
from kernelmate.suggest.scripted import Scripted

BROKEN = """\
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
__global__ void row_sum(const float *x, float *y, int rows, int cols) {
    __shared__ float part[128];
    float s = 0.0f
    for (int c = threadIdx.x; c <= cols; c += blockDim.x) s += x[blockIdx.x * cols + c];
    part[threadidx.x] = s;
    for (int k = blockDim.x / 2; k > 0; k /= 2) {
        if (threadIdx.x < k) part[threadIdx.x] += part[threadIdx.x + k];
        __syncthreads();
    }
    if (threadIdx.x == 0) y[blockIdx.x] = part[0];
}
"""


@pytest.fixture(scope="module")
def session() -> Iterator[Session]:
    with Session(load_settings(seed=5, backend="emulator", timeout_s=300, history=False)) as made:
        yield made


@pytest.fixture
def fixed(session: Session, tmp_path: Path) -> Any:
    def run(source: str, **named: Any) -> tuple[Optimization, Offline]:
        path = tmp_path / "kernel.cu"
        path.write_text(source)
        author = Offline()
        found = session.optimize(
            load_kernel(str(path)), "fix it", suggesters=[author], objective="correct", max_candidates=64, **named
        )
        return found, author

    return run


def test_four_faults_are_mended_one_after_the_other(fixed: Any) -> None:
    found, _ = fixed(BROKEN)
    assert found.best == 0
    best = found.candidates[0]
    assert best.verdict.accepted is True
    author = best.candidate.author.removeprefix("recipe:").split("+")
    assert {"missing-token", "misspelt-name", "missing-barrier", "off-by-one"} >= set(author)
    assert len(author) >= 3
    assert best.candidate.why.count(" Then: ") == len(author) - 1


def test_what_cannot_be_mended_says_what_was_looked_for(fixed: Any) -> None:
    found, author = fixed(BROKEN.replace("float s = 0.0f\n", "float s = 0.0f;\n").replace("threadidx", "qqqqqqqq"))
    assert found.best is None
    assert author.notes == [
        "No repair applies to compile-error. Looked for: missing-include, missing-token, misspelt-name."
    ]


def test_a_right_kernel_is_left_alone_and_that_is_said(fixed: Any) -> None:
    right = BROKEN.replace("0.0f\n", "0.0f;\n").replace("<= cols", "< cols").replace("threadidx", "threadIdx")
    found, _ = fixed(right.replace("] = s;\n", "] = s;\n    __syncthreads();\n"))
    assert (found.candidates, found.best) == ((), None)
    assert found.notes == ("The kernel is right as it is, so there is nothing to repair.",)


def test_without_a_reference_a_repair_is_offered_and_not_accepted(fixed: Any) -> None:
    source = BROKEN.replace('// reference = "x.sum(axis=1)"\n', "")
    found, _ = fixed(source)
    assert found.best is not None
    best = found.candidates[found.best].verdict
    assert (best.compiled, best.accepted) == (True, None)
    assert any(one.startswith("nothing shows that it is right: give the contract a reference") for one in best.reasons)


def test_a_prompt_in_words_mends_as_well(session: Session, tmp_path: Path) -> None:
    path = tmp_path / "kernel.cu"
    path.write_text(BROKEN)
    found = session.optimize(load_kernel(str(path)), "it does not compile, fix it")
    assert found.objective.metric == "correct"
    assert found.best == 0


def test_distance_counts_messages_then_faults_then_wrong_sizes(fixed: Any) -> None:
    found, _ = fixed(BROKEN)
    broken, right = found.baseline, found.candidates[0].verdict
    assert distance(broken)[0] == sum(d.severity == "error" for d in broken.diagnostics) > 0
    assert distance(right) == (0, 0, 0)
    assert is_nearer(right, broken)
    assert not is_nearer(broken, right)


def test_as_many_faults_of_a_lesser_kind_are_nearer_and_of_a_greater_kind_are_not(fixed: Any) -> None:
    right = fixed(BROKEN)[0].candidates[0].verdict
    bounds, race = (replace(right, correct=False, findings=(Finding(FindingCode(code), "error", "x"),)) for code in ("out-of-bounds-write", "shared-race"))  # fmt: skip
    assert is_nearer(race, bounds)
    assert not is_nearer(bounds, race)
    assert not is_nearer(race, race)


def test_another_message_of_the_compiler_is_a_step(fixed: Any) -> None:
    broken = fixed(BROKEN)[0].baseline
    one, other = (replace(broken, diagnostics=(Diagnostic("error", text, None, 1, 1),)) for text in ("a", "b"))
    assert is_nearer(one, other)
    assert not is_nearer(one, one)


def test_it_hands_out_no_more_than_it_may(session: Session, tmp_path: Path) -> None:
    path = tmp_path / "kernel.cu"
    path.write_text(BROKEN)
    found = session.optimize(
        load_kernel(str(path)), "fix it", suggesters=[RepairSequences(most=1)], objective="correct"
    )
    assert len(found.candidates) == 1


def test_an_author_of_any_kind_can_mend_and_is_judged_alike(session: Session, tmp_path: Path) -> None:
    path = tmp_path / "kernel.cu"
    path.write_text(BROKEN)
    right = BROKEN.replace("0.0f\n", "0.0f;\n").replace("<= cols", "< cols").replace("threadidx", "threadIdx")
    right = right.replace("] = s;\n", "] = s;\n    __syncthreads();\n")
    kernels = [text[text.index("__global__") :] for text in (right.replace("k > 0", "k > 1"), right)]
    found = session.optimize(load_kernel(str(path)), "fix it", suggesters=[Scripted(kernels)], objective="correct")
    assert [one.verdict.accepted for one in found.candidates] == [True, False]
    assert found.candidates[0].candidate.author == "plugin:scripted"


def test_every_repair_has_a_name_of_its_own_and_answers_a_known_code() -> None:

    assert len({repair.name for repair in ALL}) == len(ALL) >= 10
    for repair in ALL:
        assert repair.codes
        assert repair.codes <= set(FindingCode)
        assert repair.metrics == ("correct",)
