"""Sequences of recipes, searched: what is tried on what, in which order, and when it ends."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kernelmate.config import load_settings
from kernelmate.records import Candidate, Diagnostic, Judged, Speedup, Verdict
from kernelmate.session import Session
from kernelmate.source import apply_edits, load_kernel
from kernelmate.suggest.base import SuggestRequest
from kernelmate.suggest.composition import Composition, new_warnings
from kernelmate.suggest.recipes import Recipe, Rewrite
from kernelmate.suggest.recipes.launch import RECIPE as LAUNCH

SOURCE = """
// /// kernelmate
// sizes = [{ n = 100 }]
// grid = "cdiv(n, block)"
// block = 128
// [args]
// x = "inout float32[n]"
// n = "int32"
// ///
__global__ void k(float* x, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) x[i] = 1.0f;
}
"""


def marking(name: str, needs: str = "", caution: str | None = None) -> Recipe:
    """A recipe that writes its name into the kernel, once, where another's name stands already."""

    def rewrites(request: SuggestRequest) -> Iterator[Rewrite]:
        kernel = request.kernel
        if f"/*{name}*/" not in kernel.source and needs in kernel.source:
            marked = apply_edits(kernel, [(kernel.end - 1, kernel.end - 1, f"/*{name}*/")])
            yield Rewrite(marked, request.contract, f"Because of {name}.", caution)

    return Recipe(name, ("time",), (), rewrites)


@pytest.fixture
def search(ask: Callable[..., SuggestRequest], verdict: Callable[..., Verdict]) -> Callable[..., list[str]]:
    """`search(recipes, times)`: authors in the order of judging; times are by the marks in the kernel, block appended."""

    def run(
        recipes: tuple[Recipe, ...], times: dict[str, float | str], stop_after: int = 1000, **options: int
    ) -> list[str]:
        request = ask(SOURCE, time_us=100.0)
        authors: list[str] = []

        def judge(candidate: Candidate) -> Judged:
            authors.append(candidate.author.removeprefix("recipe:"))
            marks = "".join(mark for mark in "abcdef" if f"/*{mark}*/" in candidate.kernel.source)
            block = candidate.contract.block[0]
            known = times.get(f"{marks}@{block}", times.get(marks, 100.0))
            made = verdict(error="wrong-values", time_us=1.0) if known == "wrong" else verdict(time_us=known)
            return Judged(candidate, replace(made, correct=known != "wrong"))

        request = replace(request, judge=judge, stop=lambda: len(authors) >= stop_after)
        handed = [one.author.removeprefix("recipe:") for one in Composition(recipes, **options).propose(request)]
        assert handed == authors
        return authors

    return run


def test_what_one_recipe_opens_another_goes_on_from(search: Callable[..., list[str]]) -> None:
    recipes = marking("a"), marking("b", needs="/*a*/"), marking("c", needs="/*b*/")
    assert search(recipes, {"a": 99.0, "ab": 50.0, "abc": 20.0}) == ["a"]
    assert search(recipes, {"a": 90.0, "ab": 50.0, "abc": 20.0}) == ["a", "a+b", "a+b+c"]


def test_the_best_are_built_on_first_and_the_beam_bounds_how_many(search: Callable[..., list[str]]) -> None:
    recipes = marking("a"), marking("b"), marking("c")
    times: dict[str, float | str] = {"a": 90.0, "b": 40.0, "c": 70.0, "bc": 30.0, "ab": 39.0, "abc": 20.0}
    assert search(recipes, times, beam=1) == ["a", "b", "c", "b+c", "b+a", "b+c+a"]


def test_a_recipe_that_did_nothing_is_not_tried_again_and_a_wrong_version_is_not_built_on(
    search: Callable[..., list[str]],
) -> None:
    recipes = marking("a"), marking("b"), marking("c")
    assert search(recipes, {"a": "wrong", "b": 100.0, "c": 50.0}) == ["a", "b", "c"]


def test_a_version_with_a_caution_is_offered_and_not_built_on(search: Callable[..., list[str]]) -> None:
    recipes = marking("a", caution="read it"), marking("b", needs="/*a*/")
    assert search(recipes, {"a": 10.0, "ab": 5.0}) == ["a"]


