"""Keeps results in a file that is complete at every moment, and merges files of several shards."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

from kernelmate.errors import UsageError
from kernelmate.files import locked, write_atomically
from kernelmate_torch.kernelbench.records import BenchmarkedTask

RESULTS_SCHEMA = 1
FILE_NAME = "results.json"


class StoredResults(msgspec.Struct, frozen=True):
    """The content of a results file.

    Attributes:
        schema: version of the file format.
        tasks: names of all tasks that were chosen, of which shards have a part each.
        results: by task.
    """

    schema: int
    tasks: tuple[str, ...] = ()
    results: tuple[BenchmarkedTask, ...] = ()


def read_results(path: Path) -> StoredResults:
    """Returns the content of a results file.

    Raises:
        UsageError: there is none, or it is not a results file.
    """
    try:
        kept = msgspec.json.decode(path.read_bytes(), type=StoredResults)
    except FileNotFoundError:
        raise UsageError(f"There is no file {path}.", hint="Give files that --to wrote.") from None
    except (OSError, msgspec.DecodeError) as error:
        raise UsageError(f"{path} is not a results file: {error}.", hint="Give files that --to wrote.") from None
    if kept.schema != RESULTS_SCHEMA:
        raise UsageError(f"{path} has form {kept.schema}, and this version reads form {RESULTS_SCHEMA}.", hint="Run the tasks again.")  # fmt: skip
    return kept


class ResultsFile:
    """The file of results; several processes may add to one.

    Args:
        path: the file, or a folder for `results.json`; None keeps nothing.

    Raises:
        UsageError: the file is there and is not a results file.
    """

    def __init__(self, path: Path | None) -> None:
        self.path = path / FILE_NAME if path is not None and (path.is_dir() or not path.suffix) else path
        kept = read_results(self.path) if self.path is not None and self.path.exists() else None
        self._results = {one.task: one for one in kept.results} if kept else {}

    def get(self, task: str) -> BenchmarkedTask | None:
        """Returns the kept result of a task."""
        return self._results.get(task)

    def keep(self, result: BenchmarkedTask, tasks: Iterable[str]) -> None:
        """Adds a result and replaces the file atomically."""
        self._results[result.task] = result
        if self.path is None:
            return
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with locked(self.path.with_name(f".{self.path.name}.lock")):
            kept = read_results(self.path) if self.path.exists() else StoredResults(RESULTS_SCHEMA)
            joined = {one.task: one for one in kept.results} | {result.task: result}
            names = tuple(dict.fromkeys([*kept.tasks, *tasks]))
            write_atomically(
                self.path, encoded(StoredResults(RESULTS_SCHEMA, names, tuple(joined.values()))), mode=0o644
            )


def encoded(kept: StoredResults) -> bytes:
    """Returns the text of a results file, by task."""
    ordered = msgspec.structs.replace(kept, results=tuple(sorted(kept.results, key=lambda one: one.task)))
    return msgspec.json.format(msgspec.json.encode(ordered), indent=1) + b"\n"


def merged(paths: Sequence[Path]) -> StoredResults:
    """Returns the results of several files as one; of two for a task, the one with a candidate's verdict, else the later.

    Raises:
        UsageError: a file is not a results file, or two hold results of one task with different contents or settings.
    """
    names: list[str] = []
    found: dict[str, BenchmarkedTask] = {}
    for path in paths:
        kept = read_results(path / FILE_NAME if path.is_dir() else path)
        names += kept.tasks
        for one in kept.results:
            other = found.get(one.task)
            if other is not None and other.key != one.key:
                raise UsageError(f"{path} has a result of {one.task} for another content of the task, or with other settings.", hint="Merge files of one set of tasks and of equal --tolerance and --seed.")  # fmt: skip
            if other is None or one.candidate is not None or other.candidate is None:
                found[one.task] = one
    return StoredResults(RESULTS_SCHEMA, tuple(dict.fromkeys(names)), tuple(found.values()))
