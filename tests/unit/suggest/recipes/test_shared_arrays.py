"""Recipes that change shared arrays: narrower, smaller, merged, of dynamic size, or replaced by registers."""

from __future__ import annotations

import pytest

from kernelmate.suggest.recipes.dynamic_shared import RECIPE as DYNAMIC_SHARED
from kernelmate.suggest.recipes.merge_shared import RECIPE as MERGE_SHARED
from kernelmate.suggest.recipes.narrow_shared import RECIPE as NARROW_SHARED
from kernelmate.suggest.recipes.own_shared_element import RECIPE as OWN_SHARED_ELEMENT
from kernelmate.suggest.recipes.trim_shared import RECIPE as TRIM_SHARED

NARROW_SHARED_SOURCE = """
// /// kernelmate
// sizes = [{{ n = 1000 }}, {{ n = 1 }}]
// grid = "cdiv(n, 128)"
// block = 128
// reference = "np.add(np.append(x[1:], 0).astype(np.float64), x)"
// [args]
// x = "in uint8[n]"
// y = "out float32[n]"
// n = "int32"
// ///
__global__ void k(const unsigned char* x, float* y, int n) {{
  __shared__ float part[129];
  const int i = blockIdx.x * 128 + threadIdx.x;
  part[threadIdx.x] = {first};
  if (threadIdx.x == 0) part[128] = i + 128 < n ? (float)x[i + 128] : 0.0f;
  __syncthreads();
  if (i < n) y[i] = part[threadIdx.x] + part[threadIdx.x + 1];
}}
"""


@pytest.mark.parametrize("first", ["i < n ? x[i] : 0.0f", "i < n ? static_cast<float>(x[i]) : 0"])
def test_bytes_are_staged_as_bytes(judged, first: str) -> None:
    (one,) = judged(NARROW_SHARED_SOURCE.format(first=first), NARROW_SHARED, "use less shared memory")
    assert "__shared__ unsigned char part[129];" in one.candidate.kernel.source
    assert "(float)part[threadIdx.x] + (float)part[threadIdx.x + 1]" in one.candidate.kernel.source
    assert one.verdict.objective.after < 150
    assert one.verdict.accepted is True


@pytest.mark.parametrize("first", ["i < n ? x[i] * 0.5f : 0.0f", "i < n ? x[i] : 1.0f"])
def test_other_values_stay_float(ask, first: str) -> None:
    assert list(NARROW_SHARED.candidates(ask(NARROW_SHARED_SOURCE.format(first=first), "use less shared memory"))) == []


TRIM_SHARED_SOURCE = """
#define WIDEST 64
// /// kernelmate
// sizes = [{{ rows = 40, cols = 70 }}, {{ rows = 1, cols = 1 }}]
// grid = ["cdiv(cols, 16)", "cdiv(rows, 16)"]
// block = [16, 16]
// reference = "x.T * 2"
// [args]
// x = "in float32[rows, cols]"
// y = "out float32[cols, rows]"
// rows = "int32"
// cols = "int32"
// ///
__global__ void k(const float* x, float* y, int rows, int cols) {{
  __shared__ float tile[{dims}];
  int c = blockIdx.x * 16 + threadIdx.x, r = blockIdx.y * 16 + threadIdx.y;
  if (r < rows && c < cols) tile[threadIdx.y][threadIdx.x] = x[r * cols + c];
  __syncthreads();
  c = blockIdx.x * 16 + threadIdx.y;
  r = blockIdx.y * 16 + threadIdx.x;
  if (r < rows && c < cols) y[c * rows + r] = 2.0f * tile[threadIdx.x][{index}];
}}
"""


def test_a_tile_shrinks_to_what_the_block_uses(judged) -> None:
    (one,) = judged(
        TRIM_SHARED_SOURCE.format(dims="WIDEST][WIDEST", index="threadIdx.y"), TRIM_SHARED, "use less shared memory"
    )
    assert "__shared__ float tile[16][16];" in one.candidate.kernel.source
    assert one.verdict.objective.after == 1024


