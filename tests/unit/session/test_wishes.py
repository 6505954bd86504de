"""Conditions that a prompt sets beside its metric, enforced from end to end on the emulator."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kernelmate.config import load_settings
from kernelmate.errors import UsageError
from kernelmate.records import Kernel, Objective
from kernelmate.session import Session
from kernelmate.suggest.composition import Composition
from kernelmate.suggest.recipes import launch_bounds
from kernelmate.suggest.synthesis import Synthesis
from tests.launched import ROWS

TOTAL = """\
// /// kernelmate
// sizes = [{ n = 4096 }, { n = 77 }]
// grid = "cdiv(n, block)"
// block = 128
// reference = "y + x.sum()"
// [args]
// x = "in float32[n] ~ uniform(0, 1)"
// y = "inout float32[1] ~ zeros"
// n = "int32"
// ///
__global__ void total(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) atomicAdd(y, x[i]);
}
"""

PRODUCTS = """\
// /// kernelmate
// sizes = [{ n = 512 }, { n = 77 }]
// grid = "cdiv(n, block)"
// block = 128
// reference = "reference.py:products"
// [args]
// x = "in float32[n] ~ uniform(0, 1)"
// y = "out float32[n]"
// n = "int32"
// ///
__global__ void products(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float a[40];
#pragma unroll
    for (int j = 0; j < 40; ++j) a[j] = x[(i + j * 13) % n];
    float s = 0.0f;
#pragma unroll
    for (int j = 0; j < 40; ++j) s += a[j] * a[39 - j];
    y[i] = s;
}
"""

REFERENCE = """\
import numpy as np


def products(x):
    a = [np.roll(x, -13 * j) for j in range(40)]
    return sum(a[j] * a[39 - j] for j in range(40))
