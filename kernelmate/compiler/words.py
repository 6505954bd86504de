"""Tables of names, written as text."""

from __future__ import annotations


def words_of(text: str) -> frozenset[str]:
    """Returns the words of a text as a set; used for tables that read better as text than as lists."""
    return frozenset(text.split())
