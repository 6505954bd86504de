"""Ways to run PTX and CUDA text on the emulator, and exact arithmetic to compare with."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from kernelmate.backends.base import ArrayArgument, Run, RunResult, ScalarArgument
from kernelmate.backends.emulator import EmulatorBackend, backend
from kernelmate.backends.emulator import decode as decoding
from kernelmate.compiler import compile_kernel, find_target
from kernelmate.records import Compiled, CompileOptions, LaunchShape, Target
from kernelmate.source import find_kernels, text_unit
from tests.sampling import sweep_of

pytest_itemcollected = sweep_of("_jit", share=0.25)

HEADER = ".version 8.6\n.target sm_90\n.address_size 64\n"
SIZES = {"8": 1, "16": 2, "32": 4, "64": 8}


def register_of(kind: str) -> str:
    """The register type that holds a PTX type: bits, at least 16 of them."""
    bits = {"f16x2": "32", "bf16x2": "32", "bf16": "16", "tf32": "32"}.get(kind) or kind[1:]
    return "b16" if bits == "8" else f"b{bits}"


def memory_of(kind: str) -> str:
    bits = {"f16x2": "32", "bf16x2": "32", "bf16": "16", "tf32": "32"}.get(kind) or kind[1:]
    return f"b{bits}"


@pytest.fixture(autouse=True, params=["never", "always"], ids=["numpy", "native"])
def _jit(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Every test of the emulator runs without native code and with it."""
    monkeypatch.setenv("KERNELMATE_EMULATOR_JIT", request.param)
    monkeypatch.setenv("KERNELMATE_CACHE_DIR", str(tmp_path_factory.getbasetemp() / "emulator-cache"))


@pytest.fixture(scope="session")
def gpu() -> Target:
    return find_target("H100 SXM")


@pytest.fixture(scope="session")
def compiled() -> Callable[[str, str], Compiled]:
    """PTX text as the compiler would hand it over."""

    def make(ptx: str, name: str = "k") -> Compiled:
        return Compiled(name, None, name, "sm_90", "by hand", True, (), ptx=ptx)

    return make


@pytest.fixture(scope="session")
def launch(compiled: Callable[..., Compiled], gpu: Target) -> Callable[..., RunResult]:
    """Run PTX text: arrays become pointers named a0, a1, ..., NumPy scalars go by value."""

    def run(
        ptx: str, *values: Any, grid: Sequence[int] = (1,), block: Sequence[int] = (32,), shared: int = 0,
        name: str = "k", misalign: int = 0, written: bool = True, cooperative: bool = False,
        cluster: tuple[int, ...] | None = None, **options: Any,
    ) -> RunResult:  # fmt: skip
        arguments = tuple(
            ArrayArgument(f"a{index}", value, misalign, written)
            if isinstance(value, np.ndarray)
            else ScalarArgument(f"a{index}", value)
            for index, value in enumerate(values)
        )
        sides = [tuple(side) + (1,) * (3 - len(side)) for side in (grid, block)]
        shape = LaunchShape(sides[0], sides[1], shared, cooperative, cluster)
        return EmulatorBackend().load(compiled(ptx, name), gpu).run(Run(shape, arguments, **options))

    return run


@pytest.fixture(scope="session")
def kernel() -> Callable[..., str]:
    """PTX of a kernel `k` with 64-bit pointer parameters p0, p1, ... in %p0, %p1 and the flat thread number in %tid1."""

    def text(body: str, pointers: int = 1, *, before: str = "", declarations: str = "") -> str:
        parameters = ", ".join(f".param .u64 p{index}" for index in range(pointers))
        loads = "\n".join(f"ld.param.u64 %p{index}, [p{index}];" for index in range(pointers))
        return f"""{HEADER}{before}
.visible .entry k({parameters})
{{
.reg .pred %q<16>; .reg .b16 %h<32>; .reg .b32 %r<64>; .reg .b64 %d<64>; .reg .f32 %f<32>; .reg .f64 %g<16>;
.reg .b64 %p<{pointers}>; .reg .b32 %tid1, %ct, %nt; .reg .b64 %off4, %at4;
{declarations}
{loads}
mov.u32 %tid1, %tid.x; mov.u32 %ct, %ctaid.x; mov.u32 %nt, %ntid.x; mad.lo.s32 %tid1, %ct, %nt, %tid1;
mul.wide.u32 %off4, %tid1, 4;
add.s64 %at4, %p0, %off4;
{body}
}}
"""

    return text


