from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from kernelmate.suggest.base import SuggestRequest
from kernelmate.suggest.codec import OFFERING
from kernelmate.suggest.codec.applicable import REWRITES, candidates
from kernelmate.suggest.codec.fingerprint import KEPT, computed, differing, fingerprint, questions
from kernelmate.suggest.local.starter import shipped
from kernelmate.suggest.recipes import unroll
from kernelmate.suggest.recipes.base import Rewrite


@pytest.fixture
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A cache folder of the test's own."""
    monkeypatch.setenv("KERNELMATE_CACHE_DIR", str(tmp_path / "cache"))
    fingerprint.cache_clear()
    yield tmp_path / "cache"
    fingerprint.cache_clear()


def test_every_recipe_and_every_repair_does_something_on_one_of_the_kernels() -> None:
    """So that a change of any of them is a change of the hash."""
    assert {name for question in questions() for name, _ in candidates(question)} == set(REWRITES)


def test_a_variant_that_comes_in_another_place_makes_another(monkeypatch: pytest.MonkeyPatch) -> None:
    def turned(request: SuggestRequest) -> Iterator[Rewrite]:
        yield from reversed(list(unroll.rewrites(request)))

    first = computed()
    assert computed() == first
    monkeypatch.setitem(REWRITES, "unroll", replace(REWRITES["unroll"], rewrites=turned))
    assert computed() != first


def test_it_is_kept_until_a_file_that_decides_it_changes(own_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = fingerprint()
    kept = own_folder / KEPT
    key = kept.read_text().split()[0]
    assert kept.read_text() == f"{key} {first}\n"
    kept.write_text(f"{key} 0123456789abcdef\n")
    fingerprint.cache_clear()
    assert fingerprint() == "0123456789abcdef"
    monkeypatch.setattr("kernelmate.suggest.codec.fingerprint.MADE_BY", ("suggest",))
    fingerprint.cache_clear()
    assert fingerprint() == first
    assert kept.read_text().split()[0] != key


@pytest.mark.parametrize("damaged", ["", "one two three", "\xff"])
def test_what_is_damaged_or_cannot_be_kept_is_made_anew(own_folder: Path, damaged: str) -> None:
    own_folder.mkdir()
    (own_folder / KEPT).write_text(damaged, encoding="latin-1")
    first = fingerprint()
    assert len(first) == 16
    (own_folder / KEPT).unlink()
    (own_folder / KEPT).mkdir()
    fingerprint.cache_clear()
    assert fingerprint() == first


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
