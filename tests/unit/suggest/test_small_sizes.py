"""Versions that leave small sizes as they were: which sizes, what is written, and that it is right on both sides."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from kernelmate.config import load_settings
from kernelmate.records import Candidate, Case, Contract, Judged, ObjectiveResult, Verdict
from kernelmate.session import Session
from kernelmate.source import apply_edits, contract_for, find_kernels, load_kernel, text_unit
from kernelmate.suggest.base import SuggestRequest
from kernelmate.suggest.small_sizes import Split, best_first, find_split, spared

SCALE = """
constexpr int BLOCK = 64;
// Doubles.
// /// kernelmate
// sizes = [{ rows = 8, cols = 4096 }, { rows = 3, cols = 37 }, { rows = 1, cols = 1 }]
// grid = "rows"
// block = 64
// reference = "2 * x"
// [args]
// x = "in float32[rows, cols]"
// y = "out float32[rows, cols]"
// cols = "int32"
// ///
__global__ void scale(const float* x, float* y, int cols) {
  __shared__ float kept[BLOCK];
  for (int c = threadIdx.x; c < cols; c += BLOCK) {
    kept[threadIdx.x] = x[blockIdx.x * cols + c];
    y[blockIdx.x * cols + c] = 2.0f * kept[threadIdx.x];
  }
}
void run(const float* x, float* y, int rows, int cols) { scale<<<rows, BLOCK>>>(x, y, cols); }
"""


@pytest.fixture
def timed(verdict: Callable[..., Verdict]) -> Callable[..., Verdict]:
    """`timed({cols: us}, **verdict)`: a verdict with a time at each of the contract's sizes, the headline first."""

    def make(times: Mapping[int, float], kind: str = "predicted", **changes: object) -> Verdict:
        cases = tuple(
            Case({"rows": 1, "cols": cols}, "contract", True, True, False, 0.1, None, us) for cols, us in times.items()
        )
        return verdict(time_us=next(iter(times.values())), kind=kind, cases=cases, **changes)

    return make


def contract_of(text: str) -> Contract:
    return contract_for(find_kernels(text_unit(text, "scale.cu"))[0])


def wider(text: str) -> Candidate:
    """The kernel with blocks of 256, its constant changed along."""
    kernel = find_kernels(text_unit(text.replace("BLOCK = 64", "BLOCK = 256").replace("block = 64", "block = 256")))[0]
    return Candidate("recipe:block-size", "More threads.", kernel, contract_for(kernel))


def test_sizes_are_split_between_those_that_lose_and_those_that_do_not(timed: Callable[..., Verdict]) -> None:
    before = timed({4096: 10.0, 37: 5.0, 1: 2.50})
    assert find_split(contract_of(SCALE), before, timed({4096: 5.0, 37: 4.0, 1: 2.75})) == Split((("cols", 8),))
    assert find_split(contract_of(SCALE), before, timed({4096: 5.0, 37: 5.5, 1: 2.75})) == Split((("cols", 512),))
    assert find_split(contract_of(SCALE), before, timed({4096: 5.0, 37: 4.0, 1: 2.50})) is None
    assert find_split(contract_of(SCALE), before, timed({4096: 5.0, 37: 5.5, 1: 2.50})) is None, (
        "no cols tells them apart"
    )


def test_all_lengths_must_be_small_for_a_size_to_stay_as_it_was(verdict: Callable[..., Verdict]) -> None:
    contract = contract_of(SCALE)
    told = replace(contract, args=(*contract.args, replace(contract.args[-1], name="rows")))

    def timed(*times: tuple[int, int, float]) -> Verdict:
        cases = tuple(Case({"rows": r, "cols": c}, "contract", True, True, False, 0.1, None, us) for r, c, us in times)
        return verdict(time_us=times[0][2], cases=cases)

    before = timed((256, 4096, 10.0), (64, 16, 5.0), (1, 1, 2.5))
    split = find_split(told, before, timed((256, 4096, 5.0), (64, 16, 4.0), (1, 1, 2.75)))
    assert split is not None
    assert (split.asked, split.large) == ("cols >= 4 || rows >= 8", "cols >= 4 or rows >= 8")
    lone = find_split(told, timed((1, 4096, 10.0), (1, 1, 2.5)), timed((1, 4096, 5.0), (1, 1, 2.75)))
    assert lone == Split((("cols", 64),)), "a length that does not tell the two kinds apart is not asked"


