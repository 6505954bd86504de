"""Display of errors in a cell: rejected kernels and refused inputs without a traceback, others at the user's line."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, ParamSpec, TypeVar

from IPython import get_ipython
from IPython.core.error import UsageError as CellUsageError

from kernelmate.errors import KernelmateError, UsageError
from kernelmate.records import Verdict
from kernelmate.report.excerpt import SourceLines

FOLDER_PREFIX = "kernelmate-notebook-"
"""Prefix of the folder with copies of live objects for the worker."""

COPIED_FUNCTION = re.compile(rf"\S*/{FOLDER_PREFIX}[^/\s]*/\d+/(\w+)\.py(?::\w+)?")

P = ParamSpec("P")
R = TypeVar("R")

WIDTH = 100
"""Width in columns at which messages are wrapped."""


class CellFailed(Exception):
    """Base of exceptions that end a cell and stop "Run All" and nbclient.

    IPython shows the result of `_render_traceback_`.
    """

    def _render_traceback_(self) -> list[str]:
        """Returns the message as lines for IPython, in place of a traceback."""
        return str(self).split("\n")


class KernelFailed(CellFailed):
    """The cell's kernel is wrong, does not compile, or cannot be launched.

    Args:
        verdict: the verdict.
        sources: source lines for excerpts.
        remark: a sentence on what the name is bound to now.
        shown: True if the cell's output has the verdict, so that its findings need not be shown again.
        repairable: True if `%kernelmate fix` knows the kernel.

    Attributes:
        verdict: the verdict.
    """

    def __init__(
        self, verdict: Verdict, sources: SourceLines, remark: str = "", *, shown: bool = False, repairable: bool = True
    ) -> None:
        self.verdict = verdict
        self._shown = shown
        self._sources = sources
        self._remark = remark
        self._repairable = repairable
        super().__init__(self._text(color=False))

    def _render_traceback_(self) -> list[str]:
        return self._line() if self._shown else self._text(color=True).split("\n")

    def _line(self) -> list[str]:
        """Returns the first finding's code, the remark, and the remedy, if the verdict is displayed already."""
        first = next((one for one in self.verdict.findings if one.severity == "error"), None)
        where = "" if first is None or first.line is None else f" at line {first.line}"
        code = "the kernel is not good." if first is None else f"{first.code}{where}."
        fix = "%kernelmate fix tries repairs, and shows one only if it is right." if self._repairable else ""
        return [f"{type(self).__name__}: {code}", *(one for one in (self._remark, fix) if one)]

    def _text(self, *, color: bool) -> str:
        from kernelmate.report.console import findings_view, lines
        from kernelmate.report.tables import first_wrong_lines, verdict_line
        from kernelmate.report.words import further_reasons
        from kernelmate_widgets.output import as_ansi, as_text

        views: list[Any] = [verdict_line(self.verdict)]
        if self.verdict.findings:
            views.append(findings_view(self.verdict.findings, self._sources))
        else:
            views.append(lines(further_reasons(self.verdict)))
        views += first_wrong_lines([case for case in self.verdict.cases if case.origin == "contract"])
        if self._remark:
            views.append(self._remark)
        return f"{type(self).__name__}: {(as_ansi if color else as_text)(*views, width=WIDTH)}"


class InputRefused(CellFailed):
    """An input other than the kernel needs a change: a contract, the reference, or this machine."""

    def __init__(self, error: KernelmateError) -> None:
        self.error = error
        super().__init__(f"{type(error).__name__}: {error}")


def _by_its_name(error: KernelmateError) -> KernelmateError:
    """Replaces the name of a function's copy in an error by its name in the notebook."""
    error.message = COPIED_FUNCTION.sub(r"\1", error.message)
    if error.file is not None and FOLDER_PREFIX in error.file:
        error.file = error.line = error.column = None
    return error


def reports_errors(work: Callable[..., Any]) -> Callable[..., Any]:
    """Decorator for magics: bad arguments become IPython's UsageError, and KernelMate's errors show no traceback."""

    @functools.wraps(work)
    def wrapped(*positional: Any, **named: Any) -> Any:
        try:
            return work(*positional, **named)
        except UsageError as error:
            raise CellUsageError(str(error)) from None
        except KernelmateError as error:
            raise InputRefused(_by_its_name(error)) from None

    return wrapped


_PACKAGE = str(Path(__file__).parent)


def at_the_call(work: Callable[P, R]) -> Callable[P, R]:
    """Decorator for a kernel's methods: IPython shows KernelMate's errors at the user's line, without frames below it."""

    @functools.wraps(work)
    def wrapped(*positional: P.args, **named: P.kwargs) -> R:
        try:
            return work(*positional, **named)
        except KernelmateError as error:
            shown: Any = error
            shown._render_traceback_ = functools.partial(_at_the_call, error)
            raise

    return wrapped


def _at_the_call(error: KernelmateError) -> list[str]:
    """Returns the traceback up to the call of this package, as lines for IPython."""
    frames: list[TracebackType] = []
    place = error.__traceback__
    while place is not None and not place.tb_frame.f_code.co_filename.startswith(_PACKAGE):
        frames.append(place)
        place = place.tb_next
    kept: TracebackType | None = None
    for one in reversed(frames):
        kept = TracebackType(kept, one.tb_frame, one.tb_lasti, one.tb_lineno)
    lines: list[str] = get_ipython().InteractiveTB.structured_traceback(type(error), error, kept, tb_offset=1)
    return lines
