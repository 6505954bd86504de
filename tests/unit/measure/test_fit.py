"""The stored fit says where it comes from, and orders variants as the GPU did."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from benchmarks import prediction
from benchmarks.prediction_fit import START, Timed, at, fitted, held_out, score
from kernelmate.measure.predict import FittedConstants, estimate, launch_facts, stored, stored_fit
from kernelmate.measure.statistics import MODEL_FACTOR, RATIO_FACTOR

DATA = Path(prediction.__file__).parent / "data"
FAMILIES = ("gather", "gemv", "histogram", "layout", "transpose")
"""Quick to emulate; the report of `benchmarks.prediction` takes all."""


@pytest.fixture(scope="module")
def timed() -> list[Timed]:
    measured = json.loads((DATA / "variants_h100.json").read_text())
    rows = [row for row in measured["variants"] if row["name"].split("/")[0] in FAMILIES]
    return prediction.emulated(measured | {"variants": rows})


def test_the_fit_names_its_gpu_its_launches_and_its_error() -> None:
    provenance, error = stored()["provenance"], stored()["error"]
    assert provenance["device"].startswith("NVIDIA H100")
    assert provenance["launches"] >= 40
    assert provenance["command"].startswith("python -m benchmarks.prediction")
    assert error["pairs_in_order"] <= error["pairs"]
    assert error["called_right"] <= error["called"] <= error["pairs"]
    assert all(value > 0 for value in asdict(stored_fit()).values())


def test_the_goal_is_met_on_families_held_out_from_the_fit_wherever_it_starts() -> None:
    error = stored()["error"]
    assert error["pairs_in_order"] >= 0.85 * error["pairs"]
    assert min(error["pairs_in_order_from_other_starts"]) >= 0.85 * error["pairs"]


def test_the_stated_intervals_are_no_narrower_than_the_error_on_held_out_families() -> None:
    error = stored()["error"]
    assert error["time"]["95%"] <= MODEL_FACTOR
    assert error["called_beyond"] == RATIO_FACTOR >= error["ratio"]["95%"]
    assert error["called"] - error["called_right"] <= 0.025 * error["called"]


def test_variants_are_ordered_as_on_the_gpu(timed: list[Timed]) -> None:
    found = score(timed, [estimate(one.launch, stored_fit()).warm_us for one in timed], RATIO_FACTOR)
    assert found.pairs > 150
    assert found.right >= 0.85 * found.pairs
    assert max(found.regrets.values()) <= 1.3


def test_a_fit_finds_back_what_made_the_times(timed: list[Timed]) -> None:
    truth = replace(START, l2_bytes=START.l2_bytes * 1.2, block_rate=START.block_rate * 0.85)
    made = [replace(one, measured_us=estimate(one.launch, truth).warm_us) for one in timed]
    found = fitted(made, START, prior=10.0)

    def error(fit: FittedConstants) -> float:
        return sum(abs(math.log(estimate(one.launch, fit).warm_us / one.measured_us)) for one in made)

    assert error(found) < 0.1 * error(START)
    assert found.l2_bytes == pytest.approx(truth.l2_bytes, rel=0.02)
    assert found.block_rate == pytest.approx(truth.block_rate, rel=0.02)


def test_a_held_out_family_does_not_move_its_own_fit(timed: list[Timed]) -> None:
    few = [one for one in timed if one.family in {"gemv", "layout"}]
    spoilt = [replace(one, measured_us=one.measured_us * 5) if one.family == "gemv" else one for one in few]
    for one, before, after in zip(few, held_out(few, START), held_out(spoilt, START), strict=True):
        assert (before == after) == (one.family == "gemv")


def test_scores_count_pairs_within_families_that_really_differ(h100, compiled, shape, ran) -> None:
    launch = launch_facts(h100, compiled(), shape(32), ran(32))
    times = [("a", 1.0), ("a", 2.0), ("a", 2.1), ("b", 4.0)]
    made = [Timed(family, str(number), launch, time) for number, (family, time) in enumerate(times)]
    found = score(made, [1.0, 1.2, 0.9, 9.0], factor=1.15)
    assert (found.pairs, found.right) == (2, 1)  # 2.0 and 2.1 are no pair, nor is anything across families
    assert (found.undecided, found.decided_right) == (1, 1)
    assert found.regrets == {"a": 2.1, "b": 1.0}
    assert at(found.errors, 0.0) == 1.0
