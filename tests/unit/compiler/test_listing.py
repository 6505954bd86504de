"""PTX and SASS of compiled kernels, instruction by instruction."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from kernelmate.compiler import listing as module
from kernelmate.compiler.cuda_toolkit import find_tool
from kernelmate.compiler.listing import read_listing
from kernelmate.errors import CompilerUnavailable
from kernelmate.records import Listing
from kernelmate.source import load_kernels

pytestmark = pytest.mark.skipif(find_tool("nvdisasm") is None, reason="needs nvdisasm (nvidia-cuda-nvdisasm)")

NESTED = """\
__device__ __forceinline__ float square(float x) { return x * x; }
__device__ float twice(float x) {
    return square(x + 1.0f) * 3.0f;
}
__device__ __noinline__ float far_away(float x, int n) {
    for (int i = 0; i < n; ++i) x = x * 1.5f + 2.0f / x;
    return x;
}
template <int N> __global__ void k(const float* a, float* b) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    b[i] = twice(a[i]);
    b[i] += far_away(a[i], N);
    if (i == 0) printf("%d\\n", i);
}
"""


@pytest.fixture
def listed(compiled, tmp_path: Path) -> Callable[..., Listing]:
    def read(text: str, **options: str | None) -> Listing:
        done = compiled(text, **options)
        assert done.ok, done.diagnostics
        return read_listing(done, load_kernels(tmp_path / "kernel.cu")[0].unit)

    return read


@pytest.mark.parametrize("target", ["sm_75", "sm_80", "sm_90", "sm_120"])
def test_every_instruction_has_its_place_on_every_architecture(listed, target) -> None:
    listing = listed(NESTED, instance="k<5>", target=target)
    own = [one for one in listing.sass if one.function == listing.symbol]
    assert [one.address for one in own] == [16 * index for index in range(len(own))]
    assert all(one.place is not None and one.ptx_line is not None and one.live is not None for one in own)
    assert [one.text for one in listing.sass if not one.opcode or one.kind == "other"] == []
    assert 0 < max(one.live.general for one in listing.sass) == listing.peak


def test_inlined_code_names_its_own_line_and_its_callers(listed, tmp_path) -> None:
    listing = listed(NESTED, instance="k<5>")
    path = str(tmp_path / "kernel.cu")
    multiply = next(one for one in listing.sass if one.place is not None and one.place.line == 1)
    assert multiply.opcode == "FMUL"
    assert [(place.file, place.line) for place in multiply.inlined_at] == [(path, 3), (path, 11)]
    ptx = next(one for one in listing.ptx if one.place is not None and one.place.line == 1)
    assert [place.line for place in ptx.inlined_at] == [3, 11]
    assert ptx.line == multiply.ptx_line


def test_a_ptx_line_of_sass_is_the_instruction_that_it_was_made_from(listed) -> None:
    listing = listed(NESTED, instance="k<5>")
    by_line = {one.line: one.text for one in listing.ptx}
    load = next(one for one in listing.sass if one.opcode.startswith("LDG"))
    store = next(one for one in listing.sass if one.opcode.startswith("STG"))
    assert by_line[load.ptx_line].startswith("ld.global")
    assert by_line[store.ptx_line].startswith("st.global")


def test_functions_of_their_own_follow_the_kernel(listed) -> None:
    listing = listed(NESTED, instance="k<5>")
    functions = list(dict.fromkeys(one.function for one in listing.sass))
    assert functions[0] == listing.symbol
    assert "far_away" in functions[1]
    assert {one.place.line for one in listing.sass if one.function == functions[1]} <= {5, 6, 7}


def test_ptxas_own_slow_paths_belong_to_no_line(listed) -> None:
    listing = listed(NESTED, instance="k<5>")
    slow = [one for one in listing.sass if "slowpath" in one.function]
    assert slow
    assert all(one.place is None and one.ptx_line is None and not one.inlined_at for one in slow)


def test_branches_name_labels_that_are_there(listed) -> None:
    listing = listed(NESTED, instance="k<5>")
    labels = {label for one in listing.sass for label in one.labels}
    wanted = {found for one in listing.sass for found in re.findall(r"\.L_x_\d+", one.text)}
    assert wanted
    assert wanted <= labels
    assert not any("`" in one.text or one.text.endswith(";") for one in listing.sass)


def test_padding_is_left_out(listed) -> None:
    listing = listed("__global__ void k(int* a) { a[0] = 1; }\n")
    assert listing.sass[-1].opcode == "EXIT"
    assert listing.code_bytes >= 16 * len(listing.sass)
    assert "none" not in listing.mix
    assert sum(listing.mix.values()) == len(listing.sass)


def test_a_call_over_several_lines_of_ptx_is_one_instruction(listed) -> None:
    listing = listed(NESTED, instance="k<5>")
    calls = [one.text for one in listing.ptx if one.text.startswith("call")]
    assert any("vprintf" in call and call.endswith(")") for call in calls)
    assert all("." in one.text.split()[0] or one.text.split()[0] in {"ret", "call"} or one.text[0] == "@" for one in listing.ptx)  # fmt: skip


def test_code_of_a_project_header_has_its_file(listed, tmp_path) -> None:
    (tmp_path / "part.cuh").write_text("#pragma once\n__device__ inline float half_of(float x) { return x * 0.5f; }\n")
    listing = listed(
        '#include "part.cuh"\n__global__ void k(float* a) {\n  a[threadIdx.x] = half_of(a[threadIdx.x]);\n}\n'
    )
    assert listing.files == (str(tmp_path / "kernel.cu"), str(tmp_path / "part.cuh"))
    multiply = next(one for one in listing.sass if one.opcode == "FMUL")
    assert (multiply.place.file, multiply.place.line) == (str(tmp_path / "part.cuh"), 2)
    assert multiply.inlined_at[-1].line == 3


def test_a_python_strings_lines_are_those_of_the_file(compiled, tmp_path) -> None:
    text = 'import cupy\n\n\nk = cupy.RawKernel(r"""\nextern "C" __global__ void k(float* a) {\n    a[0] *= 2.0f;\n}\n""", "k")\n'
    done = compiled(text, name="k.py")
    listing = read_listing(done, load_kernels(tmp_path / "k.py")[0].unit)
    store = next(one for one in listing.sass if one.opcode.startswith("STG"))
    assert store.place.line == 6


def test_where_registers_cannot_be_counted_the_code_is_shown_all_the_same(listed, monkeypatch) -> None:
    real = module.disassemble

    def failing(compiled, *options):
        if "--life-range-mode" in options:
            raise CompilerUnavailable("nvdisasm failed: no dataflow.")
        return real(compiled, *options)

    monkeypatch.setattr(module, "disassemble", failing)
    listing = listed("__global__ void k(int* a) { a[0] = 1; }\n")
    assert listing.sass
    assert listing.peak is None


@pytest.mark.parametrize("target", ["sm_75", "sm_80", "sm_90", "sm_120"])
def test_whoever_needs_what_was_loaded_waits_for_the_scoreboard_that_the_load_sets(listed, target) -> None:
    text = "__global__ void k(const float* a, const float* b, float* c) {\n  int i = threadIdx.x;\n  c[i] = a[i] * 3.0f + b[i];\n}\n"
    listing = listed(text, target=target)
    loads = [index for index, one in enumerate(listing.sass) if one.opcode.startswith("LDG")]
    assert len(loads) == 2
    for index in loads:
        load = listing.sass[index]
        register = re.search(r"LDG\S* (R\d+)", load.text)[1]
        user = next(one for one in listing.sass[index + 1 :] if re.search(rf"\b{register}\b", one.text))
        assert load.control.sets is not None
        assert load.control.sets in user.control.waits
        assert user.opcode == "FFMA"
    assert all(one.control is not None and 0 <= one.control.stall <= 15 for one in listing.sass)
