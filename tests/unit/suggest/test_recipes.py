from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernelmate.backends.base import ArrayArgument, Run, ScalarArgument
from kernelmate.backends.emulator import EmulatorBackend
from kernelmate.compiler import compile_kernel, find_target
from kernelmate.errors import KernelmateError
from kernelmate.records import Candidate, CompileOptions, Contract, Kernel, Size
from kernelmate.source import (
    argument_shapes,
    contract_for,
    find_kernels,
    launch_shape,
    load_kernels,
    numpy_dtype,
    read_units,
    scalar_values,
    text_unit,
)
from kernelmate.suggest.base import SuggestRequest
from kernelmate.suggest.recipes import ALL, Recipes

EXAMPLES = sorted((Path(__file__).parents[3] / "examples").glob("*.cu"))
PROMPTS = ("make it faster", "use less shared memory", "less traffic", "increase occupancy", "fewer registers")

TREE = """
// /// kernelmate
// sizes = [{ n = 100 }]
// grid = "1"
// block = 128
// shared = "block * 4"
// [args]
// x = "inout float32[n]"
// n = "int32"
// ///
__global__ void k(float* x, int n) {
  extern __shared__ float s[];
  __shared__ float tile[32][32];
  int t = threadIdx.x;
  s[t] = x[t] * 0.5;
  __syncthreads();
  for (int o = blockDim.x / 2; o > 0; o /= 2) { if (t < o) s[t] += s[t + o]; __syncthreads(); }
  tile[t % 32][t / 32] = s[0];
  x[t] = tile[t / 32][t % 32];
}
"""


def about(kernel: Kernel, ask, counters, prompt: str) -> SuggestRequest:
    """A request about a real kernel, compiled, with conflicts so that every recipe has its chance."""
    contract = contract_for(kernel)
    instance = contract.instances[0] if contract.instances else None
    compiled = compile_kernel(
        kernel, contract.options, instance=instance, target=find_target("H100 SXM"), options=CompileOptions()
    )
    assert compiled.ok
    template = ask(TREE, prompt, counters=counters(bank_conflicts=1000))
    verdict = replace(template.verdict, resources=compiled.resources)
    return replace(template, kernel=kernel, contract=contract, compiled=compiled, verdict=verdict)


NAIVE = sorted((Path(__file__).parents[2] / "data" / "naive").glob("*.cu"))
KERNELS = [kernel for path in (*EXAMPLES, *NAIVE) for kernel in load_kernels(path)]


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.name)
def test_every_candidate_compiles_and_launches(kernel: Kernel, ask, counters) -> None:
    seen: set[str] = set()
    for prompt in PROMPTS:
        request = about(kernel, ask, counters, prompt)
        for candidate in Recipes().propose(request):
            text = candidate.kernel.unit.text
            assert (text, candidate.contract) != (kernel.unit.text, request.contract)
            assert candidate.why.endswith(".")
            for size in candidate.contract.sizes:
                assert launch_shape(candidate.contract, size).threads <= 1024
            if candidate.author == "recipe:block-size" or text in seen:
                continue
            seen.add(text)
            instance = request.compiled.instance
            compiled = compile_kernel(
                candidate.kernel,
                candidate.contract.options,
                instance=instance,
                target=request.target,
                options=CompileOptions(),
            )
            assert compiled.ok, (candidate.author, compiled.diagnostics)


def run(kernel: Kernel, contract: Contract, request: SuggestRequest, size: Size) -> dict[str, np.ndarray]:
    """Returns the arrays after one launch on the emulator, from the same inputs for every version."""
    compiled = compile_kernel(
        kernel, contract.options, instance=request.compiled.instance, target=request.target, options=CompileOptions()
    )
    assert compiled.ok, compiled.diagnostics
    random = np.random.default_rng(0)
    scalars = scalar_values(contract, size)
    arguments: list[ArrayArgument | ScalarArgument] = []
    for argument in contract.args:
        dtype = numpy_dtype(argument.dtype)
        if argument.shape is None:
            arguments.append(ScalarArgument(argument.name, dtype.type(scalars[argument.name])))
            continue
        shape = argument_shapes(contract, size)[argument.name]
        whole = np.zeros(shape, dtype) if dtype.kind in "iu" else random.uniform(0.1, 1, shape).astype(dtype)
        arguments.append(ArrayArgument(argument.name, whole, written=argument.direction != "in"))
    launch = Run(launch_shape(contract, size), tuple(arguments), check=True)
    result = EmulatorBackend().load(compiled, request.target).run(launch)
    assert not [finding for finding in result.findings if finding.severity == "error"], result.findings
    return dict(result.arrays)


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.name)
def test_every_candidate_computes_what_the_baseline_does(kernel: Kernel, ask, counters) -> None:
    for prompt in ("make it faster", "use less shared memory"):
        request = about(kernel, ask, counters, prompt)
        for size in request.contract.sizes[1:2]:
            wanted = run(kernel, request.contract, request, size)
            proposed = list(Recipes().propose(request))
            blocks = [candidate for candidate in proposed if candidate.author == "recipe:block-size"]
            for candidate in [one for one in proposed if one not in blocks] + blocks[:1] + blocks[-1:]:
                got = run(candidate.kernel, candidate.contract, request, size)
                for name, values in wanted.items():
                    same = np.allclose(got[name].astype(float), values.astype(float), rtol=1e-3, atol=1e-4)
                    assert same, (candidate.author, candidate.why, name)


