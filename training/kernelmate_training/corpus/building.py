"""Building of a corpus: a pool studies groups, results are stored as they arrive, and assembled once they suffice.

The user's own history also becomes a corpus: proposed, accepted and rejected versions, with their stored verdicts.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import platform
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, Literal

from kernelmate.errors import UsageError
from kernelmate.history import History
from kernelmate.history.export import lines
from kernelmate_training.corpus.assemble import Manifest, PromptFilter, assemble
from kernelmate_training.corpus.drafting import Family
from kernelmate_training.corpus.examples import StoredRow, written
from kernelmate_training.corpus.families import registry
from kernelmate_training.corpus.journal import GroupResult, Journal
from kernelmate_training.corpus.judging import seed_of
from kernelmate_training.corpus.pool import Job, Pool

SHARES: Mapping[str, float] = {"memory": 0.35, "compute": 0.25, "mixed": 0.25, "target": 0.15}
"""Shares of the kinds of problems among the groups."""

SETTINGS = "settings.json"


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings for building a corpus.

    Attributes:
        folder: the corpus' folder.
        count: number of wanted rows.
        seed: equal seeds give equal problems.
        backend: `cuda` to run and time on GPUs, `emulator` without one.
        workers: processes; None for as many as there are cores.
        devices: GPUs, as CUDA counts them; used with `cuda`.
        target: the GPU to compile for.
        families: names of the families to use; empty for all.
        limit_s: seconds after which the corpus is assembled from the rows so far; None for no limit.
    """

    folder: Path
    count: int = 60_000
    seed: int = 0
    backend: Literal["cuda", "emulator"] = "emulator"
    workers: int | None = None
    devices: tuple[int, ...] = (0,)
    target: str = "H100 SXM"
    families: tuple[str, ...] = ()
    limit_s: float | None = None


@dataclass(slots=True)
class Progress:
    """Progress of a build: rows so far and wanted, groups, lost groups, seconds, and rows by task."""

    rows: int = 0
    wanted: int = 0
    groups: int = 0
    lost: int = 0
    seconds: float = 0.0
    tasks: Counter[str] = field(default_factory=Counter)


OnProgress = Callable[[Progress], None]


def build(settings: Settings, on_progress: OnProgress | None = None) -> Manifest:
    """Generate and judge until there are enough rows, then write `corpus.jsonl`, `card.md` and `manifest.json`.

    If interrupted, it kills its workers; a call with the same settings resumes.

    Raises:
        UsageError: the folder contains another corpus, or a family is unknown.
        pool.WorkerCannotStart: a worker could not load its libraries.
    """
    families = _chosen(settings)
    settings.folder.mkdir(parents=True, exist_ok=True)
    _claim(settings)
    began = time.monotonic()
    job = Job(settings.target, settings.seed, settings.devices if settings.backend == "cuda" else ())
    workers = settings.workers or _cores()
    with contextlib.ExitStack() as stack:
        journal = stack.enter_context(contextlib.closing(Journal(settings.folder)))
        counted = _Counted(PromptFilter(settings.count), journal)
        counted.advance()
        wanted = _Numbers(settings, families, frozenset(journal.places), counted.sieve, began)
        progress = Progress(wanted=settings.count, groups=len(journal.places))
        pool = stack.enter_context(Pool(job, workers))
        for answer in pool.answers(iter(wanted)):
            journal.add(
                answer.found or GroupResult(answer.number, answer.family, lost=answer.lost or "nothing came back")
            )
            counted.advance()
            progress.groups += 1
            progress.lost += bool(answer.lost)
            progress.rows, progress.tasks = counted.sieve.kept, counted.sieve.tasks
            progress.seconds = time.monotonic() - began
            if on_progress is not None:
                on_progress(progress)
            if wanted.over:
                break
        about = {"backend": settings.backend, "target": settings.target, "seed": settings.seed}
        about |= {"seconds": round(time.monotonic() - began, 1), "workers": workers, "machine": _machine(settings)}
        return assemble(settings.folder, journal.in_order(), settings.count, about, registry())


class _Counted:
    """Counts of rows over the leading groups that are complete without a gap."""

    def __init__(self, sieve: PromptFilter, journal: Journal) -> None:
        self.sieve, self._journal, self._following = sieve, journal, 0

    def advance(self) -> None:
        """Counts the groups that follow the last counted one without a gap."""
        while self._following in self._journal.places:
            for found in self._journal.in_order(iter((self._following,))):
                for row in found.rows:
                    self.sieve.takes(row)
            self._following += 1


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class _Numbers:
    """Yields the numbers of the groups to study: all that are not done, until the corpus is full or time is over."""

    def __init__(
        self, settings: Settings, families: list[Family], done: frozenset[int], sieve: PromptFilter, began: float
    ) -> None:
        self._settings, self._families, self._done, self._sieve, self._began = settings, families, done, sieve, began

    @property
    def over(self) -> bool:
        """True if no more groups are wanted."""
        limit = self._settings.limit_s
        return self._sieve.full or (limit is not None and time.monotonic() - self._began > limit)

    def __iter__(self) -> Iterator[tuple[int, str]]:
        for number in itertools.count():
            if self.over:
                return
            if number not in self._done:
                yield number, family_of(self._families, self._settings.seed, number).name


