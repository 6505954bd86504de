"""Parameters that are tensor maps, as a contract writes them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from kernelmate.errors import ContractError
from kernelmate.records import Contract, Member, Passed, TensorBox
from kernelmate.source import infer_contract, parse_contract, size_allowed
from kernelmate.source.render import render_contract

Parse = Callable[..., Contract]
Mistake = Callable[..., ContractError]

HEAD = """\
sizes = [{ m = 64, k = 32 }, { m = 1, k = 4 }]
grid = "m"
block = 32
"""
KERNEL = """\
__global__ void k(const __grid_constant__ CUtensorMap a, float* y, const __grid_constant__ CUtensorMap y_map,
                  const __grid_constant__ CUtensorMap v) {}
"""
ARGS = """\
[args]
a = "in float16[m, 3, 2 * k] box [32, 1, 64] swizzle 128B step [2, 1, 1] fill nan ~ normal"
y = "inout float32[m, k]"
y_map = "tensormap of y box [8, 4]"
v = "out uint8[m] align 64 box [128]"
"""


def test_a_tensor_map_is_an_array_with_a_box(contract_of: Parse) -> None:
    contract = contract_of(HEAD + ARGS, KERNEL)
    assert [(one.name, one.direction, one.dtype, one.shape, one.align) for one in contract.args] == [
        ("a", "in", "float16", ("m", "3", "2 * k"), 16), ("y", "inout", "float32", ("m", "k"), 16),
        ("v", "out", "uint8", ("m",), 64),
    ]  # fmt: skip
    assert contract.args[0].distribution == "normal"
    assert contract.passing == (
        Passed("a", "tensor_map", (Member("a", 0),), box=TensorBox((32, 1, 64), (2, 1, 1), 128, nan_fill=True)),
        Passed("y", "argument", (Member("y", 0),)),
        Passed("y_map", "tensor_map", (Member("y", 0),), box=TensorBox((8, 4), (1, 1))),
        Passed("v", "tensor_map", (Member("v", 0),), box=TensorBox((128,), (1,))),
    )


def test_tensor_maps_are_written_as_they_were_read(only, contract_of: Parse) -> None:
    contract = contract_of(HEAD + ARGS, KERNEL)
    text = render_contract(contract)
    assert 'y_map = "tensormap of y box [8, 4]"' in text
    assert '"in float16[m, 3, 2 * k] align 16 box [32, 1, 64] swizzle 128B step [2, 1, 1] fill nan ~ normal"' in text
    assert replace(parse_contract(only(text + KERNEL)), line=None) == replace(contract, line=None)


def test_sizes_without_a_tensor_map_are_outside_of_the_kernels_domain(contract_of: Parse) -> None:
    contract = contract_of(HEAD + ARGS, KERNEL)
    assert [size_allowed(contract, {"m": m, "k": k}) for m, k in ((64, 32), (1, 4), (0, 4), (5, 6), (5, 0))] == [
        True, True, False, False, False,
    ]  # fmt: skip


def test_a_tensor_map_is_not_guessed(only) -> None:
    with pytest.raises(ContractError) as caught:
        infer_contract(only(KERNEL))
    assert "element type of a" in caught.value.message
    assert 'a = "in float16[m, k] box [64, 64]"' in (caught.value.hint or "")


@pytest.mark.parametrize(
    ("old", "new", "line", "says", "fix"),
    [
        (" box [128]", "", 8, "v is a tensor map, and its entry has no box", "box [64, 64]"),
        ("box [128]", "box", 8, "box  does not fit v[m]", "Write box [64]: one number from 1 to 256"),
        ("box [8, 4]", "box [8]", 7, "box [8] does not fit y[m, k]", "Write box [64, 64]: 2 numbers from 1 to 256"),
        ("box [8, 4]", "box [8, 4", 7, "box [8, 4 does not fit", "Write box [64, 64]"),
        ("box [8, 4]", "box [8, 512]", 7, "box [8, 512] does not fit", "from 1 to 256"),
        ("box [8, 4]", "box [8, k]", 7, "box [8, k] does not fit", "from 1 to 256"),
        ("box [8, 4]", "box [8, 3]", 7, "A row of the box has 12 bytes", "multiple of 16"),
        ("box [8, 4]", "box [8, 16] swizzle 32B", 7, "64 bytes, more than the swizzle's 32", "at most 8 elements"),
        ("swizzle 128B", "swizzle 128", 5, "'128' is not a swizzle", "none, 32B, 64B, 128B"),
        ("swizzle 128B", "swizzle", 5, "'nothing' is not a swizzle", "none, 32B, 64B, 128B"),
        ("step [2, 1, 1]", "step [2, 1, 2]", 5, "The step of the last dimension must be 1", "step [2, 2, 1]"),
        ("step [2, 1, 1]", "step [9, 1, 1]", 5, "step [9, 1, 1] does not fit", "from 1 to 8"),
        ("fill nan", "fill one", 5, "'one' is not a fill value", "fill zero or fill nan"),
        ("box [128]", "box [128] fill nan", 8, "uint8 has no NaN", "fill zero"),
        ("tensormap of y", "tensormap of z", 7, "'z' is not an array of an earlier entry", "Known here: a, y"),
        ("float16[m, 3, 2 * k]", "complex64[m, 3, 2 * k]", 5, "A tensor map of a is not possible", "real numbers"),
        ("in float16[m, 3, 2 * k]", "in float16", 5, "no shape", "Write a"),
        ("inout float32[m, k]", "inout float32[m, k + 1]", 7, "a row has 132 bytes", "exclude it by `require`"),
    ],
)  # fmt: skip
def test_a_mistake_in_a_box_is_told_with_its_place_and_fix(
    mistake_in: Mistake, old: str, new: str, line: int, says: str, fix: str
) -> None:
    assert old in ARGS
    error = mistake_in(HEAD + ARGS.replace(old, new, 1), KERNEL)
    assert says in error.message
    assert fix in (error.hint or "")
    assert error.line == line
