"""Variables that outlive a launch, and assumptions that sizes contradict, on compiled kernels."""

from __future__ import annotations

import pytest

from kernelmate.config import load_settings
from kernelmate.session import Session
from kernelmate.source import load_kernels

HEAD = """
// /// kernelmate
// sizes = [{ n = 1000 }, { n = 33 }]
// grid = "cdiv(n, block)"
// block = 128
// reference = "2 * x"
// [args]
// x = "in float32[n]"
// y = "out float32[n]"
// n = "int32"
// ///
__global__ void k(const float* x, float* y, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
"""
PLAIN = "  if (i < n) y[i] = 2 * x[i];\n}\n"


@pytest.fixture(scope="module")
def session():
    with Session(load_settings(seed=7, backend="emulator", history=False)) as opened:
        yield opened


@pytest.fixture
def findings(session, tmp_path):
    """The findings of one code on a candidate, by severity."""

    def found(code: str, before: str, body: str, baseline: str | None = None):
        (tmp_path / "base.cu").write_text(baseline or HEAD + PLAIN)
        (tmp_path / "candidate.cu").write_text(before + HEAD + body)
        kernels = [load_kernels(tmp_path / f"{name}.cu")[0] for name in ("base", "candidate")]
        (verdict,) = session.compare(*kernels).candidate
        return [(one.severity, one.message, one.line) for one in verdict.findings if one.code == code]

    return found


COUNTED = "  int c = 0;\n  if (i == 0) c = {};\n  if (i < n) y[i] = c > 100000 ? 0.0f : 2 * x[i];\n}}\n"


@pytest.mark.parametrize("count", ["atomicAdd(&seen, 1)", "atomicMax(&seen, seen + 1)"])
def test_a_count_of_launches_that_decides_something_is_an_error_with_its_place(findings, count) -> None:
    ((severity, message, line),) = findings("stateful", "__device__ int seen;", COUNTED.format(count))
    assert severity == "error"
    assert "seen" in message
    assert line is not None


def test_a_count_that_decides_nothing_is_none(findings) -> None:
    assert findings("stateful", "__device__ int seen;", "  if (i == 0) atomicAdd(&seen, 1);\n" + PLAIN) == []


def test_a_ticket_that_is_put_back_is_only_said_to_be_shared(findings) -> None:
    ticket = "  if (threadIdx.x == 0 && atomicAdd(&ended, 1u) == gridDim.x - 1) ended = 0;\n"
    ((severity, message, _),) = findings("stateful", "__device__ unsigned int ended;", ticket + PLAIN)
    assert severity == "note"
    assert "two launches at the same time" in message


def test_what_the_baseline_remembers_as_well_is_no_error(findings) -> None:
    text = COUNTED.format("atomicAdd(&seen, 1)")
    before = "__device__ int seen;"
    found = findings("stateful", before, text.replace("2 * x", "2.0f * x"), before + HEAD + text)
    assert [severity for severity, _, _ in found] == ["warning"]


@pytest.mark.parametrize(
    ("assumption", "severity"),
    [("n % 2 == 0", "error"), ("n > 50", "error"), ("n > 0", None), ("blockDim.x == 128", None),
     ("threadIdx.x < 64", "error"), ("((size_t)x & 15) == 0", "error")],
)  # fmt: skip
def test_an_assumption_is_held_against_sizes_block_and_addresses(findings, assumption, severity) -> None:
    found = findings("wrong-at-size", "", f"  __builtin_assume({assumption});\n" + PLAIN)
    told = [one for one in found if assumption in one[1]]
    assert [one[0] for one in told] == ([] if severity is None else [severity])


def test_an_assumption_inside_its_own_condition_is_none(findings) -> None:
    body = "  if (n % 2 == 0) { __builtin_assume(n % 2 == 0); if (i < n) y[i] = 2 * x[i]; return; }\n"
    assert findings("wrong-at-size", "", body + PLAIN) == []
