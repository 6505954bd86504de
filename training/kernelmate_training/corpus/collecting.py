"""Corpus from the user's own history: proposed, accepted and rejected versions, with their stored verdicts."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from kernelmate.errors import UsageError
from kernelmate.history import History
from kernelmate.history.export import lines
from kernelmate_training.corpus.assemble import assemble
from kernelmate_training.corpus.examples import Written, written
from kernelmate_training.corpus.journal import Studied

FAMILY = "history"
SETTINGS = "settings.json"


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


def _group(history: History, number: int, name: str) -> Studied:
    found = Studied(number, FAMILY)
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


def _row(example: Mapping[str, Any], group: str) -> Written | None:
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
