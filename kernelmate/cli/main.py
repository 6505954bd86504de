"""The `kernelmate` command: the list of commands, and the reporting of errors that stop one.

Exit codes: 0 clean, accepted or promising; 1 judged and not good; 2 the file, its contract or an option needs a change;
3 this machine lacks something, or the backend does not support the kernel; 70 a defect of KernelMate; 130 interrupted;
141 the reader of the output closed it; 143 terminated.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.metadata
import io
import os
import signal
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any, NoReturn, TextIO

import click

from kernelmate.cli.stopping import DEBUG_VARIABLE, INTERRUPTED, NOT_READ, TERMINATED, report_error
from kernelmate.version import VERSION

COMMANDS: dict[str, tuple[str, str]] = {
    "check": ("kernelmate.cli.check:check", "Compile; show resources, occupancy and its limiter."),
    "bench": ("kernelmate.cli.bench:bench", "Judge one kernel: correctness, resources, counters and time."),
    "compare": ("kernelmate.cli.compare:compare", "Judge a changed kernel against the one it would replace."),
    "optimize": ("kernelmate.cli.optimize:optimize", "Search for a version that meets a prompt; each is judged."),
    "tune": ("kernelmate.cli.tune:tune", "Find the fastest version at each size, and where the choice changes."),
    "write": ("kernelmate.cli.write:write", "Write a new kernel and its contract from NumPy or PyTorch."),
    "port": ("kernelmate_torch.cli:port", "Port a PyTorch module: write it anew with CUDA kernels, verified."),
    "trace": (
        "kernelmate_torch.tracing.command:trace",
        "Trace a PyTorch program: which kernels ran, and why others did not.",
    ),
    "capture": ("kernelmate.cli.capture:capture", "Record launches of a kernel in a program; write its contract."),
    "kernelbench": (
        "kernelmate_torch.kernelbench.command:kernelbench",
        "Audit KernelBench tasks; run candidates; report fast_p.",
    ),
    "lift": ("kernelmate.cli.lift:lift", "Read a reference in NumPy from a kernel that has none."),
    "fix": ("kernelmate.cli.fix:fix", "Repair a kernel that does not compile or is wrong."),
    "confirm": ("kernelmate.cli.confirm:confirm", "Judge promising versions again, on a GPU."),
    "sass": ("kernelmate.cli.sass:sass", "Show PTX and SASS by source line, and their changes between versions."),
    "explain": ("kernelmate.cli.explain:explain", "Show the limiters of a kernel by line, with remedies."),
    "export": ("kernelmate.cli.export:export", "Write an accepted kernel with its diff, verdict and a test."),
    "ci": ("kernelmate.cli.ci:ci", "Judge every kernel that a change affects; fail if one got worse."),
    "model": ("kernelmate.cli.model:model", "Local models: add, list, use, test; served by llama.cpp on demand."),
    "history": ("kernelmate.cli.history:history", "Versions that were judged: show, compare, restore, export."),
    "calibrate": ("kernelmate.cli.calibrate:calibrate", "Measure the peak rates of this machine's GPU, for rooflines."),
    "targets": ("kernelmate.cli.targets:targets", "List the GPUs that can be the target."),
    "doctor": ("kernelmate.cli.doctor:doctor", "Show what this machine has and lacks, with remedies."),
}
"""Module and help line of each command; a command is imported only when it is used."""


ADDED = "kernelmate.commands"
"""Entry point group by which other packages add commands."""

TRAINING = {"upskill": "`upskill` comes with the package kernelmate-training: pip install kernelmate-training."}
"""Messages for commands whose package is not installed."""


def added() -> dict[str, importlib.metadata.EntryPoint]:
    """Returns the entry points of commands that other packages add, by command name."""
    return {one.name: one for one in importlib.metadata.entry_points(group=ADDED) if one.name not in COMMANDS}


class LazyGroup(click.Group):
    """Command group of `COMMANDS` and other packages.

    Each command is imported on first use, and errors are shown in a line or two.
    """

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Returns the commands in the order of `COMMANDS`, then those of other packages."""
        return [*COMMANDS, *added()]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Returns a command, imported on first use; None if there is no command of this name."""
        if cmd_name in COMMANDS:
            module, _, name = COMMANDS[cmd_name][0].partition(":")
            command: click.Command = getattr(importlib.import_module(module), name)
            return command
        other = added().get(cmd_name)
        return None if other is None else other.load()

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Writes the command list of the help text, without importing the commands."""
        with formatter.section("Commands"):
            lines = [(name, help_line) for name, (_, help_line) in COMMANDS.items()]
            lines += [(name, str(one.dist.metadata["Summary"] if one.dist else "")) for name, one in added().items()]
            formatter.write_dl(lines)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Resolves a command; for a mistyped name, suggests the nearest one."""
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            import difflib

            if args[0] in TRAINING:
                raise click.UsageError(TRAINING[args[0]], ctx) from error
            near = difflib.get_close_matches(args[0], COMMANDS, n=1)
            hint = f"Did you mean {near[0]}?" if near else f"Commands are {', '.join(COMMANDS)}."
            raise click.UsageError(f"There is no command {args[0]!r}. {hint}", ctx) from error

    def invoke(self, ctx: click.Context) -> Any:
        """Runs the command; exits without a message if the reader of the output closed it."""
        try:
            result = super().invoke(ctx)
            if sys.stdout is not None:
                sys.stdout.flush()
        except BrokenPipeError:
            _discard(sys.stdout)
            raise click.exceptions.Exit(NOT_READ) from None
        return result

    def main(self, *positional: Any, **named: Any) -> Any:
        """Run as a program, and exit with one of the module's exit codes.

        With `standalone_mode=False` click's behaviour applies: the code is returned and exceptions are raised.
        """
        run: Callable[..., Any] = super().main
        if not named.pop("standalone_mode", True):
            return run(*positional, standalone_mode=False, **named)
        given = positional[0] if positional else named.get("args")
        try:
            code = run(*positional, standalone_mode=False, **named)
        except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001 -- the outermost frame: nothing may escape as a traceback
            code = report_error(error, list(sys.argv[1:] if given is None else given))
        sys.exit(code if isinstance(code, int) else 0)


@click.command(
    cls=LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
    epilog="""\b
