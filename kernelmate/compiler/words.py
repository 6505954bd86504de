"""Tables of names, written as text."""

from __future__ import annotations


def words_of(text: str) -> frozenset[str]:
    """Returns the whitespace-separated words of a text as a set, for tables of names."""
    return frozenset(text.split())
