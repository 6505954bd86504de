from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from kernelmate.decide.objective import read_objective
from kernelmate.decide.ranking import best_first, changed_lines, complexity
from kernelmate.records import Candidate, Contract, Judged, Kernel, ObjectiveResult, Speedup, Verdict
from kernelmate.source import contract_for, find_kernels, text_unit

SCALE = """\
// /// kernelmate
// sizes = [{ n = 1024 }]
// grid = "cdiv(n, block)"
// block = 256
// [args]
// x = "in float32[n]"
// y = "out float32[n]"
// n = "int32"
// ///
__global__ void scale(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = 2.0f * x[i];
}
"""
ONE_LINE = SCALE.replace("2.0f * x[i]", "x[i] + x[i]")
TWO_LINES = ONE_LINE.replace("int i = ", "const int i = ")
COPIED = SCALE.replace(
    "__global__ void scale(const float* x, float* y, int n) {",
    "__device__ void scale_large(const float* x, float* y, int n) { y[threadIdx.x] = x[threadIdx.x]; }\n"
    "__global__ void scale(const float* x, float* y, int n) {\n  if (n > 64) return scale_large(x, y, n);",
)
FASTER = read_objective("make it faster")


def kernel_of(text: str) -> Kernel:
    return next(one for one in find_kernels(text_unit(text, "k.cu")) if one.name == "scale")


BASELINE = kernel_of(SCALE)
CONTRACT = contract_for(BASELINE)

Make = Callable[..., Judged]


def version(text: str, verdict: Verdict, contract: Contract = CONTRACT) -> Judged:
    return Judged(Candidate("recipe:test", "Because.", kernel_of(text), contract), verdict)


@pytest.fixture
def timed(verdict) -> Make:
    """`timed(text, us)`: accepted with a measured time, 100 us before, and a ratio known to 1 %; or promising, predicted."""

    def make(
        text: str, us: float, *, kind: str = "measured", accepted: bool | None = True, **changes: object
    ) -> Judged:
        ratio = Speedup(kind, 100 / us, (99 / us, 101 / us))  # type: ignore[arg-type]
        return version(text, replace(verdict(time_us=us, kind=kind), accepted=accepted, speedup=ratio), **changes)

    return make


def ranked(*found: Judged) -> list[Judged]:
    return best_first(found, FASTER, BASELINE, CONTRACT)


def test_a_clearly_faster_version_comes_first_however_much_it_changes(timed: Make) -> None:
    simple, fast = timed(ONE_LINE, 50.0), timed(TWO_LINES, 40.0)
    assert ranked(simple, fast) == [fast, simple]


def test_within_noise_the_version_with_fewer_changed_lines_comes_first(timed: Make) -> None:
    simple, fast = timed(ONE_LINE, 40.5), timed(TWO_LINES, 40.0)
    assert ranked(fast, simple) == [simple, fast]


def test_within_noise_a_second_copy_of_the_kernel_comes_after_one_body(timed: Make) -> None:
    many = timed(SCALE.replace("int i", "int k").replace("i < n", "k < n").replace("[i]", "[k]"), 40.2)
    copied = timed(COPIED, 40.0)
    assert complexity(copied, BASELINE, CONTRACT)[1] is True
    assert complexity(many, BASELINE, CONTRACT)[1] is False
    assert ranked(copied, many) == [many, copied]


WORK = """\
__global__ void scale(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        float v = x[i] + 1.0f;
        y[i] = v > 0.0f ? v : 0.5f * v;
    }
}
"""