Examples:
  kernelmate check softmax.cu
  kernelmate bench softmax.cu::softmax_rows
  kernelmate compare softmax.cu softmax_new.cu
  kernelmate optimize softmax.cu "reduce memory usage" --accept

\b
Exit codes: 0 clean, accepted or promising; 1 judged and not good; 2 a file, contract or option needs a
change; 3 this machine lacks something, or the backend does not support it; 70 a defect of KernelMate;
130 interrupted.""",
)
@click.version_option(VERSION, prog_name="kernelmate", message="%(prog)s %(version)s")
def cli() -> None:
    """Change CUDA kernels by prompts in plain words; each change comes with a verdict.

    Works with and without a GPU. FILE is a .cu or .cuh file, or a .py file with cupy.RawKernel strings
    or Triton functions; FILE::KERNEL names one kernel of several.
    """


def main() -> NoReturn:
    """Sets up streams and signals, runs the command, and exits.

    A second Ctrl-C, or one after the command has ended, exits immediately.
    """
    _mend_streams()
    with contextlib.suppress(ValueError, AttributeError):
        signal.signal(signal.SIGTERM, _terminate)
        signal.signal(signal.SIGHUP, _terminate)

    def interrupt(number: int, frame: FrameType | None) -> NoReturn:  # noqa: ARG001 -- the signal's signature
        signal.signal(signal.SIGINT, _leave)
        raise KeyboardInterrupt

    heeded = signal.getsignal(signal.SIGINT) is not signal.SIG_IGN
    try:
        if heeded:
            signal.signal(signal.SIGINT, interrupt)
        cli.main(prog_name="kernelmate")
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    finally:
        if heeded:
            signal.signal(signal.SIGINT, _leave)
        _flush()
    raise AssertionError("unreachable: main exits")


def _leave(number: int, frame: FrameType | None) -> NoReturn:  # noqa: ARG001 -- the signal's signature
    """Signal handler that exits immediately; workers end with their parent."""
    os._exit(INTERRUPTED)


def _terminate(number: int, frame: FrameType | None) -> NoReturn:  # noqa: ARG001 -- the signal's signature
    """Signal handler that raises `SystemExit`, so that each `with` releases its resources and workers end."""
    signal.signal(number, signal.SIG_IGN)
    raise SystemExit(TERMINATED)


def _mend_streams() -> None:
    """Makes writes safe: missing streams discard text, and characters outside the encoding are escaped."""
    if sys.stdout is None:
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115 -- lives as long as the process
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _discard(stream: TextIO | None) -> None:
    """Discards buffered output, so that the interpreter's final flush raises no error."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())  # type: ignore[union-attr]
        os.close(nowhere)


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):
            _discard(stream)


__all__ = ["DEBUG_VARIABLE", "cli", "main"]
