"""Kernels of one name, conditions around kernels, and language features that real files use."""

from __future__ import annotations

import itertools
from pathlib import Path
from types import SimpleNamespace

import pytest

from kernelmate.compiler import compile_kernel, find_target, nvrtc
from kernelmate.compiler.nvrtc import compile_job
from kernelmate.records import Compiled, CompileOptions
from kernelmate.source import load_kernels

OVERLOADS = """\
__global__ void k(float *x) { x[0] = 1; }
__global__ void k(float *x, int n) { x[n] = 1; }
namespace { __global__ void m(int *p) { *p = 1; } }
namespace other { __global__ void m(int *p) { *p = missing; } }
#if defined(FAST)
__global__ void z(float *x) { x[0] = missing; }
#else
__global__ void z(float *x) { x[0] = 2; }
#endif
"""


def compile_each(tmp_path: Path, text: str, **options: object) -> dict[str, Compiled]:
    path = tmp_path / "k.cu"
    path.write_text(text)
    return {
        kernel.label: compile_kernel(
            kernel, (), instance=None, target=find_target(None), options=CompileOptions(**options),  # type: ignore[arg-type]
        )
        for kernel in load_kernels(path)
    }  # fmt: skip


def test_kernels_of_one_name_compile_each_by_itself(tmp_path: Path, cache_dir: Path) -> None:
    found = compile_each(tmp_path, OVERLOADS)
    assert {name: one.ok for name, one in found.items()} == {
        "k(float *)": True, "k(float *, int)": True, "m": True, "other::m": False, "z:6": False, "z:8": True,
    }  # fmt: skip
    assert found["k(float *)"].lowered_name != found["k(float *, int)"].lowered_name
    assert [one.message for one in found["other::m"].diagnostics] == ['identifier "missing" is undefined']


def test_an_inactive_kernel_is_a_note(tmp_path: Path, cache_dir: Path) -> None:
    (said,) = compile_each(tmp_path, OVERLOADS)["z:6"].diagnostics
    assert (said.severity, said.code, said.line) == ("note", "inactive", 6)
    assert "`#if defined(FAST)` around it does not hold with these options: give -D" in said.message
    active = compile_each(tmp_path, OVERLOADS, defines=("FAST",))
    assert (active["z:6"].ok, active["z:8"].ok) == (False, False)
    assert any(one.severity == "error" and "missing" in one.message for one in active["z:6"].diagnostics)
    assert [one.code for one in active["z:8"].diagnostics] == ["inactive"]
    assert "`#else of #if defined(FAST)` around it" in active["z:8"].diagnostics[0].message


def test_an_inactive_kernel_of_a_header_names_no_include_guard(tmp_path: Path, cache_dir: Path) -> None:
    text = "#ifndef K_H\n#define K_H\n#ifdef WITH_LIB\n#if WIDE > 1\n__global__ void k(int *p) { *p = 1; }\n#endif\n#endif\n#endif\n"
    (said,) = compile_each(tmp_path, text)["k"].diagnostics
    assert "k is inactive: `#ifdef WITH_LIB` and `#if WIDE > 1` around it do not all hold" in said.message


def test_a_launch_in_device_code_is_not_supported(tmp_path: Path, cache_dir: Path) -> None:
    child = "__global__ void child(float *x) { x[0] = 1; }\n"
    found = compile_each(tmp_path, child + "__global__ void parent(float *x) {\n  child<<<1, 32>>>(x);\n}\n")
    (said,) = found["parent"].diagnostics
    assert (found["child"].ok, said.severity, said.code, said.line) == (True, "note", "not-supported", 3)
    assert "dynamic parallelism is not supported" in said.message
    both = compile_each(tmp_path, child + "__global__ void parent(float *x) { child<<<1, 32>>>(x); missing(); }\n")
    assert {one.severity for one in both["parent"].diagnostics} == {"error"}


def test_concepts_and_alias_templates_are_kept(tmp_path: Path, cache_dir: Path) -> None:
    text = (
        "template <typename T> concept Small = sizeof(T) <= 4;\n"
        "template <typename T> struct Pair { T a, b; };\n"
        "template <typename T> using Both = Pair<T>;\n"
        "template <Small T> __device__ T f(Both<T> x) { return x.a + x.b; }\n"
        "__global__ void k(float *x) { x[0] = f(Both<float>{x[1], x[2]}); }\n"
    )
    assert compile_each(tmp_path, text, std="c++20")["k"].ok


