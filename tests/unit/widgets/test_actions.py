"""Buttons below a result, and accepted versions as cells of the notebook."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("anywidget", reason="anywidget is not installed: pip install 'kernelmate[notebook]'")

from kernelmate_widgets.actions import RepairActions, ResultActions
from kernelmate_widgets.cell_search import repair
from kernelmate_widgets.cell_writing import TARGET, CellWriter, with_launch, without_option

LIVE = "--args x,y,rows,cols --grid rows --block 128 --ref reference"
RACY_LINE = "    part[threadIdx.x] = sum;\n    __syncthreads();\n"


class Place:
    """A place for results, instead of a display in a page."""

    def __init__(self) -> None:
        self.shown: list[dict[str, Any]] = []

    def update(self, bundle: dict[str, Any], *, raw: bool) -> None:
        assert raw
        self.shown.append(bundle)


class Front:
    """The extension's end of the comm: it keeps what it would write into cells."""

    def __init__(self) -> None:
        self.written: list[dict[str, Any]] = []

    def send(self, data: dict[str, Any]) -> None:
        self.written.append(data)


@pytest.fixture
def front(notebook) -> Front:
    cells = notebook.shell._kernelmate_magics.cells
    cells._comm = Front()
    cells._heard(listens=True)
    return cells._comm


@pytest.fixture
def actions(notebook, arrays, front, monkeypatch) -> ResultActions:
    arrays(notebook)
    monkeypatch.setattr("kernelmate_widgets.magics.running_cell", lambda _: "c7")
    notebook.run(f'%%kernelmate -q {LIVE} --prompt "make it nice" -v result\n' + notebook.ROW_SUM, fails=True)
    notebook.run(f"%%kernelmate -q {LIVE}\n" + notebook.ROW_SUM)
    notebook.run('%kernelmate optimize -q row_sum "reduce memory usage"')
    magics, handle = notebook.shell._kernelmate_magics, notebook.names["row_sum"]

    def accept(number: int) -> list[str]:
        handle.accept(number)
        return magics.write_cell("row_sum", handle, running=False)

    def undo() -> list[str]:
        handle.revert()
        return magics.write_cell("row_sum", handle, running=False)

    return ResultActions(magics, "row_sum", handle.optimization, handle.version, Place(), accept, undo)


def press(actions: Any, what: str) -> None:
    actions._message(actions, {"do": what}, [])


def words(actions: Any) -> list[str]:
    return [one["words"] for one in actions.state["buttons"]]


def test_accepting_writes_the_cell_and_running_that_cell_keeps_the_version(actions, notebook, front) -> None:
    handle = notebook.names["row_sum"]
    assert words(actions)[0] == "Accept 1"
    press(actions, "accept")
    assert "Accepted" in actions._output.shown[-1]["text/html"]
    (written,) = front.written
    assert (written["cell"], written["below"]) == ("c7", False)
    assert written["text"].startswith(f"%%kernelmate -q {LIVE}\n"), "the launch is the same"
    assert "__shfl" in written["text"]
    accepted = handle.version
    notebook.run(written["text"])
    assert handle.version.author == "user"
    assert handle.verdict.resources == accepted.verdict.resources
    assert handle.verdict.accepted

    # A question needs no search, and what was asked last has no result any more.
    notebook.run('%kernelmate optimize row_sum "why is it slow?"')
    assert handle.optimization is None


def test_undo_writes_the_text_before(actions, notebook, front) -> None:
    press(actions, "accept")
    assert words(actions)[0] == "Undo"
    press(actions, "undo")
    assert front.written[-1]["text"] == f"%%kernelmate -q {LIVE}\n" + notebook.ROW_SUM.rstrip()
    assert words(actions)[0] == "Accept 1"
    assert notebook.names["row_sum"].version.author == "user"


def test_buttons_follow_what_is_accepted_and_undone_elsewhere(actions, notebook, front) -> None:
    handle = notebook.names["row_sum"]
    handle.watch(lambda: actions.follow(handle.version))
    press(actions, "accept")
    assert "Accepted." in actions.state["said"]
    handle.revert()
    assert (actions.state["said"], words(actions)[0]) == ("", "Accept 1")
    assert "Accepted" not in actions._output.shown[-1]["text/html"]
    handle.accept(1)
    assert words(actions)[0] == "Undo"


def test_explaining_and_refusing_are_said_in_place(actions, notebook) -> None:
    press(actions, "explain")
    assert "what to do" in actions.state["html"]
    press(actions, "accept")
    notebook.names["row_sum"].revert()
    press(actions, "undo")
    assert "no earlier version" in actions.state["error"]


def test_the_document_for_a_gpu_carries_the_kernel_and_its_inputs(actions) -> None:
    press(actions, "confirm")
    document = json.loads(Path("row_sum.promising.json").read_text())
    assert "kernelmate confirm row_sum.promising.json" in actions.state["said"]
    assert document["schema"] == 1
    assert document["given"]["source"]


