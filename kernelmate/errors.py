"""Error classes. Every message says what happened, where, and what to do next.

::

    KernelmateError
    ├── InputError               exit 2: the user's files or options need a change
    │   ├── UsageError           an option or an argument is wrong
    │   ├── SourceError          a file or a kernel in it cannot be used
    │   ├── ContractError        a contract block is wrong
    │   └── ReferenceFailed      the user's reference or inputs function raised, hung, or gave the wrong shape
    ├── EnvironmentFailed        exit 3: this machine lacks something
    │   ├── CompilerUnavailable  no NVRTC here
    │   ├── BackendUnavailable   the requested backend cannot run here
    │   ├── DeviceFailed         the GPU or its driver failed, not the kernel
    │   ├── WorkerUnavailable    the worker process cannot be started or kept
    │   ├── HistoryUnavailable   the history's file cannot be read or written
    │   └── LaunchTooLarge       the launch exceeds the emulator's limits
    ├── CompileTimeout           exit 1: the compiler was killed at the time limit
    └── TrainingFailed           exit 1: a model's training cannot continue; checkpoints are kept

A candidate that is wrong, hangs or crashes is not an error: it is a finding in a verdict.
"""

from __future__ import annotations

from typing import ClassVar


class KernelmateError(Exception):
    """Base class of all errors that the user can act on.

    Args:
        message: what happened, in one sentence.
        file: the user's file, or None.
        line: line of the file, from 1.
        column: column of the line, from 1, in characters.
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
    """The user's files or options need a change."""

    code = "input"
    exit_code = 2


class UsageError(InputError):
    """An option or an argument is wrong."""

    code = "usage"


class SourceError(InputError):
    """A file cannot be read as CUDA, or contains no such kernel."""

    code = "source"


class ContractError(InputError):
    """A contract block is wrong; `line` and `column` point at the mistake."""

    code = "contract"


class ReferenceFailed(InputError):
    """The reference or inputs function raised an exception, did not return, or returned arrays of the wrong shape."""

    code = "reference"


class EnvironmentFailed(KernelmateError):
    """This machine lacks a requirement; the hint says what to install or set."""

    code = "environment"
    exit_code = 3


class CompilerUnavailable(EnvironmentFailed):
    """NVRTC or its headers are not installed on this machine."""

    code = "no-compiler"


class BackendUnavailable(EnvironmentFailed):
    """The requested backend cannot run on this machine."""

    code = "no-backend"


class DeviceFailed(EnvironmentFailed):
    """The GPU or its driver failed while a kernel ran, in a way that no kernel causes."""

    code = "device-failed"


class WorkerUnavailable(EnvironmentFailed):
    """The worker process cannot be started, or died before it received a candidate."""

    code = "no-worker"


class HistoryUnavailable(EnvironmentFailed):
    """The history's file cannot be read or written."""

    code = "no-history"


class LaunchTooLarge(EnvironmentFailed):
    """A launch needs more instructions or memory than the emulator allows.

    This says nothing about the kernel's correctness.
    """

    code = "too-large"


class CompileTimeout(KernelmateError):
    """The compiler exceeded its time limit and was killed."""

    code = "compile-timeout"


class TrainingFailed(KernelmateError):
    """A model's training cannot continue; the message names the last saved state."""

    code = "training-failed"
