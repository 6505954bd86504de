"""The list of versions in a panel, and plain values for its view of them; all words are the report's.

Each version has a permanent key, so that requests from the page refer to the same version after the list is sorted, and
to none after the version was removed.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from kernelmate.compiler import find_target, what_would_lift
from kernelmate.errors import KernelmateError
from kernelmate.records import Contract, FindingCode, Judged, Kernel, Optimization, Verdict
from kernelmate.report import words
from kernelmate.report.chart import BASELINE, ChartVersion, author_name, candidate_names
from kernelmate.report.diff import diff_lines, line_kind, whole_text
from kernelmate.report.drawing import svg
from kernelmate.report.figures import MOST_VERSIONS, figures
from kernelmate.report.html import case_row, figure_rows, pairs, table, text
from kernelmate.report.result import NARROW_VERSIONS, changed_table, headline, standing_alone
from kernelmate.report.result_charts import NARROW, result_scenes
from kernelmate.report.versions import none_taken
from kernelmate.source import launch_shape
from kernelmate_widgets.charts import scene_of
from kernelmate_widgets.handle import KernelVersion, reason_not_to_take
from kernelmate_widgets.output import BESIDE


@dataclass(frozen=True, slots=True)
class ListedVersion:
    """One version of the list.

    Attributes:
        key: its identifier in the page; keys are never reused.
        number: its position; 0 is the present kernel.
        found: the candidate with its verdict; None for the present kernel.
        rejected: True if the user rejected it.
        among: all candidates of the list, with which its name is made.
    """

    key: int
    number: int
    found: Judged | None
    rejected: bool
    among: Sequence[Judged] = ()

    @property
    def name(self) -> str:
        """The candidate's name, by which it differs from others of its author; empty for the present kernel."""
        return "" if self.found is None else candidate_names(self.among)[self.number - 1]

    @property
    def label(self) -> str:
        """Its number and name, as in charts."""
        return f"{self.number} {self.name}"


class VersionList:
    """The present kernel, its candidates in order, and the selected one.

    A search adds candidates in one thread while the page reads in another; each method is atomic.
    """

    def __init__(self) -> None:
        self._keys = itertools.count()
        self._lock = threading.RLock()
        self.begin()

    def begin(self) -> None:
        """Empties the list except for the present kernel, and selects that."""
        with self._lock:
            self._first = next(self._keys)
            self._found: list[tuple[int, Judged]] = []
            self._rejected: set[int] = set()
            self._selected = self._first
            self._chosen = False

    def add(self, found: Judged) -> None:
        """Appends a candidate."""
        with self._lock:
            self._found.append((next(self._keys), found))

    def arrange(self, candidates: Sequence[Judged], best: int | None) -> None:
        """Sets the versions of a finished search, in its order.

        The user's selection is kept; without one, the best candidate is selected.
        """
        with self._lock:
            left = list(self._found)
            arranged: list[tuple[int, Judged]] = []
            for one in candidates:
                held = next((pair for pair in left if pair[1] is one or pair[1] == one), None)
                if held is not None:
                    left.remove(held)
                arranged.append((next(self._keys) if held is None else held[0], one))
            self._found = arranged
            keys = [key for key, _ in arranged]
            self._rejected &= set(keys)
            if best is not None and not self._chosen:
                self._selected = keys[best]
            elif self._selected not in keys:
                self._selected = self._first

    def select(self, key: int) -> None:
        """Selects a version; ignores a version that was removed from the list."""
        with self._lock:
            if any(one.key == key for one in self.versions):
                self._selected, self._chosen = key, True

    def reject(self, key: int) -> None:
        """Toggles a candidate's rejection; ignores a candidate that was removed from the list."""
        with self._lock:
            if key in {key for key, _ in self._found}:
                self._rejected ^= {key}

    @property
    def versions(self) -> tuple[ListedVersion, ...]:
        """Returns all versions, the present kernel first."""
        with self._lock:
            found = [one for _, one in self._found]
            listed = [
                ListedVersion(key, number, one, key in self._rejected, found)
                for number, (key, one) in enumerate(self._found, 1)
            ]
            return (ListedVersion(self._first, 0, None, False), *listed)

    @property
    def selected(self) -> ListedVersion:
        """The selected version."""
        with self._lock:
            return next(one for one in self.versions if one.key == self._selected)

    @property
    def found(self) -> tuple[Judged, ...]:
        """The candidates, in the list's order."""
        with self._lock:
            return tuple(one for _, one in self._found)

    def number(self, key: int) -> int | None:
        """Returns a candidate's position from 1; None if the key is not that of a listed candidate."""
        return next((one.number for one in self.versions if one.key == key and one.number), None)

    def shows(self, candidates: Sequence[Judged]) -> bool:
        """Returns True if the list has exactly these candidates, in this order."""
        return list(self.found) == list(candidates)


Plain = dict[str, Any]


