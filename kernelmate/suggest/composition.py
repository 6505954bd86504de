"""Sequences of recipes, found by a beam search, in which a recipe can build on the results of others.

Each recipe is applied to the kernel, then to the best versions that resulted, and so on, with the launch tuned again
after each step; a recipe that made a version worse is not tried again deeper in the search. A quick evaluation at the
headline size selects the versions to judge: the first version that promises a gain immediately; at the end of each step
the best of those that promise more than the best so far; finally the best of the others. A version that promises no
gain is never judged.

The search is deterministic: equal kernels, objectives and seeds give equal candidates in equal order. Every candidate
is yielded as soon as it is judged, and a request to stop takes effect between any two candidates.
"""

from __future__ import annotations

import contextlib
from collections import Counter, deque
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain

from kernelmate.decide.constraints import aimed_at, launch_broken, suits
from kernelmate.decide.metrics import better, metric_value
from kernelmate.errors import KernelmateError
from kernelmate.records import Candidate, Claim, Contract, Judged, Kernel, Verdict
from kernelmate.suggest.base import Pause, SuggestRequest
from kernelmate.suggest.recipes import ALL, launch
from kernelmate.suggest.recipes.base import Recipe
from kernelmate.suggest.recipes.readable import readable
from kernelmate.suggest.turns import Steps, candidates_of

BEAM = 2
"""Number of versions extended at each depth."""
DEPTH = 4
"""Largest number of recipes in a sequence, not counting the launch."""
VARIANTS = 2
"""Largest number of candidates of one recipe for one version."""
LAUNCHES = 4
"""Largest number of other launches tried for the best version so far."""
CLEAR = 0.7
"""Cost below which a version makes it unnecessary to tune the original kernel's launch (1 is the baseline's cost)."""
HARMLESS = 1.05
"""Largest factor by which a step may worsen the metric for its version to be extended."""
HELPS = 0.99
"""Fraction of the metric; a recipe that leaves more than it is not tried again deeper in the search."""
ALTERNATIVES = 3
"""Largest number of postponed versions judged at the end, which promise a gain but not the best one."""
NOTICE = 8
"""Number of candidates announced in advance, equal to the number that are compiled at once."""
WORTH = 0.98
"""Fraction of the best metric that a depth must reach for the search to go deeper."""


@dataclass(frozen=True, slots=True)
class RecipeStep:
    """A version from which sequences continue.

    Attributes:
        kernel, contract, verdict: the version and its verdict.
        recipes: names of the recipes that led to it.
        whys: each recipe with its reason.
        claims: statements of the reasons about figures.
        cost: the objective's metric as a fraction of the baseline's.
        idle: True if the last recipe changed nothing by itself, so that only recipes that it enables are tried.
    """

    kernel: Kernel
    contract: Contract
    verdict: Verdict
    recipes: tuple[str, ...] = ()
    whys: tuple[tuple[str, str], ...] = ()
    claims: tuple[Claim, ...] = ()
    cost: float = 1.0
    idle: bool = False


@dataclass(slots=True)
class _SearchFacts:
    """State of a search.

    Attributes:
        contents: keys of the versions so far.
        gains: each recipe's result where it was tried first.
        best: lowest cost of a version that is worth taking.
        put_off: further versions that seem to gain, with their costs.
        waiting: versions that promise more than the best until their step is over, with their costs.
    """

    contents: set[tuple[str, str]] = field(default_factory=set)
    gains: dict[str, float] = field(default_factory=dict)
    best: float = 1.0
    put_off: list[tuple[float, Candidate]] = field(default_factory=list)
    waiting: list[tuple[float, Candidate]] = field(default_factory=list)

    def note(self, judged: Judged, cost: float | None) -> None:
        """Records a version that was judged at all sizes."""
        if cost is not None and judged.verdict.worth_taking:
            self.best = min(self.best, cost)


