"""`%%kernelmate` and `%kernelmate` in a real IPython shell, with the real emulator."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from IPython.core.error import UsageError

from kernelmate.report.excerpt import SourceLines
from kernelmate_widgets.commands import COMMANDS, USAGE
from kernelmate_widgets.error_display import InputRefused, KernelFailed
from kernelmate_widgets.handle import KernelHandle

LIVE = "--args x,y,rows,cols --grid rows --block 128 --ref reference"


def test_a_cell_with_a_contract_is_judged_and_bound_under_its_kernels_name(notebook) -> None:
    ran = notebook.run("%%kernelmate\n" + notebook.SCALE)
    scale = notebook.names["scale"]
    assert isinstance(scale, KernelHandle)
    assert scale.verdict.correct is True
    assert {dict(case.size)["n"] for case in scale.verdict.cases} >= {1024, 7}
    assert "clean" in ran.text
    assert "registers" in ran.text


def test_live_objects_are_judged_and_give_the_contract(notebook, arrays) -> None:
    arrays(notebook)
    notebook.run(f"%%kernelmate total {LIVE}\n" + notebook.ROW_SUM)
    total = notebook.names["total"]
    assert total.verdict.correct is True
    first, *others = total.verdict.cases
    assert dict(first.size) == {"rows": 37, "cols": 96}
    assert any(case.origin == "own" for case in others), "sizes by name let other sizes be tried"
    notebook.run("total(x, y, rows, cols)")
    np.testing.assert_allclose(notebook.names["y"], notebook.names["x"].sum(axis=1), rtol=1e-5, atol=1e-5)


HISTOGRAM = """\
__global__ void histogram(const int* codes, int* bins, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) atomicAdd(&bins[codes[i]], 1);
}
"""


@pytest.fixture
def counted(notebook):
    """A notebook with an integer array and its histogram as reference."""
    notebook.run("import numpy as np\ncodes = np.random.default_rng(7).integers(0, 16, 300).astype(np.int32)")
    notebook.run("bins, n = np.zeros(16, np.int32), codes.size")
    notebook.run("def counts(codes):\n    return np.bincount(codes, minlength=16).astype(np.int32)")
    return notebook


def test_a_launch_over_scalars_that_are_no_sizes_has_their_values(counted) -> None:
    counted.run('%%kernelmate --args codes,bins,n --grid "cdiv(n, block)" --block 64 --ref counts\n' + HISTOGRAM)
    contract = counted.names["histogram"].contract
    assert contract.sizes == ({},), "integer arrays have no sizes that could be varied"
    assert contract.grid == ("cdiv(300, block)",)


def test_a_launch_names_the_variable_that_is_not_defined(counted) -> None:
    cell = '%%kernelmate --args codes,bins,n --grid "cdiv(m, block)" --block 64\n' + HISTOGRAM
    assert "--grid: m has no value" in str(counted.run(cell, fails=True).error)


def test_what_does_not_depend_on_the_order_of_integers_is_still_judged(counted) -> None:
    line = "%%kernelmate --args codes,bins,n --grid 5 --block 64 --ref counts\n"
    counted.run(line + HISTOGRAM)
    assert counted.names["histogram"].verdict.correct is True
    ran = counted.run(line + HISTOGRAM.replace("codes[i]], 1", "codes[i]], codes[i] == 3 ? 2 : 1"), fails=True)
    assert isinstance(ran.error, KernelFailed)


def test_a_reference_that_tells_nothing_is_not_called_a_missing_one(counted) -> None:
    counted.run("def none(codes):\n    return np.zeros(16, np.int32)")
    ran = counted.run(
        "%%kernelmate --args codes,bins,n --grid 5 --block 64 --ref none\n" + HISTOGRAM.replace(", 1);", ", 0);")
    )
    assert "its cases cannot tell right from wrong" in ran.text
    assert "name other sizes or inputs" in ran.text
    assert "reference" not in ran.text


def test_what_the_live_arrays_hold_is_what_the_kernel_is_judged_on(notebook) -> None:
    notebook.run(
        "import numpy as np\nx = np.tile([3, 1, 4, 1], 16).astype(np.int32); y = np.zeros(64, np.int32); n = 64"
    )
    notebook.run("def ref(x):\n    return np.where(x == 3, 7, x)")
    cell = "__global__ void k(const int* x, int* y, int n) { int i = threadIdx.x; if (i < n) y[i] = x[i] == 3 ? 7 : x[i]; }"
    notebook.run("%%kernelmate --args x,y,n --grid 1 --block 64 --ref ref\n" + cell)
    assert notebook.names["k"].verdict.correct is True
    # Right for everything but the one value that only the user's array holds.
    notebook.run("x[5] = 9")
    wrong = cell.replace("x[i] == 3", "x[i] == 9 || x[i] == 3")
    ran = notebook.run("%%kernelmate --args x,y,n --grid 1 --block 64 --ref ref\n" + wrong, fails=True)
    assert isinstance(ran.error, KernelFailed)
    assert ran.error.verdict.cases[0].first_wrong.index == (5,)


def test_judging_leaves_the_users_arrays_as_they_were(notebook, arrays) -> None:
    arrays(notebook)
    before = notebook.names["x"].copy()
    notebook.run(f"%%kernelmate {LIVE}\n" + notebook.ROW_SUM)
    spoils = notebook.ROW_SUM.replace(
        "float sum = 0.0f;", "float sum = 0.0f; ((float*)x)[0] = 5; y[threadIdx.x % 2] = 3;"
    )
    notebook.run(f"%%kernelmate {LIVE}\n" + spoils, fails=True)
    assert (notebook.names["x"] == before).all()
    assert (notebook.names["y"] == 0).all()


def test_a_failing_kernel_raises_with_its_line_and_leaves_the_name_as_it_was(notebook, arrays) -> None:
    arrays(notebook)
    notebook.run(f"%%kernelmate {LIVE}\n" + notebook.ROW_SUM)
    before, version = notebook.names["row_sum"], notebook.names["row_sum"].version
    racy = notebook.ROW_SUM.replace("    __syncthreads();\n    for (int half", "    for (int half")
    ran = notebook.run(f"%%kernelmate {LIVE}\n" + racy, fails=True)
    assert isinstance(ran.error, KernelFailed)
    assert next(finding.code for finding in ran.error.verdict.findings if finding.severity == "error") == "shared-race"
    shown = "\n".join(ran.error._render_traceback_())
    assert "shared-race" in shown
    below = KernelFailed(ran.error.verdict, SourceLines(), "row_sum stays what it was.", shown=True)
    first, then, remedy = below._render_traceback_()
    assert first.startswith("KernelFailed: shared-race at line")
    assert "not good" not in first, "the output above says it"
    assert then == "row_sum stays what it was."
    assert remedy.startswith("%kernelmate fix")
    assert "Traceback" not in shown
    assert "row_sum stays what it was" in shown
    # The line that the cell's editor shows: the magic line is the first.
    line = ran.error.verdict.findings[0].line
    assert "part[" in ("%%kernelmate\n" + racy).split("\n")[line - 1]
    assert notebook.names["row_sum"] is before
    assert before.version is version


def test_a_kernel_that_does_not_compile_says_the_editors_line(notebook) -> None:
    ran = notebook.run("%%kernelmate broken\n" + notebook.SCALE.replace("a * x[i]", "a * z[i]"), fails=True)
    assert isinstance(ran.error, KernelFailed)
    finding = ran.error.verdict.findings[0]
    assert (finding.code, finding.line) == ("compile-error", 15)
    assert "broken" not in notebook.names


def test_running_a_cell_again_changes_the_kernel_under_existing_references(notebook) -> None:
    notebook.run("%%kernelmate\n" + notebook.SCALE)
    held = notebook.names["scale"]
    notebook.run("%%kernelmate\n" + notebook.SCALE.replace("a * x[i];", "x[i] * a;"))
    assert notebook.names["scale"] is held
    assert len(held.versions) == 2
    assert "x[i] * a" in held.source


def test_a_prompt_finds_candidates_and_one_is_accepted_reverted_and_compared(notebook, arrays) -> None:
    arrays(notebook)
    notebook.run(f"%%kernelmate {LIVE}\n" + notebook.ROW_SUM)
    total, held = notebook.names["row_sum"], notebook.names["row_sum"]
    ran = notebook.run('%kernelmate optimize row_sum "reduce memory usage" --max-candidates 3 -v found')
    assert "reduce memory usage" in ran.text
    found = notebook.names["found"]
    assert found.optimization.objective.metric == "shared_bytes"
    assert total.candidates[0].verdict.objective.after < total.candidates[0].verdict.objective.before
    before = total.source
    said = notebook.run("%kernelmate accept row_sum 1")
    assert "+" in said.text
    assert held.source != before
    assert held.version.author.startswith("recipe:")
    notebook.run("y[:] = 0\nrow_sum(x, y, rows, cols)")
    np.testing.assert_allclose(notebook.names["y"], notebook.names["x"].sum(axis=1), rtol=1e-5, atol=1e-5)
    compared = notebook.run("%kernelmate compare row_sum:0 row_sum:1")
    assert "shared memory per block" in compared.text
    notebook.run("%kernelmate revert row_sum")
    assert held.source == before
    again = notebook.run("%kernelmate revert row_sum", fails=True)
    assert isinstance(again.error, UsageError)


def test_kernels_are_compared_with_the_launch_of_each(notebook, arrays) -> None:
    arrays(notebook)
    notebook.run(f"%%kernelmate -q {LIVE}\n" + notebook.ROW_SUM)
    slow = """\
