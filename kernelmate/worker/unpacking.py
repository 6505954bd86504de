"""Unpacks the user's files on a worker's machine, so that tasks find them at the paths they name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath, PureWindowsPath

from kernelmate.errors import KernelmateError
from kernelmate.records import Argument, Contract, JudgeTask, Version
from kernelmate.source import parse_distribution
from kernelmate.worker.protocol import rootless


@dataclass(frozen=True, slots=True)
class UnpackedFiles:
    """A folder that stands for the root of the user's machine.

    Attributes:
        folder: the folder; each file has its original path below it.
    """

    folder: Path

    def unpack(self, files: Mapping[str, bytes]) -> None:
        """Writes the files; an existing file with the same contents keeps its modification time.

        Unchanged files are then not loaded again.

        Raises:
            ValueError: a path leads out of the folder.
        """
        root = self.folder.resolve()
        for name, content in files.items():
            path = (root / name).resolve()
            if not path.is_relative_to(root):
                raise ValueError(f"{name!r} leads out of the worker's folder")
            if not path.is_file() or path.read_bytes() != content:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(content)

    def settle(self, task: JudgeTask) -> JudgeTask:
        """Returns the task with paths of this machine."""
        (self.folder / rootless(task.directory)).mkdir(parents=True, exist_ok=True)
        return replace(
            task,
            directory=str(self.folder.resolve() / rootless(task.directory)),
            candidate=self._moved(task.candidate),
            baseline=None if task.baseline is None else self._moved(task.baseline),
            reference_version=None if task.reference_version is None else self._moved(task.reference_version),
            against=tuple(replace(one, function=one.function and self._here(one.function)) for one in task.against),
        )

    def homeward(self, error: KernelmateError, task: JudgeTask) -> KernelmateError:
        """Returns the error with the user's paths; `task` is the original task."""
        home = PurePosixPath(task.directory).anchor or PureWindowsPath(task.directory).anchor
        prefix = f"{self.folder.resolve()}/"
        error.message = error.message.replace(prefix, home)
        error.args = (error.message,)
        if error.file is not None:
            error.file = error.file.replace(prefix, home)
        return error

    def _moved(self, version: Version) -> Version:
        contract = version.contract
        moved = replace(
            contract,
            reference=self._reference(contract),
            inputs=contract.inputs and self._here(contract.inputs),
            torch=contract.torch and self._here(contract.torch),
            args=tuple(self._argument(argument) for argument in contract.args),
        )
        return replace(version, contract=moved)

    def _argument(self, argument: Argument) -> Argument:
        path = None if argument.distribution is None else parse_distribution(argument.distribution).path
        return argument if path is None else replace(argument, distribution=f"file({self._here(path)!r})")

    def _reference(self, contract: Contract) -> str | None:
        if contract.reference is None or contract.reference_kind != "function":
            return contract.reference
        return self._here(contract.reference)

    def _here(self, path: str) -> str:
        absolute = PurePosixPath(path).is_absolute() or PureWindowsPath(path).is_absolute()
        return str(self.folder.resolve() / rootless(path)) if absolute else path