def test_a_backslash_may_have_blanks_behind_it(tmp_path: Path, cache_dir: Path) -> None:
    text = "#define TWO \\  \n  { x[0] = 1; \\\t\n    x[1] = 2; }\n__global__ void k(float *x) { TWO }\n"
    assert compile_each(tmp_path, text)["k"].ok


def test_the_platform_is_the_one_that_nvcc_states(tmp_path: Path, cache_dir: Path) -> None:
    text = "#if !defined(__linux__) || __CHAR_BIT__ != 8\n#error unknown platform\n#endif\n__global__ void k(int *x) { *x = 1; }\n"
    assert compile_each(tmp_path, text)["k"].ok


def test_a_host_member_is_left_out_beside_a_device_function_of_its_name(tmp_path: Path, cache_dir: Path) -> None:
    text = (
        "struct Ops { static __device__ float zero() { return 0; } };\n"
        "template <typename T> struct Array { __host__ Array<T>& zero(); T *p; };\n"
        "template <typename T> __host__ Array<T>& Array<T>::zero() { std::fill(p, p + 4, 0); return *this; }\n"
        "__global__ void k(Array<float> x) { x.p[0] = Ops::zero(); }\n"
    )
    assert compile_each(tmp_path, text)["k"].ok


def test_a_word_may_stand_right_behind_a_linkage(tmp_path: Path, cache_dir: Path) -> None:
    assert compile_each(tmp_path, 'extern "C"__global__ void k(int *x) { x[0] = 1; }\n')["k"].ok


def test_register_variables_are_accepted_as_by_nvcc(tmp_path: Path, cache_dir: Path) -> None:
    text = "__global__ void k(int *x) { register int i = threadIdx.x; x[i] = i; }\n"
    assert compile_each(tmp_path, text)["k"].ok


def test_the_host_compilers_keywords_are_accepted_as_by_nvcc(tmp_path: Path, cache_dir: Path) -> None:
    text = (
        'static __inline __device__ unsigned two() { unsigned x; __asm__ __volatile__("mov.u32 %0, 2;" : "=r"(x)); return x; }\n'
        "__global__ void k(int *__restrict p, __const __signed__ char *q) {\n"
        "  __extension__ __typeof__(p[0]) sum = 1; __const__ typeof(sum) more = 2;\n"
        '  __asm("" ::); p[0] = sum + more + q[0] + two() + __alignof(float);\n}\n'
    )
    assert compile_each(tmp_path, text)["k"].ok


def test_a_function_may_have_the_name_of_an_extension(tmp_path: Path, cache_dir: Path) -> None:
    text = "__device__ int typeof(int x) { return x + 1; }\n__global__ void k(int *x) { x[0] = typeof(x[0]); }\n"
    assert compile_each(tmp_path, text)["k"].ok


def test_the_version_of_a_library_is_known_where_no_kernel_uses_it(tmp_path: Path, cache_dir: Path) -> None:
    text = (
        "#include <thrust/device_vector.h>\n#include <cub/cub.cuh>\n"
        "#if THRUST_VERSION < 100500 || CUB_MAJOR_VERSION < 1 || CCCL_VERSION < 2000000\n#error too old\n#endif\n"
        "__global__ void k(int *x) { *x = 1; }\n"
    )
    assert compile_each(tmp_path, text)["k"].ok


def test_a_name_that_is_a_host_type_in_one_class_only_stays_in_others(tmp_path: Path, cache_dir: Path) -> None:
    text = (
        "template <typename T> struct Of;\n"
        "struct Text { typedef std::string type; };\n"
        "template <> struct Of<float> { typedef float type; };\n"
        "template <typename T> struct Twice { typedef typename Of<T>::type wide; };\n"
        "__global__ void k(Twice<float>::wide *x) { x[0] = 1; }\n"
    )
    assert compile_each(tmp_path, text)["k"].ok


def test_wide_integers_are_accepted_as_by_nvcc(tmp_path: Path, cache_dir: Path) -> None:
    text = "__global__ void k(unsigned long long *x) { x[0] = (unsigned __int128)x[1] * x[2] >> 64; }\n"
    assert compile_each(tmp_path, text)["k"].ok


def test_arguments_of_an_instance_are_looked_up_in_the_kernels_namespace(tmp_path: Path, cache_dir: Path) -> None:
    path = tmp_path / "k.cu"
    path.write_text(
        "namespace a { struct Add { __device__ float operator()(float x) { return x + 1; } }; enum Mode { plain, fast };\n"
        "template <typename Op, Mode m> __global__ void k(float *x) { x[0] = m == fast ? Op()(x[0]) : 0; } }\n"
    )
    result = compile_kernel(
        load_kernels(path)[0], (), instance="k<Add, fast>", target=find_target(None), options=CompileOptions()
    )
    assert result.ok, result.diagnostics


