"""Ranks applicable rewrites by the model's probability of answering with each.

Several answers are then distinct choices without random sampling, and each costs the evaluation of a token or two
instead of a whole answer. If more answers are needed than there are choices, pairs follow: one of the best choices,
with the model's most probable next one.
"""

from __future__ import annotations

import heapq
import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence

from kernelmate.suggest.codec.applicable import Offer, offers_in

Choice = tuple[str, int]
"""A rewrite's name and the index of a variant, from 0."""

Following = Callable[[str], Mapping[str, float]]
"""Log probabilities of the likeliest tokens that could follow an exact text; a token that is not named is less likely than these."""

MOST_OF_ONE = 3
"""Maximum of choices of one rewrite while there are others."""
FIRSTS, MOST_PAIRS = 4, 12
"""Number of first choices of pairs, the best of different rewrites; and the maximum of pairs for one prompt."""
UNNAMED = -30.0
"""Log probability of tokens not among the most probable ones; among these, the prompt's order decides."""


def choice_told(choice: Choice) -> str:
    """Returns a choice as an answer's text."""
    name, number = choice
    return f"{_word(name)}@#{number}" if number else _word(name)


def texts_asked(prompt: str) -> list[str]:
    """Returns the texts for which `choices` may need the next token.

    The prompt, and those that choose a rewrite with several variants.
    """
    offers = offers_in(prompt)
    return [prompt, *(prompt + _word(name) for name, count in offers if count > 1)] if offers else []


def answers(prompt: str, following: Following) -> Iterator[tuple[str, float]]:
    """Return every choice as an answer, then the most probable pairs, with log probabilities.

    Args:
        prompt: exact text.
        following: as `choices` asks for it, then for the best choices and for the second rewrites of pairs.
    """
    offers, best = dict(offers_in(prompt)), dict[str, tuple[str, float]]()
    for choice, chance in choices(prompt, following):
        best.setdefault(choice[0], (choice_told(choice), chance))
        yield choice_told(choice), chance
    found = []
    for name, (told, chance) in sorted(best.items(), key=lambda one: -one[1][1])[:FIRSTS]:
        after = following(prompt + told)
        found += [(chance + after.get(_word(other), UNNAMED), told, other) for other in offers if other != name]
    # As much as the order of the offers decides among equals.
    for chance, told, other in sorted(found, key=lambda one: -one[0])[:MOST_PAIRS]:
        chances = _variants(following(prompt + told + _word(other)), offers[other]) if offers[other] > 1 else [0.0]
        number = chances.index(max(chances))
        yield told + choice_told((other, number)), chance + chances[number]


def choices(prompt: str, following: Following, most_of_one: int = MOST_OF_ONE) -> Iterator[tuple[Choice, float]]:
    """Return all choices of a prompt with log probabilities, most probable first, with a limit per rewrite while others remain.

    Args:
        prompt: exact text.
        following: asked for the prompt, then for each rewrite of several variants once its turn has come.
        most_of_one: choices of one rewrite before all others were named.
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

    The first has no number, so it has the rest of the probability.
    """
    numbered = [after.get(f"@#{number}", UNNAMED) for number in range(1, count)]
    rest = 1.0 - sum(math.exp(chance) for chance in numbered)
    return [math.log(rest) if rest > math.exp(UNNAMED) else UNNAMED, *numbered]


def _word(name: str) -> str:
    return f"@use-{name}:"


def in_order(offers: Sequence[Offer]) -> list[Choice]:
    """Returns the first variant of each offer, then the second of each: the order without a model, for comparison."""
    most = max((count for _, count in offers), default=0)
    return [(name, number) for number in range(most) for name, count in offers if number < count]