def row(listed: ListedVersion, base: KernelVersion, *, best: bool = False) -> Plain:
    """Returns one row of the version list; number 0 is the present kernel."""
    found = listed.found
    author, verdict = (base.author, base.verdict) if found is None else (found.candidate.author, found.verdict)
    standing, tone = words.standing(verdict, candidate=found is not None)
    right, right_tone = words.correctness_words(verdict)
    result = verdict.objective
    return {
        "key": listed.key,
        "number": listed.number,
        "author": words.one_line(author),
        "name": words.one_line(listed.name or author_name(author)),
        "standing": standing,
        "tone": tone,
        "right": right,
        "rightTone": right_tone,
        "best": best,
        "rejected": listed.rejected,
        "asked": "" if result is None else f"{words.METRIC_WORDS[result.name]} {words.objective_words(result)}",
        "predicted": result is not None and result.basis == "predicted",
        "cost": "" if found is None or found.candidate.cost is None else found.candidate.cost.words,
    }


def detail(listed: ListedVersion, base: KernelVersion, *, accepted: bool = False) -> Plain:
    """Returns the details of one version: reason, findings with lines, text, changes, sizes and figures.

    Values called `html` are escaped HTML from the report; all others are plain text.
    """
    found = listed.found
    kernel, contract, verdict = (
        (base.kernel, base.contract, base.verdict)
        if found is None
        else (found.candidate.kernel, found.candidate.contract, found.verdict)
    )
    sizes = [case_row(case, verdict) for case in verdict.cases]
    heads = ["size", "from", "result", "max error", "time", "first wrong"]
    messages = [
        {"severity": d.severity, "code": d.code or "compiler", "line": d.line, "text": words.printable(d.message)}
        for d in verdict.diagnostics
    ]
    told = not verdict.diagnostics
    messages += [
        {"severity": f.severity, "code": f.code, "line": f.line, "text": words.printable(f.message)}
        for f in verdict.findings
        if told or f.code != FindingCode.COMPILE_ERROR
    ]
    return {
        "key": listed.key,
        "number": listed.number,
        "why": "" if found is None else words.printable(found.candidate.why),
        "reasons": list(words.further_reasons(verdict)),
        "worse": words.printable("; ".join(verdict.trade_offs)),
        "lifts": list(_lifts(verdict, contract)),
        "messages": messages,
        "firstLine": kernel.unit.locate(1, 1)[0],
        "source": words.printable(whole_text(kernel)),
        "diff": [] if found is None else _diff(base.kernel, kernel),
        "headline": _headline(listed, verdict, accepted=accepted),
        "changed": "" if found is None else "".join(changed_table(base.verdict, verdict)),
        "html": "".join([*pairs(figure_rows(verdict)), *(table(heads, sizes) if sizes else [])]),
        "refused": None if found is None else reason_not_to_take(found),
    }


def _headline(listed: ListedVersion, verdict: Verdict, *, accepted: bool) -> str:
    if listed.found is None:
        return f"<strong>{text(words.kernel_words(verdict))}</strong> {standing_alone(verdict)}"
    return headline(verdict, listed.label, accepted=accepted)


def _diff(before: Kernel, after: Kernel) -> list[list[str]]:
    lines = diff_lines(whole_text(before), whole_text(after), before.unit.path)
    return [[line_kind(line, index), words.printable(line)] for index, line in enumerate(lines)][2:]


def _lifts(verdict: Verdict, contract: Contract) -> tuple[str, ...]:
    """Returns changes that would raise occupancy at the headline size."""
    if verdict.resources is None:
        return ()
    try:
        return what_would_lift(
            find_target(verdict.target), verdict.resources, launch_shape(contract, contract.sizes[0])
        )
    except KernelmateError:
        return ()


def shown_versions(base: KernelVersion, listing: VersionList) -> list[ChartVersion]:
    """Returns the versions of the charts: the present kernel, the selected candidate, and the next ones in the list."""
    selected, charted = listing.selected, _is_charted(listing.selected)
    others = [one for one in listing.versions if one.found is not None and not one.rejected and one.key != selected.key]
    shown = [ChartVersion(BASELINE, base.verdict)]
    for one in ([selected, *others] if charted else others)[: MOST_VERSIONS - 1]:
        assert one.found is not None
        shown.append(ChartVersion(one.label, one.found.verdict))
    return shown


def _is_charted(listed: ListedVersion) -> bool:
    return listed.found is not None and not listed.rejected


def drawings(base: KernelVersion, listing: VersionList) -> list[Plain]:
    """Returns the three charts of every result, each as an SVG for wide panels and one for narrow ones."""
    versions = shown_versions(base, listing)
    in_view = versions[:NARROW_VERSIONS] if _is_charted(listing.selected) else versions
    narrow = {scene.title: svg(scene) for scene in result_scenes(in_view, NARROW)}
    return [
        {
            "title": scene.title,
            "svg": f'<div class="km-wide">{svg(scene)}</div><div class="km-narrow">{narrow.get(scene.title, "")}</div>',
        }
        for scene in result_scenes(versions)
    ]


def charts(versions: Sequence[ChartVersion]) -> list[Plain]:
    """Returns the report's further charts, each as an SVG and as a Plotly figure."""
    return [
        {
            "title": title,
            "svg": svg(scene_of(title, figure)),
            "figure": figure.to_json(),
            "height": figure.height,
        }
        for title, figure in figures(versions).items()
        if title in BESIDE
    ]


def notes_of(optimization: Optimization | None) -> list[str]:
    """Returns notes on a search: the interpreted objective, and how the search ended."""
    if optimization is None:
        return []
    said = none_taken(optimization)
    return [optimization.objective.reading, *([] if said is None else [said]), *optimization.notes]
