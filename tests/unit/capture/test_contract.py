"""Contracts made of records, as the argument entries and notes that a reader sees."""

from __future__ import annotations

import numpy as np
import pytest

from kernelmate.capture.contract import LONGEST_REQUIRE, CapturedContract, captured_contract
from kernelmate.capture.files import reference_text
from kernelmate.errors import UsageError
from kernelmate.records import Kernel
from kernelmate.source import find_kernels, text_unit
from kernelmate.source.render import argument_text, toml_lines
from tests.unit.capture.conftest import Floats, Passed, Records

SCALE = """
extern "C" __global__ void scale(const float* x, float* y, float a, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = a * x[i];
}
"""
OPAQUE = """
__device__ void work(const float* x, float* y, float a, int n);
extern "C" __global__ void scale(const float* x, float* y, float a, int n) { work(x, y, a, n); }
"""


def kernel_of(text: str) -> Kernel:
    return find_kernels(text_unit(text))[0]


def entries(made: CapturedContract) -> list[str]:
    return [argument_text(one) for one in made.contract.args]


def add_scales(records: Records, floats: Floats, sizes: list[int], a: float = 2.0, *, known: bool = True, times: int = 1) -> None:  # fmt: skip
    for n in sizes:
        x = floats(n)
        seen = {"read": False, "written": True} if known else {}
        records.add(
            [Passed(x, known=known), Passed(floats(n), np.float32(a) * x, known=known, **seen), Passed(np.float32(a)), Passed(np.int32(n))],
            (-(-n // 256), 1, 1), times=times,
        )  # fmt: skip


def test_sizes_launch_and_directions_of_a_plain_kernel(records: Records, floats: Floats) -> None:
    add_scales(records, floats, [1000, 4096, 1000])
    made = captured_contract(kernel_of(SCALE), records.read())
    assert entries(made) == ["in float32[n] align 16", "out float32[n] align 16", "float32 = 2.0 fixed", "int32"]
    assert (made.contract.grid, made.contract.block) == (("cdiv(n, block)",), ("256",))
    assert made.contract.sizes == ({"n": 1000}, {"n": 4096})
    assert made.contract.weights == (2.0, 1.0)
    assert made.contract.require == ("n == 1000 or n == 4096",)


def test_launches_beyond_those_recorded_count_in_the_weights(records: Records, floats: Floats) -> None:
    add_scales(records, floats, [512])
    add_scales(records, floats, [1024], times=30)
    made = captured_contract(kernel_of(SCALE), records.read())
    assert made.contract.weights == (30.0, 1.0)
    assert [(case.count, len(case.launches)) for case in made.cases] == [(30, 4), (1, 1)]


def test_an_allocation_without_a_shape_is_related_by_its_elements(records: Records, floats: Floats) -> None:
    """A GPU's records have no shapes; subscripts are hidden in a function that is not read."""
    add_scales(records, floats, [1000, 4096], known=False)
    made = captured_contract(kernel_of(OPAQUE), records.read())
    assert entries(made)[:2] == ["in float32[n] align 16", "inout float32[n] align 16"]


def test_padding_beyond_what_the_text_indexes_is_left_out_and_told(records: Records, floats: Floats) -> None:
    for n in (1000, 4096):
        x, y = floats(n + 24), floats(n + 24)
        after = y.copy()
        after[:n] = 2 * x[:n]
        records.add([Passed(x, known=False), Passed(y, after, known=False), Passed(np.float32(2)), Passed(np.int32(n))], (-(-n // 256), 1, 1))  # fmt: skip
    made = captured_contract(kernel_of(SCALE), records.read())
    assert entries(made)[:2] == ["in float32[n] align 16", "out float32[n] align 16"]
    assert any("x: its buffers go up to 24 elements beyond [n]" in one for one in made.notes)


def test_changes_that_end_before_a_buffer_are_told(records: Records, floats: Floats) -> None:
    for n in (1000, 4096):
        y = floats(2 * n)
        after = y.copy()
        after[:n] = 0
        records.add([Passed(floats(n), known=False), Passed(y, after, known=False), Passed(np.float32(2)), Passed(np.int32(n))], (-(-n // 256), 1, 1))  # fmt: skip
    made = captured_contract(kernel_of(OPAQUE), records.read())
    assert entries(made)[1] == "inout float32[n * 2] align 16"
    assert any("y: launches changed nothing beyond element 4095 of 8192" in one for one in made.notes)


def test_what_is_related_to_nothing_is_a_size_of_its_own_and_said_to_be(records: Records, floats: Floats) -> None:
    for n, blocks in ((1000, 5), (4096, 11), (333, 901)):
        x = floats(n)
        records.add([Passed(x), Passed(floats(n), x, read=False, written=True), Passed(np.float32(1)), Passed(np.int32(n))], (blocks, 1, 1))  # fmt: skip
    made = captured_contract(kernel_of(SCALE), records.read())
    assert made.contract.grid == ("grid_x",)
    assert made.contract.sizes[0] == {"n": 1000, "grid_x": 5}
    assert made.contract.require == ("(n == 1000 and grid_x == 5) or (n == 4096 and grid_x == 11) or (n == 333 and grid_x == 901)",)  # fmt: skip
    assert "no relation of grid.x to other sizes was found: it is the size grid_x" in made.notes


def test_floats_follow_a_size_or_are_numbered_by_the_size_launch(records: Records, floats: Floats) -> None:
    for n in (1000, 4096):
        add_scales(records, floats, [n], 1 / n)
    assert entries(captured_contract(kernel_of(SCALE), records.read()))[2] == "float32 = 1 / n"


def test_floats_without_a_relation_are_numbered(records: Records, floats: Floats) -> None:
    for step in range(3):
        add_scales(records, floats, [512, 1024], 0.1 * (step + 1))
    made = captured_contract(kernel_of(SCALE), records.read())
    assert entries(made)[2] == "float32 = 0.1 if launch == 0 else 0.2 if launch == 1 else 0.3"
    assert {"n": 1024, "launch": 2} in made.contract.sizes
    assert "no relation of a to sizes was found: the size launch indexes their values" in made.notes


@pytest.mark.parametrize("const", [False, True])
def test_arrays_that_share_memory_are_an_alias(records: Records, floats: Floats, const: bool) -> None:
    """An alias refers to an array before it, which may be written; a const one that comes first is passed as a copy."""
    for n in (1000, 4096):
        x = floats(n)
        both = [Passed(x, 2 * x, address=0x1000, read=True, written=False) for _ in range(2)]
        records.add([*both, Passed(np.float32(2)), Passed(np.int32(n))], (-(-n // 256), 1, 1))
    made = captured_contract(kernel_of(SCALE if const else SCALE.replace("const ", "")), records.read())
    lines = toml_lines(made.contract)
    if const:
        assert entries(made)[:2] == ["in float32[n] align 16", "inout float32[n] align 16"]
        assert any(one.startswith("x shares memory that the kernel writes") for one in made.notes)
    else:
        assert 'x = "inout float32[n] align 16"' in lines
        assert 'y = "alias x"' in lines


def test_launches_of_another_kind_are_left_out_and_told(records: Records, floats: Floats) -> None:
    """The most frequent kind is kept: others have other options, or arrays that share memory."""
    for n in (1000, 4096):
        x = floats(n)
        rest, grid = [Passed(np.float32(2)), Passed(np.int32(n))], (-(-n // 256), 1, 1)
        records.add([Passed(x), Passed(floats(n), 2 * x), *rest], grid, options=("-DFAST",), times=2)
        records.add([Passed(x), Passed(floats(n), 2 * x), *rest], grid)
    records.add([Passed(x, 2 * x, address=0x1000), Passed(x, 2 * x, address=0x1000), *rest], grid, options=("-DFAST",))
    made = captured_contract(kernel_of(SCALE), records.read())
    assert made.contract.options == ("-DFAST",)
    assert [len(case.launches) for case in made.cases] == [2, 2]
    assert made.notes[0].startswith("3 of 7 recorded launches are left out: ")


def test_sizes_beyond_the_room_of_require_are_left_out_and_told(records: Records, floats: Floats) -> None:
    add_scales(records, floats, [2, 3], times=2)
    add_scales(records, floats, list(range(1000, 1080)))
    made = captured_contract(kernel_of(SCALE), records.read())
    (condition,) = made.contract.require
    assert len(condition) <= LONGEST_REQUIRE
    assert made.contract.sizes[:2] == ({"n": 2}, {"n": 3})
    assert len(made.contract.sizes) == len(made.cases) < 82
    left = 82 - len(made.cases)
    assert f"{left} of 82 sizes, the least frequent, are left out: `require` has no room for them" in made.notes


def test_alignment_that_some_launch_lacks_is_not_promised(records: Records, floats: Floats) -> None:
    for n, address in ((1000, 0x1000), (4096, 0x1004)):
        x = floats(n)
        records.add([Passed(x, address=address), Passed(floats(n), x, address=0x9000, read=False, written=True), Passed(np.float32(1)), Passed(np.int32(n))], (-(-n // 256), 1, 1))  # fmt: skip
    assert entries(captured_contract(kernel_of(SCALE), records.read()))[:2] == ["in float32[n]", "out float32[n] align 16"]  # fmt: skip


def test_a_text_with_other_parameters_is_refused(records: Records, floats: Floats) -> None:
    add_scales(records, floats, [1000])
    other = kernel_of('extern "C" __global__ void scale(float* x, int n) {}')
    with pytest.raises(UsageError, match=r"has 2 parameters \(x, n\), and its launches passed 4"):
        captured_contract(other, records.read())


def test_null_pointers_are_refused(records: Records, floats: Floats) -> None:
    records.add([Passed(floats(4)), Passed(np.uint64(0)), Passed(np.float32(1)), Passed(np.int32(4))], (1, 1, 1))
    with pytest.raises(UsageError, match="y of scale is a null pointer or host memory"):
        captured_contract(kernel_of(SCALE), records.read())


def test_structs_are_refused_with_the_parameter(records: Records, floats: Floats) -> None:
    records.add([Passed(floats(4)), Passed(np.void(b"12345678"))], (1, 1, 1))
    kernel = kernel_of("struct P { float a; int n; };\n__global__ void scale(float* x, P p) {}")
    with pytest.raises(UsageError, match="p of scale is of type P"):
        captured_contract(kernel, records.read())


def test_one_size_and_single_launches_are_told(records: Records, floats: Floats) -> None:
    add_scales(records, floats, [1000])
    notes = captured_contract(kernel_of(SCALE), records.read()).notes
    assert "all launches have one size: expressions that fit it may be coincidences" in notes
    assert any("1 of 1 sizes have one recorded launch (n = 1000)" in one for one in notes)


def test_expected_outputs_are_those_of_the_launch_with_the_same_inputs(records: Records, floats: Floats) -> None:
    """An output's former contents do not count: the first launch found zeros in it, which a judge passes as well."""
    xs = [floats(1000), floats(1000)]
    for x, before in zip(xs, (np.zeros(1000, np.float32), floats(1000)), strict=True):
        y = Passed(before, np.float32(2) * x, read=False, written=True)
        records.add([Passed(x), y, Passed(np.float32(2)), Passed(np.int32(1000))], (4, 1, 1))
    text = reference_text(captured_contract(kernel_of(SCALE), records.read()), "program")
    names = {"__file__": str(records.folder.parent / "reference.py")}
    exec(compile(text, "reference.py", "exec"), names)
    for x in xs:
        assert np.array_equal(names["expected"](x=x, y=np.zeros(1000, np.float32), a=2.0, n=1000), 2 * x)
