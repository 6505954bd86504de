"""Rows of a corpus: a judged pair as one JSON object, in the history's export format with further keys."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from kernelmate.history.export import FORMAT
from kernelmate.records import Counters, Finding, FindingCode, Verdict
from kernelmate.report.json import plain
from kernelmate.version import VERSION
from kernelmate_training.corpus.flaws import FLAWS
from kernelmate_training.overlap import fingerprint

if TYPE_CHECKING:
    from kernelmate_training.corpus.drafting import Family
    from kernelmate_training.corpus.groups import Group, Pair, Repair
    from kernelmate_training.corpus.judging import Judged

Row = dict[str, Any]

AUTHOR = "corpus"

_LEFT_OUT = frozenset({"lines", "roofline", "hardware", "predicted", "diagnostics", "instance", "seed", "backend", "compiler", "arch", "target", "kernel", "objective", "accepted", "reasons", "trade_offs", "binary", "cases"})  # fmt: skip
"""Keys of a verdict that rows leave out, besides empty ones; values that all rows share are in their constraints."""


def change_row(
    group: Group, family: Family, pair: Pair, before: Judged, after: Judged, verdict: Verdict, task: str, judged_on: str
) -> Row:
    """Returns a pair as an example for generating (`generate`) or analysing (`analyse`)."""
    row = _row(group, family, before, after, verdict, judged_on)
    row["task"] = task
    row["problem"] |= {"prompt": pair.prompt, "metric": pair.metric}
    row["reasoning"] = [
        *_counted(before, after, pair),
        *(s for flaw in pair.flaws for s in (FLAWS[flaw].bottleneck, FLAWS[flaw].remedy)),
        *pair.whys,
    ]
    if pair.steps:
        row["author"] = "recipe:" + "+".join(name for name, _ in pair.steps)
        row["actions"] = actions_of(pair.steps)
        row["rank"] = pair.rank
    row["offers"] = offers_of(pair.offers)
    if pair.metric == "time" and pair.size is not None:
        row["problem"]["size"] = dict(pair.size)
    row["flaws"] = list(pair.flaws)
    row["broken"] = None
    return row


def repair_row(group: Group, family: Family, repair: Repair, broken: Judged, after: Judged, judged_on: str) -> Row:
    """Returns a mistake and its repair as an example for debugging."""
    row = _row(group, family, broken, after, replace(after.verdict, accepted=True), judged_on)
    row["before"] = _side(broken, _said(broken))
    if broken.verdict.diagnostics:
        row["before"]["verdict"]["diagnostics"] = plain(_said(broken).diagnostics)
    row["task"] = "debug"
    row["problem"] |= {"prompt": repair.prompt, "metric": "correct", "findings": [broken.words]}
    row["reasoning"] = [broken.words, repair.broken.explanation]
    row["flaws"] = [repair.broken.kind]
    row["broken"] = broken.words
    row["verdict"]["objective"] = {"name": "correct", "basis": "measured", "before": 0.0, "after": 1.0, "met": True}
    return row


def actions_of(steps: Sequence[tuple[str, int]]) -> list[Row]:
    """Returns steps in the form of a row."""
    return [{"recipe": name, "variant": variant} for name, variant in steps]


def offers_of(offers: Sequence[tuple[str, int]]) -> list[Row]:
    """Returns the applicable rewrites in the form of a row."""
    return [{"recipe": name, "variants": variants} for name, variants in offers]


def _said(broken: Judged) -> Verdict:
    """Returns a broken version's verdict without file names, and with the compiler's first error among the findings."""
    verdict = broken.verdict
    diagnostics = tuple(replace(one, file=None) for one in verdict.diagnostics)
    findings = tuple(replace(one, file=None) for one in verdict.findings)
    for one in diagnostics[:1]:
        findings = (
            Finding(FindingCode.COMPILE_ERROR, "error", one.message, line=one.line, column=one.column),
            *findings,
        )
    return replace(verdict, diagnostics=diagnostics, findings=findings)


def _row(group: Group, family: Family, before: Judged, after: Judged, verdict: Verdict, judged_on: str) -> Row:
    assert after.version is not None
    shown = plain(verdict)
    known = before.version or after.version
    return {
        "format": FORMAT,
        "problem": {"kernel": group.problem.kernel, "prompt": None, "metric": None, "findings": []},
        "constraints": {
            "target": verdict.target,
            "arch": verdict.arch,
            "compiler": verdict.compiler,
            "sizes": [dict(size) for size in group.problem.sizes],
            "launch": _launch(known.contract),
        },
        "reasoning": [],
        "before": _side(before),
        "after": _side(after, verdict),
        "verdict": {
            "accepted": shown["accepted"],
            "correct": shown["correct"],
            "objective": shown["objective"],
            "speedup": shown["speedup"],
            "findings": [finding["code"] for finding in shown["findings"]],
            "reasons": shown["reasons"],
            "trade_offs": shown["trade_offs"],
        },
        "author": AUTHOR,
        "cost": {"input_tokens": None, "output_tokens": None, "usd": None},
        "judged_us": time.time_ns() // 1000,
        "tool": VERSION,
        "family": family.name,
        "kind": family.kind,
        "group": group.name,
        "split": "held-out" if family.held_out else "train",
        "styles": list(group.problem.style.traits()),
        "seed": group.seed,
        "judged_on": judged_on,
    }


def _side(judged: Judged, verdict: Verdict | None = None) -> Row:
    own = judged.verdict if verdict is None else verdict
    shown = {key: value for key, value in plain(_lean(own)).items() if key not in _LEFT_OUT and value not in (None, [])}
    launch = None if judged.version is None else _launch(judged.version.contract)
    return {"version": None, "source": judged.text, "launch": launch, "verdict": shown}


def _lean(verdict: Verdict) -> Verdict:
    """Returns the verdict without modelled figures."""
    counters = verdict.counters
    if counters is not None:
        counters = replace(counters, caches=None, instruction_mix=None, instruction_mix_unknown=None)
    return replace(verdict, counters=counters)


def _launch(contract: Any) -> Mapping[str, Any]:
    return {
        "grid": list(contract.grid),
        "block": list(contract.block),
        "shared": contract.shared,
        "require": list(contract.require),
    }


def _counted(before: Judged, after: Judged, pair: Pair) -> list[str]:
    """Returns sentences with the figures of the version before that concern the metric; empty if none was counted."""
    said: list[str] = []
    verdict, better = before.verdict, after.verdict
    counters = verdict.counters
    if counters is not None and pair.metric in ("time", "global_bytes"):
        said += _sectors(counters)
    if counters is not None and counters.bank_conflicts and pair.metric == "time":
        said.append(f"Shared memory has {counters.bank_conflicts} bank conflicts.")
    old, new = verdict.resources, better.resources
    if old is not None and new is not None:
        shared = old.shared_bytes + old.dynamic_shared_bytes
        if pair.metric in ("shared_bytes", "occupancy") and shared:
            said.append(f"A block takes {shared} bytes of shared memory.")
        if pair.metric in ("registers", "occupancy"):
            said.append(f"Each thread takes {old.registers} registers.")
        if pair.metric == "local_bytes":
            said.append(f"Each thread takes {max(old.local_bytes, old.spill_bytes or 0)} bytes of local memory.")
    if verdict.occupancy is not None and pair.metric == "occupancy":
        said.append(
            f"Theoretical occupancy is {verdict.occupancy.theoretical:.0%}, limited by {verdict.occupancy.limiter}."
        )
    return said


def _sectors(counters: Counters) -> list[str]:
    said = []
    for what, requests, sectors in (
        ("loads", counters.global_load_requests, counters.global_load_sectors),
        ("stores", counters.global_store_requests, counters.global_store_sectors),
    ):
        if requests and sectors is not None:
            said.append(
                f"Global {what}: {requests} requests of warps, {sectors} sectors, {sectors / requests:.1f} each."
            )
    if counters.global_atomic_requests:
        said.append(f"Atomics in global memory: {counters.global_atomic_requests} requests of warps.")
    return said


@dataclass(frozen=True, slots=True)
class StoredRow:
    """A row as it is stored, with the facts needed to select and count it without parsing it.

    Attributes:
        line: the JSON object, without a line end.
        mark: key of rows that teach the same, as by `mark_of`.
        content: hash of the row without the time of judging.
        flaws: deficiencies, mistakes, and recipes as `recipe:NAME`.
    """

    line: str
    task: str
    metric: str
    mark: str
    content: str
    kind: str
    family: str
    split: str
    flaws: tuple[str, ...]


def written(row: Row) -> StoredRow:
    """Returns a row in its stored form."""
    line = json.dumps(row, allow_nan=False, separators=(",", ":"))
    lasting = json.dumps({key: value for key, value in row.items() if key != "judged_us"}, allow_nan=False)
    content = hashlib.sha256(lasting.encode()).hexdigest()
    actions = (f"recipe:{action['recipe']}" for action in row.get("actions", ()))
    return StoredRow(
        line, row["task"], row["problem"]["metric"] or "", mark_of(row), content, row["kind"], row["family"], row["split"],
        (*row["flaws"], *actions),
    )  # fmt: skip


def mark_of(row: Mapping[str, Any]) -> str:
    """Returns a key that is equal for rows that teach the same: equal task, metric and size, and equal texts and launches.

    Names and layout do not count.
    """
    sides = [row[side]["source"] + "\n" + str(row[side]["launch"]) for side in ("before", "after")]
    size = row["problem"].get("size") or ""
    return f"{row['task']}:{row['problem']['metric']}:{size}:{fingerprint(*sides)}"
