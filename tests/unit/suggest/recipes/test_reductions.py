"""Recipes for reductions and for atomics within a block."""

from __future__ import annotations

import pytest

from kernelmate.suggest.recipes.accumulate_in_register import RECIPE as ACCUMULATE_IN_REGISTER
from kernelmate.suggest.recipes.block_atomics import RECIPE as BLOCK_ATOMICS
from kernelmate.suggest.recipes.sequential_reduction import RECIPE as SEQUENTIAL_REDUCTION
from kernelmate.suggest.recipes.serial_reduction import RECIPE as SERIAL_REDUCTION

SERIAL_REDUCTION_SOURCE = """
// /// kernelmate
// sizes = [{{ rows = 9, cols = 300 }}, {{ rows = 1, cols = 5 }}]
// grid = "rows"
// block = 128
// require = ["cols > 0"]
// reference = "{reference}"
// [args]
// x = "in float32[rows, cols]"
// y = "out float32[rows]"
// rows = "int32"
// cols = "int32"
// ///
__global__ void k(const float* x, float* y, int rows, int cols) {{
  __shared__ float part[128];
  const int t = threadIdx.x;
  float v = {start};
  for (int c = t; c < cols; c += 128) v = {join};
  part[t] = v;
  __syncthreads();
  if (t == 0) {{
    {serial}
    y[blockIdx.x] = s;
  }}
}}
"""
SUM = "float s = 0.0f;\n    for (int i = 0; i < 128; ++i) s += part[i];"
MAXIMUM = "float s = part[0];\n    for (int i = 1; i < blockDim.x; ++i) s = fmaxf(s, part[i]);"


@pytest.mark.parametrize(
    ("reference", "start", "join", "serial"),
    [
        ("x.sum(axis=1)", "0.0f", "v + x[blockIdx.x * cols + c]", SUM),
        ("x.max(axis=1)", "-INFINITY", "fmaxf(v, x[blockIdx.x * cols + c])", MAXIMUM),
    ],
)
def test_warps_join_their_values_before_one_thread_does(judged, reference, start, join, serial) -> None:
    source = SERIAL_REDUCTION_SOURCE.format(reference=reference, start=start, join=join, serial=serial)
    (one,) = judged(source, SERIAL_REDUCTION, "use less shared memory")
    assert "if (t % 32 == 0) part[t / 32] = part_value;" in one.candidate.kernel.source
    assert one.verdict.objective.after == 16
    assert one.verdict.accepted is True


@pytest.mark.parametrize(
    "serial",
    ["float s = 0.0f;\n    for (int i = 0; i < 64; ++i) s += part[i];", "float s = 0.0f;\n    for (int i = 0; i < 128; ++i) s += i * part[i];\n    s += part[3];"],
)  # fmt: skip
def test_values_that_are_read_otherwise_stay(ask, serial: str) -> None:
    source = SERIAL_REDUCTION_SOURCE.format(reference="x", start="0.0f", join="v + x[c]", serial=serial)
    assert list(SERIAL_REDUCTION.candidates(ask(source, "use less shared memory"))) == []


SEQUENTIAL_REDUCTION_SOURCE = """
// /// kernelmate
// sizes = [{{ n = 512 }}, {{ n = 77 }}, {{ n = 1 }}]
// grid = "cdiv(n, 128)"
// block = {block}
// reference = "np.add.reduceat(x, np.arange(0, n, 128)) if n else x[:0]"
// [args]
// x = "in float32[n]"
// y = "out float32[cdiv(n, 128)]"
// n = "int32"
// ///
__global__ void k(const float* x, float* y, int n) {{
  __shared__ float s[128];
  const int t = threadIdx.x;
  const int i = blockIdx.x * 128 + t;
  s[t] = i < n ? x[i] : 0.0f;
  __syncthreads();
  for ({head}) {{  // the tree
    if ({test}) {{
      {combine}
    }}
    __syncthreads();
  }}
  if (t == 0) y[blockIdx.x] = s[0];
}}
"""
HEAD = "int d = 1; d < blockDim.x; d *= 2"
TEST = "t % (2 * d) == 0"
COMBINE = "s[t] += s[t + d];"


def source(head: str = HEAD, test: str = TEST, combine: str = COMBINE, block: int = 128) -> str:
    return SEQUENTIAL_REDUCTION_SOURCE.format(head=head, test=test, combine=combine, block=block)


@pytest.mark.parametrize(
    ("head", "test", "combine"),
    [
        (HEAD, TEST, COMBINE),
        ("unsigned int d = 1; d < blockDim.x; d <<= 1", "(t & (2 * d - 1)) == 0", "s[t] = s[t + d] + s[t];"),
    ],
)
def test_the_active_threads_become_the_first_ones(judged, head: str, test: str, combine: str) -> None:
    (one,) = judged(source(head, test, combine), SEQUENTIAL_REDUCTION)
    text = one.candidate.kernel.source
    assert "d = blockDim.x / 2; d > 0; d /= 2) {  // the tree" in text
    assert "if (t < d)" in text
    assert combine in text


@pytest.mark.parametrize(
    ("head", "test", "combine"),
    [
        (HEAD, "t % d == 0", COMBINE),
        (HEAD, TEST, "s[t] -= s[t + d];"),
        (HEAD, TEST, "s[t] += s[t + 2 * d];"),
        ("int d = 2; d < blockDim.x; d *= 2", TEST, COMBINE),
        ("int d = 1; d < n; d *= 2", TEST, COMBINE),
        ("int d = 1; d < blockDim.x; d += 2", TEST, COMBINE),
    ],
)
def test_other_loops_stay(ask, head: str, test: str, combine: str) -> None:
    assert list(SEQUENTIAL_REDUCTION.candidates(ask(source(head, test, combine)))) == []


