"""Reports an error that stops a command: a line or two on standard error, or a document with `--json`; never a traceback."""

from __future__ import annotations

import errno
import os
import sys
import traceback
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import click

from kernelmate.errors import KernelmateError, UsageError

if TYPE_CHECKING:
    from kernelmate.records import Verdict

USAGE = 2
ENVIRONMENT = 3
DEFECT = 70
INTERRUPTED = 130
NOT_READ = 141
TERMINATED = 143
DEBUG_VARIABLE = "KERNELMATE_DEBUG"
"""Environment variable that shows the traceback of a defect, as `--debug` does, unless empty or 0."""

_OF_THE_MACHINE = {errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EIO}


def exit_code(verdicts: Iterable[Verdict], good: Callable[[Verdict], bool] = lambda verdict: verdict.clean) -> int:
    """Returns 0 if all verdicts are good, 3 if the backend supports none of the others, else 1."""
    bad = [verdict for verdict in verdicts if not good(verdict)]
    if not bad:
        return 0
    return ENVIRONMENT if all(verdict.unsupported for verdict in bad) else 1


def report_error(error: BaseException, arguments: Sequence[str]) -> int:
    """Report the error that stopped the command, and return the exit code.

    Args:
        error: the exception.
        arguments: the arguments of the command line; `--json` and `--debug` are recognised even if click could not
            parse the others.
    """
    as_json = _given("--json", arguments)
    if isinstance(error, click.exceptions.NoArgsIsHelpError) and not as_json:
        error.show()
        return USAGE
    if isinstance(error, (click.Abort, KeyboardInterrupt)):
        return _say(_Stop("interrupted", "Interrupted.", None), INTERRUPTED, as_json)
    if isinstance(error, click.ClickException):
        return _say(_of_click(error), USAGE, as_json)
    if isinstance(error, KernelmateError):
        return _say(error, error.exit_code, as_json)
    if isinstance(error, MemoryError) or (isinstance(error, OSError) and error.errno in _OF_THE_MACHINE):
        return _say(
            _Stop("environment", _of_system(error), "Free disk space, then run the command again."),
            ENVIRONMENT,
            as_json,
        )
    if _given("--debug", arguments) or os.environ.get(DEBUG_VARIABLE, "0") not in {"", "0"}:
        traceback.print_exception(error, file=sys.stderr)
    what = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    advice = (
        f"This is a defect of KernelMate: run it again with --debug (or {DEBUG_VARIABLE}=1) and report the traceback."
    )
    return _say(_Stop("defect", what, advice), DEFECT, as_json)


class _Stop(KernelmateError):
    """An exit without an error of KernelMate that is reported like an error."""

    def __init__(self, code: str, message: str, hint: str | None) -> None:
        super().__init__(message, hint=hint)
        self.code = code  # type: ignore[misc]


def _given(option: str, arguments: Sequence[str]) -> bool:
    own = arguments[: list(arguments).index("--")] if "--" in arguments else arguments
    return option in own


def _of_click(error: click.ClickException) -> KernelmateError:
    """Converts a usage error of click to a `KernelmateError`."""
    context = getattr(error, "ctx", None)
    hint = None
    if context is not None:
        hint = f"Try `{context.command_path} --help`."
    return UsageError(error.format_message(), hint=hint)


def _of_system(error: BaseException) -> str:
    if isinstance(error, OSError):
        where = f" ({error.filename})" if error.filename else ""
        return f"{error.strerror or error}{where}."
    return "There is not enough memory."


def _say(error: KernelmateError, code: int, as_json: bool) -> int:
    try:
        if as_json:
            from kernelmate.report.json import dumps, error_json

            sys.stdout.write(dumps(error_json(error)) + "\n")
            sys.stdout.flush()
        else:
            _print(error)
    except BrokenPipeError:
        return NOT_READ
    except OSError:
        return code
    return code


def _print(error: KernelmateError) -> None:
    from kernelmate.report.words import one_line, printable

    color = None if not os.environ.get("NO_COLOR") else False
    where = ":".join(str(part) for part in (error.file, error.line, error.column) if part is not None)
    text = f"{printable(where)}: {one_line(error.message)}" if where else one_line(error.message)
    click.echo(click.style("error", fg="red", bold=True) + f": {text}", err=True, color=color)
    for line in _excerpt(error):
        click.echo(line, err=True)
    if error.hint:
        click.echo(click.style("hint", bold=True) + f": {one_line(error.hint)}", err=True, color=color)


def _excerpt(error: KernelmateError) -> tuple[str, ...]:
    if error.line is None:
        return ()
    from kernelmate.report.excerpt import SourceLines

    return SourceLines().excerpt(error.file, error.line, error.column)


def print_note(text: str, **style: Any) -> None:
    """Prints a remark to standard error, which never mixes with results."""
    click.echo(click.style("note", bold=True, **style) + f": {text}", err=True)
