"""Processing of one group: drawn, judged, questioned, repaired where it is broken, and written as rows.

The verdict on a pair compares the better version with the other, by the product's rules.
"""

from __future__ import annotations

import functools
import statistics
import time
from dataclasses import dataclass, replace
from random import Random

from kernelmate.decide.acceptance import decide
from kernelmate.decide.objective import read_objective
from kernelmate.measure.statistics import EDITED, speedup
from kernelmate.records import MetricName, Objective, Size, Speedup, Timing, Verdict
from kernelmate.suggest.codec.applicable import Offer, Step, candidates
from kernelmate.suggest.codec.base import NotEncodable, Question, UndecodableAnswer
from kernelmate_training.corpus.choosing import (
    Choice,
    MetricQuestion,
    asking_of,
    choose,
    close,
    cost_of,
    improvable_metrics,
    improvement_factor,
    next_rewrites,
    with_times,
)
from kernelmate_training.corpus.drafting import Family
from kernelmate_training.corpus.examples import actions_of, change_row, offers_of, repair_row, written
from kernelmate_training.corpus.groups import Group, Pair, Repair, draw_prompt, make_group
from kernelmate_training.corpus.journal import GroupResult
from kernelmate_training.corpus.judging import NOT_TIMED, TURNS, Judge, Judged, Rounds, seed_of
from kernelmate_training.examples import question_of
from kernelmate_training.overlap import NEAR, Overlaps

LEAST_GAIN = 1.02
"""Smallest measured speed-up of a row; smaller ones may be noise."""


def objective_of(pair: Pair) -> Objective:
    """Returns the objective of a pair's prompt."""
    return read_objective(pair.prompt, name=pair.metric)


def timing_of(rounds: Rounds, size: Size) -> Timing:
    """Returns the timing of some rounds, with the size at which they were taken."""
    times = sorted(rounds.times_us)
    at = ", ".join(f"{name} = {value}" for name, value in size.items())
    note = f"period of {rounds.repeats} launches in a graph, at {at}"
    return Timing(
        "measured",
        statistics.median(times),
        (times[0], times[-1]),
        None,
        statistics.median(times),
        rounds.repeats * len(times),
        None,
        None,
        notes=(note,),
    )


def ratio_of(before: Rounds, after: Rounds) -> Speedup:
    """Returns the speed-up as median and range of the rounds.

    The range of seven rounds contains the median in 98 % of cases (sign test).
    """
    ratios = sorted(one / other for one, other in zip(before.times_us, after.times_us, strict=True))
    return Speedup("measured", statistics.median(ratios), (ratios[0], ratios[-1]))


def held_together(
    before: Judged, after: Judged, pair: Pair, rounds: tuple[Rounds, Rounds] | None, size: Size
) -> Verdict:
    """Returns the verdict of `after` compared with `before`, with the objective, the decision and the reasons.

    Args:
        before: a correct version.
        after: another correct version.
        pair: the pair, which gives the objective.
        rounds: timings of both in alternating rounds; None to use predictions, if there are any.
        size: the size of the timings.
    """
    first, second = before.verdict, after.verdict
    ratio = None
    if rounds is not None:
        first = replace(first, timing=timing_of(rounds[0], size))
        second = replace(second, timing=timing_of(rounds[1], size))
        ratio = ratio_of(*rounds)
    elif first.timing is not None and second.timing is not None:
        ratio = speedup(first.timing, second.timing, EDITED)
    second = replace(second, speedup=ratio)
    # Counters are of the listed sizes; times are of another size, and are in the verdicts.
    sizes = () if rounds is not None else (before.metrics, after.metrics)
    decision = decide(objective_of(pair), first, second, *sizes, error=EDITED)
    return replace(
        second,
        objective=decision.objective,
        accepted=decision.accepted,
        reasons=decision.reasons,
        trade_offs=decision.trade_offs,
    )


