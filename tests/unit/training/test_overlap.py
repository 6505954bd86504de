"""Similarity of kernels is independent of their names."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelmate_training.overlap import NEAR, Overlaps, fingerprint, normalised, overlap, tokens

SAXPY = "__global__ void saxpy(const float* x, float* y, float a, int n) {\n  int i = blockIdx.x * blockDim.x + threadIdx.x;\n  if (i < n) y[i] = a * x[i] + y[i];\n}\n"
RENAMED = "// scaled sum\n__global__ void k(const float* in, float* out, float s, int count)\n{ int t = blockIdx.x*blockDim.x+threadIdx.x; /* in range? */ if (t < count) out[t] = s * in[t] + out[t]; }"
TREE = "__global__ void total(const float* x, float* y) {\n  __shared__ float part[256];\n  part[threadIdx.x] = x[threadIdx.x];\n  __syncthreads();\n  for (int h = 128; h > 0; h /= 2) {\n    if (threadIdx.x < h) part[threadIdx.x] += part[threadIdx.x + h];\n    __syncthreads();\n  }\n  if (threadIdx.x == 0) y[0] = part[0];\n}\n"


def test_names_comments_and_layout_make_no_difference() -> None:
    assert overlap(SAXPY, RENAMED) == 1.0
    assert fingerprint(SAXPY) == fingerprint(RENAMED)


def test_other_code_is_far() -> None:
    assert overlap(SAXPY, TREE) < 0.4


def test_a_changed_number_changes_the_fingerprint_but_not_the_structure() -> None:
    other = TREE.replace("256", "512")
    assert fingerprint(TREE) != fingerprint(other)
    assert overlap(TREE, other) == 1.0


def test_which_name_stands_where_counts() -> None:
    assert normalised("a = b + a;") != normalised("a = b + b;")
    assert normalised("a = b + a;") == normalised("u = v + u;")


def test_words_of_cuda_are_not_names() -> None:
    assert tokens("__syncthreads(); v = expf(threadIdx.x);") == (
        "__syncthreads", "(", ")", ";", "$", "=", "expf", "(", "threadIdx", ".x", ")", ";",
    )  # fmt: skip


def test_the_nearest_of_many_is_named() -> None:
    held = Overlaps({"saxpy.cu": SAXPY, "tree.cu": TREE})
    assert held.nearest(RENAMED).name == "saxpy.cu"
    assert [place for place, _ in held.near([TREE, "int q;", RENAMED], NEAR)] == [0, 2]
    assert Overlaps({}).nearest(SAXPY).overlap == 0.0


@given(
    st.lists(st.sampled_from(["float", "x", "y1", "3.5f", "+", "(", ")", ";", "__shared__"]), min_size=1, max_size=40)
)
def test_every_text_is_its_own_double(parts: list[str]) -> None:
    text = " ".join(parts)
    assert overlap(text, text) == pytest.approx(1.0)
    assert 0.0 <= overlap(text, SAXPY) <= 1.0
