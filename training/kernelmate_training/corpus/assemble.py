"""From judged groups to a corpus: duplicates out, tasks in their shares, and what has to be said of it beside it."""

from __future__ import annotations

import datetime
import hashlib
import json
import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from kernelmate.version import VERSION
from kernelmate_training.corpus.card import card_text
from kernelmate_training.corpus.drafting import Family
from kernelmate_training.corpus.examples import Written
from kernelmate_training.corpus.journal import COUNTED, Studied
from kernelmate_training.corpus_files import CORPUS

TASKS: Mapping[str, float] = {"generate": 0.4, "analyse": 0.3, "debug": 0.3}
"""Shares of the tasks among the rows."""

GENERATOR = 4
"""Version of the generator; it grows when equal seeds give other problems."""

REJECTED, CARD, MANIFEST = "rejected.jsonl", "card.md", "manifest.json"


@dataclass(frozen=True, slots=True)
class Manifest:
    """What a corpus is made of.

    Attributes:
        rows, groups: how many. tasks, kinds, families, metrics, splits, flaws: rows by each.
        yields: by family, groups, texts, right texts, pairs, better pairs, broken, failing and mended ones, versions tried.
        hash: of the rows' content, without the times at which they were judged.
        about: seed, backend, target, machine, seconds.
    """

    rows: int
    groups: int
    duplicates: int
    tasks: Mapping[str, int]
    kinds: Mapping[str, int]
    families: Mapping[str, int]
    metrics: Mapping[str, int]
    splits: Mapping[str, int]
    flaws: Mapping[str, int]
    held_out: tuple[str, ...]
    yields: Mapping[str, Mapping[str, int]]
    lost: int
    hash: str
    generator: int
    tool: str
    date: str
    about: Mapping[str, Any]


class PromptFilter:
    """Takes each row once, and of each task as many as its share of the wanted rows.

    Args:
        count: rows wanted in all; None for every row.
    """

    def __init__(self, count: int | None) -> None:
        self.tasks: Counter[str] = Counter()
        self.duplicates = 0
        self._most = {} if count is None else {task: math.ceil(count * share) for task, share in TASKS.items()}
        self._seen: set[str] = set()

    @property
    def kept(self) -> int:
        """Rows taken."""
        return self.tasks.total()

    @property
    def full(self) -> bool:
        """True if there are enough rows of every task."""
        return bool(self._most) and all(self.tasks[task] >= most for task, most in self._most.items())

    def takes(self, row: Written) -> bool:
        """True if a row is new and wanted; it is then counted."""
        if row.task in self._most and self.tasks[row.task] >= self._most[row.task]:
            return False
        if row.mark in self._seen:
            self.duplicates += 1
            return False
        self._seen.add(row.mark)
        self.tasks[row.task] += 1
        return True


def assemble(
    folder: Path,
    parts: Iterable[Studied],
    count: int | None,
    about: Mapping[str, Any],
    families: Mapping[str, Family],
) -> Manifest:
    """Write a corpus from judged groups in their order.

    Args:
        folder: where to.
        parts: groups as `study` found them.
        count: rows wanted; None for all.
        about: what the manifest tells besides.
        families: for what is held out.
    """
    sieve, digest = PromptFilter(count), hashlib.sha256()
    tallies: dict[str, Counter[str]] = {name: Counter() for name in ("kinds", "families", "metrics", "splits", "flaws")}
    yields: dict[str, Counter[str]] = {}
    groups = lost = 0
    with _fresh(folder / CORPUS) as rows, _fresh(folder / REJECTED) as rejected:
        for part in parts:
            if sieve.full:
                break
            groups += 1
            lost += bool(part.lost)
            of = yields.setdefault(part.family, Counter())
            of.update({name: getattr(part, name) for name in COUNTED} | {"groups": 1})
            for row in part.rows:
                if sieve.takes(row):
                    rows.write(row.line + "\n")
                    digest.update(row.content.encode())
                    _tally(tallies, row)
            for row in part.rejected:
                rejected.write(row.line + "\n")
    manifest = Manifest(
        sieve.kept, groups, sieve.duplicates, dict(sieve.tasks), **{name: dict(sorted(t.items())) for name, t in tallies.items()},
        held_out=tuple(sorted(f.name for f in families.values() if f.held_out)),
        yields={name: dict(of) for name, of in sorted(yields.items())}, lost=lost, hash="sha256:" + digest.hexdigest(),
        generator=GENERATOR, tool=VERSION, date=datetime.datetime.now(datetime.UTC).date().isoformat(), about=dict(about),
    )  # fmt: skip
    (folder / MANIFEST).write_text(json.dumps(asdict(manifest), indent=1) + "\n", encoding="utf-8")
    (folder / CARD).write_text(card_text(manifest), encoding="utf-8")
    return manifest


def _fresh(path: Path) -> Any:
    return path.open("w", encoding="utf-8")


def _tally(tallies: Mapping[str, Counter[str]], row: Written) -> None:
    tallies["kinds"][row.kind] += 1
    tallies["families"][row.family] += 1
    tallies["metrics"][row.metric] += 1
    tallies["splits"][row.split] += 1
    tallies["flaws"].update(row.flaws)