@pytest.mark.parametrize(("dims", "index"), [("16][16", "threadIdx.y"), ("64][64", "c % 64"), ("64][64", "(int)x[0]")])
def test_arrays_that_are_used_up_or_whose_use_is_not_known_stay(ask, dims: str, index: str) -> None:
    assert (
        list(TRIM_SHARED.candidates(ask(TRIM_SHARED_SOURCE.format(dims=dims, index=index), "use less shared memory")))
        == []
    )


MERGE_SHARED_SOURCE = """
// /// kernelmate
// sizes = [{{ n = 256 }}]
// grid = "1"
// block = 256
// [args]
// x = "inout float32[n]"
// n = "int32"
// ///
__global__ void k(float* x, int n) {{
  {declaration}
  const int t = threadIdx.x;
  early[t] = x[t];
  __syncthreads();
  float v = early[255 - t];
  {between}
  late[t] = v;
  __syncthreads();
  x[t] = late[n - 1 - t];
  {after}
}}
"""


def rewritten(
    ask,
    declaration: str = "__shared__ float early[256];\n  __shared__ float late[256];",
    between: str = "__syncthreads();",
    after: str = "",
) -> str | None:
    request = ask(
        MERGE_SHARED_SOURCE.format(declaration=declaration, between=between, after=after),
        prompt="use less shared memory",
    )
    found = [candidate.kernel.source for candidate in MERGE_SHARED.candidates(request)]
    assert len(found) <= 1
    return found[0] if found else None


@pytest.mark.parametrize(
    ("declaration", "wanted"),
    [
        ("__shared__ float early[256];\n  __shared__ float late[256];", "__shared__ float early[256];\n  const int t"),
        ("__shared__ float early[256], late[256];", "__shared__ float early[256];\n"),
        ("__shared__ float late[256], early[256];", "__shared__ float early[256];\n"),
        ("__shared__ float early[256], late[512];", "__shared__ float early[512];\n"),
    ],
)
def test_two_lifetimes_share_one_buffer(ask, declaration: str, wanted: str) -> None:
    text = rewritten(ask, declaration)
    assert text is not None
    assert wanted in text
    assert "late" not in text
    assert text.count("__syncthreads") == 3


def test_a_barrier_is_put_between_them_where_there_is_none(ask) -> None:
    text = rewritten(ask, between="")
    assert text is not None
    assert "__syncthreads();\n  early[t] = v;" in text


@pytest.mark.parametrize(
    ("declaration", "between", "after"),
    [
        (None, "", "x[t] += early[0];"),
        (None, "if (t > n) return;", ""),
        (None, "float* p = early;", "x[t] += p[0];"),
        (None, "float* p = &early[3];", "x[t] += p[0];"),
        ("__shared__ int early[256]; __shared__ float late[256];", "", ""),
        ("__shared__ float early[16][16], late[256];", "", ""),
        ("volatile __shared__ float early[256], late[256];", "", ""),
        ("__shared__ float early[256]; extern __shared__ float late[];", "", ""),
    ],
)
def test_what_may_live_at_the_same_time_stays(ask, declaration: str | None, between: str, after: str) -> None:
    parts = {} if declaration is None else {"declaration": declaration}
    assert rewritten(ask, between=between, after=after, **parts) is None


def test_buffers_of_one_loop_live_at_the_same_time(ask) -> None:
    source = MERGE_SHARED_SOURCE.format(declaration="__shared__ float early[256], late[256];", between="", after="")
    source = source.replace("early[t] = x[t];", "for (int r = 0; r < 2; ++r) { early[t] = x[t];").replace(
        "x[t] = late[n - 1 - t];", "x[t] = late[n - 1 - t]; }"
    )
    assert list(MERGE_SHARED.candidates(ask(source))) == []


def test_the_reason_says_what_is_saved(ask) -> None:
    request = ask(
        MERGE_SHARED_SOURCE.format(declaration="__shared__ float early[256], late[128];", between="", after="")
    )
    (candidate,) = MERGE_SHARED.candidates(request)
    assert "512 bytes" in candidate.why
    assert "one more barrier" in candidate.why


