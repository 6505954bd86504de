"""Inferred contracts of kernels that take structs, arrays of structs, textures and surfaces."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernelmate.errors import ContractError
from kernelmate.records import Contract, Kernel, Unit
from kernelmate.source import find_kernels, infer_contract, parse_contract, write_contract
from kernelmate.source.files import load_kernels

STRUCTS = """
typedef struct { float x, y, z; float mass; } Body;
struct Cell { int count; float sum; };
struct Params { const float* __restrict__ x; float* y; int n; float alpha; float3 origin; int pads[2]; };
struct Shape { int n; };
"""


def kernel_of(text: str, path: str = "<cell>") -> Kernel:
    return find_kernels(Unit(path, text))[-1]


def round_trip(kernel: Kernel) -> Contract:
    """Returns the inferred contract, which must mean the same when it is written above the kernel and read."""
    inferred = infer_contract(kernel)
    read = parse_contract(write_contract(kernel, inferred))
    assert read is not None
    assert (read.args, read.passing, read.sizes) == (inferred.args, inferred.passing, inferred.sizes)
    return inferred


def test_a_struct_by_value_gives_an_argument_for_each_field() -> None:
    contract = round_trip(
        kernel_of(STRUCTS + "__global__ void k(const Params p, float beta) { p.y[threadIdx.x] = p.x[0]; }")
    )
    (struct, beta) = contract.passing
    assert (struct.kind, struct.nbytes, beta.kind) == ("struct", 48, "argument")
    assert [(one.argument, one.offset) for one in struct.members] == [
        ("p_x", 0), ("p_y", 8), ("n", 16), ("alpha", 20), ("p_origin_x", 24), ("p_origin_y", 28), ("z", 32), ("pads_0", 36), ("pads_1", 40),
    ]  # fmt: skip
    by_name = {one.name: one for one in contract.args}
    assert (by_name["p_x"].direction, by_name["p_y"].direction) == ("in", "inout")
    assert list(contract.sizes[0]) == ["n"]


def test_a_field_that_two_structs_have_is_called_by_both_names_and_is_no_size() -> None:
    contract = round_trip(kernel_of(STRUCTS + "__global__ void k(Shape a, Shape b, float* x) { x[a.n] = b.n; }"))
    assert [one.name for one in contract.args] == ["a_n", "b_n", "x"]
    assert [one.value for one in contract.args[:2]] == ["1", "1"]


def test_a_pointer_to_a_struct_with_pointers_is_one_struct() -> None:
    contract = round_trip(kernel_of(STRUCTS + "__global__ void k(const Params* p) { p->y[threadIdx.x] = p->x[0]; }"))
    assert [one.kind for one in contract.passing] == ["pointer"]


def test_structs_of_one_type_in_an_array_are_its_last_dimension() -> None:
    text = "__global__ void k(Body* bodies, int n) { int i = threadIdx.x; if (i < n) bodies[i].x += bodies[i].mass; }"
    contract = round_trip(kernel_of(STRUCTS + text))
    bodies = contract.args[0]
    assert (bodies.dtype, bodies.shape) == ("float32", ("n * 4",))


def test_structs_of_several_types_in_an_array_are_refused_with_their_size() -> None:
    kernel = kernel_of(STRUCTS + "__global__ void k(Cell* cells, int n) { cells[threadIdx.x].count += n; }")
    with pytest.raises(ContractError, match="The element type of cells") as error:
        infer_contract(kernel)
    assert 'cells = "inout uint8[n, 8]"' in (error.value.hint or "")


def test_a_struct_of_another_file_of_the_project_is_found(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / "shape.h").write_text("#pragma once\nstruct Grid {\n  int rows;\n  int cols;\n};\n")
    (tmp_path / "k.cu").write_text(
        '#include "shape.h"\n__global__ void k(Grid g, float* x) { x[g.rows * g.cols - 1] = 1; }\n'
    )
    contract = infer_contract(load_kernels(tmp_path / "k.cu")[0])
    assert [one.argument for one in contract.passing[0].members] == ["rows", "cols"]


@pytest.mark.parametrize(
    ("parameters", "body", "entries"),
    [
        ("cudaTextureObject_t t, float* y, int n", "y[threadIdx.x] = tex1Dfetch<float>(t, n);",
         [("t", "in", "float32", ("n",), True, False)]),
        ("cudaTextureObject_t t, float* y, int w, int h", "y[0] = tex2D<uchar4>(t, w - 1, h - 1).x;",
         [("t", "in", "uint8", ("h", "w", "4"), False, True)]),
        ("cudaSurfaceObject_t s, int w, int h", "surf2Dwrite(make_float2(1, 2), s, w * sizeof(float2), h);",
         [("s", "out", "float32", ("h", "w", "2"), False, True)]),
        ("cudaSurfaceObject_t s, int d", "int v; surf3Dread(&v, s, 4 * d, 0, 0); surf3Dwrite(v + 1, s, 4 * d, 0, 0);",
         [("s", "inout", "float32", ("64", "64", "64"), False, False)]),
    ],
)  # fmt: skip
def test_textures_and_surfaces_have_the_type_and_rank_of_their_accesses(
    parameters: str, body: str, entries: list[tuple[object, ...]]
) -> None:
    contract = round_trip(kernel_of(f"__global__ void k({parameters}) {{ {body} }}"))
    args = {one.name: one for one in contract.args}
    shown = [(args[one.name], one.view) for one in contract.passing if one.view is not None]
    assert [
        (one.name, one.direction, one.dtype, one.shape, view.buffer, view.channels) for one, view in shown
    ] == entries


def test_an_accessor_of_torch_is_an_array_with_its_sizes_and_strides() -> None:
    text = """
    typedef int Index;
    template <typename scalar_t> __global__ void k(
        const torch::PackedTensorAccessor32<scalar_t, 3, torch::RestrictPtrTraits> a, at::PackedTensorAccessor64<Index, 1> b) { b[0] = a.size(0); }
    void f() { k<float><<<1, 1>>>(a.packed_accessor32<float, 3>(), b.packed_accessor64<int, 1>()); }
    """
    contract = round_trip(kernel_of(text))
    assert [(one.kind, one.nbytes) for one in contract.passing] == [("struct", 32), ("struct", 24)]
    named = {one.name: one for one in contract.args}
    a, b = ([named[member.argument] for member in one.members] for one in contract.passing)
    assert (a[0].dtype, a[0].shape, b[0].dtype, b[0].shape) == ("float32", ("n", "n", "n"), "int32", ("n",))
    assert [one.value for one in a[1:]] == ["n", "n", "n", "n ** 2", "n", "1"]
    assert contract.sizes[0]["n"] ** 3 <= 2**20
    assert {one.dtype for one in b[1:]} == {"int64"}
    assert (a[-1].fixed, b[-1].fixed) == (True, True)


VIEWS = """
template <typename T> struct Pointer { typedef T type; T* data; __device__ Pointer(T* p) : data(p) {} };
template <typename T> struct Step : public Pointer<T> {
  size_t step;
  __device__ T& operator()(int y, int x) const { return ((T*)((char*)this->data + y * step))[x]; }
};
template <typename T> struct Sized : public Step<T> { int cols; int rows; };
typedef Sized<unsigned char> Bytes;
"""


def test_views_of_class_templates_share_their_sizes_and_have_the_bytes_of_a_row() -> None:
    contract = round_trip(
        kernel_of(
            VIEWS + "__global__ void k(const Bytes a, Sized<float> b, Step<float> c) { c(0, 0) = b(0, 0) = a(0, 0); }"
        )
    )
    assert [one.nbytes for one in contract.passing] == [24, 24, 16]
    by_name = {one.name: one for one in contract.args}
    assert (by_name["a_data"].dtype, by_name["b_data"].shape) == ("uint8", ("rows", "cols"))
    assert [by_name[f"{one}_step"].value for one in "abc"] == ["cols * 1", "cols * 4", "cols * 4"]
    assert [by_name[name].value for name in ("a_cols", "b_rows")] == ["cols", "rows"]
    assert set(contract.sizes[0]) == {"rows", "cols"}


def test_a_functor_is_a_struct_of_its_fields_and_one_byte_without_any() -> None:
    text = """