def test_a_block_that_is_no_power_of_two_stays(ask) -> None:
    assert list(SEQUENTIAL_REDUCTION.candidates(ask(source(block=96)))) == []


BLOCK_ATOMICS_SOURCE = """
// /// kernelmate
// sizes = [{{ n = 3000 }}, {{ n = 77 }}, {{ n = 1 }}]
// grid = "cdiv(n, 128)"
// block = {block}
// reference = "total + np.sum(x)"
// [args]
// x = "in int32[n] ~ integers(0, 100)"
// total = "inout int32[1] ~ zeros"
// n = "int32"
// ///
__global__ void add(const int* x, int* total, int n) {{
  const int i = blockIdx.x * 128 + threadIdx.x;
  if (i >= n) return;
  {body}
}}
"""


def test_a_block_or_a_warp_adds_once(judged) -> None:
    by_block, by_warp = judged(BLOCK_ATOMICS_SOURCE.format(body="atomicAdd(total, x[i]);", block=128), BLOCK_ATOMICS)
    assert "if (threadIdx.x == 0) atomicAdd(total, own);" in by_block.candidate.kernel.source
    assert "__shared__" not in by_warp.candidate.kernel.source
    assert by_block.verdict.counters.global_atomic_requests == 24
    assert by_warp.verdict.counters.global_atomic_requests == 24 * 4
    assert "one atomic per block" in by_block.candidate.why


def test_conditions_and_several_additions_are_kept(judged) -> None:
    body = "if (x[i] > 50) atomicAdd(&total[0], x[i]);\n  else atomicAdd(&total[0], x[i]);"
    by_block, _ = judged(BLOCK_ATOMICS_SOURCE.format(body=body, block=128), BLOCK_ATOMICS)
    assert by_block.candidate.kernel.source.count("own += x[i];") == 2


@pytest.mark.parametrize(
    ("body", "block"),
    [
        ("atomicAdd(&total[i % 4], x[i]);", 128),
        ("if (threadIdx.x == 0) atomicAdd(total, x[i]);", 128),
        ("int old = atomicAdd(total, x[i]);", 128),
        ("atomicAdd(total, x[i]);\n  total[0] = 3;", 128),
        ("atomicAdd(total, x[i]);\n  if (n > 3) { if (i) return; }", 128),
        ("atomicAdd(total, x[i]);", 100),
    ],
)
def test_what_is_joined_already_or_met_otherwise_stays(ask, body: str, block: int) -> None:
    assert list(BLOCK_ATOMICS.candidates(ask(BLOCK_ATOMICS_SOURCE.format(body=body, block=block)))) == []


ACCUMULATE_IN_REGISTER_SOURCE = """
// /// kernelmate
// sizes = [{{ n = 67, m = 33 }}, {{ n = 1, m = 1 }}]
// grid = "cdiv(n, 64)"
// block = 64
// reference = "np.add.reduce(a, axis=1) + {start}"
// [args]
// a = "in float32[n, m] ~ uniform(0, 1)"
// out = "{direction} float32[n] ~ uniform(0, 1)"
// n = "int32"
// m = "int32"
// ///
__global__ void sums(const float* a, float* out, int n, int m) {{
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) {{
    {first}
    for (int k = 0; k < m; ++k) {{
      {step}  // one more
    }}
  }}
}}
"""


def accumulate_in_register_source(
    first: str = "out[i] = 0.0f;", step: str = "out[i] += a[i * m + k];", **more: str
) -> str:
    return ACCUMULATE_IN_REGISTER_SOURCE.format(
        first=first, step=step, start=more.get("start", "0"), direction=more.get("direction", "out")
    ).replace('"out float32[n] ~ uniform(0, 1)"', '"out float32[n]"')


def test_a_sum_in_global_memory_is_kept_in_a_register_and_stored_once(judged) -> None:
    (one,) = judged(accumulate_in_register_source(), ACCUMULATE_IN_REGISTER, "less global traffic")
    text = one.candidate.kernel.source
    assert "float sum = 0.0f;" in text
    assert "sum += a[i * m + k];  // one more" in text
    assert text.count("out[i]") == 1
    assert one.verdict.accepted is True


def test_a_sum_that_goes_on_from_what_was_there_begins_with_it(judged) -> None:
    text = accumulate_in_register_source(
        first="", step="out[i] = out[i] + a[i * m + k];", direction="inout", start="out"
    )
    (one,) = judged(text, ACCUMULATE_IN_REGISTER)
    assert "float sum = out[i];" in one.candidate.kernel.source


@pytest.mark.parametrize(
    "step",
    [
        "out[k] += a[i * m + k];",
        "out[i] += out[k];",
        "atomicAdd(&out[i], a[k]);",
        "out[i] = a[k];",
        "out[i] += helper(out);",
        "if (a[k] < 0.0f) return; out[i] += a[k];",
    ],
)
def test_an_element_that_changes_or_is_met_otherwise_stays(ask, step: str) -> None:
    assert list(ACCUMULATE_IN_REGISTER.candidates(ask(accumulate_in_register_source(step=step)))) == []
