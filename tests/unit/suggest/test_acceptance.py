from __future__ import annotations

from dataclasses import replace

import pytest

from kernelmate.records import LaunchShape, SizeMetrics, Speedup
from kernelmate.suggest.acceptance import DEFAULT_LIMITS, NOISE, decide
from kernelmate.suggest.metrics import METRICS
from kernelmate.suggest.objective import read_objective

SHARED = read_objective("use less shared memory")
FASTER = read_objective("make it faster")


def test_without_an_objective_right_is_enough(verdict) -> None:
    assert decide(None, None, verdict()).accepted is True
    assert decide(None, None, verdict(error="wrong-values")).accepted is False


def test_without_a_reference_nothing_is_accepted_and_nothing_rejected(verdict) -> None:
    decision = decide(None, None, verdict(correct=None))
    assert decision.accepted is None
    assert "reference" in decision.reasons[0]


def test_a_guessed_contract_never_leads_to_acceptance(verdict) -> None:
    decision = decide(SHARED, verdict(), verdict(shared_bytes=0), inferred=True)
    assert decision.accepted is None
    assert decision.objective is not None
    assert decision.objective.met is True


def test_a_counted_gain_is_accepted_without_a_gpu(verdict) -> None:
    decision = decide(SHARED, verdict(time_us=10), verdict(shared_bytes=2048, time_us=10))
    assert decision.accepted is True
    assert decision.reasons == ()
    assert decision.objective is not None
    assert (decision.objective.basis, decision.objective.before, decision.objective.after) == ("counted", 4096, 2048)


def test_a_gain_does_not_outweigh_a_finding(verdict) -> None:
    decision = decide(SHARED, verdict(), verdict(shared_bytes=0, error="shared-race"))
    assert decision.accepted is False
    assert decision.reasons[0].startswith("shared-race")


def test_what_was_asked_for_must_improve(verdict) -> None:
    decision = decide(SHARED, verdict(), verdict())
    assert decision.accepted is False
    assert decision.objective is not None
    assert decision.objective.met is False
    assert "4096 bytes before, 4096 bytes after" in decision.reasons[0]


def test_an_unknown_metric_decides_nothing(verdict) -> None:
    decision = decide(read_objective("less traffic"), verdict(), verdict(counters=None))
    assert decision.accepted is False
    assert decision.objective is not None
    assert decision.objective.met is None


def test_a_saving_that_costs_clearly_more_time_is_refused(verdict) -> None:
    decision = decide(SHARED, verdict(time_us=10), verdict(shared_bytes=0, time_us=30))
    assert decision.accepted is False
    assert "slower" in decision.reasons[0]


def test_a_small_loss_of_predicted_time_is_said_and_not_held_against_it(verdict) -> None:
    decision = decide(SHARED, verdict(time_us=10), verdict(shared_bytes=0, time_us=10.5))
    assert decision.accepted is True
    assert any("trade-off" in reason for reason in decision.reasons)


def test_without_losing_speed_is_a_limit_of_its_own(verdict) -> None:
    objective = read_objective("less shared memory without more registers")
    assert decide(objective, verdict(), verdict(shared_bytes=0, registers=33)).accepted is False
    assert decide(SHARED, verdict(), verdict(shared_bytes=0, registers=33)).accepted is True


@pytest.mark.parametrize("worse", [{"local_bytes": 8}, {"occupancy": 0.4}])
def test_a_counted_saving_may_not_move_the_cost_elsewhere(verdict, worse) -> None:
    assert decide(SHARED, verdict(), verdict(shared_bytes=0, **worse)).accepted is False


def test_more_global_traffic_at_a_further_size_is_seen(verdict, counters) -> None:
    def sizes(sectors: int) -> list[SizeMetrics]:
        shape = LaunchShape((1, 1, 1), (32, 1, 1))
        few = SizeMetrics({"n": 1}, shape, counters(), None)
        return [few, SizeMetrics({"n": 9}, shape, counters(global_load_sectors=sectors), None)]

    smaller = verdict(shared_bytes=0)
    assert decide(SHARED, verdict(), smaller, sizes(400), sizes(400)).accepted is True
    refused = decide(SHARED, verdict(), smaller, sizes(400), sizes(800))
    assert refused.accepted is False
    assert "n=9" in refused.reasons[0]


