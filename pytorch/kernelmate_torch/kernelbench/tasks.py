"""Finds tasks and their candidates in folders, and hashes what their results depend on. Nothing of the files runs."""

from __future__ import annotations

import ast
import fnmatch
import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernelmate.errors import UsageError

AUDIT_VERSION = 1
"""Raised when the audit finds other things, so that kept results are not taken for current ones."""

_TASK = {"Model", "get_inputs"}
_LEVEL = re.compile(r"level_?(\d+)\Z")


@dataclass(frozen=True, slots=True)
class BenchmarkTask:
    """A file in KernelBench's form.

    Attributes:
        path: the file.
        name: its path below the folder, with `/`.
    """

    path: Path
    name: str

    @property
    def level(self) -> int | None:
        """Returns the number of the folder `levelN` that it lies in; None if there is none."""
        found = [int(match[1]) for part in self.name.split("/")[:-1] if (match := _LEVEL.match(part))]
        return found[-1] if found else None

    @property
    def number(self) -> int | None:
        """Returns the number that its file's name begins with."""
        match = re.match(r"\d+", self.path.name)
        return int(match[0]) if match else None


def find_tasks(folder: Path, patterns: Sequence[str] = (), levels: Sequence[int] = ()) -> list[BenchmarkTask]:
    """Returns the tasks of a folder, by level, number and name.

    Args:
        folder: is searched with its subfolders for files that define `Model` and `get_inputs` and no `ModelNew`.
        patterns: of names, as `level1/1*` or `*softmax*`; tasks that match one of them are returned; none for all.
        levels: numbers of folders `levelN`; none for all.

    Raises:
        UsageError: there is no such folder, or no such task in it.
    """
    if not folder.is_dir():
        raise UsageError(f"{folder} is not a folder.", hint="Give the folder with the tasks' files.")
    every = [
        BenchmarkTask(path, path.relative_to(folder).as_posix())
        for path in folder.rglob("*.py")
        if not any(part.startswith(".") for part in path.relative_to(folder).parts) and _is_task(path)
    ]
    found = [
        one for one in every
        if (not patterns or any(fnmatch.fnmatch(one.name, pattern) or fnmatch.fnmatch(one.path.name, pattern) or one.path.stem == pattern for pattern in patterns))
        and (not levels or one.level in levels)
    ]  # fmt: skip
    if not found:
        hint = "A task defines Model, get_inputs and get_init_inputs." if not every else f"Its tasks are {', '.join(sorted(one.name for one in every)[:5])}{' and others' if len(every) > 5 else ''}."  # fmt: skip
        raise UsageError(f"No task of {folder} is chosen.", hint=hint)
    return sorted(found, key=lambda one: (one.level or 0, one.number or 0, one.name))


def _is_task(path: Path) -> bool:
    try:
        tree = ast.parse(path.read_text(encoding="utf-8", errors="replace"))
    except (OSError, SyntaxError, ValueError, RecursionError):
        return False
    defined = {one.name for one in tree.body if isinstance(one, ast.ClassDef | ast.FunctionDef)}
    return defined >= _TASK and "ModelNew" not in defined


def candidate_of(task: BenchmarkTask, folder: Path) -> Path | None:
    """Returns the candidate's file for a task; None if the folder has none.

    It has the task's name, with or without its folder, or is `model_new.py` in a folder of that name, with or without
    `_new` (which `kernelmate port` adds), or is named as KernelBench names samples (`level_1_problem_19_sample_0_kernel.py`).
    """
    stems = [task.name.removesuffix(".py"), task.path.stem]
    places = [f"{stem}{form}" for stem in stems for form in (".py", "_new/model_new.py", "/model_new.py")]
    if task.level is not None and task.number is not None:
        places.append(f"level_{task.level}_problem_{task.number}_sample_0_kernel.py")
    return next((folder / one for one in places if (folder / one).is_file()), None)


def own_files(candidate: Path) -> Iterator[Path]:
    """Yields the source files of a candidate: those of its folder if it is named `model_new.py`, else the file alone."""
    if candidate.name != "model_new.py":
        yield candidate
        return
    for path in sorted(candidate.parent.rglob("*")):
        if path.is_file() and path.suffix in (".py", ".cu", ".cuh", ".cpp", ".h") and "__pycache__" not in path.parts:
            yield path


def key_of(files: Sequence[Path], settings: Mapping[str, Any]) -> str:
    """Returns a hash of files' contents and of settings.

    Raises:
        OSError: a file cannot be read.
    """
    held = hashlib.sha256(json.dumps([AUDIT_VERSION, dict(settings)], sort_keys=True).encode())
    for path in files:
        content = path.read_bytes()
        held.update(f"{path.name} {len(content)}\n".encode() + content)
    return held.hexdigest()


def shard_of(tasks: Sequence[BenchmarkTask], number: int, count: int) -> list[BenchmarkTask]:
    """Returns shard `number`, from 1, of `count`: every `count`-th task, so that each has tasks of all levels."""
    return list(tasks[number - 1 :: count])
