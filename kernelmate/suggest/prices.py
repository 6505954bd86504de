"""Prices of tokens, and a spending limit that is checked before each call."""

from __future__ import annotations

from dataclasses import dataclass

from kernelmate.records import Cost


@dataclass(frozen=True, slots=True)
class Price:
    """US dollars per million tokens.

    Attributes:
        input: input tokens that are not cached.
        output: output tokens, including reasoning.
        cache_write: input tokens that are written to the cache, for five minutes.
        cache_read: input tokens that are read from the cache.
    """

    input: float
    output: float
    cache_write: float
    cache_read: float


def _price(read: float, written: float, cached: float) -> Price:
    return Price(read, written, 1.25 * read, cached * read)


PRICES: dict[str, Price] = {
    "claude-opus-5-5": _price(4.0, 20.0, 0.05),
    "claude-sonnet-5-5": _price(2.0, 10.0, 0.05),
    "claude-haiku-5-5": _price(0.5, 2.5, 0.1),
    "claude-fable-5-1": _price(10.0, 50.0, 0.025),
    "claude-opus-5": _price(5.0, 25.0, 0.1),
    "claude-sonnet-5": _price(2.0, 10.0, 0.1),
    "claude-opus-4": _price(5.0, 25.0, 0.1),
    "claude-sonnet-4": _price(3.0, 15.0, 0.1),
    "claude-haiku-4-5": _price(1.0, 5.0, 0.1),
}
"""Prices by prefix of a model's name, the longest match wins (platform.claude.com, pricing, November 2026)."""

UNKNOWN = _price(10.0, 50.0, 0.1)
"""Price of a model that is not in the table: the highest price in it."""

CHARACTERS_PER_TOKEN = 2.5
"""Characters per token, below the average of English and CUDA text, so that estimates are upper bounds."""


def price_of(model: str) -> Price | None:
    """Returns the price of a model; None if unknown."""
    known = [name for name in PRICES if model == name or model.startswith(f"{name}-")]
    return PRICES[max(known, key=len)] if known else None


def cost_of(model: str, input_tokens: int, output_tokens: int, cache_written: int = 0, cache_read: int = 0) -> Cost:
    """Returns the cost of a call; `input_tokens` are those neither written to nor read from the cache."""
    price = price_of(model)
    usd = None
    if price is not None:
        parts = (
            input_tokens * price.input,
            output_tokens * price.output,
            cache_written * price.cache_write,
            cache_read * price.cache_read,
        )
        usd = sum(parts) / 1e6
    return Cost(input_tokens + cache_written + cache_read, output_tokens, usd)


class OverBudget(Exception):
    """A call could cost more than the remaining budget; the message is one sentence."""


class SpendingBudget:
    """Spending limit of one session, and the amount spent.

    Args:
        limit_usd: limit for all calls together, in US dollars.
    """

    def __init__(self, limit_usd: float) -> None:
        self.limit_usd = limit_usd
        self.spent_usd = 0.0
        self.calls: list[Cost] = []

    @property
    def account(self) -> str:
        """Returns the amount spent so far, as text."""
        calls = "1 call" if len(self.calls) == 1 else f"{len(self.calls)} calls"
        return f"{calls} so far, {self.spent_usd:.4f} of {self.limit_usd:.2f} USD"

    def most(self, model: str, characters: int, output_tokens: int) -> float:
        """Returns an upper estimate of a call's cost, in US dollars."""
        price = price_of(model) or UNKNOWN
        return (characters / CHARACTERS_PER_TOKEN * price.cache_write + output_tokens * price.output) / 1e6

    def check(self, model: str, characters: int, output_tokens: int) -> float:
        """Returns an upper estimate of a call's cost in USD after checking it against the budget.

        Raises:
            OverBudget: the budget does not suffice.
        """
        most = self.most(model, characters, output_tokens)
        if self.spent_usd + most > self.limit_usd:
            raise OverBudget(
                f"The next call could cost {most:.2f} USD, and {max(self.limit_usd - self.spent_usd, 0):.2f} of "
                f"{self.limit_usd:.2f} USD are left. Raise claude_budget_usd to go on."
            )
        return most

    def pay(self, cost: Cost) -> None:
        """Adds a call's cost; a call of unknown price counts as the most expensive model's."""
        self.calls.append(cost)
        tokens = ((cost.input_tokens or 0) * UNKNOWN.input + (cost.output_tokens or 0) * UNKNOWN.output) / 1e6
        self.spent_usd += tokens if cost.usd is None else cost.usd
