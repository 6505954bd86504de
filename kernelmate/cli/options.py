"""Options that several commands share, and their conversion to settings."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import click
from click.shell_completion import CompletionItem

if TYPE_CHECKING:
    from rich.console import Console

    from kernelmate.config import Settings
    from kernelmate.session import Session

Command = TypeVar("Command", bound=Callable[..., Any])
Decorator = Callable[[Command], Command]


class KernelSpec(click.ParamType[str]):
    """Parameter type FILE or FILE::KERNEL; `kernelmate.source` resolves it."""

    name = "FILE[::KERNEL]"

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """Completes file names."""
        return [CompletionItem(incomplete, type="file")]


class Size(click.ParamType[Mapping[str, int]]):
    """Parameter type of one problem size: `rows=37,cols=853`."""

    name = "NAME=N,..."
    _PART = re.compile(r"\s*([^\W\d]\w*)\s*=\s*([+-]?[\d_]+)\s*\Z")

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Mapping[str, int]:
        """Returns the size: whole numbers by name, in the given order."""
        if isinstance(value, Mapping):
            return value
        size: dict[str, int] = {}
        for part in str(value).split(","):
            match = self._PART.match(part)
            try:
                name, number = (match[1], int(match[2])) if match else ("", 0)
            except ValueError:
                name = ""
            if not name:
                self.fail(f"{part.strip()!r} is not NAME=WHOLE-NUMBER; write it like rows=37,cols=853.", param, ctx)
            if name in size:
                self.fail(f"{name} is given twice in {value!r}.", param, ctx)
            size[name] = number
        return size


class SweepRange(click.ParamType[tuple[str, int, int]]):
    """Parameter type of the values of one size: `rows=1..65536`."""

    name = "NAME=A..B"
    _WHOLE = re.compile(r"\s*([^\W\d]\w*)\s*=\s*([\d_]+)\s*\.\.\s*([\d_]+)\s*\Z")

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, int, int]:
        """Returns the name, the first value and the last one."""
        if isinstance(value, tuple):
            return value
        match = self._WHOLE.match(str(value))
        if match is None:
            self.fail(f"{value!r} is not NAME=A..B; write it like rows=1..65536.", param, ctx)
        return match[1], int(match[2]), int(match[3])


class TargetName(click.ParamType[str]):
    """Parameter type of a GPU's name in the table, or an architecture."""

    name = "GPU"

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """Completes GPU names and architectures of the table."""
        from kernelmate.compiler.targets import TARGETS

        names = [target.name for target in TARGETS] + sorted({target.arch for target in TARGETS})
        return [CompletionItem(name) for name in names if name.lower().startswith(incomplete.lower())]


@dataclass(frozen=True, slots=True)
class Output:
    """Options of the output.

    Attributes:
        as_json: print one JSON document and nothing else on standard output.
        quiet: print one line for each verdict, and no progress.
        color: False for no colours; None for colours if the terminal supports them.
    """

    as_json: bool
    quiet: bool
    color: bool | None

    def stdout(self) -> Console:
        """Returns the console for results."""
        from kernelmate.report.console import make_console

        return make_console(sys.stdout, color=self.color)

    def stderr(self) -> Console:
        """Returns the console for progress."""
        from kernelmate.report.console import make_console

        return make_console(sys.stderr, color=self.color)

    def document(self, document: dict[str, Any]) -> None:
        """Print one JSON document."""
        from kernelmate.report.json import dumps

        sys.stdout.write(dumps(document) + "\n")


def combined_options(*decorators: Callable[[Any], Any]) -> Callable[[Command], Command]:
    """Combines several decorators, in their order."""

    def decorate(command: Command) -> Command:
        for decorator in reversed(decorators):
            command = decorator(command)
        return command

    return decorate


def output_options(*, quiet: bool = True) -> Callable[[Command], Command]:
    """Returns a decorator that adds `--json`, `--quiet`, `--no-color` and `--debug`; `output_of` reads them."""
    shown = [
        click.option("--json", "as_json", is_flag=True, help="Print one JSON document on standard output."),
        click.option("-q", "--quiet", is_flag=True, help="One line for each verdict, and no progress."),
        click.option("--no-color", is_flag=True, help="No colour; NO_COLOR in the environment does the same."),
        click.option("--debug", is_flag=True, hidden=True, help="Show the traceback of a defect."),
    ]
    return combined_options(*(shown if quiet else [shown[0], *shown[2:]]))


