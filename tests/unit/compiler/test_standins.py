"""Declarations in place of host libraries' headers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from kernelmate.records import Compiled

Compile = Callable[..., Compiled]

EXTENSION = """\
#include <torch/extension.h>
#include <ATen/cuda/CUDAContext.h>
template <typename scalar_t>
__global__ void k(torch::PackedTensorAccessor32<scalar_t, 2, torch::RestrictPtrTraits> x, scalar_t *out, int n) {
  at::acc_type<scalar_t, true> sum = 0;
  CUDA_KERNEL_LOOP(i, n) { sum += static_cast<at::opmath_type<scalar_t>>(x[i][0]) * 2; out[i] += x[i][1] * x[i][0]; }
  gpuAtomicAdd(out, static_cast<scalar_t>(sum));
}
torch::Tensor run(torch::Tensor x) { return torch::empty_like(x); }
"""


def test_a_torch_extension_compiles_for_each_type_and_says_what_it_does_without(compiled: Compile) -> None:
    for kind in ("float", "double", "c10::Half", "at::BFloat16"):
        result = compiled(EXTENSION, instance=f"k<{kind}>")
        assert result.ok, result.diagnostics
        (said,) = (one for one in result.diagnostics if one.code == "host-header")
        assert said.severity == "note"
        assert "torch/extension.h, ATen/cuda/CUDAContext.h" in said.message
        assert said.line == 1


def test_descriptions_of_tensors_are_declared(compiled: Compile) -> None:
    text = (
        "#include <ATen/cuda/detail/IndexUtils.cuh>\n"
        "__global__ void k(at::cuda::detail::TensorInfo<int64_t, int> info, int64_t *x, int n) {\n"
        "  x[0] = info.data[at::cuda::detail::IndexToOffset<int64_t, int, -1>::get(n, info)] + info.sizes[0];\n}\n"
    )
    assert compiled(text).ok


def test_own_functions_of_the_same_name_win(compiled: Compile) -> None:
    text = (
        "#include <ATen/ATen.h>\n"
        "template <typename T> __device__ T WARP_SHFL_XOR(T v, int m) { return __shfl_xor_sync(~0u, v, m); }\n"
        "__global__ void k(at::Half *x) { x[0] = WARP_SHFL_XOR(float(x[1]), 1); }\n"
    )
    assert compiled(text).ok


def test_philox_states_are_unpacked(compiled: Compile) -> None:
    text = (
        "#include <ATen/cuda/CUDAGraphsUtils.cuh>\n"
        "__global__ void k(uint64_t *x, at::PhiloxCudaState s) { auto t = at::cuda::philox::unpack(s); x[0] = std::get<1>(t); }\n"
    )
    assert compiled(text).ok


def test_number_types_come_with_the_libraries_that_bring_them(compiled: Compile) -> None:
    assert compiled(
        "#include <cublas_v2.h>\n__global__ void k(half *x, __nv_bfloat16 *y) { x[0] = __float2half(__bfloat162float(y[0])); }\n"
    ).ok
    assert compiled("#include <cufft.h>\n__global__ void k(cuComplex *x) { x[0] = cuCmulf(x[0], x[1]); }\n").ok


@pytest.mark.parametrize(
    "text",
    [
        "#include <cufft.h>\n__global__ void k(cufftComplex *x, cufftDoubleReal *y) { y[0] = x[0].x * x[0].y; }\n",
        "#include <npp.h>\n__global__ void k(const Npp8u *x, Npp32f *y, NppiSize s) { if (threadIdx.x < s.width) y[0] = x[0]; }\n",
        "#include <cufft.h>\nstruct cufftComplex { float re, im; };\n__global__ void k(cufftComplex *x) { x[0].re = x[0].im; }\n",
    ],
)
def test_types_of_libraries_for_signals_and_images_are_declared(compiled: Compile, text: str) -> None:
    result = compiled(text)
    assert result.ok, result.diagnostics


def test_a_host_library_stays_one_where_its_folder_is_named(compiled: Compile, tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    elsewhere = tmp_path.parent / f"{tmp_path.name}-torch"
    (elsewhere / "torch").mkdir(parents=True)
    (elsewhere / "torch" / "extension.h").write_text("#error this is made for a host compiler\n")
    result = compiled(EXTENSION, instance="k<float>", include_paths=(str(elsewhere),))
    assert result.ok, result.diagnostics


def test_namespaces_of_torch_for_host_code_are_left_out(compiled: Compile) -> None:
    opened = "using namespace torch::indexing;\nusing namespace at::cuda;\n"
    result = compiled(EXTENSION.replace("template <", opened + "template <", 1), instance="k<float>")
    assert result.ok, result.diagnostics
