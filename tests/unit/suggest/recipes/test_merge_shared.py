from __future__ import annotations

import pytest

from kernelmate.suggest.recipes.merge_shared import RECIPE

SOURCE = """
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
    request = ask(SOURCE.format(declaration=declaration, between=between, after=after), prompt="use less shared memory")
    found = [candidate.kernel.source for candidate in RECIPE.candidates(request)]
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
    source = SOURCE.format(declaration="__shared__ float early[256], late[256];", between="", after="")
    source = source.replace("early[t] = x[t];", "for (int r = 0; r < 2; ++r) { early[t] = x[t];").replace(
        "x[t] = late[n - 1 - t];", "x[t] = late[n - 1 - t]; }"
    )
    assert list(RECIPE.candidates(ask(source))) == []


def test_the_reason_says_what_is_saved(ask) -> None:
    request = ask(SOURCE.format(declaration="__shared__ float early[256], late[128];", between="", after=""))
    (candidate,) = RECIPE.candidates(request)
    assert "512 bytes" in candidate.why
    assert "one more barrier" in candidate.why