def test_a_wrong_kernel_is_fixed_bound_and_written(notebook, arrays, front, monkeypatch) -> None:
    arrays(notebook)
    monkeypatch.setattr("kernelmate_widgets.magics.running_cell", lambda _: "c1")
    racy = notebook.ROW_SUM.replace(RACY_LINE, RACY_LINE.partition("\n")[0] + "\n")
    assert racy != notebook.ROW_SUM
    notebook.run(f"%%kernelmate -q {LIVE}\n" + racy, fails=True)
    state = notebook.shell._kernelmate_magics.notebook
    assert "row_sum" not in notebook.names
    magics, failed, place = notebook.shell._kernelmate_magics, state.failed["row_sum"], Place()
    button = RepairActions(magics, "row_sum", failed, place, lambda: repair(magics, "row_sum", failed, quiet=True))
    assert words(button) == ["Fix"]
    press(button, "fix")
    assert words(button) == ["Accept the repair"]
    ran = notebook.run("%kernelmate fix")
    assert "Ready to accept" in ran.outputs[-1]["text/html"]
    notebook.run("%kernelmate accept row_sum")
    assert "__syncthreads();\n    for (int half" in front.written[-1]["text"]
    notebook.run("row_sum(x, y, rows, cols)")
    assert abs(notebook.names["y"] - notebook.names["x"].sum(axis=1)).max() < 1e-4
    notebook.run("%kernelmate fix nothing", fails=True)


def test_a_prompt_that_asks_for_a_repair_is_answered_at_once(notebook, arrays) -> None:
    arrays(notebook)
    broken = notebook.ROW_SUM.replace("float sum = 0.0f;", "float sum = 0.0f")
    ran = notebook.run(f'%%kernelmate {LIVE} --prompt "fix it"\n' + broken, fails=True)
    assert "Ready to accept" in "".join(one.get("text/html", "") for one in ran.outputs)


def test_a_race_for_want_of_two_barriers_names_lines_of_the_cell_and_is_repaired(notebook, arrays) -> None:
    arrays(notebook)
    bare = notebook.ROW_SUM.replace("    __syncthreads();\n", "")
    assert "__syncthreads" not in bare
    ran = notebook.run(f'%%kernelmate {LIVE} --prompt "fix the race"\n' + bare, fails=True)
    race = ran.error.verdict.findings[0]
    lines = f"%%kernelmate {LIVE}\n{bare}".split("\n")
    written = re.search(r"has written at line (\d+)", race.message)
    assert written is not None
    assert lines[int(written[1]) - 1].strip() == "part[threadIdx.x] = sum;"
    assert "Ready to accept" in "".join(one.get("text/html", "") for one in ran.outputs)


# -------------------------------------------------------------------------------------------------- cell text


@pytest.mark.parametrize(
    ("line", "left"),
    [
        ("--args x,y --prompt 'make it faster' --block 128", "--args x,y --block 128"),
        ('--prompt "say \\"fast\\"" k', "k"),
        ("k --prompt=faster -q", "k -q"),
        ("--prompter x", "--prompter x"),
    ],
)
def test_an_option_leaves_a_line_with_its_value(line: str, left: str) -> None:
    assert without_option(line, "prompt").strip() == left


def test_a_changed_launch_is_written_into_the_line(notebook, arrays) -> None:
    arrays(notebook)
    notebook.run(f"%%kernelmate -q {LIVE}\n" + notebook.ROW_SUM)
    before = notebook.names["row_sum"].contract
    after = replace(before, grid=("cdiv(rows, 4)",), block=("32", "4"), shared="block * 4")
    line = with_launch(f" {LIVE}", after, before)
    assert line == (' --args x,y,rows,cols --ref reference --grid "cdiv(rows, 4)" --block 32,4 --shared "block * 4"')
    assert with_launch(LIVE, before, before) == LIVE


def test_without_the_extension_the_text_comes_in_the_next_cell() -> None:
    offered: list[str] = []
    writer = CellWriter(SimpleNamespace(set_next_input=offered.append))
    assert "next cell" in writer.write("c1", "text", "cell", running=True)
    assert offered == ["text"]
    assert writer.write("c1", "text", "cell", running=False) == ""
    assert writer.write("c1", "text", "nowhere", running=True) == ""
    assert offered == ["text"]


def test_a_new_cell_below_is_asked_of_the_extension(notebook, front) -> None:
    writer = notebook.shell._kernelmate_magics.cells
    assert "below" in writer.write("c1", "text", "below", running=True)
    assert front.written == [{"cell": "c1", "text": "text", "below": True}]


def test_the_comm_has_the_name_that_the_extension_listens_to() -> None:
    import kernelmate_widgets

    script = Path(kernelmate_widgets.__file__).parents[1] / "labextension" / "static" / "remoteEntry.js"
    assert f'"{TARGET}"' in script.read_text(encoding="utf-8")


def test_where_no_candidate_is_worth_taking_one_is_shown_before_it_can_be_accepted(actions, notebook) -> None:
    handle = notebook.names["row_sum"]
    open_one = replace(handle.optimization, best=None)
    actions.renew(open_one, handle.version, lambda _: [], None)
    assert words(actions) == ["Show 1", "Explain"]
    press(actions, "accept")  # nothing is in view that it could mean
    assert actions._taken is None
    press(actions, "explain")
    assert "what to do" in actions.state["html"]
    press(actions, "another")
    assert words(actions)[0] == "Accept 1"
