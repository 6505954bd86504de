"""`wmma.load`, `wmma.mma`, `wmma.store`: against exact products, and against the accesses that ptxas makes of them."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kernelmate.backends.base import UnsupportedInstruction
from kernelmate.backends.emulator.fragments import accesses_of, fragment_layout
from kernelmate.backends.emulator.matrix_operations import FragmentLoad
from kernelmate.backends.emulator.program import Address
from kernelmate.backends.emulator.types import SIZES
from kernelmate.config import load_settings
from kernelmate.session import Session
from kernelmate.source import load_kernels
from tests.unit.backends.emulator.test_matrices import TYPES

Make = Callable[..., Any]

LARGE = ("m16n16k16", "m32n8k16", "m8n32k16")
SUMS = {"f16": ("f16", "f32"), "bf16": ("f32",), "tf32": ("f32",), "f64": ("f64",), "s8": ("s32",), "u8": ("s32",)}
FORMS = [
    (shape, kind, out, add)
    for kind, sums in SUMS.items()
    for shape in {"tf32": ("m16n16k8",), "f64": ("m8n8k4",)}.get(kind, LARGE)
    for out, add in itertools.product(sums, sums)
]


def sides(shape: str) -> tuple[int, int, int]:
    rows, columns, inner = (int(side) for side in re.findall(r"\d+", shape))
    return rows, columns, inner


def registers(matrix: str, shape: str, kind: str) -> int:
    rows, columns, inner = sides(shape)
    if kind == "f16" and matrix in "ab":
        return 8
    elements = {"a": rows * inner, "b": inner * columns, "c": rows * columns, "d": rows * columns}[matrix]
    return elements * SIZES[kind] // (32 * max(4, SIZES[kind]))


def padded(kind: str, length: int) -> int:
    """A stride that is a multiple of 16 bytes and no power of two."""
    return length + 16 // SIZES[kind]


class Image:
    """Matrices in one piece of memory, each with its layout, padded rows, and 0x5a between them."""

    def __init__(self, space: str) -> None:
        self.space = space
        self.data = np.full(16384, 0x5A, np.uint8)
        self.places: dict[str, tuple[int, int, str, str]] = {}
        self._free = 0

    def put(self, name: str, matrix: np.ndarray, kind: str, layout: str, stride: int | None = None) -> None:
        rows = matrix if layout == "row" else matrix.T
        stride = padded(kind, rows.shape[1]) if stride is None else stride
        self.places[name] = (self._free, stride, kind, layout)
        self.view(name, rows.shape)[...] = rows
        self._free = -(-(self._free + rows.shape[0] * stride * SIZES[kind]) // 256) * 256
        assert self._free <= self.data.size

    def trim(self) -> None:
        """Leaves out what no matrix needs, to a multiple of what a warp copies at once."""
        self.data = self.data[: -(-self._free // 512) * 512].copy()

    def view(self, name: str, shape: tuple[int, ...], data: np.ndarray | None = None) -> np.ndarray:
        start, stride, kind, _ = self.places[name]
        whole = (self.data if data is None else data)[start : start + shape[0] * stride * SIZES[kind]]
        return whole.view(TYPES[kind]).reshape(shape[0], stride)[:, : shape[1]]

    def run(self, launch: Make, kernel: Make, lines: list[str], **options: Any) -> Any:
        """Runs lines in which `[name]` is a matrix's address and `name.stride` its stride."""
        self.trim()
        text = "\n".join(lines)
        base = "%p0" if self.space == "global" else "%d20"
        for name, (start, stride, _, _) in self.places.items():
            text = text.replace(f"[{name}]", f"[%d{30 + ord(name) - ord('a')}]").replace(f"{name}.stride", str(stride))
            text = f"add.s64 %d{30 + ord(name) - ord('a')}, {base}, {start};\n{text}"
        if self.space == "global":
            return launch(kernel(text + "\nret;"), self.data, **options)
        mine = "mov.u64 %d20, tile; mul.wide.u32 %d21, %tid1, 16; add.s64 %d22, %d20, %d21; add.s64 %d23, %p0, %d21;"
        quad = "{%r1, %r2, %r3, %r4}"
        steps = range(0, self.data.size, 512)
        into = [f"ld.global.v4.b32 {quad}, [%d23+{at}]; st.shared.v4.b32 [%d22+{at}], {quad};" for at in steps]
        back = [f"ld.shared.v4.b32 {quad}, [%d22+{at}]; st.global.v4.b32 [%d23+{at}], {quad};" for at in steps]
        body = "\n".join([mine, *into, "bar.sync 0;", text, "bar.sync 0;", *back, "ret;"])
        return launch(
            kernel(body, declarations=f".shared .align 256 .b8 tile[{self.data.size}];"), self.data, **options
        )


