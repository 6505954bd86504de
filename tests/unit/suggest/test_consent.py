"""Consent is given for one workspace and one host, kept, and withdrawn."""

from __future__ import annotations

from pathlib import Path

from kernelmate.suggest.consent import Consents, workspace_of


def test_consent_holds_for_one_workspace_and_one_host(tmp_path: Path) -> None:
    consents = Consents(tmp_path / "deep" / "consent.json")
    assert not consents.given(tmp_path, "api.example.com")
    assert consents.give(tmp_path, "api.example.com")
    again = Consents(consents.path)
    assert again.given(tmp_path, "api.example.com")
    assert not again.given(tmp_path / "other", "api.example.com")
    assert not again.given(tmp_path, "elsewhere.example.com")
    assert again.withdraw(tmp_path)
    assert not consents.given(tmp_path, "api.example.com")


def test_a_file_that_cannot_be_read_holds_no_consent(tmp_path: Path) -> None:
    for text in ("", "{", "[]", '{"a": 1}', "\udcff"):
        (tmp_path / "consent.json").write_bytes(text.encode("utf-8", "surrogateescape"))
        consents = Consents(tmp_path / "consent.json")
        assert not consents.given(tmp_path, "h")
        assert consents.give(tmp_path, "h")


def test_where_it_cannot_be_kept_it_is_not_given(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    consents = Consents(tmp_path / "file" / "consent.json")
    assert not consents.give(tmp_path, "h")
    assert not consents.given(tmp_path, "h")


def test_a_workspace_is_the_project_else_the_folder(tmp_path: Path) -> None:
    deep = tmp_path / "project" / "src" / "kernels"
    deep.mkdir(parents=True)
    assert workspace_of(deep / "k.cu") == deep
    (tmp_path / "project" / "pyproject.toml").write_text("")
    assert workspace_of(deep / "k.cu") == tmp_path / "project"
