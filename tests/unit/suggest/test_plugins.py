"""Suggesters of other packages are found by their entry point."""

from __future__ import annotations

from importlib.metadata import EntryPoint

import pytest

from kernelmate.errors import UsageError
from kernelmate.suggest import plugins
from kernelmate.suggest.plugins import GROUP, load_plugin, plugin_names


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> None:
    points = [
        EntryPoint("mine", "kernelmate.suggest.recipes:Recipes", GROUP),
        EntryPoint("gone", "no_such_package_at_all:Thing", GROUP),
    ]
    monkeypatch.setattr(plugins, "entry_points", lambda group: points if group == GROUP else [])


def test_an_installed_one_is_made(installed: None) -> None:
    assert plugin_names() == ["gone", "mine"]
    assert load_plugin("mine").name == "recipes"


def test_one_that_cannot_be_made_is_said(installed: None) -> None:
    with pytest.raises(UsageError, match=r"gone \(no_such_package_at_all:Thing\) cannot be made: ModuleNotFoundError"):
        load_plugin("gone")


def test_one_that_is_not_there_is_said_with_those_that_are(installed: None) -> None:
    with pytest.raises(UsageError) as caught:
        load_plugin("other")
    assert "mine" in (caught.value.hint or "")
