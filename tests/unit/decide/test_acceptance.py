from __future__ import annotations

from dataclasses import replace

import pytest

from kernelmate.decide.acceptance import DEFAULT_LIMITS, NOISE, Decision, decide
from kernelmate.decide.metrics import METRICS
from kernelmate.decide.objective import read_objective
from kernelmate.measure.statistics import EDITED
from kernelmate.records import Argument, Contract, LaunchShape, SizeMetrics, Speedup

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
    decision = decide(SHARED, verdict(), verdict(shared_bytes=0), contract=replace(contract_of(1), inferred=True))
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
    assert decision.reasons == ()
    assert decision.trade_offs == ("slower: predicted 0.952x [0.529, 1.71]",)


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
    assert len(decision.trade_offs) == 1
    assert decision.trade_offs[0].startswith("slower at n=1: predicted 0.909x")
    level = [before[0], replace(before[1], timing=timing(10.1, 2.0, "predicted"))]
    assert decide(FASTER, verdict(time_us=10), verdict(time_us=5), before, level).trade_offs == ()


def test_times_of_two_kinds_are_never_compared(verdict) -> None:
    decision = decide(FASTER, verdict(time_us=20, kind="measured"), verdict(time_us=1))
    assert decision.accepted is False
    assert decision.objective is not None
    assert decision.objective.met is None


def test_accuracy_improves_when_the_error_falls(verdict) -> None:
    objective = read_objective("more accurate")
    assert decide(objective, verdict(max_error=0.5), verdict(max_error=0.1)).accepted is True
    assert decide(objective, verdict(max_error=0.5), verdict(max_error=0.495)).accepted is False


def test_a_larger_error_is_no_trade_off_far_below_the_tolerance(verdict) -> None:
    small, large = verdict(time_us=10, max_error=0.001), verdict(time_us=5, max_error=0.3)
    assert decide(FASTER, small, verdict(time_us=5, max_error=0.08)).trade_offs == ()
    assert decide(FASTER, small, large).trade_offs == ("largest error (in tolerances): 0.001 before, 0.3 after",)
    limited = read_objective("make it faster without losing accuracy")
    assert limited.limits["accuracy"] == 0.0
    assert decide(limited, small, verdict(time_us=5, max_error=0.08)).accepted is False, "a limit that was asked for"


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


def measured(median: float, width: float = 0.01) -> Speedup:
    return Speedup("measured", median, (median * (1 - width), median * (1 + width)))


def contract_of(number: int, **changes: object) -> Contract:
    """Sizes n = 1, 2, ..., as `sizes_of` has them."""
    sizes = tuple({"n": one} for one in range(1, number + 1))
    contract = Contract("k", sizes, ("1",), ("32",), (Argument("x", "out", "float32", ("n",)),))
    return replace(contract, **changes)  # type: ignore[arg-type]


@pytest.fixture
def judged(verdict, timing):
    """`judged(ratios, us=100, launching=(), objective=FASTER, **contract)`: decided by measured ratios of the listed sizes.

    `us` is the baseline's time at every size; sizes in `launching` mostly launch, in both versions.
    """

    def decided(ratios, us=100.0, launching=(), objective=FASTER, **contract):
        notes = ("mostly launching: an empty kernel takes 1.9 us",)
        before, after = [], []
        for number, ratio in enumerate(ratios, start=1):
            there = replace(timing(us), notes=notes if number in launching else ())
            here = replace(timing(us / ratio.median), notes=there.notes)
            shape = LaunchShape((1, 1, 1), (32, 1, 1))
            before.append(SizeMetrics({"n": number}, shape, None, there))
            after.append(SizeMetrics({"n": number}, shape, None, here, None, there, ratio))
        candidate = verdict(time_us=us / ratios[0].median, kind="measured", shared_bytes=0)
        candidate = replace(candidate, speedup=ratios[0])
        baseline = verdict(time_us=us, kind="measured")
        return decide(objective, baseline, candidate, before, after, contract=contract_of(len(ratios), **contract))

    return decided


