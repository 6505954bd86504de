"""Removed barriers, bounds that are off by one and swapped indices are detected in every kernel."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
from mutants import Court, Mutant, NotAProgram, mutants_of, without_order

from kernelmate.source import load_kernels

HERE = Path(__file__).resolve().parent
EXAMPLES = HERE.parents[1] / "examples"
FILES = [*sorted(EXAMPLES.glob("*.cu")), EXAMPLES / "rawkernel.py", *sorted((HERE / "kernels").glob("*.cu"))]
KERNELS = [kernel for path in FILES for kernel in load_kernels(path)]
REDUNDANT = {
    f"{entry['kernel']}: {change}": entry["why"]
    for entry in tomllib.loads((HERE / "redundant.toml").read_text())["redundant"]
    for change in entry["changes"]
}


def judged(context: Court, mutant: Mutant) -> str | None:
    try:
        return context.judge(mutant).code
    except NotAProgram:
        return "does not compile"


@pytest.mark.exhaustive(share=0.1)
@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.name)
def test_a_kernel_is_clean_and_its_mutants_are_noticed(kernel) -> None:
    context = Court(kernel)
    assert context.findings == []
    assert context.sizes
    unnoticed = {mutant.key for mutant in mutants_of(kernel) if judged(context, mutant) is None}
    assert unnoticed == {key for key in REDUNDANT if key.startswith(f"{kernel.name}: ")}


def test_every_barrier_fence_and_wait_in_the_texts_is_among_the_mutants() -> None:
    orders = {kernel.name: len(list(without_order(kernel))) for kernel in KERNELS}
    assert sum(orders.values()) >= 50
    for kernel in KERNELS:
        text = kernel.source
        for word in ("__syncthreads();", "__syncwarp(", "__threadfence", ".sync();"):
            assert orders[kernel.name] >= text.count(word), (kernel.name, word)


def test_what_is_listed_as_redundant_has_a_reason_and_names_a_kernel() -> None:
    names = {kernel.name for kernel in KERNELS}
    assert all(key.split(":")[0] in names for key in REDUNDANT)
    assert all(len(why) > 40 for why in REDUNDANT.values())
