"""Scalars that a kernel ignores although its baseline reads them."""

from __future__ import annotations

from kernelmate.checks.guards.unread_scalars import find
from kernelmate.compiler import compile_kernel, find_target
from kernelmate.records import Argument, CompileOptions, Contract, Version
from kernelmate.source import find_kernels, text_unit

CONTRACT = Contract(
    "k", ({"n": 64},), ("1",), ("64",),
    (Argument("x", "in", "float32", ("n",)), Argument("y", "out", "float32", ("n",)),
     Argument("n", None, "int32"), Argument("ignored", None, "int32", value="-100")),
)  # fmt: skip


def version(value: str) -> Version:
    text = f"__global__ void k(const float* x, float* y, int n, int ignored) {{ if (threadIdx.x < n) y[threadIdx.x] = {value}; }}"
    kernel = find_kernels(text_unit(text, "k.cu"))[0]
    made = compile_kernel(kernel, (), instance=None, target=find_target(None), options=CompileOptions())
    assert made.ok, made.diagnostics
    return Version(made, CONTRACT, kernel.unit)


BASELINE = version("x[threadIdx.x] == ignored ? 0 : x[threadIdx.x]")
WRITTEN_IN = version("x[threadIdx.x] == -100 ? 0 : x[threadIdx.x]")


def codes(mine: Version, *scalars: str) -> list[str]:
    return [one.code for one in find(mine, BASELINE, CONTRACT, scalars)]


def test_a_value_written_into_the_code_is_an_error_where_no_launch_could_vary_it() -> None:
    (found,) = find(WRITTEN_IN, BASELINE, CONTRACT, ("ignored",))
    assert found.code == "wrong-values"
    assert "never reads ignored" in found.message
    assert "`fixed`" in found.message


def test_varied_scalars_and_versions_that_read_them_are_free() -> None:
    assert codes(WRITTEN_IN) == []
    assert codes(BASELINE, "ignored") == []
    assert codes(version("x[threadIdx.x] - ignored == 0 ? 0 : x[threadIdx.x]"), "ignored") == []
    assert list(find(WRITTEN_IN, None, CONTRACT, ("ignored",))) == []