"""

Load = Callable[..., Kernel]


@pytest.fixture(scope="module")
def emulated() -> Iterator[Session]:
    with Session(load_settings(seed=3, backend="emulator", timeout_s=300)) as session:
        yield session


def test_the_structure_that_was_asked_for_comes_first(emulated: Session, load: Load) -> None:
    for prompt, author in (
        ("one warp per row", "synthesis:rows-warp"),
        ("use one block per row", "synthesis:rows-block-64"),
    ):
        found = emulated.optimize(load(ROWS), prompt, suggesters=(Synthesis(),))
        assert found.best == 0
        assert found.candidates[0].candidate.author == author
        assert found.candidates[0].verdict.correct is True
        assert all(re.search(author.partition(":")[2][:10], one.candidate.author) for one in found.candidates)


def test_structure_that_nothing_proposes_is_told(emulated: Session, load: Load) -> None:
    found = emulated.optimize(load(ROWS), "use tensor cores", suggesters=(Synthesis(),), max_candidates=1)
    assert "No recipe or schedule proposed for this kernel: tensor cores." in found.notes
    assert (found.candidates, found.best) == ((), None), "what has it not is no answer"
    faster = emulated.optimize(load(ROWS), "faster, use tensor cores", suggesters=(Synthesis(),), max_candidates=1)
    assert faster.candidates, "a metric besides is worth an answer of its own"


def test_structure_that_is_denied_is_not_tried(emulated: Session, load: Load) -> None:
    found = emulated.optimize(load(ROWS), "make it faster, but not one warp per row", suggesters=(Synthesis(),))
    assert [one.candidate.author for one in found.candidates] == ["synthesis:rows-block-64"]


def test_a_version_with_too_many_registers_is_rejected_and_says_so(emulated: Session, load: Load) -> None:
    found = emulated.optimize(load(ROWS), "make it faster with at most 12 registers", suggesters=(Synthesis(),))
    assert found.best is None
    assert found.candidates
    for one in found.candidates:
        resources = one.verdict.resources
        assert resources is not None
        assert one.verdict.reasons[0] == f"asked for at most 12 registers, has {resources.registers}"
        assert one.verdict.accepted is False
    assert "No proposed version meets: at most 12 registers." in found.notes


def test_a_bound_is_what_the_compiler_is_told(emulated: Session, load: Load) -> None:
    Path("reference.py").write_text(REFERENCE)
    found = emulated.optimize(
        load(PRODUCTS), "at most 40 registers", suggesters=(Composition((launch_bounds.RECIPE,)),), max_candidates=1
    )
    (one,) = found.candidates
    assert "__maxnreg__(40)" in one.candidate.kernel.unit.text
    assert one.verdict.resources is not None
    assert one.verdict.resources.registers <= 40
    assert not any(why.startswith("asked for") for why in one.verdict.reasons)


def test_launches_in_other_files_follow_a_candidate_and_those_that_cannot_are_named(
    emulated: Session, load: Load
) -> None:
    kernel = load(ROWS)
    folder = Path(kernel.unit.path).parent
    (folder / "pyproject.toml").touch()
    (folder / "copy.cu").write_text(ROWS + "void run() { row_sum<<<4, 128>>>(0, 0, 512, 256); }\n")
    (folder / "main.cu").write_text(
        f'#include "{Path(kernel.unit.path).name}"\nint main() {{\n    row_sum<<<4, 128>>>(0, 0, 512, 256);\n}}\n'
    )
    found = emulated.optimize(kernel, "one warp per row", suggesters=(Synthesis(),), max_candidates=1)
    (one,) = found.candidates
    (change,) = one.candidate.other_files
    assert (Path(change.path).name, change.lines) == ("main.cu", (3,))
    assert change.before.count("<<<4, 128>>>") == 1
    assert "<<<4, 128>>>" not in change.after
    assert "row_sum<<<" in change.after
    assert not any("launches it as before" in why for why in one.verdict.reasons)
    (folder / "main.cu").write_text("void run(Arguments a) {\n    row_sum<<<4, 128>>>(PASSED(a));\n}\n")
    found = emulated.optimize(kernel, "one warp per row", suggesters=(Synthesis(),), max_candidates=1)
    (one,) = found.candidates
    assert one.candidate.other_files == ()
    assert one.verdict.reasons[0] == "its launch differs, and main.cu:2 still launches it as before: change that too"
    assert one.verdict.accepted is None
    same = emulated.optimize(kernel, "faster, same launch", suggesters=(Composition(),), max_candidates=1)
    assert not any("main.cu" in why for one in same.candidates for why in one.verdict.reasons)


def test_with_a_fixed_block_or_launch_only_versions_that_keep_it_are_proposed(emulated: Session, load: Load) -> None:
    kept = emulated.optimize(load(ROWS), "make it faster, keep block 128")
    assert kept.candidates
    assert {one.candidate.contract.block for one in kept.candidates} == {("128",)}
    assert not any(why.startswith("asked for") for one in kept.candidates for why in one.verdict.reasons)
    other = emulated.optimize(load(ROWS), "make it faster without changing the launch", suggesters=(Synthesis(),))
    assert other.candidates == ()
    assert "No proposed version meets: the launch unchanged." in other.notes


def test_a_version_below_the_occupancy_that_was_asked_for_is_rejected_and_says_so(
    emulated: Session, load: Load
) -> None:
    Path("reference.py").write_text(REFERENCE)
    recipe = Composition((launch_bounds.RECIPE,))
    found = emulated.optimize(load(PRODUCTS), "at least 75% occupancy", suggesters=(recipe,), max_candidates=3)
    assert found.objective.metric == "occupancy"
    shares = {}
    for one in found.candidates:
        assert one.verdict.occupancy is not None
        share = shares[one.candidate.author, one.candidate.why] = one.verdict.occupancy.theoretical
        reason = f"asked for at least 75% occupancy, has {share:.0%}"
        assert (reason in one.verdict.reasons) is (share < 0.75)
    assert found.baseline.occupancy is not None
    assert max(shares.values()) >= 0.75 > found.baseline.occupancy.theoretical


def test_without_atomics_only_versions_without_them_are_taken(emulated: Session, load: Load) -> None:
    found = emulated.optimize(load(TOTAL), "get rid of the atomics", suggesters=(Synthesis(),))
    assert found.best == 0
    standing = {one.candidate.author: one.verdict.accepted for one in found.candidates}
    assert standing == {"synthesis:total": None, "synthesis:total-atomic": False}
    assert found.candidates[1].verdict.reasons[0].startswith("asked for no atomics, has ")


def test_what_the_kernel_holds_to_already_starts_no_search(emulated: Session, load: Load) -> None:
    found = emulated.optimize(load(ROWS), "no atomics", suggesters=(Synthesis(),))
    assert found.candidates == ()
    assert found.notes == ("The kernel already meets what was asked for (no atomics), so nothing was tried.",)


def test_a_size_in_the_prompt_decides(emulated: Session, load: Load) -> None:
    found = emulated.optimize(
        load(ROWS), "as fast as possible at rows = 8", suggesters=(Synthesis(),), max_candidates=1
    )
    cases = found.candidates[0].verdict.cases
    weights = {tuple(case.size.items()): case.weight for case in cases if case.weight is not None}
    assert weights == {
        (("rows", 8), ("cols", 256)): 1.0,
        (("rows", 512), ("cols", 256)): 0.0,
        (("rows", 5), ("cols", 131)): 0.0,
    }
    with pytest.raises(UsageError, match="names the size heads"):
        emulated.optimize(load(ROWS), "faster at heads = 8", suggesters=(Synthesis(),))


def test_how_the_prompt_was_read_is_told_before_anything_is_tried(emulated: Session, load: Load) -> None:
    told: list[Objective | str] = []
    emulated.optimize(
        load(ROWS), "make it faster without atomics, and paint it blue", suggesters=(Synthesis(),), max_candidates=1,
        on_begun=lambda begun: told.append(begun.objective), on_judged=lambda one: told.append(one.candidate.author),
    )  # fmt: skip
    assert isinstance(told[0], Objective)
    assert told[0].reading.endswith("Must hold: no atomics. Not understood: 'paint it blue'.")
    assert len(told) == 2


def test_a_prompt_that_is_not_understood_starts_nothing(emulated: Session, load: Load) -> None:
    with pytest.raises(UsageError, match="Nothing in the prompt was understood"):
        emulated.optimize(load(ROWS), "paint it blue")
