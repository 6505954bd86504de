"""`mma.sync`, `ldmatrix`, `stmatrix`, `movmatrix`: against exact sums and the ISA's own formulas of where elements lie."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from kernelmate.backends.base import UnsupportedInstruction
from kernelmate.config import load_settings
from kernelmate.session import Session
from kernelmate.source import load_kernels

KERNELS = sorted((Path(__file__).resolve().parents[3] / "data" / "matrices").glob("*.cu"))
Make = Callable[..., Any]

TYPES = {
    "f16": np.float16,
    "bf16": ml_dtypes.bfloat16,
    "tf32": np.float32,
    "f32": np.float32,
    "f64": np.float64,
    "s8": np.int8,
    "u8": np.uint8,
    "s32": np.int32,
    "e4m3": ml_dtypes.float8_e4m3fn,
    "e5m2": ml_dtypes.float8_e5m2,
}

# Row and column of element i of a lane, as the ISA writes them: g is lane / 4, t is lane % 4.
PLACES: dict[str, dict[str, Callable[[int, int, int], tuple[int, int]]]] = {
    "m16n8k8.f16": {
        "a": lambda g, t, i: (g if i < 2 else g + 8, t * 2 + (i & 1)),
        "b": lambda g, t, i: (t * 2 + i, g),
    },
    "m16n8k16.f16": {
        "a": lambda g, t, i: (g if i < 2 or 4 <= i < 6 else g + 8, t * 2 + (i & 1) + (8 if i >= 4 else 0)),
        "b": lambda g, t, i: (t * 2 + (i & 1) + (8 if i >= 2 else 0), g),
    },
    "m16n8k4.tf32": {"a": lambda g, t, i: (g + 8 * i, t), "b": lambda g, t, i: (t, g)},
    "m16n8k8.tf32": {
        "a": lambda g, t, i: (g if i in (0, 2) else g + 8, t if i < 2 else t + 4),
        "b": lambda g, t, i: (t + 4 * i, g),
    },
    "m8n8k4.f64": {"a": lambda g, t, i: (g, t), "b": lambda g, t, i: (t, g)},
    "m8n8k16.s8": {"a": lambda g, t, i: (g, t * 4 + i), "b": lambda g, t, i: (t * 4 + i, g)},
    "m16n8k16.s8": {
        "a": lambda g, t, i: (g if i < 4 else g + 8, t * 4 + (i & 3)),
        "b": lambda g, t, i: (t * 4 + i, g),
    },
    "m16n8k32.s8": {
        "a": lambda g, t, i: (g if i < 4 or 8 <= i < 12 else g + 8, t * 4 + (i & 3) + (16 if i >= 8 else 0)),
        "b": lambda g, t, i: (t * 4 + (i & 3) + (16 if i >= 4 else 0), g),
    },
}


def sum_place(g: int, t: int, i: int) -> tuple[int, int]:
    return (g if i < 2 else g + 8, t * 2 + (i & 1))


CASES = [
    ("m16n8k8", "f16", "f16", "f32", "m16n8k8.f16"),
    ("m16n8k8", "f16", "f16", "f16", "m16n8k8.f16"),
    ("m16n8k16", "f16", "f16", "f32", "m16n8k16.f16"),
    ("m16n8k16", "f16", "f16", "f16", "m16n8k16.f16"),
    ("m16n8k8", "bf16", "bf16", "f32", "m16n8k8.f16"),
    ("m16n8k16", "bf16", "bf16", "f32", "m16n8k16.f16"),
    ("m16n8k4", "tf32", "tf32", "f32", "m16n8k4.tf32"),
    ("m16n8k8", "tf32", "tf32", "f32", "m16n8k8.tf32"),
    ("m8n8k4", "f64", "f64", "f64", "m8n8k4.f64"),
    ("m8n8k16", "s8", "u8", "s32", "m8n8k16.s8"),
    ("m16n8k16", "u8", "s8", "s32", "m16n8k16.s8"),
    ("m16n8k32", "s8", "s8", "s32", "m16n8k32.s8"),
    ("m16n8k16", "e4m3", "e5m2", "f32", "m16n8k16.s8"),
    ("m16n8k32", "e5m2", "e4m3", "f32", "m16n8k32.s8"),
]


def drawn(kind: str, shape: tuple[int, int], rng: np.random.Generator) -> np.ndarray:
    if kind in {"s8", "u8", "s32"}:
        limits = np.iinfo(TYPES[kind] if kind != "s32" else np.int16)
        return rng.integers(limits.min, limits.max, shape, dtype=np.int64, endpoint=True).astype(TYPES[kind])
    values = rng.standard_normal(shape) * 2.0 ** rng.integers(-3, 4, shape)
    return values.astype(np.float32).astype(TYPES[kind])


def packed(matrix: np.ndarray, elements: int, place: Callable[[int, int, int], tuple[int, int]]) -> np.ndarray:
    """A matrix as the registers of 32 lanes, each lane's next to each other."""
    lanes = [[matrix[place(lane // 4, lane % 4, i)] for i in range(elements)] for lane in range(32)]
    return np.ascontiguousarray(np.array(lanes, matrix.dtype))


def multiply(launch: Make, kernel: Make, shape: str, kinds: tuple[str, ...], fragments: tuple[np.ndarray, ...]) -> Any:
    """One `mma.sync` of one warp: registers come from memory, lane by lane, and go back there."""
    out = kinds[0]
    wide = 8 if out == "f64" else 4
    bits, letter = 8 * wide, "d" if wide == 8 else "r"
    counts = [fragment.nbytes // 32 // wide for fragment in fragments]
    code, names, at = [], [], 8
    for index, count in enumerate(counts):
        code.append(f"mul.wide.u32 %d1, %tid1, {count * wide}; add.s64 %d0, %p{index}, %d1;")
        names.append([f"%{letter}{at + i}" for i in range(count)])
        code += [f"ld.global.b{bits} {name}, [%d0+{i * wide}];" for i, name in enumerate(names[-1])]
        at += count
    results = [f"%{letter}{at + i}" for i in range(counts[2])]
    registers = ", ".join("{" + ", ".join(group) + "}" for group in (results, *names))
    code.append(f"mma.sync.aligned.{shape}.row.col.{'.'.join(kinds)} {registers};")
    code.append(f"mul.wide.u32 %d1, %tid1, {counts[2] * wide}; add.s64 %d0, %p3, %d1;")
    code += [f"st.global.b{bits} [%d0+{i * wide}], {name};" for i, name in enumerate(results)]
    return launch(kernel("\n".join(code) + "\nret;", 4), *fragments, np.zeros_like(fragments[2]))


@pytest.mark.instruction("mma")
@pytest.mark.parametrize(("shape", "left", "right", "sums", "places"), CASES)
@pytest.mark.parametrize("seed", range(3))
def test_a_product_is_its_exact_sum_rounded_once(
    launch: Make, kernel: Make, shape: str, left: str, right: str, sums: str, places: str, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    rows, columns, inner = (int(part) for part in shape.replace("m", "").replace("n", " ").replace("k", " ").split())
    a, b = drawn(left, (rows, inner), rng), drawn(right, (inner, columns), rng)
    c = drawn(sums, (rows, columns), rng)
    place = PLACES[places]
    fragments = (
        packed(a, rows * inner // 32, place["a"]),
        packed(b, inner * columns // 32, place["b"]),
        packed(c, rows * columns // 32, sum_place),
    )
    done = multiply(launch, kernel, shape, (sums, left, right, sums), fragments)
    assert done.findings == ()
    got = np.asarray(done.arrays["a3"])
    if left == "tf32":
        a, b = ((m.view(np.uint32) & 0xFFFFE000).view(np.float32) for m in (a, b))
    for lane in range(32):
        for i in range(got.shape[1]):
            row, column = sum_place(lane // 4, lane % 4, i)
            terms = [Fraction(float(a[row, k])) * Fraction(float(b[k, column])) for k in range(inner)]
            terms.append(Fraction(float(c[row, column])))
            exact = sum(terms, Fraction(0))
            if sums == "s32":
                assert int(got[lane, i]) == int(exact)
                continue
            room = Fraction(float(np.spacing(np.abs(got[lane, i])))) * Fraction(33, 64)
            if sums == "f64":  # every product and every sum is rounded
                room = inner * sum(map(abs, terms)) * Fraction(2) ** -53
            assert abs(Fraction(float(got[lane, i])) - exact) <= room


def test_integer_sums_wrap_or_saturate_as_asked(launch: Make, kernel: Make) -> None:
    place = PLACES["m8n8k16.s8"]
    a, b = np.full((8, 16), 127, np.int8), np.full((16, 8), 127, np.int8)
    c = np.full((8, 8), 2**31 - 5, np.int32)
    fragments = (packed(a, 4, place["a"]), packed(b, 4, place["b"]), packed(c, 2, sum_place))
    wrapped = multiply(launch, kernel, "m8n8k16", ("s32", "s8", "s8", "s32"), fragments)
    assert set(wrapped.arrays["a3"].ravel().tolist()) == {2**31 - 5 + 16 * 127 * 127 - 2**32}
    saturated = multiply(launch, kernel, "m8n8k16", ("satfinite.s32", "s8", "s8", "s32"), fragments)
    assert set(saturated.arrays["a3"].ravel().tolist()) == {2**31 - 1}


def test_infinities_and_nans_go_through(launch: Make, kernel: Make) -> None:
    place = PLACES["m16n8k16.f16"]
    a, b, c = np.ones((16, 16), np.float16), np.ones((16, 8), np.float16), np.zeros((16, 8), np.float32)
    a[0, 0], a[1, 3], c[2, 2] = np.inf, np.nan, -np.inf
    a[3, 0], b[0, 5] = np.inf, 0
    fragments = (packed(a, 8, place["a"]), packed(b, 4, place["b"]), packed(c, 4, sum_place))
    got = multiply(launch, kernel, "m16n8k16", ("f32", "f16", "f16", "f32"), fragments).arrays["a3"]
    matrix = np.empty((16, 8), np.float32)
    for lane in range(32):
        for i in range(4):
            matrix[sum_place(lane // 4, lane % 4, i)] = got[lane, i]
    assert matrix[0, 0] == np.inf
    assert np.isnan(matrix[1]).all()
    assert matrix[2, 2] == -np.inf
    assert np.isnan(matrix[3, 5])
    assert (matrix[4:, :5] == 16).all()


MOVE = """.shared .align 16 .b8 tile[512];
"""


def moved(launch: Make, kernel: Make, count: int, load: bool, transposed: bool) -> tuple[np.ndarray, np.ndarray]:
    """Returns the registers of all lanes after `ldmatrix` of `count` matrices, or memory after `stmatrix`."""
    names = [f"%r{8 + i}" for i in range(count)]
    how = f"sync.aligned.m8n8.x{count}{'.trans' if transposed else ''}.shared.b16"
    group = "{" + ", ".join(names) + "}"
    fill = "mov.u32 %r0, tile; mul.lo.u32 %r1, %tid1, 16; add.u32 %r2, %r0, %r1;"
    if load:
        body = f"""{fill} mul.wide.u32 %d1, %tid1, 16; add.s64 %d2, %p0, %d1;
ld.global.v4.b32 {{%r3, %r4, %r5, %r6}}, [%d2]; st.shared.v4.b32 [%r2], {{%r3, %r4, %r5, %r6}}; bar.sync 0;
ldmatrix.{how} {group}, [%r2];
mul.wide.u32 %d1, %tid1, {4 * count}; add.s64 %d2, %p1, %d1;
""" + "\n".join(f"st.global.b32 [%d2+{4 * i}], {name};" for i, name in enumerate(names))
    else:
        body = f"mul.wide.u32 %d1, %tid1, {4 * count}; add.s64 %d2, %p0, %d1;\n" + "\n".join(
            f"ld.global.b32 {name}, [%d2+{4 * i}];" for i, name in enumerate(names)
        )
        body += f"""
{fill} mov.u32 %r3, 0; st.shared.v4.b32 [%r2], {{%r3, %r3, %r3, %r3}}; bar.sync 0;
stmatrix.{how} [%r2], {group}; bar.sync 0;
ld.shared.v4.b32 {{%r3, %r4, %r5, %r6}}, [%r2];
mul.wide.u32 %d1, %tid1, 16; add.s64 %d2, %p1, %d1; st.global.v4.b32 [%d2], {{%r3, %r4, %r5, %r6}};"""
    data = np.arange(256 if load else 64 * count, dtype=np.uint16)
    out = np.zeros(64 * count if load else 256, np.uint16)
    done = launch(kernel(body + "\nret;", 2, declarations=MOVE), data, out)
    assert done.findings == ()
    return data, np.asarray(done.arrays["a1"])


@pytest.mark.instruction("ldmatrix")
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("count", [1, 2, 4])
def test_ldmatrix_hands_rows_or_columns_to_lanes(launch: Make, kernel: Make, count: int, transposed: bool) -> None:
    data, got = moved(launch, kernel, count, load=True, transposed=transposed)
    matrices = data.reshape(4, 8, 8)
    for lane in range(32):
        for index in range(count):
            for i in range(2):
                row, column = lane // 4, 2 * (lane % 4) + i
                want = matrices[index][column, row] if transposed else matrices[index][row, column]
                assert got.reshape(32, count, 2)[lane, index, i] == want


@pytest.mark.instruction("stmatrix")
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("count", [1, 2, 4])
def test_stmatrix_is_its_inverse(launch: Make, kernel: Make, count: int, transposed: bool) -> None:
    data, got = moved(launch, kernel, count, load=False, transposed=transposed)
    held, matrices = data.reshape(32, count, 2), got.reshape(4, 8, 8)
    for lane in range(32):
        for index in range(count):
            for i in range(2):
                row, column = lane // 4, 2 * (lane % 4) + i
                found = matrices[index][column, row] if transposed else matrices[index][row, column]
                assert found == held[lane, index, i]
    assert not matrices[count:].any()


@pytest.mark.instruction("movmatrix")
def test_movmatrix_turns_a_matrix_over(launch: Make, kernel: Make) -> None:
    body = """add.s64 %d0, %p1, %off4; ld.global.b32 %r1, [%at4];
movmatrix.sync.aligned.m8n8.trans.b16 %r2, %r1; st.global.b32 [%d0], %r2; ret;"""
    data = np.arange(64, dtype=np.uint16)
    done = launch(kernel(body, 2), data, np.zeros(64, np.uint16))
    assert done.findings == ()
    assert np.array_equal(done.arrays["a1"].reshape(8, 8), data.reshape(8, 8).T)


def test_a_warp_that_lacks_lanes_is_a_finding(launch: Make, kernel: Make) -> None:
    body = """setp.ge.u32 %q1, %tid1, 30; @%q1 ret;
ld.global.b32 %r1, [%at4]; movmatrix.sync.aligned.m8n8.trans.b16 %r2, %r1; st.global.b32 [%at4], %r2; ret;"""
    done = launch(kernel(body), np.zeros(64, np.uint16))
    assert [finding.code for finding in done.findings] == ["shuffle-mask"]
    assert "all 32 lanes" in done.findings[0].message


@pytest.mark.parametrize(
    "instruction",
    [
        "mma.sync.aligned.m8n8k4.row.col.f32.f16.f16.f32 {%r1,%r2,%r3,%r4,%r5,%r6,%r7,%r8}, {%r1,%r2}, {%r1,%r2}, {%r1,%r2,%r3,%r4,%r5,%r6,%r7,%r8};",
        "mma.sync.aligned.m16n8k64.row.col.s32.s4.s4.s32 {%r1,%r2,%r3,%r4}, {%r1,%r2,%r3,%r4}, {%r5,%r6}, {%r1,%r2,%r3,%r4};",
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.f16.f32 {%r1,%r2,%r3,%r4}, {%r1,%r2,%r3,%r4}, {%r5,%r6}, {%r1,%r2,%r3,%r4};",
    ],
)
def test_other_forms_are_refused_by_name(launch: Make, kernel: Make, instruction: str) -> None:
    with pytest.raises(UnsupportedInstruction) as caught:
        launch(kernel(instruction + " ret;"), np.zeros(1, np.int32))
    assert instruction.split()[0] in caught.value.finding.message


@pytest.mark.parametrize("path", KERNELS, ids=lambda path: path.stem)
def test_a_tile_of_a_product_is_right(path: Path) -> None:
    with Session(load_settings(seed=5, backend="emulator")) as session:
        (verdict,) = session.bench(load_kernels(path)[0])
    assert verdict.correct is True
    # tf32 has fewer bits than the float32 that this kernel's contract passes, which its reader is told.
    expected = [("precision-loss", "warning")] if path.stem == "mma_tf32" else []
    assert [(finding.code, finding.severity) for finding in verdict.findings] == expected
