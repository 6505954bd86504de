"""Verdicts on pairs, measured or predicted, and the texts made from them."""

from __future__ import annotations

import json
from functools import cache

from kernelmate.compiler import find_target
from kernelmate_training.corpus.examples import change_row, written
from kernelmate_training.corpus.families import registry
from kernelmate_training.corpus.group_processing import draw_group, held_together, worth_teaching
from kernelmate_training.corpus.groups import Group, Pair
from kernelmate_training.corpus.judging import Judge, Judged, Rounds

FAMILY = registry()["column-map"]
LARGE = {"rows": 2048, "cols": 2048}


@cache
def judged_pair() -> tuple[Group, Pair, Judged, Judged]:
    """A pair for time, as the emulator judges it."""
    group = next(g for g in (draw_group(FAMILY, number, 2) for number in range(9)) if g.pairs[0].metric == "time")
    judge = Judge(find_target("H100 SXM"))
    judge.begin(group.seed)
    pair = group.pairs[0]
    return group, pair, judge.judge(group.texts[pair.before]), judge.judge(group.texts[pair.after])


def times(*of: float) -> Rounds:
    return Rounds(of, 10)


def test_what_is_measured_faster_in_every_turn_is_accepted() -> None:
    _, pair, before, after = judged_pair()
    verdict = held_together(before, after, pair, (times(20, 22, 21), times(10, 11, 10)), LARGE)
    assert verdict.accepted is True
    assert verdict.objective is not None
    assert (verdict.objective.basis, verdict.objective.met) == ("measured", True)
    assert worth_teaching(verdict, "time")


def test_what_is_faster_in_some_turns_alone_or_by_a_hair_is_not_taught() -> None:
    _, pair, before, after = judged_pair()
    unsure = held_together(before, after, pair, (times(20, 22, 21), times(21, 20, 20)), LARGE)
    assert unsure.accepted is False
    hair = held_together(before, after, pair, (times(20.2, 20.2, 20.2), times(20, 20, 20)), LARGE)
    assert not worth_teaching(hair, "time")


def test_other_metrics_do_not_pay_with_time() -> None:
    _, pair, before, after = judged_pair()
    registers = Pair(pair.before, pair.after, "registers", pair.flaws, "use fewer registers")
    slower = held_together(before, after, registers, (times(10, 10, 10), times(20, 20, 20)), LARGE)
    assert slower.accepted is False
    assert any("time" in reason or "slower" in reason for reason in slower.reasons)


def test_an_analysis_states_what_was_counted_and_nothing_else() -> None:
    group, pair, before, after = judged_pair()
    verdict = held_together(before, after, pair, None, LARGE)
    row = change_row(group, FAMILY, pair, before, after, verdict, "analyse", "emulated")
    counters = before.verdict.counters
    assert counters is not None
    loads = next(line for line in row["reasoning"] if line.startswith("Global loads: "))
    assert f"{counters.global_load_requests} requests of warps, {counters.global_load_sectors} sectors" in loads
    uncounted = Judged(before.text, before.kernel, _without_counters(before), (), "", before.version)
    silent = change_row(group, FAMILY, pair, uncounted, after, verdict, "analyse", "emulated")
    assert not any(line.startswith("Global") for line in silent["reasoning"])


def _without_counters(judged: Judged):
    from dataclasses import replace

    return replace(judged.verdict, counters=None)


def test_a_row_is_kept_as_it_is_and_marked_by_what_it_teaches() -> None:
    group, pair, before, after = judged_pair()
    verdict = held_together(before, after, pair, None, LARGE)
    one, other = (
        change_row(group, FAMILY, pair, before, after, verdict, task, "emulated") for task in ("generate", "analyse")
    )
    kept = written(one)
    assert json.loads(kept.line) == one
    assert kept.mark != written(other).mark
    assert kept.content == written({**one, "judged_us": 1}).content
