"""Code that loses its last use when a kernel is rewritten is removed; code that anything else may use stays."""

from __future__ import annotations

import pytest

from kernelmate.records import Kernel
from kernelmate.source import apply_edits, find_kernels, text_unit
from kernelmate.suggest.replacement import (
    with_freed_names,
    without_own_helpers,
    without_unused_headers,
    without_unused_numbers,
)
from kernelmate.suggest.untrusted import screen

KERNEL = """__global__ void scale(const float* x, float* y, int n) {
  int i = blockIdx.x * kThreads + threadIdx.x;
  if (i < n) y[i] = twice(x[i]);
}
"""
ANEW = """__global__ void scale(const float* x, float* y, int n) {
  int i = blockIdx.x * 128 + threadIdx.x;
  if (i < n) y[i] = 2 * x[i];
}
"""
CONSTANT = "constexpr int kThreads = 256;\n"
HELPERS = """// Adds.
__device__ float sum(float a, float b) { return a + b; }

// Doubles.
__device__ __forceinline__ float twice(float v) { return sum(v, v); }

"""


def kernel_of(text: str, path: str = "k.cu") -> Kernel:
    return next(one for one in find_kernels(text_unit(text, path)) if one.name == "scale")


def anew(text: str, path: str = "k.cu") -> str:
    old = kernel_of(text, path)
    bare = without_own_helpers(old)
    new = apply_edits(bare, [(bare.start, bare.end, ANEW.rstrip("\n"))])
    changed = without_unused_numbers(old, new)
    assert screen(old, changed) is None
    return changed.unit.text


def test_helpers_of_helpers_and_constants_go_with_the_comments_above_them() -> None:
    assert anew(f"// A file.\n\n{CONSTANT}\n{HELPERS}{KERNEL}") == f"// A file.\n\n{ANEW}"


@pytest.mark.parametrize("rest", ["", "__global__ void other(float* x) {}\n"])
def test_a_namespace_goes_with_all_that_it_had(rest: str) -> None:
    text = f"#include <cstdio>\n\nnamespace {{\n{HELPERS.strip()}\n{rest}}}  // namespace\n\n{KERNEL}"
    left = f"namespace {{\n{rest}}}  // namespace\n\n" if rest else ""
    assert anew(text) == f"#include <cstdio>\n\n{left}{ANEW}"


def test_the_comment_at_the_top_of_a_file_stays() -> None:
    assert anew(f"// What this file is about.\n{CONSTANT}\n{HELPERS}{KERNEL}").startswith(
        "// What this file is about.\n"
    )


@pytest.mark.parametrize(
    ("user", "kept"),
    [
        ("__global__ void other(float* y) { y[0] = twice(y[0]); }\n", "float twice"),
        ("__global__ void other(float* y) { y[0] = sum(y[0], 1); }\n", "float sum"),
        ("float host(float v) { return v * kThreads; }\n", "kThreads = 256"),
        ("#define LAUNCH scale<<<1, kThreads>>>\n", "kThreads = 256"),
        ("__device__ float (*taken)(float) = twice;\n", "float twice"),
    ],
)
def test_what_anything_else_names_stays(user: str, kept: str) -> None:
    assert kept in anew(f"{CONSTANT}{HELPERS}{KERNEL}{user}")


@pytest.mark.parametrize(
    "declared",
    [
        "__host__ __device__ float twice(float v) { return 2 * v; }\n",
        "float twice(float v);\n",
        "inline constexpr int kThreads = 256;\n",
        "extern const int kThreads;\n",
        "__device__ int kThreads = 256;\n",
        "__constant__ int kThreads;\n",
    ],
)
def test_what_other_files_may_see_or_memory_holds_stays(declared: str) -> None:
    assert declared in anew(declared + "\n" + KERNEL)


def test_nothing_goes_from_a_file_that_others_include() -> None:
    text = CONSTANT + HELPERS + KERNEL
    assert anew(text, "k.cuh") == CONSTANT + HELPERS + ANEW