def test_a_headline_4_8_times_as_fast_is_accepted_though_a_size_of_one_element_is_8_per_cent_slower(judged) -> None:
    decision = judged([measured(4.8), measured(1 / 1.08)])
    assert decision.accepted is True
    assert decision.reasons == ("measured 4.8x [4.75, 4.85] as fast",)
    assert decision.trade_offs == ("slower at n=2: measured 0.926x [0.917, 0.935]",)


def test_a_listed_size_slower_by_more_than_the_slowdown_rejects(judged) -> None:
    decision = judged([measured(4.8), measured(1 / 1.12)])
    assert decision.accepted is False
    assert decision.reasons == (
        "slower at n=2: measured 0.893x [0.884, 0.902]",
        "measured 4.8x [4.75, 4.85] as fast at the first size, which alone decides with `weights = [1, 0]` in the contract",
    )
    assert len(judged([measured(0.9), measured(1 / 1.12)]).reasons) == 2, "slower everywhere"


def test_a_size_that_is_slower_within_its_interval_is_neither_a_reason_nor_a_trade_off(judged) -> None:
    decision = judged([measured(1.5), measured(0.85, width=0.2)])
    assert decision.accepted is True
    assert decision.trade_offs == ()


@pytest.mark.parametrize(("slowdown", "accepted"), [(0.0, False), (0.05, False), (0.1, True), (0.5, True)])
def test_the_contracts_slowdown_is_the_limit(judged, slowdown: float, accepted: bool) -> None:
    assert judged([measured(2), measured(1 / 1.08)], slowdown=slowdown).accepted is accepted


@pytest.mark.parametrize(("low", "accepted"), [(0.99, False), (1.015, False), (1.0199, False), (1.02, True)])
def test_the_lower_end_of_a_measured_interval_must_be_1_02_or_more(judged, low: float, accepted: bool) -> None:
    decision = judged([Speedup("measured", 1.05, (low, 1.09))])
    assert decision.accepted is accepted
    assert decision.objective is not None
    assert decision.objective.met is accepted


def test_a_gain_that_is_certain_but_too_small_says_so(judged) -> None:
    decision = judged([Speedup("measured", 1.03, (1.015, 1.045))])
    assert decision.reasons == (
        "not faster by enough: measured 1.03x [1.01, 1.04], and the lower end must be 1.02 or more",
    )


def test_without_weights_another_size_does_not_make_up_for_the_headline(judged) -> None:
    assert judged([measured(1.0), measured(9.0)]).accepted is False


def test_with_weights_their_mean_decides_and_says_so(judged) -> None:
    decision = judged([measured(1.0), measured(2.0)], weights=(1.0, 3.0))
    assert decision.accepted is True
    assert decision.speedup is not None
    assert decision.speedup.weighted
    assert decision.speedup.median == pytest.approx(2**0.75)
    assert decision.objective is not None
    assert decision.objective.weighted
    assert decision.objective.before == pytest.approx(100)
    assert decision.objective.after == pytest.approx(100 / 2**0.75)
    assert decision.reasons[0].endswith("as fast by the contract's weights")


def test_a_faster_headline_is_rejected_where_the_mean_by_weights_is_not_faster(judged) -> None:
    decision = judged([measured(1.3), measured(0.95)], weights=(1.0, 20.0))
    assert decision.accepted is False
    assert decision.objective is not None
    assert decision.objective.met is False


def test_with_weights_every_size_of_a_positive_weight_is_bound_by_the_slowdown(judged) -> None:
    decision = judged([measured(0.85), measured(3.0)], weights=(1.0, 9.0))
    assert decision.accepted is False
    assert decision.reasons[0].startswith("slower at n=1")


def test_a_size_of_weight_0_never_vetoes_and_is_a_trade_off(judged) -> None:
    decision = judged([measured(2.0), measured(0.1)], weights=(1.0, 0.0))
    assert decision.accepted is True
    assert decision.trade_offs == ("slower at n=2: measured 0.1x [0.099, 0.101], a size of weight 0",)
    assert decision.speedup is not None
    assert decision.speedup.median == pytest.approx(2.0)


