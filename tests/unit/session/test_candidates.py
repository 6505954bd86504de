"""Reasons of candidates: kernels that are compared with the changed one are named."""

from __future__ import annotations

import pytest

from kernelmate.records import Candidate, Kernel
from kernelmate.session.candidates import with_dependents
from kernelmate.source import apply_edits, contract_for, find_kernels, text_unit
from kernelmate.source.blocks import compared_with

CONTRACT = '// /// kernelmate\n// sizes = [{{ n = 1 }}]\n// grid = 1\n// block = 1\n// reference = "{}"\n// [args]\n// x = "inout float32[n]"\n// ///\n'
FILE = (
    CONTRACT.format("x * 2")
    + "__global__ void naive(float* x) { x[0] *= 2; }\n"
    + CONTRACT.format("naive")
    + "__global__ void tiled(float* x) { x[0] = 2 * x[0]; }\n"
    + CONTRACT.format("naive")
    + "__global__ void packed(float* x) { x[0] += x[0]; }\n"
)


def kernel_of(name: str) -> Kernel:
    return next(one for one in find_kernels(text_unit(FILE, "k.cu")) if one.name == name)


def changed(kernel: Kernel) -> Candidate:
    new = apply_edits(kernel, [(kernel.end - 1, kernel.end - 1, " ")])
    return Candidate("recipe:unroll", "It is unrolled.", new, contract_for(kernel))


@pytest.mark.parametrize(("name", "others"), [("naive", ("tiled", "packed")), ("tiled", ()), ("packed", ())])
def test_kernels_with_another_as_their_reference_are_found(name: str, others: tuple[str, ...]) -> None:
    assert compared_with(kernel_of(name)) == others


def test_a_changed_reference_of_other_kernels_is_told_once() -> None:
    kernel = kernel_of("naive")
    once = with_dependents(kernel, changed(kernel))
    said = "naive is the reference with which the results of tiled and packed are compared."
    assert once.why == f"It is unrolled. {said}"
    assert with_dependents(kernel, once) == once


def test_a_kernel_that_is_no_reference_needs_no_word() -> None:
    kernel = kernel_of("tiled")
    assert with_dependents(kernel, changed(kernel)) == changed(kernel)