def worth_teaching(verdict: Verdict, metric: str) -> bool:
    """Returns True if a verdict is accepted, or promising without measurements.

    A measured time must gain `LEAST_GAIN`.
    """
    if not verdict.worth_taking:
        return False
    ratio = verdict.speedup
    return metric != "time" or ratio is None or ratio.kind != "measured" or ratio.median >= LEAST_GAIN


TRIED = 8
"""Largest number of versions judged for one mistake."""


@dataclass(frozen=True, slots=True)
class RepairedVersion:
    """A repair: its step, its judged version, and its reason."""

    step: Step
    judged: Judged
    why: str


def repairs_of(judge: Judge, question: Question, original: str) -> tuple[tuple[Offer, ...], RepairedVersion | None]:
    """Returns the repairs that apply, and the first whose version is correct; None if there is none.

    Args:
        judge: the judge of the group.
        question: the question about the broken version, as a model is asked.
        original: the text that the mistake was put into; a repair that restores it comes first.
    """
    try:
        found = [(name, made) for name, made in candidates(question)]
    except (NotEncodable, UndecodableAnswer):
        return (), None
    offers = tuple((name, len(made)) for name, made in found)
    # The first variant of each, then the second of each: so repairs late in the list are tried too.
    turns = [
        (name, number, made[number])
        for number in range(max((len(made) for _, made in found), default=0))
        for name, made in found
        if number < len(made)
    ]
    back = [turn for turn in turns if turn[2].kernel.unit.text == original]
    for name, number, candidate in (back or turns)[:TRIED]:
        judged = judge.judge(candidate.kernel.unit.text)
        if judged.right:
            return offers, RepairedVersion((name, number), judged, candidate.why)
    return offers, None


ANALYSED = 0.75
"""Fraction of the pairs, and of the best choices, that also become examples of analysing."""

EDITS = 0.5
"""Fraction of the hand-written fixes that become rows although a rewrite was also correct and better."""

OTHERS = 2
"""Number of metrics that a group's first version is asked about, besides those that its flaws affect."""

TWO_STEPS, WORTH = 0.2, 1.1
"""Probability of a second step after a best choice, and the factor by which it must improve the metric."""

ENOUGH_S = 2.5
"""Seconds of processor time after which a group gets no more questions, with a GPU.

Runs with a GPU are not reproducible anyway, since no two measure equal times.
"""

HEADLINES = 48
"""With a GPU, one in this many groups is also emulated at its headline size."""


@functools.cache
def _exam() -> Overlaps:
    """Returns the exam's kernels, which must not be in a corpus."""
    from kernelmate_training.exam.similarity import exam_texts

    return Overlaps(exam_texts())


def _near(text: str) -> bool:
    return _exam().nearest(text).overlap >= NEAR


def draw_group(family: Family, number: int, seed: int) -> Group:
    """Returns one group; equal numbers and seeds give equal groups."""
    own = seed_of(seed, family.name, number)
    rng = Random(own)  # noqa: S311 -- problems, no secrets
    return make_group(family.draw(rng), rng, number, own % 2**31)


def study(judge: Judge, family: Family, number: int, seed: int) -> GroupResult:
    """Draws a group and judges it."""
    group = draw_group(family, number, seed)
    found = GroupResult(number, family.name)
    # With a GPU, only some groups are emulated at the headline; the others are counted at their odd size.
    judge.begin(group.seed, headline=judge.gpu is None or group.seed % HEADLINES == 0)
    if any(_near(text) for text in group.texts):
        found.wrong = ["left out: nearly a kernel of the exam"]
        return found
    _Study(judge, family, group, found).run()
    return found


