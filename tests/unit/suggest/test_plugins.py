"""Suggesters of other packages are found by their entry point."""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from kernelmate.config import load_settings
from kernelmate.errors import UsageError
from kernelmate.session.authors import SearchOptions, authors
from kernelmate.suggest import plugins
from kernelmate.suggest.base import SuggestRequest
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


PLUGIN = """\
from kernelmate.suggest.scripted import Scripted


class Mine(Scripted):
    def __init__(self):
        super().__init__(["__global__ void k(float *x) { x[0] = 2.0f; }"], name="mine", why="two is better")
"""


def test_a_package_that_is_installed_is_asked_by_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ask: Callable[..., SuggestRequest]
) -> None:
    (tmp_path / "a_plugin_of_a_test.py").write_text(PLUGIN)
    information = tmp_path / "a_plugin_of_a_test-1.0.dist-info"
    information.mkdir()
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: a-plugin-of-a-test\nVersion: 1.0\n")
    (information / "entry_points.txt").write_text("[kernelmate.suggesters]\nmine = a_plugin_of_a_test:Mine\n")
    monkeypatch.syspath_prepend(tmp_path)
    request = ask("__global__ void k(float *x) { x[0] = 1.0f; }")
    (suggester,) = authors(load_settings(), request.kernel, SearchOptions("mine"))
    (candidate,) = suggester.propose(request)
    assert (candidate.author, candidate.why) == ("plugin:mine", "two is better")
    assert "x[0] = 2.0f" in candidate.kernel.unit.text