def test_the_launch_is_tuned_again_after_each_step(search: Callable[..., list[str]]) -> None:
    recipes = marking("a"), marking("b", needs="/*a*/"), LAUNCH
    authors = search(recipes, {"a": 50.0, "a@256": 40.0, "ab": 30.0, "ab@256": 20.0, "ab@512": 10.0})
    assert authors[0] == "a"
    assert authors[1:5] == ["a+block-size"] * 4
    assert "a+block-size+b" in authors
    assert authors[-1].endswith("+b+block-size")


def test_the_launch_has_its_place_among_the_recipes_unless_one_before_it_did_better(
    search: Callable[..., list[str]],
) -> None:
    recipes = marking("a"), LAUNCH, marking("b")
    authors = search(recipes, {"@256": 60.0, "@512": 30.0, "": 100.0, "a": 90.0})
    assert authors[:6] == ["a", "block-size", "block-size", "block-size", "block-size", "b"]
    assert search(recipes, {"a": 20.0, "": 100.0})[:2] == ["a", "b"]


def test_depth_bounds_the_sequence_and_stop_is_honoured_between_any_two(search: Callable[..., list[str]]) -> None:
    recipes = tuple(marking(name) for name in "abcd")
    times: dict[str, float | str] = {"a": 80.0, "ab": 60.0, "abc": 40.0, "abcd": 20.0, "b": 95.0, "c": 95.0, "d": 95.0}
    assert max(author.count("+") for author in search(recipes, times, depth=2)) == 1
    assert max(author.count("+") for author in search(recipes, times)) == 3
    full = search(recipes, times)
    for count in range(1, 7):
        assert search(recipes, times, stop_after=count) == full[:count]


def test_no_more_are_handed_out_than_wanted(search: Callable[..., list[str]]) -> None:
    recipes = tuple(marking(name) for name in "abcd")
    times: dict[str, float | str] = {"a": 80.0, "b": 70.0}
    assert len(search(recipes, times)) > 3
    assert search(recipes, times, most=3) == ["a", "b", "c"]


def test_what_a_quick_evaluation_finds_no_better_is_not_judged_and_what_promises_most_is_judged_at_once(
    ask: Callable[..., SuggestRequest], verdict: Callable[..., Verdict]
) -> None:
    times = {"a": 120.0, "b": 97.0, "c": 40.0, "d": 50.0, "e": 95.0, "f": 20.0}
    steps: list[tuple[str, str]] = []

    def look(candidate: Candidate, by: str) -> Judged:
        name = candidate.author.removeprefix("recipe:")
        steps.append((by, name))
        made = verdict(time_us=times.get(name, 100.0))
        return Judged(candidate, replace(made, accepted=None if times.get(name, 100.0) < 60 else False))

    request = replace(
        ask(SOURCE, time_us=100.0),
        judge=lambda one: look(one, "judge"),
        quick_evaluation=lambda one: look(one, "quick"),
    )
    recipes = tuple(marking(name) for name in "abcdef")
    handed = [one.author.removeprefix("recipe:") for one in Composition(recipes, depth=1).propose(request)]
    judged = [name for by, name in steps if by == "judge"]
    assert handed == judged == ["c", "f", "d", "e", "b"]
    assert steps.index(("judge", "c")) == steps.index(("quick", "c")) + 1
    assert steps.index(("judge", "d")) > steps.index(("quick", "f"))


def test_of_what_promises_more_than_the_best_the_best_is_judged_and_what_proves_wrong_is_not_built_on(
    ask: Callable[..., SuggestRequest], verdict: Callable[..., Verdict]
) -> None:
    times = {"a": 80.0, "b": 60.0, "c": 20.0, "d": 40.0, "e": 50.0}
    steps: list[tuple[str, str]] = []

    def look(candidate: Candidate, by: str) -> Judged:
        name = candidate.author.removeprefix("recipe:")
        steps.append((by, name))
        if by == "judge" and "c" in name:  # right where it was evaluated quickly, wrong elsewhere
            return Judged(candidate, replace(verdict(error="wrong-values", time_us=20.0), correct=False))
        us = times.get(name, 100.0)
        return Judged(candidate, replace(verdict(time_us=us), accepted=None if us < 90 else False))

    request = replace(
        ask(SOURCE, time_us=100.0),
        judge=lambda one: look(one, "judge"),
        quick_evaluation=lambda one: look(one, "quick"),
    )
    list(Composition(tuple(marking(name) for name in "abcde"), depth=2).propose(request))
    judged = [name for by, name in steps if by == "judge"]
    assert judged[:3] == ["a", "c", "d"]
    assert steps.index(("judge", "c")) > steps.index(("quick", "e"))
    built_on = {name.split("+")[0] for by, name in steps if "+" in name}
    assert built_on == {"d", "e"}


