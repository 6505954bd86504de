"""The panel's side in Python: what the page asks for, and what it is shown. The page itself is held in tests/browser."""

from __future__ import annotations

import threading
import time

import pytest

pytest.importorskip("anywidget", reason="anywidget is not installed: pip install 'kernelmate[notebook]'")

from kernelmate.session.authors import OutgoingText
from kernelmate_widgets.panel import Panel
from tests.chat_server import ChatServer

LIVE = "--args x,y,rows,cols --grid rows --block 128 --ref reference"


@pytest.fixture
def panel(notebook, arrays) -> Panel:
    arrays(notebook)
    notebook.run(f"%%kernelmate -q {LIVE}\n" + notebook.ROW_SUM)
    return Panel(notebook.shell._kernelmate_magics.notebook, "row_sum", notebook.names["row_sum"])


def do(panel: Panel, what: str, **more) -> None:
    panel._message(panel, {"do": what, **more}, [])


def ended(panel: Panel, seconds: float = 120) -> None:
    end = time.monotonic() + seconds
    while panel.state["busy"] and time.monotonic() < end:
        time.sleep(0.05)
    assert not panel.state["busy"]


def test_a_prompt_lists_candidates_shows_the_best_and_accepts_it(panel, notebook) -> None:
    assert [one["number"] for one in panel.versions] == [0]
    assert [chart["title"] for chart in panel.result] == ["Correctness", "Time", "Occupancy"]
    assert "Resources" in {chart["title"] for chart in panel.charts}
    began = time.monotonic()
    do(panel, "ask", prompt="reduce memory usage")
    assert panel.state["busy"], "the notebook is free while it searches"
    ended(panel)
    assert 0 < panel.state["elapsedS"] <= time.monotonic() - began + 1, (
        "a page that is loaded anew counts on from there"
    )
    best = next(one for one in panel.versions if one["best"])
    assert best["standing"] == "ready to accept"
    assert "512 B ->" in best["asked"]
    assert best["cost"] == ""
    assert panel.detail["number"] == best["number"]
    assert any(kind == "added" for kind, _ in panel.detail["diff"])
    handle = notebook.names["row_sum"]
    do(panel, "accept", key=best["key"])
    assert handle.version.author == best["author"]
    assert panel.state["inForce"] == best["key"]
    assert panel.state["canRevert"]
    do(panel, "revert")
    assert handle.version.author == "user"
    assert panel.state["inForce"] == panel.versions[0]["key"]


def test_every_built_in_author_can_be_chosen(panel) -> None:
    assert panel.fixed["authors"] == ["auto", "synthesis", "recipes", "local", "claude"]


def test_what_a_cell_does_shows_in_the_panel(panel, notebook) -> None:
    notebook.run('%kernelmate optimize row_sum "reduce memory usage" --max-candidates 1 -q')
    assert len(panel.versions) == 2
    assert panel.detail["number"] == 1, "the best is in view"
    notebook.run("%kernelmate accept row_sum -q")
    assert panel.state["inForce"] == panel.versions[1]["key"]
    notebook.run(f"%%kernelmate -q {LIVE}\n" + notebook.ROW_SUM.replace("0.0f", "0.f"))
    assert len(panel.versions) == 1
    assert "0.f" in panel.detail["source"]


def test_cancelling_ends_the_search_at_once_and_keeps_what_was_found(panel, notebook) -> None:
    do(panel, "ask", prompt="make it faster")
    end = time.monotonic() + 120
    while len(panel.versions) < 2 and time.monotonic() < end:
        time.sleep(0.02)
    began = time.monotonic()
    do(panel, "cancel")
    ended(panel)
    assert time.monotonic() - began < 5
    assert any("stopped: " in note for note in panel.state["notes"])
    assert panel.state["error"] == ""
    assert len(panel.versions) >= 2
    assert all(one["standing"] != "not judged" for one in panel.versions[1:])
    notebook.run("row_sum(x, y, rows, cols)")
    do(panel, "ask", prompt="reduce memory usage")
    ended(panel)
    assert any(one["best"] for one in panel.versions), "the next search has a worker of its own again"


def test_a_rejected_candidate_is_put_aside_and_leaves_the_charts(panel) -> None:
    do(panel, "ask", prompt="reduce memory usage")
    ended(panel)
    charts = str(panel.charts)
    do(panel, "reject", key=panel.versions[1]["key"])
    assert panel.versions[1]["rejected"]
    assert str(panel.charts) != charts
    do(panel, "reject", key=panel.versions[1]["key"])
    assert str(panel.charts) == charts


