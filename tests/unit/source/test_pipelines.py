"""Contracts of pipelines: their stages, temporaries and results, and each mistake with its place and its remedy."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from kernelmate.errors import ContractError, SourceError
from kernelmate.records import Contract, Kernel
from kernelmate.source import (
    apply_edits,
    find_kernels,
    load_kernel,
    load_kernels,
    load_single_kernel,
    parse_contract,
    text_unit,
)
from kernelmate.source.blocks import block_of, find_pipelines
from kernelmate.source.launch import launch_shape

KERNELS = """
template <int kBlock>
__global__ void partial_sums(const float* x, float* partial, int n) {}

// /// kernelmate
// sizes = [{ count = 3 }]
// grid = 1
// block = 64
// reference = "np.sum(sums).reshape(1)"
// [args]
// sums = "in float32[count]"
// total = "out float32[1]"
// count = "int32"
// ///
__global__ void add_up(const float* sums, float* total, int count) {}

__global__ void scale(float* values, int n, float factor) {}
"""

HEAD = """pipeline = "sum_in_two"
sizes = [{ n = 5000 }, { n = 1 }]
reference = "np.sum(x).reshape(1)"
"""
ARGS = """[args]
x = "in float32[n]"
partial = "scratch float32[cdiv(n, 1024)]"
total = "out float32[1]"
"""
FIRST = """[[stages]]
kernel = "partial_sums<256>"
grid = "cdiv(n, 1024)"
block = 256
"""
SECOND = """[[stages]]
kernel = "add_up"
grid = 1
block = 64
args = { sums = "partial", count = "cdiv(n, 1024)" }
"""
WHOLE = HEAD + ARGS + FIRST + SECOND


def pipeline(toml: str, kernels: str = KERNELS) -> Kernel:
    block = "".join(f"// {line}".rstrip() + "\n" for line in ["/// kernelmate", *toml.splitlines(), "///"])
    (found,) = find_pipelines(text_unit(block + kernels, "sums.cu"))
    return found


def contract(toml: str) -> Contract:
    found = parse_contract(pipeline(toml))
    assert found is not None
    return found


def test_a_pipeline_has_its_outer_arguments_and_its_temporaries_apart() -> None:
    found = contract(WHOLE)
    assert [one.name for one in found.args] == ["x", "total"]
    assert [(one.name, one.shape) for one in found.temporaries] == [("partial", ("cdiv(n, 1024)",))]
    assert (found.grid, found.block, found.reference) == ((), (), "np.sum(x).reshape(1)")


def test_each_stage_takes_arguments_by_name_and_by_its_table() -> None:
    first, second = contract(WHOLE).stages
    assert (first.name, first.instance, first.sources) == ("partial_sums", "partial_sums<256>", ("x", "partial", None))
    assert second.sources == ("partial", "total", None)
    assert [one.direction for one in first.contract.args] == ["in", "out", None]
    assert second.contract.args[2].value == "cdiv(n, 1024)"
    assert launch_shape(first.contract, {"n": 5000}).grid == (5, 1, 1)


def test_a_stage_has_the_reference_of_its_kernels_own_contract() -> None:
    first, second = contract(WHOLE).stages
    assert first.contract.reference is None
    assert second.contract.reference == "np.sum(sums).reshape(1)"
    own = contract(HEAD + ARGS + FIRST + 'reference = "np.add.reduceat(x, np.arange(0, n, 1024))"\n' + SECOND)
    assert own.stages[0].contract.reference_kind == "expression"


def test_a_step_of_a_library_gives_one_array_by_an_expression() -> None:
    text = (
        HEAD
        + ARGS.replace("cdiv(n, 1024)", "n")
        + '[[stages]]\npartial = "x * x"\n'
        + SECOND.replace("cdiv(n, 1024)", "n")
    )
    step = contract(text).stages[0]
    assert (step.name, step.library, step.sources) == ("partial", True, ("x", "partial"))
    assert [one.direction for one in step.contract.args] == ["in", "out"]


def test_a_step_names_a_keyword_of_python_with_an_underscore() -> None:
    text = (
        HEAD + ARGS.replace("cdiv(n, 1024)", "n") + 'lambda = "float32 = 2"\n' + '[[stages]]\npartial = "x * lambda_"\n'
    )
    step = contract(text + SECOND.replace("cdiv(n, 1024)", "n")).stages[0]
    assert [one.name for one in step.contract.args] == ["x", "lambda", "partial"]


def test_a_kernel_that_is_launched_twice_has_two_names_and_works_in_place() -> None:
    again = '[[stages]]\nkernel = "scale"\ngrid = 1\nblock = 32\nargs = { values = "total", n = "1", factor = "2" }\n'
    found = contract(WHOLE + again + again)
    assert [one.name for one in found.stages] == ["partial_sums", "add_up", "scale", "scale #2"]
    assert found.stages[2].contract.args[0].direction == "inout"


def test_an_array_that_the_host_fills_may_be_read_first() -> None:
    cleared = ARGS.replace('1024)]"', '1024)] ~ zeros"')
    assert contract(HEAD + cleared + SECOND).temporaries[0].distribution == "zeros"


def test_the_block_of_a_pipeline_is_nobodys_contract_else() -> None:
    found = pipeline(WHOLE)
    kernels = find_kernels(found.unit)
    assert [parse_contract(one) is not None for one in kernels] == [False, True, False]
    assert block_of(found).pipeline_key == "sum_in_two"
    assert "partial_sums" in found.source
    assert "add_up(const" in found.source
    assert "scale" not in found.source


def test_a_pipeline_is_named_like_a_kernel(tmp_path: Path) -> None:
    file = tmp_path / "sums.cu"
    file.write_text(pipeline(WHOLE).unit.text)
    assert [one.name for one in load_kernels(file)] == ["partial_sums", "add_up", "scale", "sum_in_two"]
    assert load_kernel(f"{file}::sum_in_two").parts
    with pytest.raises(SourceError, match="4 kernels"):
        load_kernel(str(file))


def test_a_block_with_broken_toml_is_still_a_pipeline_with_an_error() -> None:
    broken = pipeline(WHOLE.replace('kernel = "add_up"', "kernel = add_up"))
    assert len(broken.parts) == 1
    with pytest.raises(ContractError, match="not TOML here"):
        parse_contract(broken)


def test_a_candidate_pipeline_takes_the_baselines_arguments() -> None:
    baseline = contract(WHOLE)
    fewer = pipeline(HEAD + ARGS.replace('partial = "scratch float32[cdiv(n, 1024)]"\n', "") + SECOND.replace('"partial"', '"x"').replace("cdiv(n, 1024)", "n"))  # fmt: skip
    merged = parse_contract(fewer, baseline)
    assert len(merged.stages) == 1
    assert merged.temporaries == ()
    other = pipeline(WHOLE.replace('x = "in float32[n]"', 'x = "in float32[n] ~ normal"'))
    with pytest.raises(ContractError, match="are not those of sum_in_two"):
        parse_contract(other, baseline)


MALFORMED = {
    "no stages": (HEAD + ARGS, "The contract has no stages.", 1),
    "stages as one table": (HEAD + "stages = { grid = 1 }\n" + ARGS, "A pipeline needs a list", 5),
    "a grid of its own": (HEAD + "grid = 1\n" + ARGS + FIRST + SECOND, "A pipeline has no grid of its own.", 5),
    "a name in no quotes": (WHOLE.replace('"sum_in_two"', '"sum in two"'), "'sum in two' cannot be the name", 2),
    "the name of a kernel": (WHOLE.replace('"sum_in_two"', '"add_up"'), "add_up is a kernel of this file", 2),
    "an unknown kernel": (WHOLE.replace('"add_up"', '"add_ups"'), "There is no kernel 'add_ups'", 14),
    "a template without arguments": (WHOLE.replace("<256>", ""), "partial_sums is a template", 10),
    "a misspelt key": (WHOLE.replace("block = 64", "blocks = 64"), "'blocks' is not a key of a stage", 16),
    "no block": (WHOLE.replace("block = 64\n", ""), "This stage has no block.", 13),
    "an unknown parameter": (WHOLE.replace("{ sums", "{ sum"), "add_up takes no argument 'sum'", 17),
    "no array for a pointer": (WHOLE.replace('sums = "partial", ', ""), "'sums', which sums takes, is not an array", 13),
    "no value for a scalar": (WHOLE.replace(', count = "cdiv(n, 1024)"', ""), "Nothing says which value count has", 13),
    "another type": (WHOLE.replace("scratch float32", "scratch int32"), "partial holds int32, and partial takes float *", 9),
    "the wrong order": (HEAD + ARGS + SECOND + FIRST, "Stage 1, add_up, reads partial, which no stage", 9),
    "an output that nobody writes": (HEAD + ARGS + FIRST, "No stage writes total.", 8),
    "an unused temporary": (HEAD + ARGS + 'more = "scratch float32[n]"\n' + FIRST + SECOND, "No stage uses more.", 9),
    "a written input": (
        WHOLE + '[[stages]]\nkernel = "scale"\ngrid = 0\nblock = 32\nargs = { values = "total", factor = "1" }\n',
        "grid is 0", 20,
    ),
    "a step without an array": (HEAD + ARGS + '[[stages]]\nsquares = "x * x"\n', "'squares' is not an array that a stage", 10),
    "a step with an unknown name": (HEAD + ARGS + '[[stages]]\npartial = "z * z"\n', "'z' is neither an argument", 10),
    "a step that is empty": (HEAD + ARGS + "[[stages]]\npartial = 3\n", "The expression for partial must be", 10),
    "two steps in one": (HEAD + ARGS + '[[stages]]\npartial = "x"\ntotal = "x"\n', "A stage names a kernel, or gives", 9),
    "a kernel as reference": (WHOLE.replace("block = 64", 'block = 64\nreference = "scale"'), "cannot be compared", 17),
    "args that are no table": (WHOLE.replace('{ sums = "partial", count = "cdiv(n, 1024)" }', '"partial"'), "must be a table", 17),
    "a struct in args": (WHOLE.replace('x = "in float32[n]"', "x = { y = 3 }"), "The entry of x must be a string", 6),
}  # fmt: skip


@pytest.mark.parametrize("name", MALFORMED)
def test_a_mistake_is_reported_at_its_line_with_what_to_write(name: str) -> None:
    toml, message, line = MALFORMED[name]
    with pytest.raises(ContractError) as caught:
        parse_contract(pipeline(toml))
    assert message in caught.value.message
    assert (caught.value.file, caught.value.line) == ("sums.cu", line), caught.value
    assert caught.value.hint


def test_stages_without_a_pipeline_are_a_mistake_of_the_kernels_contract() -> None:
    text = (
        "// /// kernelmate\n// sizes = [{ n = 1 }]\n// [[stages]]\n// grid = 1\n// ///\n__global__ void f(int n) {}\n"
    )
    with pytest.raises(ContractError, match="Only a pipeline has stages"):
        parse_contract(find_kernels(text_unit(text))[0])


def test_an_array_that_is_passed_twice_and_written_is_refused() -> None:
    both = KERNELS + "__global__ void add(const float* from, float* to) {}\n"
    text = WHOLE + '[[stages]]\nkernel = "add"\ngrid = 1\nblock = 1\nargs = { from = "total", to = "total" }\n'
    with pytest.raises(ContractError, match="gets total as to and as from, and writes it"):
        parse_contract(pipeline(text, both))


def test_commands_for_one_kernel_name_the_kernels_of_a_pipeline(tmp_path: Path) -> None:
    file = tmp_path / "sums.cu"
    file.write_text(pipeline(WHOLE).unit.text)
    with pytest.raises(SourceError, match="sum_in_two is a pipeline, and sass takes one kernel") as caught:
        load_single_kernel(f"{file}::sum_in_two", "sass")
    assert caught.value.hint == "Name one of its kernels: partial_sums, add_up."
    assert load_single_kernel(f"{file}::add_up", "sass").name == "add_up"


def test_a_pipeline_is_found_again_after_an_edit_of_its_file() -> None:
    found = pipeline(WHOLE)
    place = found.unit.text.index("__global__ void scale")
    changed = apply_edits(found, [(place, place, "// one line more\n"), (0, 0, "\n")])
    assert (changed.name, changed.line) == (found.name, found.line + 1)
    assert parse_contract(changed).stages == tuple(
        replace(one, contract=replace(one.contract, line=one.contract.line + 1)) for one in contract(WHOLE).stages
    )