def test_extremes_of_a_list_passed_by_its_name_are_compiled(tmp_path: Path, cache_dir: Path) -> None:
    text = (
        "#include <algorithm>\n#include <initializer_list>\n"
        "constexpr size_t largest(std::initializer_list<size_t> all) { return std::max(all); }\n"
        "__global__ void k(float *x) { x[0] = largest({1, 7, 3}); }\n"
    )
    result = compile_each(tmp_path, text)["k"]
    assert result.ok, result.diagnostics


def test_types_that_a_macro_declares_are_kept_and_host_code_that_one_declares_is_not(
    tmp_path: Path, cache_dir: Path
) -> None:
    text = (
        "#include <vector>\n"
        "template <typename T, int N> struct vector_of { T at[N]; };\n"
        "#define VECTORS(name, T) template <int N> using name = vector_of<T, N>; using name##2 = name<2>;\n"
        "#define TABLE(name) static std::vector<float> name; void fill_##name() { name.resize(4); }\n"
        "VECTORS(vec, float)\nVECTORS(ivec, int);\nTABLE(table)\n"
        "__device__ float first(const vec2& x) { return x.at[0]; }\n"
        "__global__ void k(float *x) { ivec2 i{{1, 2}}; vec2 v{{x[i.at[0]], 0}}; x[0] = first(v); }\n"
    )
    result = compile_each(tmp_path, text)["k"]
    assert result.ok, result.diagnostics


def test_specialisations_of_host_templates_are_left_out(tmp_path: Path, cache_dir: Path) -> None:
    text = (
        "template <typename T> float value(T x);\ntemplate <> float value<float>(float x) { return x; }\n"
        "template <typename T> __global__ void t(T *x) {}\ntemplate <> __global__ void t<float>(float *x) {}\n"
        "__global__ void k(float *x) { x[0] = 1; }\n"
    )
    assert compile_each(tmp_path, text)["k"].ok


def test_waiting_for_a_dependent_launch_is_declared(tmp_path: Path, cache_dir: Path) -> None:
    text = "__global__ void k(int *x) { cudaGridDependencySynchronize(); *x = 1; cudaTriggerProgrammaticLaunchCompletion(); }\n"
    result = compile_each(tmp_path, text)["k"]
    assert result.ok
    assert "griddepcontrol.wait" in result.ptx


def test_a_failed_assertion_that_is_called_by_its_own_name_is_declared(tmp_path: Path, cache_dir: Path) -> None:
    text = '__global__ void k(float *x) { if (!(*x == *x)) __assert_fail("finite", __FILE__, __LINE__, __func__); *x = 1; }\n'
    assert "__assertfail" in compile_each(tmp_path, text)["k"].ptx
    assert compile_each(tmp_path, "#include <cassert>\n" + text.replace("*x = 1", "assert(*x > 0)"))["k"].ok


def test_limits_of_a_type_of_the_program_are_specialised_in_std(tmp_path: Path, cache_dir: Path) -> None:
    text = (
        "#include <limits>\n#include <type_traits>\nstruct fixed { short bits; };\nnamespace std {\n"
        "template <> class numeric_limits<fixed> { public: static __device__ fixed lowest() { return fixed{-32768}; } };\n"
        "template <> struct common_type<fixed, int> { typedef fixed type; };\n}\n"
        "__global__ void k(fixed *x, float *y) { *x = std::numeric_limits<std::common_type<fixed, int>::type>::lowest(); "
        "*y = std::numeric_limits<float>::max() + std::common_type<int, float>::type(1); }\n"
    )
    assert compile_each(tmp_path, text)["k"].ok


def test_the_largest_and_smallest_of_a_list_are_constants(tmp_path: Path, cache_dir: Path) -> None:
    text = (
        "#include <algorithm>\nconstexpr int most = std::max({3, 9, 4}), least = std::min({3, 9, 2});\n"
        "__global__ void k(int *x) { static_assert(most == 9 && least == 2); x[0] = std::max(most, x[1]); }\n"
    )
    assert compile_each(tmp_path, text)["k"].ok


def test_references_to_textures_are_named_as_removed_from_cuda(tmp_path: Path, cache_dir: Path) -> None:
    text = """\
#include "missing.h"
texture<float, 1, cudaReadModeElementType> table;
__global__ void k(float *x) { x[0] = tex1Dfetch(table, 3) + absent; }
"""
    errors = [one.message for one in compile_each(tmp_path, text)["k"].diagnostics if one.severity == "error"]
    first, *others = errors
    assert first.endswith("table is a texture reference, which CUDA 12 removed: pass a texture object")
    assert others[0].endswith("possible cause: headers that were not found: missing.h")


