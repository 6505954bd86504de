"""Parameters that are texture and surface objects, as a contract writes them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from kernelmate.errors import ContractError
from kernelmate.records import Contract, Member, Passed, TextureView
from kernelmate.source import infer_contract, parse_contract, size_allowed
from kernelmate.source.render import render_contract

Parse = Callable[..., Contract]
Mistake = Callable[..., ContractError]

HEAD = """\
sizes = [{ h = 64, w = 32 }, { h = 1, w = 4 }]
grid = "h"
block = 32
"""
KERNEL = """\
__global__ void k(cudaTextureObject_t a, cudaTextureObject_t b, cudaTextureObject_t c, cudaSurfaceObject_t s,
                  cudaTextureObject_t t) {}
"""
ARGS = """\
[args]
a = "in float32[h, w] texture filter linear address [wrap, clamp] normalized ~ normal"
b = "in uint8[h, w, 4] texture channels fraction"
c = "in int32[w] texture buffer"
s = "inout float16[3, h, w] surface layered"
t = "texture of s layered filter linear address border"
"""


def test_an_object_is_an_array_with_words_for_how_it_is_shown(contract_of: Parse) -> None:
    contract = contract_of(HEAD + ARGS, KERNEL)
    assert [(one.name, one.direction, one.dtype, one.shape) for one in contract.args] == [
        ("a", "in", "float32", ("h", "w")), ("b", "in", "uint8", ("h", "w", "4")), ("c", "in", "int32", ("w",)),
        ("s", "inout", "float16", ("3", "h", "w")),
    ]  # fmt: skip
    assert contract.args[0].distribution == "normal"
    views = {
        "a": ("a", TextureView(addresses=("wrap", "clamp"), linear=True, normalized=True)),
        "b": ("b", TextureView(channels=True, addresses=("clamp", "clamp"), fraction=True)),
        "c": ("c", TextureView(buffer=True)),
        "s": ("s", TextureView(surface=True, layered=True)),
        "t": ("s", TextureView(layered=True, addresses=("border", "border"), linear=True)),
    }
    assert contract.passing == tuple(
        Passed(name, "texture", (Member(array, 0),), view=view) for name, (array, view) in views.items()
    )


def test_objects_are_written_as_they_were_read(only, contract_of: Parse) -> None:
    contract = contract_of(HEAD + ARGS, KERNEL)
    text = render_contract(contract)
    for line in ARGS.splitlines()[1:]:
        assert line in text
    assert replace(parse_contract(only(text + KERNEL)), line=None) == replace(contract, line=None)


def test_sizes_without_elements_or_beyond_the_limits_are_outside_of_the_domain(contract_of: Parse) -> None:
    contract = contract_of(HEAD + ARGS, KERNEL)
    sizes = ((64, 32), (1, 1), (0, 4), (4, 0), (32768, 32768), (32769, 4))
    assert [size_allowed(contract, {"h": h, "w": w}) for h, w in sizes] == [True, True, False, False, True, False]


@pytest.mark.parametrize(
    ("old", "new", "line", "says", "fix"),
    [
        (" texture buffer", "", 7, "c is a texture object, and its entry does not say so", "[height, width] texture"),
        ("texture buffer", "surface", 7, "c is a texture object, and its entry says surface", "texture"),
        ("filter linear address [", "filter cubic address [", 5, "'cubic' is not a filter", "filter linear"),
        ("filter linear address [", "filter address [", 5, "filter has no value", "Write filter linear"),
        ("address border", "address", 9, "address has no value", "Write address clamp"),
        ("[wrap, clamp]", "[wrap, clamp", 5, "The list of address modes is not closed", "address [clamp, border]"),
        (" normalized", " normalized filter point", 5, "filter is given twice", "Leave one"),
        ("[wrap, clamp]", "[wrap, clam]", 5, "'clam' is not an address mode", "clamp"),
        ("[wrap, clamp]", "[wrap, clamp, clamp]", 5, "a has 2 coordinates", "one for each"),
        (" normalized", "", 5, "Address mode wrap needs normalized coordinates", "Add `normalized`"),
        (" normalized", " normalised", 5, "'normalised' does not apply to a texture", "normalized"),
        ("uint8[h, w, 4]", "float32[h, w, 4]", 6, "float32 cannot be read as a fraction", "fraction"),
        ("uint8[h, w, 4]", "uint8[h, w, 3]", 6, "is not a number of channels", "1, 2 or 4"),
        ("channels fraction", "channels filter linear", 6, "uint8 cannot be filtered linearly", "fraction"),
        ("int32[w]", "int64[w]", 7, "A texture cannot show int64", "float32"),
        ("int32[w]", "int32[h, w]", 7, "Linear memory has one dimension", "tex1Dfetch"),
        ("in int32[w]", "out int32[w]", 7, "c is out, and a kernel cannot write a texture", "Write in"),
        ("float16[3, h, w]", "float16[h, w]", 8, "would have 1 coordinates", "layers of two"),
        ("surface layered", "surface layered fraction", 8, "'fraction' does not apply to a surface", "layered"),
        ("texture of s layered", "texture of s", 9, "t lays s out otherwise than s", "the same of"),
        ("texture of s", "texture of z", 9, "'z' is not an array of an earlier entry", "Known here: a, b, c, s"),
        ('c = "in int32[w] texture buffer"', "", 4, "[args] lacks c", 'Add c = "in float32[height, width] texture"'),
        ('"in int32[w] texture buffer"', "3", 7, "c is cudaTextureObject_t, whose entry must be a string", "] texture"),
        ('"in int32[w] texture buffer"', '{ c = "in int32[w]" }', 7, "whose entry must be a string", "] texture"),
        ('"in int32[w] texture buffer"', '"texture of d"', 7, "'d' is not an array", "Known here: a, b"),
        ("in float32[h, w] t", "in float32 t", 5, "no shape", "Write a"),
        ("in int32[w]", "in int32[1000000 * h * w]", 7, "it would need more than 268435456 texels", "`require`"),
    ],
)  # fmt: skip
def test_a_mistake_in_an_object_is_told_with_its_place_and_fix(
    mistake_in: Mistake, old: str, new: str, line: int, says: str, fix: str
) -> None:
    assert old in ARGS
    error = mistake_in(HEAD + ARGS.replace(old, new, 1), KERNEL)
    assert says in error.message
    assert fix in (error.hint or "")
    assert error.line == line


@pytest.mark.parametrize(
    ("y", "t", "kernel"),
    [
        ("inout float32[h, w]", "texture of y", "float* y, cudaTextureObject_t t"),
        ("in float32[h, w]", "surface of y", "const float* y, cudaSurfaceObject_t t"),
        ("out float32[h, w] surface", "alias y[0]", "cudaSurfaceObject_t y, float* t"),
        ("out float32[h, w] surface", "tensormap of y box [4, 4]", "cudaSurfaceObject_t y, CUtensorMap t"),
    ],
)
def test_an_array_that_is_written_is_either_shown_or_passed_by_its_address(
    mistake_in: Mistake, y: str, t: str, kernel: str
) -> None:
    error = mistake_in(HEAD + f'[args]\ny = "{y}"\nt = "{t}"\n', f"__global__ void k({kernel}) {{}}")
    assert "y is written, and is both shown by an object and passed by its address" in error.message
    assert "Give t an array of its own" in (error.hint or "")
    assert error.line == 6


def test_an_array_that_is_read_is_shown_and_passed_by_its_address(contract_of: Parse) -> None:
    args = '[args]\ny = "in float32[h, w]"\nt = "texture of y"\nz = "alias y[0]"\n'
    contract = contract_of(HEAD + args, "__global__ void k(const float* y, cudaTextureObject_t t, const float* z) {}")
    assert [(one.name, one.kind) for one in contract.passing] == [("y", "argument"), ("t", "texture"), ("z", "alias")]


def test_a_member_of_a_struct_that_the_kernel_writes_is_not_shown(mistake_in: Mistake) -> None:
    args = '[args]\np = { n = "int32 = 1", y = "inout float32[h, w]" }\nt = "texture of y"\n'
    error = mistake_in(HEAD + args, "struct P { int n; float* y; };\n__global__ void k(P p, cudaTextureObject_t t) {}")
    assert "both shown by an object and passed by its address" in error.message


def test_an_object_without_an_array_before_it_has_a_hint(mistake_in: Mistake) -> None:
    error = mistake_in(HEAD + '[args]\nt = "texture of y"\n', "__global__ void k(cudaTextureObject_t t) {}")
    assert "'y' is not an array of an earlier entry" in error.message
    assert error.hint == "No array has an entry before it."


def test_an_object_in_a_struct_is_refused(mistake_in: Mistake) -> None:
    args = '[args]\np = { s = "out float32[h, w] surface" }\n'
    error = mistake_in(HEAD + args, "struct P { cudaSurfaceObject_t s; };\n__global__ void k(P p) {}")
    assert "s is a surface object in a struct" in error.message
    assert error.hint == "Pass it as a parameter of the kernel."


def test_an_object_in_a_struct_is_not_inferred(only) -> None:
    with pytest.raises(ContractError) as caught:
        infer_contract(only("struct P { cudaTextureObject_t t; };\n__global__ void k(P p, float* y) {}"))
    assert "Pass the texture or surface as a parameter of the kernel" in (caught.value.hint or "")
