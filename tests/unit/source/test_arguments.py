"""Structs, pointers to pointers, aliases, variables, and outputs that are compared in part, as a contract writes them."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kernelmate.errors import ContractError
from kernelmate.records import Contract, Member, Passed
from kernelmate.source import parse_contract
from kernelmate.source.render import render_contract
from kernelmate.source.structs import members_of

Parse = Callable[..., Contract]
Mistake = Callable[..., ContractError]

HEAD = """\
sizes = [{ n = 8, b = 2 }]
grid = "cdiv(n, block)"
block = 4
"""
KERNEL = """\
struct Inner { short kind; double scale; };
struct Params { unsigned int n; float alpha; const float *x; float* y, *w; Inner inner; int dims[2]; };
namespace cfg { __constant__ float taps[9]; }
__device__ int total;
__global__ void k(const Params p, const float* const* A, float* z, float* w) {}
"""
ARGS = """\
[args]
A = "in float32*[b][n, 3] ~ normal"
z = "inout float32[n]"
w = "alias z[n // 2]"
[args.p]
n = "uint32"
alpha = "float32 = 0.5"
x = "in float32[n] align 16"
y = "out float32[n]"
w = "out float32[n]"
inner = { kind = "int16 = 1 fixed", scale = "float64 = 2" }
dims = ["int32 = n", "int32 = b"]
[symbols]
"cfg::taps" = "in float32[9]"
total = "out int32[1]"
"""


def test_members_of_a_struct_are_laid_out_by_their_natural_alignment(contract_of: Parse) -> None:
    contract = contract_of(HEAD + ARGS, KERNEL)
    assert contract.passing[0] == Passed(
        "p",
        "struct",
        (
            Member("n", 0, ("n",)),
            Member("alpha", 4, ("alpha",)),
            Member("x", 8, ("x",)),
            Member("y", 16, ("y",)),
            Member("p_w", 24, ("w",)),
            Member("kind", 32, ("inner", "kind")),
            Member("scale", 40, ("inner", "scale")),
            Member("dims_0", 48, ("dims", 0)),
            Member("dims_1", 52, ("dims", 1)),
        ),
        nbytes=56,
    )
    assert [one.kind for one in contract.passing] == ["struct", "pointers", "argument", "alias", "argument", "argument"]
    assert [one.variable for one in contract.passing] == [False] * 4 + [True] * 2
    named = {one.name: one for one in contract.args}
    assert named["A"].shape == ("b", "n", "3")
    assert named["x"].align == 16
    assert named["taps"].direction == "in"
    assert [None if one is None else one.name for one in contract.parameters] == [None, None, "z", None]


def test_fields_of_equal_names_have_their_structs_name_before_them(contract_of: Parse) -> None:
    contract = contract_of(
        HEAD + '[args]\na = { n = "int32", v = "float32 = 1" }\nb = { n = "int32", w = "float32 = 1" }\n',
        "__global__ void k(A a, B b) {}",
    )
    assert [(one.name, one.value) for one in contract.args] == [("a_n", "n"), ("v", "1"), ("b_n", "n"), ("w", "1")]


def test_what_is_passed_is_written_as_it_was_read(only, contract_of: Parse) -> None:
    contract = contract_of(HEAD + ARGS, KERNEL)
    text = KERNEL.replace("__global__", render_contract(contract) + "__global__")
    assert parse_contract(only(text)) == Contract(
        **{name: getattr(contract, name) for name in contract.__dataclass_fields__} | {"line": 5}
    )


PARTLY = """\
[args]
keys = "out int32[n][:count] unordered align 4"
vals = "out float32[n, 3][:count] unordered with keys"
rows = "out int32[b, n][:, :lens] where valid"
valid = "in bool[b, n]"
lens = "in int32[b] ~ integers(0, n)"
count = "inout int32[1] ~ zeros"
work = "scratch float32[n] ~ zeros"
"""
PARTLY_KERNEL = "__global__ void k(int* keys, float* vals, int* rows, const bool* valid, const int* lens, int* count, float* work) {}"


def test_extents_orders_masks_and_scratch_are_read_and_written(only, contract_of: Parse) -> None:
    contract = contract_of(HEAD + PARTLY, PARTLY_KERNEL)
    named = {one.name: one for one in contract.args}
    assert (named["keys"].extent, named["keys"].unordered, named["keys"].align) == ((0, "count"), True, 4)
    assert named["vals"].paired == "keys"
    assert (named["rows"].extent, named["rows"].mask) == ((1, "lens"), "valid")
    assert (named["work"].direction, named["work"].distribution) == ("scratch", "zeros")
    again = parse_contract(only(render_contract(contract) + PARTLY_KERNEL))
    assert again == contract


@pytest.mark.parametrize(
    ("old", "new", "says", "fix"),
    [
        ("[:count] unordered align 4", "[:cuont] unordered align 4", "'cuont' is not defined", "count"),
        (
            "[:count] unordered align 4",
            "[:count + 1] unordered align 4",
            "computes with the array count",
            "Write count",
        ),
        ("[:count] unordered align 4", "[:, :count] unordered", "more axes than its shape", "one to 1"),
        ("[:count] unordered align 4", "[:] unordered", "has no end", "[:count]"),
        ("unordered with keys", "unordered with", "After `with` an output must follow", "with keys"),
        ("unordered with keys", "unordered with rows", "is not an unordered output", "`unordered` for rows"),
        ("unordered with keys", "unordered with vals", "'vals' is not another array", "valid"),
        ("where valid", "where lens", "has another shape", "rows's"),
        ("where valid", "where", "After `where` an array must follow", "where valid"),
        ("[:, :lens]", "[:, :count]", "has another shape", "[b]"),
        ("[:, :lens]", "[:, :vals]", "not compared as a whole", "compared as a whole"),
        ('valid = "in bool[b, n]', 'valid = "in float32[b, n]', "float32 disagrees", "bool"),
        ('lens = "in int32[b]', 'lens = "in int32[b] unordered', "is in, which is not compared", "inout"),
        ("~ zeros", "~ normal", "poisoned, or filled by zeros", "~ zeros"),
        ('work = "scratch float32[n]', 'work = "scratch float32[n][:count]', "scratch, which is not compared", "out"),
        ("[:count] unordered align 4", "[:work] unordered", "not compared as a whole", "compared as a whole"),
    ],
)
def test_a_mistake_about_what_is_compared_is_told_with_its_fix(
    mistake_in: Mistake, old: str, new: str, says: str, fix: str
) -> None:
    count = -1 if old != "~ zeros" else PARTLY.rindex(old)
    text = PARTLY.replace(old, new, 1) if count < 0 else PARTLY[:count] + new + PARTLY[count + len(old) :]
    error = mistake_in(HEAD + text, PARTLY_KERNEL)
    assert says in error.message
    assert fix in (error.hint or "")


@pytest.mark.parametrize(
    ("old", "new", "line", "says", "fix"),
    [
        ('alpha = "float32 = 0.5"\n', "", 8, "p lacks alpha", "every field has its entry"),
        ("alpha =", "alhpa =", 10, "has no field 'alhpa'", "alpha"),
        (
            'n = "uint32"\nalpha = "float32 = 0.5"',
            'alpha = "float32 = 0.5"\nn = "uint32"',
            9,
            "alpha stands where",
            "n, alpha",
        ),
        ('n = "uint32"', 'n = "int32"', 9, "n is declared as unsigned int", "uint32"),
        ('x = "in float32[n] align 16"', 'x = "float32 = 1"', 11, "x is declared as float*", "in float32[n]"),
        ('"in float32*[b][n, 3] ~ normal"', '"in float32[b, n, 3]"', 5, "pointer to pointers", "*[count][n]"),
        ('"inout float32[n]"', '"inout float32*[b][n]"', 6, "is not a pointer to pointers", "without the star"),
        ('"alias z[n // 2]"', '"alias q"', 7, "'q' is not an array", "Known here: A, p_w, x, y, z"),
        ('"alias z[n // 2]"', '"alias z[n * 9]"', 7, "starts at element 72", "Change"),
        ('z = "inout float32[n]"', 'z = "in float32[n]"', 7, "only an input", "inout for z"),
        (
            'total = "out int32[1]"',
            'totals = "out int32[1]"',
            18,
            "no __constant__ or __device__ variable 'totals'",
            "total",
        ),
        ('"in float32[9]"', '"out float32[9]"', 17, "the kernel cannot write it", "in instead"),
        ('total = "out int32[1]"', 'total = "out int32[n - 9]"', 18, "it cannot be negative", "Change the shape"),
    ],
)
def test_a_mistake_about_what_is_passed_is_told_with_its_place_and_fix(
    mistake_in: Mistake, old: str, new: str, line: int, says: str, fix: str
) -> None:
    assert old in ARGS
    error = mistake_in(HEAD + ARGS.replace(old, new, 1), KERNEL)
    assert says in error.message
    assert fix in (error.hint or "")
    assert error.line == line


def test_a_scalar_parameter_takes_no_fields(mistake_in: Mistake) -> None:
    error = mistake_in(HEAD + '[args]\nn = { m = "int32 = 1" }\n', "__global__ void k(int n) {}")
    assert "has no fields" in error.message
    assert 'n = "int32"' in (error.hint or "")


def test_only_structs_with_the_layout_of_their_fields_are_compared_with_their_definition() -> None:
    assert members_of("struct A { int n, m; const float* x; long long d[4]; };", "A") == {
        "n": "int", "m": "int", "x": "float*", "d": "long long",
    }  # fmt: skip
    assert members_of("struct A { int n; __device__ int f() { return n; } };", "A") == {"n": "int"}
    assert members_of("struct A { int n; virtual int f() { return n; } };", "A") is None
    assert members_of("struct A : B { int n; };", "A") is None
    assert members_of("struct A { int n : 3; };", "A") is None
    assert members_of("struct B { int n; };", "A") is None


def test_a_table_may_stand_behind_the_entries_of_later_parameters(contract_of: Parse) -> None:
    contract = contract_of(
        HEAD + '[args]\nb = "int32"\n[args.p]\nm = "int32 = 1"\n', "__global__ void k(P p, int b) {}"
    )
    assert [one.name for one in contract.args] == ["m", "b"]


def test_vectors_in_a_struct_are_aligned_as_a_whole(contract_of: Parse) -> None:
    contract = contract_of(
        HEAD + '[args.p]\na = "int8 = 1"\nv = ["float32 = 1", "float32 = 2", "float32 = 3", "float32 = 4"]\n'
        'b = "int8 = 1"\nw = ["float32 = 1", "float32 = 2", "float32 = 3"]\n',
        "struct P { char a; float4 v; signed char b; float3 w; };\n__global__ void k(P p) {}",
    )
    (passed,) = contract.passing
    assert [(one.argument, one.offset) for one in passed.members] == [
        ("a", 0), ("v_0", 16), ("v_1", 20), ("v_2", 24), ("v_3", 28), ("b", 32), ("w_0", 36), ("w_1", 40), ("w_2", 44),
    ]  # fmt: skip
    assert passed.nbytes == 48


VECTORS = "__global__ void k(float* x, float2 v, uchar4 c, double3 d, dim3 g) {}"
FIELDS = """\
[args]
x = "out float32[n]"
v = { x = "float32 = 1", y = "float32 = 2" }
c = { x = "uint8 = 1", y = "uint8 = 1", z = "uint8 = 1", w = "uint8 = 1" }
d = { x = "float64 = 1", y = "float64 = 1", z = "float64 = 1" }
g = { x = "uint32 = 1", y = "uint32 = n", z = "uint32 = 1" }
"""


def test_a_vector_that_is_passed_by_value_has_a_table_of_its_fields(contract_of: Parse) -> None:
    contract = contract_of(HEAD + FIELDS, VECTORS)
    assert [(one.kind, one.nbytes) for one in contract.passing] == [
        ("argument", 0), ("struct", 8), ("struct", 4), ("struct", 24), ("struct", 12),
    ]  # fmt: skip
    assert [one.name for one in contract.args][:3] == ["x", "v_x", "v_y"]


@pytest.mark.parametrize(
    ("old", "new", "says", "fix"),
    [
        ('v = { x = "float32 = 1", y', 'v = { x = "float32 = 1", z', "no field 'z'", ""),
        ('y = "float32 = 2"', 'y = "float64 = 2"', "y is declared as float32", "Write float32"),
        (', y = "float32 = 2"', "", "lacks y", "Add y"),
    ],
)
def test_a_mistake_in_a_vector_is_told_with_its_fix(
    mistake_in: Mistake, old: str, new: str, says: str, fix: str
) -> None:
    error = mistake_in(HEAD + FIELDS.replace(old, new), VECTORS)
    assert says in error.message
    assert fix in (error.hint or "")


def test_a_struct_without_fields_has_no_table(mistake_in: Mistake) -> None:
    source = "struct F { __device__ float operator()(float x) { return x; } };\n__global__ void k(F f) {}"
    error = mistake_in(HEAD + '[args]\nf = { n = "int32 = 1" }\n', source)
    assert error.message == "F has no fields: it is passed as one byte."
    assert error.hint == 'Write f = "uint8 = 1".'
