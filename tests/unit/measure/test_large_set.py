"""The kernels at large sizes, their edits, the sessions that measure them, and the arithmetic that tolerances are held against."""

from __future__ import annotations

import secrets
from pathlib import Path

import numpy as np
import pytest

from benchmarks import tolerance_variants as variants
from benchmarks.large_set import EXAMPLES, LARGE, copy_of, listed, write_edited
from benchmarks.tolerance_study import SIZES, Problem, contract_of
from benchmarks.tree_session import ROOT, TreeSession, command
from kernelmate.checks.inputs import draw
from kernelmate.checks.precision import is_inexact
from kernelmate.checks.reference import python_reference
from kernelmate.checks.styles import NORMAL
from kernelmate.config import load_settings
from kernelmate.session import Session
from kernelmate.source import load_kernel, numpy_dtype

LONG = {"attention", "matmul", "nbody"}
"""Kernels of small arrays whose launch takes a millisecond or more."""

KERNELS = [pytest.param(one, id=one.stem) for one in listed(LARGE)]


@pytest.mark.parametrize("one", KERNELS)
def test_headlines_are_large_and_another_size_is_small(one) -> None:
    assert one.stem in LONG or 64e6 <= one.array_bytes() <= 2**29
    assert 0 < one.array_bytes(one.sizes("small")[0]) < 2**21


@pytest.mark.parametrize("one", KERNELS)
def test_references_fit_their_contracts_at_small_sizes(one) -> None:
    reference = python_reference(one.contract, LARGE)
    assert reference is not None
    for size in one.sizes("small"):
        want = reference(draw(one.contract, size, (1,), NORMAL, LARGE), size)
        assert all(np.isfinite(array).all() for array in want.values())


def test_every_kernel_with_floating_outputs_is_in_the_study_of_tolerances() -> None:
    floating = {
        one.stem
        for one in listed(LARGE)
        if any(
            a.direction != "in" and a.shape is not None and is_inexact(numpy_dtype(a.dtype)) for a in one.contract.args
        )
    }
    assert floating == SIZES.keys()


@pytest.mark.parametrize(("folder", "name"), [(LARGE, "transpose"), (EXAMPLES, "layernorm"), (EXAMPLES, "swiglu")])
def test_each_edit_of_a_kernel_is_another_binary(folder: Path, name: str, tmp_path: Path) -> None:
    (one,) = listed(folder, [name])
    copied = copy_of(folder, tmp_path)
    with Session(load_settings(backend="emulator", cache_dir=str(tmp_path), history=False)) as session:
        verdicts = [session.check(load_kernel(write_edited(one, copied)))[0] for _ in range(3)]
    assert all(verdict.compiled for verdict in verdicts)
    assert len({verdict.binary for verdict in verdicts}) == 3


def test_a_tree_session_judges_and_searches_and_outlives_a_request_over_its_limit(tmp_path: Path) -> None:
    (one,) = listed(LARGE, ["saxpy"])
    spec = write_edited(one, copy_of(LARGE, tmp_path))
    request = {"spec": spec, "sizes": [{"n": 1000}], "seed": secrets.randbits(31)}
    with TreeSession(ROOT, {"backend": "emulator"}, tmp_path / "caches") as session:
        verdict = session.ask(120, do="bench", **request)
        assert verdict["correct"] is True
        assert verdict["stages"].keys() >= {"session", "reference", "cases"}
        assert session.ask(0, do="bench", **request) == {"error": "over 0 s"}
        found = session.ask(120, do="optimize", prompt="make it faster", budget_s=30, **request)
        assert found["binaries"] >= found["candidates"] > 0
        assert "no.cu" in session.ask(120, do="bench", **request | {"spec": "no.cu"})["error"]


def test_a_command_of_a_tree_says_what_it_printed_or_why_it_failed(tmp_path: Path) -> None:
    assert command(ROOT, tmp_path / "caches", ["targets"], 120)["out"]
    assert "no.cu" in command(ROOT, tmp_path / "caches", ["check", "no.cu"], 120)["error"]


def terms(count: int) -> list[tuple[np.ndarray, np.ndarray]]:
    numbers = np.random.default_rng(3).integers(-8, 9, (2, count, 5)).astype(np.float32)
    return list(zip(*numbers, strict=True))


@pytest.mark.parametrize("total", variants.HONEST, ids=lambda total: total.__name__)
@pytest.mark.parametrize("count", [1, 2, 33, 100])
def test_honest_sums_are_exact_on_small_integers(total, count: int) -> None:
    some = terms(count)
    assert (total(some) == sum(a * b for a, b in some)).all()


def test_float16_and_float32_counters_stop_where_ones_no_longer_count() -> None:
    ones = [(np.ones(1, np.float32), np.float32(1))] * 2100
    assert variants.float16_accumulator(ones) == 2048
    assert variants.saturating([(np.full(1, 2.0**24, np.float32), np.float32(1))] * 2) == 2**24


def test_tf32_has_ten_bits_after_the_leading_one() -> None:
    given = np.array([1 + 2.0**-10, 1 + 2.0**-12, 1 + 2.0**-11, -(1 + 3 * 2.0**-12), 0.0], np.float32)
    assert variants.to_tf32(given).tolist() == [1 + 2.0**-10, 1.0, 1 + 2.0**-10, -(1 + 2.0**-10), 0.0]


@pytest.mark.parametrize("workload", variants.WORKLOADS, ids=lambda workload: workload.name)
def test_variants_compute_what_the_reference_says(workload) -> None:
    problem = Problem(contract_of(workload), workload.base)
    got = workload.run(problem.arrays, variants.tree)
    for name, want in problem.want.items():
        np.testing.assert_allclose(got[name], want, rtol=1e-4, atol=1e-4)
