"""Progress: only on a terminal, only for work that lasts, and gone afterwards."""

from __future__ import annotations

import io
import threading
from typing import Any

import pytest
from rich.console import Console

from kernelmate.cli.progress import Progress


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
    with Progress(console(stream), after_s=0.0) as progress:
        progress.stage("compile", 1, 3)
        assert stream.drawn.wait(30)
    assert "compiling 2/3" in stream.getvalue()
    assert stream.getvalue().endswith("\x1b[2K") or "\x1b[2K" in stream.getvalue().rsplit("compiling", 1)[1]
    assert not [thread for thread in threading.enumerate() if "Timer" in type(thread).__name__]


@pytest.mark.parametrize(("tty", "quiet"), [(False, False), (True, True)])
def test_nothing_is_drawn_where_nobody_looks(tty: bool, quiet: bool) -> None:
    stream = Terminal(tty)
    with Progress(console(stream), quiet=quiet, after_s=0.0) as progress:
        progress.stage("compile", 0, 1)
        assert not stream.drawn.wait(0.3)
    assert stream.getvalue() == ""


def test_short_work_draws_nothing() -> None:
    stream = Terminal()
    with Progress(console(stream), after_s=3600) as progress:
        progress.stage("compile", 0, 1)
    assert stream.getvalue() == ""


def test_an_exception_passes_and_the_terminal_is_left_clean() -> None:
    stream = Terminal()

    def work() -> Any:
        with Progress(console(stream), after_s=0.0) as progress:
            progress.stage("compile", 0, 1)
            stream.drawn.wait(30)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        work()
    assert "\x1b[?25h" in stream.getvalue()


def test_the_last_words_of_a_model_stand_beside_its_step_without_steering_the_terminal() -> None:
    stream = Terminal()
    with Progress(console(stream), after_s=0.0) as progress:
        progress.step("compiling")
        for piece in ("a" * 300, "[bold] the ", "\x1b[2J", "end"):
            progress.text(piece)
        assert stream.drawn.wait(30)
    shown = stream.getvalue()
    assert "[bold] the \\x1b[2Jend" in shown
    assert "a" * 41 not in shown
    assert "\x1b[2J" not in shown