def output_of(options: dict[str, Any]) -> Output:
    """Removes the output options from a command's options, and returns them."""
    options.pop("debug", None)
    no_color = options.pop("no_color", False) or bool(os.environ.get("NO_COLOR"))
    return Output(options.pop("as_json", False), options.pop("quiet", False), False if no_color else None)


compile_options = combined_options(
    click.option("--target", type=TargetName(), help="The target GPU; `kernelmate targets` lists them."),
    click.option("-I", "include_paths", metavar="DIR", multiple=True, help="Search this folder for headers; repeatable."),
    click.option("-D", "defines", metavar="NAME[=VALUE]", multiple=True, help="Define a macro; repeatable."),
    click.option("--std", metavar="c++17", help="C++ standard: c++11, c++14, c++17, c++20 or c++23."),
    click.option("--fast-math/--no-fast-math", default=None, help="Compile with -use_fast_math."),
    click.option("--max-registers", type=int, metavar="N", help="At most this many registers per thread."),
    click.option("--build", metavar="PATH", help="Take flags from this compile_commands.json, or the folder with it."),
    click.option("--timeout", "timeout", type=float, metavar="SECONDS", help="Seconds for one compilation, and for judging one version."),
)  # fmt: skip
"""Options of the compilation and its target; `settings_of` reads them."""

device_option = click.option("--device", metavar="DEVICE", help="The GPU: its number, or ssh:HOST or ssh:HOST:N for one of another machine.")  # fmt: skip
"""Option that selects a GPU; `settings_of` reads it."""

against_option = click.option(
    "--against",
    type=click.Choice(["torch", "compile", "cublas"]),
    multiple=True,
    help="Time the same computation by this library beside it, in the same run (GPU): PyTorch eager, torch.compile, cuBLAS; repeatable.",
)
"""Option that names libraries to compare times with; `settings_of` reads it."""

judging_options = combined_options(
    click.option("--backend", type=click.Choice(["auto", "cuda", "emulator"]), help="The backend that runs kernels."),
    device_option,
    click.option("--reference", metavar="REF", help="The reference, in place of the contract's: path.py:function, a kernel, or an expression."),
    click.option("--size", "sizes", type=Size(), multiple=True, help='Judge at this size, such as "rows=37,cols=853"; repeatable, the first is the headline.'),
    click.option("--timing-budget", "timing_budget_s", type=float, metavar="SECONDS", help="Seconds for timing one version on a GPU; 0.2 by default, 0 disables timing."),
    click.option("--sanitize/--no-sanitize", default=None, help="Also run compute-sanitizer's four tools (GPU); some seconds per version."),
    click.option("--profile/--no-profile", default=None, help="Also read hardware counters by ncu (GPU), if the driver permits it."),
    click.option("--seed", type=int, metavar="N", help="Seed of the inputs; drawn and reported if not given."),
)  # fmt: skip
"""Options for judging; `settings_of` reads all of them except `sizes` and `reference`, which the command reads."""


def settings_of(options: dict[str, Any]) -> Settings:
    """Remove the options of settings from a command's options, and return the settings with them applied.

    Raises:
        UsageError: a value or a settings file is invalid.
    """
    from kernelmate.config import load_settings

    names = (
        "target",
        "backend",
        "device",
        "seed",
        "std",
        "fast_math",
        "max_registers",
        "build",
        "include_paths",
        "defines",
        "timing_budget_s",
        "sanitize",
        "profile",
        "against",
    )
    given = {name: options.pop(name, None) for name in names}
    timeout = options.pop("timeout", None)
    return load_settings(
        **{name: value for name, value in given.items() if value not in ((), None)},
        timeout_s=timeout,
        compile_timeout_s=timeout,
    )


def print_notices(session: Session) -> None:
    """Prints a session's notices on standard error."""
    from kernelmate.cli.stopping import print_note

    for notice in session.notices:
        print_note(notice)