class _Study:
    """Study of one group.

    Attributes:
        size: the size that a GPU times: the headline or one that fills the GPU, each in half of the groups; None
            without a GPU.
        other: the other one of these two sizes.
    """

    size: Size | None
    other: Size | None

    def __init__(self, judge: Judge, family: Family, group: Group, found: GroupResult) -> None:
        self.judge, self.family, self.group, self.found = judge, family, group, found
        self.rng = Random(seed_of("study", group.seed))  # noqa: S311
        self.judged_on = "emulated" if judge.gpu is None else "measured"
        self.size, self.other = None, None
        if judge.gpu is not None:
            sizes = [group.problem.sizes[0], group.problem.large]
            self.rng.shuffle(sizes)
            self.size, self.other = sizes
        self.judged = [judge.judge(text) for text in group.texts]
        self.rounds = self._times()
        if self.size == group.problem.large and any(str(said).startswith(NOT_TIMED) for said in self.rounds.values()):
            # Too slow there, so only the headline can be asked about.
            self.size, self.other = group.problem.sizes[0], None
            self.rounds = self._times()
        self.begun = time.process_time()
        found.texts, found.right = len(self.judged), sum(one.right for one in self.judged)
        found.wrong = [one.words for one in self.judged if one.words]
        found.wrong += [said for said in self.rounds.values() if isinstance(said, str)]

    def _times(self) -> dict[int, Rounds | str]:
        """Times the group's own versions in alternating rounds; empty without a GPU."""
        if self.judge.gpu is None or self.size is None:
            return {}
        return self.judge.gpu.time(self.judged, self.size, self.judge.target)

    @property
    def enough(self) -> bool:
        """True if the group has taken its time budget."""
        return self.judge.gpu is not None and time.process_time() - self.begun > ENOUGH_S

    def run(self) -> None:
        """Asks every question about every version with flaws, then processes the mistakes."""
        for number, before in enumerate(dict.fromkeys(pair.before for pair in self.group.pairs)):
            if (
                self.judged[before].right
                and not isinstance(self.rounds.get(before), str)
                and not (number and self.enough)
            ):
                self._ask(before, others=0 if number else OTHERS)
        for repair in self.group.repairs:
            if self.judged[repair.after].right and not isinstance(self.rounds.get(repair.after), str):
                self._mend(repair)

    def _ask(self, before: int, *, others: int) -> None:
        """Asks all questions about one version: metrics that its flaws affect, other metrics, time at another size."""
        pairs = {pair.metric: pair for pair in self.group.pairs if pair.before == before}
        for number, pair in enumerate(pairs.values()):
            if number == 0 or not self.enough:
                self._question(pair, self.size)
        if "time" in pairs and others and self.other is not None and not self.enough:
            self._question(self._pair(before, "time"), self.other)
        for metric in improvable_metrics(self.judged[before], self.rng) if others else ():
            if not others or self.enough:
                return
            if metric not in pairs:
                others -= self._question(self._pair(before, metric), self.size)

    def _pair(self, before: int, metric: MetricName) -> Pair:
        return Pair(before, before, metric, (), draw_prompt(metric, self.rng))

    def _question(self, pair: Pair, size: Size | None) -> bool:
        """Writes rows for the choices and the fix of a pair; returns True if anything was tried."""
        before = self.judged[pair.before]
        asking = asking_of(before, pair.metric)
        pair = replace(pair, size=size, offers=() if asking is None else asking.offers)
        choices = [] if asking is None else self._choices(asking, before, size)
        taught = self._chosen(pair, before, choices)
        if pair.after != pair.before and self.judged[pair.after].right:
            self._edit(pair, before, taught=taught)
        return asking is not None

    def _choices(self, asking: MetricQuestion, before: Judged, size: Size | None) -> list[Choice]:
        """Returns correct and better options, the best first; sometimes the first one has a second step."""
        choices = choose(self.judge, asking, before, size)
        self.found.tried += len(asking.options)
        if not choices or asking.metric == "accuracy" or self.rng.random() >= TWO_STEPS or self.enough:
            return choices
        best = choices[0]
        then = next_rewrites(asking, best)
        if then is None:
            return choices
        self.found.tried += len(then.options)
        second = choose(self.judge, then, best.judged, size)
        if not second:
            return choices
        step = second[0]
        was = cost_of(asking.metric, best.judged.verdict)
        if step.rounds is not None and asking.metric == "time":
            was = step.rounds[0].median_us
        if was is None or improvement_factor(step, was) < WORTH:
            return choices
        if best.rounds is not None and size is not None:
            timed = with_times(self.judge, before, [step], size, TURNS)
            if asking.metric == "time":
                timed = [replace(one, cost=one.rounds[1].median_us) for one in timed if one.rounds is not None]
            return sorted([*timed, *choices], key=lambda one: one.cost)
        return [step, *choices]

    def _chosen(self, pair: Pair, before: Judged, choices: list[Choice]) -> bool:
        """Writes rows of the best choice and of those nearly as good; returns True if there are any."""
        good: list[tuple[Choice, Pair, Verdict]] = []
        for choice in choices:
            option = choice.option
            own = replace(pair, after=pair.before, flaws=(), steps=option.steps, whys=option.whys)
            verdict = None if _near(option.text) else self._verdict(own, before, choice.judged, choice.rounds)
            if verdict is not None:
                good.append((choice, own, verdict))
        self.found.pairs += len(choices)
        if not good:
            return False
        rounds, was = good[0][0].rounds, cost_of(pair.metric, before.verdict)
        if rounds is not None and pair.metric == "time":
            was = rounds[0].median_us
        kept = close([choice for choice, _, _ in good], float("inf") if was is None else was)
        for rank, choice in enumerate(kept, 1):
            own, verdict = next((own, verdict) for one, own, verdict in good if one is choice)
            self._write(replace(own, rank=rank), before, choice.judged, verdict, analysed=rank == 1)
        return True

    def _edit(self, pair: Pair, before: Judged, *, taught: bool) -> None:
        """Writes the row of a hand-written fix."""
        one, other = self.rounds.get(pair.before), self.rounds.get(pair.after)
        if isinstance(one, str) or isinstance(other, str) or (taught and self.rng.random() >= EDITS):
            return
        self.found.pairs += 1
        both = None if one is None or other is None else (one, other)
        verdict = self._verdict(pair, before, self.judged[pair.after], both)
        if verdict is not None:
            self._write(pair, before, self.judged[pair.after], verdict, analysed=True)

    def _verdict(
        self, pair: Pair, before: Judged, after: Judged, rounds: tuple[Rounds, Rounds] | None
    ) -> Verdict | None:
        """Returns the verdict of a pair if it is worth teaching, else None.

        Also None without a time where times are measured.
        """
        if pair.metric == "time" and self.judge.gpu is not None and rounds is None:
            return None
        verdict = held_together(before, after, pair, rounds, pair.size or self.group.problem.sizes[0])
        return verdict if worth_teaching(verdict, pair.metric) else None

    def _write(self, pair: Pair, before: Judged, after: Judged, verdict: Verdict, *, analysed: bool) -> None:
        self.found.better += 1
        row = change_row(self.group, self.family, pair, before, after, verdict, "generate", self.judged_on)
        self.found.rows.append(written(row))
        if analysed and self.rng.random() < ANALYSED:
            row = change_row(self.group, self.family, pair, before, after, verdict, "analyse", self.judged_on)
            self.found.rows.append(written(row))

    def _mend(self, repair: Repair) -> None:
        """Writes the row of a mistake, repaired by a built-in repair if one is correct, else by the original text."""
        self.found.broken += 1
        broken = self.judge.judge(repair.broken.text, hunt=True)
        if not broken.words or broken.verdict.correct is not False:
            return
        self.found.failing += 1
        original = self.judged[repair.after]
        row = repair_row(self.group, self.family, repair, broken, original, self.judged_on)
        offers, mending = repairs_of(self.judge, question_of(row), original.text)
        if mending is not None and not _near(mending.judged.text):
            row = repair_row(self.group, self.family, repair, broken, mending.judged, self.judged_on)
            row["author"] = f"recipe:{mending.step[0]}"
            row["actions"] = actions_of((mending.step,))
            row["reasoning"] = [*row["reasoning"], mending.why]
            self.found.mended += 1
        row["offers"] = offers_of(offers)
        self.found.rows.append(written(row))
