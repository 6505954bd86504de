"""Values outside a kernel's arguments that reach its conditions, stores and addresses, and reads that nothing uses."""

from __future__ import annotations

import numpy as np
import pytest

from kernelmate.backends.base import ArrayArgument, LaunchEnvironment, Run, RunResult, ScalarArgument
from kernelmate.backends.emulator import EmulatorBackend
from kernelmate.backends.emulator.backend import EmulatedModule
from kernelmate.backends.emulator.dependence import Dependence, dependence_of
from kernelmate.backends.emulator.liveness import read_at_entry
from kernelmate.compiler import compile_kernel, find_target
from kernelmate.records import CompileOptions, LaunchShape
from kernelmate.source import find_kernels, text_unit

HEAD = "__global__ void k(const float* x, float* y, int n) {\n  const int i = blockIdx.x * blockDim.x + threadIdx.x;\n"
SM = 'unsigned v; asm volatile("mov.u32 %0, %smid;" : "=r"(v));'


def module(body: str, *options: str, above: str = "") -> EmulatedModule:
    kernel = find_kernels(text_unit(f"{above}{HEAD}{body}\n}}\n", "k.cu"))[0]
    target = find_target(None)
    made = compile_kernel(kernel, options, instance=None, target=target, options=CompileOptions())
    assert made.ok, made.diagnostics
    return EmulatorBackend("never").load(made, target)


def found(body: str, above: str = "") -> Dependence:
    return dependence_of(module(body, above=above).decoded, (0, 1))


def run(loaded: EmulatedModule, environment: LaunchEnvironment | None, *, check: bool = False) -> RunResult:
    arguments = (
        ArrayArgument("x", np.arange(256, dtype=np.float32), written=False),
        ArrayArgument("y", np.zeros(256, np.float32)),
        ScalarArgument("n", np.int32(256)),
    )
    return loaded.run(Run(LaunchShape((4, 1, 1), (64, 1, 1), 0), arguments, check=check, environment=environment))


@pytest.mark.parametrize(
    ("body", "names"),
    [
        (f"{SM} if (i < n) y[i] = v == 3 ? 0.0f : x[i];", {"%smid"}),
        ("if (clock64() > 12345) return; y[i] = x[i];", {"%clock64"}),
        (f"{SM} y[(i + v) % n] = x[i];", {"%smid"}),
        (f"{SM} y[i] = x[i] + v;", {"%smid"}),
        (
            "__shared__ unsigned s[64]; s[threadIdx.x] = clock(); __syncthreads(); y[i] = s[threadIdx.x ^ 1];",
            {"%clock64"},
        ),
    ],
)
def test_special_registers_that_decide_something_are_named(body: str, names: set[str]) -> None:
    assert found(body).reached == names


@pytest.mark.parametrize(
    "body",
    [
        "if ((((size_t)x | (size_t)y) & 15) == 0 && i < n) y[i] = x[i]; else y[i] = 1.0f * x[i];",
        "if ((unsigned)(size_t)y % 16 == 4) y[i] = x[i]; else y[i] = x[i] + 0.0f;",
        "if (((size_t)x / 4) % 4 == 1) y[i] = 2 * x[i]; else y[i] = x[i] + x[i];",
        "const float *p = x + i, *end = x + n; float s = 0; for (; p < end; p += 7) s += *p; y[i] = s;",
        "float s = 0; for (const float* p = i & 1 ? x : y; p && s < 3; ) { s += *p; break; } y[i] = s;",
        "if (x != nullptr) y[i] = x[i];",
        "if (x != y) y[i] = x[i];",
        "y[i] = (&x[n] - &x[i]) * x[i];",
        "__shared__ float s[64]; float* p = i & 1 ? s : y; p[threadIdx.x] = x[i]; y[i] = p[threadIdx.x];",
        "__shared__ float s[64]; unsigned at = __cvta_generic_to_shared(s); y[i] = at % 512 ? x[i] : 2 * x[i];",
        f"{SM} if (i < n) y[i] = x[i];",
        "for (int j = i; j < n; j += gridDim.x * blockDim.x) y[j] = x[j];",
        "float t[4] = {x[0], x[1], x[2], x[3]}; const float* p = &t[i & 3]; y[i] = *p + (p - t);",
    ],
)
def test_ordinary_uses_of_pointers_reach_nothing(body: str) -> None:
    assert not found(body)


@pytest.mark.parametrize(
    "body",
    [
        "if (((size_t)y >> 40) == 0x7f) return; y[i] = x[i];",
        "if ((const char*)y - (const char*)x == 4096) return; y[i] = x[i];",
        "if ((size_t)x < (size_t)y) y[i] = x[i];",
        "if (((size_t)y * 2654435761u) >> 63) return; y[i] = x[i];",
        "if ((size_t)y & 0x1000) return; y[i] = x[i];",
        "__shared__ float s[64]; s[threadIdx.x] = x[i]; y[i] = (size_t)s >> 40 == 1 ? s[threadIdx.x] : 0.0f;",
        "y[i] = x[i] + (float)((size_t)y >> 21 & 1);",
        "float t[2]; t[i & 1] = x[i]; y[i] = ((size_t)&t[0] >> 4 & 0xffff) == 0x1234 ? t[i & 1] : 0.0f;",
    ],
)
def test_looking_at_the_bits_of_an_address_is_seen(body: str) -> None:
    assert found(body).addresses


