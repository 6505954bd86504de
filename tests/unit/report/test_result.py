"""The result view: one screen that answers, everything else folded; its charts and its words."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from kernelmate.records import (  # fmt: skip
    WITH_VALUES,
    Alternative,
    Finding,
    FindingCode,
    FirstWrong,
    Kernel,
    ObjectiveResult,
    Optimization,
    Roofline,
    Roofs,
    Speedup,
    Timing,
    Verdict,
    Work,
)
from kernelmate.report import words
from kernelmate.report.chart import ChartVersion, candidate_labels, candidate_names
from kernelmate.report.drawing import Mark, Rect, Scene, TextShape, shortened, text_width
from kernelmate.report.excerpt import SourceLines
from kernelmate.report.result import charted_versions, grouped, optimization_parts, verdict_parts, view
from kernelmate.report.result_charts import (  # fmt: skip
    LEFT,
    NARROW,
    WIDE,
    ChartLayout,
    correctness_scene,
    occupancy_scene,
    result_scenes,
    time_scene,
)


def seen(parts: list[str]) -> str:
    """The text in view before anything is unfolded, without tags."""
    page = re.sub(r'<details data-fold="\w+">.*?</details>', " ", "".join(parts), flags=re.DOTALL)
    return re.sub(r"<[^>]+>", " ", page)


def texts(scene: Scene) -> list[str]:
    return [shape.text for shape in scene.shapes if isinstance(shape, TextShape)]


def test_a_candidate_is_called_undecided_once(optimization: Optimization, kernel: Kernel) -> None:
    other = optimization.candidates[1]
    aim = ObjectiveResult("time", "predicted", 12.1, 11.9, None)
    for kind in ("predicted", "measured"):
        verdict = replace(
            other.verdict, accepted=None, objective=aim, speedup=Speedup(kind, 1.02, (0.92, 1.48)), findings=()
        )
        listed = replace(optimization, candidates=(optimization.candidates[0], replace(other, verdict=verdict)))
        lines = re.findall(r"<li>.*?</li>", "".join(optimization_parts(listed, kernel)))
        (line,) = [one for one in lines if "1.02x" in one]
        assert line.count("undecided") == 1


def test_the_answer_is_in_view_and_the_rest_folded(optimization: Optimization, kernel: Kernel) -> None:
    parts = optimization_parts(optimization, kernel)
    shown = seen(parts)
    assert "Ready to accept" in shown
    assert "shared memory per block 16,384 B -&gt; 8,192 B" in shown
    assert "right on 4 cases" in shown
    assert "tile[2048]" in shown
    assert "-50%" in shown, "the change table"
    assert "divergent branches" not in shown, "a figure that did not change"
    assert "divergent branches" in "".join(parts)
    assert "drop-barrier" not in re.sub(r'src="[^"]*"', "", shown), "other candidates are one click away"


def test_rejected_candidates_say_why_and_compiled_ones_are_not_called_accepted(
    optimization: Optimization, kernel: Kernel
) -> None:
    page = re.sub(r"</?span[^>]*>", "", "".join(optimization_parts(optimization, kernel)))
    assert "rejected: wrong-at-size: the last 85 columns of each row are never written" in page
    assert "does not compile: identifier &quot;colz&quot; is undefined" in page
    assert not re.search(r"\baccepted\b", re.sub(r"<[^>]+>", "", page), re.IGNORECASE)


def test_candidates_rejected_for_the_same_reason_are_one_line_and_wrong_ones_no_chart(
    optimization: Optimization, kernel: Kernel
) -> None:
    bad = next(one for one in optimization.candidates if one.verdict.accepted is False and one.verdict.compiled)
    bad = replace(bad, verdict=replace(bad.verdict, correct=False))
    other = replace(bad, verdict=replace(bad.verdict, reasons=("wrong-values: y[0] is 1 and should be 2",)))
    failed = replace(optimization, candidates=(bad, other, bad, bad), best=None)
    assert [one.numbers for one in grouped(failed.candidates)] == [(1, 3, 4), (2,)]
    parts = optimization_parts(failed, kernel)
    assert len(re.findall("<li><code", "".join(parts))) == 2
    assert "<figure>" not in re.sub(r'<details data-fold="charts">.*?</details>', "", "".join(parts), flags=re.DOTALL)
    assert "<figure>" in "".join(parts)
    broken = replace(bad, verdict=replace(bad.verdict, compiled=False, correct=None))
    both = "".join(optimization_parts(replace(failed, candidates=(bad, broken)), kernel))
    assert "<figure>" not in re.sub(r'<details data-fold="charts">.*?</details>', "", both, flags=re.DOTALL)


def test_a_version_without_a_reference_is_as_the_baseline_and_rejected_for_what_it_lacks(measured: Verdict) -> None:
    alone = replace(measured, cases=tuple(replace(case, held_against="baseline") for case in measured.cases))
    assert words.cases_sentence(alone)[0].startswith("as the baseline on")
    assert words.cases_sentence(measured)[0].startswith("right on")
    assert "as baseline" in " ".join(texts(correctness_scene([ChartVersion("1", alone)])))
    reasons = ("agrees with the baseline; the contract names no reference", "0.91x as fast")
    assert words.standing_because(replace(alone, accepted=False, reasons=reasons))[0] == "rejected: 0.91x as fast"


def test_wrong_values_of_a_kernel_without_sizes_are_at_its_only_size(measured: Verdict) -> None:
    finding = Finding(FindingCode.SHARED_RACE, "error", "thread 0 reads what thread 3 has written")
    case = replace(measured.cases[0], size={}, correct=False, first_wrong=FirstWrong("y", (0,), 1.0, 2.0))
    bad = replace(measured, accepted=False, correct=False, findings=(finding,), cases=(case,))
    assert "<p>at its only size: <code>" in "".join(verdict_parts(bad, SourceLines()))


def test_the_model_that_chose_a_rewrite_is_no_part_of_its_name(optimization: Optimization) -> None:
    judged = optimization.candidates[0]
    chosen = replace(judged.candidate, author="recipe:unroll+vectorize, chosen by local:starter")
    assert candidate_names([replace(judged, candidate=chosen)]) == ["unroll+vectorize"]
    assert candidate_names([replace(judged, candidate=chosen)], whole=True) == [chosen.author]


def test_what_a_person_accepted_is_called_accepted(optimization: Optimization, kernel: Kernel) -> None:
    assert "Accepted" in seen(optimization_parts(optimization, kernel, accepted=1))
    assert "Accepted" not in seen(optimization_parts(optimization, kernel, shown=2, accepted=1))


def test_it_is_said_why_another_with_a_shorter_time_is_not_first(optimization: Optimization, kernel: Kernel) -> None:
    timed = replace(optimization, objective=replace(optimization.objective, metric="time"))
    assert "the simplest is first" in seen(optimization_parts(timed, kernel)), "1.1x is first, and 1.44x is not"
    assert "the simplest is first" not in seen(optimization_parts(timed, kernel, shown=2))
    assert "the simplest is first" not in seen(optimization_parts(optimization, kernel)), "time was not asked for"
    slower = replace(optimization.candidates[1], verdict=replace(optimization.candidates[1].verdict, speedup=None))
    alone = replace(timed, candidates=(optimization.candidates[0], slower))
    assert "the simplest is first" not in seen(optimization_parts(alone, kernel))


def test_a_library_that_computes_the_same_is_in_view(
    optimization: Optimization, kernel: Kernel, measured: Verdict
) -> None:
    assert measured.timing is not None
    beside = Alternative(
        "torch", "softmax, from <ref>", "TF32 off", True, 0.1, measured.timing, measured.timing, measured.speedup
    )
    verdict = replace(measured, against=(beside,))
    best = replace(optimization.candidates[0], verdict=verdict)
    shown = replace(optimization, candidates=(best, *optimization.candidates[1:]), best=0)
    said = "against torch: 1.42x [1.40, 1.44] faster: it takes 12.1 us, the kernel 12.1 us (softmax, from &lt;ref&gt;; TF32 off)"
    assert said in seen(optimization_parts(shown, kernel))
    assert said in seen(verdict_parts(verdict, SourceLines({})))


def test_another_candidate_can_be_in_view(optimization: Optimization, kernel: Kernel) -> None:
    shown = seen(optimization_parts(optimization, kernel, shown=2))
    assert shown.lstrip().startswith("Promising")
    assert "~1.44x" in shown
    assert "faster" not in shown, "a prediction is not called faster"
    assert charted_versions(optimization, 2)[1].label == "2 block-size"


def test_candidates_with_the_same_figures_are_one_line(optimization: Optimization) -> None:
    first = optimization.candidates[0]
    twice = replace(optimization, candidates=(first, *optimization.candidates))
    assert [one.numbers for one in grouped(twice.candidates)] == [(1, 2), (3,), (4,), (5,)]
    other = replace(first, verdict=replace(first.verdict, objective=ObjectiveResult("shared_bytes", "counted", 16384.0, 4096.0, True)))  # fmt: skip
    assert len(grouped((first, other))) == 2


@pytest.mark.parametrize(
    ("basis", "gap", "groups"), [("predicted", 1.01, 1), ("counted", 1.01, 2), ("predicted", 1.03, 2)]
)
def test_predicted_figures_closer_than_a_gain_that_counts_are_one_line(
    optimization: Optimization, basis: Any, gap: float, groups: int
) -> None:
    first, other = (
        replace(
            optimization.candidates[0],
            verdict=replace(
                optimization.candidates[0].verdict, objective=ObjectiveResult("time", basis, 20.0, after, True)
            ),
        )
        for after in (3.0, 3.0 * gap)
    )
    assert len(grouped((first, other))) == groups


def authored(optimization: Optimization, *named: tuple[str, tuple[str, ...]]) -> Optimization:
    """The search with as many of its candidates, of other authors and blocks."""
    first = optimization.candidates[0]
    made = [
        replace(
            first,
            candidate=replace(first.candidate, author=author, contract=replace(first.candidate.contract, block=block)),
        )
        for author, block in named
    ]
    return replace(optimization, candidates=tuple(made))


def test_names_are_without_the_kind_of_a_built_in_author(optimization: Optimization) -> None:
    authors = ("recipe:warp-per-row", "synthesis:rows-warp", "local:default")
    found = authored(optimization, *((author, ("256",)) for author in authors)).candidates
    assert candidate_labels(found) == ["1 warp-per-row", "2 rows-warp", "3 local:default"]
    assert candidate_names(found, whole=True) == list(authors)


def test_candidates_of_one_author_are_told_apart_by_their_blocks(optimization: Optimization, kernel: Kernel) -> None:
    joined = "recipe:warp-per-row+unroll+block-size"
    found = authored(optimization, (joined, ("256",)), (joined, ("32", "8")), ("recipe:unroll", ("64",)))
    names = ["warp-per-row+unroll+block-size, 256 threads", "warp-per-row+unroll+block-size, 32 x 8 threads", "unroll"]
    assert candidate_names(found.candidates) == names
    shown = seen(optimization_parts(found, kernel, shown=2))
    assert f"2 {names[1]}" in shown
    assert [version.label for version in charted_versions(found, 2)][1] == f"2 {names[1]}"
    scenes = result_scenes([ChartVersion(f"{number} {name}", found.baseline) for number, name in enumerate(names, 1)])
    for scene in scenes:
        assert len({text[2:] for text in texts(scene) if text.startswith(("1 ", "2 ", "3 "))}) == 3
    once = authored(optimization, (joined, ("256",)), (joined, ("256",)))
    assert candidate_names(once.candidates) == [joined.removeprefix("recipe:")] * 2, (
        "the block does not tell them apart"
    )


def test_a_finding_has_the_colour_of_its_severity(wrong: Verdict, kernel: Kernel) -> None:
    noted = replace(wrong, accepted=True, findings=(replace(wrong.findings[0], severity="note"),))
    page = "".join(verdict_parts(noted, SourceLines({kernel.unit.path: kernel.unit.text})))
    assert 'class="finding of-note"' in page
    assert "of-error" not in page


def test_a_size_without_wrong_elements_has_an_empty_cell(wrong: Verdict) -> None:
    """The style sheet shows no head of an empty cell on a narrow page."""
    page = "".join(verdict_parts(wrong, SourceLines()))
    assert page.count("<code>y[0, 852]: want") == 1
    assert "<code></code>" not in page


def test_wrong_values_show_the_line_that_stores_them(wrong: Verdict, kernel: Kernel) -> None:
    found = replace(
        wrong.findings[0], code=FindingCode.WRONG_VALUES, line=None, column=None, buffer="y",
        message="at rows = 37, cols = 853 y[0] is 1 and should be 2; 3 of 3 sizes are wrong",
    )  # fmt: skip
    shown = seen(verdict_parts(replace(wrong, findings=(found,)), SourceLines({kernel.unit.path: kernel.unit.text})))
    assert "y[row * cols + threadIdx.x]" in shown


def test_a_place_leads_to_the_line_where_the_judged_line_is_now(wrong: Verdict, kernel: Kernel) -> None:
    texts = {kernel.unit.path: kernel.unit.text}
    moved = "".join(verdict_parts(wrong, SourceLines(texts, moved=lambda line: line + 2)))
    assert '<span data-line="10"><code>softmax.cu:8:5</code></span>' in moved
    assert 'data-line="9"' in moved
    changed = "".join(verdict_parts(wrong, SourceLines(texts, moved=lambda line: None)))
    assert "data-line" not in changed
    assert "data-line" not in "".join(verdict_parts(wrong, SourceLines())), "another file"


def test_a_page_finds_each_candidate_that_has_a_text(optimization: Optimization, kernel: Kernel) -> None:
    page = "".join(optimization_parts(optimization, kernel))
    compiled = [number for number, one in enumerate(optimization.candidates, 1) if one.verdict.compiled]
    assert sorted(map(int, re.findall(r'data-candidate="(\d+)"', page))) == compiled
    assert len(compiled) < len(optimization.candidates)


def test_a_narrow_page_has_charts_of_its_own_with_the_candidate_in_view(
    optimization: Optimization, kernel: Kernel
) -> None:
    def draw(scene: Scene) -> str:
        return f"[{scene.width:g} {sum(shape.bold for shape in scene.shapes if isinstance(shape, TextShape))}]"

    page = "".join(optimization_parts(optimization, kernel, shown=2, draw=draw))
    assert page.count("[310 4]") == page.count("[190 2]") == 3, "widths, and names of versions"
    assert '<div class="charts narrow" hidden="hidden">' in page, (
        "a page without the style sheet shows the others alone"
    )


def test_folds_are_found_by_keys_that_stay(optimization: Optimization, wrong: Verdict, kernel: Kernel) -> None:
    pages = [
        optimization_parts(optimization, kernel),
        optimization_parts(replace(optimization, best=None), kernel),
        verdict_parts(wrong, SourceLines()),
    ]
    keys = [re.findall(r'<details data-fold="(\w+)"', "".join(page)) for page in pages]
    assert keys == [["others", "all"], ["others", "notes"], ["findings", "all"]]


def test_no_more_than_three_candidates_are_drawn(optimization: Optimization) -> None:
    many = replace(optimization, candidates=optimization.candidates * 5)
    assert len(charted_versions(many)) == 4


def test_where_nothing_is_worth_taking_the_list_is_open(optimization: Optimization, kernel: Kernel) -> None:
    parts = optimization_parts(replace(optimization, best=None), kernel)
    assert "No candidate is worth taking" in seen(parts)
    assert '<details data-fold="others" open>' in "".join(parts)
    assert re.search(r"<summary>\d+ candidates</summary>", "".join(parts)), "there is none that they are other than"


def unwritten(wrong: Verdict) -> Finding:
    """A finding whose message has no values."""
    return replace(wrong.findings[0], code=FindingCode.STALE_OUTPUT)


@pytest.mark.parametrize("code", sorted(FindingCode))
def test_expected_and_actual_values_are_shown_once(wrong: Verdict, kernel: Kernel, code: FindingCode) -> None:
    first = replace(wrong.findings[0], code=code)
    shown = seen(verdict_parts(replace(wrong, findings=(first,)), SourceLines({kernel.unit.path: kernel.unit.text})))
    assert ("want 0.0011" in shown) == (code not in WITH_VALUES)


def test_the_number_of_wrong_sizes_is_said_once(wrong: Verdict, kernel: Kernel) -> None:
    sources = SourceLines({kernel.unit.path: kernel.unit.text})
    counted = Finding(FindingCode.WRONG_VALUES, "error", "y[0] is 1 and should be 2; 1 of 4 sizes are wrong", "softmax.cu", None)  # fmt: skip
    page = "".join(verdict_parts(replace(wrong, findings=(counted,)), sources)).partition("<details")[0]
    assert page.count("of 4") == 1
    assert "softmax.cu" not in page, "the page's own file without a line leads nowhere"
    assert "<code></code>" not in page
    race = seen(verdict_parts(replace(wrong, findings=(wrong.findings[1], counted)), sources))
    assert "wrong on 1 of 4 cases" in race, "in the first line where the finding that says it is folded"


def test_a_wrong_kernel_shows_its_first_error_and_keeps_the_charts_closed(wrong: Verdict, kernel: Kernel) -> None:
    sources = SourceLines({kernel.unit.path: kernel.unit.text})
    parts = verdict_parts(replace(wrong, findings=(unwritten(wrong), wrong.findings[1])), sources)
    shown = seen(parts)
    assert "the last 85 columns of each row are never written" in shown
    assert "y[row * cols + threadIdx.x]" in shown, "the line itself"
    assert "y[0, 852]: want 0.0011, got nan" in shown
    assert "no barrier between" not in shown, "the second finding is folded"
    assert "Correctness" not in shown


def test_the_view_is_closed_to_scripts_and_hostile_text(optimization: Optimization, kernel: Kernel) -> None:
    evil = "</style><script>alert(1)</script>"
    first = optimization.candidates[0]
    hostile = replace(first, candidate=replace(first.candidate, author=evil, why=evil))
    page = view(optimization_parts(replace(optimization, candidates=(hostile,), notes=(evil,)), kernel))
    assert "<script" not in page
    assert page.count("</style>") == 1


# ----------------------------------------------------------------------------------------------------- charts


def test_errors_stand_where_the_log_axis_has_them(make: SimpleNamespace) -> None:
    cases = tuple(make.case({"n": n}, max_error=error) for n, error in ((1, 0.01), (2, 0.1), (3, 1.0)))
    scene = correctness_scene([ChartVersion("baseline", make.verdict(cases=cases))])
    assert scene is not None
    marks = [shape.x for shape in scene.shapes if isinstance(shape, Rect)]
    assert marks[1] - marks[0] == pytest.approx(marks[2] - marks[1])
    assert "3 of 3 right, worst 1" in texts(scene)


def test_a_wrong_case_without_a_finite_error_is_a_diamond_at_the_edge(wrong: Verdict) -> None:
    scene = correctness_scene([ChartVersion("1 x", wrong)])
    assert scene is not None
    (diamond,) = [shape for shape in scene.shapes if isinstance(shape, Mark)]
    assert diamond.x == pytest.approx(WIDE.right)
    assert "3 of 4 right, worst not finite" in texts(scene)


def roofline(share: float, time_us: float) -> Roofline:
    work, roofs = Work({"fp32": 1.0}, 1.0, 1.0, 1.0, "dram"), Roofs("table", 1.0, 1.0, 1.0, {"fp32": 1.0})
    return Roofline(work, roofs, "measured", 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, "memory", 1.0, 1.0, 1.0, 1.0, time_us, time_us, share, share)  # fmt: skip


def test_times_are_as_long_as_they_are_with_their_roof(make: SimpleNamespace) -> None:
    fast = make.verdict(timing=Timing("measured", 5.0, (4.9, 5.1), None, None, 400, 1980, False), roofline=roofline(0.5, 5.0))  # fmt: skip
    slow = replace(
        fast, timing=replace(fast.timing, median_us=10.0, ci95_us=(9.9, 10.1)), roofline=roofline(0.25, 10.0)
    )
    scene = time_scene([ChartVersion("baseline", slow), ChartVersion("1 x", fast)])
    assert scene is not None
    first, second = [shape for shape in scene.shapes if isinstance(shape, Rect)]
    assert first.width == pytest.approx(2 * second.width)
    assert not first.hollow
    thick = [shape for shape in scene.shapes if getattr(shape, "width", 0) == 2.5]
    assert thick[0].points[0][0] == pytest.approx(thick[1].points[0][0]), "both could take 2.5 us"
    assert any("roof" in text for text in texts(scene))


def test_predictions_are_hollow_and_said_to_be_so(make: SimpleNamespace) -> None:
    scene = time_scene([ChartVersion("baseline", make.verdict())])
    assert scene is not None
    assert all(shape.hollow for shape in scene.shapes if isinstance(shape, Rect))
    assert any("predicted" in text for text in texts(scene))


def test_occupancy_names_its_limiter(make: SimpleNamespace) -> None:
    scene = occupancy_scene([ChartVersion("baseline", make.verdict())])
    assert scene is not None
    assert "75%, registers" in texts(scene)
    (bar,) = [shape for shape in scene.shapes if isinstance(shape, Rect)]
    assert bar.width == pytest.approx(0.75 * (WIDE.right - LEFT))


def test_nothing_is_drawn_of_nothing(broken: Verdict) -> None:
    assert result_scenes([ChartVersion("baseline", broken)]) == []


@pytest.mark.parametrize("layout", [WIDE, NARROW])
@pytest.mark.parametrize("count", [1, 2, 4])
def test_charts_are_at_most_260_pixels_tall_and_nothing_sticks_out(
    optimization: Optimization, make: SimpleNamespace, count: int, layout: ChartLayout
) -> None:
    name = "3 vectorize+fast-intrinsics+warp-reduction+online-softmax"
    unbounded = make.verdict(timing=Timing("predicted", 1e-3, (0.0, math.inf), None, None, None, None, None))
    verdicts: list[Any] = [optimization.baseline, *(one.verdict for one in optimization.candidates[:2]), unbounded]
    drawn_up_to = 360 if layout is WIDE else 190
    for scene in result_scenes([ChartVersion(name, one) for one in verdicts[:count]], layout):
        assert scene.height * drawn_up_to / layout.width <= 260
        for shape in scene.shapes:
            if isinstance(shape, TextShape):
                left = shape.x - {"start": 0, "middle": 0.5, "end": 1}[shape.anchor] * text_width(
                    shape.text, shape.size
                )
                assert left >= -1
                assert left + text_width(shape.text, shape.size) <= scene.width + 1


def test_long_names_are_shortened_in_the_middle_so_that_they_differ() -> None:
    one, other = "4 vectorize+fast-intrinsics+warp-reduction", "6 vectorize+fast-intrinsics+online-softmax"
    for room in (60.0, 90.0, 140.0):
        assert shortened(one, room) != shortened(other, room)
        assert text_width(shortened(one, room)) <= room
        assert shortened(one, room).startswith("4")
    assert shortened("short", 200.0) == "short"


JOINED = (
    "baseline",
    "1 warp-per-row+unroll+block-size",
    "2 warp-per-row+restrict+block-size",
    "3 warp-per-row+unroll+vectorize",
)


@pytest.mark.parametrize("room", [60.0, 90.0, 120.0, 150.0])
def test_shortened_names_of_joined_rewrites_differ_in_what_is_left_of_them(room: float) -> None:
    left = [shortened(name, room, 12.6, JOINED) for name in JOINED]
    assert all(text_width(name, 12.6) <= room for name in left)
    assert [name[:2] for name in left[1:]] == ["1 ", "2 ", "3 "]
    for shown, own in zip(left, JOINED, strict=True):
        pattern = re.escape(shown[2:]).replace(re.escape("..."), ".*")
        assert [name for name in JOINED if re.fullmatch(pattern, name[2:])] == [own]


def test_whole_rewrites_are_kept_where_they_tell_a_name_from_others() -> None:
    assert shortened(JOINED[2], 120.0, 12.6, JOINED) == "2 ...+restrict+..."
    assert shortened(JOINED[2], 120.0, 12.6) == "2 warp-p...k-size"
    assert shortened("+".join("ab" * 99), 60.0, 12.6, ["b+a"]), "as many rewrites as a plugin likes"


def test_a_candidate_has_one_name_in_all_charts(make: SimpleNamespace) -> None:
    scenes = result_scenes([ChartVersion(name, make.verdict()) for name in JOINED])
    names = [[text for text in texts(scene) if text.startswith(("1 ", "2 ", "3 "))] for scene in scenes]
    assert names == [[*JOINED[1:]]] * 3, "the whole, above the figures"
    short = result_scenes([ChartVersion(name, make.verdict()) for name in ("baseline", "1 unroll")])
    assert all(below.height < above.height for below, above in zip(short, scenes, strict=True))
    narrow = result_scenes([ChartVersion(name, make.verdict()) for name in JOINED], NARROW)
    shown = [[text for text in texts(scene) if text.startswith(("1 ", "2 ", "3 "))] for scene in narrow]
    assert shown[0] == shown[1] == shown[2]
    assert len({name[2:] for name in shown[0]}) == 3


def test_a_stopped_search_says_what_it_keeps() -> None:
    from kernelmate.report import words

    assert words.stopped_words(3, 1) == "stopped: 3 judged, best is #2"
    assert words.stopped_words(0, None) == "stopped: 0 judged"


def test_a_measured_gain_reads_as_an_engineer_says_it(make: SimpleNamespace) -> None:
    from kernelmate.report import words

    measured = make.verdict(speedup=Speedup("measured", 1.42, (1.40, 1.44)))
    assert words.gain_sentence(measured) == "1.42x [1.40, 1.44] faster"
    assert words.cases_sentence(measured) == ("right on 4 cases", "good")
