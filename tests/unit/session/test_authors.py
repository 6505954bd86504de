"""Selection of the authors of a search, and consent before text is sent to another machine."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kernelmate.config import load_settings
from kernelmate.records import Kernel
from kernelmate.session.authors import SearchOptions, authors, local_model
from kernelmate.suggest.claude import Claude
from kernelmate.suggest.consent import OutgoingText
from kernelmate.suggest.local.author import LocalModel
from kernelmate.suggest.prices import SpendingBudget
from kernelmate.suggest.router import Router


@pytest.mark.parametrize(
    ("url", "asked"),
    [
        ("http://127.0.0.1:8080/v1", False),
        ("http://localhost:8080/v1", False),
        ("http://[::1]:8080/v1", False),
        ("https://models.example.com/v1", True),
        ("http://192.168.1.7:8080/v1", True),
        ("http://127.0.0.1.example.com/v1", True),
    ],
)
def test_a_server_beyond_this_machine_is_asked_for_once(
    load: Callable[..., Kernel], scale: str, url: str, asked: bool, monkeypatch: pytest.MonkeyPatch, tmp_path
) -> None:
    monkeypatch.setattr("kernelmate.suggest.consent.default_path", lambda: tmp_path / "consent.json")
    shown: list[OutgoingText] = []
    options = SearchOptions(ask=lambda outgoing: shown.append(outgoing) is None)
    model = local_model(load_settings(model_url=url), load(scale), options, wanted=True)
    assert model is not None
    assert (model.agree is not None) is asked
    if model.agree is not None:
        assert model.agree("the text")
        assert model.agree("the next one")
        assert [one.text for one in shown] == ["the text"]


def test_a_server_elsewhere_is_asked_by_the_codec_that_is_set(load: Callable[..., Kernel], scale: str) -> None:
    url, kernel = "http://127.0.0.1:8080/v1", load(scale)
    (chats,) = authors(load_settings(model_url=url), kernel, SearchOptions("local"))
    (coded,) = authors(load_settings(model_url=url, model_codec="mixed-2"), kernel, SearchOptions("local"))
    assert isinstance(chats, Router)
    assert isinstance(coded, Router)
    assert isinstance(chats.local, LocalModel)
    assert isinstance(coded.local, LocalModel)
    assert (chats.local.codec, coded.local.codec) == ("chat-1", "mixed-2")
    assert coded.samples > chats.samples


def test_a_refusal_is_asked_again(
    load: Callable[..., Kernel], scale: str, monkeypatch: pytest.MonkeyPatch, tmp_path
) -> None:
    monkeypatch.setattr("kernelmate.suggest.consent.default_path", lambda: tmp_path / "consent.json")
    model = local_model(load_settings(model_url="https://m.example.com/v1"), load(scale), SearchOptions(), wanted=True)
    assert model is not None
    assert model.agree is not None
    assert not model.agree("the text")
    assert not model.agree("the text")


def test_searches_of_one_session_can_share_what_claude_may_spend(load: Callable[..., Kernel], scale: str) -> None:
    spending = SpendingBudget(0.5)
    options = SearchOptions("claude", spending=spending)
    routers = [authors(load_settings(), load(scale), options)[0] for _ in range(2)]
    assert all(isinstance(one, Router) and isinstance(one.reviewer, Claude) for one in routers)
    assert {id(one.reviewer.spending) for one in routers} == {id(spending)}  # type: ignore[union-attr, attr-defined]
    (alone,) = authors(load_settings(claude_budget_usd=2.0), load(scale), SearchOptions("claude"))
    assert alone.reviewer.spending.limit_usd == 2.0  # type: ignore[union-attr, attr-defined]
