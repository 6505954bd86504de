"""Template instances whose arguments follow sizes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kernelmate.errors import ContractError
from kernelmate.records import Contract
from kernelmate.source import (
    find_kernels,
    infer_contract,
    inference,
    parse_contract,
    render_contract,
    size_allowed,
    text_unit,
)
from kernelmate.source.instances import at_instance, concrete_instances, template_arguments
from kernelmate.source.template_uses import inferred_instances

KERNEL = "template <typename T, int N> __global__ void k(const T* x, T* y, int rows, int n) { y[blockIdx.x * N + threadIdx.x] = x[n]; }\n"


def contract(instances: str, more: str = "") -> Contract:
    text = f"""// /// kernelmate
// sizes = [{{ rows = 4, n = 64 }}, {{ rows = 2, n = 128 }}, {{ rows = 3, n = 64 }}]
// grid = "rows"
// block = "n"
// instances = [{instances}]
{more}// [args]
// x = "in float32[rows, n]"
// y = "out float32[rows, n]"
// rows = "int32"
// n = "int32"
// ///
{KERNEL}"""
    found = parse_contract(find_kernels(text_unit(text))[0])
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("instances", "more", "concrete"),
    [
        ('"k<float, {n}>"', "", ("k<float, 64>", "k<float, 128>")),
        ('"k<float, {n // 2}>", "k<float, 7>"', "", ("k<float, 32>", "k<float, 64>", "k<float, 7>")),
        ('"k<float, {n}>"', '// require = ["n > 64"]\n', ("k<float, 128>",)),
        ('"k<float, {n}>"', '// require = ["n > 999"]\n', ("k<float, 64>", "k<float, 128>")),
        ('"k<float, 64>"', "", ("k<float, 64>",)),
    ],
)
def test_each_value_of_a_size_is_an_instance(instances: str, more: str, concrete: tuple[str, ...]) -> None:
    assert concrete_instances(contract(instances, more)) == concrete


def test_empty_braces_of_an_inferred_instance_bind_nothing() -> None:
    inferred = replace(contract('"k<float, 64>"'), instances=("k<Config{}, 64>",))
    assert concrete_instances(inferred) == inferred.instances
    assert at_instance(inferred, "k<Other{}, 64>") == inferred


def test_an_instance_is_judged_at_the_sizes_that_select_it() -> None:
    whole = contract('"k<float, {n}>"', "// weights = [1, 2, 3]\n")
    own = at_instance(whole, "k<float, 64>")
    assert [dict(size) for size in own.sizes] == [{"rows": 4, "n": 64}, {"rows": 3, "n": 64}]
    assert (own.weights, own.require, own.instances) == ((1.0, 3.0), ("n == 64",), ("k<float, 64>",))
    assert at_instance(own, "k<float, 64>") is own
    assert at_instance(whole, None) is whole
    assert at_instance(whole, "k<float, 3>") is whole


def test_an_instance_by_a_condition_allows_the_sizes_that_select_it() -> None:
    own = at_instance(contract('"k<float, {64 if n < 100 else 128}>"'), "k<float, 128>")
    allowed = [n for n in (64, 99, 100, 128, 999) if size_allowed(own, {"rows": 1, "n": n})]
    assert allowed == [100, 128, 999]


@pytest.mark.parametrize(
    ("instance", "message"),
    [
        ('"k<float, {m}>"', "m"),
        ('"k<float, {n / 3}>"', "n / 3"),
        ('"k<float, {n +}>"', "n +"),
        ('"k<float, {n}"', "not an instance"),
    ],
)
def test_an_argument_without_a_whole_number_is_said_at_its_place(instance: str, message: str) -> None:
    with pytest.raises(ContractError) as caught:
        contract(instance)
    assert caught.value.line == 5
    assert message in str(caught.value)


@pytest.mark.parametrize(
    "host",
    [
        "switch (n) { case 64: k<float, 64><<<rows, 64>>>(x, y, rows, n); break; case 128: k<float, 128><<<rows, 128>>>(x, y, rows, n); break; }",
        "if (n == 64) { k<float, 64><<<rows, 64>>>(x, y, rows, n); } else if (n == 128) k<float, 128><<<rows, 128>>>(x, y, rows, n);",
        "switch (n) {\n#define CASE(N) case N: k<float, N><<<rows, N>>>(x, y, rows, n); break;\nCASE(64) CASE(128) }",
    ],
)
def test_launches_that_a_size_selects_bind_the_argument(host: str) -> None:
    text = f"{KERNEL}void run(const float* x, float* y, int rows, int n) {{\n{host}\n}}\n"
    found = infer_contract(find_kernels(text_unit(text))[0])
    assert (found.instances, found.block) == (("k<float, {n}>",), ("n",))
    assert [size["n"] for size in found.sizes] == [64, 128]
    assert concrete_instances(found) == ("k<float, 64>", "k<float, 128>")


def test_a_size_that_only_selects_the_instance_is_a_size_too() -> None:
    text = """template <int D> __global__ void k(const float* x, float* y, int rows) { y[blockIdx.x * D + threadIdx.x] = x[0]; }