class Composition:
    """The built-in recipes and sequences of them, as one suggester.

    Args:
        recipes: the recipes to try, in order.
        beam: number of versions extended at each depth.
        depth: largest number of recipes in a sequence.
        most: largest number of candidates to yield; None for no limit.
    """

    name = "recipes"

    def __init__(
        self, recipes: tuple[Recipe, ...] = ALL, *, beam: int = BEAM, depth: int = DEPTH, most: int | None = None
    ) -> None:
        self._recipes = recipes
        self._launch = next((recipe for recipe in recipes if recipe.name == launch.RECIPE.name), None)
        self._beam, self._depth, self._most = beam, depth, most

    def propose(self, request: SuggestRequest) -> Iterator[Candidate]:
        """Yields at most `most` candidates, each already judged; ends when the request is stopped."""
        yield from candidates_of(self.steps(request))

    def steps(self, request: SuggestRequest) -> Steps:
        """Yields the candidates of `propose`, and a pause after each version that gives none."""
        if request.objective.keep and not request.objective.constraints:
            return  # no built-in rewrite improves readability
        known = _SearchFacts({_content(request.kernel, request.contract)})
        number = 0
        for step in chain(self._search(request, known), _alternatives(request, known)):
            yield step
            number += isinstance(step, Candidate)
            if number == self._most:
                return

    def _search(self, request: SuggestRequest, known: _SearchFacts) -> Steps:
        start = RecipeStep(request.kernel, request.contract, request.verdict)
        frontier, best = [start], start
        for _ in range(self._depth):
            reached: list[RecipeStep] = []
            for step in frontier:
                yield from self._try(request, step, self._order(request, step, known), known, reached, CLEAR)
                if request.stop():
                    return
            yield from _best_waiting(request, known, reached)
            reached.sort(key=lambda step: (step.cost, len(step.recipes)))
            frontier = [step for step in reached if step.cost <= HARMLESS * best.cost][: self._beam]
            tuned: list[RecipeStep] = []
            leader = frontier[0] if frontier else start
            if self._launch is not None and frontier:
                yield from self._try(request, leader, [self._launch], known, tuned)
                if request.stop():
                    return
                yield from _best_waiting(request, known, tuned)
            if request.stop():
                return
            tuned = [step for step in sorted(tuned, key=lambda step: step.cost) if step.cost <= WORTH * leader.cost]
            frontier = [*tuned[:1], *(step for step in frontier if not tuned or step is not leader)]
            if not frontier or frontier[0].cost > WORTH * best.cost:
                return
            best = frontier[0]

    def _order(self, request: SuggestRequest, step: RecipeStep, known: _SearchFacts) -> list[Recipe]:
        """Returns the recipes to try on a version: applicable ones not yet in it, the most helpful so far first.

        For the original kernel the launch is one of them; later versions are tuned once the best one is known.
        """
        asked = request.objective
        most = 0.0 if step.idle else HELPS
        open_ = [
            recipe
            for recipe in self._recipes
            if aimed_at(asked, recipe.metrics, step.verdict) is not None
            and suits(asked, f"recipe:{recipe.name}") >= 0
            and recipe.name not in step.recipes
            and not (step.recipes and recipe is self._launch)
            and known.gains.get(recipe.name, 0.0) <= most
        ]
        open_.sort(key=lambda recipe: -suits(asked, f"recipe:{recipe.name}"))
        return sorted(open_, key=lambda recipe: known.gains.get(recipe.name, 1.0)) if step.recipes else open_

    def _try(
        self,
        request: SuggestRequest,
        step: RecipeStep,
        recipes: Sequence[Recipe],
        known: _SearchFacts,
        reached: list[RecipeStep],
        clear: float = 0.0,
    ) -> Steps:
        """Try recipes on a version, judge and yield worthwhile results, and record versions to continue from.

        The launch is not tuned if an earlier recipe reached a cost below `clear`.
        """
        taken: Counter[str] = Counter()
        closed: set[str] = set()
        for offer in self._with_notice(request, known, _offers(request, step, recipes, closed)):
            name = offer.recipe.name
            begins_tuning = offer.recipe is self._launch and not taken[name]
            if begins_tuning and min((one.cost for one in reached), default=1.0) < clear:
                closed.add(name)
            if name in closed or offer.content in known.contents:
                continue
            if step.recipes and offer.candidate.contract.require != step.contract.require:
                continue  # a rewrite that narrows the kernel's domain is a separate candidate, never a part of another one
            if taken[name] == self._most_of(offer.recipe):
                closed.add(name)
                continue
            if request.stop():
                return
            known.contents.add(offer.content)
            taken[name] += 1
            yield from _look(request, step, offer, known, reached)
            yield Pause.OTHERS_MAY

    def _with_notice(self, request: SuggestRequest, known: _SearchFacts, offers: Iterator[_Offer]) -> Iterator[_Offer]:
        """Yields offers in order; each was announced to the session some offers earlier."""
        if request.expect is None:
            yield from offers
            return
        waiting: deque[_Offer] = deque()
        told: set[tuple[str, str]] = set()
        counts: Counter[str] = Counter()
        for offer in offers:
            waiting.append(offer)
            new = offer.content not in known.contents and offer.content not in told
            if new and counts[offer.recipe.name] < self._most_of(offer.recipe):
                counts[offer.recipe.name] += 1
                told.add(offer.content)
                request.expect(offer.candidate)
            if len(waiting) > NOTICE:
                yield waiting.popleft()
        yield from waiting

    def _most_of(self, recipe: Recipe) -> int:
        return LAUNCHES if recipe is self._launch else VARIANTS


