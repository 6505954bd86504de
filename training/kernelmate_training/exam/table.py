"""The exam's result as text: who met how many goals, and, goal by goal, how far each came."""

from __future__ import annotations

import statistics
from collections.abc import Iterator

from kernelmate_training.exam.records import ORDER, Attempt, Author, ExamResult, GoalResult

_SIGNS = {"unreadable": "?", "unchanged": "=", "broken": "x", "wrong": "w", "right": "r", "better": "b", "met": "MET"}
LEGEND = "MET goal met · b better · r right · w wrong · x does not compile or refused · = unchanged · ? unreadable · - nothing"


def summary_lines(result: ExamResult) -> Iterator[str]:
    """What was run, and the figures of every entrant."""
    part = "" if result.whole else f", {len(result.goals)} goals of it"
    yield f"Exam {result.version}{part} · sha256 {result.sha256[:16]} · {result.backend} · {result.target} · seed {result.seed}"
    if result.model is not None:
        yield "Model " + ", ".join(f"{name} {value}" for name, value in result.model.items())
    yield ""
    yield f"{'entrant':<16} {'right':>12} {'better':>12} {'met':>12}"
    for one in result.figures():
        shares = (f"{count:>4} ({count / max(one.goals, 1):>5.1%})" for count in (one.right, one.better, one.met))
        yield f"{one.entrant:<16} " + " ".join(f"{share:>12}" for share in shares)
    right, judged = result.held()
    if judged:
        yield f"{judged} versions that met a goal were judged again with other inputs; {right} of them are right."
    seconds = result.greedy_seconds()
    if seconds:
        longest = max(seconds)
        yield f"A greedy answer took {statistics.median(seconds):.2f} s (median), {longest:.2f} s at most, of {len(seconds)}."


def goal_lines(result: ExamResult) -> Iterator[str]:
    """A line for each goal, below a heading."""
    yield f"{'goal':<26} {'metric':<13} {'before':>9} {'model':<9} {'k':<9} {'recipes':<9} best"
    for goal in result.goals:
        yield goal_line(goal)
    yield LEGEND


def goal_line(goal: GoalResult) -> str:
    """How far the model's greedy answer, all its answers and the recipes came; and by whom, to what."""
    greedy = [one for one in goal.attempts if one.author == "model" and one.number == 0]
    best = best_of(goal, ("model", "recipes"))
    told = "" if best is None or best.after is None else f"{best.label} to {best.after:.4g}"
    if goal.problem and best is None:
        told = goal.problem[:80]
    before = "-" if goal.before is None else f"{goal.before:.4g}"
    model, recipes = best_of(goal, ("model",)), best_of(goal, ("recipes",))
    return (
        f"{goal.goal:<26} {goal.metric:<13} {before:>9} {_sign(greedy[0] if greedy else None):<9} "
        f"{_sign(model):<9} {_sign(recipes):<9} {told}".rstrip()
    )


def best_of(goal: GoalResult, authors: tuple[Author, ...]) -> Attempt | None:
    """The version of some authors that came furthest; the first of equals."""
    mine = [one for one in goal.attempts if one.author in authors]
    return max(mine, key=lambda one: ORDER.index(one.standing), default=None)


def _sign(attempt: Attempt | None) -> str:
    return "-" if attempt is None else _SIGNS[attempt.standing]