def test_noise_of_a_measurement_splits_nothing(timed: Callable[..., Verdict]) -> None:
    before, after = {4096: 10.0, 37: 5.0, 1: 2.50}, {4096: 5.0, 37: 4.0, 1: 2.53}
    contract = contract_of(SCALE)
    assert find_split(contract, timed(before, "measured"), timed(after, "measured")) is None
    assert find_split(contract, timed(before), timed(after)) == Split((("cols", 8),))


def test_where_there_is_more_code_a_predicted_size_must_gain_to_be_changed(timed: Callable[..., Verdict]) -> None:
    before, after = {4096: 10.0, 37: 5.0, 1: 2.5}, {4096: 5.0, 37: 4.0, 1: 2.5}
    more = timed(after, code_bytes=4096)
    assert find_split(contract_of(SCALE), timed(before), more) == Split((("cols", 8),))
    assert find_split(contract_of(SCALE), timed(before, "measured"), timed(after, "measured", code_bytes=4096)) is None


def test_a_kernel_that_is_not_told_its_sizes_is_left_alone(timed: Callable[..., Verdict]) -> None:
    contract = replace(contract_of(SCALE), args=tuple(a for a in contract_of(SCALE).args if a.shape is not None))
    assert find_split(contract, timed({4096: 10.0, 1: 2.0}), timed({4096: 5.0, 1: 3.0})) is None


def test_the_old_kernel_and_launch_are_kept_below_the_split(timed: Callable[..., Verdict]) -> None:
    kernel = find_kernels(text_unit(SCALE, "scale.cu"))[0]
    before, after = timed({4096: 10.0, 37: 5.0, 1: 2.5}), timed({4096: 5.0, 37: 4.0, 1: 2.8})
    found = spared(kernel, contract_of(SCALE), replace(before, binary="a"), wider(SCALE), replace(after, binary="b"))
    assert found is not None
    text = found.kernel.unit.text
    assert found.author == "recipe:block-size+small-sizes"
    assert found.contract.block == ("256 if cols >= 8 else 64",)
    assert contract_for(found.kernel).block == found.contract.block
    assert "scale<<<rows, (cols >= 8 ? 256 : 64)>>>(x, y, cols);" in text
    large = text[
        text.index("static __device__ __forceinline__ void scale_large(const float* x, float* y, int cols) {") :
    ]
    assert "kept[BLOCK]" in large.partition("// Doubles.")[0]
    assert "  if (cols >= 8) return scale_large(x, y, cols);" in found.kernel.source
    assert "kept[64]" in found.kernel.source, "the old numbers, where the unit has others now"


def test_where_only_the_launch_differs_the_text_stays(timed: Callable[..., Verdict]) -> None:
    text = (
        SCALE.replace("[BLOCK]", "[1024]").replace("c += BLOCK", "c += blockDim.x").replace("rows, BLOCK", "rows, 64")
    )
    kernel = find_kernels(text_unit(text, "scale.cu"))[0]
    before, after = timed({4096: 10.0, 37: 5.0, 1: 2.5}), timed({4096: 5.0, 37: 4.0, 1: 2.8})
    found = spared(kernel, contract_of(text), replace(before, binary="a"), wider(text), replace(after, binary="a"))
    assert found is not None
    assert found.contract.block == ("256 if cols >= 8 else 64",)
    assert "_large" not in found.kernel.unit.text


