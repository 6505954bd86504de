"""Declarations that nvcc provides without an include, and names of `std::` that device code uses."""

from __future__ import annotations

import pytest

from kernelmate.compiler.prelude import _FUNCTIONS, _LIBCUXX, _TRAIT_NAMES

KERNEL = "__global__ void k(double* x) {{ {} }}\n"


def test_limits_and_types_are_there_without_an_include(compiled) -> None:
    result = compiled(
        "constexpr float kInfinity = INFINITY;\n__constant__ float c_low[2] = {-INFINITY, NAN};\n"
        "__global__ void k(double* x, uint8_t a, int64_t b, uint c) {\n"
        "  static_assert(sizeof(uint8_t) == 1 && sizeof(int64_t) == 8 && sizeof(size_t) == 8);\n"
        "  static_assert(INT_MAX == 2147483647 && INT_MIN < 0 && UINT32_MAX == 0xffffffffu && LONG_MAX > INT_MAX);\n"
        "  static_assert(FLT_MAX > 3.4e38f && FLT_EPSILON < 2e-7f && DBL_MAX > 1e308 && kInfinity > FLT_MAX);\n"
        "  x[0] = M_PI + c_low[a] + b + c;\n}\n"
    )
    assert result.ok, result.diagnostics
    assert result.diagnostics == ()


def test_functions_of_std_keep_the_type_of_their_argument(compiled) -> None:
    text = KERNEL.format(
        "static_assert(sizeof(std::sqrt(1.f)) == 4 && sizeof(std::abs(-1.f)) == 4 && sizeof(std::pow(2.f, 2.f)) == 4);"
        "x[0] = std::min(x[1], x[2]) + std::abs(-3) + std::exp(x[3]);"
    )
    result = compiled(text)
    assert result.ok, result.diagnostics


def test_every_function_of_the_list_is_there(compiled) -> None:
    result = compiled("namespace mine {\n" + "\n".join(f"using std::{name};" for name in sorted(_FUNCTIONS)) + "\n}\n"
                      "__global__ void k(int* x) { " + " ".join(f"using std::{name};" for name in sorted(_FUNCTIONS)) + " *x = 1; }\n")  # fmt: skip
    assert result.ok, result.diagnostics


def test_traits_mean_what_they_mean(compiled) -> None:
    checks = (
        "std::is_same<int, int>::value", "!std::is_same_v<int, long>", "std::is_integral_v<const unsigned>",
        "!std::is_integral_v<float>", "std::is_floating_point<double>::value", "std::is_unsigned_v<size_t>",
        "std::is_signed_v<char>", "!std::is_signed_v<void*>", "std::is_pointer_v<int* const>", "!std::is_pointer_v<int>",
        "std::is_same_v<std::remove_cvref_t<const int&>, int>", "std::is_same_v<std::conditional_t<true, int, float>, int>",
        "std::is_same_v<std::enable_if_t<true, char>, char>", "std::is_same_v<std::remove_pointer_t<int*>, int>",
        "std::is_void_v<const void>", "std::is_arithmetic<bool>::value", "std::integral_constant<int, 3>{} == 3",
        "std::is_const_v<const int>", "!std::is_const_v<int>",
    )  # fmt: skip
    result = compiled(KERNEL.format(" ".join(f"static_assert({check});" for check in checks) + " x[0] = 1;"))
    assert result.ok, result.diagnostics


def test_using_namespace_std_brings_them_in_unqualified(compiled) -> None:
    text = (
        "#include <type_traits>\nusing namespace std;\n"
        "template <class T, class = enable_if_t<is_floating_point<T>::value>> __global__ void k(T* x) "
        "{ x[0] = max(x[1], T(0)) + min(1, 2); }\n"
    )
    result = compiled(text, instance="k<float>")
    assert result.ok, result.diagnostics


@pytest.mark.slow
@pytest.mark.parametrize("header", _LIBCUXX)
def test_what_libcuxx_is_said_to_have_it_has(compiled, header) -> None:
    body = " ".join(f"using std::{name};" for name in sorted(_LIBCUXX[header]))
    result = compiled(KERNEL.format(body + " x[0] = 1;"))
    assert result.ok, result.diagnostics
    assert result.diagnostics == ()


def test_headers_of_cuda_that_define_the_same_do_not_quarrel(compiled) -> None:
    text = (
        "#include <cuda/std/climits>\n#include <cuda/std/cfloat>\n#include <cuda/std/cstdint>\n#include <cuda_fp16.h>\n"
        "__global__ void k(double* x) { x[0] = INT64_MAX + FLT_MAX + cuda::std::uint8_t(1); }\n"
    )
    result = compiled(text)
    assert result.ok, result.diagnostics
    assert result.diagnostics == ()


