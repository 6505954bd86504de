"""The choice that a model has to learn: which of the applicable rewrites are right and best for a metric.

Every applicable rewrite is tried. Registers, shared memory, local memory and occupancy are read from the compiled code,
and a GPU measures the time at once. Only the best versions are then proven right, best first, until there are enough of
them. Where the metric is counted or predicted, versions are proven first and ranked afterwards.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from random import Random

from kernelmate.decide.metrics import better, metric_value
from kernelmate.records import Candidate, MetricName, Size, Verdict
from kernelmate.suggest.base import SuggestRequest
from kernelmate.suggest.codec.applicable import Offer, assumed, candidates
from kernelmate.suggest.codec.base import NotEncodable, Question, UndecodableAnswer
from kernelmate.suggest.codec.programs import Step, after
from kernelmate.suggest.codec.requests import launch_of
from kernelmate_training.corpus.judging import Judge, Judged, Rounds, content_of

MOST = 12
"""Versions that are tried for one question."""
VARIANTS = {"block-size": 6, "unroll": 3}
"""Of one rewrite, the first ones: of most `FEW`."""
FEW = 2
PROVEN = 3
"""Right ones that suffice."""
TRIED = 5
"""Of ranked versions, those that are proven at most."""
COUNTED = 6
"""Versions that are proven in order to be ranked."""
CLOSE, SHARE = 1.12, 0.85
"""A version is nearly as good as the best where it costs no more than this many times as much, and has this share of its gain."""

GUARDING = 3
"""Turns in which versions are timed that are better in something else."""

ON_PAPER = frozenset({"registers", "shared_bytes", "local_bytes", "occupancy"})
"""Metrics that compiled code and its launch decide."""

WISHES: tuple[tuple[MetricName, float], ...] = (
    ("global_bytes", 0.3),
    ("registers", 0.2),
    ("occupancy", 0.2),
    ("shared_bytes", 0.15),
    ("local_bytes", 0.1),
    ("accuracy", 0.1),
)
"""Requests besides those for a version's deficiencies, and how often each is drawn."""


@dataclass(frozen=True, slots=True)
class Option:
    """A version that rewrites would make, and by which steps; whys: why each."""

    text: str
    steps: tuple[Step, ...]
    whys: tuple[str, ...]
    candidate: Candidate


@dataclass(frozen=True, slots=True)
class Asking:
    """A question about one version.

    Attributes:
        request: as codecs ask for rewrites, so that equal steps lead to equal versions.
        offers: all rewrites that apply, with how many variants. options: the versions that are tried.
    """

    request: SuggestRequest
    metric: MetricName
    offers: tuple[Offer, ...]
    options: tuple[Option, ...]


@dataclass(frozen=True, slots=True)
class Choice:
    """An option that is right. `cost` is the metric's number, lower is better; `rounds` of the version before and of it."""

    option: Option
    judged: Judged
    cost: float
    rounds: tuple[Rounds, Rounds] | None = None


def asking_of(judged: Judged, metric: MetricName) -> Asking | None:
    """The possible choices for a right version; None if nothing applies."""
    if judged.kernel is None or judged.version is None or not judged.right:
        return None
    contract = judged.version.contract
    question = Question(
        judged.text, judged.kernel.name, launch_of(contract), metric, contract=contract, verdict=judged.verdict
    )
    try:
        return options_on(assumed(question), metric, judged.text)
    except (NotEncodable, UndecodableAnswer):
        return None


def options_on(request: SuggestRequest, metric: MetricName, *known: str, first: Option | None = None) -> Asking | None:
    """The changes that apply to a request's kernel; None if nothing does.

    Args:
        request: for rewrites.
        metric: what is requested.
        known: texts that are no options.
        first: what made the request's kernel; its rewrite is not taken again.
    """
    found = [(name, made) for name, made in candidates(request)]
    steps, whys = ((), ()) if first is None else (first.steps, first.whys)
    texts, options = set(known), []
    for number in range(max((len(made) for _, made in found), default=0)):
        for name, made in found:
            if number >= min(len(made), VARIANTS.get(name, FEW)) or (steps and steps[-1][0] == name):
                continue
            one = made[number]
            text = one.kernel.unit.text
            if text not in texts and one.caution is None:
                texts.add(text)
                options.append(Option(text, (*steps, (name, number)), (*whys, one.why), one))
    if not options:
        return None
    offers = tuple((name, len(made)) for name, made in found)
    return Asking(request, metric, offers, tuple(options[:MOST]))


def possible(judged: Judged, rng: Random) -> Iterator[MetricName]:
    """Metrics that a version might be improved in, in the order in which they are asked for."""
    left = [(metric, share) for metric, share in WISHES if _can_fall(metric, judged.verdict)]
    while left:
        at = rng.choices(range(len(left)), [share for _, share in left])[0]
        yield left.pop(at)[0]


def _can_fall(metric: MetricName, verdict: Verdict) -> bool:
    value = metric_value(metric, verdict)
    if metric == "occupancy":
        return value is not None and value < 1.0
    if metric == "registers":
        return value is not None and value > 16
    return value is None or value > 0


