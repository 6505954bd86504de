"""Guards that read code: approximations, compensated sums, registers at launch, tests of compilers, narrow matrix types."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kernelmate.checks.guards.approximations import find as find_approximations
from kernelmate.checks.guards.approximations import used
from kernelmate.checks.guards.compensated import compensates
from kernelmate.checks.guards.compilers import architectures
from kernelmate.checks.guards.compilers import find as find_compilers
from kernelmate.checks.guards.launch_registers import find as find_launch_registers
from kernelmate.checks.guards.launch_registers import read
from kernelmate.checks.guards.narrow_matrix import PTX_MATRIX, instructions
from kernelmate.checks.guards.narrow_matrix import find as find_narrow_matrix
from kernelmate.compiler import compile_kernel, find_target
from kernelmate.compiler.disassembly import sass
from kernelmate.records import Argument, Compiled, CompileOptions, Contract, Tolerance
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
    said = find_approximations(ptx(fast), ptx(exact))
    assert said is not None
    assert named in said


@pytest.mark.parametrize("exact", ["expf(v)", "sinf(v)", "logf(v)", "tanhf(v)", "v / 3.1f", "rsqrtf(v)", "sqrtf(v)"])
def test_exact_functions_are_made_of_nothing_that_is_named(exact: str) -> None:
    assert used(ptx(exact)) == frozenset()


def test_fast_math_shows_in_square_roots_and_divisions() -> None:
    assert used(ptx("sqrtf(v) / (v + 1.0f)", fast_math=True)) >= {"sqrt.approx"}


def test_nothing_is_said_without_a_baseline_or_where_it_does_the_same() -> None:
    assert find_approximations(ptx("__sinf(v)"), None) is None
    assert find_approximations(ptx("__sinf(v) + 1.0f"), ptx("__sinf(v)")) is None


KAHAN = """
    sub.f32 %f10, %f9, %f34;
    add.f32 %f36, %f35, %f10;
    sub.f32 %f11, %f36, %f35;
    sub.f32 %f34, %f11, %f10;
"""
NEUMAIER = """
    add.rn.f64 %fd3, %fd1, %fd2;
    sub.rn.f64 %fd4, %fd1, %fd3;
    add.rn.f64 %fd5, %fd4, %fd2;
"""


@pytest.mark.parametrize(
    ("ptx", "is_one"),
    [
        (KAHAN, True),
        (NEUMAIER, True),
        (KAHAN.replace("sub.f32 %f34, %f11, %f10;", "sub.f32 %f34, %f11, %f9;"), False),
        (KAHAN.replace("sub.f32 %f11, %f36, %f35;", "sub.f32 %f11, %f9, %f35;"), False),
        (NEUMAIER.replace("sub.rn.f64", "sub.rn.f32"), False),
        ("add.f32 %f1, %f2, %f2;\nsub.f32 %f3, %f1, %f2;\nsub.f32 %f4, %f3, %f2;", False),
    ],
)
def test_only_what_carries_the_lost_part_is_one(ptx: str, *, is_one: bool) -> None:
    assert compensates(ptx) is is_one


def launch_registers_ptx(body: str) -> str:
    made = compile_kernel(
        find_kernels(text_unit(f"__global__ void k(unsigned long long* y) {{ {body} }}\n", "k.cu"))[0],
        (),
        instance=None,
        target=find_target(None),
        options=CompileOptions(),
    )
    assert made.ok, made.diagnostics
    return made.ptx


@pytest.mark.parametrize(
    ("body", "name"),
    [
        ('asm volatile("mov.u64 %0, %%gridid;" : "=l"(y[0]));', "gridid"),
        ('asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(y[0]));', "globaltimer"),
        ('unsigned v; asm volatile("mov.u32 %0, %%globaltimer_lo;" : "=r"(v)); y[0] = v;', "globaltimer"),
        ("y[0] = clock64();", "clock"),
        ("y[0] = clock();", "clock"),
        ('unsigned v; asm volatile("mov.u32 %0, %%smid;" : "=r"(v)); y[0] = v;', "smid"),
        ('unsigned v; asm volatile("mov.u32 %0, %%envreg3;" : "=r"(v)); y[0] = v;', "envreg"),
    ],
)
def test_what_tells_launches_apart_is_named(body: str, name: str) -> None:
    text = launch_registers_ptx(body)
    assert read(text) == {name}
    said = find_launch_registers(text, None)
    assert said is not None
    assert said.startswith(f"reads %{name} (")


def test_where_a_thread_is_in_its_grid_tells_nothing() -> None:
    assert (
        find_launch_registers(
            launch_registers_ptx("y[blockIdx.x * blockDim.x + threadIdx.x] = gridDim.x + warpSize;"), None
        )
        is None
    )


def test_what_the_baseline_reads_as_well_is_not_told() -> None:
    text = launch_registers_ptx("y[0] = clock64();")
    assert find_launch_registers(text, text) is None


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
    found = find_compilers(above + BASE, BASE)
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
    assert find_compilers(above + BASE, BASE) is None


def test_what_the_baseline_asks_for_may_stay() -> None:
    text = "#ifdef __CUDACC_RTC__\n#define F 1\n#endif\n" + BASE
    assert find_compilers(text.replace("1.0f", "2.0f"), text) is None
    assert find_compilers(text, None) is None


def test_architectures_are_read_in_new_lines_alone() -> None:
    asked = "#if __CUDA_ARCH__ >= 800\n#define F 1\n#endif\n" + BASE
    assert architectures(asked, BASE) == {800}
    assert architectures(asked, asked) == frozenset()
    assert architectures(BASE.replace("1.0f", "__CUDA_ARCH__ == 900 ? 1 : 2"), BASE) == {900}


LINE = 5
"""Of the multiplication in `multiplying`'s text."""


