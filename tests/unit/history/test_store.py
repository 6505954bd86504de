"""The history returns what was stored in it."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable

import pytest

from kernelmate.errors import HistoryUnavailable, UsageError
from kernelmate.history import History
from kernelmate.records import Cost, JudgementEntry, Kernel

Kernels = Callable[..., Kernel]
Judgements = Callable[..., JudgementEntry]


def test_nothing_is_made_before_something_is_kept(history: History) -> None:
    assert history.kernels() == []
    assert list(history.judgements()) == []
    assert not history.path.parent.exists()


def test_a_judgement_comes_back_as_it_was_kept(history: History, in_file: Kernels, judged: Judgements) -> None:
    kernel = in_file()
    entry = judged(
        command="optimize",
        author="claude:x",
        prompt='größer – "schneller" 快',
        metric="time",
        why="fewer\nwarps",
        launch={"grid": ["1"], "block": ["n"]},
        cost=Cost(10, 20, 0.5),
    )
    number = history.record(kernel, entry)
    found = history.version(number)
    assert found.judged == entry
    assert (found.name, found.path, found.language) == ("scale", os.path.realpath(kernel.unit.path), "cuda")
    assert found.text == kernel.unit.text
    assert found.source == kernel.source


def test_equal_texts_are_one_version_with_two_judgements(
    history: History, in_file: Kernels, judged: Judgements
) -> None:
    kernel = in_file()
    first, second = history.record(kernel, judged()), history.record(kernel, judged(accepted=False))
    assert first == second
    assert [one.judged.verdict["accepted"] for one in history.judgements(version=first)] == [True, False]
    assert history.version(first).judged.verdict["accepted"] is False
    (known,) = history.kernels()
    assert (known.versions, known.judgements) == (1, 2)


def test_another_launch_is_another_version(history: History, in_file: Kernels, judged: Judgements) -> None:
    kernel = in_file()
    assert history.record(kernel, judged(launch={"block": ["32"]})) != history.record(
        kernel, judged(launch={"block": ["64"]})
    )


def test_candidates_belong_to_the_kernel_that_they_were_made_from(
    history: History, in_file: Kernels, judged: Judgements
) -> None:
    kernel = in_file()
    changed = in_file(kernel.unit.text.replace("2.0f", "3.0f"), "elsewhere.cu")
    parent = history.record(kernel, judged())
    child = history.record(changed, judged(parent=parent, author="recipe:x"))
    (known,) = history.kernels()
    assert (known.versions, known.path) == (2, os.path.realpath(kernel.unit.path))
    assert history.version(child).judged.parent == parent


def test_a_parent_that_was_forgotten_meanwhile_is_no_obstacle(
    history: History, in_file: Kernels, judged: Judgements
) -> None:
    parent = history.record(in_file(), judged())
    history.forget()
    child = history.record(in_file(), judged(parent=parent))
    assert history.version(child).judged.parent is None
    assert [known.name for known in history.kernels()] == ["scale"]


def test_text_that_no_encoding_knows_is_kept(history: History, cell: Kernels, judged: Judgements) -> None:
    kernel = cell("// \udcff\n__global__ void k() {}\n")
    number = history.record(kernel, judged(prompt="\udcff", why="\ud800"))
    assert history.version(number).text == kernel.unit.text
    assert history.version(number).judged.prompt == "\\udcff"


def test_many_judgements_come_in_their_order(history: History, in_file: Kernels, judged: Judgements) -> None:
    kernel = in_file()
    for index in range(600):
        history.record(kernel, judged(prompt=str(index)))
    assert [one.judged.prompt for one in history.judgements()] == [str(index) for index in range(600)]


def test_forgetting_a_kernel_leaves_the_others(history: History, in_file: Kernels, judged: Judgements) -> None:
    kept = history.record(in_file(), judged())
    gone = history.record(in_file("__global__ void other() { int secret_word = 1; }\n", "other.cu"), judged())
    number = history.version(gone).kernel
    assert history.forget(kernel=number) == 1
    assert [known.name for known in history.kernels()] == ["scale"]
    assert history.version(kept).name == "scale"
    with pytest.raises(UsageError, match=f"no version {gone}"):
        history.version(gone)


def test_forgetting_by_age_keeps_what_is_younger(history: History, in_file: Kernels, judged: Judgements) -> None:
    history.record(in_file(), judged(prompt="old"))
    border = next(history.judgements()).at_us + 1
    while True:
        history.record(in_file(), judged(prompt="new"))
        if list(history.judgements())[-1].at_us >= border:
            break
    history.forget(before_us=border)
    assert {one.judged.prompt for one in history.judgements() if one.at_us >= border} == {"new"}
    assert all(one.at_us >= border for one in history.judgements())


def test_what_is_forgotten_is_in_no_byte_of_the_file(history: History, in_file: Kernels, judged: Judgements) -> None:
    history.record(in_file(), judged(prompt="a-word-nobody-else-uses"))
    history.forget()
    history.close()
    for path in history.path.parent.iterdir():
        assert b"a-word-nobody-else-uses" not in path.read_bytes()


def test_the_file_is_the_users_alone(history: History, in_file: Kernels, judged: Judgements) -> None:
    history.record(in_file(), judged())
    assert {stat.S_IMODE(path.stat().st_mode) for path in history.path.parent.iterdir()} == {0o600}


def test_a_folder_that_cannot_be_made_is_said(tmp_path, in_file: Kernels, judged: Judgements) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(HistoryUnavailable, match="cannot be used"):
        History(tmp_path / "file" / "history.db").record(in_file(), judged())


def test_a_newer_file_is_left_alone(history: History, in_file: Kernels, judged: Judgements) -> None:
    import sqlite3

    history.record(in_file(), judged())
    history.close()
    with sqlite3.connect(history.path) as connection:
        connection.execute("PRAGMA user_version = 99")
    before = history.path.read_bytes()
    with pytest.raises(HistoryUnavailable, match="newer version"):
        history.kernels()
    with pytest.raises(HistoryUnavailable, match="newer version"):
        history.record(in_file(), judged())
    assert history.path.read_bytes() == before
