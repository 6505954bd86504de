"""The panel's list of versions: a key identifies the same version after the list has changed."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as some

from kernelmate_widgets.panel_state import VersionList


@dataclass(frozen=True)
class Found:
    """Stands for a judged candidate: the list looks at nothing of it."""

    name: str


def names(listing: VersionList) -> dict[int, str]:
    return {one.key: one.found.name for one in listing.versions if one.found is not None}


@given(some.permutations("abcdef"), some.integers(0, 6), some.sets(some.integers(0, 5)))
def test_keys_selection_and_rejections_stay_with_their_versions_when_the_order_changes(order, chosen, aside) -> None:
    listing = VersionList()
    for name in "abcdef":
        listing.add(Found(name))
    keys = [one.key for one in listing.versions]
    listing.select(keys[chosen])
    for index in aside:
        listing.reject(keys[1 + index])
    before = names(listing)
    listing.arrange([Found(name) for name in order], best=0)
    assert names(listing) == before
    assert listing.selected.key == keys[chosen]
    assert {one.found.name for one in listing.versions if one.rejected} == {"abcdef"[index] for index in aside}
    assert [listing.number(key) for key in keys[1:]] == [order.index(name) + 1 for name in "abcdef"]


def test_the_best_comes_into_view_where_the_user_has_chosen_nothing() -> None:
    listing = VersionList()
    listing.add(Found("a"))
    listing.add(Found("b"))
    listing.arrange([Found("b"), Found("a")], best=0)
    assert listing.selected.found == Found("b")


def test_equal_candidates_are_versions_of_their_own() -> None:
    listing = VersionList()
    for _ in range(3):
        listing.add(Found("same"))
    keys = [one.key for one in listing.versions]
    listing.arrange([Found("same")] * 3, best=None)
    assert [one.key for one in listing.versions] == keys
    listing.reject(keys[2])
    assert [one.rejected for one in listing.versions] == [False, False, True, False]


def test_a_key_is_never_used_again() -> None:
    listing = VersionList()
    seen: set[int] = set()
    for _ in range(3):
        listing.add(Found("a"))
        keys = {one.key for one in listing.versions}
        assert not keys & seen
        seen |= keys
        listing.begin()
    for key in seen:
        listing.select(key)
        listing.reject(key)
        assert listing.number(key) is None
    assert [one.number for one in listing.versions] == [0]
    assert listing.selected.number == 0