def test_what_cannot_be_done_is_said_and_changes_nothing(panel, notebook) -> None:
    before = notebook.names["row_sum"].version
    do(panel, "accept", key=4)
    assert "no longer in the list" in panel.state["error"]
    do(panel, "revert")
    assert "no earlier version to return to" in panel.state["error"]
    do(panel, "select", key=99, asked="here-1")
    assert panel.detail["asked"] == "here-1", "the page is answered, and waits no more"
    do(panel, "something else")
    assert notebook.names["row_sum"].version is before
    assert panel.detail["number"] == 0


def test_nothing_is_sent_before_the_user_agrees_to_the_text_shown(panel) -> None:
    answers = []
    outgoing = OutgoingText("the whole text", "api.example.com", "model", 0.25, "workspace")
    thread = threading.Thread(target=lambda: answers.append(panel.ask(outgoing)))
    thread.start()
    end = time.monotonic() + 10
    while panel.state["question"] is None and time.monotonic() < end:
        time.sleep(0.01)
    assert panel.state["question"] == {
        "text": "the whole text",
        "host": "api.example.com",
        "model": "model",
        "usd": "0.25",
    }
    assert answers == []
    do(panel, "answer", agreed=False)
    thread.join(10)
    assert answers == [False]
    assert panel.state["question"] is None


def test_forty_candidates_are_small_enough_to_be_sent_again_and_again(panel) -> None:
    do(panel, "ask", prompt="reduce memory usage")
    ended(panel)
    found = panel._listing.found[0]
    while len(panel.versions) < 41:
        panel.on_judged(found)
    assert len(str(panel.versions)) < 20_000


def test_what_a_model_writes_is_in_the_panel_while_it_writes(panel, notebook) -> None:
    with ChatServer('{"analysis": "<b>wide</b> loads"', pause_s=0.02) as model:
        notebook.run(f"%kernelmate config -q model_url={model.url} samples=1")
        seen: list[str] = []
        panel.observe(lambda change: seen.append(change["new"]["text"]), "state")
        do(panel, "ask", prompt="make it faster", author="local")
        ended(panel)
    lengths = sorted({len(text) for text in seen})
    assert len(lengths) > 2, "piece by piece"
    assert any(text.startswith('{"analysis": "<b>wide') for text in seen)
    assert any("local" in note for note in panel.state["notes"]), "an answer that cannot be read is told"


def test_what_is_asked_of_a_version_of_an_old_list_changes_no_other(panel, notebook) -> None:
    do(panel, "ask", prompt="reduce memory usage")
    ended(panel)
    old = [one["key"] for one in panel.versions]
    notebook.run(f"%%kernelmate -q {LIVE}\n" + notebook.ROW_SUM.replace("0.0f", "0.f"))
    do(panel, "ask", prompt="reduce memory usage")
    ended(panel)
    assert not set(old) & {one["key"] for one in panel.versions}
    before, seen = notebook.names["row_sum"].version, panel.detail["key"]
    for key in old:
        do(panel, "select", key=key)
        do(panel, "reject", key=key)
        do(panel, "accept", key=key)
    assert panel.detail["key"] == seen
    assert not any(one["rejected"] for one in panel.versions)
    assert notebook.names["row_sum"].version is before


def test_a_search_that_fails_keeps_what_it_found_and_accepts_no_other(panel, notebook, monkeypatch) -> None:
    do(panel, "ask", prompt="reduce memory usage")
    ended(panel)
    session = type(notebook.shell._kernelmate_magics.notebook.session({}))
    optimize = session.optimize

    def fails(*given, **more):
        optimize(*given, **more)
        raise OSError("the disk is full")

    monkeypatch.setattr(session, "optimize", fails)
    do(panel, "ask", prompt="make it faster")
    ended(panel)
    assert "the disk is full" in panel.state["error"]
    assert len(panel.versions) > 1
    shown = panel.versions[1]
    do(panel, "accept", key=shown["key"])
    assert notebook.names["row_sum"].version.author in {shown["author"], "user"}
    assert panel._listing.shows(notebook.names["row_sum"].candidates), "what is listed is what would be accepted"


