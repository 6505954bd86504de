"""Ranking of applicable rewrites by the probability that a model assigns to each.

Distinct answers are thus obtained without random sampling, each at the cost of evaluating one or two tokens instead of
a whole answer. If more answers are needed than there are choices, pairs follow: one of the best choices, followed by
the rewrite that the model considers most probable after it.
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
"""Function from an exact text to log probabilities of the most probable next tokens.

Missing tokens are less probable.
"""

MOST_OF_ONE = 3
"""Largest number of choices of one rewrite before all other rewrites were chosen."""
FIRSTS, MOST_PAIRS = 4, 12
"""Number of choices that begin pairs, the best of different rewrites, and largest number of pairs for one prompt."""
UNNAMED = -30.0
"""Log probability assumed for tokens outside the most probable ones; they keep the prompt's order."""


def choice_told(choice: Choice) -> str:
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
    """Yield every choice as an answer, then the most probable pairs, each with its log probability.

    Args:
        prompt: the exact prompt.
        following: called as by `choices`, then for the best choices and for the second rewrites of pairs.
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
    """Yield all choices of a prompt with log probabilities, the most probable first.

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