def test_a_tensor_map_is_known_where_the_driver_header_is_included(compiled) -> None:
    text = "#include <cuda.h>\n__global__ void k(const __grid_constant__ CUtensorMap m, int* x) { *x = sizeof(m); }\n"
    assert compiled(text, target="sm_90a").ok


def test_types_of_the_driver_header_are_known(compiled) -> None:
    text = (
        "#include <cuda.h>\n__global__ void k(CUtexObject t, CUdeviceptr p, cuuint32_t n) {\n"
        "  if (n) *(float*)p = tex2D<float>(t, 0.5f, 0.5f);\n}\n"
    )
    assert compiled(text).ok


def test_own_types_of_those_names_stay(compiled) -> None:
    text = "#include <cuda.h>\nstruct CUdeviceptr { float* p; };\n__global__ void k(CUdeviceptr d) { *d.p = 1; }\n"
    assert compiled(text).ok


def test_the_lists_do_not_overlap() -> None:
    lists = [_FUNCTIONS, _TRAIT_NAMES, *_LIBCUXX.values()]
    assert sum(map(len, lists)) == len(frozenset().union(*lists))


def test_a_kernel_with_headers_of_thrust_compiles_whether_it_uses_them_or_not(compiled) -> None:
    text = """
    #include <thrust/device_vector.h>
    #include <thrust/host_vector.h>
    #include <thrust/binary_search.h>
    #include <thrust/complex.h>
    #include <thrust/execution_policy.h>
    #include <thrust/random.h>
    #include <thrust/reduce.h>
    struct Sum { __host__ __device__ float operator()(float a, float b) const { return a + b; } };
    __global__ void k(float* x, thrust::complex<float>* z, thrust::device_ptr<float> p) {
      thrust::default_random_engine engine(threadIdx.x);
      thrust::uniform_real_distribution<float> uniform(0, 1);
      x[9] = uniform(engine) + thrust::reduce(thrust::seq, x, x + 8, 0.0f, Sum());
      x[10] = thrust::lower_bound(thrust::seq, x, x + 8, 1.0f) - x;
      z[0] = thrust::exp(z[1]) * z[2] + thrust::raw_pointer_cast(p)[2];
    }
    int main() { thrust::device_vector<float> v(10); k<<<1, 1>>>(thrust::raw_pointer_cast(v.data()), nullptr, v.data()); }
    """
    done = compiled(text)
    assert done.ok, done.diagnostics


def test_macros_that_tell_nvcc_and_its_options_are_those_of_nvcc(compiled) -> None:
    text = """
    #if !defined(__NVCC__) || !defined(__CUDACC_EXTENDED_LAMBDA__) || !defined(__CUDACC_RELAXED_CONSTEXPR__)
    #error "nvcc --extended-lambda --expt-relaxed-constexpr"
    #endif
    #if CUDART_VERSION < 11000 || CUDA_VERSION < 11000
    #error "CUDA 11 is required"
    #endif
    #if !_CCCL_CUDA_COMPILER(NVRTC)
    #error "libcu++ must know the compiler"
    #endif
    __device__ int kind(std::byte) { return 1; }
    __device__ int kind(cuda::std::byte) { return 2; }
    __global__ void k(int* y) { *y = kind(std::byte{3} | std::byte{4}); }
    """
    done = compiled("#include <cuda/std/cstddef>\n#include <cstddef>\n" + text)
    assert done.ok
    assert done.diagnostics == ()


def test_mathematical_functions_take_integers_and_arguments_of_different_types(compiled) -> None:
    text = """
    #include <cmath>
    __global__ void k(double* x, const float y, int n, unsigned char c) {
      static_assert(sizeof(pow(y, 0.5)) == 8 && sizeof(std::fmax(y, 1.0)) == 8 && sizeof(fmin(n, y)) == 8, "double");
      static_assert(sizeof(fmax(y, y)) == 4 && sizeof(pow(y, y)) == 4 && sizeof(sqrt(y)) == 4, "equal types");
      x[0] = pow(y, 0.5) + std::atan2(1.0, y) + hypot(y, 2.0) + sqrt(n) + exp(c) + std::floor(n / 2) + fma(n, y, 0.5);
    }
    """
    done = compiled(text)
    assert done.ok, done.diagnostics
    assert done.diagnostics == ()


def test_functions_of_the_file_are_called_in_place_of_those_of_the_library(compiled) -> None:
    text = """
    template <class T, class U> __device__ T pow(T x, U n) { return x * n; }
    __global__ void k(float* x, int n) { x[0] = pow(x[1], n) + sqrt(x[2]); }
    """
    done = compiled(text)
    assert done.ok, done.diagnostics