def test_references_in_text_for_nvrtc_are_named_as_removed(tmp_path: Path, cache_dir: Path) -> None:
    text = "texture<float, 1> table;\\n__global__ void k(float *x) { x[0] = 1; }\\n"
    path = tmp_path / "kernels.py"
    path.write_text(f"import cupy\nk = cupy.RawKernel('{text}', 'k')\n")
    (kernel,) = load_kernels(path)
    compiled = compile_kernel(kernel, (), instance=None, target=find_target(None), options=CompileOptions())
    first = next(one.message for one in compiled.diagnostics if one.severity == "error")
    assert "reference, which CUDA 12 removed: pass a texture object" in first


def test_a_kernel_may_have_the_name_of_a_function_of_cuda(tmp_path: Path, cache_dir: Path) -> None:
    text = """\
__global__ void exp(const float *__restrict__ x, float (*y)[4], int n) { if (threadIdx.x < n) y[0][threadIdx.x % 4] = expf(x[0]); }
__global__ void max(const int *x, int *y) { y[0] = ::max(x[0], x[1]); }
__global__ void clock(long long *t) { t[0] = clock64(); }
"""
    found = compile_each(tmp_path, text)
    assert {name: one.lowered_name[:8] for name, one in found.items()} == {
        "exp": "_Z3expPK",
        "max": "_Z3maxPK",
        "clock": "_Z5clock",
    }


def test_members_of_host_types_are_left_out_under_every_name(tmp_path: Path, cache_dir: Path) -> None:
    text = """\
#include <cufft.h>
#include <cublas_v2.h>
#include <pthread.h>
#define Plan cufftHandle
typedef cublasHandle_t Handle;
struct Matrix {
  int n; static int count; static pthread_mutex_t* lock; Plan plan; Handle handle; static const int kSide = 4;
  __device__ int size() const { return n * kSide; }
};
__global__ void k(float* x, Matrix* m) { if (threadIdx.x < m->size()) x[threadIdx.x] = 1; }
"""
    assert not [one for one in compile_each(tmp_path, text)["k"].diagnostics if one.severity == "error"]


def test_only_kernels_that_draw_random_numbers_need_curand(tmp_path: Path, cache_dir: Path) -> None:
    text = """\
#include <curand_of_no_version.h>
struct Noise { __device__ float operator()(float x, curandState* s) const; __device__ float more(curandStatePhilox4_32_10_t* s); };
__global__ void k(float* x) { x[0] = 1; }
__global__ void draw(curandState* s, float* x) { x[0] = curand_uniform(s); }
"""
    found = {
        name: [one.message for one in compiled.diagnostics if one.severity == "error"]
        for name, compiled in compile_each(tmp_path, text).items()
    }
    assert not found["k"]
    (message,) = found["draw"]
    assert message.startswith('identifier "curand_uniform" is undefined')


def test_attributes_before_a_type_and_virtual_destructors_are_read(tmp_path: Path, cache_dir: Path) -> None:
    text = """\
#define ALIGN(n) __attribute__((aligned(n)))
ALIGN(64) typedef struct state_ { int n; } state;
ALIGN(16) struct Pair { float a, b; };
struct Shape { virtual ~Shape() = default; virtual int sides() const = 0; __device__ virtual float area() const { return 1; } };
__global__ void k(float* x, Pair* p, Shape* s, state* t) { x[0] = p->a + s->area() + sizeof(Pair) + t->n; }
"""
    assert not [one for one in compile_each(tmp_path, text)["k"].diagnostics if one.severity == "error"]


def test_floating_point_constants_may_be_computed_from_others(tmp_path: Path, cache_dir: Path) -> None:
    text = """\
const float one = -1.5f;
static const double scale = 1.23, inverse = 1.0;
const float two = -one; const double three = 1.0 / two;
__global__ void k(float* x) { const float y = x[0]; x[0] = two * three + scale * y; }
"""
    assert compile_each(tmp_path, text)["k"].ok


def test_host_types_that_only_their_names_keep_are_left_out_if_they_do_not_compile(
    tmp_path: Path, cache_dir: Path
) -> None:
    (tmp_path / "host.h").write_text("struct work { struct timeval at; };\ntypedef struct { socklen_t n; } data;\n")
    text = '#include "host.h"\n__global__ void k(float* data, int work) { data[work] = 1; }\n'
    found = compile_each(tmp_path, text)["k"]
    assert found.ok
    assert set(found.rejected) == {("host.h", 1), ("host.h", 2)}
    needed = compile_each(tmp_path, text.replace("float* data", "work* w, float* data"))["k"]
    assert 'incomplete type "timeval"' in next(one.message for one in needed.diagnostics if one.severity == "error")


