"""Kernels that are templates, written from references: the head stays, and a guard says for which instances the text is."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from kernelmate.records import Kernel
from kernelmate.session import Session
from kernelmate.source import contract_for, load_kernel
from kernelmate.suggest.synthesis import Synthesis
from kernelmate.synthesis.plan import Refused
from kernelmate.synthesis.templates import template_of
from tests.unit.synthesis.judging import assert_judged_right

NORM = """#include <cuda_runtime.h>

// /// kernelmate
// sizes = [{ rows = 37, d = 96 }, { rows = 1, d = 96 }]
// grid = "rows"
// block = 32
// reference = "x / np.sqrt((x * x).mean(axis=-1, keepdims=True) + 1e-5) * w"
// instances = ["norm<float, 96>"]
// [args]
// out = "out float32[rows, d]"
// x = "in float32[rows, d]"
// w = "in float32[d]"
// rows = "int32"
// ///
template <typename T, int kD>
__global__ void norm(T* out, const T* x, const T* w, int rows) {
  const int row = blockIdx.x;
  float sum = 0;
  for (int i = threadIdx.x; i < kD; i += 32) sum += static_cast<float>(x[row * kD + i]) * static_cast<float>(x[row * kD + i]);
  for (int i = 16; i > 0; i /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, i);
  const float scale = 1 / sqrtf(sum / kD + 1e-5f);
  for (int i = threadIdx.x; i < kD; i += 32) out[row * kD + i] = static_cast<T>(static_cast<float>(x[row * kD + i]) * scale * static_cast<float>(w[i]));
}

void launch(float* out, const float* x, const float* w, int rows) {
  norm<float, 96><<<rows, 32>>>(out, x, w, rows);
}
"""
SCALE = """#include <cuda_fp16.h>

// /// kernelmate
// sizes = [{ n = 1031 }, { n = 1 }]
// grid = "cdiv(n, block)"
// block = 128
// reference = "x * a"
// instances = ["scale<__half, 128, true>", "scale<__half, 128, false>"]
// [args]
// x = "inout float16[n]"
// a = "float32 = 0.5"
// n = "int32"
// ///
template <typename T, int kBlock, bool kUnused = false> __global__ void scale(T* x, float a, int n) {
  const int i = blockIdx.x * kBlock + threadIdx.x;
  if (i < n) x[i] = static_cast<T>(static_cast<float>(x[i]) * a);
}

template <typename T>
void scale_in_place(T* x, float a, int n) {
  scale<T, 128><<<(n + 127) / 128, 128>>>(x, a, n);
}

