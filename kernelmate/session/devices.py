"""The device that a session's kernels run on, and the GPU that its figures are for.

Judging on another machine needs the user's files that contracts name, and the files that these import.
"""

from __future__ import annotations

import ast
import os
from collections.abc import Iterator
from pathlib import Path

from kernelmate.backends.cuda.driver import missing_for_gpu, read_driver, require_gpu
from kernelmate.compiler import find_target
from kernelmate.config import Settings
from kernelmate.errors import UsageError
from kernelmate.records import BackendName, Contract, Device, JudgeTask, Target
from kernelmate.source import parse_distribution
from kernelmate.worker.client import Worker, WorkerSetup
from kernelmate.worker.protocol import rootless
from kernelmate.worker.remote import Remote

MOST_BYTES = 48 << 20
"""Maximum bytes of files sent with one task; a protocol frame is little larger."""

MOST_MODULES = 500
"""Maximum number of Python files of a package that a reference imports."""


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
    """Returns existing files that a contract names, and Python files beside them that they import.

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
    if contract.torch is not None:
        yield contract.torch.rpartition(":")[0]
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


def make_worker(settings: Settings, backend: BackendName) -> Worker:
    """Creates the worker that the settings describe: local or over ssh."""
    place = settings.place
    opening = WorkerSetup(backend, place.index, settings.device_memory_mb, spare=backend == "cuda")
    remote = None
    if place.host is not None:
        remote = Remote(place.host, settings.ssh_options, settings.remote_worker, files_of)
    return Worker(memory_limit_mb=settings.memory_limit_mb, opening=opening, remote=remote)


def choose_backend(asked: str, place: Device) -> BackendName:
    """Returns the backend to use: if unspecified, a GPU that is usable or named, else the emulator.

    Raises:
        BackendUnavailable: the GPU was requested and cannot be used.
    """
    if asked == "emulator":
        return "emulator"
    if place.host is not None:
        return "cuda"  # whether it can be used there, the worker there will say
    if asked == "cuda":
        require_gpu(place.index)
        return "cuda"
    if place.index:
        require_gpu(place.index)
    return "cuda" if missing_for_gpu(place.index) is None else "emulator"


def choose_target(asked: str | None, backend: BackendName, place: Device) -> Target | None:
    """Returns the GPU that figures refer to: the requested one, else the one that kernels run on.

    The result is None if only the worker knows it.

    Raises:
        UsageError: there is no such target.
    """
    if asked is not None or backend == "emulator":
        return find_target(asked)
    if place.host is not None:
        return None
    driver = read_driver()
    if driver is None or place.index >= len(driver.gpus):
        return find_target(None)
    gpu = driver.gpus[place.index]
    return target_of(gpu.name, gpu.capability)


def target_of(name: str, capability: tuple[int, int]) -> Target:
    """Returns the table entry of a GPU, else one of its architecture.

    Raises:
        UsageError: the table has neither.
    """
    try:
        return find_target(name)
    except UsageError:
        return find_target(f"sm_{capability[0]}{capability[1]}")
