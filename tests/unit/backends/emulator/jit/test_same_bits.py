"""Native code against the NumPy operations: the same bits, counters and findings."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kernelmate.backends.base import ArrayArgument, Run, RunResult, ScalarArgument
from kernelmate.backends.emulator import EmulatorBackend
from kernelmate.backends.emulator.bind import single_definitions
from kernelmate.backends.emulator.decode import decode
from kernelmate.backends.emulator.jit.native_choice import NativeCodeDecision
from kernelmate.backends.emulator.jit.refine import refine
from kernelmate.backends.emulator.link import link
from kernelmate.backends.emulator.ptx import parse_program
from kernelmate.compiler import compile_kernel
from kernelmate.records import Compiled, CompileOptions, LaunchShape, Target
from kernelmate.source import find_kernels, text_unit

DATA = Path(__file__).resolve().parents[4] / "data" / "counters"
UNIT = text_unit((DATA / "kernels.cu").read_text(), str(DATA / "kernels.cu"))
KERNELS = {kernel.name: kernel for kernel in find_kernels(UNIT)}
i32, f32 = np.int32, np.float32


@pytest.fixture(autouse=True)
def _jit(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Each test here compares both ways by itself."""
    monkeypatch.setenv("KERNELMATE_CACHE_DIR", str(tmp_path_factory.getbasetemp() / "emulator-cache"))


