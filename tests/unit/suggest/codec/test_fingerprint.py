from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from kernelmate.suggest.base import SuggestRequest
from kernelmate.suggest.codec import OFFERING
from kernelmate.suggest.codec.fingerprint import differing, fingerprint
from kernelmate.suggest.codec.offers import REWRITES
from kernelmate.suggest.local.starter import shipped
from kernelmate.suggest.recipes import unroll
from kernelmate.suggest.recipes.base import Rewrite


@pytest.fixture
def afresh() -> Iterator[None]:
    fingerprint.cache_clear()
    yield
    fingerprint.cache_clear()


def test_it_is_the_same_every_time(afresh: None) -> None:
    first = fingerprint()
    fingerprint.cache_clear()
    assert fingerprint() == first


def test_a_variant_that_comes_in_another_place_makes_another(afresh: None, monkeypatch: pytest.MonkeyPatch) -> None:
    def turned(request: SuggestRequest) -> Iterator[Rewrite]:
        yield from reversed(list(unroll.rewrites(request)))

    first = fingerprint()
    fingerprint.cache_clear()
    monkeypatch.setitem(REWRITES, "unroll", replace(REWRITES["unroll"], rewrites=turned))
    assert fingerprint() != first


def test_a_model_that_was_taught_with_others_is_told_in_one_line() -> None:
    assert differing("small", None) is None
    assert differing("small", fingerprint()) is None
    said = differing("small", "0123456789abcdef")
    assert said is not None
    assert said.startswith("small was taught to choose among other recipes")
    assert "\n" not in said


def test_the_model_that_ships_was_taught_with_the_recipes_that_ship() -> None:
    model = shipped()
    if model is None:
        pytest.skip("this build comes without the starter model")
    assert model.offers == (fingerprint() if model.codec in OFFERING else None)
