from __future__ import annotations

import pytest

from kernelmate.checks.guards.compilers import architectures, find

BASE = "__global__ void k(float* y) {\n  y[0] = 1.0f;\n}\n"


@pytest.mark.parametrize(
    ("above", "name"),
    [
        ("#ifdef __CUDACC_RTC__\n#define F 1\n#endif\n", "__CUDACC_RTC__"),
        ("#if defined(__NVCC__)\n#define F 1\n#endif\n", "__NVCC__"),
        ("#define DAY __DATE__\n", "__DATE__"),
        ("constexpr char t = __TIME__[0];\n", "__TIME__"),
        ("constexpr int c = __COUNTER__;\n", "__COUNTER__"),
        ("#if __has_include(<cuda_runtime.h>)\n#define F 1\n#endif\n", "__has_include"),
        ("#ifdef __SOME_COMPILER__\n#define F 1\n#endif\n", "__SOME_COMPILER__"),
        ("#ifndef INT_MAX\n#define F 1\n#endif\n", "INT_MAX"),
        ("constexpr char f = __FILE__[0];\n", "__FILE__"),
        ("#ifndef __CUDACC_RTC__\n#include <cstdint>\n#define F 1\n#endif\n", "__CUDACC_RTC__"),
        ("constexpr bool old = __cplusplus < 201703L;\n", "__cplusplus"),
        ("#if __cplusplus < 201703L\n#define F 1\n#endif\n", "__cplusplus"),
        ('extern "C" __device__ int __nvvm_reflect(const char*);\n', "__nvvm_reflect"),
        ("#define F(v) NV_IF_TARGET(NV_IS_DEVICE, (v;))\n", "NV_IF_TARGET"),
        ("constexpr bool far = __LINE__ > 400;\n", "__LINE__"),
        ("#if 1 \\\n  && __GNUC__ > 3\n#define F 1\n#endif\n", "__GNUC__"),
    ],
)
def test_a_new_line_that_lets_the_compiler_decide_is_found(above: str, name: str) -> None:
    found = find(above + BASE, BASE)
    assert found is not None
    assert found[0] == 1
    assert f"asks for {name}," in found[1]


@pytest.mark.parametrize(
    "above",
    [
        "#ifndef TILE\n#define TILE 16\n#endif\n",
        "#ifdef __CUDACC__\n#define F 1\n#endif\n",
        "#ifndef __CUDACC_RTC__\n#include <cstdint>\n#else\n#include <cuda/std/cstdint>\n#endif\n",
        "#if __CUDA_ARCH__ >= 800\n#define F 1\n#endif\n",
        "// built on __DATE__\n",
        "#define CHECK(x) report(x, __FILE__, __LINE__)\n",
        "#ifndef __MY_HEADER__\n#define __MY_HEADER__\n#endif\n",
    ],
)
def test_other_lines_are_free(above: str) -> None:
    assert find(above + BASE, BASE) is None


def test_what_the_baseline_asks_for_may_stay() -> None:
    text = "#ifdef __CUDACC_RTC__\n#define F 1\n#endif\n" + BASE
    assert find(text.replace("1.0f", "2.0f"), text) is None
    assert find(text, None) is None


def test_architectures_are_read_in_new_lines_alone() -> None:
    asked = "#if __CUDA_ARCH__ >= 800\n#define F 1\n#endif\n" + BASE
    assert architectures(asked, BASE) == {800}
    assert architectures(asked, asked) == frozenset()
    assert architectures(BASE.replace("1.0f", "__CUDA_ARCH__ == 900 ? 1 : 2"), BASE) == {900}
