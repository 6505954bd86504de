"""Collects the user's files that judging on another machine needs: those that the contract names, and their imports."""

from __future__ import annotations

import ast
import os
from collections.abc import Iterator
from pathlib import Path

from kernelmate.errors import UsageError
from kernelmate.records import Contract, JudgeTask
from kernelmate.source import parse_distribution
from kernelmate.worker.protocol import rootless

MOST_BYTES = 48 << 20
"""Maximum bytes of files sent with one task; a protocol frame is little larger."""

MOST_MODULES = 500
"""Maximum of Python files of a package that a reference imports."""


def files_of(task: JudgeTask) -> dict[str, bytes]:
    """Reference, inputs function, data files, and the Python files beside them that they import.

    Keys are paths without their root. A missing file is left out; the worker reports it when it is needed.

    Raises:
        UsageError: they are too large to send.
    """
    versions = (task.candidate, task.baseline, task.reference_version)
    found: dict[str, Path] = {}
    for version in versions:
        if version is not None:
            for name in _named(version.contract):
                _gather(os.path.normpath(os.path.join(task.directory, name)), found)
    total = sum(path.stat().st_size for path in found.values())
    if total > MOST_BYTES:
        largest = max(found.values(), key=lambda path: path.stat().st_size)
        raise UsageError(
            f"The files that the contract names take {total >> 20} MB; at most {MOST_BYTES >> 20} travel to another machine.",
            file=str(largest),
            hint="Make the inputs by a function (inputs = ...) in place of a large file, or judge on the machine itself.",
        )
    return {name: path.read_bytes() for name, path in found.items()}


def needed_files(contract: Contract, directory: Path) -> list[Path]:
    """Return existing files that a contract names, and Python files beside them that they import.

    Args:
        contract: the contract of a kernel.
        directory: where its relative paths start from.
    """
    found: dict[str, Path] = {}
    for name in _named(contract):
        _gather(os.path.normpath(os.path.join(directory, name)), found)
    return list(found.values())


def _named(contract: Contract) -> Iterator[str]:
    """Yields paths as written in the contract."""
    if contract.reference is not None and contract.reference_kind == "function":
        yield contract.reference.rpartition(":")[0]
    if contract.inputs is not None:
        yield contract.inputs.rpartition(":")[0] or contract.inputs
    for argument in contract.args:
        if argument.distribution is not None:
            path = parse_distribution(argument.distribution).path
            if path is not None:
                yield path


def _gather(place: str, found: dict[str, Path]) -> None:
    """Adds a file and its imports. `place` is its path without resolving links."""
    real = Path(place).resolve()
    if rootless(place) in found or not real.is_file():
        return
    found[rootless(place)] = real
    if real.suffix == ".py":
        _gather_imports(os.path.dirname(place), real, found)


def _gather_imports(folder: str, source: Path, found: dict[str, Path]) -> None:
    """Adds modules and packages in `folder` that a Python file imports.

    `folder` is on the import path when it is loaded.
    """
    try:
        tree = ast.parse(source.read_bytes())
    except (SyntaxError, ValueError):
        return
    names = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    names |= {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.level == 0}
    for name in sorted({name.partition(".")[0] for name in names if name}):
        module = os.path.join(folder, f"{name}.py")
        real = Path(module).resolve()
        if real.is_file():
            if rootless(module) not in found:
                found[rootless(module)] = real
                _gather_imports(folder, real, found)
            continue
        package = os.path.join(folder, name)
        for path in sorted(Path(package).rglob("*.py"))[:MOST_MODULES]:
            found.setdefault(rootless(str(path)), path.resolve())
