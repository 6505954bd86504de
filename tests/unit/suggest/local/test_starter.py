"""The model that comes with KernelMate: put in place, found, and in use where the user has chosen none."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from tiny_gguf import write_tiny_gguf

from kernelmate.config import Settings
from kernelmate.errors import SourceError, UsageError
from kernelmate.session import authors
from kernelmate.session.authors import SearchOptions, local_model
from kernelmate.source import find_kernels, text_unit
from kernelmate.suggest.codec.fingerprint import computed
from kernelmate.suggest.local.library import ModelLibrary
from kernelmate.suggest.local.starter import MOST_BYTES, install, shipped, stamp
from kernelmate.suggest.offline import Offline
from kernelmate.suggest.router import Router

KERNEL = find_kernels(text_unit("__global__ void k(float* x) { x[0] = 1; }"))[0]


@pytest.fixture
def place(tmp_path: Path) -> Path:
    folder = tmp_path / "starter"
    folder.mkdir()
    return folder


@pytest.fixture
def installed(tmp_path: Path, place: Path) -> Path:
    install(write_tiny_gguf(tmp_path / "trained.gguf", 2048, codec="mixed-2"), place)
    return place


def test_a_trained_file_is_put_in_place_with_card_and_hash(installed: Path) -> None:
    model = shipped(installed)
    assert model is not None
    assert (model.name, model.codec, model.context) == ("starter", "mixed-2", 2048)
    card = (installed / "CARD.md").read_text()
    assert "Random weights." in card
    assert model.sha256 in card
    ModelLibrary(installed / "models", model).check(model)


def test_its_card_has_the_figures_of_exams(tmp_path: Path, place: Path) -> None:
    exam, control = tmp_path / "exam.json", tmp_path / "control.json"
    figures = [{"entrant": "model, greedy", "right": 50, "better": 48, "met": 41, "goals": 68}]
    told = {"model": {"name": "mine"}, "backend": "emulator", "target": "H100 SXM", "figures": figures}
    exam.write_text(json.dumps(told))
    control.write_text(json.dumps({**told, "model": None}))
    file = write_tiny_gguf(tmp_path / "trained.gguf", 2048, codec="mixed-2")
    install(file, place, [exam, control])
    card = (place / "CARD.md").read_text()
    assert "| mine | model, greedy | emulator, H100 SXM | 50 of 68 | 48 of 68 | 41 of 68 |" in card
    assert "| recipes alone | model, greedy |" in card
    control.write_text("{}")
    with pytest.raises(SourceError, match="not the result of an exam"):
        install(file, place, [control])


def test_it_is_stamped_with_the_recipes_that_are_installed_and_its_weights_stay(tmp_path: Path, place: Path) -> None:
    old = "0123456789abcdef"
    trained = write_tiny_gguf(tmp_path / "trained.gguf", 2048, codec="mixed-2", offers=old)
    before = install(trained, place)
    assert before.offers == old
    (place / "CARD.md").write_text((place / "CARD.md").read_text() + f"Fingerprint: `{old}`.\n")
    stamped = stamp("Nothing that a number means has changed.", place)
    assert stamped == replace(shipped(place), path=stamped.path)
    assert stamped.offers == computed() != old
    ModelLibrary(place / "models", stamped).check(stamped)
    assert Path(stamped.path).read_bytes().replace(stamped.offers.encode(), old.encode()) == trained.read_bytes()
    card = (place / "CARD.md").read_text()
    assert f"Fingerprint: `{stamped.offers}`." in card
    assert f"sha256 of `starter.gguf`: `{stamped.sha256}`" in card
    assert card.rstrip().endswith("Nothing that a number means has changed.")
    assert before.sha256 in card


def test_only_a_model_that_chooses_is_stamped(installed: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot choose among offers"):
        stamp("why", installed)
    with pytest.raises(UsageError, match="without the starter model"):
        stamp("why", tmp_path / "nothing")


def test_where_none_came_there_is_none(place: Path) -> None:
    assert shipped(place) is None


def test_a_damaged_description_is_no_model(installed: Path) -> None:
    (installed / "starter.json").write_text('{"sha256": 1, "unknown": 2}')
    assert shipped(installed) is None


def test_a_changed_file_is_not_served(installed: Path) -> None:
    model = shipped(installed)
    assert model is not None
    file = Path(model.path)
    file.write_bytes(file.read_bytes()[:-1] + b"x")
    with pytest.raises(UsageError, match="not the one that was added"):
        ModelLibrary(installed / "models", model).check(model)


def test_a_file_without_codec_or_too_large_is_refused(tmp_path: Path, place: Path, tiny: Path) -> None:
    with pytest.raises(UsageError, match=r"lack kernelmate\.codec"):
        install(tiny, place)
    large = tmp_path / "large.gguf"
    with large.open("wb") as file:
        file.truncate(MOST_BYTES + 1)
    with pytest.raises(UsageError, match="at most 40,000,000"):
        install(large, place)
    assert list(place.iterdir()) == []


def test_it_is_in_use_until_the_user_chooses_another_one(tmp_path: Path, installed: Path, tiny: Path) -> None:
    library = ModelLibrary(tmp_path / "models", shipped(installed))
    assert library.current() == library.starter
    assert [model.name for model in library.models()] == ["starter"]
    added = library.add(tiny)
    assert library.current() == added
    assert [model.name for model in library.models()] == ["tiny", "starter"]
    library.use("starter")
    assert library.current() == library.starter
    assert [model.name for model in ModelLibrary(tmp_path / "models").models()] == ["tiny"]


def test_it_cannot_be_removed(tmp_path: Path, installed: Path) -> None:
    with pytest.raises(UsageError, match="comes with KernelMate"):
        ModelLibrary(tmp_path / "models", shipped(installed)).remove("starter")


def test_a_search_asks_it_by_its_codec(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, installed: Path) -> None:
    monkeypatch.setattr(authors, "shipped", lambda: shipped(installed))
    monkeypatch.setattr(authors, "engine_name", lambda: "xllamacpp")
    settings = Settings(models_dir=tmp_path / "models", starter=True)
    found = local_model(settings, KERNEL, SearchOptions(), wanted=False)
    assert found is not None
    assert (found.name, found.codec) == ("local:starter", "mixed-2")
    assert (
        local_model(Settings(models_dir=tmp_path / "models", starter=False), KERNEL, SearchOptions(), wanted=False)
        is None
    )


def test_a_search_leaves_it_room_after_recipes_and_more_attempts(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, installed: Path
) -> None:
    monkeypatch.setattr(authors, "shipped", lambda: shipped(installed))
    monkeypatch.setattr(authors, "engine_name", lambda: "xllamacpp")
    *_, router = authors.authors(Settings(models_dir=tmp_path / "models", starter=True), KERNEL, SearchOptions())
    assert isinstance(router, Router)
    assert isinstance(router.recipes, Offline)
    assert (router.recipes.most, router.samples) == (24, 8)
    *_, router = authors.authors(
        Settings(models_dir=tmp_path / "models", starter=True, samples=3), KERNEL, SearchOptions()
    )
    assert isinstance(router, Router)
    assert router.samples == 3
    *_, router = authors.authors(Settings(models_dir=tmp_path / "models", starter=False), KERNEL, SearchOptions())
    assert isinstance(router, Router)
    assert isinstance(router.recipes, Offline)
    assert (router.local, router.recipes.most) == (None, None)


def test_without_llama_cpp_nobody_is_bothered(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, installed: Path) -> None:
    monkeypatch.setattr(authors, "shipped", lambda: shipped(installed))
    monkeypatch.setattr(authors, "engine_name", lambda: None)
    settings = Settings(models_dir=tmp_path / "models", starter=True)
    assert local_model(settings, KERNEL, SearchOptions(), wanted=False) is None
    assert local_model(settings, KERNEL, SearchOptions(), wanted=True) is not None
