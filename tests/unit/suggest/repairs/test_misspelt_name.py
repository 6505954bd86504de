from __future__ import annotations

import pytest

from kernelmate.suggest.repairs.misspelt_name import REPAIR, near_names


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("threadIdx", "threadidx"),
        ("__syncthreads", "__sync_threads"),
        ("__syncthreads", "syncthreads"),
        ("float s", "flaot s"),
        ("s += x[", "s += xx["),
        ("blockDim.x / 2", "blockDim.X / 2"),
        ("y[blockIdx.x] = part", "y[blockIdx.x] = patr"),
    ],
)
def test_the_nearest_name_is_taken(texts, mended, right: str, wrong: str) -> None:
    best = mended(texts["row"].replace(right, wrong, 1), REPAIR)
    assert best.candidate.kernel.unit.text == texts["row"]
    assert "is not declared" in best.candidate.why or "has no" in best.candidate.why


def test_several_names_are_put_right_at_once(texts, mended) -> None:
    broken = texts["row"].replace("threadIdx.x; c", "threadidx.x; c").replace("c += blockDim", "c += blockdim")
    assert mended(broken, REPAIR).candidate.kernel.unit.text == texts["row"]


def test_a_name_in_a_comment_or_a_string_is_not_changed(texts, mended) -> None:
    best = mended(texts["row"].replace("float s = 0.0f;", "flaot s = 0.0f;  // a flaot"), REPAIR)
    assert "float s = 0.0f;  // a flaot" in best.candidate.kernel.unit.text


def test_case_and_underscores_count_for_less_than_letters() -> None:
    assert near_names("threadidx", {"threadIdx", "thread_x", "thread"})[0] == "threadIdx"
    assert near_names("qqqq", {"threadIdx", "blockDim"}) == []


def test_a_wrong_guess_is_judged_and_told(texts, search) -> None:
    found = search(texts["row"].replace("s += x[", "s += ys["), REPAIR)
    assert found.candidates
    assert all(one.verdict.accepted is False for one in found.candidates)
    assert found.best is None
