"""Progress: only on a terminal, only for work that lasts, and gone afterwards."""

from __future__ import annotations

import io
import threading
from typing import Any

import pytest
from rich.console import Console

from kernelmate.cli.progress import TerminalProgress
from kernelmate.decide.objective import read_objective
from kernelmate.records import Candidate, Judged, SearchState, Speedup, Verdict
from kernelmate.report.versions import first_line, trying_line
from kernelmate.source import find_kernels, infer_contract, text_unit


class Terminal(io.StringIO):
    """A stream that says when something was drawn."""

    def __init__(self, tty: bool = True) -> None:
        super().__init__()
        self.tty = tty
        self.drawn = threading.Event()

    def isatty(self) -> bool:
        return self.tty

    def write(self, text: str) -> int:
        if "compiling" in text:
            self.drawn.set()
        return super().write(text)


def console(stream: Terminal) -> Console:
    return Console(file=stream, force_terminal=stream.tty, width=80, _environ={"TERM": "xterm"})


def test_work_that_lasts_is_shown_and_wiped() -> None:
    stream = Terminal()
    with TerminalProgress(console(stream), after_s=0.0) as progress:
        progress.stage("compile", 1, 3)
        assert stream.drawn.wait(30)
    assert "compiling 2/3" in stream.getvalue()
    assert stream.getvalue().endswith("\x1b[2K") or "\x1b[2K" in stream.getvalue().rsplit("compiling", 1)[1]
    assert not [thread for thread in threading.enumerate() if "Timer" in type(thread).__name__]


def test_how_the_prompt_was_read_stands_above() -> None:
    stream = Terminal()
    with TerminalProgress(console(stream), after_s=0.0) as progress:
        progress.read(read_objective("make it faster without atomics"))
        progress.stage("compile", 1, 3)
        assert stream.drawn.wait(30)
    assert "read as: Less time per launch. Must hold: no atomics." in stream.getvalue()


@pytest.mark.parametrize(("tty", "quiet"), [(False, False), (True, True)])
def test_nothing_is_drawn_where_nobody_looks(tty: bool, quiet: bool) -> None:
    stream = Terminal(tty)
    with TerminalProgress(console(stream), quiet=quiet, after_s=0.0) as progress:
        progress.stage("compile", 0, 1)
        assert not stream.drawn.wait(0.3)
    assert stream.getvalue() == ""


def test_short_work_draws_nothing() -> None:
    stream = Terminal()
    with TerminalProgress(console(stream), after_s=3600) as progress:
        progress.stage("compile", 0, 1)
    assert stream.getvalue() == ""


def test_an_exception_passes_and_the_terminal_is_left_clean() -> None:
    stream = Terminal()

    def work() -> Any:
        with TerminalProgress(console(stream), after_s=0.0) as progress:
            progress.stage("compile", 0, 1)
            stream.drawn.wait(30)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        work()
    assert "\x1b[?25h" in stream.getvalue()


def test_the_last_words_of_a_model_stand_beside_its_step_without_steering_the_terminal() -> None:
    stream = Terminal()
    with TerminalProgress(console(stream), after_s=0.0) as progress:
        progress.step("compiling")
        for piece in ("a" * 300, "[bold] the ", "\x1b[2J", "end"):
            progress.text(piece)
        assert stream.drawn.wait(30)
    shown = stream.getvalue()
    assert "[bold] the \\x1b[2Jend" in shown
    assert "a" * 41 not in shown
    assert "\x1b[2J" not in shown


def judged(name: str, median: float, accepted: bool | None) -> Judged:
    speedup = Speedup("measured" if accepted is not None else "predicted", median, (median, median))
    verdict = Verdict("k", None, "cuda", "H100 SXM", "sm_90", "NVRTC", "sha256:", 1, True, (), None, None, True, (), (), None,
                      speedup, None, None, accepted, ())  # fmt: skip
    return Judged(Candidate(name, "", KERNEL, CONTRACT), verdict)


KERNEL = find_kernels(text_unit("__global__ void k(float* x, int n) { if (n) x[0] = 1; }", "k.cu"))[0]
CONTRACT = infer_contract(KERNEL)


def test_the_line_says_what_is_tried_and_the_best_so_far_and_the_first_accepted_stands_above() -> None:
    stream = Terminal()
    best = judged("recipe:restrict", 2.31, True)
    with TerminalProgress(
        Console(file=stream, force_terminal=True, width=200, _environ={"TERM": "xterm"}), after_s=0.0
    ) as progress:
        progress.judged(judged("recipe:wrong", 3.0, False))
        progress.judged(best)
        progress.judged(judged("recipe:later", 4.0, True))
        progress.trying(SearchState("recipe:vectorize+launch", False, 7, 12.0, 30.0, best))
        progress.stage("compile", 1, 3)
        assert stream.drawn.wait(30)
    shown = stream.getvalue()
    assert (
        "judging recipe:vectorize+launch | 7 tried | 12 s of 30 s | best 2.31x recipe:restrict (compiling 2/3)" in shown
    )
    assert "first accepted: recipe:restrict 2.31x after " in shown
    assert "first accepted: recipe:later" not in shown


@pytest.mark.parametrize(
    ("state", "line"),
    [
        (SearchState("recipe:x", True, 0, 0.2, None, None), "trying recipe:x | 0 tried | 0 s"),
        (
            SearchState("local:\x1bm", False, 3, 4.0, 60.0, judged("recipe:y", 1.5, None)),
            "judging local:\\x1bm | 3 tried | 4 s of 60 s | best ~1.50x recipe:y",
        ),
    ],
)
def test_what_is_tried_is_one_line(state: SearchState, line: str) -> None:
    assert trying_line(state) == line


def test_a_first_version_that_is_only_predicted_to_gain_is_called_promising() -> None:
    assert first_line(judged("recipe:y", 1.5, None), 4.25) == "first promising: recipe:y ~1.50x after 4.2 s"
