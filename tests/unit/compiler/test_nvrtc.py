"""Compiling: what comes out, what is said of what does not compile, and that nothing takes the caller down."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from kernelmate.compiler.process import COMPILER
from kernelmate.errors import CompileTimeout

SAXPY = """__global__ void saxpy(float a, const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = a * x[i] + y[i];
}
"""
ENDLESS = """template <int Depth, unsigned long long Path> struct Node {
    static __device__ int value() { return Node<Depth - 1, 2 * Path>::value() + Node<Depth - 1, 2 * Path + 1>::value(); }
};
template <unsigned long long Path> struct Node<0, Path> { static __device__ int value() { return Path; } };
__global__ void k(int* x) { *x = Node<50, 1>::value(); }
"""


@pytest.mark.parametrize(
    "target", ["sm_75", "sm_80", "sm_86", "sm_89", "sm_90", "sm_90a", "sm_100a", "sm_120a", "RTX 4090"]
)
def test_every_architecture_of_the_table_compiles(compiled, target) -> None:
    result = compiled(SAXPY, target=target)
    assert result.ok, result.diagnostics
    assert result.lowered_name in result.ptx
    assert result.cubin.startswith(b"\x7fELF")
    assert result.binary.startswith("sha256:")
    assert 4 <= result.resources.registers <= 40
    assert result.resources.spill_bytes == 0


def test_the_compiler_line_names_version_and_flags_and_no_path(compiled, tmp_path) -> None:
    result = compiled(SAXPY, "-DTILE=32", include_paths=(str(tmp_path),), fast_math=True)
    assert "--std=c++17" in result.compiler
    assert "-DTILE=32" in result.compiler
    assert "--use_fast_math" in result.compiler
    assert str(tmp_path) not in result.compiler


def test_resources_are_the_kernels_own(compiled) -> None:
    result = compiled(
        "__global__ void __launch_bounds__(256) k(float* x, int n) {\n"
        "  __shared__ float tile[32][33]; float local[64];\n"
        "  for (int i = 0; i < 64; i++) local[i * n & 63] = x[i];\n"
        "  tile[threadIdx.x % 32][threadIdx.y] = local[n & 63]; __syncthreads();\n"
        "  x[threadIdx.x] = tile[threadIdx.y][threadIdx.x % 32];\n}\n"
    )
    assert result.resources.shared_bytes == 32 * 33 * 4
    assert result.resources.local_bytes == 64 * 4
    assert result.resources.max_threads == 256
    assert result.resources.code_bytes > 100


def test_spills_are_counted(compiled) -> None:
    sums = "\n".join(f"  float v{i} = x[{i} * n];" for i in range(96))
    uses = " + ".join(f"v{i} * v{95 - i}" for i in range(96))
    text = f"__global__ void k(const float* x, float* y, int n) {{\n{sums}\n  __syncthreads();\n  y[0] = {uses};\n}}\n"
    assert compiled(text).resources.spill_bytes == 0
    capped = compiled(text, "--maxrregcount=24")
    assert capped.resources.registers <= 24
    assert capped.resources.spill_bytes > 0


@pytest.mark.skipif(shutil.which("cuobjdump") is None, reason="needs cuobjdump of a CUDA toolkit")
@pytest.mark.parametrize("target", ["sm_80", "sm_90", "sm_120"])
def test_resources_agree_with_cuobjdump(compiled, tmp_path, target) -> None:
    result = compiled(SAXPY, target=target)
    path = tmp_path / "k.cubin"
    path.write_bytes(result.cubin)
    shown = subprocess.run(["cuobjdump", "-res-usage", path], capture_output=True, text=True, check=True).stdout
    assert f"REG:{result.resources.registers} " in shown


def test_an_error_has_the_line_and_column_of_the_mistake(compiled) -> None:
    result = compiled(SAXPY.replace("a * x[i]", "a * z[i]"))
    assert not result.ok
    (error,) = [d for d in result.diagnostics if d.severity == "error"]
    assert error.message.startswith('identifier "z" is undefined')
    assert (error.line, error.column) == (3, SAXPY.splitlines()[2].index("x[i]") + 1)
    assert error.file.endswith("kernel.cu")


def test_a_warning_has_a_code_and_does_not_stop_anything(compiled) -> None:
    result = compiled(SAXPY.replace("int i =", "int unused = 3; int i ="))
    assert result.ok
    assert [(d.severity, d.line, d.code) for d in result.diagnostics] == [("warning", 2, "177-D")]


def test_an_error_inside_a_template_says_how_it_came_to_be(compiled) -> None:
    text = (
        "template <typename T> __device__ T twice(T v) { return v.nothing + v; }\n"
        "__global__ void k(float* x) { *x = twice(*x); }\n"
    )
    (error,) = [d for d in compiled(text).diagnostics if d.severity == "error"]
    assert error.line == 1
    assert "instantiation" in error.message
    assert "line 2" in error.message


def test_an_error_in_a_project_header_is_placed_in_the_header(compiled, tmp_path) -> None:
    (tmp_path / "helper.cuh").write_text("\n__device__ float helper(float v) { return w; }\n")
    result = compiled('#include "helper.cuh"\n__global__ void k(float* x) { *x = helper(*x); }\n')
    (error,) = [d for d in result.diagnostics if d.severity == "error"]
    assert Path(error.file) == (tmp_path / "helper.cuh").resolve()
    assert error.line == 2


def test_a_missing_header_is_a_warning_at_its_include_and_compiling_goes_on(compiled) -> None:
    result = compiled('\n#include "nowhere.cuh"\n' + SAXPY)
    assert result.ok
    assert [(d.severity, d.line, d.column, d.code) for d in result.diagnostics] == [("warning", 2, 1, "missing-header")]
    assert "nowhere.cuh" in result.diagnostics[0].message


def test_a_missing_header_says_where_it_was_sought_and_who_has_it(compiled, tmp_path) -> None:
    result = compiled('#include "cutlass/nowhere.h"\n' + SAXPY, include_paths=(str(tmp_path),))
    (warning,) = result.diagnostics
    assert f"was not found beside the file nor in {tmp_path}" in warning.message
    assert "github.com/NVIDIA/cutlass" in warning.message


def test_template_instances_are_compiled_each_by_itself(compiled) -> None:
    text = "template <typename T, int N> __global__ void fill(T* x) { for (int i = 0; i < N; i++) x[i] = T(N); }\n"
    single, double = (compiled(text, instance=f"fill<{kind}, 4>") for kind in ("float", "double"))
    assert single.ok
    assert double.ok
    assert single.lowered_name != double.lowered_name
    assert single.instance == "fill<float, 4>"


def test_defines_standard_and_include_paths_reach_the_compiler(compiled, tmp_path) -> None:
    (tmp_path / "inc").mkdir()
    (tmp_path / "inc" / "size.cuh").write_text("#define SIZE 7\n")
    text = "#include <size.cuh>\n__global__ void k(int* x) { static_assert(SIZE == 7 && WIDTH == 3); if constexpr (true) *x = __cplusplus; }\n"
    result = compiled(text, defines=("WIDTH=3",), include_paths=(str(tmp_path / "inc"),), std="c++20")
    assert result.ok, result.diagnostics


def test_a_template_that_unfolds_without_end_is_killed_and_the_next_compiles(compiled) -> None:
    with pytest.raises(CompileTimeout, match="killed"):
        compiled(ENDLESS, timeout_s=3, name="endless.cu")
    assert compiled(SAXPY).ok


def test_a_killed_compiler_is_replaced(compiled) -> None:
    assert compiled(SAXPY).ok
    os.kill(COMPILER.pid, 9)
    assert compiled(SAXPY + "\n// again\n").ok


def test_a_kept_result_is_the_same_and_a_damaged_one_is_made_again(compiled, cache_dir) -> None:
    first = compiled(SAXPY)
    (entry,) = cache_dir.glob("*.compiled")
    assert compiled(SAXPY) == first
    entry.write_bytes(entry.read_bytes()[:100])
    assert compiled(SAXPY) == first
    entry.write_bytes(b"")
    assert compiled(SAXPY) == first
    assert len(entry.read_bytes()) > 100


def test_another_header_text_is_another_result(compiled, tmp_path) -> None:
    header = tmp_path / "value.cuh"
    text = '#include "value.cuh"\n__global__ void k(int* x) { *x = VALUE; }\n'
    header.write_text("#define VALUE 1\n")
    first = compiled(text)
    header.write_text("#define VALUE 2\n")
    assert compiled(text).binary != first.binary


def test_without_a_cache_that_can_be_written_everything_works(compiled, monkeypatch, tmp_path) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("KERNELMATE_CACHE_DIR", str(tmp_path / "file" / "below"))
    assert compiled(SAXPY).ok