def test_templates_are_called_with_their_arguments_and_taken_names_are_left_alone(
    timed: Callable[..., Verdict],
) -> None:
    head = "int scale_large;\ntemplate <typename T, int N>\n__global__ void scale(const T*"
    text = SCALE.replace("__global__ void scale(const float*", head)
    text = text.replace("// block = 64\n", '// block = 64\n// instances = ["scale<float, 8>"]\n').replace(
        "scale<<<", "scale<float, 8><<<"
    )
    kernel = find_kernels(text_unit(text, "scale.cu"))[0]
    changed = apply_edits(kernel, [(kernel.end - 1, kernel.end - 1, "  ;\n")])
    candidate = Candidate("recipe:unroll", "Why.", changed, contract_of(text))
    before, after = timed({4096: 10.0, 37: 5.0, 1: 2.5}), timed({4096: 5.0, 37: 4.0, 1: 2.8})
    found = spared(kernel, contract_of(text), before, candidate, after)
    assert found is not None
    assert (
        "template <typename T, int N>\nstatic __device__ __forceinline__ void scale_large2(" in found.kernel.unit.text
    )
    assert "return scale_large2<T, N>(x, y, cols);" in found.kernel.source


def test_of_promising_versions_one_that_spares_small_sizes_comes_first_unless_it_costs_more(
    ask: Callable[..., SuggestRequest], verdict: Callable[..., Verdict]
) -> None:
    request = ask(SCALE)

    def judged(author: str, us: float, kind: str = "predicted", accepted: bool | None = None) -> Judged:
        made = verdict(time_us=us, kind=kind)
        met = ObjectiveResult("time", "predicted", 8.0, us, True)
        return Judged(
            Candidate(author, "", request.kernel, request.contract), replace(made, objective=met, accepted=accepted)
        )

    plain, near, far = judged("recipe:a", 4.0), judged("recipe:a+small-sizes", 4.1), judged("recipe:b+small-sizes", 4.3)
    assert best_first([plain, far, near]) == [near, plain, far]
    assert best_first([plain, far]) == [plain, far]
    measured = [judged("recipe:a", 4.0, "measured", True), judged("recipe:a+small-sizes", 4.1, "measured", True)]
    assert best_first(measured) == measured
    assert best_first([]) == []


@pytest.fixture(scope="module")
def emulated() -> Iterator[Session]:
    with Session(load_settings(seed=11, backend="emulator", timeout_s=300, history=False)) as session:
        yield session


COUNT = """
// /// kernelmate
// sizes = [{ n = 65536 }, { n = 1 }]
// grid = "cdiv(n, block)"
// block = 256
// reference = "reference.py:count"
// [args]
// samples = "in float32[n] ~ uniform(0, 1)"
// hits = "inout uint32[1] ~ zeros"
// n = "int32"
// ///
__global__ void count(const float* samples, unsigned int* hits, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n && samples[i] > 0.5f) atomicAdd(hits, 1u);
}
"""


def test_a_search_offers_it_and_it_is_right_on_both_sides_and_at_par_at_the_small_size(
    emulated: Session, tmp_path: Path
) -> None:
    (tmp_path / "count.cu").write_text(COUNT)
    (tmp_path / "reference.py").write_text("def count(samples):\n    return (samples > 0.5).sum(keepdims=True)\n")
    found = emulated.optimize(load_kernel(str(tmp_path / "count.cu")), "make it faster", max_candidates=6)
    assert found.best == 0
    assert not found.candidates[0].candidate.author.endswith("+small-sizes")  # which is simpler, and within noise
    spared = next(one for one in found.candidates if one.candidate.author.endswith("+small-sizes"))
    assert spared.verdict.correct is True
    before, after = (
        [case.median_us for case in one.cases if case.origin == "contract"] for one in (found.baseline, spared.verdict)
    )
    assert before[0] > 1.3 * after[0]
    assert after[1] == pytest.approx(before[1], rel=0.01)
    assert {case.size["n"] for case in spared.verdict.cases} > {1, 65536}
