"""The variants that predictions are held against do the same work, whatever their macros say."""

from __future__ import annotations

from collections import defaultdict
from functools import lru_cache

import numpy as np
import pytest

from benchmarks.variant_set import Variant, run_arguments, variants
from kernelmate.backends.base import Run
from kernelmate.backends.emulator import EmulatorBackend
from kernelmate.compiler import find_target

SMALL = {
    "axpby": {"n": 4096}, "convolution": {"n": 2100}, "gather": {"tokens": 70, "dim": 64, "words": 50},
    "gelu": {"n": 4096}, "gemv": {"rows": 70, "cols": 128}, "histogram": {"n": 3000}, "layout": {"n": 300},
    "matmul": {"m": 128, "n": 128, "k": 32}, "nbody": {"n": 512}, "reduce": {"n": 5000}, "scan": {"rows": 3},
    "softmax": {"rows": 5, "cols": 200}, "stencil": {"h": 40, "w": 70}, "transpose": {"rows": 70, "cols": 40},
}  # fmt: skip


@lru_cache
def of_family(family: str) -> tuple[Variant, ...]:
    return tuple(variants([family], SMALL[family]))


def outputs(variant: Variant) -> dict[str, np.ndarray]:
    target = find_target("H100 SXM")
    described = variant.arguments()
    result = (
        EmulatorBackend()
        .load(variant.compile(target), target)
        .run(Run(variant.shape, run_arguments(described), check=True))
    )
    assert not result.findings, (variant.name, result.findings)
    return {
        item["name"]: result.arrays[item["name"]] for item in described if item.get("direction") in ("out", "inout")
    }


def test_every_file_is_tried() -> None:
    assert {variant.family for variant in variants()} == set(SMALL)
    assert len(list(variants())) >= 48


@pytest.mark.parametrize("family", sorted(SMALL))
def test_variants_of_a_family_give_the_same_answer(family: str) -> None:
    # What `layout_arrays` reads is laid out otherwise, so its data are others.
    answers: dict[bool, list[tuple[str, dict[str, np.ndarray]]]] = defaultdict(list)
    for variant in of_family(family):
        answers[variant.kernel.name == "layout_arrays"].append((variant.name, outputs(variant)))
    for alike in answers.values():
        _, first = alike[0]
        for name, other in alike:
            for output, wanted in first.items():
                assert np.any(wanted), name
                np.testing.assert_allclose(other[output], wanted, rtol=2e-5, atol=2e-6, err_msg=name)


def test_names_are_unique() -> None:
    names = [variant.name for variant in variants()]
    assert len(set(names)) == len(names)