@pytest.fixture(scope="session")
def lanewise(launch: Callable[..., RunResult]) -> Callable[..., Any]:
    """Run instructions once per element: sources are %a, %b, ...; results %x (and %y)."""

    def run(body: str, results: Sequence[str], sources: Sequence[tuple[str, np.ndarray]], **options: Any) -> Any:
        count = len(sources[0][1])
        names = "abcdefgh"
        declare, code, arguments = [], [], []
        for index, (kind, values) in enumerate(sources):
            bits = memory_of(kind)
            declare.append(f".reg .{register_of(kind)} %{names[index]};")
            code.append(f"ld.param.u64 %addr, [s{index}]; mad.wide.u32 %addr, %i, {SIZES[bits[1:]]}, %addr;")
            code.append(f"ld.global.{bits} %{names[index]}, [%addr];")
            arguments.append(np.ascontiguousarray(values))
        code.append(body)
        outputs = []
        for letter, index, kind in zip("xy", range(len(results)), results, strict=False):
            bits = memory_of(kind)
            declare.append(f".reg .{register_of(kind)} %{letter};")
            code.append(f"ld.param.u64 %addr, [o{index}]; mad.wide.u32 %addr, %i, {SIZES[bits[1:]]}, %addr;")
            code.append(f"st.global.{bits} [%addr], %{letter};")
            outputs.append(np.zeros(count, f"u{SIZES[bits[1:]]}"))
        parameters = [f".param .u64 s{index}" for index in range(len(sources))]
        parameters += [f".param .u64 o{index}" for index in range(len(results))]
        ptx = f"""{HEADER}.visible .entry k({", ".join(parameters)}) {{
.reg .b32 %i, %width, %cta; .reg .b64 %addr; .reg .pred %p<8>; .reg .pred %past; .reg .b16 %s<8>; .reg .b32 %t<8>; .reg .b64 %u<8>;
{" ".join(declare)}
mov.u32 %i, %tid.x; mov.u32 %cta, %ctaid.x; mov.u32 %width, %ntid.x; mad.lo.u32 %i, %cta, %width, %i;
setp.ge.u32 %past, %i, {count}; @%past ret;
{chr(10).join(code)}
ret;
}}"""
        done = launch(ptx, *arguments, *outputs, grid=(-(-count // 128),), block=(128,), **options)
        assert not done.findings, done.findings
        found = [done.arrays[f"a{len(sources) + index}"] for index in range(len(results))]
        return found[0] if len(found) == 1 else tuple(found)

    return run


@pytest.fixture(scope="session")
def cuda(gpu: Target) -> Callable[..., Compiled]:
    """Compile CUDA text; the first kernel unless another is named."""

    def compile_text(text: str, name: str | None = None, instance: str | None = None, **options: Any) -> Compiled:
        kernels = find_kernels(text_unit(text))
        chosen = next(item for item in kernels if name in {None, item.name})
        done = compile_kernel(chosen, (), instance=instance, target=gpu, options=CompileOptions(**options))
        assert done.ok, done.diagnostics
        return done

    return compile_text


@pytest.fixture(scope="session")
def run_cuda(gpu: Target) -> Callable[..., RunResult]:
    """Run a compiled kernel; arguments are (name, array) pairs or NumPy scalars."""

    def run(
        code: Compiled, *values: Any, grid: Sequence[int] = (1,), block: Sequence[int] = (32,), shared: int = 0,
        cooperative: bool = False, cluster: tuple[int, ...] | None = None, **options: Any,
    ) -> RunResult:  # fmt: skip
        arguments = tuple(
            ArrayArgument(*value) if isinstance(value, tuple) else ScalarArgument(f"v{index}", value)
            for index, value in enumerate(values)
        )
        sides = [tuple(side) + (1,) * (3 - len(side)) for side in (grid, block)]
        shape = LaunchShape(sides[0], sides[1], shared, cooperative, cluster)
        return EmulatorBackend().load(code, gpu).run(Run(shape, arguments, **options))

    return run


FORMATS = {"f16": (11, -14, 15), "bf16": (8, -126, 127), "f32": (24, -126, 127), "f64": (53, -1022, 1023)}


@pytest.fixture(scope="session")
def rounded() -> Callable[..., float]:
    """A rational number rounded once to a format in a direction, from the definition alone."""

    def to_format(exact: Fraction, kind: str, mode: str = "rn") -> float:
        precision, lowest, highest = FORMATS[kind]
        if exact == 0:
            return 0.0
        size = abs(exact)
        exponent = size.numerator.bit_length() - size.denominator.bit_length()
        if Fraction(2) ** exponent > size:
            exponent -= 1
        unit = Fraction(2) ** (max(exponent, lowest) - precision + 1)
        whole, rest = divmod(exact / unit, 1)
        if mode == "rn":
            up = rest > Fraction(1, 2) or (rest == Fraction(1, 2) and whole % 2 == 1)
        elif mode == "rz":
            up = exact < 0 and rest > 0
        else:
            up = mode == "rp" and rest > 0
        result = (whole + up) * unit
        limit = (2 - Fraction(2) ** (1 - precision)) * Fraction(2) ** highest
        if abs(result) > limit:
            towards_zero = mode == "rz" or (mode == "rm" and exact > 0) or (mode == "rp" and exact < 0)
            bound = float(limit) if towards_zero else float("inf")
            return bound if exact > 0 else -bound
        return float(result)

    return to_format


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(20261121)


@pytest.fixture(autouse=True)
def _runs_what_it_is_marked_with(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A test that is marked as one of some instructions must run one of them; what was decoded before is decoded anew."""
    backend.decoded_of.cache_clear()
    marked = {name for mark in request.node.iter_markers("instruction") for name in mark.args}
    if not marked:
        yield
        return
    decoded: set[str] = set()

    class Recorded(dict[str, Any]):
        def get(self, name: str, default: Any = None) -> Any:
            decoded.add(name)
            return super().get(name, default)

    monkeypatch.setattr(decoding, "DECODERS", Recorded(decoding.DECODERS))
    yield
    assert decoded & marked, f"marked as a test of {', '.join(sorted(marked))}, but ran none of them"
