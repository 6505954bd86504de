"""Sessions store their judgements in the history; a history that fails costs only a notice."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kernelmate.history import History
from kernelmate.records import Candidate, Judged, Kernel
from kernelmate.session import Session
from kernelmate.source import contract_for
from kernelmate.suggest.base import SuggestRequest

Load = Callable[..., Kernel]


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[History]:
    path = tmp_path / "history.db"
    monkeypatch.setenv("KERNELMATE_HISTORY_FILE", str(path))
    with History(path) as history:
        yield history


class Halves:
    """Proposes one candidate: half the block."""

    name = "halves"

    def __init__(self, candidate: Kernel) -> None:
        self._candidate = candidate

    def propose(self, request: SuggestRequest) -> Iterator[Candidate]:
        yield Candidate("scripted:halves", "half the block", self._candidate, contract_for(self._candidate))


def test_bench_keeps_the_verdict_as_the_users_own(
    kept: History, scripted: Callable[..., tuple[Session, Any]], load: Load, scale: str
) -> None:
    kernel = load(scale)
    (verdict,) = scripted()[0].bench(kernel)
    (one,) = kept.judgements()
    assert (one.judged.command, one.judged.author, one.judged.parent) == ("bench", "user", None)
    assert one.text == kernel.unit.text
    assert one.judged.launch == {"grid": ["cdiv(n, block)"], "block": ["256"], "shared": "0", "require": []}
    assert one.judged.verdict["binary"] == verdict.binary
    assert one.judged.verdict["lines"] is None


def test_optimize_keeps_each_candidate_with_prompt_author_and_parent(
    kept: History, scripted: Callable[..., tuple[Session, Any]], load: Load, scale: str
) -> None:
    kernel = load(scale)
    changed = load(scale.replace("block = 256", "block = 128"), "other.cu")
    scripted()[0].optimize(kernel, "make it faster", suggesters=[Halves(changed)])
    baseline, candidate = kept.judgements()
    assert (baseline.judged.author, baseline.judged.prompt) == ("user", None)
    assert (candidate.judged.author, candidate.judged.prompt) == ("scripted:halves", "make it faster")
    assert (candidate.judged.metric, candidate.judged.why) == ("time", "half the block")
    assert candidate.judged.parent == baseline.version
    assert candidate.kernel == baseline.kernel


def test_a_search_is_told_what_earlier_ones_found(
    kept: History, scripted: Callable[..., tuple[Session, Any]], load: Load, scale: str
) -> None:
    kernel = load(scale)
    changed = load(scale.replace("block = 256", "block = 128"), "other.cu")
    heard: list[Judged] = []

    class Listens(Halves):
        def propose(self, request: SuggestRequest) -> Iterator[Candidate]:
            heard.extend(request.earlier())
            return super().propose(request)

    for _ in range(2):
        scripted()[0].optimize(kernel, "make it faster", suggesters=[Listens(changed)])
    (earlier,) = heard
    assert (earlier.candidate.author, earlier.candidate.why) == ("scripted:halves", "half the block")
    assert earlier.candidate.contract.block == ("128",)
    assert earlier.verdict.accepted is not None or earlier.verdict.correct


def test_compare_keeps_both_sides(
    kept: History, scripted: Callable[..., tuple[Session, Any]], load: Load, scale: str
) -> None:
    kernel, changed = load(scale), load(scale.replace("256", "128"), "changed.cu")
    scripted()[0].compare(kernel, changed, "faster")
    before, after = kept.judgements()
    assert after.judged.parent == before.version
    assert after.judged.prompt == "faster"


def test_nothing_is_kept_where_the_setting_says_so(
    kept: History, scripted: Callable[..., tuple[Session, Any]], load: Load, scale: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KERNELMATE_HISTORY", "false")
    session, _ = scripted()
    session.bench(load(scale))
    assert not kept.path.exists()
    assert session.notices == ()


def test_a_history_that_cannot_be_written_costs_one_notice(
    scripted: Callable[..., tuple[Session, Any]],
    load: Load,
    scale: str,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("KERNELMATE_HISTORY_FILE", str(tmp_path / "file" / "history.db"))
    session, _ = scripted()
    kernel = load(scale)
    verdicts: list[Any] = [session.bench(kernel), session.bench(kernel)]
    assert all(verdict.correct for (verdict,) in verdicts)
    (notice,) = session.notices
    assert "Nothing more is kept in the history" in notice
