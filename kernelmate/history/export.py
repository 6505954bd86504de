"""Export of the history as training examples: one JSON object for each candidate, in JSON Lines."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from kernelmate.history.store import History
from kernelmate.records import RecordedJudgement

FORMAT = 1
"""Version of the format; it increases when a key changes its meaning or is removed."""


def lines(history: History, kernel: int | None = None, *, accepted_only: bool = False) -> Iterator[str]:
    """Yields one line for each judged version that was derived from another.

    Args:
        history: the history to read.
        kernel: number of the only kernel to export; None for all.
        accepted_only: leave out versions that were rejected or only promising.

    Raises:
        HistoryUnavailable: the file cannot be read.
    """
    for recorded in history.judgements(kernel):
        parent = recorded.judged.parent
        if parent is None or (accepted_only and recorded.judged.verdict.get("accepted") is not True):
            continue
        before = history.version_at(parent, recorded.at_us)
        if before is not None:
            yield json.dumps(_example(before, recorded), allow_nan=False)


def _example(before: RecordedJudgement, after: RecordedJudgement) -> dict[str, Any]:
    judged = after.judged
    verdict = judged.verdict
    return {
        "format": FORMAT,
        "problem": {
            "kernel": after.name,
            "prompt": judged.prompt,
            "metric": judged.metric,
            "findings": [finding.get("message") for finding in before.judged.verdict.get("findings") or ()],
        },
        "constraints": {
            "target": verdict.get("target"),
            "arch": verdict.get("arch"),
            "compiler": verdict.get("compiler"),
            "sizes": [case.get("size") for case in verdict.get("cases") or () if case.get("origin") == "contract"],
            "launch": before.judged.launch,
        },
        "reasoning": list(judged.steps or filter(None, (judged.why,))),
        "before": _side(before),
        "after": _side(after),
        "verdict": _outcome(verdict),
        "author": judged.author,
        "cost": {
            "input_tokens": judged.cost.input_tokens,
            "output_tokens": judged.cost.output_tokens,
            "usd": judged.cost.usd,
        },
        "judged_us": after.at_us,
        "tool": after.tool,
    }


def _outcome(verdict: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the result of judging the changed version, without the figures that both versions have."""
    return {
        "accepted": verdict.get("accepted"),
        "correct": verdict.get("correct"),
        "objective": verdict.get("objective"),
        "speedup": verdict.get("speedup"),
        "findings": [finding.get("code") for finding in verdict.get("findings") or ()],
        "reasons": verdict.get("reasons") or [],
        "trade_offs": verdict.get("trade_offs") or [],
    }


def _side(recorded: RecordedJudgement) -> Mapping[str, Any]:
    return {
        "version": recorded.version,
        "text": recorded.text,
        "source": recorded.source,
        "launch": recorded.judged.launch,
        "verdict": recorded.judged.verdict,
    }