def names(matrix: str, shape: str, kind: str) -> str:
    letter = "g" if kind == "f64" else "f" if kind == "f32" else "r"
    first = {"a": 0, "b": 4, "c": 8, "d": 12}[matrix] if kind == "f64" else {"a": 10, "b": 20, "c": 0, "d": 10}[matrix]
    first += 30 if letter == "r" and matrix in "cd" else 0
    return "{" + ", ".join(f"%{letter}{first + i}" for i in range(registers(matrix, shape, kind))) + "}"


def load(image: Image, matrix: str, shape: str) -> str:
    _, _, kind, layout = image.places[matrix]
    space = f".{image.space}" if image.space else ""
    return (
        f"wmma.load.{matrix}.sync.aligned.{layout}.{shape}{space}.{kind} "
        f"{names(matrix, shape, kind)}, [{matrix}], {matrix}.stride;"
    )


def product(image: Image, shape: str, kind: str, out: str, add: str, saturates: str = "") -> list[str]:
    kinds = f"{out}.{add}" if kind == "f16" else f"{out}.{kind}.{kind}.{add}"
    layouts = f"{image.places['a'][3]}.{image.places['b'][3]}"
    fragments = [names(m, shape, t) for m, t in (("d", out), ("a", kind), ("b", kind), ("c", add))]
    return [
        *(load(image, matrix, shape) for matrix in "abc"),
        f"wmma.mma.sync.aligned.{layouts}.{shape}.{kinds}{saturates} {', '.join(fragments)};",
        f"wmma.store.d.sync.aligned.{image.places['d'][3]}.{shape}.{image.space}.{out} [d], {fragments[0]}, d.stride;",
    ]


def drawn(kind: str, shape: tuple[int, int], rng: np.random.Generator) -> np.ndarray:
    """Numbers whose products and sums are exact in every type of sum."""
    low, high = {"s8": (-128, 127), "u8": (0, 255), "s32": (-(10**6), 10**6)}.get(kind, (-7, 7))
    return rng.integers(low, high, shape, endpoint=True).astype(TYPES[kind])


@pytest.mark.instruction("wmma")
@pytest.mark.parametrize("space", ["global", "shared"])
@pytest.mark.parametrize(("shape", "kind", "out", "add"), FORMS)
def test_a_product_is_exact_in_every_layout(
    launch: Make, kernel: Make, shape: str, kind: str, out: str, add: str, space: str
) -> None:
    rng = np.random.default_rng(3)
    rows, columns, inner = sides(shape)
    for layouts in (("row", "col", "row", "col"), ("col", "row", "col", "row"), ("row", "row", "col", "col")):
        a, b, c = drawn(kind, (rows, inner), rng), drawn(kind, (inner, columns), rng), drawn(add, (rows, columns), rng)
        image = Image(space)
        for name, matrix, of, layout in zip("abcd", (a, b, c, np.zeros((rows, columns))), (kind, kind, add, out), layouts, strict=True):  # fmt: skip
            image.put(name, matrix, of, layout)
        done = image.run(launch, kernel, product(image, shape, kind, out, add))
        assert done.findings == ()
        wanted = a.astype(np.float64) @ b.astype(np.float64) + c.astype(np.float64)
        expected = image.data.copy()
        written = wanted if layouts[3] == "row" else wanted.T
        image.view("d", written.shape, expected)[...] = written
        assert np.array_equal(done.arrays["a0"], expected), layouts