void run(const float* x, float* y, int rows, int dim) {
  switch (dim) {
    case 32: k<32><<<rows, 32>>>(x, y, rows); break;
    case 96: k<96><<<rows, 96>>>(x, y, rows); break;
  }
}
void main() {
  int rows = 8, dim = 32;
  cudaMalloc(&d_x, rows * dim * sizeof(float));
  run(d_x, d_y, rows, dim);
}
"""
    found = infer_contract(find_kernels(text_unit(text))[0])
    assert (found.instances, found.block) == (("k<{dim}>",), ("dim",))
    assert [size["dim"] for size in found.sizes] == [32, 96]
    assert found.args[0].shape == ("rows", "dim")


def test_one_launch_selects_its_size_alone() -> None:
    text = f"{KERNEL}void run(const float* x, float* y, int rows, int n) {{ if (n == 64) k<float, 64><<<rows, 64>>>(x, y, rows, n); }}\n"
    found = infer_contract(find_kernels(text_unit(text))[0])
    assert (found.instances, [size["n"] for size in found.sizes]) == (("k<float, 64>",), [64])


def test_all_cases_of_a_switch_are_sizes_and_those_that_are_not_read_are_counted() -> None:
    for most, note in ((8, ""), (20, "; 4 more launches are not read")):
        values = [32 * (number + 1) for number in range(most)]
        cases = "".join(f"case {n}: k<float, {n}><<<rows, {n}, {4 * n}>>>(x, y, rows, n); break; " for n in values)
        text = f"{KERNEL}void run(const float* x, float* y, int rows, int n) {{ switch (n) {{ {cases} }} }}\n"
        found = inference(find_kernels(text_unit(text))[0])
        assert [size["n"] for size in found.contract.sizes] == values[:16]
        assert (found.contract.block, found.contract.shared) == (("n",), "n * 4")
        assert found.origins["sizes"] == f"line 2, rows is a guess{note}"
        written = render_contract(found.contract, origins=found.origins)
        assert f"sizes = [  # inferred: line 2, rows is a guess{note}\n" in written


def test_a_case_with_another_launch_is_left_out_and_said() -> None:
    shapes = ((64, "rows", 64), (128, "rows", 128), (256, "2 * rows", 256), (512, "rows", 256))
    cases = "".join(
        f"case {n}: k<float, {n}><<<{grid}, {block}>>>(x, y, rows, n); break; " for n, grid, block in shapes
    )
    text = f"{KERNEL}void run(const float* x, float* y, int rows, int n) {{ switch (n) {{ {cases} }} }}\n"
    found = inference(find_kernels(text_unit(text))[0])
    assert [size["n"] for size in found.contract.sizes] == [64, 128]
    assert found.origins["sizes"] == "line 2, rows is a guess; launched otherwise at n = 256, 512"


def test_a_value_of_a_class_type_in_braces_is_an_argument_of_its_own(only) -> None:
    kernel = "struct Config { int threads; bool twice; };\ntemplate <Config C, int N> __global__ void k(float* x, int n) {}\n"
    head = 'sizes = [{ n = 4 }]\ngrid = 1\nblock = 32\ninstances = ["k<Config{128, true}, {n}>"]\n'
    text = "".join(
        f"// {line}\n"
        for line in ("/// kernelmate", *head.splitlines(), "[args]", 'x = "out float32[n]"', 'n = "int32"', "///")
    )
    structs, _, rest = kernel.partition("\n")
    contract = parse_contract(only(f"{structs}\n{text}{rest}"))
    assert contract is not None
    assert concrete_instances(contract) == ("k<Config{128, true}, 4>",)
    assert template_arguments("k<Config{128, true}, 4>") == ("k", ("Config { 128, true }", "4"))
    used = inferred_instances(only(f"{kernel}int main() {{ k<Config{{64, false}}, 2><<<1, 64>>>(nullptr, 1); }}\n"))
    assert [one.text.replace(" ", "") for one in used] == ["k<Config{64,false},2>"]
