from __future__ import annotations

import pytest

from kernelmate.checks.guards.approximations import find, used
from kernelmate.compiler import compile_kernel, find_target
from kernelmate.records import CompileOptions
from kernelmate.source import find_kernels, text_unit


def ptx(expression: str, *, fast_math: bool = False) -> str:
    text = f"__global__ void k(float* y) {{ float v = y[threadIdx.x]; y[threadIdx.x] = {expression}; }}\n"
    made = compile_kernel(
        find_kernels(text_unit(text, "k.cu"))[0],
        (),
        instance=None,
        target=find_target(None),
        options=CompileOptions(fast_math=fast_math),
    )
    assert made.ok
    return made.ptx


@pytest.mark.parametrize(
    ("exact", "fast", "named"),
    [
        ("sinf(v)", "__sinf(v)", "__sinf"),
        ("cosf(v)", "__cosf(v)", "__cosf"),
        ("logf(v)", "__logf(v)", "__logf"),
        ("v / (v + 3.0f)", "__fdividef(v, v + 3.0f)", "__fdividef"),
    ],
)
def test_an_intrinsic_in_place_of_an_exact_function_is_named(exact: str, fast: str, named: str) -> None:
    said = find(ptx(fast), ptx(exact))
    assert said is not None
    assert named in said


@pytest.mark.parametrize("exact", ["expf(v)", "sinf(v)", "logf(v)", "tanhf(v)", "v / 3.1f", "rsqrtf(v)", "sqrtf(v)"])
def test_exact_functions_are_made_of_nothing_that_is_named(exact: str) -> None:
    assert used(ptx(exact)) == frozenset()


def test_fast_math_shows_in_square_roots_and_divisions() -> None:
    assert used(ptx("sqrtf(v) / (v + 1.0f)", fast_math=True)) >= {"sqrt.approx"}


def test_nothing_is_said_without_a_baseline_or_where_it_does_the_same() -> None:
    assert find(ptx("__sinf(v)"), None) is None
    assert find(ptx("__sinf(v) + 1.0f"), ptx("__sinf(v)")) is None