@pytest.mark.parametrize(("kind", "out"), [("f16", "f16"), ("f16", "f32"), ("bf16", "f32"), ("tf32", "f32")])
def test_a_sum_is_rounded_once(launch: Make, kernel: Make, kind: str, out: str) -> None:
    rng = np.random.default_rng(5)
    shape = "m16n16k8" if kind == "tf32" else "m16n16k16"
    rows, columns, inner = sides(shape)
    a, b = (rng.standard_normal(size).astype(TYPES[kind]) for size in ((rows, inner), (inner, columns)))
    c = rng.standard_normal((rows, columns)).astype(TYPES[out])
    image = Image("global")
    for name, matrix, of in zip("abcd", (a, b, c, np.zeros((rows, columns))), (kind, kind, out, out), strict=True):
        image.put(name, matrix, of, "row")
    done = image.run(launch, kernel, product(image, shape, kind, out, out))
    got = image.view("d", (rows, columns), np.asarray(done.arrays["a0"]))
    if kind == "tf32":
        a, b = ((one.view(np.uint32) & 0xFFFFE000).view(np.float32) for one in (a, b))
    exact = a.astype(np.longdouble) @ b.astype(np.longdouble) + c
    assert (np.abs(got - exact) <= np.spacing(np.abs(got)).astype(np.longdouble) * 33 / 64).all()


def test_integer_sums_wrap_or_saturate(launch: Make, kernel: Make) -> None:
    found = []
    for saturates in ("", ".satfinite"):
        image = Image("global")
        for name, value, of in (("a", 255, "u8"), ("b", 255, "u8"), ("c", 2**31 - 5, "s32"), ("d", 0, "s32")):
            image.put(name, np.full((16, 16), value), of, "row")
        done = image.run(launch, kernel, product(image, "m16n16k16", "u8", "s32", "s32", saturates))
        found.append(set(image.view("d", (16, 16), np.asarray(done.arrays["a0"])).ravel().tolist()))
    assert found == [{2**31 - 5 + 16 * 255 * 255 - 2**32}, {2**31 - 1}]


def test_elements_of_half_operands_are_held_in_copies_alike(launch: Make, kernel: Make) -> None:
    image = Image("global")
    image.put("a", np.arange(256).reshape(16, 16), "f16", "row")
    image.put("d", np.zeros((32, 16)), "f16", "row", stride=16)
    items = [f"%r{10 + i}" for i in range(8)]
    lines = [load(image, "a", "m16n16k16"), "mul.wide.u32 %d1, %tid1, 32; add.s64 %d2, %d33, %d1;"]
    lines += [f"st.global.b32 [%d2+{4 * i}], {name};" for i, name in enumerate(items)]
    done = image.run(launch, kernel, lines)
    held = image.view("d", (32, 16), np.asarray(done.arrays["a0"]))
    assert np.array_equal(held[:, :8], held[:, 8:])
    assert sorted(held[:, :8].ravel().tolist()) == list(range(256))


def small_integers(words: np.ndarray, kind: str) -> np.ndarray:
    """The elements of rows of bytes, one by one."""
    bits = 1 if kind == "b1" else 4
    rows = [[int(byte) >> at & (1 << bits) - 1 for byte in row for at in range(0, 8, bits)] for row in words]
    return np.array([[x - 16 if kind == "s4" and x > 7 else x for x in row] for row in rows])