struct Square { __device__ float operator()(float v) const { return v * v; } };
template <typename T> struct Scale : std::unary_function<T, T> {
  static const int parts = 1;
  T by;
  enum { kind = 3 };
  explicit Scale(T by) : by{by} {}
  __device__ T operator()(T v) const { return v * by; }
};
template <typename Op> __global__ void each(float* x, int n, Op op) { if (threadIdx.x < n) x[threadIdx.x] = op(x[threadIdx.x]); }
void run(float* x, int n) { each<<<1, 64>>>(x, n, MADE); }
"""
    contract = round_trip(kernel_of(text.replace("MADE", "Square()")))
    assert [(one.name, one.dtype, one.value) for one in contract.args[2:]] == [("op", "uint8", "1")]
    contract = round_trip(kernel_of(text.replace("MADE", "Scale<float>(2)")))
    assert (contract.passing[2].kind, contract.args[2].name, contract.args[2].dtype) == ("struct", "by", "float32")
    with pytest.raises(ContractError, match="its launch at line 11 passes a lambda as op, whose type has no name"):
        infer_contract(kernel_of(text.replace("MADE", "[] __device__ (float v) { return v; }")))


@pytest.mark.parametrize("body", ["virtual void f(); float* x;", "int a : 3; float* x;", "float* x = nullptr;"])
def test_a_struct_whose_layout_is_more_than_its_fields_is_refused(body: str) -> None:
    with pytest.raises(ContractError, match="cannot be inferred"):
        infer_contract(kernel_of(f"struct Odd {{ {body} int n; }};\n__global__ void k(Odd o) {{ o.x[0] = 1; }}"))


def test_numbers_that_subscript_a_tensor_give_its_sides() -> None:
    contract = round_trip(
        kernel_of(
            "__global__ void k(torch::PackedTensorAccessor32<float, 3, torch::RestrictPtrTraits> x, float* y, int n) {\n"
            "  int i = threadIdx.x; auto row = x[i]; y[i] = row[6][0] + x[i][2][i] + x[i][3][4]; }"
        )
    )
    by_name = {one.name: one for one in contract.args}
    assert by_name["data_"].shape == ("n", "7", "max(n, 5)")
    assert [by_name[f"sizes__{axis}"].value for axis in range(3)] == ["n", "7", "max(n, 5)"]
    assert [by_name[f"strides__{axis}"].value for axis in range(3)] == ["7 * max(n, 5)", "max(n, 5)", "1"]
    assert [by_name[f"strides__{axis}"].fixed for axis in range(3)] == [False, False, True]


def test_functions_in_branches_of_the_preprocessor_leave_the_layout_and_fields_change_it() -> None:
    text = "struct M {{\n#ifndef __CUDACC__\n  {}\n#endif\n  float3 data[3];\n}};\n__global__ void k(M m, float* x) {{ x[0] = m.data[0].x; }}"
    assert round_trip(kernel_of(text.format("M(int* p) { use(p); }"))).passing[0].nbytes == 36
    with pytest.raises(ContractError, match="cannot be inferred"):
        infer_contract(kernel_of(text.format("int* p;")))


def test_a_type_that_nothing_defines_is_the_reason() -> None:
    with pytest.raises(ContractError, match=r"cannot be inferred: neither its file nor its project defines Far\."):
        infer_contract(kernel_of("__global__ void k(cv::Far<float> a, float* x) { x[0] = a(0); }"))
