"""Rewards: nothing for what is wrong, something for what is right, more for what gains; compared within a question alone."""

from __future__ import annotations

import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelmate_training.rewards import RIGHT, Grade, advantages, reward

GAINS = st.floats(0.01, 100.0)


@given(GAINS)
def test_a_wrong_answer_is_worth_nothing_whatever_it_gains(gain: float) -> None:
    assert reward(Grade(right=False, gain=gain), 1.5) == 0.0


@given(GAINS, GAINS)
def test_a_larger_gain_is_worth_no_less(one: float, other: float) -> None:
    less, more = sorted((one, other))
    assert reward(Grade(right=True, gain=less), 1.5) <= reward(Grade(right=True, gain=more), 1.5)


@given(GAINS)
def test_rewards_are_bounded(gain: float) -> None:
    assert 0.0 <= reward(Grade(right=True, gain=gain), 1.5) <= 1.0 + RIGHT


def test_what_noise_could_be_counts_for_little_and_what_is_beyond_the_clip_for_no_more() -> None:
    noise = reward(Grade(right=True, gain=1.01), 1.5) - RIGHT
    assert 0 < noise < 0.25 * math.log(1.01)
    assert reward(Grade(right=True, gain=50.0), 1.5) == reward(Grade(right=True, gain=5.0), 1.5) == 1.0 + RIGHT
    assert reward(Grade(right=True), 1.5) == RIGHT


@given(st.lists(st.floats(0.0, 1.1), min_size=1, max_size=16))
def test_advantages_of_a_question_add_up_to_nothing(rewards: list[float]) -> None:
    found = advantages(rewards)
    assert sum(found) == pytest.approx(0.0, abs=1e-6)
    assert all(one <= other for one, other in itertools.pairwise(found)) or rewards != sorted(rewards)


def test_answers_that_are_all_alike_teach_nothing() -> None:
    assert advantages([0.4, 0.4, 0.4]) == [0.0, 0.0, 0.0]
    assert advantages([]) == []