@dataclass(frozen=True, slots=True)
class _Offer:
    """A recipe's result for a version.

    Author and reason of `candidate` include all previous steps; `whys` has them separately.
    """

    recipe: Recipe
    whys: tuple[tuple[str, str], ...]
    candidate: Candidate
    content: tuple[str, str]


def _offers(
    request: SuggestRequest, step: RecipeStep, recipes: Sequence[Recipe], closed: Collection[str]
) -> Iterator[_Offer]:
    """Yields the results of recipes for a version; recipes in `closed` are skipped."""
    here = replace(request, kernel=step.kernel, contract=step.contract, verdict=step.verdict)
    for recipe in recipes:
        aim = aimed_at(request.objective, recipe.metrics, step.verdict) or request.objective
        for alone in (readable(step.kernel, one) for one in recipe.candidates(replace(here, objective=aim))):
            if launch_broken(request.objective, alone.contract, request.contract):
                continue
            joined, whys = _joined(request, step, recipe, alone)
            yield _Offer(recipe, whys, joined, _content(alone.kernel, alone.contract))
            if recipe.name in closed:
                break


def _look(
    request: SuggestRequest, step: RecipeStep, offer: _Offer, known: _SearchFacts, reached: list[RecipeStep]
) -> Iterator[Candidate]:
    """Evaluates a candidate quickly; judges and yields it if it promises a gain; records it if it may be extended."""
    candidate, name = offer.candidate, offer.recipe.name
    judged = request.quick_evaluation(candidate) if request.quick_evaluation is not None else request.judge(candidate)
    if new_warnings(request.verdict, judged.verdict):
        known.gains.setdefault(name, 1.0)
        return
    cost = _cost(request, judged)
    if request.quick_evaluation is None:
        yield candidate
    elif cost is not None and known.best < 1.0 and judged.verdict.worth_taking and cost <= WORTH * known.best:
        known.waiting.append((cost, candidate))
    elif cost is None or (judged.verdict.worth_taking and cost <= WORTH * known.best):
        judged = request.judge(candidate)
        yield candidate
        cost = _cost(request, judged)
        known.note(judged, cost)
    elif cost < HELPS:
        known.put_off.append((cost, candidate))
    if cost is None or candidate.contract.require != step.contract.require:
        known.gains.setdefault(name, 1.0)
        return
    known.gains[name] = min(known.gains.get(name, cost / step.cost), cost / step.cost)
    names, idle = _names(step, offer.recipe), cost > HELPS * step.cost
    reached.append(
        RecipeStep(
            candidate.kernel, candidate.contract, judged.verdict, names, offer.whys, candidate.claims, cost, idle
        )
    )


