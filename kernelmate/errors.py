"""The tree of errors. Every message says what happened, where, and what to do next.

::

    KernelmateError
    ├── InputError               exit 2: the user's files or options need a change
    │   ├── UsageError           an option or an argument is off
    │   ├── SourceError          a file or a kernel in it cannot be used
    │   ├── ContractError        a contract block is wrong
    │   └── ReferenceFailed      the user's reference or inputs function raised, hung, or gave the wrong shape
    ├── EnvironmentFailed        exit 3: this machine lacks something
    │   ├── CompilerUnavailable  no NVRTC here
    │   ├── BackendUnavailable   the asked-for backend cannot run here
    │   ├── DeviceFailed         the GPU or its driver failed, which says nothing of the kernel
    │   ├── WorkerUnavailable    the worker process cannot be started or kept
    │   ├── HistoryUnavailable   the history's file cannot be read or written
    │   └── LaunchTooLarge       the launch is beyond what the emulator takes on
    ├── CompileTimeout           exit 1: the compiler was killed at the time limit
    └── TrainingFailed           exit 1: a model's training cannot go on; what was saved stands

A candidate that is wrong, hangs or crashes is no error: it is a finding in a verdict.
"""

from __future__ import annotations

from typing import ClassVar


class KernelmateError(Exception):
    """Base of all errors that the user can do something about.

    Args:
        message: what happened, in one sentence.
        file: the user's file, or None.
        line: line in it, from 1.
        column: column in it, from 1, in characters.
        hint: what to do next.
    """

    code: ClassVar[str] = "error"
    exit_code: ClassVar[int] = 1

    def __init__(
        self,
        message: str,
        *,
        file: str | None = None,
        line: int | None = None,
        column: int | None = None,
        hint: str | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.file = file
        self.line = line
        self.column = column
        self.hint = hint

    def __str__(self) -> str:
        place = ":".join(str(part) for part in (self.file, self.line, self.column) if part is not None)
        text = f"{place}: {self.message}" if place else self.message
        return f"{text} {self.hint}" if self.hint else text


class InputError(KernelmateError):
    """The user's input needs a change by the user."""

    code = "input"
    exit_code = 2


class UsageError(InputError):
    """An option or an argument is off."""

    code = "usage"


class SourceError(InputError):
    """A file cannot be read as CUDA, or holds no such kernel."""

    code = "source"


class ContractError(InputError):
    """A contract block is wrong; `line` and `column` point at the mistake."""

    code = "contract"


class ReferenceFailed(InputError):
    """The reference or inputs function raised, never returned, or gave arrays of the wrong shape."""

    code = "reference"


class EnvironmentFailed(KernelmateError):
    """This machine lacks something; the hint says what to install or set."""

    code = "environment"
    exit_code = 3


class CompilerUnavailable(EnvironmentFailed):
    """NVRTC or its headers are not to be had on this machine."""

    code = "no-compiler"


class BackendUnavailable(EnvironmentFailed):
    """The backend that was asked for cannot run here."""

    code = "no-backend"


class DeviceFailed(EnvironmentFailed):
    """The GPU or its driver failed while a kernel ran, in a way that no kernel causes."""

    code = "device-failed"


class WorkerUnavailable(EnvironmentFailed):
    """The worker process cannot be started, or died before it was given a candidate."""

    code = "no-worker"


class HistoryUnavailable(EnvironmentFailed):
    """The history's file cannot be read or written here."""

    code = "no-history"


class LaunchTooLarge(EnvironmentFailed):
    """A launch takes more instructions or memory than the emulator takes on, which says nothing of the kernel."""

    code = "too-large"


class CompileTimeout(KernelmateError):
    """The compiler did not end in time and was killed."""

    code = "compile-timeout"


class TrainingFailed(KernelmateError):
    """A model's training cannot go on; the message says what was saved last."""

    code = "training-failed"