def multiplying(shape: str, types: str, words: tuple[int, int, int], arch: str = "sm_90") -> Compiled:
    """A kernel with one mma; `types` are those of d, a, b, c, `words` the registers of d, a and b."""
    d, a, b = words
    kind, held = ("f", "float") if types.startswith("f32") else ("r", "unsigned")

    def registers(start: int, count: int) -> str:
        return "{" + ", ".join(f"%{start + i}" for i in range(count)) + "}"

    asm = f"mma.sync.aligned.{shape}.row.col.{types} {registers(0, d)}, {registers(d, a)}, {registers(d + a, b)}, {registers(0, d)};"  # fmt: skip
    outputs = ", ".join(f'"+{kind}"(d[{i}])' for i in range(d))
    inputs = ", ".join(f'"r"(x[{i} + threadIdx.x])' for i in range(a + b))
    text = (
        f"__global__ void multiply({held}* y, const unsigned* x) {{\n"
        f"  {held} d[{d}];\n"
        f"  for (int i = 0; i < {d}; ++i) d[i] = y[i];\n"
        "  // the product\n"
        f'  asm volatile("{asm}" : {outputs} : {inputs});\n'
        f"  for (int i = 0; i < {d}; ++i) y[i + threadIdx.x] = d[i];\n"
        "}\n"
    )
    return compiled(text, arch)


def compiled(text: str, arch: str = "sm_90") -> Compiled:
    made = compile_kernel(
        find_kernels(text_unit(text, "k.cu"))[0], (), instance=None, target=find_target(arch), options=CompileOptions()
    )
    assert made.ok, made.diagnostics
    return made


def contract(inputs: str, output: str, **more: object) -> Contract:
    args = (Argument("y", "out", output, ("n",)), Argument("x", "in", inputs, ("n",)))
    return replace(Contract("multiply", ({"n": 64},), ("1",), ("32",), args), **more)


FULL = ("m16n8k16", "f32.f16.f16.f32", (4, 4, 2))
HALF_SUM = ("m16n8k16", "f16.f16.f16.f16", (2, 4, 2))
BFLOAT = ("m16n8k16", "f32.bf16.bf16.f32", (4, 4, 2))
TF32 = ("m16n8k8", "f32.tf32.tf32.f32", (4, 4, 2))


