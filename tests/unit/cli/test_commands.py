"""check, bench, compare and optimize: what they ask of the session, print, write, and exit with."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import Result

from kernelmate.records import Alternative, Diagnostic, Finding, FindingCode, LineCounters

Run = Callable[..., Result]
Documents = Callable[[str], Any]


def test_bench_prints_the_verdict_and_exits_with_0(script: Any, run: Run, documents: Documents) -> None:
    assert "right at 1 size" in run("bench", "twice.cu").stdout
    document = documents(run("bench", "twice.cu", "--json").stdout)
    assert document["verdicts"][0]["kernel"] == "twice"


def test_a_kernel_that_is_not_good_exits_with_1(script: Any, run: Run, documents: Documents) -> None:
    finding = Finding(FindingCode.WRONG_VALUES, "error", "wrong everywhere", "twice.cu", 16, 16)
    script.verdict = replace(script.verdict, correct=False, accepted=False, findings=(finding,))
    done = run("bench", "twice.cu")
    assert done.exit_code == 1
    assert "error wrong-values" in done.stdout
    assert "   16 |     if (i < n) y[i] = " in done.stdout
    assert run("compare", "twice.cu", "twice.cu", "--json").exit_code == 1
    assert documents(run("bench", "twice.cu", "--json").stdout)["verdicts"][0]["accepted"] is False


def test_a_kernel_that_is_not_settled_exits_with_0(script: Any, run: Run) -> None:
    script.verdict = replace(script.verdict, accepted=None)
    assert run("bench", "twice.cu").exit_code == 0


@pytest.mark.parametrize("cases", ["none", "against the reference"])
@pytest.mark.parametrize("accepted", [None, True])
def test_a_verdict_that_could_not_be_reached_exits_with_1(
    script: Any, run: Run, cases: str, *, accepted: bool | None
) -> None:
    """As where the judge was ended or interfered with: it says neither right nor wrong."""
    open_case = replace(script.verdict.cases[0], correct=None, held_against="reference")
    kept = () if cases == "none" else (open_case,)
    script.verdict = replace(script.verdict, correct=None, accepted=accepted, cases=kept)
    assert run("bench", "twice.cu").exit_code == 1
    assert run("compare", "twice.cu", "twice.cu").exit_code == 1


@pytest.mark.parametrize("change", [{"held_against": None}, {"held_against": "reference", "degenerate": True}])
def test_a_kernel_without_a_case_that_could_tell_exits_with_0(script: Any, run: Run, change: Any) -> None:
    """As without a reference, or where the right output is all zeros."""
    open_case = replace(script.verdict.cases[0], correct=None, **change)
    script.verdict = replace(script.verdict, correct=None, accepted=None, cases=(open_case,))
    assert run("bench", "twice.cu").exit_code == 0


@pytest.mark.skipif(os.name == "nt", reason="modes do not bind on Windows")
def test_accept_refuses_a_read_only_file_before_the_search(script: Any, run: Run, folder: Path) -> None:
    (folder / "twice.cu").chmod(0o444)
    for flag in ("--accept", "--accept-predicted"):
        done = run("optimize", "twice.cu", "less shared memory", flag)
        assert done.exit_code == 2
        assert "it is read-only" in done.stderr
        assert "chmod u+w" in done.stderr
    assert script.asked == []
    assert run("optimize", "twice.cu", "less shared memory").exit_code == 1
    assert [name for name, *_ in script.asked] == ["optimize"]


def test_quiet_is_one_line_for_each_verdict(script: Any, run: Run) -> None:
    script.best = script.verdict
    for command in (
        ["bench", "twice.cu"],
        ["compare", "twice.cu", "twice.cu"],
        ["optimize", "twice.cu", "less memory"],
    ):
        assert run(*command, "-q").stdout.count("\n") == 1


def test_check_takes_every_kernel_of_the_file_or_the_one_named(
    script: Any, run: Run, folder: Path, samples: SimpleNamespace
) -> None:
    pytest.importorskip("kernelmate.compiler.targets")
    (folder / "two.cu").write_text(samples.source + "__global__ void other(float *x, int n) { x[n] = 1; }\n")
    run("check", "two.cu")
    assert [asked[1][0].name for asked in script.asked] == ["twice", "other"]
    script.asked.clear()
    run("check", "two.cu::other")
    assert [asked[1][0].name for asked in script.asked] == ["other"]


def test_check_of_code_that_does_not_compile_exits_with_1(script: Any, run: Run, documents: Documents) -> None:
    diagnostic = Diagnostic("error", "expected a ;", "twice.cu", 13, 9)
    script.verdict = replace(
        script.verdict, compiled=False, diagnostics=(diagnostic,), resources=None, occupancy=None, accepted=False
    )
    done = run("check", "twice.cu", "--json")
    assert done.exit_code == 1
    assert documents(done.stdout)["verdicts"][0]["compiled"] is False


def test_compare_takes_the_namesake_of_the_other_file(
    script: Any, run: Run, folder: Path, samples: SimpleNamespace
) -> None:
    body = samples.source[samples.source.index("__global__") :]
    (folder / "new.cu").write_text("__global__ void helper(int *x) { *x = 1; }\n" + body)
    assert run("compare", "twice.cu", "new.cu", "--for", "fewer registers").exit_code == 0
    _, (baseline, candidate, prompt, sizes, reference), _ = script.asked[0]
    assert (baseline.name, candidate.name, candidate.unit.path) == ("twice", "twice", "new.cu")
    assert (prompt, sizes, reference) == ("fewer registers", (), None)


def test_compare_with_a_file_that_lacks_the_kernel_is_a_mistake(script: Any, run: Run, folder: Path) -> None:
    (folder / "none.cu").write_text("int x;\n")
    done = run("compare", "twice.cu", "none.cu")
    assert done.exit_code == 2
    assert "none.cu" in done.stderr
    assert script.asked == []


def test_excerpts_of_a_candidate_come_from_the_candidate(script: Any, run: Run, folder: Path) -> None:
    (folder / "new.cu").write_text(
        (folder / "twice.cu").read_text().replace("tile[threadIdx.x] * 2.0f", "42.0f /* odd */")
    )
    finding = Finding(FindingCode.CONSTANT_OUTPUT, "error", "always the same", "new.cu", 16, 5)
    script.verdict = replace(script.verdict, accepted=False, findings=(finding,))
    assert "/* odd */" in run("compare", "twice.cu", "new.cu").stdout


# ---------------------------------------------------------------------------------------------------- optimize


def test_optimize_without_a_candidate_exits_with_1(script: Any, run: Run, documents: Documents) -> None:
    done = run("optimize", "twice.cu", "less shared memory")
    assert done.exit_code == 1
    assert "No candidate applies" in done.stdout
    assert documents(run("optimize", "twice.cu", "less memory", "--json").stdout)["best"] is None


def test_optimize_shows_the_diff_and_writes_nothing_unasked(
    script: Any, run: Run, folder: Path, samples: SimpleNamespace
) -> None:
    script.best = replace(samples.verdict, objective=samples.counted)
    done = run("optimize", "twice.cu", "less shared memory")
    assert done.exit_code == 0
    assert "-    __shared__ float tile[512];\n+    __shared__ float tile[256];\n" in done.stdout
    assert "Half of tile is unused." in done.stdout
    assert (folder / "twice.cu").read_text() == samples.source


def test_optimize_passes_its_limits_on(script: Any, run: Run) -> None:
    run("optimize", "twice.cu", "less memory", "--max-candidates", "3", "--budget", "1.5", "--reference", "x")
    _, (_, prompt, sizes, most), named = script.asked[0]
    assert (prompt, sizes, most) == ("less memory", (), 3)
    assert (named["budget_s"], named["reference"], named["objective"]) == (1.5, "x", None)


def test_optimize_passes_on_who_is_asked_and_what_is_meant(script: Any, run: Run) -> None:
    run("optimize", "twice.cu", "less memory", "--author", "recipes", "--objective", "registers", "--samples", "7")
    _, _, named = script.asked[0]
    (router,) = named["suggesters"]
    assert (router.samples, router.local, router.reviewer) == (7, None, None)
    assert named["objective"] == "registers"


def test_accept_writes_the_candidate_and_names_the_backup(
    script: Any, run: Run, folder: Path, samples: SimpleNamespace
) -> None:
    script.best = replace(samples.verdict, objective=samples.counted)
    done = run("optimize", "twice.cu", "less shared memory", "--accept")
    assert done.exit_code == 0
    assert "tile[256]" in (folder / "twice.cu").read_text()
    backups = [path for path in folder.iterdir() if path.name.startswith("twice.cu.")]
    assert [path.read_text() for path in backups if "backup" in path.name] == [samples.source]
    assert any(path.name in done.stdout for path in backups)


def test_accept_with_json_keeps_standard_output_one_document(
    script: Any, run: Run, documents: Documents, samples: SimpleNamespace
) -> None:
    script.best = replace(samples.verdict, objective=samples.counted)
    done = run("optimize", "twice.cu", "less memory", "--accept", "--json")
    assert documents(done.stdout)["best"] == 0
    assert "written to twice.cu" in done.stderr


@pytest.mark.parametrize(
    ("options", "written"),
    [(["--accept"], False), (["--accept-predicted"], True), (["--accept", "--accept-predicted"], True)],
)
def test_a_predicted_gain_is_written_only_when_asked_for(
    options: list[str], written: bool, script: Any, run: Run, folder: Path, samples: SimpleNamespace
) -> None:
    script.best = replace(samples.verdict, objective=samples.predicted, accepted=None)
    done = run("optimize", "twice.cu", "make it faster", *options)
    assert done.exit_code == 0
    assert ("tile[256]" in (folder / "twice.cu").read_text()) is written
    assert ("--accept-predicted" in done.stdout) is not written


@pytest.mark.parametrize("options", [["--accept"], ["--accept-predicted"]])
def test_a_guessed_contract_is_never_enough(
    options: list[str], script: Any, run: Run, folder: Path, samples: SimpleNamespace
) -> None:
    script.inferred = True
    for accepted in (True, None):
        script.best = replace(samples.verdict, objective=samples.predicted, accepted=accepted)
        done = run("optimize", "twice.cu", "make it faster", *options)
        assert "guessed contract" in done.stdout.replace("\n", " ")
    assert (folder / "twice.cu").read_text() == samples.source


def test_what_nothing_shows_to_be_right_is_not_written(
    script: Any, run: Run, folder: Path, samples: SimpleNamespace
) -> None:
    script.best = replace(samples.verdict, objective=samples.predicted, accepted=None, correct=None)
    assert "reference" in run("optimize", "twice.cu", "make it faster", "--accept-predicted").stdout
    script.best = replace(samples.verdict, objective=samples.counted, accepted=None)
    run("optimize", "twice.cu", "less memory", "--accept-predicted")
    assert (folder / "twice.cu").read_text() == samples.source


def test_a_file_that_changed_meanwhile_is_left_alone(
    script: Any, run: Run, folder: Path, samples: SimpleNamespace
) -> None:
    script.best = replace(samples.verdict, objective=samples.counted)

    def change(text: str) -> str:
        (folder / "twice.cu").write_text("// edited\n" + samples.source)
        return text.replace("tile[512]", "tile[256]")

    script.change = change
    done = run("optimize", "twice.cu", "less memory", "--accept")
    assert done.exit_code == 2
    assert "changed" in done.stderr
    assert (folder / "twice.cu").read_text() == "// edited\n" + samples.source


def test_html_writes_the_page(script: Any, run: Run, folder: Path, samples: SimpleNamespace) -> None:
    script.best = replace(samples.verdict, objective=samples.counted)
    done = run("optimize", "twice.cu", "less memory", "--html", "out.html")
    assert "page written to out.html" in done.stdout
    text = (folder / "out.html").read_text()
    assert text.startswith("<!doctype html>")
    assert "recipe:shrink" in text


@pytest.mark.parametrize("page", ["twice.cu", "nowhere/out.html", "out", "folder.html"])
def test_a_page_that_cannot_be_written_is_told_before_any_work(
    page: str, script: Any, run: Run, folder: Path, samples: SimpleNamespace
) -> None:
    (folder / "folder.html").mkdir()
    done = run("optimize", "twice.cu", "less memory", "--html", page)
    assert done.exit_code == 2
    assert script.asked == []
    assert (folder / "twice.cu").read_text() == samples.source


def test_html_without_plotly_is_told_before_any_work(script: Any, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    done = run("optimize", "twice.cu", "less memory", "--html", "out.html")
    assert done.exit_code == 3
    assert "kernelmate[report]" in done.stderr
    assert script.asked == []


def test_explain_names_lines_and_remedies(script: Any, run: Run, samples: SimpleNamespace, documents: Any) -> None:
    line = LineCounters(16, shared_load_wavefronts=32_000, bank_conflicts=31_000)
    script.verdict = replace(samples.verdict, lines=(line,), accepted=True)
    shown = run("explain", "twice.cu")
    assert shown.exit_code == 0
    words = " ".join(shown.stdout.split())
    assert "line 16, about 1.9 us of the launch: 31,000 of 32,000 passes" in words
    assert "if (i < n) y[i] = tile[threadIdx.x] * 2.0f;" in words
    assert "what to do pad the row" in words
    (explained,) = documents(run("explain", "twice.cu", "--json").stdout)["explained"]
    assert explained["causes"][0]["code"] == "bank-conflicts"


def test_explain_of_a_wrong_kernel_shows_its_verdict_instead(script: Any, run: Run, samples: SimpleNamespace) -> None:
    script.verdict = replace(samples.verdict, correct=False, accepted=False)
    shown = run("explain", "twice.cu")
    assert shown.exit_code == 1
    assert "what to do" not in shown.stdout


def test_a_question_is_explained_and_nothing_is_searched(script: Any, run: Run, documents: Documents) -> None:
    done = run("optimize", "twice.cu", "why is it slow?")
    assert done.exit_code == 0
    assert "right at 1 size" in done.stdout
    assert "optimize" not in [name for name, *_ in script.asked]
    assert documents(run("optimize", "twice.cu", "what limits it?", "--json").stdout)["explained"]
    asked = run("optimize", "twice.cu", "is it correct?")
    assert asked.stdout.startswith("It is right on 1 case.")
    (answered,) = documents(run("optimize", "twice.cu", "is it correct?", "--json").stdout)["explained"]
    assert answered["answers"] == ["It is right on 1 case."]


@pytest.mark.parametrize(
    ("prompt", "said"),
    [
        ("make it nice", "Nothing in the prompt was understood"),
        ("rewrite it in Triton", "does not translate it into another language (triton)"),
        ("undo", "is about an earlier result"),
    ],
)
def test_a_prompt_that_nothing_can_be_done_for_is_an_error(script: Any, run: Run, prompt: str, said: str) -> None:
    done = run("optimize", "twice.cu", prompt)
    assert done.exit_code == 2
    assert said in done.stderr
    assert "optimize" not in [name for name, *_ in script.asked]


@pytest.mark.parametrize(
    "line", [("bench", "twice.cu"), ("compare", "twice.cu", "twice.cu"), ("optimize", "twice.cu", "make it faster")]
)
def test_libraries_to_compare_times_with_reach_the_session_and_are_shown(
    script: Any, run: Run, line: tuple[str, ...]
) -> None:
    one = Alternative("compile", "add, from twice.py:f", "TF32 off", why="it cannot be captured in a CUDA graph")
    script.verdict = replace(script.verdict, against=(one,))
    done = run(*line, "--against", "torch", "--against", "compile")
    assert script.settings.against == ("torch", "compile")
    if line[0] != "optimize":
        assert "against torch.compile" in done.stdout
        assert "not timed: it cannot be captured in a CUDA graph" in " ".join(done.stdout.split())


def test_another_library_and_a_sweep_beside_libraries_are_usage_errors(script: Any, run: Run) -> None:
    assert run("bench", "twice.cu", "--against", "tvm").exit_code == 2
    done = run("bench", "twice.cu", "--sweep", "n=1..4", "--against", "torch")
    assert done.exit_code == 2
    assert "Leave out --against or --sweep." in done.stderr
    assert script.asked == []