OWN_SHARED_ELEMENT_SOURCE = """
// /// kernelmate
// sizes = [{{ rows = 40, cols = 70 }}, {{ rows = 1, cols = 1 }}]
// grid = ["cdiv(cols, 32)", "cdiv(rows, 8)"]
// block = [32, 8]
// reference = "x * 2"
// [args]
// x = "in float32[rows, cols]"
// y = "out float32[rows, cols]"
// rows = "int32"
// cols = "int32"
// ///
__global__ void k(const float* x, float* y, int rows, int cols) {{
  __shared__ float tile[8][33];
  const int c = blockIdx.x * 32 + threadIdx.x, r = blockIdx.y * 8 + threadIdx.y;
  if (r < rows && c < cols) tile[threadIdx.y][threadIdx.x] = x[r * cols + c];
  __syncthreads();
  if (r < rows && c < cols) y[r * cols + c] = 2.0f * {read};
}}
"""


def test_what_a_thread_hands_to_itself_is_a_variable(judged) -> None:
    (one,) = judged(
        OWN_SHARED_ELEMENT_SOURCE.format(read="tile[threadIdx.y][threadIdx.x]"),
        OWN_SHARED_ELEMENT,
        "use less shared memory",
    )
    text = one.candidate.kernel.source
    assert "float own_tile;" in text
    assert "__syncthreads" not in text
    assert one.verdict.objective.after == 0
    assert one.verdict.accepted is True


@pytest.mark.parametrize("read", ["tile[threadIdx.y][threadIdx.x ^ 1]", "tile[threadIdx.y][0]"])
def test_what_others_read_stays(ask, read: str) -> None:
    assert (
        list(OWN_SHARED_ELEMENT.candidates(ask(OWN_SHARED_ELEMENT_SOURCE.format(read=read), "use less shared memory")))
        == []
    )


def test_an_element_that_two_threads_share_stays(ask) -> None:
    text = OWN_SHARED_ELEMENT_SOURCE.format(read="tile[0][threadIdx.x]").replace(
        "tile[threadIdx.y][threadIdx.x]", "tile[0][threadIdx.x]"
    )
    assert list(OWN_SHARED_ELEMENT.candidates(ask(text, "use less shared memory"))) == []


DYNAMIC_SHARED_SOURCE = """
// /// kernelmate
// sizes = [{{ n = 700 }}, {{ n = 77 }}, {{ n = 1 }}]
// grid = "cdiv(n, 128)"
// block = 128
// reference = "x + y"
// [args]
// x = "in float32[n]"
// y = "in float32[n]"
// z = "out float32[n]"
// n = "int32"
// ///
__global__ void k(const float* x, const float* y, float* z, int n) {{
  __shared__ {first};
  __shared__ {second};
  const int t = threadIdx.x;
  const int i = blockIdx.x * blockDim.x + t;
  {write} = i < n ? x[i] : 0.0f;
  b[t] = i < n ? y[i] : 0.0f;
  __syncthreads();
  if (i < n) z[i] = a[t] + b[t];
}}
void run(const float* x, const float* y, float* z, int n) {{ k<<<(n + 127) / 128, 128>>>(x, y, z, n); }}
"""


def source(first: str = "float a[1024]", second: str = "float b[512]", write: str = "a[t]") -> str:
    return DYNAMIC_SHARED_SOURCE.format(first=first, second=second, write=write)


def test_arrays_take_what_the_launched_block_needs(judged) -> None:
    (one,) = judged(source(), DYNAMIC_SHARED, "use less shared memory")
    text = one.candidate.kernel.unit.text
    assert "extern __shared__ float a[];" in text
    assert "float* b = a + blockDim.x;" in text
    assert one.candidate.contract.shared == "block * 8"
    assert "k<<<(n + 127) / 128, 128, 128 * 8>>>" in text
    assert (one.verdict.resources.shared_bytes, one.verdict.resources.dynamic_shared_bytes) == (0, 1024)
    assert one.verdict.accepted is True


@pytest.mark.parametrize(
    ("first", "second", "write"),
    [
        ("float a[128]", "float b[128]", "a[t]"),
        ("float a[1024]", "int b[1024]", "a[t]"),
        ("float a[1024]", "float b[128]", "a[t + 1]"),
        ("float a[4][256]", "float b[128]", "a[0][t]"),
        ("volatile float a[1024]", "float b[128]", "a[t]"),
    ],
)
def test_arrays_that_are_used_otherwise_stay(ask, first: str, second: str, write: str) -> None:
    assert list(DYNAMIC_SHARED.candidates(ask(source(first, second, write)))) == []