def test_a_prompt_is_read_while_it_is_typed_and_its_parts_can_be_left_out(panel) -> None:
    do(panel, "read", prompt="faster, at most 40 registers, no atomics")
    assert [one["words"] for one in panel.state["wishes"]] == ["at most 40 registers", "no atomics"]
    assert panel.state["wishes"][1]["without"] == "make it faster, at most 40 registers"
    assert panel.state["reading"].startswith("Less time per launch. Must hold: at most 40 registers")
    assert not panel.state["busy"]
    do(panel, "read", prompt="")
    assert (panel.state["wishes"], panel.state["reading"]) == ([], "")


def test_a_search_that_led_to_nothing_says_so(panel) -> None:
    do(panel, "ask", prompt="less shared memory, no shared memory, exactly 32 threads per block", author="recipes")
    ended(panel)
    assert panel.state["notes"][1] == "No candidate applies to this kernel."
    do(panel, "ask", prompt="make it faster", author="recipes")  # of launches this short nothing is certain
    ended(panel)
    assert panel.state["notes"][1].startswith("No candidate is worth taking (")


def test_the_reading_of_the_result_in_view_is_said_once(panel) -> None:
    do(panel, "ask", prompt="reduce memory usage")
    ended(panel)
    do(panel, "read", prompt="reduce memory usage")
    reading = panel._shown.objective.reading
    assert [*panel.state["notes"], panel.state["reading"]].count(reading) == 1
    do(panel, "read", prompt="fewer registers")
    assert panel.state["reading"]


def test_what_is_no_search_starts_none(panel, notebook) -> None:
    do(panel, "ask", prompt="why is it slow?")
    assert "what to do" in panel.state["html"]
    do(panel, "ask", prompt="what's the occupancy?")
    assert panel.state["html"].index("Its occupancy is") < panel.state["html"].index("What limits it")
    do(panel, "ask", prompt="make it nice")
    assert "Nothing in the prompt was understood" in panel.state["error"]
    assert "Choose one of the prompts above" in panel.state["error"]
    do(panel, "ask", prompt="undo")
    assert "no earlier version" in panel.state["error"]
    assert not panel.state["busy"]
    assert notebook.names["row_sum"].optimization is None


def test_in_use_is_decided_by_text_and_launch_together(panel, notebook) -> None:
    from dataclasses import replace

    from kernelmate_widgets.handle import is_version

    notebook.run('%kernelmate optimize row_sum "reduce memory usage" --max-candidates 1 -q')
    candidate = panel._listing.found[0].candidate
    wider = replace(candidate, contract=replace(candidate.contract, block=("256",)))
    do(panel, "accept", key=panel.versions[1]["key"])
    version = notebook.names["row_sum"].version
    assert is_version(candidate, version)
    assert not is_version(wider, version), "the same text with another launch is another version"
    assert panel.state["inForce"] == panel.versions[1]["key"]
    assert "Accepted" in panel.detail["headline"]


def test_candidates_stand_beside_the_version_that_they_were_compared_with_also_after_undo(panel, notebook) -> None:
    search = "%kernelmate optimize row_sum {} --author recipes --max-candidates 1 -q"
    notebook.run(search.format('"reduce memory usage"'))
    notebook.run("%kernelmate accept row_sum 1 -q")
    handle = notebook.names["row_sum"]
    accepted = handle.version
    notebook.run(search.format('"make it faster"'))
    notebook.run("%kernelmate undo row_sum -q")
    later = Panel(notebook.shell._kernelmate_magics.notebook, "row_sum", handle)
    for shown in (panel, later):
        assert shown.versions[0]["author"] == accepted.author
        assert shown.state["inForce"] is None, "the cell's own version is not in the list"
        assert shown.state["source"] == "user"


def test_a_note_goes_once_another_version_is_in_force(panel, notebook) -> None:
    notebook.run('%kernelmate optimize row_sum "reduce memory usage" --max-candidates 1 -q')
    do(panel, "accept", key=panel.versions[1]["key"])
    assert panel.state["notes"][0] == "Accepted."
    notebook.run("%kernelmate revert row_sum -q")
    assert panel.state["notes"] == []


def test_a_kernel_has_one_panel_in_all_places(notebook, arrays) -> None:
    arrays(notebook)
    notebook.run(f"%%kernelmate -q {LIVE}\n" + notebook.ROW_SUM)
    notebook.run("%kernelmate panel row_sum")
    panels = notebook.shell._kernelmate_magics.notebook.panels
    first = panels["row_sum"]
    notebook.run("%kernelmate panel row_sum")
    assert panels["row_sum"] is first
    assert len(first._kept) == 2