@pytest.mark.parametrize("space", ["global", "shared"])
@pytest.mark.parametrize(("kind", "combines"), [("s4", ""), ("u4", ""), ("b1", "xor"), ("b1", "and")])
def test_a_product_of_parts_of_bytes_is_exact(launch: Make, kernel: Make, kind: str, combines: str, space: str) -> None:
    rng = np.random.default_rng(7)
    inner = 128 if kind == "b1" else 32
    image = Image(space)
    a, b = (rng.integers(0, 256, (8, 16)).astype(np.uint8) for _ in range(2))
    c = rng.integers(-1000, 1000, (8, 8)).astype(np.int32)
    for name, matrix, of, stride in (("a", a, "u8", 48), ("b", b, "u8", 32), ("c", c, "s32", 12), ("d", c, "s32", 8)):
        image.put(name, matrix, of, "row", stride=stride)
    per_byte = inner // 16
    how = f".{combines}.popc" if combines else ""
    done = image.run(
        launch,
        kernel,
        [
            f"wmma.load.a.sync.aligned.row.m8n8k{inner}.{space}.{kind} {{%r10}}, [a], {48 * per_byte};",
            f"wmma.load.b.sync.aligned.col.m8n8k{inner}.{space}.{kind} {{%r11}}, [b], {32 * per_byte};",
            f"wmma.load.c.sync.aligned.row.m8n8k{inner}.{space}.s32 {{%r12, %r13}}, [c], c.stride;",
            f"wmma.mma{how}.sync.aligned.row.col.m8n8k{inner}.s32.{kind}.{kind}.s32 {{%r12, %r13}}, {{%r10}}, {{%r11}}, {{%r12, %r13}};",
            f"wmma.store.d.sync.aligned.row.m8n8k{inner}.{space}.s32 [d], {{%r12, %r13}}, d.stride;",
        ],
    )
    assert done.findings == ()
    left, right = small_integers(a, kind), small_integers(b, kind)
    each = left[:, None, :] ^ right[None] if combines == "xor" else left[:, None, :] * right[None]
    assert np.array_equal(image.view("d", (8, 8), np.asarray(done.arrays["a0"])), each.sum(axis=2) + c)


# Accesses of one instruction as nvdisasm shows them for sm_90 (ptxas 13.0): number and bytes per lane, in global memory
# by row and by column, and in shared memory likewise. 16 bytes of operands in shared memory are LDSM.
ACCESSES = {
    ("a", "m16n16k16", "f16"): [(4, 4), (4, 4), (1, 16), (1, 16)],
    ("b", "m16n16k16", "f16"): [(4, 4), (4, 4), (1, 16), (1, 16)],
    ("a", "m32n8k16", "bf16"): [(8, 4), (8, 4), (2, 16), (2, 16)],
    ("b", "m32n8k16", "f16"): [(2, 4), (2, 4), (1, 16), (1, 16)],
    ("a", "m8n32k16", "f16"): [(2, 4), (2, 4), (1, 16), (1, 16)],
    ("b", "m8n32k16", "bf16"): [(8, 4), (8, 4), (2, 16), (2, 16)],
    ("a", "m16n16k16", "s8"): [(2, 4), (8, 1), (1, 16), (8, 1)],
    ("b", "m16n16k16", "s8"): [(8, 1), (2, 4), (8, 1), (1, 16)],
    ("a", "m32n8k16", "s8"): [(4, 4), (16, 1), (2, 16), (16, 1)],
    ("b", "m32n8k16", "u8"): [(4, 1), (1, 4), (4, 1), (1, 16)],
    ("b", "m8n32k16", "s8"): [(16, 1), (4, 4), (16, 1), (2, 16)],
    ("a", "m16n16k8", "tf32"): [(4, 4), (4, 4), (4, 4), (4, 4)],
    ("b", "m16n16k8", "tf32"): [(4, 4), (4, 4), (4, 4), (4, 4)],
    ("a", "m8n8k4", "f64"): [(1, 8), (1, 8), (1, 8), (1, 8)],
    ("c", "m16n16k16", "f32"): [(4, 8), (8, 4), (4, 8), (8, 4)],
    ("c", "m32n8k16", "s32"): [(4, 8), (8, 4), (4, 8), (8, 4)],
    ("c", "m8n32k16", "f32"): [(8, 4), (4, 8), (8, 4), (4, 8)],
    ("c", "m16n16k16", "f16"): [(4, 4), (4, 4), (4, 4), (4, 4)],
    ("c", "m8n32k16", "f16"): [(4, 4), (4, 4), (4, 4), (4, 4)],
    ("c", "m8n8k4", "f64"): [(1, 16), (2, 8), (1, 16), (2, 8)],
}


