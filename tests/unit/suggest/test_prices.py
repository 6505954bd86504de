"""Prices of calls, and a spending limit that no call exceeds."""

from __future__ import annotations

import pytest

from kernelmate.records import Cost
from kernelmate.suggest.prices import OverBudget, SpendingBudget, cost_of, price_of


def test_dated_names_have_the_price_of_their_model() -> None:
    assert price_of("claude-haiku-4-5-20251001") == price_of("claude-haiku-4-5")
    assert price_of("claude-opus-5-5") != price_of("claude-opus-5")
    assert price_of("claude-opus-4-8") == price_of("claude-opus-4")
    assert price_of("gpt-something") is None


def test_each_kind_of_token_has_its_price() -> None:
    cost = cost_of("claude-sonnet-5-5", 1_000_000, 1_000_000, 1_000_000, 1_000_000)
    assert cost.usd == pytest.approx(2.0 + 10.0 + 2.5 + 0.1)
    assert (cost.input_tokens, cost.output_tokens) == (3_000_000, 1_000_000)


def test_a_model_without_a_price_has_an_unknown_cost_and_counts_as_the_dearest() -> None:
    cost = cost_of("claude-new", 1_000_000, 0)
    assert cost.usd is None
    spending = SpendingBudget(100.0)
    spending.pay(cost)
    assert spending.spent_usd == pytest.approx(10.0)


def test_a_call_that_could_pass_the_limit_is_not_made() -> None:
    spending = SpendingBudget(1.0)
    assert spending.check("claude-opus-5-5", 10_000, 10_000) == pytest.approx(0.02 + 0.2)
    spending.pay(Cost(0, 0, 0.9))
    with pytest.raises(OverBudget, match=r"0\.10 of 1\.00 USD are left"):
        spending.check("claude-opus-5-5", 10_000, 10_000)