def family_of(families: list[Family], seed: int, number: int) -> Family:
    """Returns the family of a group: its kind drawn by `SHARES`, each family of the kind with equal probability."""
    rng = Random(seed_of("family", seed, number))  # noqa: S311 -- problems, no secrets
    kinds = sorted({family.kind for family in families})
    kind = rng.choices(kinds, [SHARES[kind] for kind in kinds])[0]
    return rng.choice([family for family in families if family.kind == kind])


def _chosen(settings: Settings) -> list[Family]:
    known = registry()
    unknown = [name for name in settings.families if name not in known]
    if unknown:
        raise UsageError(f"There is no family {unknown[0]!r}.", hint=f"Choose among {', '.join(known)}.")
    return [known[name] for name in settings.families or known]


def _claim(settings: Settings) -> None:
    """Stores the settings in the folder, or checks that they equal the stored ones."""
    wanted = {
        "seed": settings.seed,
        "backend": settings.backend,
        "target": settings.target,
        "families": list(settings.families),
    }
    path = settings.folder / SETTINGS
    if path.exists():
        there = json.loads(path.read_text(encoding="utf-8"))
        if there != wanted:
            raise UsageError(
                f"{settings.folder} holds a corpus of other settings ({there}).", file=str(path), hint="Name another folder.",
            )  # fmt: skip
    else:
        path.write_text(json.dumps(wanted) + "\n", encoding="utf-8")


def _machine(settings: Settings) -> str:
    """Returns the machine on which the corpus was judged, as text."""
    cores = f"{os.cpu_count()} cores, {platform.machine()}"
    if settings.backend != "cuda":
        return f"{cores}, emulated"
    from kernelmate.backends.cuda.driver import read_driver

    driver = read_driver()
    names = [] if driver is None else [driver.gpus[d].name for d in settings.devices if d < len(driver.gpus)]
    return f"{cores}, {len(names)} x {names[0] if names else 'GPU'}"


FAMILY = "history"


def collect(folder: Path, history_file: Path) -> int:
    """Write a corpus from a history: accepted and promising versions as rows, others as rejected rows.

    The corpus is written anew, so that it corresponds to the present history.

    Args:
        folder: the destination.
        history_file: the history.

    Returns:
        The number of rows of the corpus.

    Raises:
        HistoryUnavailable: the history cannot be read.
        UsageError: the folder contains a generated corpus.
    """
    folder.mkdir(parents=True, exist_ok=True)
    if (folder / SETTINGS).exists():
        raise UsageError(f"{folder} holds a generated corpus.", file=str(folder), hint="Name another folder.")
    with History(history_file) as history:
        groups = [_group(history, known.number, known.name) for known in history.kernels()]
    return assemble(folder, groups, None, {"backend": FAMILY, "machine": "as each row's constraints say"}, {}).rows


def _group(history: History, number: int, name: str) -> GroupResult:
    found = GroupResult(number, FAMILY)
    for line in lines(history, number):
        example = json.loads(line)
        row = _row(example, f"{FAMILY}-{number:06d}-{name}")
        if row is None:
            continue
        found.pairs += 1
        if example["verdict"]["accepted"] is False:
            found.rejected.append(row)
        else:
            found.better += 1
            found.rows.append(row)
    return found


def _row(example: Mapping[str, Any], group: str) -> StoredRow | None:
    """Returns one example of the history as a row; None if its launch is unknown or nothing was changed."""
    before, after = (dict(example[side]) for side in ("before", "after"))
    if before["launch"] is None or after["launch"] is None or before["text"] == after["text"]:
        return None
    for side in (before, after):
        side["source"] = side.pop("text")
    metric = example["problem"]["metric"] or "time"
    words = " ".join(_wrong(before["verdict"])) if metric == "correct" else ""
    timing = after["verdict"].get("timing") or {}
    return written(
        {
            **example,
            "problem": {**example["problem"], "metric": metric},
            "before": before,
            "after": after,
            "task": "debug" if metric == "correct" else "generate",
            "family": FAMILY,
            "kind": FAMILY,
            "group": group,
            "split": "train",
            "styles": [],
            "seed": after["verdict"].get("seed"),
            "judged_on": "measured" if timing.get("kind") == "measured" else "emulated",
            "flaws": [],
            "broken": words or None,
        }
    )


def _wrong(verdict: Mapping[str, Any]) -> Iterator[str]:
    """Yields the first error of a version that is not correct: the compiler's, else the judge's."""
    for one in (*(verdict.get("diagnostics") or ()), *(verdict.get("findings") or ())):
        if one.get("severity") == "error":
            code = f"{one['code']}: " if one.get("code") else "compile-error: "
            yield f"{code}line {one['line']}: {one['message']}" if one.get("line") else f"{code}{one['message']}"
            return
    for case in verdict.get("cases") or ():
        wrong = case.get("first_wrong")
        if wrong:
            at = ", ".join(f"{name}={value}" for name, value in case["size"].items())
            yield f"wrong values at {at}: {wrong['argument']}{wrong['index']} is {wrong['got']}, want {wrong['want']}"
            return
