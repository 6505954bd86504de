"""Built-in rewrites that apply to a kernel for a request, their ranking by a model, and answers that consist of them.

A model chooses among variants by number. Corpus generation and inference both use `offered`, so that a number means the
same variant in both. Rewrites are ranked by the probability that the model assigns to each: distinct answers are thus
obtained without random sampling, each at the cost of evaluating one or two tokens instead of a whole answer. If more
answers are needed than there are choices, pairs follow: one of the best choices, followed by the rewrite that the model
considers most probable after it. The steps of an answer are each applied to the previous result.
"""

from __future__ import annotations

import heapq
import math
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice

from kernelmate.records import Candidate, Diagnostic, Finding, FindingCode, Verdict
from kernelmate.suggest import recipes, repairs
from kernelmate.suggest.base import SuggestRequest
from kernelmate.suggest.codec.base import CodecVersion, Question, UndecodableAnswer
from kernelmate.suggest.codec.chat import request_of
from kernelmate.suggest.codec.requests import finding_of, launch_of
from kernelmate.suggest.codec.tags import without_tags
from kernelmate.suggest.recipes.base import Recipe

MOST_VARIANTS = 16
"""Largest number of variants offered of one rewrite."""
OFFERS = "@offers"

REWRITES: dict[str, Recipe] = {one.name: one for one in (*recipes.ALL, *repairs.ALL)}
"""Every recipe, then every repair, each in the order in which it is offered."""

Offer = tuple[str, int]
"""A rewrite's name and its number of variants for this kernel, at least 1."""

_SECTION = re.compile(rf"{OFFERS}((?:@use-[a-z0-9-]+:(?:@#\d{{1,3}})?)*)")
_STEP = re.compile(r"@use-([a-z0-9-]+):(?:@#(\d{1,3}))?")


def assumed(question: Question) -> SuggestRequest:
    """Returns a question as a search request, under the assumptions of corpus generation.

    Raises:
        NotEncodable: the text does not contain the kernel, or no contract is available for it.
    """
    return _assumed(request_of(question), question.broken)


def offered(asked: SuggestRequest | Question) -> tuple[Offer, ...]:
    """Returns applicable rewrites in the order of `REWRITES`; for the metric `correct` the repairs for the findings.

    Args:
        asked: a search's request for the kernel, or a question about it.

    Raises:
        NotEncodable: a question's text does not contain the kernel, or no contract is available for it.
    """
    return tuple((name, len(found)) for name, found in candidates(asked))


def candidates(asked: SuggestRequest | Question) -> Iterator[tuple[str, list[Candidate]]]:
    """Yields the name of each rewrite of `offered` with its variants, in the order of their numbers.

    Raises:
        NotEncodable: as `offered`.
    """
    request = assumed(asked) if isinstance(asked, Question) else _assumed(asked, None)
    codes = {finding.code for finding in request.verdict.findings if finding.severity == "error"}
    for name, rewrite in REWRITES.items():
        if request.objective.metric not in rewrite.metrics:
            continue
        if isinstance(rewrite, repairs.Repair) and not rewrite.codes & codes:
            continue
        found = list(islice(rewrite.candidates(request), MOST_VARIANTS))
        if found:
            yield name, found


# ------------------------------------------------------------------------------------------------ as text


def offer_tokens() -> tuple[str, ...]:
    """Returns the special tokens of offers and steps."""
    return OFFERS, *(f"@use-{name}:" for name in REWRITES), *(f"@#{number}" for number in range(1, MOST_VARIANTS + 1))


def format_offers(offers: Sequence[Offer]) -> str:
    """Returns the section of a prompt that lists the offers; empty if there are none."""
    told = "".join(f"@use-{name}:" + (f"@#{count}" if count > 1 else "") for name, count in offers)
    return OFFERS + told if told else ""


def offers_in(prompt: str) -> tuple[Offer, ...]:
    """Returns the rewrites that a prompt offers; empty if it has no such section."""
    section = _SECTION.search(prompt)
    return () if section is None else tuple((name, int(count or 1)) for name, count in _STEP.findall(section[1]))


def choice_of(answer: str) -> str:
    """Returns a key by which answers are compared: the first step of a choice of rewrites, else the whole answer."""
    program = without_tags(answer)
    step = _STEP.match(program)
    return step[0] if step is not None else program


def fits(prompt: str, answer: str) -> bool:
    """Returns True if the answer is not empty and its first choice, if any, is among the prompt's offers."""
    step = _STEP.match(without_tags(answer))
    if step is None:
        return bool(answer)
    return int(step[2] or 0) < dict(offers_in(prompt)).get(step[1], 0)