def candidates(request: SuggestRequest) -> list[Candidate]:
    return list(Recipes().propose(request))


def test_only_recipes_for_the_asked_metric_are_offered(ask, counters) -> None:
    request = ask(TREE, "use less shared memory", ptx=".f64", counters=counters(bank_conflicts=9))
    assert {candidate.author for candidate in candidates(request)} == {"recipe:warp-reduction", "recipe:block-size"}


def test_no_candidate_comes_twice(ask, counters) -> None:
    found = candidates(ask(TREE, ptx=".f64", counters=counters(bank_conflicts=9)))
    keys = [(candidate.kernel.unit.text, candidate.contract) for candidate in found]
    assert all(one not in keys[:index] for index, one in enumerate(keys))
    assert {candidate.author for candidate in found} == {
        "recipe:block-size",
        "recipe:divide",
        "recipe:float-literals",
        "recipe:pad-shared-tile",
        "recipe:warp-reduction",
    }


def test_nothing_more_is_proposed_once_the_user_stops(ask) -> None:
    request = ask(TREE)
    assert list(Recipes().propose(replace(request, stop=lambda: True))) == []


def test_names_are_kebab_case_and_unique() -> None:
    names = [recipe.name for recipe in ALL]
    assert len(set(names)) == len(names)
    assert all(name.replace("-", "").islower() for name in names)


def test_a_kernel_in_a_python_string_is_changed_in_its_file(tmp_path, ask) -> None:
    path = tmp_path / "kernels.py"
    block, code = TREE.strip().split("__global__")
    block = re.sub("^//", "#", block, flags=re.MULTILINE)
    path.write_text(f'import cupy\n{block}k = cupy.RawKernel(r"""\nextern "C" __global__{code}\n""", "k")\n')
    (unit,) = read_units(path)
    (kernel,) = find_kernels(unit)
    request = replace(ask(TREE), kernel=kernel, contract=contract_for(kernel))
    found = candidates(request)
    assert not request.contract.inferred
    assert found
    assert all(candidate.kernel.unit.file_text != unit.file_text for candidate in found)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_half_typed_text_never_raises(data) -> None:
    start = data.draw(st.integers(TREE.index("__global__"), len(TREE)))
    end = data.draw(st.integers(start, len(TREE)))
    noise = data.draw(st.text(alphabet="{}()[];*&<>=+-.,\"'#/\\ \nxst0 é", max_size=8))
    kernels = find_kernels(text_unit(TREE[:start] + noise + TREE[end:]))
    original = find_kernels(text_unit(TREE))[0]
    for kernel in kernels:
        request = _bare_request(kernel, original)
        for candidate in Recipes().propose(request):
            assert candidate.kernel.name == kernel.name


def _bare_request(kernel: Kernel, original: Kernel) -> SuggestRequest:
    from kernelmate.records import Compiled, Counters, Objective, Occupancy, Resources, Verdict

    known = Counters("emulated", 1, 1, 1, 1, 0, 1, 1, 1, 1000, None, 0, 0)
    resources = Resources(32, 4096, 0, 0, 0, 1024, 2048)
    verdict = Verdict(
        "k", None, "emulator", "H100 SXM", "sm_90", "", None, 0, True, (), resources, Occupancy(0.5, "threads", 4, 1.0),
        True, (), (), None, None, known, None, None, (),
    )  # fmt: skip

    def judge(candidate: Candidate) -> object:
        raise KernelmateError(f"not asked for: {candidate}")

    return SuggestRequest(
        kernel=kernel,
        contract=contract_for(original),
        compiled=Compiled("k", None, "k", "sm_90", "", True, (), ".f64"),
        verdict=verdict,
        objective=Objective("time", "decrease", "faster", "Read as: less time per launch."),
        target=find_target("H100 SXM"),
        judge=judge,  # type: ignore[arg-type]
        versions=lambda: (),
        stop=lambda: False,
    )


def test_the_documentation_names_every_recipe_with_what_it_is_for() -> None:
    text = (Path(__file__).parents[3] / "docs" / "recipes.md").read_text()
    rows = {row.split("`")[1]: row for row in text.splitlines() if row.startswith("| `")}
    assert set(rows) == {recipe.name for recipe in ALL}
    words = {"time": "time", "shared_bytes": "shared memory", "registers": "registers", "occupancy": "occupancy"}
    for recipe in ALL:
        purpose = rows[recipe.name].split("|")[3]
        assert all(words[metric] in purpose for metric in recipe.metrics if metric in words), recipe.name


def test_there_are_at_least_eighteen_recipes_of_different_names() -> None:
    assert len({recipe.name for recipe in ALL}) == len(ALL) >= 18