template void scale_in_place<__half>(__half*, float, int);
"""


def kernel_of(folder: Path, text: str) -> Kernel:
    path = folder / "kernel.cu"
    path.write_text(text)
    return load_kernel(str(path))


def written(session: Session, kernel: Kernel) -> str:
    found = session.optimize(kernel, "make it faster", suggesters=(Synthesis(),))
    assert found.candidates, found.notes
    return found.candidates[0].candidate.kernel.unit.text


@pytest.mark.parametrize("text", [NORM, SCALE], ids=["a size and a type", "a type, a block and a flag"])
def test_a_template_is_written_right_in_all_instances(text: str, tmp_path: Path, session: Session) -> None:
    assert assert_judged_right(session, kernel_of(tmp_path, text))


def test_the_head_stays_and_a_size_that_is_a_parameter_stays_free(tmp_path: Path, session: Session) -> None:
    text = written(session, kernel_of(tmp_path, NORM))
    assert "template <typename T, int kD>\n__global__ void" in text
    assert "norm(T* __restrict__ out, const T* __restrict__ x, const T* __restrict__ w, int rows) {" in text
    assert 'static_assert(std::is_same_v<T, float>, "only the instances of the contract were tested");' in text
    assert text.startswith("#include <type_traits>\n#include <cuda_runtime.h>\n")
    assert "norm<float, 96><<<" in text
    assert re.search(r"norm_row\([^)]*const float\* __restrict__ w, int kD,", text)


def test_a_number_of_threads_that_the_reference_does_not_have_stays_a_parameter(
    tmp_path: Path, session: Session
) -> None:
    text = written(session, kernel_of(tmp_path, SCALE))
    guard = re.search(r'static_assert\(std::is_same_v<T, __half>,\s+"([^"]+)"', text)
    assert guard is not None
    assert guard[1] == "only the instances of the contract were tested"
    assert re.search(r"blockIdx\.x\)? \* kBlock \+ threadIdx\.x", text)
    assert "scale<T, 128><<<" in text


PAIRS = ("scale<__half, 128, true>", "scale<__half, 256, false>")


def pairs_of(folder: Path, use: str) -> Kernel:
    """SCALE with two of the four combinations of a block and a flag listed, and another use in the file."""
    listed = SCALE.replace(
        '"scale<__half, 128, true>", "scale<__half, 128, false>"', ", ".join(f'"{one}"' for one in PAIRS)
    )
    return kernel_of(folder, listed.replace("scale<T, 128><<<", f"{use}<<<").replace("block = 128", "block = 256"))


def test_instances_that_are_some_combinations_are_guarded_together(tmp_path: Path) -> None:
    kernel = pairs_of(tmp_path, PAIRS[0])
    template = template_of(kernel, contract_for(kernel))
    assert template is not None
    assert (
        template.condition == "std::is_same_v<T, __half> && ((kBlock == 128 && kUnused) || (kBlock == 256 && !kUnused))"
    )


def test_a_combination_beside_those_of_the_contract_is_refused(tmp_path: Path) -> None:
    kernel = pairs_of(tmp_path, "scale<__half, 256, true>")
    with pytest.raises(Refused, match="also used as scale<__half, 256, true>"):
        template_of(kernel, contract_for(kernel))


def test_an_instance_beside_those_of_the_contract_is_refused(tmp_path: Path) -> None:
    kernel = kernel_of(tmp_path, NORM.replace("norm<float, 96><<<", "norm<double, 96><<<"))
    with pytest.raises(Refused, match="also used as norm<double, 96>, which its contract does not list"):
        template_of(kernel, contract_for(kernel))


def test_another_value_of_a_size_is_no_other_text(tmp_path: Path) -> None:
    kernel = kernel_of(tmp_path, NORM.replace("norm<float, 96><<<", "norm<float, 128><<<"))
    template = template_of(kernel, contract_for(kernel))
    assert template is not None
    assert template.sizes == {"d": "kD"}
    assert template.condition == "std::is_same_v<T, float>"


@pytest.mark.parametrize(
    ("head", "condition"),
    [
        ("template <typename T, int kTile>", "std::is_same_v<T, float> && kTile == 96"),
        ("template <class T, unsigned kD>", "std::is_same_v<T, float>"),
    ],
)
def test_a_size_is_found_by_name_or_by_its_value(head: str, condition: str, tmp_path: Path) -> None:
    name = head.split()[-1].rstrip(">")
    text = NORM.replace("template <typename T, int kD>", head).replace("kD", name)
    kernel = kernel_of(tmp_path, text)
    template = template_of(kernel, contract_for(kernel))
    assert template is not None
    assert template.sizes == {"d": name}
    assert template.condition == condition


def test_a_pack_is_refused(tmp_path: Path) -> None:
    kernel = kernel_of(tmp_path, NORM.replace("typename T, int kD>", "typename T, int kD, int... kMore>"))
    with pytest.raises(Refused, match="a template with a pack"):
        template_of(kernel, contract_for(kernel))


def test_a_file_without_headers_gets_one_at_its_beginning(tmp_path: Path, session: Session) -> None:
    text = written(session, kernel_of(tmp_path, NORM.partition("\n\n")[2]))
    assert text.startswith("#include <type_traits>\n\n")