def test_a_measured_ratio_of_the_same_blocks_goes_before_two_times_of_different_minutes(
    ask: Callable[..., SuggestRequest], verdict: Callable[..., Verdict]
) -> None:
    judged: list[str] = []

    def look(candidate: Candidate, by: str) -> Judged:
        slower = Speedup("measured", 0.9, (0.89, 0.91))
        made = replace(verdict(time_us=95.0), speedup=slower, accepted=False)
        judged.extend([candidate.author] if by == "judge" else [])
        return Judged(candidate, made)

    request = replace(
        ask(SOURCE, time_us=100.0),
        judge=lambda one: look(one, "judge"),
        quick_evaluation=lambda one: look(one, "quick"),
    )
    assert list(Composition((marking("a"),)).propose(request)) == []
    assert judged == []


def test_what_will_be_looked_at_is_told_before_and_changes_nothing(
    ask: Callable[..., SuggestRequest], verdict: Callable[..., Verdict]
) -> None:
    times = {"a": 90.0, "b": 60.0, "c": 40.0, "b+c": 30.0, "c+a": 20.0}
    steps: list[tuple[str, str]] = []

    def look(candidate: Candidate) -> Judged:
        name = candidate.author.removeprefix("recipe:")
        steps.append(("look", name))
        return Judged(candidate, replace(verdict(time_us=times.get(name, 100.0)), accepted=None))

    def told(candidate: Candidate) -> None:
        steps.append(("told", candidate.author.removeprefix("recipe:")))

    def run(**more: object) -> list[str]:
        steps.clear()
        request = replace(ask(SOURCE, time_us=100.0), judge=look, quick_evaluation=look, **more)
        recipes = (*(marking(name) for name in "abc"), LAUNCH)
        return [f"{one.author} {one.why} {one.kernel.source}" for one in Composition(recipes).propose(request)]

    without = run()
    looked = [name for what, name in steps if what == "look"]
    assert run(expect=told) == without
    assert [name for what, name in steps if what == "look"] == looked
    # Every launch of the kernel is told of once at most, and never more of one recipe than are looked at.
    announced = [name for what, name in steps if what == "told"]
    assert set(looked) <= set(announced)
    assert announced.count("block-size") <= 4
    assert steps[:8] == [*(("told", name) for name in "abc"), *[("told", "block-size")] * 4, ("look", "a")]


def test_what_is_wrong_at_a_quick_evaluation_is_offered_as_wrong(
    ask: Callable[..., SuggestRequest], verdict: Callable[..., Verdict]
) -> None:
    def look(candidate: Candidate) -> Judged:
        return Judged(candidate, replace(verdict(error="wrong-values", time_us=1.0), correct=False))

    request = replace(ask(SOURCE, time_us=100.0), judge=look, quick_evaluation=look)
    assert [one.author for one in Composition((marking("a"),)).propose(request)] == ["recipe:a"]


def test_the_reason_tells_every_step(ask: Callable[..., SuggestRequest], verdict: Callable[..., Verdict]) -> None:
    request = ask(SOURCE, time_us=100.0)

    def judge(candidate: Candidate) -> Judged:
        return Judged(candidate, verdict(time_us=100.0 / (1 + candidate.author.count("+") + 1)))

    request = replace(request, judge=judge)
    found = list(Composition((marking("a"), marking("b", needs="/*a*/"))).propose(request))
    assert [one.author for one in found] == ["recipe:a", "recipe:a+b"]
    assert found[1].why == "Because of a. Then: Because of b."
    assert "/*a*//*b*/" in found[1].kernel.source