@pytest.mark.parametrize(("matrix", "shape", "kind"), ACCESSES)
def test_accesses_are_those_of_the_compiled_instruction(matrix: str, shape: str, kind: str) -> None:
    found = []
    layout = fragment_layout(matrix, sides(shape), kind)
    for space, by_columns in itertools.product(("global", "shared"), (False, True)):
        operation = FragmentLoad(space, matrix, sides(shape), kind, by_columns, (), Address(None, 0), None, ())
        accesses = accesses_of(operation, layout)
        touched = np.zeros(layout.shape, int)
        for one in accesses:
            np.add.at(touched, (one.rows, one.columns), 1)
            lead, within = (one.columns, one.rows) if by_columns else (one.rows, one.columns)
            assert (np.diff(within, axis=1) == 1).all()
            assert (np.diff(lead, axis=1) == 0).all()
        assert (touched == 1).all()
        found.append((len(accesses), accesses[0].rows.shape[1] * SIZES[kind]))
    assert found == ACCESSES[matrix, shape, kind]


@pytest.mark.parametrize(("stride", "wavefronts"), [(16, 8), (24, 4), (64, 32)])
def test_bank_conflicts_depend_on_the_stride(launch: Make, kernel: Make, stride: int, wavefronts: int) -> None:
    image = Image("shared")
    image.put("a", np.zeros((16, 16)), "f16", "row", stride=stride)
    image.trim()
    plain = image.run(launch, kernel, [], count=True).counters
    loading = image.run(launch, kernel, [load(image, "a", "m16n16k16")], count=True).counters
    assert loading.shared_load_wavefronts - plain.shared_load_wavefronts == wavefronts


def test_sectors_are_those_of_the_rows(launch: Make, kernel: Make) -> None:
    image = Image("global")
    image.put("a", np.zeros((16, 16)), "f16", "row", stride=64)
    counters = image.run(launch, kernel, [load(image, "a", "m16n16k16")], count=True).counters
    # Each of the four accesses takes 16 bytes of eight rows.
    assert (counters.global_load_requests, counters.global_load_sectors) == (4, 32)


def shared_half(stride: int = 24) -> Image:
    image = Image("shared")
    image.put("a", np.zeros((16, 16)), "f16", "row", stride=stride)
    return image


def global_half(stride: int = 24) -> Image:
    image = shared_half(stride)
    image.space = "global"
    return image


def codes(done: Any) -> list[str]:
    return [str(finding.code) for finding in done.findings]


@pytest.mark.parametrize("make", [shared_half, global_half])
def test_an_address_must_be_a_multiple_of_the_fragments_size(
    launch: Make, kernel: Make, make: Callable[[], Image]
) -> None:
    image = make()
    line = load(image, "a", "m16n16k16").replace("[a]", "[%d29]")
    done = image.run(launch, kernel, ["add.s64 %d29, %d30, 16;", line])
    assert "misaligned-access" in codes(done)
    assert "not a multiple of 32" in done.findings[0].message


@pytest.mark.parametrize("make", [shared_half, global_half])
def test_a_stride_must_be_a_multiple_of_16_bytes(launch: Make, kernel: Make, make: Callable[[int], Image]) -> None:
    image = make(20)
    done = image.run(launch, kernel, [load(image, "a", "m16n16k16")])
    assert codes(done) == ["misaligned-access"]
    assert "with rows 20 elements apart; the distance must be a multiple of 8" in done.findings[0].message


def test_a_matrix_that_passes_the_end_of_an_array_is_found(launch: Make, kernel: Make) -> None:
    image = global_half()
    line = load(image, "a", "m16n16k16").replace("a.stride", "64")
    store = "wmma.store.d.sync.aligned.row.m16n16k16.global.f16 [a], {%r10, %r11, %r12, %r13}, 64;"
    assert codes(image.run(launch, kernel, [line])) == ["out-of-bounds-read"]
    assert codes(image.run(launch, kernel, ["mov.b32 %r10, 0; mov.b32 %r11, 0; mov.b32 %r12, 0; mov.b32 %r13, 0;", store])) == ["out-of-bounds-write"]  # fmt: skip