@pytest.mark.parametrize(
    ("body", "again"),
    [
        (
            "float v = a.at[k] + 1.0f;\n a.at[k] = v > 0.0f ? v : 0.5f * v;\n float v = x[j] + 1.0f;\n y[j] = v > 0.0f ? v : 0.5f * v;",
            True,
        ),
        (
            "float v = a.x + 1.0f;\n a.x = v > 0.0f ? v : 0.5f * v;\n float v = x[j] + 1.0f;\n y[j] = v > 0.0f ? v : 0.5f * v;",
            True,
        ),
        ("float v = x[j] + 1.0f;\n y[j] = v > 0.0f ? v : 0.5f * v;", False),
        ("a.at[k] = work(a.at[k]);\n y[j] = work(x[j]);", False),
    ],
)
def test_work_that_stands_twice_for_vectors_and_elements_is_a_second_copy(body: str, again: bool) -> None:
    kernel = kernel_of(WORK)
    text = f"__global__ void scale(const float* x, float* y, int n) {{\n{body}\n}}\n"
    assert (
        complexity(Judged(Candidate("recipe:test", "Because.", kernel_of(text), CONTRACT), None), kernel, CONTRACT)[1]
        is again
    )  # type: ignore[arg-type]


def test_a_body_that_stands_twice_is_a_second_copy_under_any_name(timed: Make) -> None:
    body = BASELINE.source[BASELINE.source.index("{") :]
    other = SCALE.replace(
        "__global__", f"__device__ void one(const float* y, float* x, int m, int n) {body}\n__global__"
    )
    assert complexity(timed(other, 1.0), BASELINE, CONTRACT)[1] is True


def test_within_noise_a_new_assumption_comes_last(timed: Make) -> None:
    assumes = timed(ONE_LINE, 40.0, contract=replace(CONTRACT, require=("n % 4 == 0",)))
    plain = timed(TWO_LINES, 40.1)
    assert ranked(assumes, plain) == [plain, assumes]


def test_predicted_times_are_told_apart_only_beyond_the_models_error(timed: Make) -> None:
    simple = timed(ONE_LINE, 44.0, kind="predicted", accepted=None)
    close = timed(TWO_LINES, 40.0, kind="predicted", accepted=None)
    far = timed(TWO_LINES, 20.0, kind="predicted", accepted=None)
    assert ranked(close, simple) == [simple, close]
    assert ranked(simple, far) == [far, simple]


def test_standing_goes_before_everything(timed: Make) -> None:
    rejected = timed(ONE_LINE, 10.0, accepted=False)
    promising = timed(ONE_LINE, 20.0, accepted=None)
    accepted = timed(TWO_LINES, 90.0)
    assert ranked(rejected, promising, accepted) == [accepted, promising, rejected]


def test_equal_counts_are_told_apart_by_simplicity_and_different_ones_by_the_count(verdict) -> None:
    objective = read_objective("use less shared memory")

    def version_of(text: str, shared: int) -> Judged:
        return version(text, verdict(shared_bytes=shared, accepted=True))

    equal = version_of(TWO_LINES, 1024), version_of(ONE_LINE, 1024)
    assert best_first(equal, objective, BASELINE, CONTRACT) == [equal[1], equal[0]]
    less = version_of(TWO_LINES, 512), version_of(ONE_LINE, 1024)
    assert best_first(less, objective, BASELINE, CONTRACT) == list(less)


def test_by_weights_the_means_are_compared_and_not_the_headlines(timed: Make) -> None:
    def by_weights(judged: Judged, mean: float) -> Judged:
        result = ObjectiveResult("time", "measured", 100.0, mean, True, weighted=True)
        ratio = Speedup("measured", 100 / mean, (99 / mean, 101 / mean), weighted=True)
        return replace(judged, verdict=replace(judged.verdict, objective=result, speedup=ratio))

    headline, mean = by_weights(timed(ONE_LINE, 10.0), 80.0), by_weights(timed(TWO_LINES, 90.0), 40.0)
    assert ranked(headline, mean) == [mean, headline]


def test_changed_lines_count_the_longer_side_of_each_change() -> None:
    assert changed_lines("a\nb\nc\n", "a\nb\nc\n") == 0
    assert changed_lines("a\nb\nc\n", "a\nx\ny\nc\n") == 2
    assert changed_lines("a\nb\nc\n", "c\n") == 2