MATVEC = """
// /// kernelmate
// sizes = [{ rows = 64, cols = 150 }, { rows = 3, cols = 5 }]
// grid = "cdiv(rows, 64)"
// block = 64
// reference = "a @ x"
// [args]
// a = "in float32[rows, cols]"
// x = "in float32[cols]"
// y = "out float32[rows]"
// rows = "int32"
// cols = "int32"
// ///
__global__ void matvec(const float* a, const float* x, float* y, int rows, int cols) {
  int r = blockIdx.x * blockDim.x + threadIdx.x;
  if (r >= rows) return;
  float s = 0.0f;
  for (int c = 0; c < cols; ++c) s += a[r * cols + c] * x[c];
  y[r] = s;
}
"""


def test_equal_seeds_search_equally_and_every_version_is_right(tmp_path: Path) -> None:
    path = tmp_path / "matvec.cu"
    path.write_text(MATVEC)

    def found() -> list[tuple[Any, ...]]:
        judged: list[Judged] = []
        with Session(load_settings(seed=5, backend="emulator")) as session:
            session.optimize(load_kernel(str(path)), "make it faster", max_candidates=10, on_judged=judged.append)
        assert all(one.verdict.correct for one in judged)
        return [(j.candidate.author, j.candidate.kernel.source, j.verdict.timing, j.verdict.accepted) for j in judged]

    first = found()
    assert first == found()
    assert any("warp-per-row+" in author for author, *_ in first)
    assert next(author for author, *_ in first if author.startswith("recipe:")) == "recipe:warp-per-row"
    assert first[0][3] is None


def test_a_version_that_brings_a_new_warning_is_neither_offered_nor_built_on(
    ask: Callable[..., SuggestRequest], verdict: Callable[..., Verdict]
) -> None:
    recipes = marking("a"), marking("b", needs="/*a*/"), marking("c")
    old, new = Diagnostic("warning", "old", "k.cu", 1, 1), Diagnostic("warning", "unused variable", "k.cu", 3, 1)

    def judge(candidate: Candidate) -> Judged:
        warned = "/*a*/" in candidate.kernel.source
        found = verdict(time_us=50.0, diagnostics=(replace(old, line=9), *([new] if warned else [])))
        return Judged(candidate, replace(found, correct=True))

    request = replace(ask(SOURCE, time_us=100.0, diagnostics=(old,)), judge=judge)
    assert [one.author for one in Composition(recipes).propose(request)] == ["recipe:c"]
    assert new_warnings(request.verdict, verdict(diagnostics=(old, old))) == ["old"]


def test_what_narrows_the_domain_is_offered_alone(
    ask: Callable[..., SuggestRequest], verdict: Callable[..., Verdict]
) -> None:
    def narrowing(request: SuggestRequest) -> Iterator[Rewrite]:
        if "/*n*/" not in request.kernel.source:
            kernel = apply_edits(request.kernel, [(request.kernel.end - 1, request.kernel.end - 1, "/*n*/")])
            yield Rewrite(kernel, replace(request.contract, require=("n < 2**31",)), "Narrower.")

    def judge(candidate: Candidate) -> Judged:
        time_us = 90.0 - 20.0 * len(candidate.kernel.source.split("/*"))
        return Judged(candidate, replace(verdict(time_us=time_us), correct=True))

    request = replace(ask(SOURCE, time_us=100.0), judge=judge)
    recipes = marking("a"), Recipe("narrow", ("time",), (), narrowing), marking("b")
    authors = [one.author for one in Composition(recipes).propose(request)]
    assert "recipe:a+b" in authors
    assert [author for author in authors if "narrow" in author] == ["recipe:narrow"]


def test_another_launch_is_told_once_and_against_the_kernel_as_it_was(
    ask: Callable[..., SuggestRequest], verdict: Callable[..., Verdict]
) -> None:
    times = {"128": 100.0, "256": 40.0, "512": 20.0, "1024": 60.0}
    whys: dict[str, str] = {}

    def judge(candidate: Candidate) -> Judged:
        time_us = times.get(candidate.contract.block[0], 90.0) / (2 if "/*a*/" in candidate.kernel.source else 1)
        whys[f"{candidate.author} {candidate.contract.block[0]}"] = candidate.why
        return Judged(candidate, replace(verdict(time_us=time_us), correct=True))

    request = replace(ask(SOURCE, time_us=100.0), judge=judge)
    recipes = marking("a", needs="x[i]"), LAUNCH
    assert list(Composition(recipes).propose(request))
    assert all(
        why.count("threads per block") == 1 and "instead of 128" in why for why in whys.values() if "threads" in why
    )
    assert any("block-size" in author for author in whys)