def new_warnings(before: Verdict, after: Verdict) -> list[str]:
    """Returns compiler warnings of a version beyond the baseline's; a repeated message counts as often as it occurs."""
    counts = [
        Counter(one.message for one in verdict.diagnostics if one.severity == "warning") for verdict in (before, after)
    ]
    return sorted((counts[1] - counts[0]).elements())


def _best_waiting(request: SuggestRequest, known: _SearchFacts, reached: list[RecipeStep]) -> Iterator[Candidate]:
    """Judges waiting versions, the best first, until one fulfils its promise; wrong versions are not extended."""
    waiting = sorted(known.waiting, key=lambda one: one[0])
    known.waiting.clear()
    while waiting and not request.stop():
        _, candidate = waiting.pop(0)
        judged = request.judge(candidate)
        yield candidate
        cost = _cost(request, judged)
        known.note(judged, cost)
        if cost is None:
            content = _content(candidate.kernel, candidate.contract)
            reached[:] = [step for step in reached if _content(step.kernel, step.contract) != content]
        elif judged.verdict.worth_taking:
            break
    known.put_off += waiting


def _alternatives(request: SuggestRequest, known: _SearchFacts) -> Iterator[Candidate]:
    """Judges the best of the postponed versions, at the end of the search."""
    for _, candidate in sorted(known.put_off, key=lambda one: one[0])[:ALTERNATIVES]:
        if request.stop():
            return
        judged = request.judge(candidate)
        yield candidate
        known.note(judged, _cost(request, judged))


def _names(step: RecipeStep, recipe: Recipe) -> tuple[str, ...]:
    """Returns the names of the recipes in order; a repeated last one, such as the launch, is named once."""
    return step.recipes if step.recipes[-1:] == (recipe.name,) else (*step.recipes, recipe.name)


def _joined(
    request: SuggestRequest, step: RecipeStep, recipe: Recipe, alone: Candidate
) -> tuple[Candidate, tuple[tuple[str, str], ...]]:
    """Returns a recipe's candidate whose author and reason include all previous steps, the launch only once."""
    why, before = alone.why, step.whys
    if recipe.name == launch.RECIPE.name and any(name == recipe.name for name, _ in before):
        before = tuple(one for one in before if one[0] != recipe.name)
        with contextlib.suppress(KernelmateError):
            why = launch.describe(request, alone.contract)
    whys = (*before, (recipe.name, why))
    candidate = replace(
        alone,
        author=f"recipe:{'+'.join(_names(step, recipe))}",
        why=" Then: ".join(one for _, one in whys),
        claims=(*step.claims, *alone.claims),
    )
    return candidate, whys


def _cost(request: SuggestRequest, judged: Judged) -> float | None:
    """Returns the objective's metric as a fraction of the baseline's, lower is better.

    The result is None if it must not be extended.
    """
    verdict = judged.verdict
    wrong = not verdict.compiled or verdict.correct is False or any(f.severity == "error" for f in verdict.findings)
    if wrong or judged.candidate.caution is not None:
        return None
    metric, ratio = request.objective.metric, verdict.speedup
    if metric == "time" and ratio is not None and ratio.kind == "measured":
        return 1 / ratio.median  # both versions in the same blocks
    before, after = metric_value(metric, request.verdict), metric_value(metric, verdict)
    if before is None or after is None:
        return None
    if better(metric) == "higher":
        before, after = after, before
    if before == 0:
        return 1.0 if after == 0 else float("inf")
    return after / before


def _content(kernel: Kernel, contract: Contract) -> tuple[str, str]:
    return kernel.unit.text, repr((contract.grid, contract.block, contract.shared, contract.require))