def test_lanes_must_agree_on_the_address(launch: Make, kernel: Make) -> None:
    image = global_half()
    image.put("b", np.zeros((64, 64)), "f16", "row")
    line = load(image, "a", "m16n16k16").replace("[a]", "[%d29]")
    done = image.run(launch, kernel, ["mul.wide.u32 %d28, %tid1, 32; add.s64 %d29, %d30, %d28;", line])
    assert codes(done) == ["shuffle-mask"]
    assert "differ in its address or stride" in done.findings[0].message


def test_all_lanes_must_take_part(launch: Make, kernel: Make) -> None:
    image = global_half()
    done = image.run(launch, kernel, ["setp.ge.u32 %q1, %tid1, 30; @%q1 ret;", load(image, "a", "m16n16k16")])
    assert codes(done) == ["shuffle-mask"]
    assert "all 32 lanes" in done.findings[0].message


def test_shared_memory_that_nobody_wrote_is_found(launch: Make, kernel: Make) -> None:
    body = "mov.u32 %r1, tile; wmma.load.a.sync.aligned.row.m16n16k16.shared.f16 {%r10, %r11, %r12, %r13, %r14, %r15, %r16, %r17}, [%r1], 16; ret;"
    done = launch(kernel(body, declarations=".shared .align 32 .b8 tile[512];"), np.zeros(1, np.int32))
    assert codes(done) == ["uninitialised-shared"]


@pytest.mark.parametrize(("barrier", "found"), [("bar.sync 0;", []), ("", ["shared-race"])])
def test_a_store_and_a_load_of_two_warps_need_a_barrier(
    launch: Make, kernel: Make, barrier: str, found: list[str]
) -> None:
    body = f"""mov.u32 %r1, tile; mov.u32 %r2, %tid1; setp.lt.u32 %q1, %tid1, 32; mov.f32 %f0, 0f3F800000; @!%q1 bra behind;
wmma.store.d.sync.aligned.row.m16n16k16.shared.f32 [%r1], {{%f0, %f0, %f0, %f0, %f0, %f0, %f0, %f0}}, 16;
behind: {barrier}
@%q1 bra done;
wmma.load.c.sync.aligned.col.m16n16k16.shared.f32 {{%f1, %f2, %f3, %f4, %f5, %f6, %f7, %f8}}, [%r1], 16;
add.s64 %d1, %p0, %off4; st.global.f32 [%d1], %f3;
done: ret;"""
    ptx = kernel(body, declarations=".shared .align 32 .b8 tile[1024];")
    done = launch(ptx, np.zeros(64, np.float32), block=(64,))
    assert [code for code in codes(done) if code != "uninitialised-shared"] == found


@pytest.mark.parametrize(
    "instruction",
    [
        "wmma.mma.sync.aligned.row.row.m8n8k32.s32.s4.s4.s32 {%r1, %r2}, {%r3}, {%r4}, {%r1, %r2};",
        "wmma.mma.sync.aligned.row.col.m8n8k128.s32.b1.b1.s32 {%r1, %r2}, {%r3}, {%r4}, {%r1, %r2};",
        "wmma.mma.sync.aligned.row.col.m16n16k16.s32.s8.u8.s32 {%r1, %r2, %r3, %r4, %r5, %r6, %r7, %r8}, {%r1, %r2}, {%r1, %r2}, {%r1, %r2, %r3, %r4, %r5, %r6, %r7, %r8};",
        "wmma.load.a.sync.aligned.col.m8n8k32.global.s4 {%r1}, [%p0], 32;",
        "wmma.load.a.sync.aligned.row.m16n16k16.global.f16 {%r1, %r2, %r3, %r4}, [%p0], 32;",
    ],
)
def test_other_forms_are_refused_by_name(launch: Make, kernel: Make, instruction: str) -> None:
    with pytest.raises(UnsupportedInstruction) as caught:
        launch(kernel(instruction + " ret;"), np.zeros(1, np.int32))
    assert instruction.split()[0] in caught.value.finding.message


GEMM = Path(__file__).resolve().parents[3] / "data" / "fragments" / "wmma_gemm.cu"


