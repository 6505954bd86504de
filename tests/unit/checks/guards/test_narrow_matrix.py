"""Matrix instructions of real code, compiled here for several GPUs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kernelmate.checks.guards.narrow_matrix import PTX_MATRIX, find, instructions
from kernelmate.compiler import compile_kernel, find_target
from kernelmate.compiler.disassembly import sass
from kernelmate.records import Argument, Compiled, CompileOptions, Contract, Tolerance
from kernelmate.source import find_kernels, text_unit

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
    (finding,) = find(contract("float16", "float16"), sass(multiplying(*HALF_SUM)), None)
    assert (finding.code, finding.severity, finding.line) == ("precision-loss", "error", LINE)
    assert "HMMA.16816.F16 adds up in float16, and the contract's sums are float32" in finding.message


def test_a_float16_sum_passes_where_the_contract_asks_for_it() -> None:
    assert find(contract("float16", "float16", accumulate="float16"), sass(multiplying(*HALF_SUM)), None) == ()


def test_a_tolerance_of_the_contracts_own_makes_it_a_warning_unless_sums_are_named_too() -> None:
    code, loose = sass(multiplying(*HALF_SUM)), Tolerance(1e-2, 1e-2)
    (warned,) = find(contract("float16", "float16", tolerance=loose), code, None)
    (wrong,) = find(contract("float16", "float16", tolerance=loose, accumulate="float32"), code, None)
    assert (warned.severity, wrong.severity) == ("warning", "error")


@pytest.mark.parametrize("made", [TF32, BFLOAT], ids=["tf32", "bf16"])
def test_narrow_products_of_float32_inputs_are_a_warning(made) -> None:
    (finding,) = find(contract("float32", "float32"), sass(multiplying(*made)), None)
    assert (finding.code, finding.severity, finding.line) == ("precision-loss", "warning", LINE)
    assert "and the inputs have 24" in finding.message


def test_what_the_baseline_does_as_well_is_a_note() -> None:
    code = sass(multiplying(*HALF_SUM))
    (finding,) = find(contract("float16", "float16"), code, code)
    assert finding.severity == "note"
    assert finding.message.endswith("(the baseline does it too)")


@pytest.mark.parametrize(
    ("inputs", "made"), [("float16", FULL), ("float16", TF32), ("bfloat16", BFLOAT), ("bfloat16", FULL)]
)
def test_products_as_exact_as_the_inputs_pass(inputs: str, made) -> None:
    assert find(contract(inputs, "float32"), sass(multiplying(*made)), None) == ()


def test_code_without_matrix_instructions_has_none() -> None:
    made = compiled("__global__ void k(float* y) { y[threadIdx.x] *= 2.0f; }\n")
    assert PTX_MATRIX.search(made.ptx) is None
    assert list(instructions(sass(made))) == []
