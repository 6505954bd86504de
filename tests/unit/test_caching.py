"""The cache by text: its bounds, and that it answers as the function does."""

from __future__ import annotations

from kernelmate import caching
from kernelmate.caching import text_cache
from kernelmate.records import Unit


def test_results_are_kept_and_the_oldest_go_first() -> None:
    calls = []

    @text_cache(2)
    def length(text: str, *, more: int = 0) -> int:
        """The length."""
        calls.append(text)
        return len(text) + more

    assert [length("a"), length("bb"), length("a"), length("ccc"), length("a"), length("bb")] == [1, 2, 1, 3, 1, 2]
    assert calls == ["a", "bb", "ccc", "bb"], "asked for again, a result is the newest"
    assert length("bb", more=1) == 3
    assert length.__doc__ == "The length."


def test_long_texts_are_kept_by_their_characters_and_the_newest_in_any_case() -> None:
    calls = []

    @text_cache(64)
    def lines(unit: Unit) -> int:
        calls.append(unit.path)
        return unit.text.count("\n")

    third = caching.MOST_CHARACTERS // 3
    for name in ("a", "b", "c", "d", "a", "d", "huge", "huge"):
        lines(Unit(name, "\n" * (third if name != "huge" else 5 * third)))
    assert calls == ["a", "b", "c", "d", "a", "huge"]
