"""What the product's own recipes make of a right version: one to three of them in turn, drawn among those that apply.

A model is taught with them to name recipes where those suffice. The steps are kept as names and numbers of variants, so that
the codecs that answer by recipes find the way at once.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from random import Random

from kernelmate.records import Candidate, MetricName
from kernelmate.suggest.base import SuggestRequest
from kernelmate.suggest.codec.base import Question, Unreadable, Untellable
from kernelmate.suggest.codec.offers import REWRITES, assumed
from kernelmate.suggest.codec.programs import Step, after
from kernelmate.suggest.codec.requests import launch_of
from kernelmate.upskill.corpus.judging import Judged

MOST_STEPS = 3
GOES_ON = 0.45
"""Chance that another recipe follows."""
VARIANTS = 4
"""Of one recipe: the first ones, among which one is drawn."""
COMMON = {"block-size": 0.25, "unroll": 0.3, "restrict-pointers": 0.5}
"""Recipes that apply nearly always; so often they are left in their place among the others, else they come last."""
WISHES: tuple[tuple[MetricName, float], ...] = (
    ("time", 0.5),
    ("global_bytes", 0.16),
    ("shared_bytes", 0.1),
    ("registers", 0.08),
    ("occupancy", 0.08),
    ("local_bytes", 0.04),
    ("accuracy", 0.04),
)
"""What recipes are drawn for, and how often."""


@dataclass(frozen=True, slots=True)
class Rewritten:
    """A version that recipes made.

    Attributes:
        text: the whole unit. metric: what the recipes are for. steps: which, and which variant of each. whys: why each.
    """

    text: str
    metric: MetricName
    steps: tuple[Step, ...]
    whys: tuple[str, ...]


def rewritten(judged: Judged, rng: Random) -> Rewritten | None:
    """One sequence of recipes on a right version; None where those drawn do not apply, or change nothing."""
    metrics = rng.choices([metric for metric, _ in WISHES], [share for _, share in WISHES], k=3)
    for metric in dict.fromkeys(metrics):
        request = _request(judged, metric)
        if request is None:
            return None
        steps, whys, here = [], [], request
        for name, number, candidate in _drawn(request, metric, rng):
            steps.append((name, number))
            whys.append(candidate.why)
            here = after(here, candidate)
        if steps and here.kernel.unit.text != judged.text:
            return Rewritten(here.kernel.unit.text, metric, tuple(steps), tuple(whys))
    return None


def _request(judged: Judged, metric: MetricName) -> SuggestRequest | None:
    """As codecs that answer by recipes ask for them, so that equal steps lead to equal versions."""
    if judged.kernel is None or judged.version is None or not judged.right:
        return None
    contract = judged.version.contract
    question = Question(
        judged.text, judged.kernel.name, launch_of(contract), metric, contract=contract, verdict=judged.verdict
    )
    try:
        return assumed(question)
    except (Untellable, Unreadable):
        return None


def _drawn(request: SuggestRequest, metric: MetricName, rng: Random) -> Iterator[tuple[str, int, Candidate]]:
    """Steps one after another, each on what the former left, no recipe twice."""
    used: set[str] = set()
    for _ in range(MOST_STEPS):
        step = _one(request, metric, rng, used)
        if step is None:
            return
        yield step
        used.add(step[0])
        request = after(request, step[2])
        if rng.random() > GOES_ON:
            return


def _one(request: SuggestRequest, metric: MetricName, rng: Random, used: set[str]) -> tuple[str, int, Candidate] | None:
    open_ = [name for name, recipe in REWRITES.items() if metric in recipe.metrics and name not in used]
    rng.shuffle(open_)
    open_.sort(key=lambda name: rng.random() > COMMON.get(name, 1.0))
    for name in open_:
        variants = list(islice(REWRITES[name].candidates(request), VARIANTS))
        if variants:
            number = rng.randrange(len(variants))
            return name, number, variants[number]
    return None
