"""Check of a candidate's stated reason: its claims about figures must agree with the verdicts."""

from __future__ import annotations

import re
from dataclasses import replace

from kernelmate.decide.metrics import metric_value
from kernelmate.records import Candidate, Claim, Verdict


def borne_out(candidate: Candidate, before: Verdict, after: Verdict) -> Candidate:
    """Return the candidate without the claims that its figures contradict; an unknown figure contradicts none.

    Args:
        candidate: the candidate.
        before: the baseline's verdict.
        after: the candidate's verdict.
    """
    why = candidate.why
    for claim in candidate.claims:
        if not _holds(claim, before, after):
            why = re.sub(claim.words, claim.instead, why)
    return candidate if why == candidate.why else replace(candidate, why=why)


def _holds(claim: Claim, before: Verdict, after: Verdict) -> bool:
    was, now = _figure(claim, before), _figure(claim, after)
    if claim.change == "present":
        return was is None or was > 0
    if was is None or now is None:
        return True
    return now < was if claim.change == "falls" else now > was


def _figure(claim: Claim, verdict: Verdict) -> float | None:
    counters = verdict.counters
    match claim.figure:
        case "bank_conflicts":
            return None if counters is None else counters.bank_conflicts
        case "load_requests":
            return None if counters is None else counters.global_load_requests
        case "atomic_requests":
            return None if counters is None else counters.global_atomic_requests
        case metric:
            return metric_value(metric, verdict)
