"""Questions about a kernel are answered by the figures, or the candidates, that they are about."""

from __future__ import annotations

from dataclasses import replace
from io import StringIO

import pytest
from rich.console import Console

from kernelmate.records import Cause, Optimization, Resources, Verdict
from kernelmate.report.answers import answers, causes_for
from kernelmate.report.causes import causes_html, causes_json, causes_view
from kernelmate.report.excerpt import SourceLines
from kernelmate.report.words import standing


@pytest.mark.parametrize(
    ("question", "told"),
    [
        ("how many registers does it use?", ["It uses 40 registers per thread, which limit its occupancy."]),
        ("what's the occupancy?", ["Its occupancy is 75%, limited by registers."]),
        ("does it spill?", ["It uses no local memory and spills nothing."]),
        ("how long does it take", ["One launch takes ~12.1 us [6.05, 24.2] predicted."]),
        ("is it correct?", ["It is right on 4 cases."]),
        ("how accurate is it?", ["Its largest error is 0.021 of the tolerance."]),
        ("how full is the last wave?", ["The grid has 15.5 waves, the last 50% full."]),
        ("how much shared memory?", ["Shared memory of a block: 17,408 B (16,384 static + 1,024 dynamic)."]),
        ("why did you change it?", []),
        ("", []),
    ],
)
def test_a_question_is_answered_by_the_figures_it_names(question: str, told: list[str], verdict: Verdict) -> None:
    verdict = replace(verdict, resources=replace(verdict.resources, dynamic_shared_bytes=1024))
    assert list(answers(question, verdict)) == told


def test_bank_conflicts_are_answered_by_their_number_and_not_by_the_time(verdict: Verdict) -> None:
    assert verdict.counters is not None
    counted = replace(verdict, counters=replace(verdict.counters, bank_conflicts=1))
    assert answers("are there bank conflicts?", counted) == ("A launch has 1 bank conflict in shared memory.",)
    none = replace(verdict, counters=replace(verdict.counters, bank_conflicts=0))
    assert answers("does it have bank conflicts?", none) == ("It has no bank conflicts.",)


def test_what_the_verdict_lacks_is_not_answered(verdict: Verdict) -> None:
    bare = replace(verdict, resources=None, occupancy=None, timing=None, counters=None, cases=())
    for question in (
        "registers?",
        "occupancy?",
        "how fast is it?",
        "how many bytes of dram?",
        "accuracy?",
        "is it bound?",
    ):
        assert answers(question, bare) == ()


def test_spills_and_errors_are_named(verdict: Verdict, wrong: Verdict) -> None:
    spilling = replace(verdict, resources=Resources(255, 0, 0, 64, 48, 1024, 2048))
    (said,) = answers("are there spills?", spilling)
    assert "64 bytes of local memory, 48 bytes of it by spills" in said
    assert answers("is it right?", wrong) == (
        "It is wrong on 1 of 4 cases.",
        "2 errors, the first wrong-at-size at line 8: the last 85 columns of each row are never written.",
    )


def test_questions_about_candidates_are_answered_by_the_last_search(optimization: Optimization) -> None:
    baseline = optimization.baseline
    assert optimization.best is not None
    best = optimization.candidates[optimization.best].candidate
    assert answers("what did you change?", baseline, optimization) == (
        f"{optimization.best + 1} ({best.author}): {best.why}",
    )
    down = [place for place, one in enumerate(optimization.candidates, 1) if not one.verdict.accepted]
    told = answers("why were the others rejected?", baseline, optimization)
    assert [one.partition(" ")[0] for one in told] == [str(place) for place in down[:5]]
    (said,) = answers(f"why was {down[0]} rejected?", baseline, optimization)
    assert said.rstrip(".").endswith(optimization.candidates[down[0] - 1].verdict.reasons[-1].rstrip("."))
    first = optimization.candidates[down[0] - 1]
    assert f"({first.candidate.author}) is {standing(first.verdict)[0]}" in said, "it may be undecided instead"
    assert answers("why was #99 rejected?", baseline, optimization) == ("The last search has no candidate 99.",)
    others = answers("why was the version with 256 threads rejected?", baseline, optimization)
    assert others == told, "256 is no candidate's number"
    nothing = replace(optimization, best=None)
    assert "changed nothing" in answers("what changed?", baseline, nothing)[0]


def test_the_answer_comes_first_and_the_causes_are_a_click_away(verdict: Verdict) -> None:
    said = answers("what's the occupancy?", verdict)
    sources = SourceLines()
    html = causes_html(verdict, (), "softmax.cu", sources, "what's the occupancy?", said)
    assert html.index("limited by registers") < html.index("<summary>What limits it</summary>")
    assert "<details" not in causes_html(verdict, (), "softmax.cu", sources)
    cause = Cause("barriers", "blocks arrive at a barrier often", "every warp waits", "use shuffles")
    why = "why is it slow?"
    open_page = causes_html(verdict, (cause,), "softmax.cu", sources, why, answers(why, verdict))
    assert "<details" not in open_page
    assert "Use shuffles" in open_page
    console = Console(file=StringIO(), width=100)
    console.print(causes_view(verdict, (), "softmax.cu", sources, said))
    text = console.file.getvalue()
    assert text.startswith("Its occupancy is 75%")
    assert causes_json([(verdict, ())], "what's the occupancy?")["explained"][0]["answers"] == list(said)


def test_a_causes_code_is_no_part_of_its_sentence_and_its_line_has_one_cost(verdict: Verdict) -> None:
    cause = Cause("divergence", "320 branches split their warp", "both sides are run", "use arithmetic", 22, 0.103)
    console = Console(file=StringIO(), width=100)
    console.print(causes_view(verdict, (cause, replace(cause, estimated_us=0.0098)), "softmax.cu", SourceLines()))
    text = console.file.getvalue()
    assert "split their warp  [divergence]" in text
    assert "line 22, 10.3% of the cost of all lines: 320 branches" in text
    assert "line 22, about 0.0098 us of the launch: 320 branches" in text


@pytest.mark.parametrize(
    ("question", "shown"),
    [("what's the occupancy?", False), ("why is it slow?", True), ("what limits its occupancy?", True)],
)
def test_causes_follow_where_the_question_is_about_them(question: str, shown: bool, verdict: Verdict) -> None:
    cause = Cause("barriers", "blocks arrive at a barrier often", "every warp waits", "use shuffles")
    said = answers(question, verdict)
    assert said
    assert causes_for(question, said, (cause,)) == ((cause,) if shown else ())
    assert causes_for("what did you change?", (), (cause,)) == (cause,)
    assert causes_for("why was #2 rejected?", ("2 (unroll) is undecided.",), (cause,)) == (), "of a candidate alone"