def test_a_listed_size_that_did_not_run_is_a_reason(verdict, counters) -> None:
    shape = LaunchShape((1, 1, 1), (32, 1, 1))
    ran = [SizeMetrics({"n": 1}, shape, counters(), None), SizeMetrics({"n": 9}, shape, counters(), None)]
    assert decide(SHARED, verdict(), verdict(shared_bytes=0), ran, ran[:1]).accepted is False


def test_a_predicted_speedup_is_promising_and_never_accepted(verdict) -> None:
    decision = decide(FASTER, verdict(time_us=40), verdict(time_us=10))
    assert decision.accepted is None
    assert decision.objective is not None
    assert (decision.objective.basis, decision.objective.met) == ("predicted", True)
    assert "confirm on a GPU" in decision.reasons[0]


def test_a_prediction_inside_its_own_error_is_undecided(verdict) -> None:
    decision = decide(FASTER, verdict(time_us=10.2), verdict(time_us=10))
    assert decision.accepted is None
    assert decision.objective is not None
    assert decision.objective.met is None
    assert "undecided" in decision.reasons[0]


def test_a_measured_speedup_is_accepted(verdict) -> None:
    decision = decide(FASTER, verdict(time_us=10.5, kind="measured"), verdict(time_us=10, kind="measured"))
    assert decision.accepted is True
    assert decision.objective is not None
    assert (decision.objective.basis, decision.objective.met) == ("measured", True)


def test_a_measured_speedup_may_not_slow_down_another_size(verdict, timing) -> None:
    shape = LaunchShape((1, 1, 1), (32, 1, 1))
    before = [SizeMetrics({"n": size}, shape, None, timing(10)) for size in (1, 9)]
    after = [replace(before[0], timing=timing(5)), replace(before[1], timing=timing(12))]
    decision = decide(FASTER, verdict(time_us=10, kind="measured"), verdict(time_us=5, kind="measured"), before, after)
    assert decision.accepted is False
    assert "n=9" in decision.reasons[0]


def test_a_size_that_is_predicted_to_get_slower_is_told_though_it_is_within_the_predictions_error(
    verdict, timing
) -> None:
    shape = LaunchShape((1, 1, 1), (32, 1, 1))
    before = [SizeMetrics({"n": size}, shape, None, timing(10, 2.0, "predicted")) for size in (9, 1)]
    after = [
        replace(before[0], timing=timing(5, 2.0, "predicted")),
        replace(before[1], timing=timing(11, 2.0, "predicted")),
    ]
    decision = decide(FASTER, verdict(time_us=10), verdict(time_us=5), before, after)
    assert decision.accepted is None
    told = [reason for reason in decision.reasons if reason.startswith("trade-off: predicted 0.909x")]
    assert len(told) == 1
    assert "as fast at n=1" in told[0]
    level = [before[0], replace(before[1], timing=timing(10.1, 2.0, "predicted"))]
    assert not any(
        "trade-off" in one for one in decide(FASTER, verdict(time_us=10), verdict(time_us=5), before, level).reasons
    )


def test_times_of_two_kinds_are_never_compared(verdict) -> None:
    decision = decide(FASTER, verdict(time_us=20, kind="measured"), verdict(time_us=1))
    assert decision.accepted is False
    assert decision.objective is not None
    assert decision.objective.met is None


def test_accuracy_improves_when_the_error_falls(verdict) -> None:
    objective = read_objective("more accurate")
    assert decide(objective, verdict(max_error=0.5), verdict(max_error=0.1)).accepted is True
    assert decide(objective, verdict(max_error=0.5), verdict(max_error=0.495)).accepted is False


def test_what_does_not_compile_says_so(verdict) -> None:
    assert decide(SHARED, verdict(), verdict(compiled=False)).reasons[0].startswith("does not compile")


def test_every_metric_has_a_limit_with_a_reason_and_a_noise() -> None:
    for limits in DEFAULT_LIMITS.values():
        assert set(limits) == set(METRICS)
        assert all(limit.reason for limit in limits.values())
    assert set(NOISE) == set(METRICS)


def sizes_of(timing, *rows):
    """Metrics of sizes n = 1, 2, ...: (time, baseline's time beside it, ratio with its interval)."""
    return [
        SizeMetrics(
            {"n": number}, LaunchShape((1, 1, 1), (32, 1, 1)), None, timing(time), None,
            None if ratio is None else timing(beside), ratio,
        )
        for number, (time, beside, ratio) in enumerate(rows, start=1)
    ]  # fmt: skip