def test_a_name_that_a_condition_leaves_out_is_reported_with_it(tmp_path: Path, cache_dir: Path) -> None:
    (tmp_path / "sizes.h").write_text(
        "#ifndef SIZES\n#define SIZES\n#if TUNED_SIZES == 1\n#define WARP 32\n#endif\n#endif\n"
    )
    text = '#include "sizes.h"\n__global__ void k(float* x) { x[WARP] = 1; }\n'
    (error,) = [one for one in compile_each(tmp_path, text)["k"].diagnostics if one.severity == "error"]
    assert "sizes.h:4 defines it under `#if TUNED_SIZES == 1`, which does not hold" in error.message
    assert compile_each(tmp_path, text, defines=("TUNED_SIZES=1",))["k"].ok


MUTABLE = """\
#include <string>
struct View {
  int n;
  __device__ int size() const { return n; }
  void rename(const std::string &name);
  void resize(int size) { n = size; }
};
template <typename T> struct Box : View { void fill(T value); };
struct Editor : Box<int> {
  using View::size;
  using View::rename;
  using View::resize;
  using Box<int>::fill;
};
__global__ void k(Editor editor, int *out) { out[0] = editor.size(); }
"""


def test_a_member_function_of_the_host_that_a_class_declares_again_is_left_out(tmp_path: Path, cache_dir: Path) -> None:
    found = compile_each(tmp_path, MUTABLE)["k"]
    assert (found.ok, found.diagnostics) == (True, ())


def test_an_error_line_is_told_with_the_conditions_that_reach_it(tmp_path: Path, cache_dir: Path) -> None:
    text = "#if TUNED_PATH\n#define ONE 1\n#else\n#error no path for this build\n#endif\n__global__ void k(int *p) { *p = 1; }\n"
    (said,) = [one for one in compile_each(tmp_path, text)["k"].diagnostics if "no path" in one.message]
    assert "it is reached under `#else of #if TUNED_PATH`: give -DTUNED_PATH=1 as the build does" in said.message


SWITCHED = """\
#include "helper.h"
#if defined(HAVE_CUDA) && HAVE_CUDA == 1
__global__ void k(float *x) { x[0] = scaled(x[0]); }
#endif
#ifdef USE_HIP
__global__ void other(float *x) { x[0] = 1; }
#endif
"""


def test_code_that_a_build_enables_for_cuda_is_compiled_with_the_macro(tmp_path: Path, cache_dir: Path) -> None:
    helper = (
        "#pragma once\n#ifdef WITH_GPU_KERNELS\ninline __device__ float scaled(float a) { return 2 * a; }\n#endif\n"
    )
    (tmp_path / "helper.h").write_text(helper)
    found = compile_each(tmp_path, SWITCHED)
    (note,) = [one for one in found["k"].diagnostics if one.code == "guessed-define"]
    assert (found["k"].ok, found["other"].ok, note.severity) == (True, False, "note")
    assert "compiled with -DHAVE_CUDA=1 -DWITH_GPU_KERNELS=1, since conditions ask for it" in note.message
    assert [one.code for one in found["other"].diagnostics] == ["inactive"]
    kernel = load_kernels(tmp_path / "k.cu")[0]
    job = compile_job(kernel, (), instance=None, target=find_target(None), options=CompileOptions(), judged=found["k"])
    assert all(any(name in one for one in job.options) for name in ("HAVE_CUDA=1", "WITH_GPU_KERNELS=1"))
    given = compile_each(tmp_path, SWITCHED, defines=("HAVE_CUDA=0",))["k"]
    assert (given.ok, [one.code for one in given.diagnostics]) == (False, ["inactive"])


def test_a_kernel_that_takes_long_to_fail_is_not_tried_in_other_ways(
    tmp_path: Path, cache_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "helper.h").write_text(
        "#pragma once\n#ifdef WITH_GPU_KERNELS\n__device__ float scaled(float);\n#endif\n"
    )
    hours = itertools.count(0, 3600)
    monkeypatch.setattr(nvrtc, "time", SimpleNamespace(monotonic=lambda: float(next(hours))))
    found = compile_each(tmp_path, SWITCHED)["k"]
    assert not found.ok
    assert [one.code for one in found.diagnostics] == ["inactive"], "with time it compiles with HAVE_CUDA"