def judged(tmp_path: Path, old: str = "", new: str = "") -> Any:
    text = GEMM.read_text()
    assert old in text
    path = tmp_path / "wmma_gemm.cu"
    path.write_text(text.replace(old, new, 1) if old else text)
    with Session(load_settings(seed=5, backend="emulator")) as session:
        (verdict,) = session.bench(load_kernels(path)[0])
    return verdict


def test_a_tiled_product_is_right(tmp_path: Path) -> None:
    verdict = judged(tmp_path)
    assert verdict.correct is True
    assert verdict.findings == ()


def test_a_tiled_product_with_the_wrong_layout_is_wrong(tmp_path: Path) -> None:
    verdict = judged(tmp_path, "half, wmma::row_major> left", "half, wmma::col_major> left")
    assert verdict.correct is False


def test_a_tiled_product_without_a_barrier_has_a_race(tmp_path: Path) -> None:
    verdict = judged(tmp_path, "    __syncthreads();  // tiles are written\n")
    assert verdict.correct is False
    assert "shared-race" in codes(verdict)


@pytest.mark.parametrize("space", ["global", "shared"])
def test_generic_addresses_lead_to_both_spaces(launch: Make, kernel: Make, space: str) -> None:
    image = Image(space)
    for name, stride in (("a", 24), ("d", 32)):
        image.put(name, np.arange(256).reshape(16, 16) * (name == "a"), "f32" if name == "d" else "bf16", "row", stride)
    if space == "shared":
        generic = "cvta.shared.u64 %d1, %d30; cvta.shared.u64 %d2, %d33;"
    else:
        generic = "mov.u64 %d1, %d30; mov.u64 %d2, %d33;"
    lines = [
        generic,
        "wmma.load.a.sync.aligned.row.m16n16k16.bf16 {%r10, %r11, %r12, %r13}, [%d1], 24;",
        "wmma.load.b.sync.aligned.row.m16n16k16.bf16 {%r14, %r15, %r16, %r17}, [%d1], 24;",
        "mov.f32 %f0, 0f00000000;",
        "wmma.mma.sync.aligned.row.row.m16n16k16.f32.bf16.bf16.f32 {%f1, %f2, %f3, %f4, %f5, %f6, %f7, %f8}, "
        "{%r10, %r11, %r12, %r13}, {%r14, %r15, %r16, %r17}, {%f0, %f0, %f0, %f0, %f0, %f0, %f0, %f0};",
        "wmma.store.d.sync.aligned.row.m16n16k16.f32 [%d2], {%f1, %f2, %f3, %f4, %f5, %f6, %f7, %f8}, 32;",
    ]
    done = image.run(launch, kernel, lines)
    assert done.findings == ()
    a = image.view("a", (16, 16)).astype(np.float64)
    assert np.array_equal(image.view("d", (16, 16), np.asarray(done.arrays["a0"])), a @ a)


def test_an_index_that_wraps_is_found(launch: Make, kernel: Make) -> None:
    image = global_half()
    line = load(image, "a", "m16n16k16").replace("[a]", "[%d29]")
    image.data[:4].view(np.int32)[0] = 1 << 16
    index = "ld.global.b32 %r1, [%p0]; mul.lo.s32 %r2, %r1, 65536; mul.wide.s32 %d28, %r2, 2; add.s64 %d29, %d30, %d28;"
    assert codes(image.run(launch, kernel, [index, line])) == ["index-overflow"]


@pytest.mark.parametrize(
    "instruction",
    [
        "wmma.load.b.sync.aligned.col.m32n8k16.shared.s8 {%r10}, [%d30], 16;",
        "ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r10}, [%d30];",
        "stmatrix.sync.aligned.m8n8.x1.shared.b16 [%d30], {%r10};",
    ],
)
def test_lanes_that_give_addresses_must_not_be_missing(launch: Make, kernel: Make, instruction: str) -> None:
    image = Image("shared")
    image.put("a", np.zeros((8, 16)), "s8", "row", stride=16)
    lines = ["mov.b32 %r10, 0; setp.lt.u32 %q1, %tid1, 8; @%q1 bra past;", instruction, "past:"]
    assert codes(image.run(launch, kernel, lines)) == ["shuffle-mask"]
