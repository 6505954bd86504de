"""Choices that a model must learn: which of the applicable rewrites are correct and best for a metric.

Every applicable rewrite is tried. Registers, shared memory, local memory and occupancy are read from the compiled code,
and a GPU measures times immediately. Only the best versions are then checked for correctness, the best first, until
there are enough. For counted and predicted metrics, versions are checked first and ranked afterwards.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from random import Random

from kernelmate.decide.metrics import better, metric_value
from kernelmate.records import Candidate, MetricName, Size, Verdict
from kernelmate.suggest.base import SuggestRequest
from kernelmate.suggest.codec.applicable import Offer, Step, assumed, candidates, with_candidate
from kernelmate.suggest.codec.base import NotEncodable, Question, UndecodableAnswer
from kernelmate.suggest.codec.requests import launch_of
from kernelmate_training.corpus.judging import Judge, Judged, Rounds, content_of

MOST = 12
"""Largest number of versions tried for one question."""
VARIANTS = {"block-size": 6, "unroll": 3}
"""Largest number of variants of a rewrite; `FEW` for others."""
FEW = 2
PROVEN = 3
"""Number of correct versions that suffices."""
TRIED = 5
"""Largest number of ranked versions that are checked for correctness."""
COUNTED = 6
"""Largest number of versions that are checked in order to be ranked."""
CLOSE, SHARE = 1.12, 0.85
"""A version is nearly as good as the best if it costs at most this factor more, and has this fraction of its gain."""

GUARDING = 3
"""Number of timing rounds for versions that improve another metric than time."""

ON_PAPER = frozenset({"registers", "shared_bytes", "local_bytes", "occupancy"})
"""Metrics that follow from compiled code and its launch."""

WISHES: tuple[tuple[MetricName, float], ...] = (
    ("global_bytes", 0.3),
    ("registers", 0.2),
    ("occupancy", 0.2),
    ("shared_bytes", 0.15),
    ("local_bytes", 0.1),
    ("accuracy", 0.1),
)
"""Metrics requested besides those of a version's deficiencies, with the relative frequency of each."""


@dataclass(frozen=True, slots=True)
class Option:
    """A version made by rewrites: its steps, and the reason of each."""

    text: str
    steps: tuple[Step, ...]
    whys: tuple[str, ...]
    candidate: Candidate


@dataclass(frozen=True, slots=True)
class MetricQuestion:
    """A question about one version.

    Attributes:
        request: the request, as codecs make it for rewrites, so that equal steps give equal versions.
        metric: the requested metric.
        offers: all applicable rewrites with their numbers of variants.
        options: the versions to try.
    """

    request: SuggestRequest
    metric: MetricName
    offers: tuple[Offer, ...]
    options: tuple[Option, ...]


@dataclass(frozen=True, slots=True)
class Choice:
    """A correct option.

    `cost` is the metric's number, lower is better; `rounds` are the timings of the original version and of this one.
    """

    option: Option
    judged: Judged
    cost: float
    rounds: tuple[Rounds, Rounds] | None = None


def asking_of(judged: Judged, metric: MetricName) -> MetricQuestion | None:
    """Returns the possible choices for a correct version; None if nothing applies."""
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


def options_on(
    request: SuggestRequest, metric: MetricName, *known: str, first: Option | None = None
) -> MetricQuestion | None:
    """Returns the rewrites that apply to a request's kernel; None if none do.

    Args:
        request: the request.
        metric: the requested metric.
        known: texts that are not options.
        first: the option that made the request's kernel; its rewrite is not repeated.
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
    return MetricQuestion(request, metric, offers, tuple(options[:MOST]))


def improvable_metrics(judged: Judged, rng: Random) -> Iterator[MetricName]:
    """Yields metrics in which a version might be improved, in random order weighted by their frequency."""
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


def choose(judge: Judge, asking: MetricQuestion, before: Judged, size: Size | None) -> list[Choice]:
    """Returns the options that are correct and better than the original version, the best first.

    Args:
        judge: the judge of this group, which has judged `before`.
        asking: the question with its options.
        before: the original version, which is correct.
        size: size at which a GPU times; unused without a GPU.
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
    """Returns the sort key of a choice: the metric, then the time."""
    timing = choice.judged.verdict.timing
    if choice.rounds is not None:
        return choice.cost, choice.rounds[1].median_us
    return choice.cost, 0.0 if timing is None else timing.median_us


def with_times(judge: Judge, before: Judged, choices: Sequence[Choice], size: Size, turns: int) -> list[Choice]:
    """Returns the choices that run at the size without becoming slower, with their times."""
    assert judge.gpu is not None
    rounds = judge.gpu.time([before, *(one.judged for one in choices)], size, judge.target, turns=turns)
    was, found = rounds.get(0), []
    for place, choice in enumerate(choices, 1):
        now = rounds.get(place)
        if isinstance(was, Rounds) and isinstance(now, Rounds):
            found.append(replace(choice, rounds=(was, now)))
    return found


def _different(judge: Judge, asking: MetricQuestion, before: Judged) -> list[tuple[Option, Judged]]:
    """Returns the options that compile and can be launched; of options with equal code and launch, the first."""
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
    """Returns the metric's number, negated if higher is better; None if unknown."""
    value = metric_value(metric, verdict)
    return None if value is None else -value if better(metric) == "higher" else value


def _ranked(
    metric: MetricName, before: Judged, options: Sequence[tuple[Option, Judged]]
) -> list[tuple[Option, Judged, float]]:
    """Returns options that cost less than the original version with their costs, the lowest first."""
    was = cost_of(metric, before.verdict)
    costs = [(option, one, cost_of(metric, one.verdict)) for option, one in options]
    better_ones = [(o, one, cost) for o, one, cost in costs if was is not None and cost is not None and cost < was]
    return sorted(better_ones, key=lambda item: item[2])


def _proven(judge: Judge, ranked: Sequence[tuple[Option, Judged, float]], was: float) -> list[Choice]:
    """Returns the best correct version, and correct versions that are nearly as good; others are not checked."""
    choices: list[Choice] = []
    for option, _, cost in ranked[:TRIED]:
        if len(choices) == PROVEN or (choices and not _is_close(cost, choices[0].cost, was)):
            break
        one = judge.judge(option.text)
        if one.right:
            choices.append(Choice(option, one, cost))
    return choices


def _timed(judge: Judge, before: Judged, looked: Sequence[tuple[Option, Judged]], size: Size) -> list[Choice]:
    """Returns choices ranked by measured time and then checked for correctness.

    A GPU thus runs versions that may be wrong: beside the original version, whose outputs they must match, in a process
    that may be lost.
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
    """Returns the best choice and those that are nearly as good.

    Args:
        choices: the best first.
        before: cost of the original version.
    """
    near = [one for one in choices[1:] if _is_close(one.cost, choices[0].cost, before)]
    return [*choices[:1], *near[: PROVEN - 1]]


def _is_close(cost: float, best: float, before: float) -> bool:
    return cost <= best + (CLOSE - 1) * abs(best) and before - cost >= SHARE * (before - best)


def improvement_factor(choice: Choice, before: float) -> float:
    """Returns the factor by which the metric improved."""
    one, other = (choice.cost, before) if choice.cost < 0 else (before, choice.cost)
    return one / other if other else float("inf")


def next_rewrites(asking: MetricQuestion, choice: Choice) -> MetricQuestion | None:
    """Returns the rewrites that apply after a choice; None if none do."""
    request = with_candidate(asking.request, choice.option.candidate)
    return options_on(request, asking.metric, asking.request.kernel.unit.text, first=choice.option)