@pytest.mark.parametrize(
    ("made", "opcode", "bits", "float16_sum"),
    [
        (FULL, "HMMA.16816.F32", 11, False),
        (HALF_SUM, "HMMA.16816.F16", 11, True),
        (BFLOAT, "HMMA.16816.F32.BF16", 8, False),
        (TF32, "HMMA.1688.F32.TF32", 11, False),
    ],
    ids=lambda value: value[1] if isinstance(value, tuple) else None,
)
def test_each_kind_is_read_with_its_line(made, opcode, bits, float16_sum) -> None:
    (one,) = set(instructions(sass(multiplying(*made))))
    assert (one.opcode, one.line, one.product_bits, one.float16_sum) == (opcode, LINE, bits, float16_sum)


def test_fp8_products_are_read_where_a_gpu_has_them() -> None:
    (one,) = set(instructions(sass(multiplying("m16n8k32", "f32.e4m3.e4m3.f32", (4, 4, 2), "sm_89"))))
    assert (one.opcode, one.product_bits) == ("QMMA.16832.F32.E4M3.E4M3", 4)


def test_warp_group_instructions_are_read() -> None:
    text = """__global__ void k(float* y, const unsigned long long* x) {
  float d[4] = {y[0], y[1], y[2], y[3]};
  asm volatile("{ .reg .pred p; setp.ne.b32 p, 1, 0; wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%0, %1, %2, %3}, %4, %5, p, 1, 1, 0, 0; }"
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "l"(x[0]), "l"(x[1]));
  asm volatile("wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0;");
  for (int i = 0; i < 4; ++i) y[i + threadIdx.x] = d[i];
}
"""
    made = compiled(text, "sm_90a")
    assert PTX_MATRIX.search(made.ptx)
    (one,) = set(instructions(sass(made)))
    assert one.opcode.startswith("HGMMA.64x8x16.F32.BF16")
    assert (one.product_bits, one.float16_sum) == (8, False)


def test_a_float16_sum_is_an_error_where_sums_are_to_be_float32() -> None:
    (finding,) = find_narrow_matrix(contract("float16", "float16"), sass(multiplying(*HALF_SUM)), None)
    assert (finding.code, finding.severity, finding.line) == ("precision-loss", "error", LINE)
    assert "HMMA.16816.F16 adds up in float16, and the contract's sums are float32" in finding.message


def test_a_float16_sum_passes_where_the_contract_asks_for_it() -> None:
    assert (
        find_narrow_matrix(contract("float16", "float16", accumulate="float16"), sass(multiplying(*HALF_SUM)), None)
        == ()
    )


def test_a_tolerance_of_the_contracts_own_makes_it_a_warning_unless_sums_are_named_too() -> None:
    code, loose = sass(multiplying(*HALF_SUM)), Tolerance(1e-2, 1e-2)
    (warned,) = find_narrow_matrix(contract("float16", "float16", tolerance=loose), code, None)
    (wrong,) = find_narrow_matrix(contract("float16", "float16", tolerance=loose, accumulate="float32"), code, None)
    assert (warned.severity, wrong.severity) == ("warning", "error")


@pytest.mark.parametrize("made", [TF32, BFLOAT], ids=["tf32", "bf16"])
def test_narrow_products_of_float32_inputs_are_a_warning(made) -> None:
    (finding,) = find_narrow_matrix(contract("float32", "float32"), sass(multiplying(*made)), None)
    assert (finding.code, finding.severity, finding.line) == ("precision-loss", "warning", LINE)
    assert "and the inputs have 24" in finding.message


def test_what_the_baseline_does_as_well_is_a_note() -> None:
    code = sass(multiplying(*HALF_SUM))
    (finding,) = find_narrow_matrix(contract("float16", "float16"), code, code)
    assert finding.severity == "note"
    assert finding.message.endswith("(the baseline does it too)")


@pytest.mark.parametrize(
    ("inputs", "made"), [("float16", FULL), ("float16", TF32), ("bfloat16", BFLOAT), ("bfloat16", FULL)]
)
def test_products_as_exact_as_the_inputs_pass(inputs: str, made) -> None:
    assert find_narrow_matrix(contract(inputs, "float32"), sass(multiplying(*made)), None) == ()


def test_code_without_matrix_instructions_has_none() -> None:
    made = compiled("__global__ void k(float* y) { y[threadIdx.x] *= 2.0f; }\n")
    assert PTX_MATRIX.search(made.ptx) is None
    assert list(instructions(sass(made))) == []