def test_a_first_look_at_the_headline_alone_goes_by_it_though_its_weight_is_0(verdict) -> None:
    contract = contract_of(2, weights=(0.0, 1.0))
    decision = decide(FASTER, verdict(time_us=40), verdict(time_us=10), contract=contract)
    assert decision.objective is not None
    assert (decision.objective.met, decision.objective.weighted) == (True, False)


def test_a_launch_bound_size_vetoes_only_where_the_difference_is_1_us_or_more(judged) -> None:
    small = judged([measured(2.0), measured(0.7)], us=2.2, launching=(2,))
    assert small.accepted is True
    assert small.trade_offs == ("slower at n=2: measured 0.7x [0.693, 0.707], where both versions mostly launch",)
    large = judged([measured(2.0), measured(0.6)], us=2.2, launching=(2,))
    assert large.accepted is False
    assert large.reasons[0] == "slower at n=2: measured 0.6x [0.594, 0.606], where both versions mostly launch"


def test_a_small_difference_vetoes_where_a_version_does_more_than_launch(judged) -> None:
    assert judged([measured(2.0), measured(0.8)], us=3.0).accepted is False


def test_a_launch_bound_size_with_a_weight_vetoes(judged) -> None:
    assert judged([measured(2.0), measured(0.7)], us=2.2, launching=(2,), weights=(1.0, 0.1)).accepted is False
    assert judged([measured(2.0), measured(0.7)], us=2.2, launching=(2,), weights=(1.0, 0.0)).accepted is True


def test_a_predicted_launch_bound_size_never_vetoes_either(verdict, timing) -> None:
    def sizes(headline: float, small: float, notes: tuple[str, ...]) -> list[SizeMetrics]:
        shape = LaunchShape((1, 1, 1), (32, 1, 1))
        edge = replace(timing(small, 1.6, "predicted"), notes=notes)
        return [
            SizeMetrics({"n": 1}, shape, None, timing(headline, 1.6, "predicted")),
            SizeMetrics({"n": 2}, shape, None, edge),
        ]

    def decided(notes: tuple[str, ...]) -> Decision:
        before, after = sizes(400, 2.2, notes), sizes(100, 3.1, notes)
        baseline, candidate = verdict(time_us=400), verdict(time_us=100)
        return decide(FASTER, baseline, candidate, before, after, contract=contract_of(2), error=EDITED)

    assert decided(()).accepted is False
    launching = decided(("mostly launching: an empty kernel is predicted to take 2.1 us",))
    assert launching.accepted is None
    assert launching.trade_offs[0].startswith("slower at n=2: predicted 0.71x")


@pytest.mark.parametrize(("slower", "accepted"), [(1.08, True), (1.12, False)])
def test_a_counted_objectives_time_is_bound_by_the_slowdown_at_every_size(
    judged, slower: float, accepted: bool
) -> None:
    for ratios in ([1 / slower, 1.0], [1.0, 1 / slower]):
        decision = judged([measured(one) for one in ratios], objective=SHARED)
        assert decision.accepted is accepted
        assert len(decision.trade_offs) == accepted


def test_words_that_forbid_a_slowdown_go_before_the_contracts(judged) -> None:
    objective = read_objective("less shared memory without losing speed")
    assert judged([measured(1 / 1.05)], objective=objective).accepted is False


@pytest.mark.parametrize(("after", "accepted"), [(10.0, True), (9.0, True), (10.1, True), (12.0, False)])
def test_where_the_wish_cannot_be_measured_a_version_must_only_not_be_slower(
    verdict, after: float, accepted: bool
) -> None:
    before, candidate = verdict(time_us=10.0, kind="measured"), verdict(time_us=after, kind="measured")
    assert decide(read_objective("make it readable"), before, candidate).accepted is accepted
