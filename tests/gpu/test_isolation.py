"""Kernels that search the memory for expected outputs find none."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kernelmate.backends.cuda.driver import missing_for_gpu
from kernelmate.config import load_settings
from kernelmate.records import Verdict
from kernelmate.session import Session
from kernelmate.source import find_kernels, text_unit

_missing = missing_for_gpu()
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(_missing is not None, reason=f"no GPU can be used: {_missing and _missing[0]}"),
]

N = 1 << 22
HEAD = f"""// /// kernelmate
// sizes = [{{ n = {N} }}, {{ n = 1000 }}]
// grid = "cdiv(n, 256)"
// block = 256
// reference = "FACTOR * x"
// [args]
// x = "in float32[n]"
// y = "out float32[n]"
// n = "int32"
// ///
__global__ void scaled(const float* x, float* y, int n) {{
  int i = blockIdx.x * blockDim.x + threadIdx.x;
"""
RIGHT = f"{HEAD}  if (i < n) y[i] = FACTOR * x[i];\n}}\n"
SEARCHING = f"""{HEAD}  __shared__ long long place;
  place = 0;
  __syncthreads();
  if (n < 1000000) {{
    if (i < n) y[i] = FACTOR * x[i];
    return;
  }}
  // The first elements tell what is an answer.
  for (long long at = (FROM) + 64 * threadIdx.x; at < (TO); at += 64 * 256)
    if (at != 0 && y[at] == FACTOR * x[0] && y[at + 1] == FACTOR * x[1]) place = at;
  __syncthreads();
  if (i < n) y[i] = place == 0 ? 0 : y[place + i];
}}
"""
"""Looks for the answer around its output in steps of 256 bytes, as allocators place arrays, and copies it from there."""


@pytest.fixture(scope="module")
def session() -> Iterator[Session]:
    with Session(load_settings(seed=5, backend="cuda", history=False, timeout_s=20)) as opened:
        yield opened


def verdict_of_search(session: Session, start: str, end: str, factor: int = 2) -> Verdict:
    """The verdict on a kernel that searches from `start` to `end`, in elements from its output, beside a right one."""
    texts = (
        text.replace("FACTOR", str(factor)).replace("FROM", start).replace("TO", end) for text in (RIGHT, SEARCHING)
    )
    baseline, candidate = (find_kernels(text_unit(text, "k.cu"))[-1] for text in texts)
    (verdict,) = session.compare(baseline, candidate).candidate
    return verdict


@pytest.mark.parametrize("megabytes", [(0, 14), (16, 30), (32, 46), (-14, 0), (-30, -16), (-46, -32)])
def test_no_answer_lies_beside_a_kernel_s_arguments(session: Session, megabytes: tuple[int, int]) -> None:
    """A read of unmapped memory faults, so it finds no answer either."""
    start, end = (str(place << 18) for place in megabytes)
    verdict = verdict_of_search(session, start, end)
    assert verdict.correct is not True, verdict.reasons
    assert verdict.accepted is not True


def test_the_search_takes_an_answer_where_one_lies(session: Session) -> None:
    """With a factor of one the input is the answer, and its place is told."""
    verdict = verdict_of_search(session, "x - y", "x - y + 1", factor=1)
    assert verdict.correct is True, verdict.findings


def test_a_launch_that_never_ends_is_killed_before_the_time_limit_and_the_next_verdict_is_right(
    session: Session,
) -> None:
    right = RIGHT.replace("FACTOR", "2")
    endless = right.replace(
        "  if (i < n)", "  while (n > 1000000 && *(volatile const float*)x == x[0]) {}\n  if (i < n)"
    )
    baseline, candidate = (find_kernels(text_unit(text, "k.cu"))[-1] for text in (right, endless))
    (verdict,) = session.compare(baseline, candidate).candidate
    hangs = [finding for finding in verdict.findings if finding.code == "hang"]
    assert [finding.severity for finding in hangs] == ["error"], verdict.findings
    assert "the launch had not ended after 5 s" in hangs[0].message
    assert session.compare(baseline, baseline).candidate[0].correct is True