def without_offers(prompt: str) -> str:
    """Returns the prompt without its section of offers, for an answer that chooses no rewrite."""
    section = _SECTION.search(prompt)
    return prompt if section is None else prompt[: section.start()] + prompt[section.end() :]


# ------------------------------------------------------------------------------------------------ assumptions


def _assumed(request: SuggestRequest, broken: str | None) -> SuggestRequest:
    """Returns the request with the broken version's error, and with PTX that has double arithmetic.

    Only compiled code shows whether double arithmetic remains, and corpus generation does not compile.
    """
    verdict = request.verdict if broken is None else _as_said(request.verdict, broken)
    return replace(request, verdict=verdict, compiled=replace(request.compiled, ptx=".f64"))


def _as_said(verdict: Verdict, broken: str) -> Verdict:
    """Returns the verdict, with the message or finding of an error text if it has no error."""
    said = finding_of(broken)
    known = any(one.severity == "error" for one in verdict.findings)
    if said is None or known or any(one.severity == "error" for one in verdict.diagnostics):
        return verdict
    diagnostics: tuple[Diagnostic, ...] = verdict.diagnostics
    if said.code == FindingCode.COMPILE_ERROR:
        diagnostics = (Diagnostic("error", said.message, None, said.line, None),)
    findings: tuple[Finding, ...] = (said, *verdict.findings)
    return replace(verdict, diagnostics=diagnostics, findings=findings)


Choice = tuple[str, int]
"""A rewrite's name and the index of a variant, from 0."""

Following = Callable[[str], Mapping[str, float]]
"""Function from an exact text to log probabilities of the most probable next tokens.

Missing tokens are less probable.
"""

MOST_OF_ONE = 3
"""Largest number of choices of one rewrite before all other rewrites were chosen."""
FIRSTS, MOST_PAIRS = 4, 12
"""Number of choices that begin pairs, the best of different rewrites, and largest number of pairs for one prompt."""
UNNAMED = -30.0
"""Log probability assumed for tokens outside the most probable ones; they keep the prompt's order."""


def format_choice(choice: Choice) -> str:
    """Returns the text of an answer with this choice."""
    name, number = choice
    return f"{_word(name)}@#{number}" if number else _word(name)


def texts_asked(prompt: str) -> list[str]:
    """Returns the texts after which `choices` may need the next token's probabilities.

    These are the prompt, and the prompt followed by each rewrite with several variants.
    """
    offers = offers_in(prompt)
    return [prompt, *(prompt + _word(name) for name, count in offers if count > 1)] if offers else []


def answers(prompt: str, following: Following) -> Iterator[tuple[str, float]]:
    """Yields every choice as an answer, then the most probable pairs, each with its log probability.

    Args:
        prompt: the exact prompt.
        following: called as by `choices`, then for the best choices and for the second rewrites of pairs.
    """
    offers, best = dict(offers_in(prompt)), dict[str, tuple[str, float]]()
    for choice, chance in choices(prompt, following):
        best.setdefault(choice[0], (format_choice(choice), chance))
        yield format_choice(choice), chance
    found = []
    for name, (told, chance) in sorted(best.items(), key=lambda one: -one[1][1])[:FIRSTS]:
        after = following(prompt + told)
        found += [(chance + after.get(_word(other), UNNAMED), told, other) for other in offers if other != name]
    # As much as the order of the offers decides among equals.
    for chance, told, other in sorted(found, key=lambda one: -one[0])[:MOST_PAIRS]:
        chances = _variants(following(prompt + told + _word(other)), offers[other]) if offers[other] > 1 else [0.0]
        number = chances.index(max(chances))
        yield told + format_choice((other, number)), chance + chances[number]


def choices(prompt: str, following: Following, most_of_one: int = MOST_OF_ONE) -> Iterator[tuple[Choice, float]]:
    """Yields all choices of a prompt with log probabilities, the most probable first.

    Args:
        prompt: the exact prompt.
        following: called for the prompt, then for each rewrite with several variants when it is reached.
        most_of_one: largest number of choices of one rewrite before all others were chosen.
    """
    offers = offers_in(prompt)
    if not offers:
        return
    after = following(prompt)
    # Most probable first; ties in the prompt's order, each rewrite before its variants.
    waiting = [(-after.get(_word(name), UNNAMED), place, 0, count) for place, (name, count) in enumerate(offers)]
    heapq.heapify(waiting)
    taken: Counter[str] = Counter()
    later: list[tuple[Choice, float]] = []
    while waiting:
        cost, place, number, count = heapq.heappop(waiting)
        name = offers[place][0]
        if count > 1:
            for variant, chance in enumerate(_variants(following(prompt + _word(name)), count)):
                heapq.heappush(waiting, (cost - chance, place, variant, 1))
            continue
        taken[name] += 1
        found = (name, number), -cost
        if taken[name] > most_of_one:
            later.append(found)
        else:
            yield found
    yield from later