def choose(judge: Judge, asking: Asking, before: Judged, size: Size | None) -> list[Choice]:
    """The options that are right and better than the version before, the best first.

    Args:
        judge: that judged `before` in this group.
        asking: what applies.
        before: right.
        size: at which a GPU times; unused without one.
    """
    looked = _different(judge, asking, before)
    if judge.gpu is not None and asking.metric == "time" and size is not None:
        return _timed(judge, before, looked, size)
    if asking.metric in ON_PAPER:
        was = cost_of(asking.metric, before.verdict)
        choices = [] if was is None else _proven(judge, _ranked(asking.metric, before, looked), was)
    else:
        every = [(option, judge.judge(option.text)) for option, _ in looked[:COUNTED]]
        right = [(option, one) for option, one in every if one.right]
        choices = [Choice(option, one, cost) for option, one, cost in _ranked(asking.metric, before, right)][:TRIED]
    if judge.gpu is not None and size is not None and choices:
        choices = with_times(judge, before, choices, size, GUARDING)
    return sorted(choices, key=_order)


def _order(choice: Choice) -> tuple[float, float]:
    """The metric first; of equal ones the faster."""
    timing = choice.judged.verdict.timing
    if choice.rounds is not None:
        return choice.cost, choice.rounds[1].median_us
    return choice.cost, 0.0 if timing is None else timing.median_us


def with_times(judge: Judge, before: Judged, choices: Sequence[Choice], size: Size, turns: int) -> list[Choice]:
    """Those that run at the size, with their times: another metric is not to be paid for with time."""
    assert judge.gpu is not None
    rounds = judge.gpu.time([before, *(one.judged for one in choices)], size, judge.target, turns=turns)
    was, found = rounds.get(0), []
    for place, choice in enumerate(choices, 1):
        now = rounds.get(place)
        if isinstance(was, Rounds) and isinstance(now, Rounds):
            found.append(replace(choice, rounds=(was, now)))
    return found


def _different(judge: Judge, asking: Asking, before: Judged) -> list[tuple[Option, Judged]]:
    """The options that compile and can be launched; of those that are the same to the GPU the first."""
    seen, found = {content_of(before)}, []
    for option in asking.options:
        one = judge.look(option.text)
        if one.words or one.version is None:
            continue
        content = content_of(one)
        if content not in seen:
            seen.add(content)
            found.append((option, one))
    return found


def cost_of(metric: MetricName, verdict: Verdict) -> float | None:
    """The metric's number, turned so that lower is better."""
    value = metric_value(metric, verdict)
    return None if value is None else -value if better(metric) == "higher" else value


def _ranked(
    metric: MetricName, before: Judged, options: Sequence[tuple[Option, Judged]]
) -> list[tuple[Option, Judged, float]]:
    """Those that cost less than the version before, the cheapest first, then in the order in which they are offered."""
    was = cost_of(metric, before.verdict)
    costs = [(option, one, cost_of(metric, one.verdict)) for option, one in options]
    better_ones = [(o, one, cost) for o, one, cost in costs if was is not None and cost is not None and cost < was]
    return sorted(better_ones, key=lambda item: item[2])


def _proven(judge: Judge, ranked: Sequence[tuple[Option, Judged, float]], was: float) -> list[Choice]:
    """The best that is right, and those that are nearly as good and right as well; no others are worth proving."""
    choices: list[Choice] = []
    for option, _, cost in ranked[:TRIED]:
        if len(choices) == PROVEN or (choices and not _is_close(cost, choices[0].cost, was)):
            break
        one = judge.judge(option.text)
        if one.right:
            choices.append(Choice(option, one, cost))
    return choices


def _timed(judge: Judge, before: Judged, looked: Sequence[tuple[Option, Judged]], size: Size) -> list[Choice]:
    """By the time that they were measured to take; proven afterwards, so a GPU runs what is not known to be right.

    It runs there beside the version before, whose outputs it has to match, in a process that may be lost.
    """
    assert judge.gpu is not None
    rounds = judge.gpu.time([before, *(one for _, one in looked)], size, judge.target, most=TRIED)
    was = rounds.get(0)
    if not isinstance(was, Rounds):
        return []
    ranked = []
    for place, (option, one) in enumerate(looked, 1):
        now = rounds.get(place)
        if isinstance(now, Rounds) and now.median_us < was.median_us:
            ranked.append((option, one, now.median_us, now))
    ranked.sort(key=lambda item: item[2])
    proven = _proven(judge, [(option, one, cost) for option, one, cost, _ in ranked], was.median_us)
    times = {option.text: now for option, _, _, now in ranked}
    return [Choice(c.option, c.judged, c.cost, (was, times[c.option.text])) for c in proven]


def close(choices: Sequence[Choice], before: float) -> list[Choice]:
    """The best and those that are nearly as good.

    Args:
        choices: the best first.
        before: what the version before costs.
    """
    near = [one for one in choices[1:] if _is_close(one.cost, choices[0].cost, before)]
    return [*choices[:1], *near[: PROVEN - 1]]


def _is_close(cost: float, best: float, before: float) -> bool:
    return cost <= best + (CLOSE - 1) * abs(best) and before - cost >= SHARE * (before - best)


def gained(choice: Choice, before: float) -> float:
    """Factor by which the metric improved."""
    one, other = (choice.cost, before) if choice.cost < 0 else (before, choice.cost)
    return one / other if other else float("inf")


def onward(asking: Asking, choice: Choice) -> Asking | None:
    """Returns the rewrites that apply after a choice was taken; None if there are none."""
    request = after(asking.request, choice.option.candidate)
    return options_on(request, asking.metric, asking.request.kernel.unit.text, first=choice.option)