def test_a_constant_of_a_launch_goes_when_the_launch_no_longer_names_it() -> None:
    host = "void launch(float* x, int n) { scale<<<n / 256, THREADS>>>(x, x, n); }\n"
    old = kernel_of(CONSTANT + KERNEL + host.replace("THREADS", "kThreads"))
    assert "kThreads = 256" in without_own_helpers(old).unit.text
    new = kernel_of(CONSTANT + ANEW + host.replace("THREADS", "128"))
    assert "kThreads" not in without_unused_numbers(old, new).unit.text


@pytest.mark.parametrize(
    ("header", "used"),
    [
        ("cfloat", "-FLT_MAX"),
        ("float.h", "DBL_EPSILON"),
        ("climits", "INT_MAX"),
        ("limits", "std::numeric_limits<int>::max()"),
    ],
)
def test_a_header_of_which_nothing_is_used_any_more_goes(header: str, used: str) -> None:
    include = f"#include <{header}>\n"
    before = KERNEL.replace("twice(x[i])", used)
    top = f"// Scales.\n{include}#include <cuda_runtime.h>\n\n"
    old, new = kernel_of(top + before), kernel_of(top + ANEW)
    kept = without_unused_headers(old, new).unit.text
    assert kept == top.replace(include, "") + ANEW
    assert screen(old, kernel_of(kept)) is None


def test_a_header_that_may_be_needed_stays() -> None:
    include = "#include <cfloat>\n\n"
    before = KERNEL.replace("twice(x[i])", "-FLT_MAX")
    for top, path in [(f'#include "mine.h"\n{include}', "k.cu"), (include, "k.cuh")]:
        old, new = kernel_of(top + before, path), kernel_of(top + ANEW, path)
        assert without_unused_headers(old, new) == new
    other = "__global__ void rest(float* y) { y[0] = FLT_MIN; }\n"
    old, new = kernel_of(include + before + other), kernel_of(include + ANEW + other)
    assert without_unused_headers(old, new) == new, "the other kernel names it"
    assert screen(old, kernel_of(ANEW + other)) is not None
    plain = kernel_of(include + KERNEL)
    assert without_unused_headers(plain, new := kernel_of(include + ANEW)) == new, "no reason is known for it"


@pytest.mark.parametrize(
    "declared",
    [
        "#define kThreads 256\n",
        "#define LAST (kThreads - 1)\n#define kThreads 256\n",
        "__constant__ int kThreads = 256;\n",
    ],
)
def test_macros_and_constant_memory_that_only_the_kernel_used_go(declared: str) -> None:
    kernel = KERNEL.replace("threadIdx.x;", "threadIdx.x + LAST - LAST;") if "LAST" in declared else KERNEL
    assert anew(declared + "\n" + kernel) == ANEW


def test_a_macro_that_was_unused_before_stays() -> None:
    assert anew("#define UNUSED 1\n\n" + KERNEL) == "#define UNUSED 1\n\n" + ANEW


def test_a_comment_that_tells_of_the_kernel_stays_when_a_constant_below_it_goes() -> None:
    comment = "// Scales x by two into y.\n"
    assert anew(f"#include <cmath>\n\n{comment}{CONSTANT}\n{KERNEL}") == f"#include <cmath>\n\n{comment}\n{ANEW}"


def test_blank_lines_around_several_removed_lines_are_one() -> None:
    assert anew(f"#include <math.h>\n\n#define A 1\n#define B 2\n\n{KERNEL.replace('kThreads', 'A + B')}") == (
        f"#include <math.h>\n\n{ANEW}"
    )


def test_a_numbered_name_becomes_plain_once_its_plain_name_is_free() -> None:
    old = kernel_of(f"{CONSTANT}{KERNEL}")
    new = apply_edits(old, [(0, len(old.unit.text), ANEW.replace("int i", "int kThreads_2 = 1, x_2 = 3, i"))])
    text = with_freed_names(old, new).unit.text
    assert "int kThreads = 1" in text
    assert "x_2 = 3" in text