def test_a_ratio_by_the_same_blocks_goes_before_times_of_different_ones(verdict, timing) -> None:
    # The times' own intervals overlap; block by block the candidate was always faster.
    ratio = Speedup("measured", 1.05, (1.04, 1.06))
    baseline = verdict(time_us=10.0, kind="measured")
    candidate = replace(verdict(time_us=9.9, kind="measured"), speedup=ratio)
    before, after = sizes_of(timing, (10.0, 0, None)), sizes_of(timing, (9.9, 10.4, ratio))
    assert (
        decide(FASTER, baseline, replace(candidate, speedup=None), before, sizes_of(timing, (9.9, 0, None))).accepted
        is False
    )
    decision = decide(FASTER, baseline, candidate, before, after)
    assert decision.accepted is True
    assert decision.objective is not None
    assert (decision.objective.basis, decision.objective.before, decision.objective.after) == ("measured", 10.4, 9.9)
    assert decision.reasons == ("measured 1.05x [1.04, 1.06] as fast",)


def test_a_measured_interval_that_holds_1_is_not_faster(verdict, timing) -> None:
    ratio = Speedup("measured", 1.02, (0.99, 1.05))
    candidate = replace(verdict(time_us=9.0, kind="measured"), speedup=ratio)
    decision = decide(FASTER, verdict(time_us=10.0, kind="measured"), candidate)
    assert decision.accepted is False
    assert "an interval that holds 1" in decision.reasons[0]


@pytest.mark.parametrize(
    ("ratio", "accepted"),
    [
        (Speedup("measured", 0.9, (0.89, 0.91)), False),
        (Speedup("measured", 0.9, (0.7, 1.1)), True),  # within its noise
        (Speedup("measured", 0.985, (0.98, 0.99)), True),  # beyond its noise, and within two per cent
    ],
)
def test_no_listed_size_may_get_slower_beyond_its_noise(verdict, timing, ratio: Speedup, accepted: bool) -> None:
    gain = Speedup("measured", 1.5, (1.48, 1.52))
    candidate = replace(verdict(time_us=6.7, kind="measured"), speedup=gain)
    before = sizes_of(timing, (10.0, 0, None), (5.0, 0, None))
    after = sizes_of(timing, (6.7, 10.0, gain), (5.5, 5.0, ratio))
    decision = decide(FASTER, verdict(time_us=10.0, kind="measured"), candidate, before, after)
    assert decision.accepted is accepted
    if not accepted:
        assert decision.reasons == ("slower at n=2: measured 0.9x [0.89, 0.91]",)


@pytest.mark.parametrize(
    ("ratio", "launching", "accepted"),
    [(0.93, True, False), (0.93, False, False), (0.99, True, True)],
)
def test_a_size_at_which_both_mostly_launch_may_not_get_slower_either_and_it_is_said_what_it_is(
    verdict, timing, ratio: float, launching: bool, accepted: bool
) -> None:
    notes = ("mostly launching: an empty kernel takes 1.9 us",) if launching else ()
    faster = Speedup("measured", 5.0, (4.9, 5.1))
    there = Speedup("measured", ratio, (ratio - 0.01, ratio + 0.01))
    shape = LaunchShape((1, 1, 1), (32, 1, 1))
    small = replace(timing(2.2), notes=notes)
    before = [SizeMetrics({"n": 9}, shape, None, timing(10)), SizeMetrics({"n": 1}, shape, None, small)]
    after = [
        SizeMetrics({"n": 9}, shape, None, timing(2), speedup=faster, beside=timing(10)),
        SizeMetrics({"n": 1}, shape, None, replace(small, median_us=2.2 / ratio), speedup=there, beside=small),
    ]
    candidate = replace(verdict(time_us=2, kind="measured"), speedup=faster)
    decision = decide(FASTER, verdict(time_us=10, kind="measured"), candidate, before, after)
    assert decision.accepted is accepted
    assert any("n=1" in reason for reason in decision.reasons) is not accepted
    assert any("mostly launch" in reason for reason in decision.reasons) is (launching and not accepted)


@pytest.mark.parametrize(("after", "accepted"), [(10.0, True), (9.0, True), (10.1, True), (12.0, False)])
def test_where_the_wish_cannot_be_measured_a_version_must_only_not_be_slower(
    verdict, after: float, accepted: bool
) -> None:
    before, candidate = verdict(time_us=10.0, kind="measured"), verdict(time_us=after, kind="measured")
    assert decide(read_objective("make it readable"), before, candidate).accepted is accepted
