"""The cache of values in a warm worker."""

from __future__ import annotations

import numpy as np

from kernelmate.checks.answers import Memo


def memo(limit):
    return Memo(limit, lambda value: [value])


def test_a_value_is_made_once() -> None:
    calls = []
    store = memo(1000)
    for _ in range(3):
        store.get("a", lambda: calls.append(1) or np.zeros(10, np.uint8))
    assert len(calls) == 1


def test_the_one_unused_for_longest_goes_when_bytes_run_out() -> None:
    store, made = memo(250), []

    def fetch(key):
        return store.get(key, lambda: made.append(key) or np.zeros(100, np.uint8))

    for key in ("a", "b", "a", "c", "a", "b"):
        fetch(key)
    assert made == ["a", "b", "c", "b"]


def test_what_is_too_large_is_kept_until_the_next_one() -> None:
    store, made = memo(50), []
    for key in ("a", "a", "b", "a"):
        assert store.get(key, lambda key=key: made.append(key) or np.zeros(100, np.uint8)).size == 100
    assert made == ["a", "b", "a"]


def test_what_is_known_is_given_without_being_made() -> None:
    store = memo(1000)
    assert store.known("a") is None
    value = store.get("a", lambda: np.zeros(10, np.uint8))
    assert store.known("a") is value
