"""The list of models: added with their hash, checked before they are served."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest

from kernelmate.errors import EnvironmentFailed, UsageError
from kernelmate.suggest.local.library import ModelLibrary, read_facts


def test_a_file_is_added_where_it_is_with_what_it_says_of_itself(library: ModelLibrary, tiny: Path) -> None:
    told: list[tuple[int, int]] = []
    model = library.add(tiny, on_bytes=lambda done, total: told.append((done, total)))
    assert (model.name, model.path) == ("tiny", str(tiny.resolve()))
    assert model.sha256 == hashlib.sha256(tiny.read_bytes()).hexdigest()
    assert (model.architecture, model.context, model.licence) == ("llama", 4096, "Apache-2.0")
    assert model.quantization == "ALL_F32"
    assert model.parameters is not None
    assert 100_000 < model.parameters < 200_000
    assert (model.layers, model.cache_bytes) == (2, 2 * 2 * 64 * 2)
    assert told[-1] == (model.size, model.size)
    assert ModelLibrary(library.folder).models() == [model]


def test_the_first_model_is_in_use_until_another_is_taken(library: ModelLibrary, tiny: Path) -> None:
    first, second = library.add(tiny), library.add(tiny, "second")
    assert library.current() == first
    library.use("second")
    assert ModelLibrary(library.folder).current() == second
    library.remove("second")
    assert library.current() is None
    assert [model.name for model in library.models()] == ["tiny"]


def test_adding_again_replaces_the_entry(library: ModelLibrary, tiny: Path) -> None:
    library.add(tiny)
    library.add(tiny, licence="MIT")
    (model,) = library.models()
    assert model.licence == "MIT"
    assert library.current() == model


def test_removing_deletes_only_what_was_downloaded_into_the_library(library: ModelLibrary, tiny: Path) -> None:
    library.add(tiny)
    assert library.remove("tiny") is False
    assert tiny.exists()
    library.folder.mkdir(exist_ok=True)
    ours = library.folder / "ours.gguf"
    ours.write_bytes(tiny.read_bytes())
    library.add(ours)
    assert library.remove("ours") is True
    assert not ours.exists()


def test_a_model_that_is_not_there_is_said_with_those_that_are(library: ModelLibrary, tiny: Path) -> None:
    library.add(tiny)
    with pytest.raises(UsageError) as caught:
        library.use("huge")
    assert "tiny" in (caught.value.hint or "")


@pytest.mark.parametrize(
    "content",
    [b"", b"GG", b"not a model at all", b"GGUF", b"GGUF" + b"\xff" * 200, b"GGUF\x03\x00\x00\x00" + b"\x7f" * 64],
)
def test_what_is_no_gguf_file_is_refused(library: ModelLibrary, tmp_path: Path, content: bytes) -> None:
    (tmp_path / "bad.gguf").write_bytes(content)
    with pytest.raises(UsageError, match="GGUF file"):
        library.add(tmp_path / "bad.gguf")
    assert library.models() == []


def test_a_cut_off_download_is_refused(library: ModelLibrary, tiny: Path, tmp_path: Path) -> None:
    (tmp_path / "half.gguf").write_bytes(tiny.read_bytes()[: tiny.stat().st_size // 2])
    with pytest.raises(UsageError, match="damaged"):
        library.add(tmp_path / "half.gguf")


def test_a_file_that_changed_is_not_served(library: ModelLibrary, tiny: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy.gguf"
    copy.write_bytes(tiny.read_bytes())
    model = library.add(copy)
    library.check(model)
    os.utime(copy)
    library.check(model)
    copy.write_bytes(tiny.read_bytes()[:-1] + b"\x01")
    with pytest.raises(UsageError, match="not the one that was added"):
        library.check(model)
    copy.unlink()
    with pytest.raises(UsageError, match="is gone"):
        library.check(model)


def test_a_damaged_list_is_empty_and_can_be_written_again(library: ModelLibrary, tiny: Path) -> None:
    library.folder.mkdir()
    for text in ("", "{", "[]", '{"models": 3}', '{"models": [{"name": "x"}]}'):
        library.list_file.write_text(text)
        assert library.models() == []
        assert library.current() is None
    library.add(tiny)
    assert len(library.models()) == 1


def test_a_list_that_cannot_be_written_is_said(tmp_path: Path, tiny: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(EnvironmentFailed, match="cannot be written"):
        ModelLibrary(tmp_path / "file").add(tiny)


def test_facts_need_no_llama(tiny: Path) -> None:
    assert read_facts(tiny)["architecture"] == "llama"


def test_a_file_need_not_be_in_the_list_to_be_found(library: ModelLibrary, tiny: Path) -> None:
    found = library.find(str(tiny))
    assert library.models() == []
    library.check(found)
    assert found == library.add(tiny)
    with pytest.raises(UsageError, match="There is no model"):
        library.find(str(tiny.with_name("none.gguf")))
