"""Layout of a written kernel's lines."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from benchmarks.pool import SMALL
from kernelmate.session import Session
from kernelmate.source import contract_for, find_kernels, load_kernel, text_unit
from kernelmate.synthesis.kernel_text import KernelText
from kernelmate.synthesis.size_text import plain_widening
from kernelmate.synthesis.trace import trace
from kernelmate.synthesis.write import kernels_for
from tests.unit.synthesis.judging import assert_judged_right


def test_the_comment_of_a_long_statement_goes_above_it() -> None:
    (kernel,) = find_kernels(text_unit(SMALL))
    statement = "const int value = " + " + ".join(f"operand_{number}" for number in range(6)) + ";"
    text = KernelText(kernel, contract_for(kernel)).definition(
        "void f()", [f"{statement}  // one, two, and what more is to be said"]
    )
    assert text.splitlines() == [
        "void f() {",
        "  // one, two, and what more is to be said",
        f"  {statement}",
        "}",
    ]


def test_a_local_has_a_number_only_where_its_name_is_taken() -> None:
    unit = text_unit("#define offset 3\n" + SMALL)
    (kernel,) = find_kernels(unit)
    text = KernelText(kernel, contract_for(kernel))
    names = [text.names.fresh(wanted) for wanted in ("x", "sum", "sum", "offset")]
    assert names == ["x_2", "sum", "sum_2", "offset_2"]
    helper = text.definition("float f(float x_2)", ["float sum_2 = x_2 + offset_2;", "return sum_2;"])
    assert helper == "float f(float x) {\n  float sum = x + offset_2;\n  return sum;\n}"
    both = text.definition("float g(float sum)", ["float sum_2 = sum;", "return sum_2;"])
    assert both == "float g(float sum) {\n  float sum_2 = sum;\n  return sum_2;\n}"


def test_a_statement_over_two_lines_keeps_its_columns_in_wider_indentation() -> None:
    (kernel,) = find_kernels(text_unit(SMALL.replace("\n  ", "\n    ")))
    statement = "const bool aligned = " + " && ".join(f"(address_of_{number} % 16 == 0)" for number in range(5)) + ";"
    lines = KernelText(kernel, contract_for(kernel)).definition("void f()", [statement]).splitlines()[1:-1]
    assert len(lines) > 1
    assert lines[0].startswith("    const bool aligned = (")
    column = lines[0].index("(address_of_0")
    assert all(len(line) - len(line.lstrip()) == column for line in lines[1:])


def test_fp8_is_converted_where_it_is_loaded_and_stored(make: Any, tmp_path: Path) -> None:
    args = {"x": "in float8_e5m2[n]", "y": "out float8_e4m3fn[n]", "n": "int32"}
    parameters = "const __nv_fp8_e5m2* x, __nv_fp8_e4m3* y, int n"
    kernel, contract = make(
        args, "x * 0.5", parameters=parameters, sizes="{ n = 40 }, { n = 1 }", grid="cdiv(n, block)"
    )
    text = next(kernels_for(trace(contract, tmp_path), kernel, contract)).definition
    assert "__nv_fp8_e4m3(float(x_i) * 0.5f)" in text


@pytest.mark.parametrize(("kind", "stored"), [("e5m2", "__nv_fp8_e4m3(float(tile"), ("e4m3", "= tile[")])
def test_fp8_is_copied_only_between_arrays_of_one_type(kind: str, stored: str, make: Any, tmp_path: Path) -> None:
    given = {"e5m2": "float8_e5m2", "e4m3": "float8_e4m3fn"}[kind]
    args = {"x": f"in {given}[m, n]", "y": "out float8_e4m3fn[n, m]", "m": "int32", "n": "int32"}
    parameters = f"const __nv_fp8_{kind}* x, __nv_fp8_e4m3* y, int m, int n"
    sizes = "{ m = 40, n = 50 }, { m = 1, n = 1 }"
    kernel, contract = make(args, "x.T", parameters=parameters, sizes=sizes, grid="cdiv(n * m, block)")
    assert stored in next(kernels_for(trace(contract, tmp_path), kernel, contract)).definition


@pytest.mark.parametrize(
    ("line", "plain"),
    [
        ("w[(static_cast<size_t>(0) * outs + first) * ins + k]", "w[static_cast<size_t>(first) * ins + k]"),
        ("w[(static_cast<size_t>(0) * outs + (first + n)) * ins]", "w[static_cast<size_t>(first + n) * ins]"),
        ("w[(static_cast<size_t>(1) * outs + o) * ins]", "w[(static_cast<size_t>(outs) + o) * ins]"),
        ("w[(static_cast<size_t>(10) * outs + o) * ins]", "w[(static_cast<size_t>(10) * outs + o) * ins]"),
    ],
)
def test_the_rows_of_the_parts_of_an_array_have_plain_numbers(line: str, plain: str) -> None:
    assert plain_widening(line) == plain


def test_helpers_stand_below_headers_between_the_contract_and_the_kernel(make: Any, session: Session) -> None:
    args = {"x": "in float16[rows, cols] ~ normal", "y": "out float16[rows, cols]", "cols": "int32"}
    body = """  float most = -INFINITY;
  for (int c = 0; c < cols; ++c) most = fmaxf(most, __half2float(x[(size_t)blockIdx.x * cols + c]));
  for (int c = threadIdx.x; c < cols; c += blockDim.x) {
    const size_t i = (size_t)blockIdx.x * cols + c;
    y[i] = __float2half(__half2float(x[i]) - most);
  }"""
    parameters = "const __half* x, __half* y, int cols"
    kernel, _ = make(args, "x - x.max(1, keepdims=True)", parameters=parameters, body=body)
    path = Path(kernel.unit.path)
    path.write_text(
        path.read_text().replace("__global__", "#include <cuda_fp16.h>\n\n// As first written.\n__global__")
    )
    assert assert_judged_right(session, load_kernel(path))


@pytest.mark.parametrize(
    "name", ["where", "exp", "sqrt", "maximum", "equal", "divide", "power", "searchsorted", "max", "sum", "add"]
)
def test_an_argument_with_the_name_of_an_operation_is_an_argument(name: str, make: Any, tmp_path: Path) -> None:
    args = {name: "in float32[rows, cols] ~ normal", "y": "out float32[rows]", "rows": "int32", "cols": "int32"}
    for reference in (
        f"{name}.sum(axis=1)",
        f"{name}.max(axis=1)",
        f"np.exp({name} - {name}.max(axis=1, keepdims=True)).sum(axis=1)",
    ):
        kernel, contract = make(args, reference)
        found = [one.schedule for one in kernels_for(trace(contract, tmp_path), kernel, contract)]
        assert any(one.startswith(("row", "softmax", "warp")) for one in found), (reference, found)