__global__ void slow_sum(const float* x, float* y, int rows, int cols) {
    int row = blockIdx.x * blockDim.x + threadIdx.x;
    float sum = 0.0f;
    for (int c = 0; row < rows && c < cols; ++c) sum += x[row * cols + c];
    if (row < rows) y[row] = sum;
}
"""
    notebook.run(
        f"%%kernelmate -q {LIVE.replace('--grid rows --block 128', '--grid cdiv(rows,block) --block 32')}\n{slow}"
    )
    for line in ("slow_sum row_sum", "row_sum slow_sum"):
        verdict = notebook.run(f"%kernelmate compare {line} -o").result.result.verdict
        assert verdict.correct is True, line


def test_explain_history_config_and_doctor_say_what_they_are_for(notebook) -> None:
    notebook.run("%%kernelmate -q\n" + notebook.SCALE)
    assert "what to do" in notebook.run("%kernelmate explain scale").text
    assert "user" in notebook.run("%kernelmate history scale").text
    assert "scale" in notebook.run("%kernelmate history").text
    assert "compiler" in notebook.run("%kernelmate doctor").text
    notebook.run("%kernelmate config target=L4")
    notebook.run("%%kernelmate -q\n" + notebook.SCALE)
    assert notebook.names["scale"].verdict.target == "L4"
    assert isinstance(notebook.run("%kernelmate config target=nothing", fails=True).error, UsageError)


def test_where_no_candidate_was_found_none_is_offered(notebook) -> None:
    notebook.run("%%kernelmate -q\n" + notebook.SCALE)
    no_search = notebook.run("%kernelmate compare scale:0 scale:1", fails=True)
    assert "There are no candidates yet." in str(no_search.error)
    notebook.run('%kernelmate optimize scale "less shared memory" --author recipes -q')
    assert notebook.names["scale"].candidates == ()
    for line in ("accept scale", "accept scale 1", "compare scale:0 scale:1"):
        said = str(notebook.run(f"%kernelmate {line}", fails=True).error)
        assert "found no candidate: ask in other words." in said
        assert "1 to 0" not in said


def test_a_prompt_without_a_command_is_answered_by_the_command(notebook) -> None:
    notebook.run("%%kernelmate -q\n" + notebook.SCALE)
    said = str(notebook.run("%kernelmate scale use fewer registers", fails=True).error)
    assert '%kernelmate optimize scale "use fewer registers"' in said


def test_output_can_be_silenced_returned_and_kept(notebook) -> None:
    quiet = notebook.run("%%kernelmate -q\n" + notebook.SCALE)
    assert quiet.text.strip() == ""
    kept = notebook.run("%%kernelmate -q -o -v kept\n" + notebook.SCALE)
    assert kept.result.result is notebook.names["kept"]
    assert notebook.names["kept"].verdict.correct is True
    assert "clean" in repr(notebook.names["kept"])


def test_nothing_of_the_kernels_text_or_the_line_is_expanded(notebook) -> None:
    notebook.names["n"] = "EXPANDED"
    text = notebook.SCALE.replace("if (i < n)", '{ const char* s = "{n} $n {{n}} %d"; (void)s; } if (i < n)')
    notebook.run("%%kernelmate -q\n" + text)
    assert "{n} $n {{n}} %d" in notebook.names["scale"].source
    ran = notebook.run('%kernelmate optimize scale "faster {n} $n" --max-candidates 1')
    assert '"faster {n} $n"' in ran.text


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("%%kernelmate --nonsense", "nonsense"),
        ("%%kernelmate 3x", "not a valid Python name"),
        ("%%kernelmate --args x,y", "takes 4 arguments"),
        ("%%kernelmate --args x,y,missing,n", "missing"),
        ("%%kernelmate --args y,x,2.0,n --block what(", "cannot be read"),
        ("%%kernelmate --args x,y,2.0,n --grid 1,2,3,4", "4 sides"),
        ("%%kernelmate --ref n", "not a function"),
        ("%%kernelmate --ref wrong", "takes other"),
        ("%%kernelmate --target nothing", "nothing"),
        ("%%kernelmate --backend abacus", "abacus"),
    ],
)
def test_bad_arguments_are_usage_errors_with_what_to_do(notebook, line, said) -> None:
    notebook.run(
        "import numpy as np\nx = np.ones(64, np.float32); y = np.zeros_like(x); n = 64\ndef wrong(other): pass"
    )
    ran = notebook.run(line + "\n" + notebook.SCALE, fails=True)
    assert isinstance(ran.error, UsageError)
    assert said in str(ran.error)
    assert "scale" not in notebook.names


def test_libraries_to_compare_times_with_need_a_gpu_and_their_names_are_known(notebook) -> None:
    ran = notebook.run(
        "%%kernelmate --backend emulator --against torch --against compile\n" + notebook.SCALE, fails=True
    )
    assert "--against needs a GPU" in str(ran.error)
    assert isinstance(notebook.run("%%kernelmate --against tvm\n" + notebook.SCALE, fails=True).error, UsageError)


@pytest.mark.parametrize(
    "line", ["%kernelmate frobnicate", "%kernelmate optimize", "%kernelmate accept nothing", "%kernelmate compare a"]
)
def test_bad_commands_are_usage_errors(notebook, line) -> None:
    assert isinstance(notebook.run(line, fails=True).error, UsageError)


def test_a_wrong_contract_ends_the_cell_without_a_traceback(notebook) -> None:
    ran = notebook.run("%%kernelmate\n" + notebook.SCALE.replace("block = 256", "block = 4096"), fails=True)
    assert isinstance(ran.error, InputRefused)
    assert "4096" in str(ran.error)
    assert "Traceback" not in "\n".join(ran.error._render_traceback_())


def test_a_reference_that_raises_is_told_as_the_users_own(notebook, arrays) -> None:
    arrays(notebook)
    notebook.run("def reference(x):\n    raise KeyError('lost')")
    ran = notebook.run(f"%%kernelmate {LIVE}\n" + notebook.ROW_SUM, fails=True)
    assert isinstance(ran.error, InputRefused)
    assert "lost" in str(ran.error)
    assert "/tmp" not in str(ran.error)


def test_what_is_no_kernel_is_not_overwritten_unasked(notebook) -> None:
    notebook.run("scale = 3")
    ran = notebook.run("%%kernelmate\n" + notebook.SCALE, fails=True)
    assert isinstance(ran.error, UsageError)
    assert "--replace" in str(ran.error)
    assert notebook.names["scale"] == 3
    notebook.run("%%kernelmate --replace -q\n" + notebook.SCALE)
    assert isinstance(notebook.names["scale"], KernelHandle)


def test_loading_twice_is_harmless(notebook) -> None:
    notebook.run("%%kernelmate -q\n" + notebook.SCALE)
    before = notebook.names["scale"]
    notebook.run("%load_ext kernelmate")
    notebook.run("%reload_ext kernelmate")
    notebook.run("%%kernelmate -q\n" + notebook.SCALE)
    assert notebook.names["scale"] is before


def test_help_names_every_option(notebook) -> None:
    from kernelmate_widgets.magics import KernelmateMagics

    help_text = KernelmateMagics.judge.__doc__
    assert all(option in help_text for option in ("--args", "--grid", "--ref", "--quiet", "%%kernelmate"))
    assert "--author" in KernelmateMagics.command.__doc__


def test_completion_knows_commands_options_kernels_and_live_names(notebook, arrays) -> None:
    arrays(notebook)
    notebook.run("%%kernelmate -q\n" + notebook.SCALE)
    assert "optimize" in notebook.completions("%kernelmate op")
    assert "scale" in notebook.completions("%kernelmate optimize sc")
    assert "--shared" in notebook.completions("%%kernelmate --sh")
    assert "reference" in notebook.completions("%%kernelmate --ref ref")
    assert {"x", "y", "rows"} <= set(notebook.completions("%%kernelmate --args "))
    assert "target=" in notebook.completions("%kernelmate config ta")


def test_a_cell_of_several_kernels_needs_a_name_unless_one_has_a_contract(notebook) -> None:
    other = "__global__ void other(float* y) { y[0] = 1; }\n"
    notebook.run("%%kernelmate -q\n" + other + notebook.SCALE)
    assert "scale" in notebook.names
    ran = notebook.run("%%kernelmate\n" + other + notebook.ROW_SUM, fails=True)
    assert "other, row_sum" in str(ran.error)


def test_loading_the_library_for_the_command_line_loads_nothing_of_the_notebook() -> None:
    code = "import sys, kernelmate; assert not {'IPython', 'kernelmate_widgets', 'numpy'} & set(sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], stderr=subprocess.PIPE, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(("answer", "sent"), [("y", True), ("", False), ("no", False), (EOFError, False)])
def test_what_would_leave_the_machine_is_shown_whole_and_asked_for(monkeypatch, answer, sent) -> None:
    from IPython.utils.capture import capture_output

    from kernelmate.session.authors import OutgoingText
    from kernelmate_widgets.cell_search import ask_consent

    asked = []

    def reply(question: str) -> str:
        asked.append(question)
        if answer is EOFError:
            raise EOFError
        return answer

    monkeypatch.setattr("builtins.input", reply)
    with capture_output() as shown:
        assert ask_consent(OutgoingText("all of the text", "api.example.com", "a-model", 0.5, "here")) is sent
    assert "all of the text" in shown.stdout + "".join(one.data["text/plain"] for one in shown.outputs)
    assert "api.example.com" in asked[0]
    assert "0.50 USD" in asked[0]


def test_copies_of_arrays_are_kept_once_for_each_kernel_and_gone_at_the_end(notebook, arrays) -> None:
    from kernelmate_widgets import unload_ipython_extension

    arrays(notebook)
    state = notebook.shell._kernelmate_magics.notebook
    for text in (notebook.ROW_SUM, notebook.ROW_SUM.replace("0.0f", "0.f")):
        notebook.run(f"%%kernelmate -q {LIVE}\n" + text)
    for wrong in ("part[1];", "part[2];"):
        notebook.run(f"%%kernelmate -q {LIVE}\n" + notebook.ROW_SUM.replace("part[0];", wrong), fails=True)
    folder = Path(state._folder.name)
    assert len(list(folder.iterdir())) == 2, "those of the bound kernel, and of the wrong one for its repair"
    notebook.run('%kernelmate optimize row_sum "reduce memory usage" --max-candidates 1 -q')
    assert notebook.names["row_sum"].candidates
    unload_ipython_extension(notebook.shell)
    assert not folder.exists()


def test_options_may_stand_before_names_and_after_them(notebook) -> None:
    notebook.run("%%kernelmate -q -v kept doubled\n" + notebook.SCALE)
    assert isinstance(notebook.names["doubled"], KernelHandle)
    notebook.run("%kernelmate config -q target=L4 seed=7")
    notebook.run("%%kernelmate doubled -q\n" + notebook.SCALE)
    assert (notebook.names["doubled"].verdict.target, notebook.names["doubled"].verdict.seed) == ("L4", 7)


def test_progress_is_shown_while_nothing_is_told_and_without_a_models_raw_text(monkeypatch, notebook) -> None:
    from IPython.utils.capture import capture_output

    from kernelmate_widgets import progress

    monkeypatch.setattr(progress, "AFTER_S", 0)
    monkeypatch.setattr(progress, "EVERY_S", 0.01)
    with capture_output() as captured, progress.CellProgress(quiet=False, live=True) as shown:
        shown.step("the local model, attempt 1")
        shown.text("@do-shuffle:" * 100)
        while len(captured.outputs) < 4:  # the elapsed time goes on by itself
            time.sleep(0.01)
        shown.result({"text/plain": "the result"})
    *_, last, result = [one.data for one in captured.outputs]
    assert last["text/plain"] == "the local model, attempt 1 | the model writes, 1,200 characters so far | 0 s ..."
    assert "@do-shuffle" not in str(captured.outputs)
    assert "stop button" in last["text/html"]
    assert result == {"text/plain": "the result"}


def test_progress_goes_with_an_exception_and_its_thread_ends(notebook) -> None:
    from IPython.utils.capture import capture_output

    from kernelmate_widgets.progress import CellProgress

    with capture_output() as captured, pytest.raises(ValueError, match="no"), CellProgress(quiet=False, live=True):
        raise ValueError("no")
    assert captured.outputs[-1].data["text/plain"] == ""
    assert not any(one.name == "kernelmate progress" and one.is_alive() for one in threading.enumerate() if time.sleep(0.1) is None)  # fmt: skip


def test_an_interrupted_search_keeps_what_was_judged(monkeypatch, notebook, arrays) -> None:
    from kernelmate_widgets.progress import CellProgress

    arrays(notebook)
    notebook.run("%%kernelmate -q --args x,y,rows,cols --grid rows --block 128 --ref reference\n" + notebook.ROW_SUM)
    keep = CellProgress.judged

    def stop_after_one(self, found) -> None:
        keep(self, found)
        if self.found:
            raise KeyboardInterrupt

    monkeypatch.setattr(CellProgress, "judged", stop_after_one)
    ran = notebook.run('%kernelmate optimize row_sum "reduce memory usage"')
    handle = notebook.names["row_sum"]
    assert len(handle.candidates) == 1
    assert "stopped: 1 judged, best is #1" in ran.text
    notebook.run("%kernelmate accept row_sum -q")
    assert handle.version.author != "user"


def test_searches_of_one_notebook_share_one_budget_whose_limit_can_be_raised(notebook) -> None:
    state = notebook.shell._kernelmate_magics.notebook
    spending = state.spending(state.settings())
    assert spending.limit_usd == 1.0
    spending.spent_usd = 0.75
    notebook.run("%kernelmate config -q claude_budget_usd=2")
    assert state.spending(state.settings()) is spending
    assert (spending.limit_usd, spending.spent_usd) == (2.0, 0.75)


def test_the_verdict_is_shown_before_its_charts_are_drawn_and_they_take_its_place(monkeypatch, notebook) -> None:
    monkeypatch.setattr(notebook.shell, "kernel", object(), raising=False)  # a front end that can replace outputs
    shown = notebook.run("%%kernelmate\n" + notebook.SCALE).outputs
    first, last = shown[-2:]
    assert "image/png" not in first
    assert "clean" in first["text/html"]
    assert "image/png" in last
    assert first["text/plain"] == last["text/plain"]


@pytest.mark.parametrize("command", list(COMMANDS))
def test_every_command_has_help(notebook, command: str) -> None:
    shown = notebook.run(f"%kernelmate {command} --help").text
    assert f"%kernelmate {command}" in shown
    assert USAGE[command][1] in shown
    assert ("--max-candidates" in shown) == (command == "optimize")


def test_the_line_alone_lists_the_commands(notebook) -> None:
    shown = notebook.run("%kernelmate").text
    assert '%kernelmate optimize NAME "PROMPT"' in shown
    assert "%kernelmate doctor" in shown


def test_kernels_to_fix_are_completed(notebook, arrays) -> None:
    arrays(notebook)
    wrong = notebook.ROW_SUM.replace("part[0];", "part[1];").replace("row_sum", "other_sum")
    notebook.run(f"%%kernelmate -q {LIVE}\n" + wrong, fails=True)
    assert notebook.completions("%kernelmate fix oth") == ["other_sum"]


def test_a_parameter_list_that_is_not_closed_is_named_by_its_line(notebook) -> None:
    ran = notebook.run("%%kernelmate open\n\n__global__ void open(float* x { x[0] = 1; }", fails=True)
    assert "is not closed" in str(ran.error)
    assert ":3:1" in str(ran.error)
