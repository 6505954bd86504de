"""Runs the user's program for a command, with its streams, signals and exit status as they are without the command."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

from kernelmate.errors import UsageError


@dataclass(frozen=True, slots=True)
class FinishedProgram:
    """A program that has ended.

    Attributes:
        status: its exit status, as a shell reports it: 128 and the number of the signal that ended it.
        signal: the signal's name; empty if none ended it.
        interrupted: True if Ctrl-C came while it ran.
        pid: its process.
    """

    status: int
    signal: str
    interrupted: bool
    pid: int


def run_program(
    command: Sequence[str], environment: Mapping[str, str], *, example: str, output: int | None = None
) -> FinishedProgram:
    """Run a program to its end.

    Args:
        command: the program and its arguments.
        environment: its environment variables.
        example: a command line of the command that runs it, for the hint of an error.
        output: file descriptor for its standard output; its own by default.

    Raises:
        UsageError: there is no such program, or it cannot be executed.
    """
    file = shutil.which(command[0])
    if file is None:
        raise UsageError(f"There is no program {command[0]!r}.", hint=f"Write it as in a shell: {example}")
    try:
        process = subprocess.Popen([command[0], *command[1:]], executable=file, env=dict(environment), stdout=output)
    except OSError as error:
        raise UsageError(f"{command[0]} cannot be executed: {error.strerror}.") from None
    waiting = _Waiting(process)
    status = waiting.wait()
    name = signal.Signals(-status).name if status < 0 else ""
    return FinishedProgram(128 - status if status < 0 else status, name, waiting.interrupts > 0, process.pid)


class _Waiting:
    """Waits for a program, and passes signals on that it has not got from the terminal itself."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process
        self.interrupts = 0

    def wait(self) -> int:
        before: dict[int, Any] = {}
        for number in map(int, (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)):
            before[number] = signal.signal(number, self._got)
        try:
            return self._process.wait()
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _got(self, number: int, frame: FrameType | None) -> None:
        self.interrupts += number == signal.SIGINT
        if self.interrupts > 2:
            self._process.kill()
        elif self.interrupts > 1:
            self._process.terminate()
        elif number != signal.SIGINT or not _of_the_terminal():
            self._process.send_signal(number)


def _of_the_terminal() -> bool:
    """Returns True if the terminal sends its signals to this process group, and so to the program, too."""
    try:
        terminal = os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY)
    except OSError:
        return False
    try:
        return os.tcgetpgrp(terminal) == os.getpgrp()
    finally:
        os.close(terminal)


def program_name(arguments: Sequence[str]) -> str:
    """Returns a command line in short: the script or the module, without the interpreter."""
    words = list(arguments)
    if words and Path(words[0]).name.startswith("python") and len(words) > 1:
        words = words[1:]
    return " ".join(Path(one).name if one.startswith("/") else one for one in words[:6]) or sys.executable
