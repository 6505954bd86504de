"""Tables of names, written as plain text."""

from __future__ import annotations


def words_of(text: str) -> frozenset[str]:
    """The words of a text as a set: for tables that read better as prose than as lists."""
    return frozenset(text.split())