@pytest.fixture(autouse=True, params=[True, False], ids=["quickly", "for speed"])
def _compiled(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs each test with both ways of compiling native code, which must give the same bits."""
    monkeypatch.setattr(NativeCodeDecision, "is_soon_done", lambda *_: request.param)


@pytest.fixture(autouse=True)
def _fail_loudly(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> Any:
    """A fall-back to NumPy would make every comparison here one of NumPy with itself."""
    yield
    assert not [record for record in caplog.records if "without native code" in record.getMessage()]


def both_ways(code: Compiled, gpu: Target, run: Run) -> tuple[RunResult, RunResult]:
    return tuple(EmulatorBackend(jit).load(code, gpu).run(run) for jit in ("never", "always"))


def assert_same(numpy: RunResult, native: RunResult) -> None:
    assert native.findings == numpy.findings
    assert native.counters == numpy.counters
    assert native.reads == numpy.reads
    assert native.block_counts == numpy.block_counts
    assert native.footprint_bytes == numpy.footprint_bytes
    assert native.barriers == numpy.barriers
    assert native.ptx_instructions == numpy.ptx_instructions
    assert native.longest_thread == numpy.longest_thread
    for name, wanted in numpy.arrays.items():
        np.testing.assert_array_equal(native.arrays[name].view(np.uint8), wanted.view(np.uint8), name)


def arguments(*values: Any) -> tuple[ArrayArgument | ScalarArgument, ...]:
    return tuple(
        ArrayArgument(f"p{index}", value) if isinstance(value, np.ndarray) else ScalarArgument(f"p{index}", value)
        for index, value in enumerate(values)
    )


def floats(*shape: int) -> np.ndarray:
    return np.random.default_rng(5).standard_normal(shape).astype(f32)


LAUNCHES: dict[str, tuple[tuple[int, int, int], tuple[int, int, int], int, tuple[Any, ...]]] = {
    "saxpy": ((20, 1, 1), (256, 1, 1), 0, (i32(5000), f32(2.5), floats(5000), floats(5000))),
    "strided_copy": ((8, 1, 1), (256, 1, 1), 0, (i32(2000), i32(8), floats(16384), floats(2048))),
    "stencil2d": ((5, 5, 1), (16, 16, 1), 0, (floats(70, 77), floats(70, 77), i32(77), i32(70))),
    "matmul_naive": ((3, 3, 1), (16, 16, 1), 0, (*(floats(40, 40) for _ in range(3)), i32(40), i32(40), i32(40))),
    "matmul_tiled": ((4, 4, 1), (16, 16, 1), 0, (*(floats(64, 64) for _ in range(3)), i32(64), i32(64), i32(64))),
    "transpose_naive": ((4, 4, 1), (32, 8, 1), 0, (floats(128, 128), floats(128, 128), i32(128), i32(128))),
    "transpose_padded": ((4, 4, 1), (32, 8, 1), 0, (floats(128, 128), floats(128, 128), i32(128), i32(128))),
    "transpose_unpadded": ((4, 4, 1), (32, 8, 1), 0, (floats(128, 128), floats(128, 128), i32(128), i32(128))),
    "reduce_shared": ((4, 1, 1), (256, 1, 1), 1024, (floats(5000), floats(128), i32(5000))),
    "reduce_shfl": ((4, 1, 1), (256, 1, 1), 0, (floats(5000), floats(128), i32(5000))),
    "softmax_f4": ((6, 1, 1), (128, 1, 1), 0, (floats(6, 1024), floats(6, 1024), i32(1024))),
    "hist": ((3, 1, 1), (256, 1, 1), 0, (np.arange(5000).astype(np.uint8), i32(5000), np.zeros(256, np.uint32))),
    "layernorm": (
        (6, 1, 1), (256, 1, 1), 0,
        (floats(6, 1000), floats(1000), floats(1000), floats(6, 1000), i32(1000), f32(1e-5)),
    ),
}  # fmt: skip


@pytest.mark.parametrize("seed", [0, 3])
@pytest.mark.parametrize("name", sorted(LAUNCHES))
def test_kernels_give_the_same_bits_and_counts(name: str, seed: int, gpu: Target) -> None:
    grid, block, shared, values = LAUNCHES[name]
    code = compile_kernel(KERNELS[name], (), instance=None, target=gpu, options=CompileOptions())
    for count, check in ((False, False), (True, False), (True, True)):
        run = Run(LaunchShape(grid, block, shared), arguments(*values), seed, count=count, check=check)
        assert_same(*both_ways(code, gpu, run))


def test_most_of_ordinary_kernels_is_native(gpu: Target) -> None:
    for name in ("saxpy", "stencil2d", "matmul_tiled", "softmax_f4"):
        code = compile_kernel(KERNELS[name], (), instance=None, target=gpu, options=CompileOptions())
        decoded = decode(link(parse_program(code.ptx, code.lowered_name), code.lowered_name))
        refined = refine(decoded, single_definitions(decoded))
        steps = [block.end - block.start for block in refined.decoded.blocks]
        native = sum(size for size, is_native in zip(steps, refined.native, strict=True) if is_native)
        assert native > 0.9 * sum(steps), name


CONVERSIONS = """.version 8.6
.target sm_90
.address_size 64
.visible .entry k(.param .u64 p0, .param .u64 p1, .param .u64 p2, .param .u64 p3, .param .u64 p4, .param .u64 p5) {
.reg .b16 %h<4>; .reg .b32 %r<6>; .reg .f32 %f<4>; .reg .b64 %d<14>;
ld.param.u64 %d0, [p0]; ld.param.u64 %d1, [p1]; ld.param.u64 %d2, [p2]; ld.param.u64 %d3, [p3];
ld.param.u64 %d4, [p4]; ld.param.u64 %d5, [p5];
mov.u32 %r0, %ctaid.x; mov.u32 %r1, %ntid.x; mov.u32 %r2, %tid.x; mad.lo.s32 %r3, %r0, %r1, %r2;
mul.wide.u32 %d6, %r3, 2; mul.wide.u32 %d7, %r3, 4;
add.s64 %d8, %d0, %d6; ld.global.u16 %h0, [%d8];
cvt.f32.f16 %f0, %h0; add.s64 %d9, %d2, %d7; st.global.f32 [%d9], %f0;
add.s64 %d10, %d1, %d7; ld.global.f32 %f2, [%d10];
cvt.rn.f16.f32 %h1, %f2; add.s64 %d11, %d3, %d6; st.global.u16 [%d11], %h1;
cvt.rn.bf16.f32 %h2, %f2; add.s64 %d12, %d4, %d6; st.global.u16 [%d12], %h2;
cvt.rn.f16x2.f32 %r4, %f2, %f0; add.s64 %d13, %d5, %d7; st.global.u32 [%d13], %r4;
ret;
}"""


def test_conversions_of_16_bit_floats_give_the_same_bits(gpu: Target, compiled: Callable[..., Compiled]) -> None:
    bits = np.random.default_rng(1).integers(0, 1 << 32, 1 << 16, dtype=np.uint32)
    ties = np.arange(1 << 14, dtype=np.uint32) << np.uint32(12)
    bits[: 1 << 14] = ties | np.uint32(0x33000000)  # around the subnormal numbers of f16, ties among them
    bits[1 << 14 : 1 << 15] |= np.uint32(0x7F800000)  # infinite, and NaN
    values = (
        np.arange(1 << 16, dtype=np.uint16), bits.view(f32), np.zeros(1 << 16, f32), np.zeros(1 << 16, np.uint16),
        np.zeros(1 << 16, np.uint16), np.zeros(1 << 16, np.uint32),
    )  # fmt: skip
    code = compiled(CONVERSIONS, "k")
    run = Run(LaunchShape((256, 1, 1), (256, 1, 1)), arguments(*values), check=False)
    numpy, native = both_ways(code, gpu, run)
    assert_same(numpy, native)
    np.testing.assert_array_equal(numpy.arrays["p2"], values[0].view(np.float16).astype(f32))
    decoded = decode(link(parse_program(code.ptx, "k"), "k"))
    assert all(refine(decoded, single_definitions(decoded)).native)


# ------------------------------------------------------------------------------- random straight-line programs

WORDS, LONGS, FLOATS, DOUBLES = ([f"%{letter}{index}" for index in range(6)] for letter in "rdfg")
PREDICATES = [f"%q{index}" for index in range(4)]

_any = st.sampled_from
w, d, f, g, q = map(_any, (WORDS, LONGS, FLOATS, DOUBLES, PREDICATES))
count = st.one_of(w, st.integers(0, 70).map(str))
k32, k64 = _any(["s32", "u32"]), _any(["s64", "u64"])
arithmetic = _any(["add", "sub", "mul.lo", "mul.hi", "div", "rem", "min", "max"])
basic = _any(["add", "sub", "mul", "div.rn", "min", "max"])
compare = _any(["eq", "ne", "lt", "le", "gt", "ge"])


def _line(text: str, *parts: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.builds(text.format, *parts)


INSTRUCTION = st.one_of(
    _line("{}.{} {}, {}, {}", arithmetic, k32, w, w, w),
    _line("{}.{} {}, {}, {}", arithmetic, k64, d, d, d),
    _line("{}.{} {}, {}, {}, {}", _any(["mad.lo", "mad.hi"]), k32, w, w, w, w),
    _line("mad.wide.{} {}, {}, {}, {}", k32, d, w, w, d),
    _line("mul.wide.{} {}, {}, {}", k32, d, w, w),
    _line("{}.b32 {}, {}, {}", _any(["and", "or", "xor"]), w, w, w),
    _line("{}.b64 {}, {}, {}", _any(["and", "or", "xor"]), d, d, d),
    _line("{} {}, {}, {}", _any(["shl.b32", "shr.u32", "shr.s32"]), w, w, count),
    _line("{} {}, {}, {}", _any(["shl.b64", "shr.u64", "shr.s64"]), d, d, count),
    _line("{}{}.f32 {}, {}, {}", basic, _any(["", ".ftz"]), f, f, f),
    _line("div.approx{}.f32 {}, {}, {}", _any(["", ".ftz"]), f, f, f),
    _line("{}.f64 {}, {}, {}", basic, g, g, g),
    _line("fma.{}.f32 {}, {}, {}, {}", _any(["rn", "rm", "rp", "rz", "rn.sat", "rn.ftz"]), f, f, f, f),
    _line("{}.{}.f32 {}, {}, {}", _any(["add", "sub"]), _any(["rm", "rp", "rz", "rz.ftz", "rm.sat"]), f, f, f),
    _line("fma.rn.f64 {}, {}, {}, {}", g, g, g, g),
    _line("{}.f32 {}, {}", _any(["neg", "abs", "sqrt.rn", "rcp.rn", "rsqrt.approx"]), f, f),
    _line("{}.f32 {}, {}", _any(["ex2.approx.ftz", "lg2.approx"]), f, f),
    _line("cvt.rn.f32.{} {}, {}", k32, f, w),
    _line("cvt.rn.f32.{} {}, {}", k64, f, d),
    _line("cvt.rzi.{}.f32 {}, {}", k32, w, f),
    _line("cvt.rni.{}.f64 {}, {}", k64, d, g),
    _line("cvt.rmi.{}.f32 {}, {}", k64, d, f),
    _line("cvt.f64.f32 {}, {}", g, f),
    _line("cvt.rn.f32.f64 {}, {}", f, g),
    _line("cvt.{}.f32.f32 {}, {}", _any(["sat", "rpi", "rni"]), f, f),
    _line("cvt.{}.{} {}, {}", k64, k32, d, w),
    _line("cvt.u32.u64 {}, {}", w, d),
    _line("setp.{}.{} {}, {}, {}", compare, k32, q, w, w),
    _line("setp.{}{}.f32 {}, {}, {}", compare, _any(["", "u"]), q, f, f),
    _line("setp.{}.and.s64 {}|{}, {}, {}, {}", compare, _any(PREDICATES[:2]), _any(PREDICATES[2:]), d, d, q),
    _line("selp.b32 {}, {}, {}, {}", w, w, w, q),
    _line("selp.f32 {}, {}, {}, {}", f, f, f, q),
    _line("xor.pred {}, {}, {}", q, q, q),
    _line("{}.b32 {}, {}", _any(["popc", "clz", "brev", "not", "cnot"]), w, w),
    _line("{}.b64 {}, {}", _any(["popc", "clz"]), w, d),
    _line("bfe.{} {}, {}, {}, {}", k32, w, w, w, w),
    _line("bfi.b32 {}, {}, {}, {}, {}", w, w, w, w, w),
    _line("shf.{}.b32 {}, {}, {}, {}", _any(["l.wrap", "r.clamp"]), w, w, w, w),
    _line("mov.b64 {}, {{{}, {}}}", d, w, w),
    _line("mov.b64 {{{}, {}}}, {}", _any(WORDS[:3]), _any(WORDS[3:]), d),
)
GUARDED = _line("{}{};", _any(["", "", "", "@!%q0 ", *(f"@{name} " for name in PREDICATES)]), INSTRUCTION)


def straight_line(body: list[str]) -> str:
    """Loads every register of each class, runs the body, stores every register."""
    files = [(WORDS, "b32", 4), (LONGS, "b64", 8), (FLOATS, "f32", 4), (DOUBLES, "f64", 8)]
    lines, ends = [], []
    for index, (names, kind, size) in enumerate(files):
        lines.append(f"ld.param.u64 %a{index}, [p{index}]; mad.wide.u32 %a{index}, %t, {size * len(names)}, %a{index};")
        lines += [f"ld.global.{kind} {name}, [%a{index}+{size * place}];" for place, name in enumerate(names)]
        ends += [f"st.global.{kind} [%a{index}+{size * place}], {name};" for place, name in enumerate(names)]
    lines += [f"setp.lt.s32 %q{index}, %r{index}, %r{index + 1};" for index in range(4)]
    ends += [f"selp.b32 %r0, 1, 0, %q{index}; st.global.b32 [%a0+{4 * index}], %r0;" for index in range(4)]
    parameters = ", ".join(f".param .u64 p{index}" for index in range(4))
    return f""".version 8.6\n.target sm_90\n.address_size 64
.visible .entry k({parameters}) {{
.reg .pred %q<4>; .reg .b32 %r<6>; .reg .b64 %d<6>; .reg .f32 %f<6>; .reg .f64 %g<6>; .reg .b64 %a<4>; .reg .b32 %t, %c, %n;
mov.u32 %t, %tid.x; mov.u32 %c, %ctaid.x; mov.u32 %n, %ntid.x; mad.lo.u32 %t, %c, %n, %t;
{chr(10).join(lines)}
{chr(10).join(body)}
{chr(10).join(ends)}
ret;
}}"""


def _interesting(rng: np.random.Generator, count: int) -> list[np.ndarray]:
    edges32 = np.array([0, 1, 2, 31, 32, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 0xFFFF0000], np.uint32)
    words = np.where(rng.random(count) < 0.4, rng.choice(edges32, count), rng.integers(0, 1 << 32, count, np.uint32))
    longs = np.where(
        rng.random(count) < 0.3, words.astype(np.uint64) - np.uint64(1), rng.integers(0, 1 << 63, count, np.uint64)
    )
    scale = np.exp2(rng.integers(-40, 40, count).astype(np.float64))
    edges = np.array([0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 1e-40, -1e-40, 3.4e38, 0.5, 2147483648.0])
    doubles = np.where(rng.random(count) < 0.3, rng.choice(edges, count), rng.standard_normal(count) * scale)
    return [words.astype(np.uint32), longs, doubles.astype(np.float32), doubles[::-1].copy()]


def _canonical(array: np.ndarray) -> np.ndarray:
    """Which NaN comes of several is not defined."""
    if array.dtype.kind == "f":
        array = array.copy()
        array[np.isnan(array)] = np.nan
    return array.view(np.uint8)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(body=st.lists(GUARDED, min_size=1, max_size=12), seed=st.integers(0, 1 << 20))
def test_random_straight_line_programs_give_the_same_bits(
    body: list[str], seed: int, compiled: Callable[..., Compiled], gpu: Target
) -> None:
    threads = 96
    values = _interesting(np.random.default_rng(seed), 6 * threads)
    code = compiled(straight_line(body), "k")
    run = Run(LaunchShape((2, 1, 1), (48, 1, 1)), arguments(*values), check=False)
    numpy, native = both_ways(code, gpu, run)
    assert native.findings == numpy.findings
    for name, wanted in numpy.arrays.items():
        np.testing.assert_array_equal(_canonical(native.arrays[name]), _canonical(wanted), f"{name} of {body}")