def _variants(after: Mapping[str, float], count: int) -> list[float]:
    """Returns the log probability of each variant of a rewrite.

    The first variant has no number token; it gets the probability that the number tokens leave.
    """
    numbered = [after.get(f"@#{number}", UNNAMED) for number in range(1, count)]
    rest = 1.0 - sum(math.exp(chance) for chance in numbered)
    return [math.log(rest) if rest > math.exp(UNNAMED) else UNNAMED, *numbered]


def _word(name: str) -> str:
    return f"@use-{name}:"


def in_order(offers: Sequence[Offer]) -> list[Choice]:
    """Returns the first variant of each offer, then the second of each, and so on: the order without a model."""
    most = max((count for _, count in offers), default=0)
    return [(name, number) for number in range(most) for name, count in offers if number < count]


MOST_STEPS = 5
MOST_TRIED = 400
"""Largest number of versions to try in a search for the steps that lead to one."""

Step = tuple[str, int]
"""A rewrite's name and the index of a variant, from 0."""

Named = tuple[str, int | None]
"""A rewrite's name with the index of a variant, if known."""

_AUTHOR = re.compile(r"\brecipe:([a-z0-9+#-]+)")


def with_steps(request: SuggestRequest, steps: Sequence[Step]) -> tuple[SuggestRequest, list[str]]:
    """Applies steps to a request, and returns it with the reason of each.

    Raises:
        UndecodableAnswer: a rewrite does not exist or has no such variant there, or there are too many steps.
    """
    whys: list[str] = []
    if len(steps) > MOST_STEPS:
        raise UndecodableAnswer(f"The answer takes more than {MOST_STEPS} steps.")
    for name, number in steps:
        if name not in REWRITES:
            raise UndecodableAnswer(f"There is no recipe {name}.")
        candidate = next(islice(REWRITES[name].candidates(request), number, None), None)
        if candidate is None:
            raise UndecodableAnswer(f"The recipe {name} has no variant {number} here.")
        request = with_candidate(request, candidate)
        whys.append(candidate.why)
    return request, whys


def with_candidate(request: SuggestRequest, candidate: Candidate) -> SuggestRequest:
    """Returns the request with a candidate in place of its kernel."""
    return replace(request, kernel=candidate.kernel, contract=candidate.contract)


def named_steps(analysis: Sequence[str]) -> list[Named] | None:
    """Returns the rewrites of an author such as `recipe:coalesce+unroll#1` among sentences; None if none is named."""
    found = _AUTHOR.search(" ".join(analysis))
    parts = [part.partition("#") for part in found[1].split("+")] if found is not None else []
    if not parts or not all(name in REWRITES for name, _, _ in parts):
        return None
    return [(name, int(number) if number.isdigit() else None) for name, _, number in parts]


def path(question: Question, goal: CodecVersion, names: Sequence[Named] | None, offers: Callable[[], Sequence[Offer]]) -> list[Step] | None:  # fmt: skip
    """Returns the steps that lead to a version: the named rewrites in turn.

    Without named rewrites, every offered rewrite is tried alone if the kernel is broken.

    Args:
        question: the question.
        goal: the version to reach.
        names: the rewrites to apply, in order.
        offers: returns the applicable rewrites; called only if no rewrite is named.

    Returns:
        The steps; None if no steps lead to the version.

    Raises:
        NotEncodable: the text does not contain the kernel, or no contract is available for it.
    """
    tries = [names] if names else [[(name, None)] for name, _ in offers()] if question.broken else []
    request, left = assumed(question) if tries else None, iter(range(MOST_TRIED))
    found = (_path(request, goal, one, left) for one in tries if request is not None)
    return next((steps for steps in found if steps is not None), None)


def _path(
    request: SuggestRequest, goal: CodecVersion, names: Sequence[Named], left: Iterator[int]
) -> list[Step] | None:
    name, wanted = names[0]
    first, stop = (0, MOST_VARIANTS) if wanted is None else (wanted, wanted + 1)
    for number, candidate in enumerate(islice(REWRITES[name].candidates(request), first, stop), first):
        if next(left, None) is None:
            return None
        if len(names) == 1:
            if (candidate.kernel.unit.text, launch_of(candidate.contract)) == (goal.text, goal.launch):
                return [(name, number)]
            continue
        rest = _path(with_candidate(request, candidate), goal, names[1:], left)
        if rest is not None:
            return [(name, number), *rest]
    return None
