"""Launches in other environments, on real compilations."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from kernelmate.backends.base import ArrayArgument, Run, RunResult, ScalarArgument
from kernelmate.checks.guards import launch_environment
from kernelmate.checks.guards.launch_environment import EnvironmentFinding, find, find_in_twin, reaching_values
from kernelmate.compiler import compile_kernel, find_target
from kernelmate.records import Argument, BuildVariant, Compiled, CompileOptions, Contract, LaunchShape, Target, Version
from kernelmate.source import find_kernels, text_unit

HEAD = "__global__ void k(const float* x, float* y, int n) {\n  const int i = blockIdx.x * blockDim.x + threadIdx.x;\n"
CONTRACT = Contract(
    "k", ({"n": 256},), ("cdiv(n, block)",), ("64",),
    (
        Argument("x", "in", "float32", ("n",)), Argument("y", "out", "float32", ("n",)), Argument("n", "in", "int32", None),
    ),
)  # fmt: skip
X = np.arange(256, dtype=np.float32)
RUN = Run(
    LaunchShape((4, 1, 1), (64, 1, 1), 0),
    (
        ArrayArgument("x", X, written=False),
        ArrayArgument("y", np.zeros(256, np.float32)),
        ScalarArgument("n", np.int32(256)),
    ),
)
SM = 'unsigned v; asm volatile("mov.u32 %0, %smid;" : "=r"(v));'


@pytest.fixture(scope="module")
def gpu() -> Target:
    return find_target(None)


def compiled(body: str, gpu: Target, *options: str) -> tuple[Compiled, Version]:
    kernel = find_kernels(text_unit(f"{HEAD}{body}\n}}\n", "k.cu"))[0]
    made = compile_kernel(kernel, options, instance=None, target=gpu, options=CompileOptions())
    assert made.ok, made.diagnostics
    return made, Version(made, CONTRACT, kernel.unit)


def doubled(result: RunResult) -> str | None:
    return None if np.array_equal(result.arrays["y"], 2 * X) else "y is not twice x"


def said(body: str, gpu: Target) -> EnvironmentFinding | None:
    _, version = compiled(body, gpu)
    there = reaching_values(version, CONTRACT)
    assert there is not None
    return find(version, there, RUN, gpu, doubled)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (f"{SM} y[i] = v < 64 ? 2 * x[i] : 0;", "depend on %smid (which SM a block runs on): where that is another"),
        ("y[i] = clock64() % 1000003 == 77 ? 0 : 2 * x[i];", "depend on %clock64 (the clock): where a condition on it"),
        (
            f"{SM} if (clock64() % 1000003 == 77) {{ if (v * 3 == 5) return; }} y[i] = 2 * x[i];",
            "where a condition on it has its other outcome",
        ),
        ("y[i] = ((size_t)y >> 40) == 0x7f ? 0 : 2 * x[i];", "where its arrays lie in memory"),
        ("if ((char*)y - (char*)x == 1024) return; y[i] = 2 * x[i];", "where its arrays lie in memory"),
        (f"{SM} y[i] = 2 * x[i] + (float)(((v ^ 99) - 1) >> 31);", "stores a value that is computed from %smid"),
    ],
)
def test_outputs_that_depend_on_the_environment_are_found(body: str, words: str, gpu: Target) -> None:
    found = said(body, gpu)
    assert found is not None
    assert found.code == "nondeterministic"
    assert words in found.message


def test_a_register_without_a_value_is_found(gpu: Target) -> None:
    found = said("float t; for (int j = i; j < i + 2; ++j) t += x[i]; y[i] = t;", gpu)
    assert found is not None
    assert found.code == "uninitialised-local"


def test_code_without_optimisation_that_takes_too_long_is_left_to_a_smaller_size(
    gpu: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(launch_environment, "MOST_TWIN_STEPS", 5)
    code, version = compiled("for (int k = 0; k < n * n; ++k) y[i] = 2 * x[i] + (k - k);", gpu, "--device-debug")
    with pytest.raises(launch_environment.TooLong):
        find_in_twin(version, BuildVariant(code), RUN, gpu, doubled)


def test_a_read_only_load_of_what_is_written_is_found_at_its_line(gpu: Target) -> None:
    found = said("const float v = __ldg(&y[i]);\n  y[i] = 0 * v + 2 * x[i];", gpu)
    assert found is not None
    assert (found.code, found.line) == ("global-race", 4)


def test_a_shuffle_among_lanes_that_happen_to_run_together_is_found_at_its_line(gpu: Target) -> None:
    found = said("const float v = __shfl_xor_sync(__activemask(), x[i], 1);\n  y[i] = 2 * x[i] + (v - v);", gpu)
    assert found is not None
    assert (found.code, found.line) == ("shuffle-mask", 3)
    assert "use 0xffffffff, or a mask that __ballot_sync() computes" in found.message


RETRIED = "const int old = *(volatile int*)p; if (atomicCAS(p, old, old + 1) == old) break;"
UNDER_A_LOCK = (
    "if (atomicCAS(p, 0, 1) == 0) { *(volatile int*)(p + 1) += 1; __threadfence(); atomicExch(p, 0); break; }"
)


@pytest.mark.parametrize("attempt", [RETRIED, UNDER_A_LOCK])
def test_a_swap_that_is_given_up_after_some_attempts_is_found_at_its_line(attempt: str, gpu: Target) -> None:
    body = f"int* p = (int*)y + 254; if (i >= 8) return; for (int k = 0; k < 100000; ++k) {{\n {attempt} }}"
    _, version = compiled(body, gpu)
    there = reaching_values(version, CONTRACT)
    assert there is not None
    assert list(there.retries.values()) == [4]
    run = replace(RUN, arguments=(RUN.arguments[0], ArrayArgument("y", np.zeros(256, np.float32)), RUN.arguments[2]))
    found = find(version, there, run, gpu, lambda result: counted_up(result, 8))
    assert found is not None
    assert (found.code, found.line) == ("nondeterministic", 4)
    assert "gives up a compare-and-swap after a number of attempts" in found.message


def counted_up(result: RunResult, times: int) -> str | None:
    held = result.arrays["y"].view(np.int32)[254:]
    return None if times in held else f"{held} in place of {times}"


@pytest.mark.parametrize(
    "body",
    [
        "while (true) { const int old = *(volatile int*)y; if (atomicCAS((int*)y, old, old + 1) == old) break; }",
        "for (int k = 0; k < n; ++k) if (atomicCAS((int*)y + (i + k) % n, 0, i + 1) == 0) break;",
        "for (int k = i; k < n; k += 64) atomicCAS((int*)y, 0, k);",
    ],
)
def test_loops_that_do_not_give_up_a_swap_have_no_bounded_retries(body: str, gpu: Target) -> None:
    _, version = compiled(body, gpu)
    found = launch_environment.dependence(version, CONTRACT)
    assert found is not None
    assert not found.retries


@pytest.mark.parametrize(
    "body",
    [
        "const unsigned same = __match_any_sync(__activemask(), i / 4);\n"
        "  y[i] = 2 * x[i] + (float)(__popc(same) > 32);",
        f"{SM} if (v & 1) __nanosleep(20); y[i] = 2 * x[i];",
        f"{SM} const int j = (threadIdx.x + v) % 64 + blockIdx.x * 64; y[j] = 2 * x[j];",
        "const long long t = clock64(); while (clock64() - t < 50) ; y[i] = 2 * x[i];",
        "if (x + n <= y || y + n <= x) y[i] = x[i] + x[i]; else y[i] = 2 * x[i];",
    ],
)
def test_what_only_decides_when_and_where_work_is_done_is_free(body: str, gpu: Target) -> None:
    assert said(body, gpu) is None


def test_code_without_optimisation_shows_what_a_variable_without_a_value_does(gpu: Target) -> None:
    body = "float t; if (i % 2) t = 0; t += 2 * x[i]; y[i] = t;"
    _, version = compiled(body, gpu)
    assert find_in_twin(version, BuildVariant(version.compiled), RUN, gpu, doubled) is None
    found = find_in_twin(version, BuildVariant(compiled(body, gpu, "--device-debug")[0]), RUN, gpu, doubled)
    assert found is not None
    assert found.code == "uninitialised-local"


def test_code_for_another_architecture_is_held_to_the_same_answer(gpu: Target) -> None:
    _, version = compiled("y[i] = 2 * x[i];", gpu)
    other, _ = compiled("y[i] = 3 * x[i];", gpu)
    assert find_in_twin(version, BuildVariant(version.compiled, "sm_80"), RUN, gpu, doubled) is None
    found = find_in_twin(version, BuildVariant(other, "sm_80"), RUN, gpu, doubled)
    assert found is not None
    assert found.code == "wrong-values"
    assert "compiled for sm_80" in found.message


def test_a_build_that_the_emulator_cannot_run_says_nothing(gpu: Target) -> None:
    _, version = compiled("if (i < n) y[i] = 2 * x[i];", gpu)
    register = 'unsigned v; asm volatile("mov.u32 %0, %reserved_smem_offset_1;" : "=r"(v));'
    other, _ = compiled(f"{register} if (i < n) y[i] = v ? 3 * x[i] : 2 * x[i];", gpu)
    assert find_in_twin(version, BuildVariant(other), RUN, gpu, doubled) is None
    assert find_in_twin(version, BuildVariant(other, "sm_80"), RUN, gpu, doubled) is None
