"""Assembles a corpus from judged groups: removes duplicates, balances the tasks and writes the corpus card."""

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
from kernelmate_training.corpus.drafting import Family
from kernelmate_training.corpus.examples import StoredRow
from kernelmate_training.corpus.journal import COUNTED, GroupResult
from kernelmate_training.corpus_files import CORPUS

_INTRODUCTION = """# Data card

Pairs of CUDA kernels, one better than the other for a stated metric, and broken kernels with their repairs. Every version was
compiled by NVRTC, run by KernelMate's emulator at three sizes, one of them odd and one of a single element, and held to a NumPy
reference within derived tolerances; reads out of bounds, races and uninitialised memory were looked for at the small sizes.
{timing}
Broken versions are those that a compiler or a judge was seen to refuse; their `broken` is what it said.

What a model is to learn is a choice. `offers` are the built-in recipes that apply to the version before for the metric (repairs,
where it is broken), each with how many variants it has there. Up to twelve versions that they make were tried for each question:
ranked by their compiled code, by their time on the GPU, or by what was counted of them once they were right. The best that was
right and better has `rank` 1, those nearly as good 2 and 3 (at most 12 % worse, with 85 % of the gain); `actions` name the recipes
and variants that make `after` of `before`, byte for byte. A version of two actions is there where the second made it better by 10 %
again. Of mistakes, `actions` name the first repair whose version was right. Rows without `actions` are fixes written by hand, half
of them where a recipe did too. `problem.size` is the size at which time was measured; where it is absent, the contract's headline.

The kernels are generated: problems, deficiencies, launches and ways of writing are drawn by chance from families, and joined.
Nothing was taken from other people's code. Problems of held-out families have the split `held-out`, and are for measuring only.
"""

_COLLECTED = """# Data card

Versions of one user's own kernels, each beside the one that it was made from, with the verdicts of that time: what was accepted or
promising is in `corpus.jsonl`, what was rejected in `rejected.jsonl`. Texts and prompts are the user's; whose they are, and who may
see a model that was trained on them, is for that user to know.
"""

_MEASURED = """Right versions also ran on the GPU, between guard bands, at two of those sizes, and were timed in turns at the contract's headline
or at a size that fills the GPU, each in half of the problems first (seven turns of graphs of up to 64 launches, so that what a
launch costs the host is not measured). An improvement in time is a measured one; metrics that are counted
or compiled (sectors, shared memory, registers, occupancy) are the emulator's and the compiler's."""

_EMULATED = """There was no GPU: an improvement in time is what the model predicts with its whole interval above 1, and is labelled `predicted`."""


def card_text(manifest: Manifest) -> str:
    """Returns the data card in Markdown."""
    measured = manifest.about.get("backend") == "cuda"
    generated = _INTRODUCTION.format(timing=_MEASURED if measured else _EMULATED)
    lines = [_COLLECTED if manifest.about.get("backend") == "history" else generated]
    lines += ["| | |", "| --- | --- |"]
    lines += [f"| {key} | {value} |" for key, value in manifest.about.items()]
    lines += [
        f"| date | {manifest.date} |",
        f"| tool | KernelMate {manifest.tool}, generator {manifest.generator} |",
        f"| rows | {manifest.rows} from {manifest.groups} problems ({manifest.duplicates} duplicates left out, {manifest.lost} problems lost) |",
        f"| hash | {manifest.hash} |",
        f"| held-out families | {', '.join(manifest.held_out) or 'none'} |",
        "",
    ]
    for title, counts in (
        ("Tasks", manifest.tasks), ("Splits", manifest.splits), ("Kinds", manifest.kinds), ("Metrics", manifest.metrics),
        ("Families", manifest.families), ("Deficiencies and mistakes", manifest.flaws),
    ):  # fmt: skip
        lines += [f"## {title}", "", *_table(counts, manifest.rows), ""]
    lines += [
        "## What judging left of each family",
        "",
        "| family | problems | versions right | versions tried | pairs better | mistakes that fail | of those mended by a repair |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    lines += [
        f"| {name} | {of.get('groups', 0)} | {_share(of, 'right', 'texts')} | {of.get('tried', 0)} | {_share(of, 'better', 'pairs')} | {_share(of, 'failing', 'broken')} | {_share(of, 'mended', 'failing')} |"
        for name, of in manifest.yields.items()
    ]
    return "\n".join(lines) + "\n"


def _table(counts: Mapping[str, int], rows: int) -> list[str]:
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return [
        "| | rows | share |",
        "| --- | ---: | ---: |",
        *(f"| {name} | {count} | {count / max(rows, 1):.1%} |" for name, count in ordered),
    ]


def _share(of: Mapping[str, int], part: str, whole: str) -> str:
    total = of.get(whole, 0)
    return f"{of.get(part, 0)}/{total} ({of.get(part, 0) / total:.0%})" if total else "0"


TASKS: Mapping[str, float] = {"generate": 0.4, "analyse": 0.3, "debug": 0.3}
"""Shares of the tasks among the rows."""

GENERATOR = 4
"""Version of the generator; it increases when equal seeds give different problems."""

REJECTED, CARD, MANIFEST = "rejected.jsonl", "card.md", "manifest.json"


@dataclass(frozen=True, slots=True)
class Manifest:
    """The contents of a corpus, in figures.

    Attributes:
        rows, groups: their numbers.
        tasks, kinds, families, metrics, splits, flaws: rows by each.
        yields: by family, counts of groups, texts, correct texts, pairs, better pairs, broken texts, failing ones,
            repaired ones, and versions tried.
        hash: hash of the rows' content, without the times of judging.
        about: seed, backend, target, machine and seconds of the build.
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
    """Selection of rows: each row once, and of each task no more than its share of the wanted rows.

    Args:
        count: total number of wanted rows; None for every row.
    """

    def __init__(self, count: int | None) -> None:
        self.tasks: Counter[str] = Counter()
        self.duplicates = 0
        self._most = {} if count is None else {task: math.ceil(count * share) for task, share in TASKS.items()}
        self._seen: set[str] = set()

    @property
    def kept(self) -> int:
        """Number of selected rows."""
        return self.tasks.total()

    @property
    def full(self) -> bool:
        """True if there are enough rows of every task."""
        return bool(self._most) and all(self.tasks[task] >= most for task, most in self._most.items())

    def takes(self, row: StoredRow) -> bool:
        """Returns True if a row is new and wanted; the row is then counted."""
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
    parts: Iterable[GroupResult],
    count: int | None,
    about: Mapping[str, Any],
    families: Mapping[str, Family],
) -> Manifest:
    """Write a corpus from judged groups in their order.

    Args:
        folder: the destination.
        parts: results of `group_processing` for each group.
        count: number of wanted rows; None for all.
        about: further facts for the manifest.
        families: families by name, some of which are held out.
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


def _tally(tallies: Mapping[str, Counter[str]], row: StoredRow) -> None:
    tallies["kinds"][row.kind] += 1
    tallies["families"][row.family] += 1
    tallies["metrics"][row.metric] += 1
    tallies["splits"][row.split] += 1
    tallies["flaws"].update(row.flaws)