@pytest.mark.parametrize(
    ("body", "aligned"),
    [
        ("if (((size_t)x & 15) == 0) y[i] = x[i]; else y[i] = 2 * x[i];", True),
        ("if ((unsigned)(size_t)y % 16 == 4) y[i] = x[i]; else y[i] = 2 * x[i];", True),
        ("if (((size_t)x << 60) == 0) y[i] = x[i]; else y[i] = 2 * x[i];", True),
        ("if ((i & 15) == 0) y[i] = x[i]; else y[i] = 2 * x[i];", False),
        ("if (x != y) y[i] = x[i];", False),
    ],
)
def test_looking_at_low_bits_of_an_address_is_told_apart(body: str, *, aligned: bool) -> None:
    assert found(body).aligned is aligned


def test_read_only_loads_of_what_is_written_are_seen() -> None:
    assert found("y[i] = __ldg(&y[i]) + 1;").stale
    assert not found("y[i] = __ldg(&x[i]) + 1;").stale
    assert not found("y[i] = y[i] + 1;").stale


def test_a_value_made_of_a_special_register_is_leaked_where_it_is_stored_in_an_array_and_not_in_a_variable() -> None:
    assert found(f"{SM} y[i] = x[i] * (((v ^ 7) - 1) >> 31);").leaked
    assert not found(f"{SM} if (i == 0) kept = v; y[i] = x[i];", above="__device__ unsigned kept;\n").leaked


def test_registers_that_some_path_reads_before_they_are_written_are_found() -> None:
    assert read_at_entry(module("float t; for (int j = i; j < n; j += 64) t += x[j]; y[i] = t;").decoded)
    assert not read_at_entry(module("float t = 0; for (int j = i; j < n; j += 64) t += x[j]; y[i] = t;").decoded)


def test_special_registers_have_the_values_that_are_chosen() -> None:
    loaded = module(f"{SM} y[i] = v;")
    assert run(loaded, LaunchEnvironment({"%smid": (2, 3, 5)})).arrays["y"][::64].tolist() == [2, 0, 3, 1]
    assert run(loaded, None).arrays["y"][::64].tolist() == [0, 0, 0, 0]


def test_clocks_begin_and_advance_as_chosen() -> None:
    loaded = module("const long long t = clock64(); y[i] = clock64() - t >= 1000 && t >= 5000;")
    assert run(loaded, LaunchEnvironment(clock=(5000, 1000))).arrays["y"].min() == 1
    assert run(loaded, None).arrays["y"].max() == 0


def test_arrays_lie_where_they_are_put() -> None:
    loaded = module("y[i] = ((size_t)y >> 40) == 0x7f;")
    assert run(loaded, LaunchEnvironment(first_slot=888)).arrays["y"].min() == 1
    assert run(loaded, None).arrays["y"].max() == 0


def test_registers_without_a_value_hold_the_fill_even_where_one_path_gives_them_a_constant() -> None:
    loaded = module("float t; if (i % 2) t = 1.0f; y[i] = t;", "--device-debug")
    filled = run(loaded, LaunchEnvironment(fill=0x5A)).arrays["y"]
    assert filled[1::2].tolist() == [1.0] * 128
    assert np.all(filled[::2].view(np.uint32) == 0x5A5A5A5A)


def test_outcomes_of_watched_conditions_are_noted_and_forced() -> None:
    loaded = module(f"{SM} y[i] = v == 77 ? 1.0f : 2.0f;")
    (number,) = dependence_of(loaded.decoded, (0, 1)).conditions
    usual = run(loaded, LaunchEnvironment(watched=frozenset({number})))
    assert set(usual.arrays["y"]) == {2.0}
    (outcome,) = usual.outcomes[number]
    other = run(loaded, LaunchEnvironment(watched=frozenset({number}), forced={number: not outcome}))
    assert set(other.arrays["y"]) == {1.0}


@pytest.mark.parametrize(
    ("body", "codes"),
    [
        ("y[i] = x[i]; __syncthreads(); const float v = __ldg(&y[i ^ 1]); __syncthreads(); y[i] = v;", ["global-race"]),
        ("const float v = __ldg(&y[i]); y[i] = v + x[i];", ["global-race"]),
        ("y[i] = __ldg(&x[i]);", []),
        ("y[i] = y[i] + x[i];", []),
    ],
)
def test_loads_through_the_read_only_cache_of_what_the_launch_writes_are_errors(body: str, codes: list[str]) -> None:
    result = run(module(body), LaunchEnvironment(), check=True)
    assert sorted({finding.code for finding in result.findings if finding.severity == "error"}) == codes


@pytest.mark.parametrize(
    ("body", "unused"),
    [
        ("y[i] = x[i];", 0),
        ("y[i] = atomicExch(&y[i + n], x[i]);", 0),
        ("atomicExch(&y[i], x[i]);", 1),
        ("atomicAdd(&y[i], x[i]);", 0),
        ("const volatile float* v = x; v[i]; y[i] = 1.0f;", 1),
        ("volatile float peek = x[i]; y[i] = 1.0f;", 1),
        ("volatile float peek = x[i]; y[i] = peek;", 0),
        ('float t = x[i]; asm volatile("" :: "f"(t)); y[i] = 1.0f;', 1),
        ("if (x[i] > 0) y[i] = 1.0f;", 0),
        ("y[(int)x[i]] = 1.0f;", 0),
    ],
)
def test_reads_that_nothing_uses_are_told_apart(body: str, unused: int) -> None:
    assert len(module(body).decoded.unused) == unused
